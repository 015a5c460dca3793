"""Sweeps: never the same run twice, never an old result, and what a failure costs."""

import errno
import json

import pytest

import agentrl as arl
from agentrl import store, sweeps

ARMS = {"a": {}, "b": {"lr": 1e-4}}


class Square:
    """A trainer that notes what it was asked, and whose answer is easy to check."""

    def __init__(self):
        self.asked = []

    def __call__(self, run):
        if run.fields.get("lr") == 666:
            raise RuntimeError("diverged")
        self.asked.append((run.fields.get("lr"), run.seed))
        return {"value": run.seed**2 + len(run.fields)}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TQDM_DISABLE", "1")
    monkeypatch.setattr(store, "_UNWRITTEN", {})
    return tmp_path / "cache"


@pytest.fixture
def train(cache):
    return Square()


def swept(runs, train, key="square", **settings):
    return arl.sweep(runs, train=train, key=key, **{"mapper": map, **settings})


def test_a_second_sweep_trains_nothing_and_gives_the_same(train):
    runs = arl.arm_runs(ARMS, range(3))
    first = swept(runs, train)
    assert len(train.asked) == 6
    for run, result in zip(runs, first, strict=True):
        assert result == {**run.__dict__, "value": run.seed**2 + len(run.fields)}
    assert swept(runs, train) == first
    assert swept(iter(runs), train) == first  # any iterable
    assert len(train.asked) == 6
    assert swept([], train) == []


def test_only_what_changed_is_trained_again(train, monkeypatch):
    def trained(arms=ARMS, seeds=(0, 1), key="square", **settings):
        del train.asked[:]
        swept(arl.arm_runs(arms, seeds, **settings), train, key)
        return train.asked

    assert len(trained()) == 4
    assert trained({**ARMS, "b": {"lr": 2e-4}}) == [(2e-4, 0), (2e-4, 1)]
    for settings in ({"steps": 41}, {"samples": 31}, {"base_seed": 1},
                     {"base": "base agent"}):  # fmt: skip
        assert len(trained({"a": {}}, [0], **settings)) == 1
    assert len(trained(key="another function")) == 4
    with monkeypatch.context() as other:
        other.setattr(sweeps, "this_machine", lambda: {"torch": "3"})
        assert len(trained()) == 4
    with monkeypatch.context() as other:
        other.setattr(sweeps, "check_unchanged", lambda: None)
        other.setitem(sweeps._IMPORTED, "grpo", "other = 'code'")
        assert len(trained()) == 4
    assert trained() == []


def test_equal_settings_are_one_run_under_two_names(cache):
    """A trainer sees what makes the result its own, no name and no other spelling."""
    seen = []
    arms = {"a": {}, "same": {"clip_low": 0.2}, "other": {"lr": 1e-4, "clip_low": 0.2}}
    results = swept(
        arl.arm_runs(arms, [0]), lambda run: seen.append(run) or {"arm": "mine"}
    )
    assert seen == [arl.Run("", 0, {}), arl.Run("", 0, {"lr": 1e-4})]
    assert [r["arm"] for r in results] == ["a", "same", "other"]
    assert [r["fields"] for r in results] == [*arms.values()]


def run_files(cache):
    return sorted((cache / "runs").glob("*.run"))


DAMAGES = [b"", b"{}", b"[]", b"\x00", b"null", -1, 70, "swap"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_does_not_fit_is_made_again(train, cache, damage):
    runs = arl.arm_runs({"a": {}}, [0, 1])
    first = swept(runs, train)
    path, other = run_files(cache)
    whole = path.read_bytes()
    if damage == "swap":  # a whole file, but that of another run
        path.write_bytes(other.read_bytes())
    else:
        path.write_bytes(damage if isinstance(damage, bytes) else whole[:damage])
    assert swept(runs, train) == first
    assert len(train.asked) == 3 and path.read_bytes() == whole


# ---- Failures


def test_a_run_that_fails_stops_none_of_the_others(train):
    runs = arl.arm_runs({"bad": {"lr": 666}, **ARMS}, [0, 1])
    words = (
        "2 of 6 runs failed; the others are kept: "
        "bad, seed 0: RuntimeError: diverged; bad, seed 1"
    )
    with pytest.raises(RuntimeError, match=words):
        swept(runs, train)
    assert len(train.asked) == 4
    swept([run for run in runs if run.arm != "bad"], train)
    assert len(train.asked) == 4


@pytest.mark.parametrize("result", [None, [1], 3.5, {"x": {1}}, {"x": len}])
def test_what_is_no_result_is_told_by_arm_and_seed(cache, result):
    with pytest.raises(RuntimeError, match="a, seed 0: TypeError: .*(a dict|JSON)"):
        swept(arl.arm_runs({"a": {}}, [0]), lambda run: result)
    assert run_files(cache) == []


def test_an_engine_that_stops_says_what_is_kept_and_how_to_go_on(train):
    def stops(function, items):
        yield from map(function, items[:2])
        raise MemoryError

    runs = arl.arm_runs(ARMS, range(2))
    words = r"engine stopped \(MemoryError\); 2 of 4 runs are kept, and the same call"
    with pytest.raises(RuntimeError, match=words):
        swept(runs, train, mapper=stops)
    assert len(swept(runs, train)) == 4 and len(train.asked) == 4


def test_an_engine_that_forgets_a_run_is_noticed(train):
    runs = arl.arm_runs(ARMS, [0])
    with pytest.raises(RuntimeError, match="1 of 2 .*b, seed 0: no answer"):
        swept(runs, train, mapper=lambda function, items: map(function, items[:1]))


def test_a_full_disk_ends_no_sweep(train, cache, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store.os, "replace", full)
    runs = arl.arm_runs(ARMS, range(2))
    with pytest.warns(UserWarning, match="No space left"):
        results = swept(runs, train)
    assert [r["value"] for r in results] == [0, 1, 1, 2]
    assert [*(cache / "runs").iterdir()] == []
    assert swept(runs, train) == results and len(train.asked) == 4


@pytest.mark.parametrize("name", ["code", "machine", "base agent"])
def test_an_answer_of_another_worker_is_refused_by_name(cache, monkeypatch, name):
    """A worker with other code, on another machine, or with another base agent."""
    monkeypatch.setattr(sweeps, "_first_weights", lambda run: "ours")

    def other(function, items):
        for settings, answer in map(function, items):
            if name in answer:
                answer[name] = "theirs"
            yield settings, answer

    def train(run):
        return {"weights": "theirs" if name == "base agent" else "ours"}

    runs = arl.arm_runs({"a": {}}, [0])
    with pytest.raises(RuntimeError, match=f"a, seed 0: {name} of the worker: theirs"):
        swept(runs, train, mapper=other)
    assert run_files(cache) == []
    assert swept(runs, lambda run: {"weights": "ours"})[0]["weights"] == "ours"


def test_the_weights_of_a_base_agent_are_those_of_its_settings(monkeypatch, apprentice):
    made = []
    monkeypatch.setattr(sweeps, "_WEIGHTS", {})
    bases = {"RL base": lambda tok, seed: made.append(seed) or apprentice}
    monkeypatch.setattr(sweeps, "BASES", bases)
    runs = arl.arm_runs(ARMS, range(2)) + arl.arm_runs(ARMS, [0], base_seed=7)
    expected = {arl.weights_hash(apprentice)}
    assert {sweeps._first_weights(run) for run in runs} == expected
    assert made == [0, 7]


# ---- What cannot be swept


@pytest.mark.parametrize("jobs", [0, -2, "two", 1.5, None, True])
def test_an_impossible_number_of_processes_is_named(train, jobs):
    with pytest.raises(ValueError, match="jobs is .*allowed: a number of processes"):
        swept(arl.arm_runs({"a": {}}, [0]), train, jobs=jobs, mapper=None)
    assert train.asked == []


RUN = arl.Run("a", 0, {})


@pytest.mark.parametrize(
    ("runs", "settings", "words"),
    [
        ("x", {}, "runs is .*a list of Run"),
        (RUN, {}, "runs is .*a list of Run"),
        (None, {}, "runs is .*a list of Run"),
        ([RUN, "x"], {}, "runs is .*a list of Run"),
        ({"a": {}}, {}, "runs is .*a list of Run"),
        ([RUN], {"train": "train_run"}, "train is 'train_run'"),
        ([RUN], {"key": ""}, "key is ''"),
        ([RUN], {"key": 3}, "key is 3"),
        ([RUN], {"train": None}, "key is 'square'; .*only with `train`"),
        ([RUN], {"mapper": "dask"}, "mapper is 'dask'"),
        ([RUN], {"jobs": 2}, "mapper is .*no `jobs`"),
        ([RUN], {"recorded": "missing.json"}, "recorded is 'missing.json'"),
        ([RUN], {"recorded": True}, "recorded is True"),
        ([RUN], {"recorded": "."}, "recorded is '.'"),
        ([RUN], {"recorded": __file__}, "recorded is .*a study, whole"),
    ],
)
def test_what_cannot_be_swept_is_refused_by_name(train, runs, settings, words):
    settings = {"train": train, "key": "square", "mapper": map, **settings}
    with pytest.raises((ValueError, TypeError, OSError), match=words):
        arl.sweep(runs, **settings)
    assert train.asked == []


def test_code_that_changed_on_disk_is_not_trained(train, monkeypatch):
    runs = arl.arm_runs({"a": {}}, [0])
    first = swept(runs, train)
    now = sweeps._sources()
    for other in ({**now, "grpo": ""}, {**now, "new": ""}):
        monkeypatch.setattr(sweeps, "_sources", lambda other=other: other)
        with pytest.raises(RuntimeError, match="agentrl was imported: (grpo|new);"):
            swept(arl.arm_runs(ARMS, [0]), train)
        # What was trained before the change is still there.
        assert swept(runs, train) == first
    assert len(train.asked) == 1


# ---- Studies


def write_study(path, runs, code, **more):
    results = [{**run.__dict__, "weights": "w", "value": "recorded"} for run in runs]
    study = {"code": code, "results": results, **more}
    path.write_text(json.dumps(study), encoding="utf-8")
    return path


def test_what_a_study_file_holds_is_not_trained(train, tmp_path, monkeypatch):
    monkeypatch.setattr(sweeps, "_first_weights", lambda run: "w")
    runs, code = arl.arm_runs(ARMS, range(2)), arl.code_hash(train, "square")
    study = write_study(tmp_path / "study.json", runs, code)
    found = swept(runs, train, recorded=study)
    assert [r["value"] for r in found] == ["recorded"] * 4 and train.asked == []
    more = arl.arm_runs({**ARMS, "c": {"lr": 3e-4}}, range(2))
    found = swept(more, train, recorded=str(study))
    assert train.asked == [(3e-4, 0), (3e-4, 1)]
    assert [r["value"] for r in found if r["arm"] != "c"] == ["recorded"] * 4


def test_a_study_of_other_code_or_of_another_base_is_not_used(
    train, tmp_path, monkeypatch
):
    monkeypatch.setattr(sweeps, "_first_weights", lambda run: "other")
    runs, code = arl.arm_runs(ARMS, range(2)), arl.code_hash(train, "square")
    old = write_study(tmp_path / "old.json", runs, "code 0")
    assert "recorded" not in {r["value"] for r in swept(runs, train, recorded=old)}
    assert len(train.asked) == 4
    # Whole, the study of another base counts: its pairs share that base.
    other = write_study(tmp_path / "other.json", runs, code)
    found = swept(runs, train, recorded=other)
    assert {r["value"] for r in found} == {"recorded"}
    # In part it does not: all runs of a table must start from one base.
    more = arl.arm_runs({**ARMS, "c": {"lr": 3e-4}}, range(2))
    found = swept(more, train, recorded=other)
    assert "recorded" not in {r["value"] for r in found}
    assert len(train.asked) == 4 + 2  # those of a and b are on disk


def test_a_study_is_read_arm_by_arm_in_the_order_of_seeds(tmp_path):
    runs = arl.arm_runs(ARMS, (2, 0, 1))
    found = arl.read_study(write_study(tmp_path / "study.json", runs, "code"))
    assert {arm: [r["seed"] for r in results] for arm, results in found.items()} == {
        "a": [0, 1, 2], "b": [0, 1, 2],
    }  # fmt: skip
    (tmp_path / "half.json").write_text('{"code": "x", "resu')
    for path in (tmp_path / "half.json", tmp_path / "none.json", 3):
        with pytest.raises((ValueError, OSError, TypeError), match="path is "):
            arl.read_study(path)


# ---- Progress


def test_a_bar_shows_the_progress_unless_it_is_switched_off(
    train, monkeypatch, capsys
):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    swept(arl.arm_runs(ARMS, [0]), train)
    assert "2/2" in capsys.readouterr().err
    swept(arl.arm_runs(ARMS, [0]), train)  # nothing to do: no bar
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("TQDM_DISABLE", "1")
    swept(arl.arm_runs(ARMS, [1]), train)
    assert capsys.readouterr().err == "" and len(train.asked) == 4
