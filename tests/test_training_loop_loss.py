"""The penalty and the loss that a config names."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rollouts import gen
from updates import MODES, config

import agentrl as arl

# ---- KL


@pytest.mark.parametrize(
    ("kind", "value", "grad"),
    [
        # log(ref/policy) = l = log 2 - log 4 = -log 2
        ("k1", math.log(2), 1.0),
        ("k2", math.log(2) ** 2 / 2, math.log(2)),
        ("k3", 0.5 - 1 + math.log(2), 1 - 0.5),
    ],
)
def test_kl_of_one_token_by_hand(kind, value, grad):
    logp = torch.tensor([[math.log(0.4)]], requires_grad=True)
    ref = torch.tensor([[math.log(0.2)]], requires_grad=True)
    got = arl.kl_penalty(logp, ref, kind)
    got.sum().backward()
    assert got.item() == pytest.approx(value, rel=1e-5)
    assert logp.grad.item() == pytest.approx(grad, rel=1e-5)
    assert ref.grad is None


logs = st.floats(-15, 0)


@given(logs, logs)
def test_kl_values_and_gradients(new, ref):
    """d k1 = 1 everywhere: as a loss it pulls nowhere in particular."""
    l = ref - new
    expected = {
        "k1": (-l, 1.0),
        "k2": (l * l / 2, -l),
        "k3": (math.exp(l) - 1 - l, 1 - math.exp(l)),
    }
    for kind, (value, grad) in expected.items():
        logp = torch.tensor([[new]], dtype=torch.float64, requires_grad=True)
        got = arl.kl_penalty(logp, torch.tensor([[ref]], dtype=torch.float64), kind)
        got.sum().backward()
        assert got.item() == pytest.approx(value, rel=1e-6, abs=1e-6)
        assert logp.grad.item() == pytest.approx(grad, rel=1e-6, abs=1e-6)
    assert torch.equal(
        arl.kl_penalty(logp, logp.detach()), arl.kl_penalty(logp, logp.detach(), "k3")
    )


@given(st.lists(st.floats(-3, 3), min_size=6, max_size=6))
def test_k1_and_k3_are_unbiased_and_no_k2(values):
    """Weighted by the policy's probabilities they sum to KL(policy, reference)."""
    policy, ref = torch.tensor(values, dtype=torch.float64).view(2, 3).log_softmax(1)
    exact = (policy.exp() * (policy - ref)).sum().item()
    for kind in ("k1", "k3"):
        mean = (policy.exp() * arl.kl_penalty(policy, ref, kind)).sum().item()
        assert mean == pytest.approx(exact, abs=1e-9)
    assert (arl.kl_penalty(policy, ref, "k3") >= 0).all()


def test_k1_and_k2_keep_their_pull_far_away():
    """Only the exponential of k3 needs a limit."""
    for l in (50.0, -50.0):
        logp = torch.tensor([[-60.0]], requires_grad=True)
        ref = torch.tensor([[-60.0 + l]])
        k1, k2 = (arl.kl_penalty(logp, ref, kind) for kind in ("k1", "k2"))
        assert (k1.item(), k2.item()) == (-l, l * l / 2)
        (k1 + k2).sum().backward()
        assert logp.grad.item() == pytest.approx(1 - l)
        assert arl.kl_penalty(logp, ref, "k3").isfinite().all()


def test_k3_does_not_cancel_in_float32():
    logp, ref = torch.zeros(1, 1), torch.full((1, 1), 1e-4)
    assert arl.kl_penalty(logp, ref, "k3").item() == pytest.approx(0.5e-8, rel=0.01)


def test_kl_names_what_it_refuses():
    x = torch.zeros(2, 2)
    for kind in ("k4", "", None):
        with pytest.raises(ValueError, match="kind is .*'k1', 'k2', 'k3'") as e:
            arl.kl_penalty(x, x, kind)
        assert repr(kind) in str(e.value)
    with pytest.raises(ValueError, match=r"ref_logp.shape is \(2, 3\)"):
        arl.kl_penalty(x, torch.zeros(2, 3))


# ---- the loss that a config names


def tensors(seed=0, b=4, t=5, dtype=torch.float32):
    g = gen(seed)
    logp = torch.randn(b, t, generator=g, dtype=dtype)
    old = logp + 0.3 * torch.randn(b, t, generator=g, dtype=dtype)
    a = torch.randn(b, generator=g, dtype=dtype)
    mask = (torch.rand(b, t, generator=g) < 0.7).to(dtype)
    return logp, old, a, mask


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("norm_const", [None, 17.0])
def test_the_level_names_the_loss(mode, norm_const):
    args = tensors()
    cfg = config(
        loss_mode=mode, norm_const=norm_const, clip_low=0.1, clip_high=0.3, max_turns=5
    )
    used = norm_const or 4 * 5 * arl.MAX_CALL_TOKENS
    for level, (loss, stats) in {
        "token": arl.ppo_policy_loss(*args, 0.1, 0.3, mode, used),
        "sequence": arl.gspo_policy_loss(*args, 0.1, 0.3),
        "cispo": arl.cispo_policy_loss(*args, 0.3, mode, used),
    }.items():
        got = arl.policy_loss(*args, replace(cfg, ratio_level=level))
        assert torch.equal(got[0], loss) and got[1] == stats


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("level", ["token", "sequence", "cispo"])
def test_a_batch_repeated_twice_has_the_same_loss(mode, level):
    logp, old, a, mask = tensors()
    cfg = config(loss_mode=mode, ratio_level=level)
    once = arl.policy_loss(logp, old, a, mask, cfg)[0]
    twice = arl.policy_loss(
        logp.repeat(2, 1), old.repeat(2, 1), a.repeat(2), mask.repeat(2, 1), cfg
    )[0]
    torch.testing.assert_close(once, twice)
