"""The studies: what stands in their files, and that a run can be made again."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from house import ROOT

import agentrl as arl


def load_studies():
    path = ROOT / "evidence" / "studies.py"
    spec = importlib.util.spec_from_file_location("studies", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


studies = load_studies()


def read(name):
    return json.loads((ROOT / "evidence" / f"{name}.json").read_text(encoding="utf-8"))


def run_of(result):
    kind = arl.ExerciseRun if "one_in" in result else arl.Run
    return kind(**{name: result[name] for name in kind.__dataclass_fields__})


def find(name, arm, seed):
    (result,) = (
        result
        for result in read(name)["results"]
        if (result["arm"], result["seed"]) == (arm, seed)
    )
    return result


# ---- What stands in the files


# A study that was defined and is still to be run has no file.
FILES = sorted(path.stem for path in (ROOT / "evidence").glob("*.json"))


def test_every_file_has_its_study():
    assert len(FILES) >= 10 and set(FILES) <= set(studies.STUDIES)


@pytest.mark.parametrize("name", FILES)
def test_the_code_is_the_code_that_made_the_study(name):
    train = studies.trainer(studies.STUDIES[name]())
    assert read(name)["code"] == arl.code_hash(train), (
        f"what shapes the runs of {name}.json has changed since they were made: "
        f"make evidence ARGS={name}"
    )


@pytest.mark.parametrize("name", studies.STUDIES)
def test_the_runs_of_a_study_can_be_and_are_different(name):
    runs = studies.STUDIES[name]()
    assert len({arl.run_key(run) for run in runs}) == len(runs) >= 10
    assert studies.STUDIES[name].__doc__.startswith(("Section", "Exercise"))


@pytest.mark.parametrize("name", FILES)
def test_a_study_holds_all_its_runs_and_says_what_made_them(name):
    study = read(name)
    expected = [arl.run_key(run) for run in studies.STUDIES[name]()]
    assert [arl.run_key(run_of(r)) for r in study["results"]] == expected
    exercises = ("oracle_share", "name_pools", "kl_penalties")
    assert len(study["seeds"]) >= (5 if name in exercises else 10)
    assert {r["seed"] for r in study["results"]} == set(study["seeds"])
    assert set(study["machine"]) == set(arl.this_machine())
    assert all(study["machine"].values())
    for result in study["results"]:
        assert len(result["weights"]) == 64
        assert all(len(s) == result["steps"] for s in result["history"].values())
        assert result["train"]["turns"] > 0 and result["heldout"]["turns"] > 0
    choices = ("base", "base_seed", "one_in", "demonstrations")
    bases = {tuple(map(r.get, choices)): r["weights"] for r in study["results"]}
    assert len(set(bases.values())) == len(bases)
    assert all(
        r["weights"] == bases[tuple(map(r.get, choices))] for r in study["results"]
    )


def test_a_study_is_asked_for_by_name(monkeypatch, tmp_path, capsys):
    asked = []

    def sweep(runs, jobs, train):
        asked.append((len(runs), jobs, train))
        return [{"arm": run.arm} for run in runs]

    monkeypatch.setattr(studies, "sweep", sweep)
    monkeypatch.setattr(studies, "HERE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["studies.py", "variants", "--jobs", "3"])
    studies.main()
    assert asked == [(50, 3, arl.train_run)]
    (path,) = tmp_path.iterdir()
    study = json.loads(path.read_text())
    assert path.name == "variants.json" and study["study"] == "variants"
    assert len(study["results"]) == 50 and "50 runs" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["studies.py", "variant"])
    with pytest.raises(SystemExit):
        studies.main()
    assert "variant" in capsys.readouterr().err


@pytest.mark.parametrize("jobs", ["0", "-2", "two", "1.5"])
def test_an_impossible_number_of_processes_is_one_clear_line(
    monkeypatch, capsys, jobs
):
    monkeypatch.setattr(sys, "argv", ["studies.py", "arms", "--jobs", jobs])
    with pytest.raises(SystemExit):
        studies.main()
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"argument --jobs: '{jobs}' is no number of processes" in last


# ---- A recorded run, made again

AGAIN = [
    ("five_runs", "GRPO, original gym", 0),
    ("arms", "dynamic sampling", 3),
    ("variants", "grpo", 5),
    ("variants", "gspo", 2),
    ("overlong", "filtering", 1),
]
COUNTS = ("reward", "reads", "tests", "edits", "first_edit_right", "turns", "length")
SHARES = ("n_episodes", "zero_adv_frac")
FLOATS = ("entropy", "clip_frac", "approx_kl", "ratio_min", "ratio_max", "kl_ref")
SCRIPT = """
import json, sys
import agentrl as arl

tok, tasks = arl.build_tokenizer(arl.make_tasks("all")), arl.make_tasks("train")
found = []
for settings in json.loads(sys.argv[1]):
    run = arl.Run(**settings)
    with arl.one_thread():
        model = run.first_policy(tok)
        before = arl.weights_hash(model)
        history = arl.train_rl(model, tasks, tok, run.config, run.steps)
    found.append([before, arl.weights_hash(model), history])
print(json.dumps(found))
"""
STEPS = 3


def train_again(results):
    """Some steps of recorded runs, in one process: weights before, after; history."""
    runs = [{**run_of(result).__dict__, "steps": STEPS} for result in results]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(runs)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_same(result, history):
    """Counts are equal, other statistics agree to 1e-3."""
    for step, record in enumerate(history):
        recorded = {k: v[step] for k, v in result["history"].items()}
        n = record["n_episodes"]
        for name in COUNTS:
            assert round(recorded[name] * n) == round(record[name] * n), (step, name)
        for name in SHARES:
            assert recorded[name] == pytest.approx(record[name], abs=1e-4)
        for name in FLOATS:
            if recorded.get(name) is not None:
                assert recorded[name] == pytest.approx(record[name], rel=1e-3, abs=1e-3)


def check_claims(result):
    """What the book claims of such a run, on a run made here."""
    history = result["history"]
    late = {k: sum(v[-10:]) / 10 for k, v in history.items() if None not in v}
    if result["arm"] == "GRPO, original gym":
        assert late["reward"] > 0.65 and late["reads"] < 0.05
    else:
        assert late["reward"] > 0.65 and late["reads"] > 0.9
    if result["arm"] == "gspo":
        assert 0.1 < sum(history["clip_frac"]) / len(history["clip_frac"]) < 0.5
    if result["arm"] == "dynamic sampling":
        assert 100 < sum(history["n_episodes"]) / len(history["n_episodes"]) <= 256


def check_again(results):
    """Steps again: what was recorded, or, on another kind of CPU, equal bits twice."""
    found, kinds = train_again(results), []
    for result, (before, after, history) in zip(results, found, strict=True):
        assert len(history) == STEPS and after != before
        if before == result["weights"]:
            check_same(result, history)
        kinds.append(before == result["weights"])
    if not all(kinds):
        assert train_again(results) == found
    return kinds


def test_recorded_runs_can_be_made_again():
    assert len(check_again([find(*which) for which in AGAIN])) == len(AGAIN)


def test_on_another_kind_of_cpu_equal_bits_are_asked_for():
    """A base agent with other weights stands for another kind of CPU."""
    other = {**find("arms", "default", 3), "weights": "0" * 64}
    assert check_again([other]) == [False]


def test_a_wrong_count_and_a_wrong_float_are_noticed():
    result = find("arms", "default", 0)
    steps = [{k: v[i] for k, v in result["history"].items()} for i in range(3)]
    check_same(result, steps)
    for name, change in (("reads", 1 / 64), ("entropy", 0.003), ("n_episodes", 64)):
        wrong = [dict(step) for step in steps]
        wrong[1][name] += change
        with pytest.raises(AssertionError):
            check_same(result, wrong)


@pytest.mark.parametrize(("name", "arm", "seed"), AGAIN)
def test_the_recorded_runs_keep_the_claims(name, arm, seed):
    check_claims(find(name, arm, seed))
