# Generated from notebooks/99_5_sweeps.ipynb by book/tangle.py; edit the notebook.
"""Sweeps: runs as data."""

# %% [imports]
import ast
import json
import os
import platform
import sys
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch

from agentrl.agent import build_tokenizer
from agentrl.checks import require, require_choice, require_count
from agentrl.episodes import make_base_agent
from agentrl.grpo import RLConfig
from agentrl.gym import make_tasks
from agentrl.shortcuts import call_sequences, make_rl_base, read_then_edit
from agentrl.store import digest, read_sealed, write_sealed
from agentrl.training_loop import behavior_stats, check_run, evaluate, train_rl


# %% [run]
BASES = {'base agent': make_base_agent, 'RL base': make_rl_base}


@dataclass(frozen=True)
class Run:
    """One training run of a study: what is trained, how, from which base (workshop)."""
    arm: str                    # its name in the study
    seed: int                   # of the training
    fields: dict                # of `RLConfig`, where the arm departs from the default
    steps: int = 40
    base: str = 'RL base'       # or 'base agent'
    base_seed: int = 0
    samples: int = 32           # episodes per task in the final evaluation

    def __post_init__(self):
        _check(self)

    @property
    def config(self):           # the whole `RLConfig` of the run
        return RLConfig(**self.fields, seed=self.seed)

    def first_policy(self, tok):
        return BASES[self.base](tok, self.base_seed)


# %% [check-fields]
def _check_fields(arm, changes):
    """Refuse what is no field of a study's config."""
    require(isinstance(arm, str), 'the name of an arm', arm, 'a text', TypeError)
    require(isinstance(changes, dict), f'the arm {arm!r}', changes,
            'a dict of RLConfig fields', TypeError)
    allowed = [field.name for field in fields(RLConfig) if field.name != 'seed']
    for name in changes:
        require_choice(f'a field of the arm {arm!r}', name, allowed)
    reward = changes.get('reward')
    require(not callable(reward), f'reward of the arm {arm!r}', reward,
            "'hidden' or 'public': a function cannot be kept on disk")


# %% [check]
def _check(run):
    """Refuse a run that cannot be."""
    _check_fields(run.arm, run.fields)
    require_choice('base', run.base, BASES)
    require_count('base_seed', run.base_seed, low=0)
    require_count('samples', run.samples)
    check_run(run.config, make_tasks('train'), run.steps)


# %% [arm-runs]
def arm_runs(arms, seeds, **settings):
    """A `Run` for each arm and each seed, seed by seed (workshop).

    `arms`: `{'name': {field: value}}`; `settings`: further fields of `Run`.
    """
    require(isinstance(arms, dict) and len(arms) > 0, 'arms', arms,
            "a dict of arms, {'name': {field: value}}, at least one")
    countable = hasattr(seeds, '__iter__') and not isinstance(seeds, (str, bytes))
    require(countable, 'seeds', seeds, 'a list or range of integers', TypeError)
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
    """SHA-256 of all weights, in the order of the state dict (workshop)."""
    return digest(*(t.cpu().numpy() for t in model.state_dict().values()))


# %% [kept-history]
SERIES = ('reward', 'reads', 'tests', 'edits', 'first_edit_right', 'turns', 'length',
          'n_episodes', 'zero_adv_frac', 'entropy', 'clip_frac', 'approx_kl',
          'ratio_min', 'ratio_max', 'kl_ref', 'eval_pass')


# %% [kept-numbers]
def five_digits(value):
    """A float at five significant digits; anything else as it is (workshop)."""
    return float(f'{value:.5g}') if isinstance(value, float) else value


def kept_history(history):
    """Series name -> its value at each step of a `train_rl` history (workshop)."""
    return {name: [five_digits(record.get(name)) for record in history]
            for name in SERIES if any(name in record for record in history)}


# %% [measure-policy]
def measure(model, tasks, tok, cfg, samples):
    """What a policy does in `samples` episodes per task, as a dict (workshop).

    `behavior_stats`, `read_then_edit`, and the five commonest sequences of calls.
    """
    return evaluate(model, tasks, tok, samples, cfg.temperature, cfg=cfg,
                    stats=_figures)


def _figures(trajs):
    """What `measure` says of these episodes."""
    share, right, n = read_then_edit(trajs)
    found = {**behavior_stats(trajs), 'reads_first': share,
             'right_after_reading': right, 'readers': n}
    common = call_sequences(trajs).most_common(5)
    return {name: five_digits(value) for name, value in found.items()} | {
        'sequences': {calls: five_digits(n / len(trajs)) for calls, n in common}}


# %% [train-run]
def train_run(run):
    """Train one run and measure it: settings, history, both splits; a dict (9.6)."""
    tok = build_tokenizer(make_tasks('all'))
    with one_thread():
        model = run.first_policy(tok)
        result = {**asdict(run), 'weights': weights_hash(model)}
        history = train_rl(model, make_tasks('train'), tok, run.config, run.steps,
                           eval_tasks=make_tasks('heldout'))
        result['history'] = kept_history(history)
        for split in ('train', 'heldout'):
            result[split] = measure(model, make_tasks(split), tok, run.config,
                                    run.samples)
    return result


# %% [sources]
def _sources():
    """Module -> source of this package on disk; empty where there is only bytecode."""
    folder = Path(sys.modules['agentrl'].__file__).parent
    return {path.stem: path.read_text(encoding='utf-8') for path in folder.glob('*.py')}


_IMPORTED = _sources()      # as this process runs it, whatever is edited later


# %% [parsed]
@cache
def _parsed(source):
    """Digest of a source without comments and docstrings; modules that it imports."""
    tree, imported = ast.parse(source), []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            del node.body[:ast.get_docstring(node) is not None]
        elif isinstance(node, ast.ImportFrom) and (node.module or '')[:8] == 'agentrl.':
            imported.append(node.module[8:])
    return digest(_plain(tree)), imported


# %% [plain-tree]
def _plain(node):
    """A parsed source as lists, without what is empty: every Python makes the same."""
    if isinstance(node, list):
        return [_plain(part) for part in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    return [type(node).__name__, *([name, _plain(part)]
            for name, part in ast.iter_fields(node) if part not in (None, []))]


# %% [is-ours]
def _is_ours(function):
    """Whether this is a function of the package, under its own name."""
    module, name = (str(getattr(function, a, '')) for a in ('__module__', '__name__'))
    home = sys.modules.get(module)
    return module.startswith('agentrl.') and getattr(home, name, None) is function


# %% [code-hash]
def code_hash(train, key=None):
    """SHA-256 of the code behind `train`, a trainer of this package (workshop).

    With a `key`, a text that says what another function is: of the key and the whole
    package. `ValueError`: such a function without a key. `RuntimeError`: no source.
    """
    require(key is not None or _is_ours(train), 'train', train, 'a function of '
            'agentrl, or any other with key=..., a text that says what it is')
    found, todo = {}, [*_IMPORTED] if key else [train.__module__.split('.')[1]]
    while todo or not found:
        room = todo.pop() if todo else 'sweeps'
        if room not in _IMPORTED:
            raise RuntimeError(f'there is no source of agentrl.{room} here, so nobody '
                               'can say whose results these are; install the .py files')
        if room not in found:
            found[room], imported = _parsed(_IMPORTED[room])
            todo += imported
    return digest(key, sorted(found.items()))


# %% [unchanged]
def check_unchanged():
    """`RuntimeError` if `agentrl` changed on disk after its import (workshop)."""
    now = _sources()
    changed = sorted(name for name in {*now, *_IMPORTED}
                     if now.get(name) != _IMPORTED.get(name))
    if changed:
        raise RuntimeError(f'changed on disk since agentrl was imported: '
                           f'{", ".join(changed)}; restart Python before you train')


# %% [run-file]
def this_machine():
    """What the last bits of a result depend on, beside code and settings; a dict."""
    return {'python': platform.python_version(), 'torch': torch.__version__,
            'numpy': np.__version__, 'system': platform.system(),
            'processor': platform.machine(),
            'cpu_capability': torch.backends.cpu.get_cpu_capability()}


# %% [run-key]
def run_key(run):
    """All settings of a run but the name of its arm, as one text (workshop)."""
    settings = asdict(run) | {'arm': '', 'fields': asdict(run.config)}
    return json.dumps(settings, sort_keys=True)


# %% [nameless]
def _nameless(run):
    """The run without its arm's name, and with those fields that change the default."""
    usual = asdict(RLConfig(seed=run.seed))
    departs = {k: v for k, v in asdict(run.config).items() if v != usual[k]}
    return replace(run, arm='', fields=departs)


# %% [kept-result]
def _file(settings, code):
    """Where the result of a run is kept, and the fingerprint of its file."""
    shaped_by = json.dumps([settings, code, this_machine()], sort_keys=True)
    return f'runs/{digest(shaped_by)}.run', shaped_by


# %% [kept]
def _kept_result(settings, code):
    """The result on disk, or None."""
    body = read_sealed(*_file(settings, code))
    return None if body is None else json.loads(body)


# %% [on-cores]
def on_cores(jobs=-1):
    """An engine for `sweep`: `jobs` processes here, one thread each; -1: all cores."""
    whole = isinstance(jobs, (int, np.integer)) and not isinstance(jobs, bool)
    require(whole and (jobs == -1 or jobs > 0), 'jobs', jobs,
            'a number of processes, or -1')

    def mapper(function, items):
        import joblib
        with joblib.parallel_config('loky', inner_max_num_threads=1):
            yield from joblib.Parallel(int(jobs), return_as='generator_unordered')(
                joblib.delayed(function)(item) for item in items)
    return mapper


# %% [on-dask]
def on_dask(client):
    """An engine for `sweep`: the workers of a `distributed.Client` (workshop).

    `ValueError`: a worker with several threads, in which runs would disturb each other.
    """
    threads = client.nthreads()
    require({*threads.values()} <= {1}, 'threads of the workers', threads,
            'one each: LocalCluster(threads_per_worker=1), --nthreads 1')

    def mapper(function, items):
        from distributed import as_completed
        futures = client.map(function, items, pure=False)
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            client.cancel(futures)
    return mapper


# %% [on-ray]
def on_ray():
    """An engine for `sweep`: tasks of the Ray cluster this process is connected to."""
    def mapper(function, items):
        import ray
        task = ray.remote(lambda item: function(item))
        waiting = [task.remote(item) for item in items]
        try:
            while waiting:
                (ready,), waiting = ray.wait(waiting)
                yield ray.get(ready)
        finally:
            for ref in waiting:
                ray.cancel(ref)
    return mapper


# %% [answer]
def _answer(train, key, item):
    """What a worker sends back: the settings and the result, or what went wrong."""
    settings, run = item
    try:
        result = train(run)
        require(isinstance(result, dict), 'what train returns', result, 'a dict',
                TypeError)
        return settings, {'text': json.dumps(result), 'code': code_hash(train, key),
                          'machine': this_machine()}
    except Exception as error:
        return settings, {'trouble': f'{type(error).__name__}: {error}'}


# %% [trouble]
def _trouble(answer, run, code):
    """Why an answer is not kept, or None."""
    if 'trouble' in answer:
        return answer['trouble']
    weights = json.loads(answer['text']).get('weights')
    here = {'code': code, 'machine': this_machine(),
            'base agent': weights and _first_weights(run)}
    for name, theirs in (answer | {'base agent': weights}).items():
        if theirs != here.get(name, theirs):
            return f'{name} of the worker: {theirs}; here: {here[name]}'


# %% [first-weights]
_WEIGHTS = {}       # what makes a base agent -> the hash of its weights here


def _first_weights(run):
    """The hash of the weights that a run starts from."""
    later = {'arm', 'seed', 'fields', 'steps', 'samples'}
    start = json.dumps({k: v for k, v in asdict(run).items() if k not in later})
    if start not in _WEIGHTS:
        tok = build_tokenizer(make_tasks('all'))
        _WEIGHTS[start] = weights_hash(run.first_policy(tok))
    return _WEIGHTS[start]


# %% [study-file]
def _study(name, path):
    """What a study file holds, a dict."""
    require(isinstance(path, (str, os.PathLike)), name, path, 'a path', TypeError)
    require(Path(path).is_file(), name, str(path), 'a study that is there. The book '
            'has its studies in the folder `evidence` of its repository, beside '
            '`notebooks`: run the notebook in a copy of that', FileNotFoundError)
    try:
        study = json.loads(Path(path).read_text(encoding='utf-8'))
    except ValueError:
        study = None
    whole = isinstance(study, dict) and isinstance(study.get('results'), list)
    require(whole and 'code' in study, name, str(path), 'a study, whole, in JSON')
    return study


# %% [recorded]
def _recorded(path, runs, code):
    """`{settings: result}` of these runs in a study file, if code and base fit."""
    study = _study('recorded', path)
    if study['code'] != code or not runs:
        return {}
    kind = type(runs[0])
    known = {run_key(kind(**{f.name: result[f.name] for f in fields(kind)})): result
             for result in study['results']}
    keys = [run_key(run) for run in runs]
    found = {settings: known[settings] for settings in keys if settings in known}
    if len(found) < len({*keys}):
        ours = {_first_weights(run) for run in runs}
        if not ours >= {result['weights'] for result in found.values()}:
            return {}
    return found


# %% [with-bar]
def _with_bar(answers, total):
    """The answers, with a bar that says how many have come."""
    from tqdm.auto import tqdm
    # tqdm's own switch, which its bar for notebooks does not look at
    off = bool(os.environ.get('TQDM_DISABLE'))
    return tqdm(answers, total=total, desc='runs', disable=off)


# %% [tell-failures]
def _tell_failures(todo, trouble):
    """Raise if any run has trouble, naming arm and seed of each."""
    failed = [f'{todo[settings].arm}, seed {todo[settings].seed}: {words}'
              for settings, words in trouble.items() if words]
    if failed:
        raise RuntimeError(f'{len(failed)} of {len(todo)} runs failed; the others are '
                           f"kept: {'; '.join(failed)}")


# %% [train-all]
def _train_all(todo, code, train, key, mapper):
    """The results of `{settings: run}`, trained now, each kept as it comes."""
    check_unchanged()
    done, trouble = {}, dict.fromkeys(todo, 'no answer from the engine')
    items = [(settings, _nameless(run)) for settings, run in todo.items()]
    try:
        answers = mapper(partial(_answer, train, key), items)
        for settings, answer in _with_bar(answers, len(items)):
            trouble[settings] = _trouble(answer, todo[settings], code)
            if trouble[settings] is None:
                write_sealed(*_file(settings, code), answer['text'].encode())
                done[settings] = json.loads(answer['text'])
    except Exception as error:
        raise RuntimeError(f'the engine stopped ({type(error).__name__}); {len(done)} '
                           f'of {len(todo)} runs are kept, and the same call goes on '
                           'with the others') from error
    _tell_failures(todo, trouble)
    return done


# %% [check-sweep]
def _check_sweep(runs, jobs, train, key, mapper):
    """Refuse what cannot be swept; the runs as a list and their engine."""
    several = hasattr(runs, '__iter__') and not isinstance(runs, (str, bytes))
    runs = list(runs) if several else [None]
    require(all(isinstance(run, Run) for run in runs), 'runs', runs, 'a list of Run')
    require(train is None or callable(train), 'train', train, 'a function of a Run')
    require(key is None or (isinstance(key, str) and key.strip() and train is not None),
            'key', key, 'a text that says what `train` is, and only with `train`')
    engine = on_cores(jobs)
    require(mapper is None or (callable(mapper) and jobs == -1), 'mapper', mapper,
            'an engine such as on_dask(client), and then no `jobs`')
    return runs, mapper or engine


# %% [sweep]
def sweep(runs, jobs=-1, recorded=None, train=None, *, key=None, mapper=None):
    """The results of `runs`, dicts in their order, trained in parallel (workshop).

    `jobs` processes, -1: one per core; or another engine, `mapper`. Each result is on
    disk at once: what was interrupted goes on where it stopped. `recorded`: a study
    file; what it holds is not trained again. `train(run)` gives a dict that JSON can
    hold; one that is not of this package needs a `key`, a text that says what it is.
    `RuntimeError`: runs that failed, by arm and seed; the others are kept.
    """
    runs, mapper = _check_sweep(runs, jobs, train, key, mapper)
    train, keys = train or train_run, [run_key(run) for run in runs]
    code = code_hash(train, key)
    known = {} if recorded is None else _recorded(recorded, runs, code)
    known |= {settings: _kept_result(settings, code) for settings in {*keys} - {*known}}
    todo = {settings: run for settings, run in zip(keys, runs, strict=True)
            if known[settings] is None}
    known |= _train_all(todo, code, train, key, mapper) if todo else {}
    return [known[run_key(run)] | asdict(run) for run in runs]


# %% [read-study]
def read_study(path):
    """The results in a study file: `{arm: results}`, seed by seed (workshop).

    Each result is a dict: settings, `history`, and what was measured on both splits.
    """
    arms, results = {}, _study('path', path)['results']
    for result in sorted(results, key=lambda result: result['seed']):
        arms.setdefault(result['arm'], []).append(result)
    return arms


__all__ = [
    "BASES",
    "Run",
    "arm_runs",
    "one_thread",
    "weights_hash",
    "SERIES",
    "five_digits",
    "kept_history",
    "measure",
    "train_run",
    "code_hash",
    "check_unchanged",
    "this_machine",
    "run_key",
    "on_cores",
    "on_dask",
    "on_ray",
    "sweep",
    "read_study",
]
