"""Studies: runs as data, results on disk, sweeps that resume, paired differences."""

import copy
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import agentrl as arl
from agentrl import ablations

# ---- A run as data


def test_the_settings_of_a_run_are_those_of_its_config():
    run = arl.Run("x", 3, {"clip_high": 0.28})
    assert run.config == arl.RLConfig(clip_high=0.28, seed=3)
    assert (run.steps, run.base, run.base_seed, run.samples) == (40, "RL base", 0, 32)


@pytest.mark.parametrize(
    ("changes", "settings", "words"),
    [
        (
            {"clip_hihg": 0.3},
            {},
            "a field of the arm 'x' is 'clip_hihg'; .*'clip_high'",
        ),
        ({"seed": 1}, {}, "a field of the arm 'x' is 'seed'"),
        ({"reward": len}, {}, "reward of the arm 'x' is .*'hidden' or 'public'"),
        ({"clip_high": -1}, {}, "clip_high is -1"),
        ({"group_size": 1}, {}, "group_size is 1; .*at least 2"),
        ({"prompts_per_step": 21}, {}, "prompts_per_step is 21; .*20"),
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
    for seeds in ((), (1, 1)):
        with pytest.raises(ValueError, match="seeds is .*different"):
            arl.arm_runs({"a": {}}, seeds)
    for arms in ({}, ["a"], None):
        with pytest.raises(ValueError, match="arms is .*a dict of arms"):
            arl.arm_runs(arms, (0,))
    with pytest.raises(TypeError, match="the arm 'a' is None; .*a dict"):
        arl.arm_runs({"a": None}, (0,))
    assert len(arl.arm_runs({"a": {}}, (seed for seed in (3, 4)))) == 2


def test_the_default_arm_changes_nothing_and_the_others_one_field():
    assert [len(changes) for changes in arl.ARMS.values()] == [0, 1, 1, 1, 1]
    default = arl.RLConfig()
    for changes in arl.ARMS.values():
        for name, value in changes.items():
            assert getattr(default, name) != value


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
    assert arl.short(0.123456789) == 0.12346
    assert arl.short(61 / 64) == 0.95312
    assert arl.short(200) == 200 and arl.short(None) is None
    counts = [k / 64 for k in range(400)]
    assert [round(arl.short(x) * 64) for x in counts] == list(range(400))


def test_a_policy_is_measured_as_evaluate_and_read_then_edit_do(apprentice, tok):
    cfg, tasks = arl.RLConfig(seed=4), arl.make_tasks("heldout")
    found = arl.measure(apprentice, tasks, tok, cfg, 3)
    expected = arl.evaluate(apprentice, tasks, tok, 3, cfg=cfg)
    assert {name: found[name] for name in expected} == {
        name: arl.short(value) for name, value in expected.items()
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
        ablations.BASES, "RL base", lambda tok, seed: copy.deepcopy(apprentice)
    )
    run = arl.Run("tiny", 2, TINY, steps=3, samples=1)
    result = arl.train_run(run)
    assert json.loads(json.dumps(result)) == result
    assert arl.Run(**{k: result[k] for k in run.__dict__}) == run
    assert result["weights"] == arl.weights_hash(apprentice)
    history = arl.train_rl(copy.deepcopy(apprentice), train_tasks, tok, run.config, 3)
    for name in ("reward", "entropy", "n_episodes", "zero_adv_frac"):
        expected = [arl.short(record.get(name)) for record in history]
        assert result["history"][name] == expected
    assert set(result["history"]) <= set(arl.SERIES)
    assert "kl_ref" not in result["history"]
    assert [x is None for x in result["history"]["eval_pass"]] == [False, True, False]
    assert result["train"]["turns"] > 0 and result["heldout"]["turns"] > 0


# ---- The hash of the code

ROOM = """
from agentrl.demo_b import helper, unused

FACTOR = 3
OTHER = 4


def scale(x):
    return FACTOR * x


def run(x):
    '''What it does.'''
    return helper(scale(x))  # a comment


def not_reached():
    return OTHER
"""
SECOND = """
class Tool:
    '''A tool.'''

    size = 2

    def use(self, x):
        return x + self.size


def helper(x):
    return Tool().use(x)


def unused(x):
    return x
"""


@pytest.fixture
def demo_hash(tmp_path, monkeypatch):
    """The hash of `run` in two modules, with texts replaced in them."""
    count = iter(range(1000))

    def load(name, text):
        # A new path each time: inspect keeps the lines of files.
        path = tmp_path / f"{name}_{next(count)}.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(f"agentrl.{name}", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, f"agentrl.{name}", module)
        spec.loader.exec_module(module)
        return module

    def hashed(old="", new=""):
        assert old in ROOM + SECOND
        load("demo_b", SECOND.replace(old, new))
        return arl.code_hash(load("demo_a", ROOM.replace(old, new)).run)

    return hashed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FACTOR = 3", "FACTOR = 5"),
        ("FACTOR * x", "FACTOR + x"),
        ("helper(scale(x))", "helper(x)"),
        ("size = 2", "size = 1"),
        ("x + self.size", "x - self.size"),
        ("def run(x):", "def run(x, y=1):"),
        ("def scale(x):", "@(lambda f: f)\ndef scale(x):"),
        ("class Tool:", "class Tool(dict):"),
    ],
)
def test_the_hash_changes_with_what_a_function_reaches(demo_hash, old, new):
    assert demo_hash(old, new) != demo_hash()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  # a comment", ""),
        ("'''What it does.'''", "'''Another text,\n    on two lines.'''"),
        ("    '''A tool.'''\n", ""),
        ("OTHER = 4", "OTHER = 5"),
        ("return OTHER", "return -OTHER"),
        ("def unused(x):\n    return x", "def unused(x):\n    return 0"),
    ],
)
def test_the_hash_does_not_change_with_the_rest(demo_hash, old, new):
    assert demo_hash(old, new) == demo_hash()


def test_the_hash_of_a_study_reaches_into_the_loop_and_the_gym(monkeypatch):
    seen = set()
    whole = ablations._definitions

    def definitions(module):
        seen.add(module)
        return whole(module)

    monkeypatch.setattr(ablations, "_definitions", definitions)
    assert len(arl.code_hash(arl.train_run)) == 64
    rooms = "gym agent training_loop variants shortcuts grpo policy_gradient"
    assert seen >= {f"agentrl.{room}" for room in rooms.split()}


# ---- Sweeps


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """The runs that were trained, by a quick stand-in; an empty cache."""
    runs = []

    def quick(run):
        if run.fields.get("lr") == 666:
            raise RuntimeError("diverged")
        runs.append((run.arm, run.seed))
        return {**run.__dict__, "weights": "w", "value": run.seed + len(run.fields)}

    monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path))
    monkeypatch.setattr(ablations, "train_run", quick)
    monkeypatch.setattr(ablations, "code_hash", lambda function: "code 1")
    monkeypatch.setattr(ablations, "weights_hash", lambda model: "w")
    monkeypatch.setattr(ablations, "BASES", {"RL base": lambda tok, seed: None})
    return runs


ARMS = {"a": {}, "b": {"lr": 1e-4}}


def test_a_second_sweep_trains_nothing_and_gives_the_same(trained):
    runs = arl.arm_runs(ARMS, range(3))
    first = arl.sweep(runs, jobs=1)
    assert len(trained) == 6
    assert [(r["arm"], r["seed"]) for r in first] == [(r.arm, r.seed) for r in runs]
    assert arl.sweep(runs, jobs=1) == first
    assert len(trained) == 6


def test_only_what_changed_is_trained_again(trained, monkeypatch):
    arl.sweep(arl.arm_runs(ARMS, range(2)), jobs=1)
    del trained[:]
    arl.sweep(arl.arm_runs({**ARMS, "b": {"lr": 2e-4}}, range(2)), jobs=1)
    assert trained == [("b", 0), ("b", 1)]
    del trained[:]
    for settings in ({"steps": 41}, {"samples": 31}, {"base_seed": 1}):
        arl.sweep(arl.arm_runs({"a": {}}, [0], **settings), jobs=1)
    assert len(trained) == 3
    monkeypatch.setattr(ablations, "code_hash", lambda function: "code 2")
    arl.sweep(arl.arm_runs(ARMS, range(2)), jobs=1)
    assert len(trained) == 3 + 4
    monkeypatch.setattr(ablations, "machine", lambda: {"torch": "3"})
    arl.sweep(arl.arm_runs(ARMS, range(2)), jobs=1)
    assert len(trained) == 3 + 8


def test_equal_settings_are_one_run_under_two_names(trained):
    arms = {"a": {}, "same": {"clip_low": 0.2}}
    results = arl.sweep(arl.arm_runs(arms, [0]), jobs=1)
    assert len(trained) == 1
    assert [r["arm"] for r in results] == ["a", "same"]


@pytest.mark.parametrize("damage", ["", '{"arm": "a", "se', "\x00"])
def test_a_file_that_cannot_be_read_is_made_again(trained, tmp_path, damage):
    runs = arl.arm_runs({"a": {}}, [0])
    first = arl.sweep(runs, jobs=1)
    (path,) = (tmp_path / "runs").glob("*.json")
    path.write_text(damage)
    assert arl.sweep(runs, jobs=1) == first and len(trained) == 2


def test_a_run_that_fails_stops_none_of_the_others(trained):
    runs = arl.arm_runs({"bad": {"lr": 666}, "a": {}, "b": {"lr": 1e-4}}, [0, 1])
    words = (
        "2 of 6 runs failed; the others are kept: bad, seed 0: .*diverged; bad, seed 1"
    )
    with pytest.raises(RuntimeError, match=words):
        arl.sweep(runs, jobs=1)
    assert sorted(trained) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    arl.sweep([run for run in runs if run.arm != "bad"], jobs=1)
    assert len(trained) == 4


@pytest.mark.parametrize("jobs", [0, -2, "two", 1.5, None])
def test_an_impossible_number_of_processes_is_named(trained, jobs):
    with pytest.raises(ValueError, match="jobs is .*allowed: a number of processes"):
        arl.sweep(arl.arm_runs({"a": {}}, [0]), jobs=jobs)
    assert trained == []


def test_code_that_changed_on_disk_is_not_trained(trained, monkeypatch):
    first = arl.sweep(arl.arm_runs({"a": {}}, [0]), jobs=1)
    monkeypatch.setitem(ablations._SOURCES, "agentrl.grpo", "other code")
    with pytest.raises(RuntimeError, match="agentrl.grpo has changed on disk"):
        arl.sweep(arl.arm_runs(ARMS, [0]), jobs=1)
    assert trained == [("a", 0)]
    # What was trained before the change is still there.
    assert arl.sweep(arl.arm_runs({"a": {}}, [0]), jobs=1) == first


def test_what_another_function_trains_is_kept_apart(trained, monkeypatch):
    def other(run):
        return {**run.__dict__, "weights": "w", "value": "other"}

    monkeypatch.setattr(ablations, "code_hash", lambda function: function.__name__)
    runs = arl.arm_runs({"a": {}}, range(2))
    first = arl.sweep(runs, jobs=1)
    assert [r["value"] for r in arl.sweep(runs, 1, train=other)] == ["other"] * 2
    assert arl.sweep(runs, jobs=1) == first and len(trained) == 2


def test_the_hash_is_that_of_the_code_that_was_imported(monkeypatch):
    before = arl.code_hash(arl.train_run)
    source = ablations._SOURCES["agentrl.training_loop"]
    assert "max_sample_rounds" in source
    changed = source.replace("max_sample_rounds", "max_rounds")
    monkeypatch.setitem(ablations._SOURCES, "agentrl.training_loop", changed)
    assert arl.code_hash(arl.train_run) != before


def write_study(path, results, code="code 1"):
    path.write_text(json.dumps({"code": code, "results": results}))
    return path


def test_what_a_study_file_holds_is_not_trained(trained, tmp_path):
    runs = arl.arm_runs(ARMS, range(2))
    results = [{**run.__dict__, "weights": "w", "value": "recorded"} for run in runs]
    study = write_study(tmp_path / "study.json", results)
    assert arl.sweep(runs, 1, study) == results and trained == []
    more = arl.arm_runs({**ARMS, "c": {"lr": 3e-4}}, range(2))
    found = arl.sweep(more, 1, study)
    assert trained == [("c", 0), ("c", 1)]
    assert [r["value"] for r in found if r["arm"] != "c"] == ["recorded"] * 4


def test_a_study_of_other_code_or_of_another_base_is_not_used(trained, tmp_path):
    runs = arl.arm_runs(ARMS, range(2))
    results = [{**run.__dict__, "weights": "other"} for run in runs]
    old = write_study(tmp_path / "old.json", results, code="code 0")
    arl.sweep(runs, 1, old)
    assert len(trained) == 4
    # Whole, the study of another base counts: its pairs share that base.
    other = write_study(tmp_path / "other.json", results)
    assert arl.sweep(runs, 1, other) == results
    # In part it does not: all runs of a table must start from one base.
    arl.sweep(arl.arm_runs({**ARMS, "c": {"lr": 3e-4}}, range(2)), 1, other)
    assert len(trained) == 4 + 2  # those of a and b are on disk


# ---- A sweep that is killed

SCRIPT = textwrap.dedent(
    """
    import json, sys
    import agentrl as arl

    if __name__ == "__main__":
        fields = {"group_size": 2, "prompts_per_step": 2, "max_turns": 4}
        arms = {"default": fields, "no std": {**fields, "adv_mode": "mean"}}
        runs = arl.arm_runs(arms, range(3), steps=2, samples=1)
        print(json.dumps(arl.sweep(runs, jobs=2)))
    """
)


@pytest.fixture
def start_sweep(tmp_path, tok):
    """Start the script with a cache of its own that has the base agent in it."""
    arl.make_rl_base(tok)
    script = tmp_path / "sweep.py"
    script.write_text(SCRIPT, encoding="utf-8")

    def start(name):
        cache = tmp_path / name
        if not cache.exists():
            cache.mkdir()
            for path in arl.cache_dir().glob("base-*.weights"):
                shutil.copy(path, cache)
        env = {**os.environ, "AGENTRL_CACHE": str(cache), "TQDM_DISABLE": "1"}
        return cache / "runs", subprocess.Popen(
            [sys.executable, script],
            stdout=subprocess.PIPE,
            text=True,
            env=env,
            start_new_session=True,
        )

    return start


def kill(process):
    """End the sweep and its workers, as a crash would."""
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.communicate()


def test_a_killed_sweep_goes_on_where_it_stopped(start_sweep):
    _, process = start_sweep("undisturbed")
    expected, _ = process.communicate()
    assert process.returncode == 0 and len(json.loads(expected)) == 6

    moment = random.Random(os.getpid())  # any moment will do
    runs, process = start_sweep("killed")
    time.sleep(moment.uniform(0, 3))  # before there is a result
    kill(process)
    runs, process = start_sweep("killed")
    while not [*runs.glob("*.json")]:
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(moment.uniform(0, 0.3))
    kill(process)
    kept = {path: path.stat().st_mtime_ns for path in runs.glob("*.json")}
    assert 1 <= len(kept) < 6

    runs, process = start_sweep("killed")
    resumed, _ = process.communicate()
    assert process.returncode == 0
    assert resumed == expected
    assert len([*runs.glob("*.json")]) == 6
    assert kept == {path: path.stat().st_mtime_ns for path in kept}


# ---- Tables and intervals


def result(arm, seed, rewards, held=0.5, episodes=64, clip=(0.1,), length=12.0):
    n = len(rewards)
    history = {
        "reward": rewards,
        "length": [length] * n,
        "clip_frac": [*clip, *[None] * (n - len(clip))],
        "n_episodes": [episodes] * n,
        "zero_adv_frac": [0.5] * n,
    }
    return {
        "arm": arm,
        "seed": seed,
        "history": history,
        "heldout": {"pass_rate": held},
    }


def test_the_figures_of_a_run_by_hand():
    found = arl.summarise(result("a", 0, [0.0] * 10 + [1.0] * 5 + [0.5] * 5))
    assert found == {
        "late reward": 0.75,
        "held-out": 0.5,
        "length": 12.0,
        "clip_frac": pytest.approx(0.1),
        "episodes": 64.0,
    }


def test_figures_stand_in_the_order_of_seeds():
    results = [result(arm, seed, [0.5], held=seed / 10) for arm, seed in
               (("b", 2), ("a", 1), ("b", 0), ("a", 0))]  # fmt: skip
    table = arl.by_arm(results)
    assert [*table] == ["b", "a"]
    assert table["b"]["held-out"] == [0.0, 0.2]
    assert table["a"]["held-out"] == [0.0, 0.1]


def test_episodes_until_a_reward_by_hand():
    rising = result("a", 0, [0, 0.5, 0.7, 0.8, 0.9, 0.9, 0.9, 0.9], episodes=10)
    # The mean of steps 2 to 6 is 0.84; that of steps 1 to 5 is 0.76.
    assert arl.episodes_to(rising) == 70
    assert arl.episodes_to(rising, level=0.76 - 1e-9) == 60
    assert arl.episodes_to(rising, level=0.95) == float("inf")


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=12))
def test_an_interval_holds_its_mean_and_lies_within_the_values(values):
    mean, low, high = arl.interval(values)
    assert mean == pytest.approx(np.mean(values))
    if not np.isnan(low):  # values that differ in the last bits only
        assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9


def test_an_interval_of_equal_values_and_of_one():
    assert arl.interval([0.25] * 4) == (0.25, 0.25, 0.25)
    with pytest.raises(ValueError, match=r"values is \[1.0\]; .*at least 2"):
        arl.interval([1.0])


def test_an_interval_is_that_of_the_normal_theory_for_many_normal_values():
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    _, low, high = arl.interval(values)
    half = 1.96 * values.std(ddof=1) / 20
    assert low == pytest.approx(values.mean() - half, abs=0.03)
    assert high == pytest.approx(values.mean() + half, abs=0.03)


def test_what_the_seeds_cannot_tell_is_said_so(capsys):
    noise = [0.02, -0.02, 0.01, -0.01, 0.03, -0.03]
    results = []
    for seed, e in enumerate(noise):
        results += [
            result("default", seed, [0.5], held=0.4 + seed / 20),
            result("noise", seed, [0.5 + e], held=0.4 + seed / 20 + e),
            result("better", seed, [0.6 + e], held=0.3 + seed / 20 + e),
        ]
    arl.print_differences(results)
    first, *lines = capsys.readouterr().out.splitlines()
    assert "'default'" in first and "95%" in first
    words = {tuple(line.split()[:2]): line for line in lines}
    # Unpaired, the spread of the seeds would hide the loss in held-out pass.
    assert words["better", "held-out"].endswith(" less")
    assert words["better", "late"].endswith(" more")
    for name in ("late", "held-out", "length"):
        assert words["noise", name].endswith(arl.NOT_DISTINGUISHABLE)


def test_the_table_has_mean_and_range(capsys):
    arl.print_arms([result("a", s, [r], held=r) for s, r in enumerate((0.25, 0.75))])
    head, line = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "mean (range of seeds)"
    assert "0.50 (0.25-0.75)" in line and "64 (64-64)" in line


# ---- Figures


def some_results():
    return [
        result(arm, seed, [0.1 * seed, 0.2, 0.3, 0.4, 0.5, 0.6], episodes=n)
        for arm, n in (("default", 64), ("other", 64), ("dear", 128))
        for seed in (0, 1)
    ]


def test_learning_curves_show_mean_and_range():
    figure = plt.figure()
    arl.draw_curves(some_results(), figure)
    panels = [panel for panel in figure.axes if panel.lines]
    assert [[line.get_label() for line in panel.lines] for panel in panels] == [
        ["default", "other"],
        ["default", "dear"],
    ]
    assert panels[0].lines[0].get_ydata()[0] == pytest.approx(0.05)
    band = panels[0].collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (0.0, 0.6)
    plt.close(figure)


def test_the_cost_is_drawn_for_arms_that_cost_something_else():
    figure = plt.figure()
    arl.draw_cost(some_results(), figure)
    left, right = figure.axes
    assert [line.get_label() for line in right.lines] == ["default", "dear"]
    assert list(right.lines[1].get_xdata()) == [5 * 128, 6 * 128]
    assert right.lines[1].get_ydata()[0] == pytest.approx(0.29)
    assert len(left.lines[0].get_ydata()) == 6
    plt.close(figure)


def test_no_two_neighbouring_arms_share_a_line_style():
    styles = [*arl.arm_styles("abcdefg").values()]
    lines = [style["linestyle"] for style in styles]
    assert lines[0] == "-" and "-" not in lines[1:]
    assert len({style["color"] for style in styles}) == 7


def test_a_report_is_one_call(monkeypatch, capsys, tmp_path):
    asked = {}

    def sweep(runs, jobs, recorded):
        asked.update(runs=runs, jobs=jobs, recorded=recorded)
        return [result(run.arm, run.seed, [run.seed / 4] * 6) for run in runs]

    monkeypatch.setattr(ablations, "sweep", sweep)
    for arms, seeds, steps, words in (
        ({"default": {}}, (0, 1), 10, "arms is .*at least two"),
        ({"default": {}, "x": {"lr": 1e-4}}, (0,), 10, "seeds is .*at least two"),
        ({"default": {}, "x": {"lr": 1e-4}}, (0, 1), 9, "steps is 9; .*at least 10"),
    ):
        with pytest.raises(ValueError, match=words):
            arl.report(arms, seeds, steps)
    assert asked == {}
    arl.report({"default": {}, "x": {"lr": 1e-4}}, (0, 1), 10, tmp_path, jobs=2)
    assert (asked["jobs"], asked["recorded"]) == (2, tmp_path)
    assert [run.steps for run in asked["runs"]] == [10] * 4
    printed = capsys.readouterr().out
    assert "mean (range of seeds)" in printed and "same seed" in printed
    assert len(plt.gcf().axes) == 4
    plt.close("all")


# ---- In a notebook

CELLS = """
import json
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()


def cell(text, keep=False):
    assert shell.run_cell(text, store_history=keep).success


def hashed():
    cell("value = code_hash(run)")
    return shell.user_ns["value"]


cell("%config InteractiveShell.ast_node_interactivity = 'none'")  # no Python
cell("from agentrl.ablations import code_hash, short")
one = "def run(x):\\n    return helper(x) + FACTOR + short(1.0)"
old, new = "def helper(x):\\n    return x", "def helper(x):\\n    return -x"
cell("FACTOR = 3")
cell(one)
cell(old)
found = [hashed()]
cell(new)
found.append(hashed())
cell(old)  # back again, from a cell that ran before
found.append(hashed())
cell("# only a comment\\n" + old.replace("x):", "x):  # another"))
found.append(hashed())
cell("unused = 7")
found.append(hashed())
cell("from functools import cache\\n\\n\\n@cache\\n" + old)
found.append(hashed())
cell("@cache\\n" + new)
found.append(hashed())
cell("from functools import cache\\n\\n\\n@cache\\n" + old)
found.append(hashed())
cell("FACTOR = 2")  # in another way than above: which one counts?
result = shell.run_cell("code_hash(run)", store_history=False)
found.append(str(result.error_in_exec))
print(json.dumps(found))
"""


def test_a_function_that_is_edited_in_a_notebook_has_another_hash(tmp_path):
    script = tmp_path / "cells.py"
    script.write_text(CELLS, encoding="utf-8")
    env = {**os.environ, "IPYTHONDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, edited, back, comment, unused, a, b, c, error = json.loads(
        done.stdout.splitlines()[-1]
    )
    assert first != edited and first == back == comment == unused
    assert a == c != b and a not in (first, edited)
    assert "FACTOR was defined in two ways" in error


def test_a_bar_shows_the_progress_unless_it_is_switched_off(
    trained, monkeypatch, capsys
):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    arl.sweep(arl.arm_runs(ARMS, [0]), jobs=1)
    assert "2/2" in capsys.readouterr().err
    arl.sweep(arl.arm_runs(ARMS, [0]), jobs=1)  # nothing to do: no bar
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("TQDM_DISABLE", "1")
    arl.sweep(arl.arm_runs(ARMS, [1]), jobs=1)
    assert capsys.readouterr().err == "" and len(trained) == 4
