# Generated from notebooks/99_5_sweeps.ipynb by book/tangle.py; edit the notebook.
"""Sweeps: runs as data."""

# %% [imports]
import ast
import hashlib
import io
import json
import linecache
import os
import platform
import sys
import tokenize
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from inspect import getsource, isfunction, unwrap
from pathlib import Path

import joblib
import numpy as np
import torch
from IPython import get_ipython
from tqdm.auto import tqdm

from agentrl.agent import build_tokenizer
from agentrl.checks import require, require_choice, require_count
from agentrl.episodes import make_base_agent
from agentrl.grpo import RLConfig
from agentrl.gym import make_tasks
from agentrl.shortcuts import call_sequences, make_rl_base, read_then_edit
from agentrl.store import cache_dir
from agentrl.training_loop import (
    behavior_stats,
    check_run,
    make_env,
    sample_groups,
    train_rl,
)


# %% [run]
BASES = {'base agent': make_base_agent, 'RL base': make_rl_base}


@dataclass(frozen=True)
class Run:
    """One training run of a study: what is trained, how, from which base (9.6)."""
    arm: str                    # its name in the study
    seed: int                   # of the training
    fields: dict                # of `RLConfig`, where the arm departs from the default
    steps: int = 40
    base: str = 'RL base'       # or 'base agent'
    base_seed: int = 0
    samples: int = 32           # episodes a task in the final evaluation

    def __post_init__(self):
        check_fields(self.arm, self.fields)
        require_choice('base', self.base, BASES)
        require_count('base_seed', self.base_seed, low=0)
        require_count('samples', self.samples)
        check_run(self.config, make_tasks('train'), self.steps)

    @property
    def config(self):
        """The whole `RLConfig` of the run."""
        return RLConfig(**self.fields, seed=self.seed)

    def first_policy(self, tok):
        """The policy that the run starts from."""
        return BASES[self.base](tok, self.base_seed)


# %% [check-fields]
def check_fields(arm, changes):
    """Refuse what is no field of a study's config before anything runs (9.6)."""
    require(isinstance(changes, dict), f'the arm {arm!r}', changes,
            'a dict of RLConfig fields', TypeError)
    allowed = [field.name for field in fields(RLConfig) if field.name != 'seed']
    for name in changes:
        require_choice(f'a field of the arm {arm!r}', name, allowed)
    reward = changes.get('reward')
    require(not callable(reward), f'reward of the arm {arm!r}', reward,
            "'hidden' or 'public': a function cannot be kept on disk")


# %% [arm-runs]
def arm_runs(arms, seeds, **settings):
    """A `Run` for each arm and each seed, seed by seed (section 9.6)."""
    require(isinstance(arms, dict) and len(arms) > 0, 'arms', arms,
            "a dict of arms, {'name': {field: value}}, at least one")
    seeds = list(seeds)
    require(len(set(seeds)) == len(seeds) > 0, 'seeds', seeds, 'different ones')
    return [Run(arm, seed, changes, **settings)
            for seed in seeds for arm, changes in arms.items()]


# %% [one-thread]
@contextmanager
def one_thread():
    """One PyTorch thread inside the `with`: equal seeds then give equal bits (9.6)."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# %% [weights-hash]
def weights_hash(model):
    """SHA-256 of all weights, in the order of the state dict (section 9.6)."""
    sha = hashlib.sha256()
    for tensor in model.state_dict().values():
        sha.update(tensor.cpu().numpy().tobytes())
    return sha.hexdigest()


# %% [measure]
def short(value):
    """A float at five significant digits: what is kept and compared (section 9.6)."""
    return float(f'{value:.5g}') if isinstance(value, float) else value


# %% [measure-policy]
def measure(model, tasks, tok, cfg, samples):
    """What a policy does in `samples` episodes a task, as a dict (section 9.6).

    `behavior_stats`, `read_then_edit`, and the five commonest sequences of calls.
    """
    trajs = sample_groups(model, partial(make_env, cfg), tasks, tok,
                          replace(cfg, group_size=samples),
                          torch.Generator().manual_seed(0))
    share, right, n = read_then_edit(trajs)
    found = {**behavior_stats(trajs), 'reads_first': share,
             'right_after_reading': right, 'readers': n}
    common = call_sequences(trajs).most_common(5)
    return {name: short(value) for name, value in found.items()} | {
        'sequences': {calls: short(count / len(trajs)) for calls, count in common}}


# %% [train-run]
SERIES = ('reward', 'reads', 'tests', 'edits', 'first_edit_right', 'turns', 'length',
          'n_episodes', 'zero_adv_frac', 'entropy', 'clip_frac', 'approx_kl',
          'ratio_min', 'ratio_max', 'kl_ref', 'eval_pass')


def train_run(run):
    """Train one run and measure it: settings, history, both splits; a dict (9.6)."""
    tok = build_tokenizer(make_tasks('all'))
    with one_thread():
        model = BASES[run.base](tok, run.base_seed)
        result = {**asdict(run), 'weights': weights_hash(model)}
        history = train_rl(model, make_tasks('train'), tok, run.config, run.steps,
                           eval_tasks=make_tasks('heldout'))
        result['history'] = {
            name: [short(record.get(name)) for record in history]
            for name in SERIES if any(name in record for record in history)}
        for split in ('train', 'heldout'):
            result[split] = measure(model, make_tasks(split), tok, run.config,
                                    run.samples)
    return result


# %% [definitions]
_SOURCES = {name: getsource(module) for name, module in sys.modules.items()
            if name.partition('.')[0] == 'agentrl'}      # as they were imported


def _sources(module):
    """The source of a module; of a notebook, its cells and what its functions are now.

    A cell that ran twice stands in its old place, so the functions come last.
    """
    shell = get_ipython()
    if module != '__main__' or shell is None:
        return [_SOURCES.get(module) or getsource(sys.modules[module])]
    cells = [''.join(lines) for name, (_, _, lines, _) in linecache.cache.items()
             if 'ipykernel_' in name or name.startswith('<ipython-input')]
    functions = [f for f in map(unwrap, filter(callable, [*shell.user_ns.values()]))
                 if isfunction(f) and f.__module__ == '__main__']
    return cells + [getsource(function) for function in functions]


# %% [no-comments]
def _without_comments(source):
    """The same lines, comments blanked out."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return lines


# %% [definition-text]
def _text(node, lines):
    """The lines of a definition, with decorators, without docstrings."""
    first = min([node.lineno] + [d.lineno for d in getattr(node, 'decorator_list', ())])
    kept = dict(enumerate(lines[first - 1:node.end_lineno], first))
    documented = (ast.FunctionDef, ast.ClassDef)
    for inner in ast.walk(node):
        if isinstance(inner, documented) and ast.get_docstring(inner):
            for row in range(inner.body[0].lineno, inner.body[0].end_lineno + 1):
                del kept[row]
    return '\n'.join(line.rstrip() for line in kept.values() if line.strip())


# %% [definitions-of]
def _named(node):
    """The names that a top-level statement defines: of constants, UPPER_CASE ones."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = getattr(node, 'targets', [getattr(node, 'target', None)])
    return [n.id for t in targets if t for n in ast.walk(t)
            if isinstance(n, ast.Name) and n.id.isupper()]


# %% [definitions-map]
def _definitions(module):
    """Name -> `(text, names in it)`, or `(module, name)` where it is imported."""
    found = {}
    for source in _sources(module):
        try:
            body = ast.parse(source).body
        except SyntaxError:             # a cell with a magic defines nothing of ours
            continue
        lines = _without_comments(source)
        for node in body:
            if isinstance(node, ast.ImportFrom):
                found |= {a.asname or a.name: (node.module, a.name) for a in node.names}
            inside = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            for name in _named(node):
                text, (old, _) = _text(node, lines), found.get(name, ('', None))
                if old and old != text and not isinstance(node, ast.FunctionDef):
                    text = f'{_TWO_WAYS}\n{text}'
                found[name] = (text, inside)
    return found


_TWO_WAYS = 'defined in two ways'


# %% [code-hash]
def code_hash(function):
    """SHA-256 of the code of this book that `function` reaches (section 9.6).

    Comments, docstrings and other libraries do not count. `RuntimeError`: a constant or
    class that a notebook defined in two ways, so that nobody can say which one counts.
    """
    known, reached, todo = {}, set(), [(function.__module__, function.__name__)]
    while todo:
        module, name = todo.pop()
        if module not in known:
            known[module] = _definitions(module)
        text, more = known[module].get(name, (None, None))
        if isinstance(more, str):       # imported
            todo += [(text, more)] if text.startswith('agentrl') else []
        elif text and (name, text) not in reached:
            if text.startswith(_TWO_WAYS):
                raise RuntimeError(f'{name} was {_TWO_WAYS} in this notebook; restart '
                                   'the kernel, so that results belong to one')
            reached.add((name, text))
            todo += [(module, other) for other in sorted(more)]
    return hashlib.sha256(json.dumps(sorted(reached)).encode()).hexdigest()


# %% [run-file]
def machine():
    """What the last bits of a result depend on, beside code and settings (9.6)."""
    return {'python': platform.python_version(), 'torch': torch.__version__,
            'numpy': np.__version__, 'system': platform.system(),
            'processor': platform.machine(),
            'cpu_capability': torch.backends.cpu.get_cpu_capability()}


# %% [run-key]
def run_key(run):
    """All settings of a run, the whole config included, as one text (section 9.6).

    The arm's name is not among them: equal settings are one run.
    """
    settings = asdict(run) | {'arm': '', 'fields': asdict(run.config)}
    return json.dumps(settings, sort_keys=True)


# %% [file-of-run]
def run_file(run, code):
    """The file of a run, named by a hash of all that shapes its result (9.6)."""
    key = json.dumps([run_key(run), code, machine()], sort_keys=True)
    name = hashlib.sha256(key.encode()).hexdigest()
    return cache_dir() / 'runs' / f'{name}.json'


# %% [keep-run]
def keep_run(run, path, train):
    """Train a run and write its result to `path`, the whole file or none (9.6).

    Returns None, or what went wrong: one run that fails must not stop the others.
    """
    try:
        text = json.dumps(train(run))
    except Exception as error:
        return f'{run.arm}, seed {run.seed}: {type(error).__name__}: {error}'
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f'.{os.getpid()}.part')
    part.write_text(text, encoding='utf-8')
    os.replace(part, path)


# %% [kept-result]
def kept_result(path):
    """The result in a file, or None where there is none that can be read (9.6)."""
    try:
        return json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return None


# %% [recorded]
def recorded_results(path, runs, train):
    """The results of a study file that fit these runs: `{run number: result}` (9.6).

    None if the code has changed since. Where some are missing, those that there are
    count only if our base agents have the recorded weights: pairs need one base.
    """
    study = json.loads(Path(path).read_text(encoding='utf-8'))
    if study['code'] != code_hash(train):
        return {}
    kind = type(runs[0])
    names = [field.name for field in fields(kind)]
    known = {run_key(kind(**{name: result[name] for name in names})): result
             for result in study['results']}
    keys = {i: run_key(run) for i, run in enumerate(runs)}
    found = {i: known[key] for i, key in keys.items() if key in known}
    if len(found) < len(runs):
        tok = build_tokenizer(make_tasks('all'))
        ours = {weights_hash(run.first_policy(tok)) for run in runs}
        if not ours >= {result['weights'] for result in found.values()}:
            return {}
    return found


# %% [train-all]
def check_unchanged():
    """Refuse to train if `agentrl` changed on disk after its import (section 9.6).

    New processes would run the new code under the hash of the old one.
    """
    linecache.checkcache()
    for name, source in _SOURCES.items():
        if getsource(sys.modules[name]) != source:
            raise RuntimeError(f'{name} has changed on disk since it was imported; '
                               'restart Python before you train')


def train_all(todo, jobs, train):
    """Train runs, `{path: run}`, in processes; messages of those that failed (9.6)."""
    if not todo:
        return []
    check_unchanged()
    with joblib.parallel_config('loky', inner_max_num_threads=1):
        done = joblib.Parallel(jobs, return_as='generator_unordered')(
            joblib.delayed(keep_run)(run, path, train) for path, run in todo.items())
        # tqdm's own switch, which its bar for notebooks does not look at
        off = bool(os.environ.get('TQDM_DISABLE'))
        done = tqdm(done, total=len(todo), desc='runs', disable=off)
        return [message for message in done if message]


# %% [sweep]
def sweep(runs, jobs=-1, recorded=None, train=None):
    """The results of `runs`, in their order, from parallel processes (section 9.6).

    `jobs` processes of one thread each, -1: one a core. Each finished run is on disk at
    once, so a sweep that was interrupted goes on where it stopped. `recorded`: the path
    of a study file; what it holds is not trained again. `RuntimeError` at the end, if
    runs failed; the others are kept. `train`: what makes a run's result, `train_run`.
    """
    require(isinstance(jobs, int) and (jobs == -1 or jobs > 0), 'jobs', jobs,
            'a number of processes, or -1')
    train = train or train_run
    known = recorded_results(recorded, runs, train) if recorded else {}
    code = code_hash(train)
    files = {i: run_file(run, code) for i, run in enumerate(runs) if i not in known}
    todo = {path: runs[i] for i, path in files.items() if kept_result(path) is None}
    failed = train_all(todo, jobs, train)
    if failed:
        raise RuntimeError(f'{len(failed)} of {len(todo)} runs failed; the others are '
                           f"kept: {'; '.join(failed)}")
    return [(known.get(i) or kept_result(files[i])) | {'arm': run.arm}
            for i, run in enumerate(runs)]


# %% [read-study]
def read_study(path):
    """The results in a study file: `{arm: results}`, seed by seed (section 0).

    Each result is a dict: settings, `history`, and what was measured on both splits.
    """
    require(Path(path).is_file(), 'path', str(path), 'a study that is there. The book '
            'has its studies in the folder `evidence` of its repository, beside '
            '`notebooks`: run the notebook in a copy of that', FileNotFoundError)
    study = json.loads(Path(path).read_text(encoding='utf-8'))
    arms = {}
    for result in sorted(study['results'], key=lambda result: result['seed']):
        arms.setdefault(result['arm'], []).append(result)
    return arms


__all__ = [
    "BASES",
    "Run",
    "check_fields",
    "arm_runs",
    "one_thread",
    "weights_hash",
    "short",
    "measure",
    "SERIES",
    "train_run",
    "code_hash",
    "machine",
    "run_key",
    "run_file",
    "keep_run",
    "kept_result",
    "recorded_results",
    "check_unchanged",
    "train_all",
    "sweep",
    "read_study",
]
