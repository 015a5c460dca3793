# Generated from notebooks/04_gym.ipynb by book/tangle.py; edit the notebook.
"""The BugFix gym."""

# %% [imports]
import functools
import io
import json
import math
import numbers
import os
import re
import signal
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Callable, Mapping
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


def _require_text(name, value):
    require(isinstance(value, str), name, value, 'a string', TypeError)


def _require_tests(name, tests):
    ok = isinstance(tests, (list, tuple)) and all(
        isinstance(test, (list, tuple)) and len(test) == 2
        and isinstance(test[0], (list, tuple)) for test in tests)
    require(ok, name, tests, 'pairs (args, expected), each args a tuple', TypeError)


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
        for field in ('name', 'split', 'fn_name', 'issue', 'source', 'fix_op'):
            _require_text(field, getattr(self, field))
        for field in ('public_tests', 'hidden_tests'):
            _require_tests(field, getattr(self, field))
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
def compact_source(source: str) -> str:
    """The source as the agent sees it (section 4).

    Tokens joined by single spaces; a line of source stays a line. A source that is no
    Python is split at white space.
    """
    _require_text('source', source)
    return _compact(source)


@functools.lru_cache(maxsize=8192)      # 30 names x about a hundred bodies
def _compact(source):
    lines, line = [], []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in (tokenize.NEWLINE, tokenize.NL):
                lines.append(line)
                line = []
            elif token.type != tokenize.COMMENT and token.string.strip():
                line.append(token.string)
    except (tokenize.TokenError, SyntaxError, ValueError):
        lines = [text.split() for text in source.splitlines()]
    return '\n'.join(' '.join(line) for line in lines if line)


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


# %% [child-limits]
_LIMITS = """
import json, os, sys, time

def no_processes(event, args):
    if event.startswith(('os.fork', 'os.posix_spawn', 'os.exec', 'os.spawn',
                         'os.system', 'subprocess.', 'ctypes.')):
        raise PermissionError(event)

for name, limit in {'CPU': round(time.process_time()) + 1, 'AS': 1 << 29,
                    'FSIZE': 1 << 20, 'NPROC': 0}.items():
    try:
        import resource
        resource.setrlimit(getattr(resource, 'RLIMIT_' + name), (limit, limit))
    except (ImportError, AttributeError, ValueError, OSError):
        pass
sys.addaudithook(no_processes)
"""


# %% [child]
_CHILD = _LIMITS + """
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


# %% [run-child]
_WALL_LIMIT = 5.0       # seconds on the clock for all tests of one source


def _run_child(source, args, fn_name):
    """Whether an isolated process ended in time, and its report, a line per test."""
    text = json.dumps({'source': source, 'args': args, 'fn_name': fn_name})
    with tempfile.TemporaryFile() as job, tempfile.TemporaryFile() as report:
        job.write(text.encode())
        job.seek(0)
        child = subprocess.Popen(
            [sys.executable, '-I', '-S', '-c', _CHILD], cwd=tempfile.gettempdir(),
            stdin=job, stdout=report, stderr=subprocess.PIPE, start_new_session=True)
        with child:
            try:
                child.stderr.read()         # to its end: the child is ready, or gone
                child.wait(_WALL_LIMIT)
                in_time = True
            except subprocess.TimeoutExpired:
                in_time = False
            finally:
                _end_group(child)
        report.seek(0)
        return in_time, report.read(1 << 20).decode(errors='replace').split('\n')


# %% [end-group]
def _end_group(child):
    """End the child and whatever it started; it may be gone already."""
    if os.name != 'posix':
        child.kill()
        return
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


# %% [judge]
def _judge(source, tests, fn_name):
    """Compare what the child reports with what each test expects."""
    args = [args for args, _ in tests]
    in_time, lines = _run_child(source, args, fn_name)
    if not in_time:
        _, lines = _run_child(source, args, fn_name)
    lines += [''] * len(tests)          # no report where a test did not finish
    return tuple(_verdict(line, expected)
                 for line, (_, expected) in zip(lines, tests, strict=False))


def _verdict(line, expected):
    """`(ok, message)` of one test, from its line of the report."""
    try:
        report = json.loads(line)
        if 'error' in report:
            return False, f"raised {report['error']}"
        value = _freeze(report['value'])
        return value == expected, f'returned {value}, expected {expected}'
    except (LookupError, TypeError, ValueError, RecursionError):
        return False, 'did not finish'  # no report, or no report of ours


# %% [run-tests]
_VERDICTS: dict = {}    # what run_tests has measured in this process


def run_tests(source: str, tests, fn_name: str) -> list[tuple[bool, str]]:
    """Run `(args, expected)` pairs on `fn_name`: `[(ok, message), ...]` (section 4).

    The source runs in a process of its own: one that does not compile, raises, or does
    not finish fails its tests and leaves the caller as it was. Results are remembered
    under a key without the function's name.
    """
    _require_text('source', source)
    _require_text('fn_name', fn_name)
    uses = re.findall(rf'\b(?:{re.escape(fn_name)}|task_function)\b', source)
    if len(uses) == 1 and f'def {fn_name}(' in source:      # in its definition only
        source = source.replace(f'def {fn_name}(', 'def task_function(')
        fn_name = 'task_function'
    key = source, repr(tests), fn_name      # repr: 1 and True are equal, not the same
    if key not in _VERDICTS:
        _require_tests('tests', tests)
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


def make_tasks(split: str) -> list[Task]:
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


def parse_call(text: str) -> tuple[str, ...] | None:
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
        """Start an episode at a task of its kind; returns what the agent sees first."""

    def step(self, action_text: str) -> tuple[str, float, bool, Mapping[str, Any]]:
        """Answer one call: `(observation, reward, done, info)`.

        `action_text` is what the agent wrote, well formed or not. `done` must be true
        by the last turn that the rollout allows (`max_turns`). The reward of that step,
        a finite number, is the reward of the episode; earlier ones are not used. Its
        `info` may have keys of `EpisodeInfo`, others, or none.
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
    known = isinstance(reward, str) and reward in ('hidden', 'public')
    require(known, 'reward', reward, "'hidden', 'public' or a callable")
    return lambda info: float(info['submitted'] and info[f'{reward}_pass'])


def _checked_reward(reward_fn, info):
    """The reward as a float; one that is not a finite number is an error."""
    reward = reward_fn(info)
    ok = isinstance(reward, numbers.Real) and math.isfinite(reward)
    require(ok, f"reward of {info['task']}", reward, 'a finite number')
    return float(reward)


# %% [turns]
@dataclass(eq=False)
class _Turns:
    """The rules of an episode: calls are counted, and pay comes once, at the end."""
    max_turns: int = 6
    reward: str | Callable[[EpisodeInfo], float] = 'hidden'

    def __post_init__(self):
        require_count('max_turns', self.max_turns)
        self.reward_fn = _reward_fn(self.reward)
        self.turn, self.done, self.ops, self.actions = 0, True, [], []

    def step(self, action_text: str) -> tuple[str, float, bool, EpisodeInfo]:
        """Make one call; returns `(observation, reward, done, info)`."""
        require(not self.done, 'step: done', True, 'calls from reset to the end only')
        self.turn += 1
        self.actions.append(action_text)
        event, observation = self._answer(*parse_call(action_text) or ('invalid',))
        self.done = event == 'submit' or self.turn >= self.max_turns
        if not self.done:
            return observation, 0.0, False, {'turn': self.turn, 'event': event}
        info = self.final_info(event == 'submit')
        return observation, _checked_reward(self.reward_fn, info), True, info


# %% [edit]
def _edit(env, op):
    """Try an edit on the source of an episode; the event."""
    if op not in EDIT_OPS:
        return 'invalid'
    if len(env.ops) >= env.max_edits:
        return 'refused'
    before, env.source = env.source, EDIT_OPS[op](env.source, env.task.public_tests)
    env.ops.append(op)
    return 'unchanged' if env.source == before else 'applied'


# %% [observation]
def _verdicts(task, source):
    """Which public and which hidden tests pass, from one run."""
    tests = task.public_tests + task.hidden_tests
    oks = [ok for ok, _ in run_tests(source, tests, task.fn_name)]
    n_public = len(task.public_tests)
    return oks[:n_public], oks[n_public:]


def _observation(env, event):
    """What the agent is told of an event."""
    if event == 'read':
        return compact_source(env.source)
    public = _verdicts(env.task, env.source)[0] if event == 'test' else []
    return MESSAGES[event].format(passed=sum(public), total=len(public))


# %% [env]
class BugFixEnv(_Turns):
    """One bug, at most `max_turns` calls, a reward at the end (section 4).

    `reward`: 'hidden' or 'public' tests must pass, or a function of the final info.
    """
    max_edits = math.inf        # this gym has no limit

    def reset(self, task: Task) -> str:
        """Start an episode; returns the issue, which is all the agent is told."""
        self.task, self.source, self.done = task, task.source, False
        self.turn, self.ops, self.actions = 0, [], []
        return task.issue

    def _answer(self, call, op=None):
        event = _edit(self, op) if call == 'edit' else call
        return event, _observation(self, event)

    def final_info(self, submitted: bool) -> EpisodeInfo:
        """What is known at the end of an episode."""
        public, hidden = _verdicts(self.task, self.source)
        return {'task': self.task.name, 'fix_op': self.task.fix_op,
                'n_turns': self.turn, 'submitted': submitted,
                'actions': list(self.actions), 'ops': list(self.ops),
                'hidden_pass': all(hidden), 'public_pass': all(public)}


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
