"""Exercise 4: its check knows the typical mistakes, and right answers of any form."""

import pytest
from answers import cases, judged, masked, ratios

import agentrl as arl


def cispo(change=lambda ratio: ratio.detach().clamp(max=1.2), sign=-1.0):
    def loss(logp, old, a, mask, clip_high=0.2):
        weight = change(ratios(logp, old, mask))
        return masked(sign * weight * a[:, None] * logp, mask)

    return loss


def right_cispo(logp, old, a, mask, clip_high=0.2):
    weight = ratios(logp, old, mask).detach().clamp(max=1 + clip_high)
    return masked(-weight * a[:, None] * logp, mask)


def ppo(logp, old, a, mask, clip_high=0.2):
    return arl.ppo_policy_loss(logp, old, a, mask)[0]


MISTAKES = [
    ("nothing", lambda: (lambda *batch: None,), "not yet", "returns None"),
    (
        "a gradient through the ratio",
        lambda: (cispo(lambda ratio: ratio.clamp(max=1.2)),),
        "wrong",
        "through the ratio",
    ),
    (
        "no advantage",
        lambda: (lambda logp, old, a, mask, clip_high=0.2: masked(-logp, mask),),
        "wrong",
        "pushed the same way",
    ),
    (
        "a fixed bound",
        lambda: (lambda *batch: cispo()(*batch[:4]),),
        "wrong",
        "`clip_high` is not used",
    ),
    ("PPO's clip", lambda: (ppo,), "wrong", "PPO's clip"),
    ("no clip", lambda: (cispo(lambda r: r.detach()),), "wrong", "not clipped"),
    (
        "a lower bound",
        lambda: (cispo(lambda r: r.detach().clamp(0.8, 1.2)),),
        "wrong",
        "no lower bound",
    ),
    ("the sign", lambda: (cispo(sign=+1.0),), "wrong", "the sign"),
    (
        "a mean over all places",
        lambda: (
            lambda logp, old, a, mask, clip_high=0.2: (
                -ratios(logp, old, mask).detach().clamp(max=1.2)
                * a[:, None]
                * logp
                * mask
            ).mean(),
        ),
        "wrong",
        "policy tokens only",
    ),
    (
        "all is constant",
        lambda: (lambda *batch: cispo()(*batch).detach(),),
        "wrong",
        "no gradient",
    ),
    (
        "the loss of each token",
        lambda: (lambda logp, *rest: -logp,),
        "wrong",
        "one number",
    ),
    ("an error", lambda: (lambda logp: logp.sum(),), "wrong", "TypeError"),
]


@pytest.mark.parametrize(("answer", "kind", "why"), cases(MISTAKES))
def test_a_mistake_is_told_and_named(answer, kind, why):
    judged(4, answer, kind, why)


def in_one_line(logp, old, a, mask, clip_high=0.2):
    """The same by way of a gradient: the constant is taken off again."""
    ratio = ratios(logp, old, mask)
    weight = ratio.detach().minimum(ratio.new_tensor(1 + clip_high)) * a[:, None]
    return -(weight * logp)[mask.bool()].mean()


@pytest.mark.parametrize("loss", [right_cispo, in_one_line])
def test_a_right_answer_of_our_own_is_right(loss):
    judged(4, lambda: (loss,), "right")
