# Generated from notebooks/05_agent.ipynb by book/tangle.py; edit the notebook.
"""The agent."""

# %% [imports]
import re
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from agentrl.checks import require, require_count, require_number
from agentrl.gym import EDIT_OPS, FIX_OPS, MESSAGES, compact_source, make_tasks
from agentrl.policy_gradient import selected_log_probs


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
def _sinusoids(length, width):
    """Fixed positions `[length, width]`: sines and cosines (section 5)."""
    rates = torch.exp(torch.arange(0, width, 2) * (-np.log(10_000.0) / width))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


# %% [attention]
class Attention(nn.Module):
    """Causal self-attention without q, k, v bias: `[B, T, width]` (section 5)."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)

    def split(self, x):
        """Queries, keys, values of all heads: `[B, heads, 3, T, head width]`."""
        return self.qkv(x).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)

    def join(self, heads):
        """What the heads `[B, heads, T, head width]` found, as `[B, T, width]`."""
        return self.out(heads.transpose(1, 2).flatten(2))

    def forward(self, x):
        q, k, v = self.split(x).unbind(2)
        return self.join(F.scaled_dot_product_attention(q, k, v, is_causal=True))


# %% [block]
class Block(nn.Module):
    """Pre-norm attention and ReLU MLP, `[B, T, width]` to the same (section 5)."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def think(self, x):
        """The MLP, at each place by itself."""
        return x + self.down(F.relu(self.up(self.norm2(x))))

    def forward(self, x):
        return self.think(x + self.attention(self.norm1(x)))


# %% [embedding]
MAX_CONTEXT = 4096      # longest context in tokens


class TiedEmbedding(nn.Embedding):
    """Words in, at their positions; words out by the same matrix (section 5)."""

    def __init__(self, vocab_size, width):
        super().__init__(vocab_size, width)
        nn.init.normal_(self.weight, std=width ** -0.5)
        self.register_buffer('positions', _sinusoids(MAX_CONTEXT, width), False)

    def forward(self, ids, position):
        """Vectors `[B, T, width]` of tokens `[B, T]` at their positions."""
        require(ids.shape[-1] <= MAX_CONTEXT, 'ids.shape', tuple(ids.shape),
                f'at most {MAX_CONTEXT} tokens')
        scale = self.embedding_dim ** 0.5
        return super().forward(ids) * scale + self.positions[position]

    def logits(self, x):
        """How likely each word is to come next: `[B, T, V]`."""
        return F.linear(x, self.weight)


# %% [start]
def _start(layer):
    """First weights of a layer: variance 2 / (inputs + outputs); biases 0."""
    if isinstance(layer, nn.Linear):
        nn.init.xavier_normal_(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


# %% [sizes]
def _check_sizes(vocab_size, width, layers, heads):
    """Refuse sizes that make no network."""
    for name, size in (('vocab_size', vocab_size), ('width', width), ('layers', layers),
                       ('heads', heads)):
        require_count(name, size)
    require(width % 2 == 0, 'width', width, 'an even number')
    require(width % heads == 0, 'heads', heads, f'a divisor of width={width}')


# %% [policy]
class Policy(nn.Module):
    """Decoder-only transformer: `model(ids[B, T]) -> logits[B, T, V]` (section 5)."""

    def __init__(self, vocab_size, width=64, layers=3, heads=4):
        super().__init__()
        _check_sizes(vocab_size, width, layers, heads)
        self.embed = TiedEmbedding(vocab_size, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.blocks.apply(_start)
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.embed(ids, torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.embed.logits(self.norm(x))


# %% [from-list]
def from_list(values, device=None, dtype=None):
    """A list of numbers, or of equally long lists, as a tensor (section 5)."""
    # through NumPy, which reads lists faster
    return torch.from_numpy(np.array(values, dtype)).to(device)


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


# %% [call-probabilities]
@torch.no_grad()
def call_probabilities(model, tok, contexts, temperature=1.0):
    """Probability of each call of `CALLS` after each context, `[n, 8]` (section 5).

    `contexts`: lists of token ids. What a row lacks to 1 goes to malformed calls.
    """
    require(len(contexts) > 0 and all(contexts), 'contexts', contexts,
            'at least one, of at least one id each')
    require_number('temperature', temperature, 0, open_low=True)
    calls = [tok.encode(call) for call in CALLS]
    rows = [[*context, *call] for context in contexts for call in calls]
    ids, _ = pad_rows(rows, tok.pad_id, device_of(model))
    logp = selected_log_probs(model(ids)[:, :-1] / temperature, ids[:, 1:])
    ends = [len(row) - 1 for row in rows]
    starts = [end - len(call) for end, call in zip(ends, calls * len(contexts),
                                                   strict=True)]
    totals = [row[a:b].sum() for row, a, b in zip(logp, starts, ends, strict=True)]
    return torch.stack(totals).exp().view(len(contexts), len(calls))


__all__ = [
    "Tokenizer",
    "CALLS",
    "build_tokenizer",
    "Attention",
    "Block",
    "MAX_CONTEXT",
    "TiedEmbedding",
    "Policy",
    "from_list",
    "device_of",
    "pad_rows",
    "eval_mode",
    "call_probabilities",
]
