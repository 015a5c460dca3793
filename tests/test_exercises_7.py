"""Exercise 7: its check knows the typical mistakes, and right answers of any form."""

import numpy as np
import pytest
from answers import NUMBERS, cases, in_numbers, judged, lesson


def unnamed(episode):
    return not episode["opened"] and not episode["issue_names_file"]


def gap(fits):
    shares = []
    for split in ("train", "heldout"):
        fit = [e["passed"] for e in lesson(7)["LOG"] if e["split"] == split and fits(e)]
        shares.append(sum(fit) / len(fit))
    return shares[0] - shares[1]


def false(of_all=False):
    train = [e for e in lesson(7)["LOG"] if e["split"] == "train"]
    rewarded = [e for e in train if e["visible_pass"]]
    wrong = sum(not e["passed"] for e in rewarded)
    return wrong / len(train if of_all else rewarded)


def review(**changes):
    right = {
        "blind": gap(unnamed),
        "opened": gap(lambda e: e["opened"]),
        "false": false(),
        "cause": "memory of repositories",
    }
    return tuple({**right, **changes}.values())


MISTAKES = [
    ("nothing", lambda: (..., ..., ..., ...), "not yet", "missing"),
    (
        "the gap of all",
        lambda: review(blind=gap(lambda e: True)),
        "wrong",
        "all episodes",
    ),
    (
        "issues that name the file",
        lambda: review(blind=gap(lambda e: not e["opened"])),
        "wrong",
        "name the file",
    ),
    ("the sign", lambda: review(blind=-gap(unnamed)), "wrong", "train minus"),
    (
        "one file exactly",
        lambda: review(opened=gap(lambda e: e["opened"] == 1)),
        "wrong",
        "exactly one",
    ),
    ("percent", lambda: review(blind=100 * gap(unnamed)), "wrong", "percent"),
    ("a pair", lambda: review(blind=(0.5, 100)), "wrong", "`[0]`"),
    ("a share of all", lambda: review(false=false(True)), "wrong", "earned the"),
    ("the other share", lambda: review(false=1 - false()), "wrong", "tests pass"),
    ("size", lambda: review(cause="model too small"), "wrong", "same model"),
    ("luck", lambda: review(cause="bad luck"), "wrong", "no accident"),
]


@pytest.mark.parametrize(("answer", "kind", "why"), cases(MISTAKES))
def test_a_mistake_is_told_and_named(answer, kind, why):
    judged(7, answer, kind, why)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_right_answer_in_any_number_is_right(number):
    judged(7, lambda: in_numbers(review(), NUMBERS[number]), "right")


def test_two_decimals_are_enough_and_a_cause_may_be_of_numpy():
    *shares, cause = review()
    judged(7, lambda: (*(round(x, 2) for x in shares), np.str_(cause)), "right")
