"""The store: whole files or none, sealed, and a disk that fails costs no result."""

import errno
import os
import threading
import warnings
from pathlib import Path

import pytest
import torch

import agentrl as arl
from agentrl import store


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache in a folder with a blank and letters outside of ASCII."""
    folder = tmp_path / "a b ü'é"
    monkeypatch.setenv("AGENTRL_CACHE", str(folder))
    return folder


@pytest.fixture(autouse=True)
def fresh_memory(monkeypatch):
    monkeypatch.setattr(store, "_UNWRITTEN", {})


class Maker:
    """Makes a small state dict, and counts how often it was asked."""

    def __init__(self):
        self.asked = 0

    def __call__(self):
        self.asked += 1
        return {"w": torch.arange(3.0), "b": torch.tensor([1, 2])}

    def check(self, state):
        expected = self()
        self.asked -= 1
        assert state.keys() == expected.keys()
        for name, tensor in expected.items():
            assert torch.equal(state[name], tensor)
            assert state[name].dtype == tensor.dtype


# ---- Where


def test_the_folder_is_the_named_one_or_the_users(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path / "a"))
    assert arl.cache_dir() == tmp_path / "a"
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("AGENTRL_CACHE", "~/x")
    assert arl.cache_dir() == tmp_path / "x"
    for empty in (lambda: monkeypatch.setenv("AGENTRL_CACHE", ""),
                  lambda: monkeypatch.delenv("AGENTRL_CACHE")):  # fmt: skip
        empty()
        assert arl.cache_dir() == Path(
            store.platformdirs.user_cache_dir("agentrl", False)
        )


# ---- Sealed files


def test_what_was_written_is_read_whole_or_not_at_all(cache):
    arl.write_sealed("runs/x", "question", b"answer")
    assert arl.read_sealed("runs/x", "question") == b"answer"
    assert arl.read_sealed("runs/x", "another question") is None
    assert arl.read_sealed("runs/y", "question") is None
    data = (cache / "runs" / "x").read_bytes()
    for damaged in (
        b"",
        b"{}",
        data[:40],
        data[:-1],
        data + b" ",
        data[:70][::-1],
        bytes([data[0] ^ 1]) + data[1:],
        data[:-1] + bytes([data[-1] ^ 1]),
    ):
        (cache / "runs" / "x").write_bytes(damaged)
        assert arl.read_sealed("runs/x", "question") is None, damaged
    assert [path.name for path in (cache / "runs").iterdir()] == ["x"]


def test_a_write_that_is_interrupted_leaves_the_old_file(cache, monkeypatch):
    arl.write_sealed("x", "question", b"old")

    def interrupted(old, new):
        raise KeyboardInterrupt

    monkeypatch.setattr(store.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        arl.write_sealed("x", "question", b"new")
    assert arl.read_sealed("x", "question") == b"old"
    assert [path.name for path in cache.iterdir()] == ["x"]


def no_space(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_costs_no_result_and_leaves_no_orphan(cache, monkeypatch):
    arl.write_sealed("x", "question", b"old")
    with monkeypatch.context() as full:
        full.setattr(store.os, "replace", no_space)
        with pytest.warns(UserWarning, match="written .No space left") as said:
            arl.write_sealed("x", "question", b"new")
        assert len(said) == 1 and str(cache) in str(said[0].message)
        assert arl.read_sealed("x", "question") == b"new"
        assert [path.name for path in cache.iterdir()] == ["x"]
    arl.write_sealed("x", "question", b"newer")  # there is space again
    assert arl.read_sealed("x", "question") == b"newer"
    assert store._UNWRITTEN == {}


def test_a_cache_that_cannot_be_made_keeps_in_memory(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path / "file"))
    make = Maker()
    with pytest.warns(UserWarning, match="cannot be written") as said:
        make.check(arl.kept_weights("base", "agent", make))
        make.check(arl.kept_weights("base", "agent", make))
    assert make.asked == 1 and len(said) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# ---- Weights


def test_weights_are_made_once_and_again_when_the_file_does_not_fit(cache):
    make = Maker()
    for _ in range(2):
        make.check(arl.kept_weights("base", "agent 1", make))
    assert make.asked == 1
    make.check(arl.kept_weights("base", "agent 2", make))
    assert make.asked == 2
    data = (cache / "base").read_bytes()
    for damaged in (b"", data[:100], data[:-1] + b"?"):
        (cache / "base").write_bytes(damaged)
        make.asked = 0
        for _ in range(2):
            make.check(arl.kept_weights("base", "agent 2", make))
        assert make.asked == 1


def deny_writing(monkeypatch):
    """What a user meets who may only read: no lock, no new file."""

    def denied(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(store.FileLock, "acquire", denied)
    monkeypatch.setattr(store.os, "replace", denied)


def test_where_no_lock_can_be_made_what_is_there_is_read(cache, monkeypatch):
    make = Maker()
    arl.kept_weights("base", "agent", make)

    deny_writing(monkeypatch)
    with warnings.catch_warnings(action="error"):
        make.check(arl.kept_weights("base", "agent", make))
    assert make.asked == 1
    with pytest.warns(UserWarning, match="Permission denied"):
        make.check(arl.kept_weights("other", "agent", make))
    make.check(arl.kept_weights("other", "agent", make))
    assert make.asked == 2


def test_who_comes_second_waits_for_the_first(cache, monkeypatch):
    making, waiting, make, found = threading.Event(), threading.Event(), Maker(), []

    class Lock(store.FileLock):
        def acquire(self, *args, **kwargs):
            if making.is_set():
                waiting.set()
            return super().acquire(*args, **kwargs)

    def slow():
        making.set()
        assert waiting.wait(60)
        return make()

    monkeypatch.setattr(store, "FileLock", Lock)
    ask = [
        threading.Thread(
            target=lambda f=f: found.append(arl.kept_weights("base", "agent", f))
        )
        for f in (slow, make)
    ]
    ask[0].start()
    assert making.wait(60)
    ask[1].start()
    for thread in ask:
        thread.join()
    assert make.asked == 1 and len(found) == 2
    for state in found:
        make.check(state)


def test_a_user_who_may_only_read(cache, monkeypatch):
    """What is there is read, the rest is kept in memory."""
    make = Maker()
    arl.kept_weights("there", "agent", make)
    (cache / "there.lock").unlink(missing_ok=True)
    cache.chmod(0o555)
    if os.access(cache, os.W_OK):  # root may write anywhere
        deny_writing(monkeypatch)
    try:
        with pytest.warns(UserWarning, match="cannot be written") as said:
            for name in ("there", "missing", "missing"):
                make.check(arl.kept_weights(name, "agent", make))
    finally:
        cache.chmod(0o755)
    assert make.asked == 2 and len(said) == 1
