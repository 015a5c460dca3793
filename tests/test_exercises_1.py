"""Exercise 1: its check knows the typical mistakes, and right answers of any form."""

import pytest
import torch
from answers import ask, cases, judged, masked

import agentrl as arl


def reinforce(sign=-1.0):
    return lambda logp, a, mask: masked(sign * a[:, None] * logp, mask)


def stopped(ratio, a, low=0.8, high=1.2):
    return ((ratio > high) & (a > 0)) | ((ratio < low) & (a < 0))


MISTAKES = [
    ("no loss", lambda: (lambda *batch: None, stopped), "not yet", "not filled"),
    ("the sign", lambda: (reinforce(+1.0), stopped), "wrong", "other way"),
    (
        "a mean over all places",
        lambda: (lambda logp, a, mask: (-a[:, None] * logp * mask).mean(), stopped),
        "wrong",
        "mean over policy tokens",
    ),
    (
        "a mean over episodes first",
        lambda: (
            lambda logp, a, mask: arl.aggregate_loss(
                -a[:, None] * logp, mask, "seq_mean_token_mean"
            ),
            stopped,
        ),
        "wrong",
        "direction differs",
    ),
    (
        "probabilities for log-probs",
        lambda: (
            lambda logp, a, mask: masked(-a[:, None] * logp.exp(), mask),
            stopped,
        ),
        "wrong",
        "direction differs",
    ),
    (
        "tokens not multiplied by an advantage",
        lambda: (lambda logp, a, mask: masked(-logp, mask), stopped),
        "wrong",
        "of GRPO",
    ),
    (
        "the clip without the sign",
        lambda: (reinforce(), lambda r, a: (r - 1).abs() > 0.2),
        "wrong",
        "ratio 0.7 and advantage +1 is not stopped",
    ),
    (
        "the clip the wrong way round",
        lambda: (reinforce(), lambda r, a: stopped(r, -a)),
        "wrong",
        "ratio 0.7 and advantage +1",
    ),
    (
        "another range",
        lambda: (reinforce(), lambda r, a: stopped(r, a, 0.9, 1.1)),
        "wrong",
        "ratio 1.15 and advantage +1 is not stopped",
    ),
    (
        "one answer for all",
        lambda: (reinforce(), lambda r, a: True),
        "wrong",
        "one answer for each ratio",
    ),
    (
        "an advantage of 0 stopped",
        lambda: (reinforce(), lambda r, a: stopped(r, a) | (a == 0)),
        "wrong",
        "0 times any ratio",
    ),
]


@pytest.mark.parametrize(("answer", "kind", "why"), cases(MISTAKES))
def test_a_mistake_is_told_and_named(answer, kind, why):
    judged(1, answer, kind, why)


def surrogate(logp, a, mask):
    """The ratio surrogate, where no step has been made: its gradient is REINFORCE's."""
    return masked(-(logp - logp.detach()).exp() * a[:, None], mask)


RIGHT = {
    "plain": (reinforce(), stopped),
    "einsum, a list": (
        lambda logp, a, m: -torch.einsum("b,bt,bt->", a, logp, m) / m.sum(),
        lambda r, a: stopped(r, a).tolist(),
    ),
    "of shape 1, an array": (
        lambda *batch: reinforce()(*batch)[None],
        lambda r, a: stopped(r, a).numpy(),
    ),
    "numbers for bools": (reinforce(), lambda r, a: stopped(r, a).double()),
}


@pytest.mark.parametrize("what", RIGHT)
def test_a_right_answer_in_any_form_is_right(what):
    told = ask(1, *RIGHT[what])
    assert told.kind == "right" and "surrogate" not in told.why, told


def test_the_ratio_surrogate_has_the_gradient_too_and_is_told_so():
    told = ask(1, surrogate, stopped)
    assert told.kind == "right" and "the value of the ratio surrogate" in told.why, told
