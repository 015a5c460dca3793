# Generated from notebooks/05_agent.ipynb by book/tangle.py; edit the notebook.
"""The agent."""

# %% [imports]
import hashlib
import inspect
import io
import json
import os
import random
import re
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import platformdirs
import torch
from filelock import FileLock
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from agentrl.figures import require, require_count, require_number
from agentrl.gym import (
    EDIT_OPS,
    FIX_OPS,
    MESSAGES,
    BugFixEnv,
    compact_source,
    make_tasks,
)


# %% [tokenizer]
_SPECIALS = ('<pad>', '<unk>', '<bos>', '<obs>', '</obs>')


class Tokenizer:
    """Words to ids and back; a word it does not know becomes `unk_id` (section 5)."""

    def __init__(self, words):
        self.words = (*_SPECIALS, *sorted(set(words) - set(_SPECIALS)))
        self.ids = {word: i for i, word in enumerate(self.words)}
        self.pad_id, self.unk_id = self.ids['<pad>'], self.ids['<unk>']

    def __len__(self):
        return len(self.words)

    def encode(self, text):
        """Ids of the words of `text`, which white space separates."""
        return [self.ids.get(word, self.unk_id) for word in text.split()]

    def decode(self, ids):
        """The words of `ids`, a list or a tensor, joined by single spaces."""
        return ' '.join(self.words[int(i)] for i in ids)


# %% [build-tokenizer]
CALLS = ('<call> read </call>', '<call> test </call>',
         *(f'<call> edit {op} </call>' for op in FIX_OPS), '<call> submit </call>')


def build_tokenizer(tasks):
    """A tokenizer for `tasks` and all tasks of the gym, renamed or not (section 5)."""
    texts = [*CALLS, *MESSAGES.values(), '0 1 2 3']
    for task in (*tasks, *make_tasks('all')):
        repaired = EDIT_OPS[task.fix_op](task.source, task.public_tests)
        texts += [task.issue, compact_source(task.source), compact_source(repaired)]
    words = {word for text in texts for word in text.split()}
    return Tokenizer(word for word in words if not re.fullmatch(r'{\w+}', word))


# %% [sinusoids]
def sinusoids(length, width):
    """Fixed positions `[length, width]`: sines and cosines (section 5)."""
    rates = torch.exp(torch.arange(0, width, 2) * (-np.log(10_000.0) / width))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


# %% [attention]
def pick(x, places):
    """The entries of each row at `places` `[B, n]`: `[B, T, ...]` -> `[B, n, ...]`."""
    return x[torch.arange(len(x), device=x.device)[:, None], places]


class Attention(nn.Module):
    """Causal self-attention without q, k, v bias: `[B, T, width]` (section 5)."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x, wanted=None, visible=None, remember=lambda kv: kv):
        """`visible`: a float mask added to scores; None: each sees what is before."""
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)
        q, kv = qkv[:, :, 0], qkv[:, :, 1:]             # [B, heads, (2,) T, width]
        if wanted is not None:
            q = pick(q.transpose(1, 2), wanted).transpose(1, 2)
        k, v = remember(kv).unbind(2)
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=visible,
                                               is_causal=visible is None)
        return self.out(heads.transpose(1, 2).flatten(2))


# %% [block]
class Block(nn.Module):
    """Pre-norm attention and ReLU MLP, `[B, T, width]` to the same (section 5)."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, wanted=None, **options):
        """Vectors of all places, or of `wanted` `[B, n]`; options: of attention."""
        attended = self.attention(self.norm1(x), wanted, **options)
        x = (x if wanted is None else pick(x, wanted)) + attended
        return x + self.down(F.relu(self.up(self.norm2(x))))


# %% [start]
def _start(layer):
    """First weights of a layer: variance 2 / (inputs + outputs); biases 0."""
    if isinstance(layer, nn.Linear):
        nn.init.xavier_normal_(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


# %% [up-to]
def up_to(position, length, dtype):
    """Mask for queries at `position` `[B, n]`: `[B, 1, n, length]`, 0 up to there, then
    -inf (section 5)."""
    later = torch.full((length, length), -torch.inf, dtype=dtype,
                       device=position.device)
    return later.triu(1)[position][:, None]


# %% [policy]
_MAX_LEN = 4096     # longest context in tokens


class Policy(nn.Module):
    """Decoder-only transformer: `model(ids[B, T]) -> logits[B, T, V]` (section 5)."""

    def __init__(self, vocab_size, width=64, layers=3, heads=4):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        nn.init.normal_(self.embed.weight, std=width ** -0.5)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.blocks.apply(_start)
        self.norm = nn.LayerNorm(width)
        self.register_buffer('positions', sinusoids(_MAX_LEN, width), persistent=False)

    def enter(self, ids, position):
        """Tokens at their positions as vectors, `[B, T, width]`."""
        require(ids.shape[-1] <= _MAX_LEN, 'ids.shape', tuple(ids.shape),
                f'at most {_MAX_LEN} tokens')
        scale = self.embed.embedding_dim ** 0.5
        return self.embed(ids) * scale + self.positions[position]

    def leave(self, x):
        """Vectors as logits; the output matrix is the embedding (tied)."""
        return F.linear(self.norm(x), self.embed.weight)

    def forward(self, ids, wanted=None):
        """`wanted` `[B, n]`: logits of these places only, `[B, n, V]`."""
        x = self.enter(ids, torch.arange(ids.shape[1], device=ids.device))
        *lower, top = self.blocks
        for block in lower:
            x = block(x)
        mask = None if wanted is None else up_to(wanted, ids.shape[1], x.dtype)
        return self.leave(top(x, wanted, visible=mask))


# %% [trajectory]
@dataclass
class Trajectory:
    """One episode as the trainer sees it (section 5).

    `ids` LongTensor `[n]`, all tokens; `action_mask` FloatTensor `[n-1]`, aligned with
    `ids[1:]`, 1 where the policy sampled; `reward`, unshaped; `info`, the final info.
    """
    ids: torch.Tensor
    action_mask: torch.Tensor
    reward: float
    info: dict


# %% [from-list]
def from_list(values, device=None, dtype=None):
    """A list of numbers, or of equally long lists, as a tensor (section 5)."""
    # through NumPy, which reads lists faster
    return torch.from_numpy(np.array(values, dtype)).to(device)


# %% [episode]
class Episode:
    """One environment and the tokens its agent has seen and written (section 5)."""

    def __init__(self, env, task, tok):
        self.env, self.tok, self.call, self.done = env, tok, [], False
        self.ids = tok.encode('<bos> ' + env.reset(task))
        self.mask = [0.0] * len(self.ids)

    def write(self, token):
        """Add a token that the policy chose."""
        self.ids.append(token)
        self.mask.append(1.0)
        self.call.append(token)

    def finish_call(self):
        """Send the call and read its answer; nothing follows the last call."""
        answer, self.reward, self.done, self.info = self.env.step(
            self.tok.decode(self.call))
        self.call = []
        if not self.done:
            seen = self.tok.encode(f'<obs> {answer} </obs>')
            self.ids += seen
            self.mask += [0.0] * len(seen)

    def trajectory(self):
        """The finished episode as tensors."""
        mask = from_list(self.mask, dtype=np.float32)
        return Trajectory(from_list(self.ids), mask[1:], float(self.reward), self.info)


# %% [helpers]
def device_of(model):
    """The device of a model's first parameter; the CPU for a model without any."""
    return next((p.device for p in model.parameters()), torch.device('cpu'))


def pad_rows(rows, pad_id, device=None):
    """Lists of ids as a rectangle `[B, T]`, padded on the right; lengths `[B]`."""
    lengths = list(map(len, rows))
    width = max(lengths)
    padded = [[*row, *[pad_id] * (width - len(row))] for row in rows]
    return from_list(padded, device), from_list(lengths, device)


# %% [full-context]
class FullContext:
    """The textbook reader: the whole context again for every token (section 5)."""

    def __init__(self, model, tok, batch_size):
        self.model, self.pad_id, self.device = model, tok.pad_id, device_of(model)

    def next_logits(self, contexts, rows):
        """Logits `[len(rows), V]` of the token that follows each of these contexts."""
        ids, lengths = pad_rows([contexts[row] for row in rows], self.pad_id,
                                self.device)
        return self.model(ids)[torch.arange(len(rows)), lengths - 1]


# %% [sample]
MAX_CALL_TOKENS = 6     # most tokens a call may take


def sample_tokens(logits, uniforms, temperature):
    """Sample by inverse CDF: logits `[N, V]`, uniforms `[N]` -> ids `[N]` (section 5).

    One uniform number a token, drawn beforehand: so an episode does not depend on which
    others run beside it.
    """
    cdf = torch.softmax(logits / temperature, -1).cumsum(-1)
    target = uniforms.to(cdf)[:, None] * cdf[:, -1:]
    drawn = torch.searchsorted(cdf, target, right=True)[:, 0]
    return drawn.clamp(max=cdf.shape[-1] - 1)       # where rounding reached the end


# %% [write-calls]
def write_calls(reader, episodes, live, uniforms, temperature, close_id):
    """Let each live episode write one call, token by token (section 5).

    `uniforms` `[B, MAX_CALL_TOKENS]`. A call ends with `</call>`, or after that many.
    """
    writing = live
    for k in range(MAX_CALL_TOKENS):
        logits = reader.next_logits([episode.ids for episode in episodes], writing)
        tokens = sample_tokens(logits, uniforms[writing, k], temperature).tolist()
        for i, token in zip(writing, tokens, strict=True):
            episodes[i].write(token)
        writing = [i for i in writing if episodes[i].call[-1] != close_id]
        if not writing:
            break


# %% [eval-mode]
@contextmanager
def eval_mode(model):
    """The model in eval mode, each of its modules as before afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield model.eval()
    finally:
        for module, training in modes:
            module.training = training


# %% [check-rewards]
def check_rewards(rewards):
    """Raise for the first reward that is not a finite number (section 5)."""
    for i, reward in enumerate(rewards):
        ok = isinstance(reward, (int, float)) and np.isfinite(reward)
        require(ok, f'reward of episode {i}', reward, 'a finite number')


# %% [rollout]
@torch.no_grad()
def rollout_with(make_reader, model, envs, tasks, tok, max_turns=6, temperature=1.0,
                 generator=None):
    """All episodes in lock step with this reader; see `rollout_batch` (section 5)."""
    require_count('max_turns', max_turns)
    require_number('temperature', temperature, 0, open_low=True)
    require(len(envs) == len(tasks) > 0, 'len(envs)', len(envs),
            f'{len(tasks)}, one for each of at least one task')
    uniforms = torch.rand(len(tasks), max_turns, MAX_CALL_TOKENS, generator=generator)
    episodes = [Episode(env, task, tok) for env, task in zip(envs, tasks, strict=True)]
    close_id, live = tok.encode('</call>')[0], list(range(len(tasks)))
    with eval_mode(model):
        reader = make_reader(model, tok, len(tasks))
        for turn in range(max_turns):
            write_calls(reader, episodes, live, uniforms[:, turn], temperature,
                        close_id)
            for i in live:
                episodes[i].finish_call()
            live = [i for i in live if not episodes[i].done]
            if not live:
                break
    require(not live, 'envs: not done after max_turns', live, 'an end by max_turns')
    check_rewards([episode.reward for episode in episodes])
    return [episode.trajectory() for episode in episodes]


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
        require(length <= _MAX_LEN, 'context', length, f'at most {_MAX_LEN} tokens')
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


# %% [rollout-batch]
def rollout_batch(model, envs, tasks, tok, max_turns=6, temperature=1.0,
                  generator=None):
    """Sample one episode for each environment and task, all in lock step (section 5).

    Returns `list[Trajectory]` in the order of `tasks`. Our `Policy` reads through a
    cache, any other `nn.Module` the whole context again. An environment that is not
    done after `max_turns` is a `ValueError`.
    """
    make_reader = CachedContext if type(model) is Policy else FullContext
    return rollout_with(make_reader, model, envs, tasks, tok, max_turns, temperature,
                        generator)


# %% [collate]
def collate(trajs, pad_id):
    """Trajectories as one batch: a dict of tensors (section 5).

    `ids [B, T]`, `action_mask [B, T-1]`, `rewards [B]`, `n_turns` float `[B]`,
    `submitted` bool `[B]`. A reward that is not a finite number is a `ValueError`.
    """
    require(len(trajs) > 0, 'len(trajs)', 0, 'at least 1')
    check_rewards([t.reward for t in trajs])
    ids = pad_sequence([t.ids for t in trajs], batch_first=True, padding_value=pad_id)
    mask = pad_sequence([t.action_mask for t in trajs], batch_first=True)
    batch = {'ids': ids, 'action_mask': mask,
             'rewards': torch.tensor([float(t.reward) for t in trajs])}
    for key, dtype in (('n_turns', torch.float), ('submitted', torch.bool)):
        if all(key in t.info for t in trajs):
            batch[key] = torch.tensor([t.info[key] for t in trajs], dtype=dtype)
    return batch


# %% [players]
def _random_player(task, rng):
    while True:
        yield rng.choice(CALLS)


def _blind_player(task, rng):
    yield f'<call> edit {rng.choice(FIX_OPS)} </call>'
    yield '<call> submit </call>'


def _oracle_player(task, rng):
    yield '<call> read </call>'
    yield f'<call> edit {task.fix_op} </call>'
    yield '<call> test </call>'
    yield '<call> submit </call>'


PLAYERS = {'random': _random_player, 'blind': _blind_player, 'oracle': _oracle_player}


# %% [demonstrate]
def demonstrate(kind, task, tok, rng):
    """One episode of a scripted player on the original gym (section 5)."""
    episode = Episode(BugFixEnv(), task, tok)
    player = PLAYERS[kind](task, rng)
    while not episode.done:
        for token in tok.encode(next(player)):
            episode.write(token)
        episode.finish_call()
    return episode.trajectory()


# %% [deal]
def deal_demonstrations(kinds, tok, seed, n=720):
    """`n` demonstrations, the kinds dealt in turn over the training tasks (section 5).

    Whole rounds take every task once with every kind; what they leave over goes over a
    shuffled part of the tasks.
    """
    rng, tasks = random.Random(seed), make_tasks('train')
    rounds, rest = divmod(n, len(tasks) * len(kinds))
    pairs = [(kind, task) for _ in range(rounds) for kind in kinds for task in tasks]
    shuffled = rng.sample(tasks, len(tasks))
    pairs += [(kinds[i % len(kinds)], shuffled[i // len(kinds)]) for i in range(rest)]
    return [demonstrate(kind, task, tok, rng) for kind, task in pairs]


# %% [batches]
_EPOCHS, _BATCH, _LR, _WARMUP = 20, 32, 2e-3, 10


def _batches(demos, generator):
    """Rows of one epoch's batches, in random order."""
    rows = torch.randperm(len(demos), generator=generator).tolist()
    return [rows[i:i + _BATCH] for i in range(0, len(rows), _BATCH)]


# %% [imitate]
def imitate(model, demos, pad_id, generator):
    """Fit `model` to the calls of demonstrations: 20 epochs of Adam (section 5).

    The loss is a sum over policy tokens divided by a constant, their mean number a
    batch: so every token weighs the same, whatever batch it is in.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=_LR)
    steps = _EPOCHS * -(-len(demos) // _BATCH)
    scale = _EPOCHS * sum(t.action_mask.sum() for t in demos) / steps
    step = 0
    for _ in range(_EPOCHS):
        for rows in _batches(demos, generator):
            decay = 1 - 0.9 * (step - _WARMUP) / (steps - _WARMUP)
            optimizer.param_groups[0]['lr'] = _LR * min((step + 1) / _WARMUP, decay)
            batch = collate([demos[row] for row in rows], pad_id)
            logits = model(batch['ids'])[:, :-1]
            nll = F.cross_entropy(logits.transpose(1, 2), batch['ids'][:, 1:],
                                  reduction='none')
            optimizer.zero_grad()
            ((nll * batch['action_mask']).sum() / scale).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1


# %% [cache-dir]
def cache_dir():
    """Where base agents are kept: `AGENTRL_CACHE`, else the user's cache folder."""
    folder = os.environ.get('AGENTRL_CACHE') or platformdirs.user_cache_dir('agentrl')
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    return path


def _digest(*parts):
    """SHA-256 of arrays, of bytes, and of anything JSON can hold."""
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            part = part.tobytes()
        sha.update(part if isinstance(part, bytes) else json.dumps(part).encode())
    return sha.hexdigest()


# %% [weights-file]
def _read_weights(path, fingerprint):
    """The state of a cache file, or None where it is missing, corrupt or foreign."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    seal, body = data[:64], data[64:]
    if seal != _digest(fingerprint, body).encode():
        return None
    with np.load(io.BytesIO(body), allow_pickle=False) as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


def _write_weights(path, fingerprint, state):
    """Write beside the file, then rename: a reader sees the old file or the new one."""
    body = io.BytesIO()
    np.savez(body, **{name: tensor.numpy() for name, tensor in state.items()})
    body = body.getvalue()
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(_digest(fingerprint, body).encode() + body)
    os.replace(file.name, path)


# %% [fingerprint]
def _fingerprint(model, demos, seed):
    """A hash of what shapes a base agent: data, first weights, recipe, arithmetic."""
    weights = [tensor.numpy() for tensor in model.state_dict().values()]
    shown = [array for t in demos for array in (t.ids.numpy(), t.action_mask.numpy())]
    code = [inspect.getsource(function) for function in (
        Attention.__init__, Attention.forward, Block.__init__, Block.forward,
        Policy.__init__, Policy.enter, Policy.leave, Policy.forward, sinusoids,
        imitate, _batches)]
    recipe = [seed, _EPOCHS, _BATCH, _LR, _WARMUP, code, torch.__version__,
              torch.get_num_threads(), torch.backends.cpu.get_cpu_capability()]
    return _digest(recipe, *weights, *shown)


# %% [base-agent]
def make_base_agent(tok, seed=0, kinds=('random', 'blind')):
    """A policy that imitates the named players on the original gym (section 5).

    Always 720 demonstrations and 460 optimiser steps. Kept on disk under a hash of all
    that shapes it; a file that does not match is built again, never trusted.
    """
    require_count('seed', seed, low=0)
    require(len(kinds) > 0 and set(kinds) <= set(PLAYERS), 'kinds', kinds,
            f'at least one of {sorted(PLAYERS)}, repeats allowed')
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Policy(len(tok))
    demos = deal_demonstrations(kinds, tok, seed)
    fingerprint = _fingerprint(model, demos, seed)
    path = cache_dir() / f'base-{fingerprint[:16]}.weights'
    with FileLock(f'{path}.lock'):
        state = _read_weights(path, fingerprint)
        if state is None:
            imitate(model, demos, tok.pad_id, torch.Generator().manual_seed(seed))
            state = model.state_dict()
            _write_weights(path, fingerprint, state)
    model.load_state_dict(state)
    return model


__all__ = [
    "Tokenizer",
    "CALLS",
    "build_tokenizer",
    "sinusoids",
    "pick",
    "Attention",
    "Block",
    "up_to",
    "Policy",
    "Trajectory",
    "from_list",
    "Episode",
    "device_of",
    "pad_rows",
    "FullContext",
    "MAX_CALL_TOKENS",
    "sample_tokens",
    "write_calls",
    "eval_mode",
    "check_rewards",
    "rollout_with",
    "KeyValues",
    "read_chunk",
    "runs_of",
    "CachedContext",
    "share_rows",
    "read_rows",
    "rollout_batch",
    "collate",
    "PLAYERS",
    "demonstrate",
    "deal_demonstrations",
    "imitate",
    "cache_dir",
    "make_base_agent",
]
