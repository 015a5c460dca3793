# Generated from notebooks/05_agent.ipynb by book/tangle.py; edit the notebook.
"""The agent."""

# %% [imports]
import re
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from agentrl.checks import require
from agentrl.gym import EDIT_OPS, FIX_OPS, MESSAGES, compact_source, make_tasks


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
MAX_CONTEXT = 4096     # longest context in tokens


class Policy(nn.Module):
    """Decoder-only transformer: `model(ids[B, T]) -> logits[B, T, V]` (section 5)."""

    def __init__(self, vocab_size, width=64, layers=3, heads=4):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        nn.init.normal_(self.embed.weight, std=width ** -0.5)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.blocks.apply(_start)
        self.norm = nn.LayerNorm(width)
        self.register_buffer('positions', sinusoids(MAX_CONTEXT, width), persistent=False)

    def enter(self, ids, position):
        """Tokens at their positions as vectors, `[B, T, width]`."""
        require(ids.shape[-1] <= MAX_CONTEXT, 'ids.shape', tuple(ids.shape),
                f'at most {MAX_CONTEXT} tokens')
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


__all__ = [
    "Tokenizer",
    "CALLS",
    "build_tokenizer",
    "sinusoids",
    "pick",
    "Attention",
    "Block",
    "up_to",
    "MAX_CONTEXT",
    "Policy",
    "from_list",
    "device_of",
    "pad_rows",
    "eval_mode",
]
