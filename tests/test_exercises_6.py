"""Exercise 6: its check knows the typical mistakes, and right answers of any form."""

import pytest
from answers import NUMBERS, cases, in_numbers, judged

import agentrl as arl


def log_s(logp, old, mask):
    return arl.masked_mean(arl.log_ratio(logp, old, mask), mask, dim=1)


MISTAKES = [
    ("nothing", lambda: (lambda *batch: ..., ...), "not yet", "`log_s`"),
    ("no exponent", lambda: (log_s, ...), "not yet", "`exponent`"),
    (
        "the sum",
        lambda: (lambda p, q, m: log_s(p, q, m) * m.sum(1), -0.5),
        "wrong",
        "that is the sum",
    ),
    (
        "over the width",
        lambda: (lambda p, q, m: (arl.log_ratio(p, q, m) * m).mean(1), -0.5),
        "wrong",
        "width of the table",
    ),
    (
        "no mask",
        lambda: (lambda p, q, m: (p - q).mean(1), -0.5),
        "wrong",
        "mask 0 takes part",
    ),
    (
        "the ratio, not its log",
        lambda: (lambda *batch: log_s(*batch).exp(), -0.5),
        "wrong",
        "not its logarithm",
    ),
    (
        "old over new",
        lambda: (lambda *batch: -log_s(*batch), -0.5),
        "wrong",
        "old policy over the new",
    ),
    (
        "the log of the mean ratio",
        lambda: (
            lambda p, q, m: (((p - q).exp() * m).sum(1) / m.sum(1)).log(),
            -0.5,
        ),
        "wrong",
        "log of the mean ratio",
    ),
    ("the variance", lambda: (log_s, -1), "wrong", "variance"),
    ("the sign", lambda: (log_s, 0.5), "wrong", "negative"),
    ("another power", lambda: (log_s, -0.25), "wrong", "not -0.25"),
]


@pytest.mark.parametrize(("answer", "kind", "why"), cases(MISTAKES))
def test_a_mistake_is_told_and_named(answer, kind, why):
    judged(6, answer, kind, why)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_right_answer_in_any_number_is_right(number):
    judged(6, lambda: (log_s, in_numbers(-0.5, NUMBERS[number])), "right")


@pytest.mark.parametrize("make", [lambda x: x.double().numpy(), lambda x: x.tolist()])
def test_log_s_may_come_as_an_array_or_a_list(make):
    judged(6, lambda: (lambda *batch: make(log_s(*batch)), -1 / 2), "right")
