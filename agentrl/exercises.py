# Generated from notebooks/98_exercises.ipynb by book/tangle.py; edit the notebook.
"""How the exercises work."""

# %% [imports]
import copy
import html
import math
import random
import re
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial, wraps

import torch
from torch import nn
from torch.nn import functional as F

from agentrl.agent import Policy, build_tokenizer
from agentrl.checks import require, require_choice, require_count
from agentrl.episodes import collate, deal_demonstrations, imitate
from agentrl.gym import make_tasks
from agentrl.policy_gradient import masked_mean
from agentrl.shortcuts import FN_NAMES, EditBudgetEnv, make_rl_base, randomize_names
from agentrl.speed import runs_of
from agentrl.sweeps import Run, kept_history, measure, one_thread, weights_hash
from agentrl.training_loop import make_env, sample_groups, train_rl


# %% [verdict]
@dataclass(frozen=True)
class Verdict:
    """'right', 'wrong' or 'not yet', and why: what a check says (exercises)."""
    kind: str
    why: str

    def __post_init__(self):
        require_choice('kind', self.kind, ('right', 'wrong', 'not yet'))

    def __repr__(self):
        return f'{self.kind}: {self.why}'

    def _repr_html_(self):
        why = html.escape(self.why[:1].upper() + self.why[1:], quote=False)
        why = re.sub('`([^`]+)`', r'<code>\1</code>', why)
        return (f'<div class="verdict verdict-{self.kind.replace(" ", "-")}">'
                f'<b>{self.kind.capitalize()}.</b> {why}</div>')


# %% [expect]
class _WrongAnswer(Exception):
    """The answer is wrong, and the text says why (exercises)."""


class _NoAnswer(Exception):
    """The scaffold is not filled in yet, and the text says where (exercises)."""


# %% [expect-given]
def expect(ok, why):
    """In a check: the answer is wrong unless `ok`, for the reason `why` (exercises)."""
    if not ok:
        raise _WrongAnswer(why)


def expect_answer(answer, missing):
    """In a check: there is no answer yet if a part is None or `...` (exercises)."""
    parts = answer if isinstance(answer, tuple | list) else [answer]
    if any(part is None or part is ... for part in parts):
        raise _NoAnswer(missing)


# %% [plain]
def _plain(answer):
    """The answer with all its numbers as Python's, also in tables (exercises)."""
    if isinstance(answer, dict):
        return {key: _plain(value) for key, value in answer.items()}
    if type(answer) in (list, tuple):
        return type(answer)(map(_plain, answer))
    if hasattr(answer, 'item') and math.prod(answer.shape) == 1:    # NumPy, PyTorch
        return answer.item()
    return float(answer) if isinstance(answer, Fraction | Decimal) else answer


# %% [checker]
def answer_checker(check):
    """Decorator: a check that raises becomes one that returns a `Verdict` (exercises).

    `check(*answer)` gets numbers of any kind as Python's, and returns what to say of a
    right answer, a text.
    """
    @wraps(check)
    def answer_check(*answer):
        try:
            return Verdict('right', check(*map(_plain, answer)))
        except _NoAnswer as reason:
            return Verdict('not yet', str(reason))
        except _WrongAnswer as reason:
            return Verdict('wrong', str(reason))
        except Exception as error:
            return Verdict('wrong', f'it stopped with {type(error).__name__}: {error}')
    return answer_check


# %% [in-runs]
class _InRuns(nn.Module):
    """A policy that reads rows of like length together: less padding (exercises)."""

    def __init__(self, model, pad_id):
        super().__init__()
        self.model, self.pad_id = model, pad_id

    def forward(self, ids):
        """Tokens `[B, T]` to logits `[B, T, V]`, 0 where a row is padded."""
        lengths = dict(enumerate((ids != self.pad_id).sum(1).tolist()))
        found, order = [], []
        for rows in runs_of(lengths):
            width = max(lengths[row] for row in rows)
            logits = self.model(ids[rows, :width])
            found.append(F.pad(logits, (0, 0, 0, ids.shape[1] - width)))
            order += rows
        return torch.cat(found)[torch.tensor(order).argsort()]


# %% [imitator]
def imitator(tok, seed=0, one_in=9, demonstrations=720):
    """A base agent that saw one reading player in `one_in` (exercises).

    The RL base comes from the cache, all others are made anew.
    """
    require_count('one_in', one_in, low=3)
    require(one_in % 2 == 1, 'one_in', one_in, 'odd: the other players come in pairs')
    require_count('demonstrations', demonstrations, low=one_in)
    kinds = ('random', 'blind') * (one_in // 2) + ('oracle',)
    if (one_in, demonstrations) == (9, 720):
        return make_rl_base(tok, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Policy(len(tok))
    demos = deal_demonstrations(kinds, tok, seed, demonstrations)
    reader, generator = _InRuns(model, tok.pad_id), torch.Generator().manual_seed(seed)
    imitate(reader, demos, tok.pad_id, generator)
    return model


# %% [names]
def name_pool(split):
    """The function names of the tasks of a split, sorted (exercises)."""
    return sorted(task.fn_name for task in make_tasks(split))


# %% [rename-within]
def rename_within(task, names, rng):
    """A copy of `task` under another of `names`, drawn by `rng` (exercises).

    `ValueError` where none of `names` is a name of the gym that its source leaves free.
    """
    free = set(FN_NAMES).difference(re.findall(r'\w+', task.source))
    require(not free.isdisjoint(names), 'names', names, f'some of {sorted(free)}')
    while True:
        renamed = randomize_names(task, rng)
        if renamed.fn_name in names:
            return renamed


# %% [name-env]
class _NamePoolEnv(EditBudgetEnv):
    """A gym of one edit that draws a name from a pool at each reset (exercises)."""

    def __init__(self, names, rng, **settings):
        super().__init__(**settings)
        self.names, self.rng = names, rng

    def reset(self, task):
        """Start an episode under another name; returns the issue."""
        return super().reset(rename_within(task, self.names, self.rng))


# %% [pool-env]
def pool_env(split, seed):
    """A maker of environments that draw names of a split; None for None (exercises).

    It has a random stream of its own: a copy of it draws the same names again.
    """
    if split is None:
        return None
    return partial(_NamePoolEnv, name_pool(split), random.Random(seed))


# %% [exercise-run]
@dataclass(frozen=True)
class ExerciseRun(Run):
    """A `Run` whose imitation and names can be chosen, too (exercises)."""
    one_in: int = 9             # players, of which one reads
    demonstrations: int = 720
    names: str | None = None    # the split whose names are drawn; None: see `rename`

    def __post_init__(self):
        super().__post_init__()
        if self.names is not None:
            require_choice('names', self.names, ('train', 'heldout', 'all'))
            require(not self.config.rename, 'rename', True, 'False with `names`')

    def first_policy(self, tok):
        """The policy that the run starts from."""
        return imitator(tok, self.base_seed, self.one_in, self.demonstrations)


# %% [kl]
@torch.no_grad()
def exact_kl(model, reference, trajs, pad_id):
    """KL(model, reference) by the whole vocabulary, mean of tokens (exercises).

    In nats, at temperature 1, at the places where `trajs` have policy tokens.
    """
    batch = collate(trajs, pad_id)
    logp, ref = (F.log_softmax(m(batch['ids'])[:, :-1], -1) for m in (model, reference))
    return masked_mean((logp.exp() * (logp - ref)).sum(-1), batch['action_mask']).item()


# %% [under]
def _under_names(model, tok, run, copies=4):
    """What a policy does under the names of either split: a dict (exercises).

    Its key tells the split of the tasks, then that of the names: 'heldout, train'. Each
    task is there under `copies` names.
    """
    found, cfg = {}, replace(run.config, rename=False)
    for split in ('train', 'heldout'):
        for names in ('train', 'heldout'):
            rng = random.Random(0)
            tasks = [rename_within(task, name_pool(names), rng)
                     for task in make_tasks(split) for _ in range(copies)]
            found[f'{split}, {names}'] = measure(
                model, tasks, tok, cfg, max(1, run.samples // copies))
    return found


# %% [train-exercise]
def train_exercise(run):
    """Train an `ExerciseRun`: what it was, did and became, a dict (exercises)."""
    tok = build_tokenizer(make_tasks('all'))
    tasks, cfg = make_tasks('train'), run.config
    with one_thread():
        model = run.first_policy(tok)
        first = copy.deepcopy(model)
        result = {**asdict(run), 'weights': weights_hash(model),
                  'first': measure(model, tasks, tok, cfg, run.samples)}
        history = train_rl(model, tasks, tok, cfg, run.steps,
                           env_factory=pool_env(run.names, run.seed))
        result['history'] = kept_history(history)
        for split in ('train', 'heldout'):
            result[split] = measure(model, make_tasks(split), tok, cfg, run.samples)
        if run.names is not None:
            result['under'] = _under_names(model, tok, run)
        trajs = sample_groups(model, partial(make_env, cfg), tasks, tok, cfg,
                              torch.Generator().manual_seed(1))
        result['kl'] = float(f'{exact_kl(model, first, trajs, tok.pad_id):.5g}')
    return result


__all__ = [
    "Verdict",
    "expect",
    "expect_answer",
    "answer_checker",
    "imitator",
    "name_pool",
    "rename_within",
    "pool_env",
    "ExerciseRun",
    "exact_kl",
    "train_exercise",
]
