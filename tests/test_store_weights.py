"""Weights on disk: what is damaged or foreign is made again, never trusted."""

import io
import os
import pickle
import random
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from agentrl import store

STATE = {"embed.weight": torch.arange(12.0).view(3, 4), "norm.bias": torch.ones(3)}


class Maker:
    """Makes a state of this value, and counts how often."""

    def __init__(self, value=0.0):
        self.value, self.count = value, 0

    def __call__(self):
        self.count += 1
        return {name: tensor + self.value for name, tensor in STATE.items()}


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A cache of its own, that does not exist yet."""
    path = tmp_path / "new" / "cache"
    monkeypatch.setenv("AGENTRL_CACHE", str(path))
    return path


def kept(make, fingerprint="0" * 64, name="base.weights"):
    return store.kept_weights(name, fingerprint, make)


def assert_state(state, value=0.0):
    assert list(state) == list(STATE)
    for name, tensor in STATE.items():
        assert torch.equal(state[name], tensor + value)


def files(folder):
    return [path for path in folder.iterdir() if path.suffix != ".lock"]


def test_a_state_is_made_once(folder):
    make = Maker()
    for _ in range(3):
        state = kept(make)
        assert_state(state)
        state["norm.bias"].zero_()  # one's weights are not the other's
    assert make.count == 1
    assert [path.name for path in files(folder)] == ["base.weights"]


class Trap:
    """What must never happen: unpickling it leaves a file behind."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def pickled(kind, trap):
    """The trap in a file of this kind."""
    file = io.BytesIO()
    if kind == "pickle":
        pickle.dump(trap, file)
    elif kind == "torch.save":
        torch.save({"weights": trap}, file)
    elif kind == "npy":
        np.save(file, np.array([trap], dtype=object), allow_pickle=True)
    else:
        np.savez(file, fingerprint=np.array([trap], dtype=object))
    return file.getvalue()


def spoilt(kind, data):
    """The bytes of a good file, damaged."""
    middle = len(data) // 2
    flipped = bytes([data[middle] ^ 1])
    return {
        "empty": b"",
        "text": b"not a model",
        "cut in half": data[:middle],
        "cut at the end": data[:-1],
        "longer": data + b"\0",
        "one bit in the weights": data[:middle] + flipped + data[middle + 1 :],
        "one bit at the front": bytes([data[0] ^ 1]) + data[1:],
    }[kind]


TRAPS = ["pickle", "torch.save", "npy", "npz"]
DAMAGES = [
    "empty",
    "text",
    "cut in half",
    "cut at the end",
    "longer",
    "one bit in the weights",
    "one bit at the front",
]


@pytest.mark.parametrize("kind", DAMAGES + TRAPS)
def test_a_file_that_is_not_ours_is_made_again(folder, tmp_path, kind):
    kept(Maker())
    (path,) = files(folder)
    data, make, sprung = path.read_bytes(), Maker(), tmp_path / "sprung"
    bad = pickled(kind, Trap(sprung)) if kind in TRAPS else spoilt(kind, data)
    path.write_bytes(bad)
    assert_state(kept(make))
    assert make.count == 1
    assert path.read_bytes() == data  # mended
    assert_state(kept(make))
    assert make.count == 1
    assert not sprung.exists()


def test_a_bit_anywhere_in_the_file_is_noticed(folder):
    kept(Maker())
    (path,) = files(folder)
    data, rng, make = path.read_bytes(), random.Random(0), Maker()
    for n in range(40):
        bad = bytearray(data)
        place = rng.randrange(len(data))
        bad[place] ^= 1 << rng.randrange(8)
        path.write_bytes(bad)
        assert_state(kept(make))
        assert make.count == n + 1, place


def test_the_file_of_another_fingerprint_is_foreign(folder):
    kept(Maker(1.0), "1" * 64, "other.weights")
    (other,) = files(folder)
    other.rename(folder / "base.weights")
    make = Maker()
    assert_state(kept(make))
    assert make.count == 1


BUILDER = textwrap.dedent(
    """
    import sys
    import filelock, torch
    from agentrl.store import kept_weights

    acquire = filelock.FileLock.acquire

    def told(self, *args, **options):
        print("locking", flush=True)
        return acquire(self, *args, **options)

    filelock.FileLock.acquire = told
    sys.stdin.readline()

    def make():
        print("making", flush=True)
        sys.stdin.readline()
        return {"weights": torch.full((3,), 0.25)}

    print(kept_weights("a.weights", "0" * 64, make)["weights"].tolist(), flush=True)
    """
)


def test_two_processes_at_once_make_one_file(tmp_path, folder):
    """The second comes while the first is at it, waits, and finds the file."""
    script = tmp_path / "build.py"
    script.write_text(BUILDER)
    started = []

    def start():
        child = subprocess.Popen(
            [sys.executable, script],
            env={**os.environ, "AGENTRL_CACHE": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(child)
        return child

    try:
        first, second = start(), start()
        first.stdin.write("go\n")
        first.stdin.flush()
        assert first.stdout.readline() == "locking\n"
        assert first.stdout.readline() == "making\n"
        second.stdin.write("go\n")
        second.stdin.flush()
        assert second.stdout.readline() == "locking\n"
        assert first.communicate("made\n")[0] == "[0.25, 0.25, 0.25]\n"
        assert second.communicate()[0] == "[0.25, 0.25, 0.25]\n"
        assert [child.returncode for child in started] == [0, 0]
    finally:
        for child in started:
            child.kill()
