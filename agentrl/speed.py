# Generated from notebooks/99_4_speed.ipynb by book/tangle.py; edit the notebook.
"""Speed: the same numbers, sooner."""

# %% [imports]
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch.nn import functional as F

from agentrl.agent import (
    MAX_CONTEXT,
    Attention,
    Block,
    Policy,
    TiedEmbedding,
    device_of,
    eval_mode,
    from_list,
    pad_rows,
)
from agentrl.checks import require
from agentrl.policy_gradient import entropy_from_logits, selected_log_probs


# %% [up-to]
def pick(x, places):
    """The entries of each row at `places` `[B, n]`: `[B, T, ...]` -> `[B, n, ...]`."""
    return x[torch.arange(len(x), device=x.device)[:, None], places]


def _up_to(position, length, dtype):
    """Mask of queries at `position` `[B, n]`: `[B, 1, n, length]`, 0, later -inf."""
    later = torch.full((length, length), -torch.inf, dtype=dtype,
                       device=position.device)
    return later.triu(1)[position][:, None]


# %% [run-block]
def _run_block(block, x, visible, wanted=None, remember=None):
    """Vectors `[B, n, width]` of a `Block` at some places or, with None, at all."""
    qkv = block.attention.split(block.norm1(x))
    q, kv = qkv[:, :, 0], qkv[:, :, 1:]                 # [B, heads, (2,) T, width]
    if wanted is not None:
        q, x = pick(q.transpose(1, 2), wanted).transpose(1, 2), pick(x, wanted)
    k, v = (kv if remember is None else remember(kv)).unbind(2)
    heads = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
    return block.think(x + block.attention.join(heads))


# %% [key-values]
class _KeyValues:
    """Keys and values of the tokens of all rows that have been read (workshop).

    `[layers, B, capacity, 2, heads, head width]`, first all 0. The padding of a chunk
    is written past the end of its row: no query sees it before real tokens replace it.
    """

    def __init__(self, model, batch_size):
        heads, weight = model.blocks[0].attention.heads, model.embed.weight
        self.table = weight.new_zeros(len(model.blocks), batch_size, 128, 2, heads,
                                      weight.shape[1] // heads)

    def grow(self, length):
        """Make room for `length` tokens: repeated reads make long episodes."""
        require(length <= MAX_CONTEXT, 'context', length,
                f'at most {MAX_CONTEXT} tokens')
        while length > self.table.shape[2]:
            self.table = torch.cat([self.table, torch.zeros_like(self.table)], 2)

    def remember(self, layer, rows, position, length, new):
        """Store those of a chunk; return those of its rows' first `length` tokens."""
        table = self.table[layer]
        table[rows[:, None], position] = new.transpose(1, 3)
        return table[:, :length].index_select(0, rows).transpose(1, 3)


# %% [fast-policy]
class FastPolicy:
    """A `Policy`, read at some places only, or on from a memory (workshop)."""

    def __init__(self, policy):
        self.policy = policy

    def memory(self, batch_size):
        """An empty memory for so many rows."""
        return _KeyValues(self.policy, batch_size)

    def logits_at(self, ids, places):
        """Logits `[B, n, V]` at `places` `[B, n]` of each row."""
        x = self.policy.embed(ids, torch.arange(ids.shape[1], device=ids.device))
        *lower, top = self.policy.blocks
        for block in lower:
            x = block(x)
        x = _run_block(top, x, _up_to(places, ids.shape[1], x.dtype), places)
        return self.policy.embed.logits(self.policy.norm(x))

    def read_on(self, memory, chunk, start, rows, wanted):
        """Logits `[n, places, V]` of new tokens behind a memory: see `_read_chunk`."""
        return _read_chunk(self.policy, memory, chunk, start, rows, wanted)


# %% [read-chunk]
@torch.inference_mode()
def _read_chunk(policy, memory, chunk, start, rows, wanted):
    """Run new tokens of some rows; logits `[n, places, V]`.

    `chunk` `[n, T]` continues rows `rows` `[n]` at their positions `start` `[n]`;
    `wanted` `[n, places]`: which of the T have logits.
    """
    position = start[:, None] + torch.arange(chunk.shape[1], device=chunk.device)
    length = int(position[:, -1].max()) + 1
    memory.grow(length)
    x, places = policy.embed(chunk, position), None
    visible = _up_to(position, length, x.dtype)
    for n, block in enumerate(policy.blocks):
        if n == len(policy.blocks) - 1 and chunk.shape[1] > 1:
            places = wanted
            visible = _up_to(position.gather(1, wanted), length, x.dtype)
        x = _run_block(block, x, visible, places,
                       partial(memory.remember, n, rows, position, length))
    return policy.embed.logits(policy.norm(x))


# %% [fast-form]
def fast_form(model):
    """What reads `model` piece by piece, or None (workshop).

    Its own method `fast_form()` says; else a `FastPolicy` for a `Policy` whose forward
    passes are ours. The result has `memory`, `logits_at` and `read_on`.
    """
    if hasattr(model, 'fast_form'):
        return model.fast_form()
    if not isinstance(model, Policy):
        return None
    blocks = [(block, Block) for block in model.blocks]
    parts = [(getattr(block, 'attention', None), Attention) for block in model.blocks]
    parts += [(model, Policy), (model.embed, TiedEmbedding), *blocks]
    return FastPolicy(model) if all(_reads_as(*pair) for pair in parts) else None


def _reads_as(part, kind):
    """Whether a call of `part` is the forward pass of `kind`, and nothing else."""
    return (getattr(type(part), 'forward', None) is kind.forward
            and 'forward' not in vars(part)
            and not any(getattr(part, f'_{when}_hooks') for when in (
                'forward', 'forward_pre', 'backward', 'backward_pre')))


# %% [runs]
_RUN_TOKENS = 1000      # most tokens of one run, padding included


def runs_of(lengths):
    """The rows of a dict of lengths, in runs of similar length (workshop)."""
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
    """The fast reader: equal contexts run through the model once (workshop)."""

    def __init__(self, fast, tok, batch_size, device):
        self.fast, self.device, self.pad_id = fast, device, tok.pad_id
        self.memory, self.read = fast.memory(batch_size), [0] * batch_size
        self.home = [None] * batch_size     # whose row of the memory a row shares
        self.guess, self.guessed = tok.encode('<call>'), (None, None)

    def next_logits(self, contexts, rows):
        """Logits `[len(rows), V]` of the token that follows each of these contexts."""
        new = {row: contexts[row][self.read[row]:] for row in rows}
        (guessed, logits), self.guessed = self.guessed, (None, None)
        if guessed != rows or any(tokens != self.guess for tokens in new.values()):
            guess = self.guess if max(map(len, new.values())) > 1 else []
            _share_rows(self, new)
            logits = _read_rows(self, new, guess)
            if guess:
                self.guessed = rows, logits[:, 1]
            logits = logits[:, 0]
        for row in rows:
            self.read[row] = len(contexts[row])
        return logits


# %% [share]
@torch.inference_mode()
def _share_rows(reader, new):
    """Give rows with equal contexts one home, the first of them (workshop)."""
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
def _read_rows(reader, new, guess):
    """Logits after the new tokens of rows and after `guess`, `[n, 1 or 2, V]`."""
    runs = runs_of({row: len(tokens) + len(guess) for row, tokens in new.items()
                    if reader.home[row] == row})
    logits, device = [], reader.device
    for rows in runs:
        chunk, lengths = pad_rows([new[row] + guess for row in rows], reader.pad_id,
                                  device)
        start = from_list([reader.read[row] for row in rows], device)
        back = torch.arange(len(guess) + 1, 0, -1, device=device)
        logits.append(reader.fast.read_on(reader.memory, chunk, start,
                                          from_list(rows, device),
                                          lengths[:, None] - back))
    place = {row: i for i, row in enumerate(row for run in runs for row in run)}
    return torch.cat(logits)[[place[reader.home[row]] for row in new]]


# %% [fast-reader]
def fast_reader(model, tok, batch_size):
    """The cached reader of a model for so many episodes, or None (workshop)."""
    fast = fast_form(model)
    return fast and CachedContext(fast, tok, batch_size, device_of(model))


# %% [token-logits]
def _logits_at(model, ids, places):
    """Logits `[B, n, V]` at some places `[B, n]` of each row."""
    fast = fast_form(model)
    return fast.logits_at(ids, places) if fast else pick(model(ids), places)


def _policy_places(mask):
    """Places of policy tokens, row by row: `[B, n]`, filled up with other places."""
    order = mask.int().argsort(dim=1, descending=True, stable=True)
    return order[:, :max(1, int(mask.sum(1).max()))]


# %% [live-runs]
def _live_runs(mask, live):
    """Run by run: numbers of rows, tokens to read, logits to take."""
    place = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    length = (mask * place).amax(1).clamp(min=1).tolist()   # to the last policy token
    count = mask.sum(1).clamp(min=1).tolist()
    for group in (live, ~live):
        lengths = {row: length[row] for row in group.nonzero()[:, 0].tolist()}
        for rows in runs_of(lengths) if lengths else ():
            yield (torch.tensor(rows, device=mask.device),
                   max(length[row] for row in rows), max(count[row] for row in rows))


# %% [token-rows]
@dataclass(frozen=True)
class TokenRows:
    """Episodes whose policy tokens are to be read, a row each (workshop)."""
    ids: torch.Tensor           # [B, T]
    mask: torch.Tensor          # [B, T-1], 1 at policy tokens
    live: torch.Tensor          # bool [B]: rows that need a gradient
    temperature: float

    def rows(self, rows):
        """The same of some rows, by number."""
        return replace(self, **{name: x[rows] for name, x in vars(self).items()
                                if torch.is_tensor(x)})


# %% [token-stats]
def read_tokens(model, batch):
    """`(log-probs, entropies)` of the policy tokens, `[B, T-1]` each (workshop).

    `batch`: `TokenRows`. At its temperature; 0 at all other tokens. Only live rows keep
    what a gradient needs.
    """
    mask, order, found = batch.mask.bool(), [], []
    places = _policy_places(mask)
    for rows, width, n in _live_runs(mask, batch.live):
        learn = torch.is_grad_enabled() and bool(batch.live[rows[0]])
        with torch.set_grad_enabled(learn):
            logits = _logits_at(model, batch.ids[rows, :width], places[rows, :n])
        found.append(F.pad(logits, (0, 0, 0, places.shape[1] - n)))
        order.append(rows)
    logits = torch.cat(found)[torch.cat(order).argsort()] / batch.temperature
    logp = selected_log_probs(logits, pick(batch.ids[:, 1:], places))
    values = torch.stack([logp, entropy_from_logits(logits.detach())])
    table = values.new_zeros(2, *mask.shape)
    return torch.where(mask, table.scatter(2, places.expand_as(values), values), 0.0)


# %% [token-log-probs]
@torch.no_grad()
def token_log_probs(model, ids, mask, temperature):
    """Log-probs of policy tokens, `[B, T-1]`; 0 elsewhere; no gradient (workshop)."""
    dead = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    with eval_mode(model):
        return read_tokens(model, TokenRows(ids, mask, dead, temperature))[0]


# %% [sampled-stats]
def sampled_tokens(model, batch, first):
    """`(old log-probs [B, T-1], read_tokens of the rows first)` in one go (workshop).

    To be called before the first step. Each row is read once: the live rows `first`
    with a gradient, all others without.
    """
    ahead = torch.ones_like(batch.live)
    ahead[first] = ~batch.live[first]
    table = torch.zeros(2, *batch.mask.shape, device=ahead.device)
    with torch.no_grad():
        table = _with_rows(table, model, batch, ahead.nonzero()[:, 0])
    table = _with_rows(table, model, batch, first[batch.live[first]])
    return table[0].detach(), table[:, first]


def _with_rows(table, model, batch, rows):
    """A copy of `table` `[2, B, T-1]` that holds what `rows` say."""
    if len(rows) == 0:
        return table
    new = read_tokens(model, batch.rows(rows))
    return table.to(new.dtype).index_copy(1, rows, new)


__all__ = [
    "pick",
    "FastPolicy",
    "fast_form",
    "runs_of",
    "CachedContext",
    "fast_reader",
    "TokenRows",
    "read_tokens",
    "token_log_probs",
    "sampled_tokens",
]
