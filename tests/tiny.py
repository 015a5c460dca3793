"""Small deterministic models: fast, and right or wrong for reasons one can see."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import nn

import agentrl as arl

CALLS = {
    call.split()[-2]: call for call in arl.CALLS
}  # 'read' -> '<call> read </call>'


def call(word):
    """The text of a call, by its last word: 'read', 'submit', 'fix_init'."""
    return CALLS[word]


def passes(task, ops=()):
    """Whether each public and each hidden test passes after some edits."""
    source = task.source
    for op in ops:
        source = arl.EDIT_OPS[op](source, task.public_tests)
    tests = task.public_tests + task.hidden_tests
    return [ok for ok, _ in arl.run_tests(source, tests, task.fn_name)]


class Bigram(nn.Module):
    """The logits of the next token are a row of a table, chosen by the last token."""

    def __init__(self, vocab_size, seed=0, scale=0.5):
        super().__init__()
        table = torch.randn(
            vocab_size, vocab_size, generator=torch.Generator().manual_seed(seed)
        )
        self.table = nn.Parameter(scale * table)

    def forward(self, ids):
        return self.table[ids]


class Scripted(nn.Module):
    """Writes the given texts, one a turn and the last one again; never anything else.

    `scripts` maps the name of a function to its texts; '' stands for any other name.
    """

    def __init__(self, tok, scripts):
        super().__init__()
        self.tok = tok
        self.scripts = {
            name: [tok.encode(text) for text in texts]
            for name, texts in scripts.items()
        }
        self.one = nn.Parameter(torch.ones(()))
        (self.close,) = tok.encode("</obs>")

    def forward(self, ids):
        logits = torch.zeros(*ids.shape, len(self.tok), dtype=self.one.dtype)
        for row, tokens in zip(logits, ids.tolist(), strict=True):
            name = self.tok.words[tokens[3]]
            texts = self.scripts.get(name, self.scripts.get("", ["<pad>"]))
            turn, start = 0, 7  # <bos> issue : NAME returns wrong results
            for i, token in enumerate(tokens):
                if token == self.close:
                    turn, start = turn + 1, i + 1
                text = texts[min(turn, len(texts) - 1)]
                row[i, text[max(i + 1 - start, 0) % len(text)]] = 200.0
        return logits * self.one


def small_policy(tok, seed=0, **kwargs):
    """A `Policy` with random weights: quick, and on the fast path."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return arl.Policy(len(tok), **{"width": 16, "layers": 2, "heads": 2, **kwargs})


class Nudged(nn.Module):
    """Any model, with the words of calls more likely: episodes worth looking at."""

    def __init__(self, model, tok, scale=6.0):
        super().__init__()
        self.model = model
        table = torch.zeros(len(tok), len(tok))
        for text in arl.CALLS:
            for before, after in zip(text.split(), text.split()[1:], strict=False):
                table[tok.encode(before)[0], tok.encode(after)[0]] = scale
        for before in ("results", "</obs>"):
            table[tok.encode(before)[0], tok.encode("<call>")[0]] = scale
        self.register_buffer("table", table)

    def forward(self, ids):
        return self.model(ids) + self.table[ids]


def apprentice(tok):
    """A small policy that has seen 100 demonstrations: most of its calls are calls."""
    demos = arl.deal_demonstrations(("random", "blind", "oracle"), tok, 0, n=100)
    model = small_policy(tok, width=32)
    arl.imitate(model, demos, tok.pad_id, torch.Generator().manual_seed(0))
    return model


def weights(model):
    """A copy of the weights as one flat vector."""
    return torch.cat([p.detach().flatten() for p in model.parameters()]).clone()


def trajectory(reward, ops=(), task="minmax/clamp", submitted=True, actions=None, n=4):
    """A trajectory as a rollout would give it, by hand: three policy tokens."""
    if actions is None:
        actions = [call(op) for op in ops] + [call("submit")] * submitted
    info = {
        "task": task,
        "submitted": submitted,
        "hidden_pass": bool(reward),
        "public_pass": bool(reward),
        "fix_op": arl.FIX_OP[task],
        "ops": list(ops),
        "actions": actions,
        "n_turns": len(actions),
    }
    mask = torch.ones(n - 1)
    return arl.Trajectory(torch.arange(1, n + 1), mask, float(reward), info)


@dataclass(frozen=True)
class Secret:
    """A task of another kind than the gym's: a digit to be guessed."""

    name: str
    digit: int


SECRETS = [Secret(f"secret/{digit}", digit) for digit in range(1, 7)]


class GuessEnv:
    """Guess a digit: another game, with other words and an info of its own.

    The first digit of a call is the guess. Its info has no key but the two below, so
    no statistic of bugs can be made from it. Sample it with `rename=False`.
    """

    def __init__(self, max_turns=4):
        self.max_turns = max_turns

    def reset(self, task):
        self.task, self.guesses = task, []
        return "guess a digit"

    def step(self, action_text):
        digits = [int(word) for word in action_text.split() if word.isdigit()]
        self.guesses.append(digits[0] if digits else None)
        guess, right = self.guesses[-1], self.guesses[-1] == self.task.digit
        done = right or len(self.guesses) >= self.max_turns
        info = {"task": self.task.name, "guesses": list(self.guesses)} if done else {}
        if right or guess is None:
            return "right" if right else "what", float(right), done, info
        return "up" if guess < self.task.digit else "down", 0.0, done, info


def guess_tokenizer():
    """The words of `GuessEnv`, made by hand: none is a word of the gym's calls."""
    return arl.Tokenizer("<call> </call> guess a digit up down right what".split()
                         + [str(secret.digit) for secret in SECRETS])  # fmt: skip


@st.composite
def cases(draw):
    """Log-ratios `[B, T]`, advantages `[B]`, any mask, any clip range."""
    b, t = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    n = b * t
    log_r = draw(st.lists(st.floats(-1.5, 1.5), min_size=n, max_size=n))
    bits = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    a = draw(st.lists(st.floats(-2, 2) | st.just(0.0), min_size=b, max_size=b))
    low, high = draw(st.floats(0, 0.9)), draw(st.floats(0, 0.9))
    return (
        torch.tensor(log_r, dtype=torch.float64).view(b, t),
        torch.tensor(a, dtype=torch.float64),
        torch.tensor(bits).view(b, t).float(),
        low,
        high,
    )
