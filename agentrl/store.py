# Generated from notebooks/99_3_store.ipynb by book/tangle.py; edit the notebook.
"""The store: what is kept on disk."""

# %% [imports]
import hashlib
import io
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import platformdirs
import torch
from filelock import FileLock


# %% [cache-dir]
def cache_dir():
    """Where base agents are kept: `AGENTRL_CACHE`, else the user's cache folder."""
    folder = os.environ.get('AGENTRL_CACHE') or platformdirs.user_cache_dir('agentrl')
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    return path


def digest(*parts):
    """SHA-256 of arrays, of bytes, and of anything JSON can hold."""
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            part = part.tobytes()
        sha.update(part if isinstance(part, bytes) else json.dumps(part).encode())
    return sha.hexdigest()


# %% [weights-file]
def read_weights(path, fingerprint):
    """The state of a cache file, or None where it is missing, corrupt or foreign."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    seal, body = data[:64], data[64:]
    if seal != digest(fingerprint, body).encode():
        return None
    with np.load(io.BytesIO(body), allow_pickle=False) as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


def write_weights(path, fingerprint, state):
    """Write beside the file, then rename: a reader sees the old file or the new one."""
    body = io.BytesIO()
    np.savez(body, **{name: tensor.numpy() for name, tensor in state.items()})
    body = body.getvalue()
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(digest(fingerprint, body).encode() + body)
    os.replace(file.name, path)


# %% [kept-weights]
def kept_weights(name, fingerprint, make):
    """The state dict kept under `name`, or made."""
    path = cache_dir() / name
    with FileLock(f'{path}.lock'):
        state = read_weights(path, fingerprint)
        if state is None:
            state = make()
            write_weights(path, fingerprint, state)
    return state


__all__ = [
    "cache_dir",
    "digest",
    "read_weights",
    "write_weights",
    "kept_weights",
]
