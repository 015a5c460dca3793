"""Exercise 5: its check knows the typical mistakes, and right answers of any form."""

import math

import numpy as np
import pytest
import torch
from answers import NUMBERS, cases, in_numbers, judged

PULL = {"k1": lambda l: 1.0, "k2": lambda l: -l, "k3": lambda l: 1 - torch.exp(l)}
FAILS = dict.fromkeys(PULL, 1.0)
HELD = {"k1": False, "k2": True, "k3": True}
EMPTY = dict.fromkeys(PULL, ...)


MISTAKES = [
    (
        "nothing",
        lambda: ({k: lambda l: ... for k in PULL}, EMPTY, EMPTY),
        "not yet",
        "k1 is missing",
    ),
    ("no table", lambda: (PULL, EMPTY, EMPTY), "not yet", "`fails`"),
    ("two kinds", lambda: (PULL, {"k1": 1.0}, HELD), "wrong", "three keys"),
    ("half a table", lambda: (PULL, FAILS, EMPTY), "not yet", "`held`"),
    (
        "with respect to l",
        lambda: ({**PULL, "k1": lambda l: -1.0}, FAILS, HELD),
        "wrong",
        "k1: that is the derivative with respect to l",
    ),
    (
        "the penalty itself",
        lambda: ({**PULL, "k2": lambda l: l**2 / 2}, FAILS, HELD),
        "wrong",
        "k2: that is the penalty itself",
    ),
    (
        "k3 as k2",
        lambda: ({**PULL, "k3": lambda l: -l}, FAILS, HELD),
        "wrong",
        "k3: at l = ",
    ),
    (
        "too early",
        lambda: (PULL, {**FAILS, "k2": 0.01}, HELD),
        "wrong",
        "k2: at 0.01 the last ten steps have 1.0",
    ),
    (
        "k1 does no harm",
        lambda: (PULL, {**FAILS, "k1": math.inf}, HELD),
        "wrong",
        "k1: whatever the derivative says",
    ),
    (
        "no such coefficient",
        lambda: (PULL, dict.fromkeys(PULL, 0.5), HELD),
        "wrong",
        "0.01, 0.1, 1.0 or",
    ),
    (
        "k1 holds, too",
        lambda: (PULL, FAILS, {**HELD, "k1": True}),
        "wrong",
        "k1: the final policies are",
    ),
]


@pytest.mark.parametrize(("answer", "kind", "why"), cases(MISTAKES))
def test_a_mistake_is_told_and_named(answer, kind, why):
    judged(5, answer, kind, why)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_right_answer_in_any_number_is_right(number):
    make = NUMBERS[number]
    answer = in_numbers(FAILS, make), in_numbers(HELD, make)
    judged(5, lambda: (PULL, *answer), "right")


def test_the_derivatives_may_come_as_arrays_and_lists():
    pull = {
        "k1": lambda l: np.ones(5),
        "k2": lambda l: (-l).tolist(),
        "k3": lambda l: 1 - np.exp(l.numpy()),
    }
    judged(5, lambda: (pull, FAILS, HELD), "right")


def test_a_coefficient_in_single_precision_is_known():
    fails = {**FAILS, "k2": torch.tensor(0.1)}
    judged(
        5, lambda: (PULL, fails, HELD), "wrong", "k2: at 0.1 the last ten steps have"
    )
