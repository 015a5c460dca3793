"""Runs as data, how one is trained and measured, and the hash of its code."""

import ast
import compileall
import copy
import functools
import json
import os
import shutil
import subprocess
import sys
import threading
import types

import pytest
import torch
from house import ROOT

import agentrl as arl
from agentrl import sweeps

# ---- A run as data


def test_the_settings_of_a_run_are_those_of_its_config():
    run = arl.Run("x", 3, {"clip_high": 0.28})
    assert run.config == arl.RLConfig(clip_high=0.28, seed=3)
    assert (run.steps, run.base, run.base_seed, run.samples) == (40, "RL base", 0, 32)


@pytest.mark.parametrize(
    ("changes", "settings", "words"),
    [
        ({"clip_hihg": 0.3}, {}, "field of the arm 'x' is 'clip_hihg'; .*'clip_high'"),
        ({"seed": 1}, {}, "a field of the arm 'x' is 'seed'"),
        ({"reward": len}, {}, "reward of the arm 'x' is .*'hidden' or 'public'"),
        ({"clip_high": -1}, {}, "clip_high is -1"),
        ({"group_size": 1}, {}, "group_size is 1; .*at least 2"),
        ({"prompts_per_step": 21}, {}, "prompts_per_step is 21; .*20"),
        (None, {}, "the arm 'x' is None; .*a dict"),
        ("clip_high", {}, "the arm 'x' is 'clip_high'; .*a dict"),
        ({}, {"base": "none"}, "base is 'none'; .*'RL base'"),
        ({}, {"steps": -1}, "steps is -1"),
        ({}, {"base_seed": 0.5}, "base_seed is 0.5"),
        ({}, {"samples": 0}, "samples is 0"),
    ],
)
def test_a_run_that_cannot_be_is_refused_before_anything_trains(
    changes, settings, words
):
    with pytest.raises((ValueError, TypeError), match=words):
        arl.arm_runs({"good": {}, "x": changes}, [0], **settings)


def test_arms_and_seeds_make_the_runs_seed_by_seed():
    runs = arl.arm_runs({"a": {}, "b": {"lr": 1e-4}}, (0, 5), steps=7)
    assert [(run.arm, run.seed) for run in runs] == [
        ("a", 0), ("b", 0), ("a", 5), ("b", 5),
    ]  # fmt: skip
    assert {run.steps for run in runs} == {7}
    assert len(arl.arm_runs({"a": {}}, (seed for seed in (3, 4)))) == 2


@pytest.mark.parametrize(
    ("arms", "seeds", "words"),
    [
        ({"a": {}}, (), "seeds is .*different"),
        ({"a": {}}, (1, 1), "seeds is .*different"),
        ({"a": {}}, "012", "seeds is '012'; .*a list or range"),
        ({"a": {}}, 3, "seeds is 3; .*a list or range"),
        ({"a": {}}, ["x"], "seed is 'x'"),
        ({}, (0,), "arms is .*a dict of arms"),
        (["a"], (0,), "arms is .*a dict of arms"),
        ("a", (0,), "arms is .*a dict of arms"),
        (None, (0,), "arms is .*a dict of arms"),
        ({3: {}}, (0,), "the name of an arm is 3"),
    ],
)
def test_what_makes_no_study_is_refused_by_name(arms, seeds, words):
    with pytest.raises((ValueError, TypeError), match=words):
        arl.arm_runs(arms, seeds)


# ---- Measuring


def test_one_thread_inside_and_the_old_number_after():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyError), arl.one_thread():
            assert torch.get_num_threads() == 1
            raise KeyError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_hash_of_weights_sees_every_weight(apprentice):
    other = copy.deepcopy(apprentice)
    assert arl.weights_hash(other) == arl.weights_hash(apprentice)
    with torch.no_grad():
        [*other.parameters()][-1].view(-1)[0] += 1e-6
    assert arl.weights_hash(other) != arl.weights_hash(apprentice)


def test_kept_numbers_have_five_digits():
    assert arl.five_digits(0.123456789) == 0.12346
    assert arl.five_digits(61 / 64) == 0.95312
    assert arl.five_digits(200) == 200 and arl.five_digits(None) is None
    counts = [k / 64 for k in range(400)]
    assert [round(arl.five_digits(x) * 64) for x in counts] == list(range(400))


def test_a_history_is_kept_series_by_series():
    steps = [{"reward": 1 / 3, "step": 0}, {"reward": 1.0, "step": 1, "kl_ref": 0.5}]
    assert arl.kept_history(steps) == {"reward": [0.33333, 1.0], "kl_ref": [None, 0.5]}
    assert arl.kept_history([]) == {}


def test_a_policy_is_measured_as_evaluate_and_read_then_edit_do(apprentice, tok):
    cfg, tasks = arl.RLConfig(seed=4), arl.make_tasks("heldout")
    found = arl.measure(apprentice, tasks, tok, cfg, 3)
    expected = arl.evaluate(apprentice, tasks, tok, 3, cfg=cfg)
    assert {name: found[name] for name in expected} == {
        name: arl.five_digits(value) for name, value in expected.items()
    }
    assert found["readers"] == round(found["reads_first"] * 30)
    shares = [*found["sequences"].values()]
    assert len(shares) <= 5 and shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) <= 1.0001


TINY = {"group_size": 2, "prompts_per_step": 2, "max_turns": 4}


def test_a_result_is_the_run_its_history_and_both_splits(
    apprentice, tok, train_tasks, monkeypatch
):
    monkeypatch.setitem(
        sweeps.BASES, "RL base", lambda tok, seed: copy.deepcopy(apprentice)
    )
    run = arl.Run("tiny", 2, TINY, steps=3, samples=1)
    result = arl.train_run(run)
    assert json.loads(json.dumps(result)) == result
    assert arl.Run(**{k: result[k] for k in run.__dict__}) == run
    assert result["weights"] == arl.weights_hash(apprentice)
    history = arl.train_rl(copy.deepcopy(apprentice), train_tasks, tok, run.config, 3)
    for name in ("reward", "entropy", "n_episodes", "zero_adv_frac"):
        expected = [arl.five_digits(record.get(name)) for record in history]
        assert result["history"][name] == expected
    assert set(result["history"]) <= set(arl.SERIES)
    assert "kl_ref" not in result["history"]
    assert [x is None for x in result["history"]["eval_pass"]] == [False, True, False]
    assert result["train"]["turns"] > 0 and result["heldout"]["turns"] > 0


# ---- The hash of the code


def hash_with(monkeypatch, module, old, new):
    """The hash of `train_run` if a text in a module were another one."""
    source = sweeps._IMPORTED[module]
    assert old in source
    with monkeypatch.context() as edit:
        edit.setitem(sweeps._IMPORTED, module, source.replace(old, new, 1))
        return arl.code_hash(arl.train_run)


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("training_loop", "at least 2: a lone", "at least 3: a lone"),
        ("gym", "'no change'", "'none'"),
        ("grpo", "lr: float = ", "lr: float = 2 * "),
        ("policy_gradient", " - ", " + "),
        ("sweeps", "samples: int = 32", "samples: int = 33"),
    ],
)
def test_the_hash_changes_with_what_a_trainer_reaches(monkeypatch, module, old, new):
    assert hash_with(monkeypatch, module, old, new) != arl.code_hash(arl.train_run)


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("training_loop", "\n\n\n", "\n\n# a comment\n\n"),
        ("gym", '"""', '"""Another docstring. '),
        ("ablations", "'default'", "'other'"),  # it is above: not imported
    ],
)
def test_the_hash_does_not_change_with_the_rest(monkeypatch, module, old, new):
    assert hash_with(monkeypatch, module, old, new) == arl.code_hash(arl.train_run)


def test_each_module_of_the_package_that_is_imported_is_followed():
    """Only `from agentrl.x import y` is followed; no module imports in another way."""
    for name, source in sweeps._IMPORTED.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                assert all(a.name.split(".")[0] != "agentrl" for a in node.names), name
            elif isinstance(node, ast.ImportFrom) and name != "__init__":
                assert node.level == 0 and node.module != "agentrl", name


def test_what_is_empty_in_a_parsed_source_does_not_count():
    """Pythons differ in which empty fields a node has; None and 0 are no absence."""
    first, second = (ast.parse("def f(x):\n    return x") for _ in range(2))
    first.body[0].type_params = []
    assert sweeps._plain(first) == sweeps._plain(second)
    digests = {sweeps._parsed(f"x = {value}")[0] for value in ("None", "0", "''", "[]")}
    assert len(digests) == 4


def captured(value):
    return lambda run: {"value": value}


class Trainer:
    def __call__(self, run):
        return {}

    def method(self, run):
        return {}


def wrapped():
    @functools.wraps(arl.train_run)
    def train_run(run):
        return {}

    return train_run


@pytest.mark.parametrize(
    "train",
    [
        captured(1),
        captured,
        Trainer,
        Trainer(),
        Trainer().method,
        functools.partial(arl.train_run),
        wrapped(),
        types.FunctionType(arl.train_run.__code__, {}, "train_run"),
        len,
    ],
    ids=lambda train: type(train).__name__,
)
def test_a_function_that_no_hash_can_know_needs_a_key(train, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path))
    with pytest.raises(ValueError, match="train is .*: a function of agentrl.*key"):
        arl.sweep(arl.arm_runs({"a": {}}, [0]), train=train, mapper=map)
    assert not [*tmp_path.iterdir()]
    assert len(arl.code_hash(train, "a key")) == 64


def test_a_key_and_the_code_of_the_package_make_the_hash(monkeypatch):
    one, two = (arl.code_hash(captured(1), key) for key in ("one", "two"))
    assert one != two
    monkeypatch.setitem(sweeps._IMPORTED, "ablations", "changed = True")
    assert arl.code_hash(captured(1), "one") != one


def test_the_hash_works_in_a_thread_while_modules_are_imported():
    """No iteration over `sys.modules`, which another thread may change."""
    found = []

    class Modules(dict):
        def __iter__(self):
            raise RuntimeError("dictionary changed size during iteration")

        items = keys = values = __iter__

    monkey, sys.modules = sys.modules, Modules(sys.modules)
    try:
        thread = threading.Thread(
            target=lambda: found.append((arl.code_hash(arl.train_run),
                                         sweeps._sources(), arl.check_unchanged()))
        )  # fmt: skip
        thread.start()
        thread.join()
    finally:
        sys.modules = monkey
    assert len(found) == 1


def test_without_source_a_hash_is_refused_and_nothing_else(monkeypatch):
    monkeypatch.setattr(sweeps, "_IMPORTED", {})
    for key in (None, "a key"):
        with pytest.raises(RuntimeError, match="no source of agentrl.sweeps here"):
            arl.code_hash(arl.train_run, key)


def test_the_package_imports_from_bytecode_alone(tmp_path):
    shutil.copytree(ROOT / "agentrl", tmp_path / "agentrl")
    compileall.compile_dir(tmp_path / "agentrl", quiet=1, legacy=True)
    for path in (tmp_path / "agentrl").glob("*.py"):
        path.unlink()
    script = (
        "import agentrl\n"
        "assert agentrl.__file__.endswith('.pyc'), agentrl.__file__\n"
        "agentrl.check_unchanged()\n"
        "try: agentrl.code_hash(agentrl.train_run)\n"
        "except RuntimeError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "no source of agentrl.sweeps here" in done.stdout
