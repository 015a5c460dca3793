"""The engines of a sweep: equal results on each, and a worker that is killed."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

import agentrl as arl
from agentrl import store

RUNS = arl.arm_runs({"a": {}, "b": {"lr": 1e-4}}, range(3))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Start an empty cache, and tell the folder of its run files."""

    def start(name):
        monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path / name))
        return tmp_path / name / "runs"

    monkeypatch.setenv("TQDM_DISABLE", "1")
    monkeypatch.setattr(store, "_UNWRITTEN", {})
    return start


@pytest.fixture(scope="module")
def dask():
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield arl.on_dask(client)


@pytest.fixture(scope="module")
def ray():
    import ray

    # Limits on hanging only: a busy machine starts Ray's processes late.
    for name in ("gcs_server_port_wait_time_s", "raylet_start_wait_time_s"):
        os.environ[f"RAY_{name}"] = "600"
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
    )
    yield arl.on_ray()
    ray.shutdown()


def square():
    """A trainer without a module of its own, so that it travels by value."""

    def train(run):
        import os

        return {"value": run.seed**2 + len(run.fields), "process": os.getpid()}

    return train


def killed_once(folder, lonely=None):
    """A trainer whose process is killed at seed 2 of `a`, the first time.

    With `lonely`, a folder of run files: not before one of them is there.
    """

    def train(run):
        import os
        import signal
        import time

        with open(folder / f"{run.seed} {len(run.fields)}", "a") as file:
            file.write("x")
        first = os.path.getsize(folder / f"{run.seed} {len(run.fields)}") == 1
        if first and run.seed == 2 and not run.fields:
            while lonely and not any(lonely.glob("*.run")):
                time.sleep(0.01)  # two processes have no event in common
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        return {"value": run.seed**2 + len(run.fields)}

    return train


def values(results):
    return [result["value"] for result in results]


EXPECTED = [0, 1, 1, 2, 4, 5]


@pytest.mark.parametrize("engine", ["cores", "dask", "ray"])
def test_each_engine_gives_the_results_of_a_loop(cache, request, engine):
    mapper = arl.on_cores(2) if engine == "cores" else request.getfixturevalue(engine)
    here, there = cache("here"), cache("there")
    found = arl.sweep(RUNS, train=square(), key="square", mapper=mapper)
    assert values(found) == EXPECTED
    processes = {result.pop("process") for result in found}
    assert os.getpid() not in processes
    assert len([*there.glob("*.run")]) == 6  # written by this process
    cache("here")
    local = arl.sweep(RUNS, train=square(), key="square", mapper=map)
    assert {result.pop("process") for result in local} == {os.getpid()}
    assert found == local
    # The names say what shapes a result, not who computed it.
    assert {p.name for p in here.iterdir()} == {p.name for p in there.iterdir()}


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_a_cluster_replaces_a_worker_that_is_killed(cache, tmp_path, request, engine):
    mapper, runs = request.getfixturevalue(engine), cache("killed")
    train = killed_once(tmp_path)
    found = arl.sweep(RUNS, train=train, key="killed once", mapper=mapper)
    assert values(found) == EXPECTED
    assert (tmp_path / "2 0").read_text() == "xx"
    assert len([*runs.glob("*.run")]) == 6


def test_a_killed_worker_of_this_machine_costs_only_its_run(cache, tmp_path):
    runs = cache("killed")
    train = killed_once(tmp_path, lonely=runs)
    with pytest.raises(RuntimeError) as told:
        arl.sweep(RUNS, 2, train=train, key="killed once")
    kept = {path: path.stat().st_mtime_ns for path in runs.glob("*.run")}
    assert 1 <= len(kept) < 6
    words = f"TerminatedWorkerError); {len(kept)} of 6 runs are kept, and the same call"
    assert words in str(told.value)
    assert values(arl.sweep(RUNS, 2, train=train, key="killed once")) == EXPECTED
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    assert len([*runs.glob("*.run")]) == 6


def test_dask_workers_with_several_threads_are_refused():
    class Client:
        def nthreads(self):
            return {"tcp://one": 1, "tcp://two": 4}

    with pytest.raises(ValueError, match="threads of the workers is .*'tcp://two': 4"):
        arl.on_dask(Client())


SCRIPT = textwrap.dedent(
    """
    import json, os, signal, sys, time
    from pathlib import Path
    import agentrl as arl

    def train(run):
        import os, signal, time
        from pathlib import Path
        folder = Path(os.environ["AGENTRL_CACHE"])
        flag = folder / "killed"
        if run.seed == 2 and not flag.exists():
            flag.touch()
            while not any((folder / "runs").glob("*.run")):
                time.sleep(0.01)
            os.killpg(0, signal.SIGKILL)
        return {"value": run.seed ** 2}

    if __name__ == "__main__":
        runs = arl.arm_runs({"a": {}}, range(4))
        results = arl.sweep(runs, jobs=2, train=train, key="square")
        print(json.dumps([result["value"] for result in results]))
    """
)


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_a_killed_sweep_goes_on_where_it_stopped(cache, tmp_path):
    runs = cache("killed")
    runs.parent.mkdir()
    (tmp_path / "sweep.py").write_text(SCRIPT, encoding="utf-8")

    def launch():
        return subprocess.run(
            [sys.executable, tmp_path / "sweep.py"],
            capture_output=True,
            text=True,
            start_new_session=True,
        )

    assert launch().returncode == -signal.SIGKILL
    kept = {path: path.stat().st_mtime_ns for path in runs.glob("*.run")}
    assert 1 <= len(kept) < 4
    done = launch()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [0, 1, 4, 9]
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    assert len([*runs.glob("*.run")]) == 4
