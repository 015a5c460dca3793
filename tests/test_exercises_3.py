"""Exercise 3: its check knows the typical mistakes, and right answers of any form."""

import functools

import numpy as np
import pytest
import torch
from answers import NUMBERS, cases, in_numbers, judged, lesson


def cosine_of(rows, diagonal=False, size=False):
    unit = rows if size else rows / rows.norm(dim=1, keepdim=True)
    table = unit @ unit.T
    if diagonal:
        return table.mean()
    n = len(rows)
    return (table.sum() - table.trace()) / (n * (n - 1))


def drop(arm="names of train", split="heldout"):
    return lesson(3)["mean_pass"](arm, f"{split}, train") - lesson(3)["mean_pass"](
        arm, f"{split}, heldout"
    )


MISTAKES = [
    ("no function", lambda: (lambda rows: ..., 0.1), "not yet", "`mean_cosine`"),
    ("no number", lambda: (cosine_of, ...), "not yet", "`drop`"),
    (
        "rows with themselves",
        lambda: (functools.partial(cosine_of, diagonal=True), 0.1),
        "wrong",
        "diagonal",
    ),
    (
        "no norm",
        lambda: (functools.partial(cosine_of, size=True), 0.1),
        "wrong",
        "norms",
    ),
    (
        "a sum",
        lambda: (lambda rows: cosine_of(rows) * len(rows) * (len(rows) - 1), 0.1),
        "wrong",
        "that is a sum",
    ),
    ("a table", lambda: (lambda rows: rows @ rows.T, 0.1), "wrong", "one number"),
    (
        "absolute values",
        lambda: (lambda rows: cosine_of(rows).abs(), 0.1),
        "wrong",
        "no absolute value",
    ),
    ("the sign", lambda: (cosine_of, -drop()), "wrong", "other way round"),
    (
        "the other pool",
        lambda: (cosine_of, drop("names of all")),
        "wrong",
        "all thirty",
    ),
    ("training tasks", lambda: (cosine_of, drop(split="train")), "wrong", "tasks"),
]


@pytest.mark.parametrize(("answer", "kind", "why"), cases(MISTAKES))
def test_a_mistake_is_told_and_named(answer, kind, why):
    judged(3, answer, kind, why)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_right_answer_in_any_number_is_right(number):
    judged(3, lambda: (cosine_of, in_numbers(drop(), NUMBERS[number])), "right")


@pytest.mark.parametrize(
    "make", [torch.Tensor.numpy, np.float32, float, lambda x: x[None]]
)
def test_the_mean_may_come_in_any_number(make):
    judged(3, lambda: (lambda rows: make(cosine_of(rows)), drop()), "right")


def test_three_decimals_are_enough():
    judged(3, lambda: (cosine_of, round(drop(), 3)), "right")
