"""What the tests of the exercises share: what readers have, and kinds of number."""

import functools
import os
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from house import ROOT, read_notebook

import agentrl as arl


def tags(cell):
    return cell["metadata"].get("tags", [])


def source(cell):
    return "".join(cell["source"])


def cell_of(name, cell_id):
    (cell,) = (c for c in read_notebook(name)["cells"] if c["id"] == cell_id)
    return cell


@functools.cache
def lesson(number):
    """What a reader has in hand before the solution: the names of the notebook."""
    namespace = {"__name__": f"exercises_{number}"}
    here = os.getcwd()
    os.chdir(ROOT / "notebooks")
    try:
        for cell in read_notebook(f"exercises_{number}")["cells"]:
            if cell["cell_type"] == "code" and "solution" not in tags(cell):
                exec(source(cell), namespace)
    finally:
        os.chdir(here)
    return namespace


def ask(number, *answer):
    return lesson(number)["answer_check"](*answer)


def cases(mistakes):
    """Typical mistakes as parameters of a test: what it is, answer, kind, reason."""
    assert len([kind for _, _, kind, _ in mistakes if kind == "wrong"]) >= 3
    return [
        pytest.param(answer, kind, why, id=what) for what, answer, kind, why in mistakes
    ]


def judged(number, answer, kind, why=""):
    """The verdict on `answer()` is of that kind and gives that reason."""
    told = ask(number, *answer())
    assert (told.kind, why in told.why) == (kind, True), told


NUMBERS = {
    "a tensor": torch.tensor,
    "a tensor of one": lambda x: torch.tensor([x]),
    "a double": lambda x: torch.tensor(x, dtype=torch.double),
    "a NumPy scalar": lambda x: np.array(x)[()],
    "a NumPy single": np.float32,
    "an array": np.array,
    "a fraction": Fraction,
    "a decimal": Decimal,
}


def in_numbers(answer, make):
    """The answer with each of its numbers of another kind."""
    if isinstance(answer, dict):
        return {key: in_numbers(value, make) for key, value in answer.items()}
    if isinstance(answer, tuple):
        return tuple(in_numbers(value, make) for value in answer)
    if isinstance(answer, bool) or answer == float("inf"):
        return np.array(answer)[()]
    return make(answer) if isinstance(answer, int | float) else answer


def masked(table, mask):
    return (table * mask).sum() / mask.sum()


def ratios(logp, old, mask):
    return arl.log_ratio(logp, old, mask).exp()
