"""Exercise 2: its check knows the typical mistakes, and right answers of any form."""

import numpy as np
import pytest
import torch
from answers import NUMBERS, cases, in_numbers, judged


def late(result, name="reads", n=10):
    return sum(result["history"][name][-n:]) / n


MISTAKES = [
    ("nothing", lambda: (lambda result: ..., ...), "not yet", "`learned`"),
    ("no share", lambda: (lambda r: late(r) > 0.5, ...), "not yet", "`rarest`"),
    (
        "the reward",
        lambda: (lambda r: late(r, "reward") > 0.5, 9),
        "wrong",
        "last ten steps only",
    ),
    (
        "reward or reads",
        lambda: (lambda r: late(r) > 0.5 or late(r, "reward") > 0.5, 9),
        "wrong",
        "whatever its reward",
    ),
    (
        "the mean of the whole run",
        lambda: (lambda r: late(r, n=80) > 0.5, 9),
        "wrong",
        "last ten steps only",
    ),
    (
        "the best step",
        lambda: (lambda r: max(r["history"]["reads"]) > 0.5, 9),
        "wrong",
        "look at the end",
    ),
    (
        "the last step",
        lambda: (lambda r: r["history"]["reads"][-1] > 0.5, 9),
        "wrong",
        "single step",
    ),
    (
        "twenty steps",
        lambda: (lambda r: late(r, n=20) > 0.5, 9),
        "wrong",
        "exactly the last ten",
    ),
    (
        "a little reading",
        lambda: (lambda r: late(r) > 0.3, 9),
        "wrong",
        "0.4 reads",
    ),
    (
        "the rarest share of all",
        lambda: (lambda r: late(r) > 0.5, 33),
        "wrong",
        "at one in 33 only",
    ),
    ("a share", lambda: (lambda r: late(r) > 0.5, 1 / 9), "wrong", "9 for one in"),
]


@pytest.mark.parametrize(("answer", "kind", "why"), cases(MISTAKES))
def test_a_mistake_is_told_and_named(answer, kind, why):
    judged(2, answer, kind, why)


def learned(result):
    return late(result) > 0.5


@pytest.mark.parametrize("number", NUMBERS)
def test_a_right_answer_in_any_number_is_right(number):
    judged(2, lambda: (learned, in_numbers(13, NUMBERS[number])), "right")


@pytest.mark.parametrize("make", [np.bool_, torch.tensor, int])
def test_learned_may_tell_in_any_bool(make):
    judged(
        2, lambda: (lambda result: make(learned(result)), 13), "right", "2 at one in 17"
    )
