# Generated from notebooks/04_gym.ipynb by book/tangle.py; edit the notebook.
"""The BugFix gym."""

# %% [imports]
import functools
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict, runtime_checkable

from agentrl.checks import require, require_choice, require_count


# %% [freeze]
def _freeze(value):
    """Lists become tuples, at any depth: a task cannot be changed by its user."""
    try:
        hash(value)         # no list in it
        return value
    except TypeError:
        return tuple(map(_freeze, value)) if isinstance(value, (list, tuple)) else value


# %% [task]
@dataclass(frozen=True)
class Task:
    """One bug to repair: what the agent sees, and the tests that judge it (section 4).

    `name` is 'family/function' and stays under renaming; `public_tests` and
    `hidden_tests` are tuples of `(args, expected)`, passed to the function as lists.
    """
    name: str
    split: str
    fn_name: str
    issue: str
    source: str
    fix_op: str
    public_tests: tuple
    hidden_tests: tuple

    def __post_init__(self):
        for field in ('public_tests', 'hidden_tests'):
            object.__setattr__(self, field, _freeze(getattr(self, field)))


# %% [variants]
def _variants(keys, *rows):
    """One dict a row of words; the last field keeps its spaces."""
    keys = keys.split()
    return [dict(zip(keys, row.split(maxsplit=len(keys) - 1), strict=True))
            for row in rows]


_SWAPPED = _variants(
    'f a b c', 'clamp value lower upper', 'limit x low high',
    'bound number start end', 'restrict n floor top',
    'pin item low limit', 'confine total start best')
_SHORT_RANGE = _variants(
    'f a t i e', 'sum_to n total i i', 'sum_squares end acc k k * k',
    'tally count result j 2 * j', 'stack_up size out step step + 1',
    'add_up limit best k k + 2', 'climb value total x 3 * x')
_WRONG_SIGN = [
    *_variants('f a t i', 'largest values best v', 'highest items top item'),
    *_variants('f a lim t i', 'count_above data limit count x',
               'how_many numbers low total n'),
    *_variants('f a t i', 'peak numbers result k'),
    *_variants('f a lim t i', 'over values start out v')]


# %% [variants-2]
_ZERO_START = _variants(
    'f loop a t i e', 'product list values result v v',
    'factorial range n total i i', 'scale_all list items acc k 2 * k',
    'compound range size out step step + 1',
    'times list numbers count item item', 'grow range end best j j + 2')
_OVERWRITE = _variants(
    'f loop a t i e', 'add_all list values total v v', 'total_up range n result i i',
    'double_sum list data acc x 2 * x', 'gather range count out k k + 1',
    'collect list items top n n', 'merge range limit count j 3 * j')

FAMILIES = {
    'minmax': {'fix_op': 'swap_minmax', 'variants': _SWAPPED},
    'range_end': {'fix_op': 'fix_range_end', 'variants': _SHORT_RANGE},
    'comparison': {'fix_op': 'fix_comparison', 'variants': _WRONG_SIGN},
    'init': {'fix_op': 'fix_init', 'variants': _ZERO_START},
    'accumulate': {'fix_op': 'fix_accumulate', 'variants': _OVERWRITE}}
FIX_OPS = [family['fix_op'] for family in FAMILIES.values()]


# %% [source]
def _buggy_source(family, v):
    """The source of one variant, its bug included."""
    if family == 'minmax':
        return (f"def {v['f']}({v['a']}, {v['b']}, {v['c']}):\n"
                f"    return min({v['b']}, max({v['a']}, {v['c']}))\n")
    args, start, over, body = v['a'], '0', v['a'], []
    if family == 'range_end':
        over, body = f"range(1, {v['a']})", [f"{v['t']} += {v['e']}"]
    elif family == 'comparison' and 'lim' in v:
        args = f"{v['a']}, {v['lim']}"
        body = [f"if {v['i']} < {v['lim']}:", f"    {v['t']} = {v['t']} + 1"]
    elif family == 'comparison':
        start = f"{v['a']}[0]"
        body = [f"if {v['i']} < {v['t']}:", f"    {v['t']} = {v['i']}"]
    else:
        over = v['a'] if v['loop'] == 'list' else f"range(1, {v['a']} + 1)"
        body = [f"{v['t']} {'*=' if family == 'init' else '='} {v['e']}"]
    lines = [f"def {v['f']}({args}):", f"    {v['t']} = {start}",
             f"    for {v['i']} in {over}:", *('        ' + line for line in body),
             f"    return {v['t']}"]
    return '\n'.join(lines) + '\n'


# %% [compact]
@functools.lru_cache(maxsize=8192)      # 30 names x about a hundred bodies
def compact_source(source):
    """The source as the agent sees it (section 4).

    Tokens joined by single spaces; a line of source stays a line.
    """
    kinds = tokenize.NAME, tokenize.NUMBER, tokenize.OP, tokenize.STRING
    lines, line = [], []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.NEWLINE, tokenize.NL) and line:
            lines.append(' '.join(line))
            line = []
        elif token.type in kinds:
            line.append(token.string)
    return '\n'.join(lines)


# %% [edits-code]
def _swap(a, b):
    """An edit that exchanges two pieces of text wherever they stand."""
    pattern = re.compile(f'{a}|{b}')
    plain = {re.sub(r'\\b', '', side): re.sub(r'\\b', '', other)
             for side, other in ((a, b), (b, a))}
    return lambda source, tests: pattern.sub(lambda m: plain[m.group()], source)


def _rewrite(pattern, replacement):
    """An edit that rewrites every match of a pattern."""
    return lambda source, tests: re.sub(pattern, replacement, source, flags=re.M)


EDIT_OPS = {
    'swap_minmax': _swap(r'\bmin\b', r'\bmax\b'),
    'fix_range_end': _rewrite(r'range\(1, (\w+)\)', r'range(1, \1 + 1)'),
    'fix_comparison': _swap(' < ', ' > '),
    'fix_init': _rewrite(r'^(    \w+) = 0$', r'\1 = 1'),
    'fix_accumulate': _rewrite(r'^( {8,}\w+) = ', r'\1 += ')}


# %% [child]
_CHILD = """
import json, os, sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
    resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
except (ImportError, ValueError, OSError):
    pass
job = json.load(sys.stdin)
report = os.fdopen(os.dup(1), 'w')
null = os.open(os.devnull, os.O_RDWR)
for stream in (0, 1, 2):
    os.dup2(null, stream)
scope = {'__name__': 'task'}
exec(compile(job['source'], 'source', 'exec'), scope)
for args in job['args']:
    try:
        line = json.dumps({'value': scope[job['fn_name']](*args)})
    except BaseException as error:
        line = json.dumps({'error': type(error).__name__})
    report.write(line + chr(10))
    report.flush()
"""
_TIME_LIMIT = 1.5       # seconds of wall time for all tests of one source


# %% [run-child]
def _run_child(source, args, fn_name):
    """The lines that an isolated Python process reports, one a finished test."""
    job = json.dumps({'source': source, 'args': args, 'fn_name': fn_name})
    with tempfile.TemporaryFile() as report:    # no pipe, which others could hold open
        child = subprocess.Popen(
            [sys.executable, '-I', '-S', '-c', _CHILD], cwd=tempfile.gettempdir(),
            stdin=subprocess.PIPE, stdout=report, stderr=subprocess.DEVNULL,
            start_new_session=True)
        with child, suppress(subprocess.TimeoutExpired):
            try:
                child.communicate(job.encode(), timeout=_TIME_LIMIT)
            finally:
                _kill_group(child)
        report.seek(0)
        return report.read(1 << 20).decode(errors='replace').split('\n')


def _kill_group(child):
    """End the child and whatever it started; it may be gone already."""
    try:
        os.killpg(child.pid, signal.SIGKILL) if os.name == 'posix' else child.kill()
    except (ProcessLookupError, PermissionError):
        pass


# %% [judge]
def _judge(source, tests, fn_name):
    """Compare what the child reports with what each test expects."""
    lines = _run_child(source, [args for args, _ in tests], fn_name)
    verdicts = []
    for i, (_, expected) in enumerate(tests):
        try:
            report = json.loads(lines[i])
            if 'error' in report:
                verdict = False, f"raised {report['error']}"
            else:
                value = _freeze(report['value'])
                verdict = value == expected, f'returned {value}, expected {expected}'
        except (LookupError, TypeError, ValueError, RecursionError):
            verdict = False, 'did not finish'   # no report, or no report of ours
        verdicts.append(verdict)
    return tuple(verdicts)


# %% [run-tests]
_VERDICTS: dict = {}    # what run_tests has measured in this process


def run_tests(source, tests, fn_name):
    """Run `(args, expected)` pairs on `fn_name`: `[(ok, message), ...]` (section 4).

    The source runs in a process of its own: one that does not compile, raises, or does
    not finish fails its tests and leaves the caller as it was. Results are remembered
    under a key without the function's name.
    """
    uses = re.findall(rf'\b(?:{re.escape(fn_name)}|task_function)\b', source)
    if len(uses) == 1 and f'def {fn_name}(' in source:      # in its definition only
        source = source.replace(f'def {fn_name}(', 'def task_function(')
        fn_name = 'task_function'
    key = source, repr(tests), fn_name      # repr: 1 and True are equal, not the same
    if key not in _VERDICTS:
        _VERDICTS[key] = _judge(source, _freeze(tests), fn_name)
    return list(_VERDICTS[key])


# %% [tasks]
_PUBLIC = {'minmax': [(0, 2, 5), (7, 2, 5), (3, 2, 5)], 'range': [(3,), (4,), (6,)],
           'list': [([3, 1, 2],), ([4, 7],), ([2, 5, 5, 3],)],
           'count': [([1, 5, 7], 4), ([9, 2, 8, 6], 3), ([6, 5], 2)]}
_HIDDEN = {'minmax': [(9, 1, 4), (2, 1, 4), (0, 3, 8)], 'range': [(2,), (5,), (7,)],
           'list': [([5, 2, 4],), ([1, 6, 3, 3],), ([8, 3],)],
           'count': [([4, 8, 9], 5), ([7, 1, 6, 9], 2), ([3, 9, 5], 1)]}


def _kind(family, v):
    """Which arguments a variant takes."""
    if family == 'comparison':
        return 'count' if 'lim' in v else 'list'
    return {'minmax': 'minmax', 'range_end': 'range'}.get(family) or v['loop']


def _tests(source, fn_name, calls):
    """The answers of our own repaired source, as `(args, expected)` pairs."""
    scope = {}
    exec(source, scope)
    return [(args, scope[fn_name](*args)) for args in calls]


# %% [make-tasks]
def _make_task(family, v, split):
    """The task of one variant of one family."""
    op, source = FAMILIES[family]['fix_op'], _buggy_source(family, v)
    repaired, kind, fn_name = EDIT_OPS[op](source, ()), _kind(family, v), v['f']
    return Task(f'{family}/{fn_name}', split, fn_name,
                f'issue : {fn_name} returns wrong results', source, op,
                _tests(repaired, fn_name, _PUBLIC[kind]),
                _tests(repaired, fn_name, _HIDDEN[kind]))


def make_tasks(split):
    """The tasks of a split, 'train' (20), 'heldout' (10) or 'all' (30) (section 4)."""
    require_choice('split', split, ('train', 'heldout', 'all'))
    tasks = [_make_task(family, v, 'train' if i < 4 else 'heldout')
             for family, content in FAMILIES.items()
             for i, v in enumerate(content['variants'])]
    return [task for task in tasks if split in (task.split, 'all')]


FIX_OP = {task.name: task.fix_op for task in make_tasks('all')}


# %% [messages]
MESSAGES = {'applied': 'edit applied', 'unchanged': 'no change', 'refused': 'no change',
            'invalid': 'invalid call', 'test': '{passed} of {total} tests pass',
            'submit': 'submitted'}


def parse_call(text):
    """A call in parts, else None (section 4).

    `('read',)`, `('test',)`, `('edit', op)` with any word as op, or `('submit',)`.
    """
    match = re.fullmatch(r'<call> (?:(read|test|submit)|(edit) (\w+)) </call>', text)
    return match and tuple(part for part in match.groups() if part)


# %% [env-protocol]
@runtime_checkable
class Env(Protocol):
    """What the trainer needs from an environment: a fresh one per episode (section 4).

    Texts are words of the tokenizer, parted by white space; any other becomes `<unk>`.
    """

    def reset(self, task: Any) -> str:
        """Start an episode at a task of its own kind; returns what the agent is told."""

    def step(self, action_text: str) -> tuple[str, float, bool, Mapping[str, Any]]:
        """Answer one call: `(observation, reward, done, info)`.

        `action_text` is what the agent wrote, well formed or not. `done` must be true
        by the last turn that the rollout allows (`max_turns`); the reward of that step,
        a finite number, is the reward of the episode, earlier ones are not used. Its
        `info`, the final one, may have the keys of `EpisodeInfo`, others, or none: a
        statistic without its keys is left out.
        """


# %% [episode-info]
class EpisodeInfo(TypedDict, total=False):
    """What an environment may tell about an episode; no key is required (section 4).

    `BugFixEnv` gives `turn` and `event` before the end, and all others at the end.
    """
    turn: int               # calls made so far
    event: str              # what the last call did: 'read', 'applied', 'refused', ...
    task: str               # name of the task
    submitted: bool         # ended by a submit, and not because the turns ran out
    n_turns: int            # calls made in the whole episode
    actions: list[str]      # text of each call, malformed and refused ones too
    ops: list[str]          # edits applied, in order
    fix_op: str             # the edit that repairs the task
    hidden_pass: bool       # all hidden tests pass at the end
    public_pass: bool       # all public tests pass at the end


# %% [reward]
def _reward_fn(reward):
    """The function from the final info to the reward of an episode."""
    if callable(reward):
        return reward
    require(reward in ('hidden', 'public'), 'reward', reward,
            "'hidden', 'public' or a callable")
    return lambda info: float(info['submitted'] and info[f'{reward}_pass'])


def _checked_reward(reward_fn, info):
    """The reward as a float; one that is not a finite number is an error."""
    reward = reward_fn(info)
    ok = isinstance(reward, (int, float)) and math.isfinite(reward)
    require(ok, f"reward of {info['task']}", reward, 'a finite number')
    return float(reward)


# %% [verdicts]
def _verdicts(task, source):
    """Which public and which hidden tests pass, from one run."""
    tests = task.public_tests + task.hidden_tests
    oks = [ok for ok, _ in run_tests(source, tests, task.fn_name)]
    n_public = len(task.public_tests)
    return oks[:n_public], oks[n_public:]


# %% [workspace]
class _Workspace:
    """The source of one task, and what a call does to it."""

    def _act(self, call, op=None):
        """What happened, and what the agent is told."""
        if call == 'edit':
            call = self._edit(op)
        if call == 'read':
            return call, compact_source(self.source)
        public = _verdicts(self.task, self.source)[0] if call == 'test' else []
        return call, MESSAGES[call].format(passed=sum(public), total=len(public))

    def _edit(self, op):
        """Apply an edit; a known one counts, also where it changes nothing."""
        if op not in EDIT_OPS:
            return 'invalid'
        before = self.source
        self.source = EDIT_OPS[op](before, self.task.public_tests)
        self.ops.append(op)
        return 'unchanged' if self.source == before else 'applied'


# %% [env]
class BugFixEnv(_Workspace):
    """One task, at most `max_turns` calls, a reward at the end (section 4).

    `reward`: 'hidden' (1.0 if submitted and all hidden tests pass), 'public', or a
    function of the final info, called once an episode.
    """

    def __init__(self, max_turns=6, reward='hidden'):
        require_count('max_turns', max_turns)
        self.max_turns, self.reward_fn = max_turns, _reward_fn(reward)
        self.turn, self.done, self.ops, self.actions = 0, True, [], []

    def reset(self, task):
        """Start an episode; returns the issue, which is all the agent is told."""
        self.task, self.source = task, task.source
        self.turn, self.done, self.ops, self.actions = 0, False, [], []
        return task.issue

    def step(self, action_text):
        """Make one call; returns `(observation, reward, done, info)`."""
        require(not self.done, 'step: done', True, 'calls from reset to the end only')
        self.turn += 1
        self.actions.append(action_text)
        event, observation = self._act(*parse_call(action_text) or ('invalid',))
        self.done = event == 'submit' or self.turn >= self.max_turns
        if not self.done:
            return observation, 0.0, False, {'turn': self.turn, 'event': event}
        info = self.final_info(event == 'submit')
        return observation, _checked_reward(self.reward_fn, info), True, info

    def final_info(self, submitted):
        """What is known at the end of an episode."""
        public, hidden = _verdicts(self.task, self.source)
        return {'task': self.task.name, 'submitted': submitted,
                'hidden_pass': all(hidden), 'public_pass': all(public),
                'fix_op': self.task.fix_op,
                'ops': list(self.ops), 'actions': list(self.actions),
                'n_turns': self.turn}


__all__ = [
    "Task",
    "FAMILIES",
    "FIX_OPS",
    "compact_source",
    "EDIT_OPS",
    "run_tests",
    "make_tasks",
    "FIX_OP",
    "MESSAGES",
    "parse_call",
    "Env",
    "EpisodeInfo",
    "BugFixEnv",
]
