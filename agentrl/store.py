# Generated from notebooks/99_3_store.ipynb by book/tangle.py; edit the notebook.
"""The store: what is kept on disk."""

# %% [imports]
import hashlib
import io
import json
import os
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import platformdirs
import torch
from filelock import FileLock


# %% [cache-dir]
def cache_dir():
    """The folder of what is kept, as a `Path`: `AGENTRL_CACHE`, else the user's cache.

    `~` is expanded. The folder is made when something is written to it (workshop).
    """
    usual = platformdirs.user_cache_dir('agentrl', appauthor=False)
    return Path(os.path.expanduser(os.environ.get('AGENTRL_CACHE') or usual))


# %% [digest]
def digest(*parts):
    """SHA-256 of arrays, of bytes, and of anything JSON can hold (workshop)."""
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            part = part.tobytes()
        sha.update(part if isinstance(part, bytes) else json.dumps(part).encode())
    return sha.hexdigest()


# %% [read-sealed]
_UNWRITTEN = {}     # path -> what the disk did not take, while this process lasts


def read_sealed(name, fingerprint):
    """The bytes kept under a name, or None: missing, damaged or foreign (workshop)."""
    path = cache_dir() / name
    try:
        on_disk = path.read_bytes()
    except OSError:
        on_disk = b''
    for data in (_UNWRITTEN.get(path, b''), on_disk):
        if data[:64] == digest(fingerprint, data[64:]).encode():
            return data[64:]


# %% [write-sealed]
def write_sealed(name, fingerprint, body):
    """Keep bytes under a name: on disk, or in memory where that fails (workshop)."""
    path, data = cache_dir() / name, digest(fingerprint, body).encode() + body
    try:
        _write_whole(path, data)
        _UNWRITTEN.pop(path, None)
    except OSError as error:
        _UNWRITTEN[path] = data
        warnings.warn(f'{path.parent} cannot be written ({error.strerror}); what '
                      'belongs there is kept until this process ends', stacklevel=2)


def _write_whole(path, data):
    """Write beside the file, then rename; a failure leaves nothing behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = tempfile.NamedTemporaryFile(dir=path.parent, delete=False)
    try:
        with file:
            file.write(data)
        os.replace(file.name, path)
    except BaseException:
        os.unlink(file.name)
        raise


# %% [weights-file]
def _write_weights(name, fingerprint, state):
    """Keep a state dict as arrays."""
    body = io.BytesIO()
    np.savez(body, **{key: tensor.cpu().numpy() for key, tensor in state.items()})
    write_sealed(name, fingerprint, body.getvalue())


def _read_weights(name, fingerprint):
    """The state dict kept under a name, or None."""
    body = read_sealed(name, fingerprint)
    if body is not None:
        with np.load(io.BytesIO(body), allow_pickle=False) as file:
            return {key: torch.from_numpy(file[key]) for key in file.files}


# %% [lock]
@contextmanager
def _one_at_a_time(path):
    """Other processes wait for this one; nobody does where no lock can be made."""
    lock = FileLock(f'{path}.lock')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except (OSError, NotImplementedError):
        pass
    try:
        yield
    finally:
        lock.release()


# %% [kept-weights]
def kept_weights(name, fingerprint, make):
    """The state dict kept under a file name, else what `make()` returns (workshop).

    `fingerprint`, a text: all that shapes the weights. A file that was kept for another
    one is made again. A second process waits until the first has made it.
    """
    state = _read_weights(name, fingerprint)
    if state is None:
        with _one_at_a_time(cache_dir() / name):
            state = _read_weights(name, fingerprint)
            if state is None:
                state = make()
                _write_weights(name, fingerprint, state)
    return state


__all__ = [
    "cache_dir",
    "digest",
    "read_sealed",
    "write_sealed",
    "kept_weights",
]
