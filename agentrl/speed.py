# Generated from notebooks/99_4_speed.ipynb by book/tangle.py; edit the notebook.
"""Speed: the same numbers, sooner."""

# %% [imports]
from functools import partial

import torch
from torch.nn import functional as F

from agentrl.agent import (
    MAX_CONTEXT,
    Policy,
    device_of,
    eval_mode,
    from_list,
    pad_rows,
    pick,
    up_to,
)
from agentrl.checks import require
from agentrl.policy_gradient import entropy_from_logits, selected_log_probs


# %% [key-values]
class KeyValues:
    """Keys and values of the tokens of all rows that have been read (section 5).

    `[layers, B, capacity, 2, heads, head width]`, first all 0. The padding of a chunk
    is written past the end of its row: no query sees it before real tokens replace it.
    """

    def __init__(self, model, batch_size):
        heads, width = model.blocks[0].attention.heads, model.embed.embedding_dim
        self.table = model.embed.weight.new_zeros(
            len(model.blocks), batch_size, 128, 2, heads, width // heads)

    def grow(self, length):
        """Make room for `length` tokens: repeated reads make long episodes."""
        require(length <= MAX_CONTEXT, 'context', length, f'at most {MAX_CONTEXT} tokens')
        while length > self.table.shape[2]:
            self.table = torch.cat([self.table, torch.zeros_like(self.table)], 2)

    def remember(self, layer, rows, position, length, new):
        """Store those of a chunk; return those of its rows' first `length` tokens."""
        table = self.table[layer]
        table[rows[:, None], position] = new.transpose(1, 3)
        return table[:, :length].index_select(0, rows).transpose(1, 3)


# %% [read-chunk]
@torch.inference_mode()
def read_chunk(model, memory, chunk, start, rows, wanted):
    """Run new tokens of some rows; logits `[n, places, V]` (section 5).

    `chunk` `[n, T]` continues rows `rows` `[n]` at their positions `start` `[n]`;
    `wanted` `[n, places]`: which of the T have logits.
    """
    position = start[:, None] + torch.arange(chunk.shape[1], device=chunk.device)
    length = int(position[:, -1].max()) + 1
    memory.grow(length)
    x, places = model.enter(chunk, position), None
    visible = up_to(position, length, x.dtype)
    for n, block in enumerate(model.blocks):
        if n == len(model.blocks) - 1 and chunk.shape[1] > 1:
            places = wanted
            visible = up_to(position.gather(1, wanted), length, x.dtype)
        remember = partial(memory.remember, n, rows, position, length)
        x = block(x, places, visible=visible, remember=remember)
    return model.leave(x)


# %% [runs]
_RUN_TOKENS = 1000      # most tokens of one run, padding included


def runs_of(lengths):
    """The rows of a dict of lengths, in runs of similar length (section 5)."""
    if max(lengths.values()) * len(lengths) <= _RUN_TOKENS:
        return [list(lengths)]
    runs = [[]]
    for row in sorted(lengths, key=lengths.get):
        if runs[-1] and lengths[row] * (len(runs[-1]) + 1) > _RUN_TOKENS:
            runs.append([])
        runs[-1].append(row)
    return runs


# %% [cached]
class CachedContext:
    """The fast reader: equal contexts run through the model once (section 5)."""

    def __init__(self, model, tok, batch_size):
        self.model, self.device, self.pad_id = model, device_of(model), tok.pad_id
        self.memory, self.read = KeyValues(model, batch_size), [0] * batch_size
        self.home = [None] * batch_size     # whose row of the memory a row shares
        self.guess, self.guessed = tok.encode('<call>'), (None, None)

    def next_logits(self, contexts, rows):
        """Logits `[len(rows), V]` of the token that follows each of these contexts."""
        new = {row: contexts[row][self.read[row]:] for row in rows}
        (guessed, logits), self.guessed = self.guessed, (None, None)
        if guessed != rows or any(tokens != self.guess for tokens in new.values()):
            guess = self.guess if max(map(len, new.values())) > 1 else []
            share_rows(self, new)
            logits = read_rows(self, new, guess)
            if guess:
                self.guessed = rows, logits[:, 1]
            logits = logits[:, 0]
        for row in rows:
            self.read[row] = len(contexts[row])
        return logits


# %% [share]
@torch.inference_mode()
def share_rows(reader, new):
    """Give rows with equal contexts one home, the first of them (section 5)."""
    first, parted = {}, {}
    for row in sorted(new):
        old, read = reader.home[row], reader.read[row]
        reader.home[row] = first.setdefault((old, read, *new[row]), row)
        if read and old != row == reader.home[row]:
            parted[row] = old
    if parted:
        rows, homes, table = list(parted), list(parted.values()), reader.memory.table
        length = max(reader.read[row] for row in parted)
        table[:, rows, :length] = table[:, homes, :length]


# %% [read-rows]
def read_rows(reader, new, guess):
    """Logits after the new tokens of rows and after `guess`, `[n, 1 or 2, V]` (5)."""
    runs = runs_of({row: len(tokens) + len(guess) for row, tokens in new.items()
                    if reader.home[row] == row})
    logits, device = [], reader.device
    for rows in runs:
        chunk, lengths = pad_rows([new[row] + guess for row in rows], reader.pad_id,
                                  device)
        start = from_list([reader.read[row] for row in rows], device)
        back = torch.arange(len(guess) + 1, 0, -1, device=device)
        logits.append(read_chunk(reader.model, reader.memory, chunk, start,
                                 from_list(rows, device), lengths[:, None] - back))
    place = {row: i for i, row in enumerate(row for run in runs for row in run)}
    return torch.cat(logits)[[place[reader.home[row]] for row in new]]


# %% [token-logits]
def policy_logits(model, ids, places):
    """Logits `[B, n, V]` at some places `[B, n]` of each row (section 9.2)."""
    return model(ids, places) if type(model) is Policy else pick(model(ids), places)


def policy_places(mask):
    """Places of policy tokens, row by row: `[B, n]`, filled up with other places."""
    order = mask.int().argsort(dim=1, descending=True, stable=True)
    return order[:, :max(1, int(mask.sum(1).max()))]


# %% [live-runs]
def live_runs(mask, live):
    """Run by run: numbers of rows, tokens to read, logits to take (section 9.2)."""
    place = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    length = (mask * place).amax(1).clamp(min=1).tolist()   # to the last policy token
    count = mask.sum(1).clamp(min=1).tolist()
    for group in (live, ~live):
        lengths = {row: length[row] for row in group.nonzero()[:, 0].tolist()}
        for rows in runs_of(lengths) if lengths else ():
            width, n = (max(of[row] for row in rows) for of in (length, count))
            yield torch.tensor(rows, device=mask.device), width, n


# %% [token-stats]
def token_stats(model, ids, mask, temperature, live):
    """Log-probs and entropies of policy tokens, `[2, B, T-1]`; 0 elsewhere (9.2).

    At the sampling temperature. Only `live` rows keep what a gradient needs.
    """
    mask, order, found = mask.bool(), [], []
    places = policy_places(mask)
    for rows, width, n in live_runs(mask, live):
        learn = torch.is_grad_enabled() and bool(live[rows[0]])
        with torch.set_grad_enabled(learn):
            logits = policy_logits(model, ids[rows, :width], places[rows, :n])
        found.append(F.pad(logits, (0, 0, 0, places.shape[1] - n)))
        order.append(rows)
    logits = torch.cat(found)[torch.cat(order).argsort()] / temperature
    logp = selected_log_probs(logits, pick(ids[:, 1:], places))
    values = torch.stack([logp, entropy_from_logits(logits.detach())])
    table = values.new_zeros(2, *mask.shape)
    return torch.where(mask, table.scatter(2, places.expand_as(values), values), 0.0)


# %% [token-log-probs]
@torch.no_grad()
def token_log_probs(model, ids, mask, temperature):
    """Log-probs of the policy tokens, `[B, T-1]`; 0 elsewhere; no gradient (9.2)."""
    with eval_mode(model):
        none = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
        return token_stats(model, ids, mask, temperature, none)[0]


# %% [sampled-stats]
def fill_stats(model, data, rows, cfg, known):
    """The table `known` `[2, B, T-1]` with the statistics of `rows` in it (9.2)."""
    if len(rows) == 0:
        return known
    ids, mask, live = (data[k][rows] for k in ('ids', 'mask', 'live'))
    new = token_stats(model, ids, mask, cfg.temperature, live)
    return known.to(new.dtype).index_copy(1, rows, new)


@torch.no_grad()
def sampled_stats(model, data, first, cfg):
    """Statistics under the policy that sampled: all rows but live ones of `first`."""
    other = torch.ones_like(data['live'])
    other[first] = ~data['live'][first]
    known = torch.zeros(2, *data['mask'].shape, device=other.device)
    return fill_stats(model, data, other.nonzero()[:, 0], cfg, known)


__all__ = [
    "KeyValues",
    "read_chunk",
    "runs_of",
    "CachedContext",
    "share_rows",
    "read_rows",
    "policy_logits",
    "policy_places",
    "live_runs",
    "token_stats",
    "token_log_probs",
    "fill_stats",
    "sampled_stats",
]
