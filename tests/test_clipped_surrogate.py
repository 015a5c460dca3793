"""PPO's clip: loss, gradient and statistics against numbers worked out by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import cases

import agentrl as arl

INF, NAN = math.inf, math.nan


def loss_of(ratios, advantages, mask=None, **options):
    """Loss, statistics and d loss / d logp for given ratios; old log-probs are -1."""
    ratios = torch.as_tensor(ratios, dtype=torch.float64)
    old = torch.full_like(ratios, -1.0)
    logp = (old + ratios.log()).requires_grad_()
    mask = torch.ones_like(ratios) if mask is None else torch.tensor(mask).float()
    advantages = torch.tensor(advantages, dtype=torch.float64)
    loss, stats = arl.ppo_policy_loss(logp, old, advantages, mask, **options)
    loss.backward()
    return loss.item(), stats, logp.grad


# ---- by hand


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "grad"),
    [
        (1.0, 1.0, -1.0, -1.0),
        (1.1, 1.0, -1.1, -1.1),
        (1.5, 1.0, -1.2, 0.0),  # clipped above
        (0.5, 1.0, -0.5, -0.5),  # too small already: free to grow
        (0.5, -1.0, 0.8, 0.0),  # clipped below
        (1.5, -1.0, 1.5, 1.5),  # min(...), no second clip
        (40.0, -1.0, 40.0, 40.0),  # no dual clip at 3 either
        (0.9, -2.0, 1.8, 1.8),
        (1.5, 0.0, 0.0, 0.0),
    ],
)
def test_one_token(ratio, advantage, loss, grad):
    got, stats, grads = loss_of([[ratio]], [advantage])
    assert got == pytest.approx(loss)
    assert grads.item() == pytest.approx(grad)
    assert stats["clip_frac"] == float(grad == 0 and advantage != 0)


def test_ratios_of_tokens_not_of_their_sum():
    """Clip 0.2 and A = 1: 1.1, 0.9 stay, 1.5 becomes 1.2."""
    loss, stats, grad = loss_of([[1.1, 0.9, 1.5]], [1.0])
    assert -loss == pytest.approx((1.1 + 0.9 + 1.2) / 3)
    assert grad.flatten().tolist() == pytest.approx([-1.1 / 3, -0.9 / 3, 0])
    assert (stats["ratio_min"], stats["ratio_max"]) == pytest.approx((0.9, 1.5))


def test_the_clip_has_two_ends_of_its_own():
    loss, _, _ = loss_of([[1.5], [0.5]], [1.0, -1.0], clip_low=0.1, clip_high=0.3)
    assert loss == pytest.approx((-1.3 + 0.9) / 2)


def test_clip_fraction_counts_tokens_that_lost_their_gradient():
    """1.5 and 0.5 with A = +1 and again with A = -1: one of two each."""
    ratios, mask = [[1.5, 0.5, 9.0], [1.5, 0.5, 9.0]], [[1, 1, 0], [1, 1, 0]]
    _, stats, grad = loss_of(ratios, [1.0, -1.0], mask)
    assert stats["clip_frac"] == 0.5
    assert (grad == 0).tolist() == [[True, False, True], [False, True, True]]
    assert stats["ratio_max"] == pytest.approx(1.5)


def test_approximate_kl_is_k3_over_policy_tokens():
    ratios = [[1.2, 0.7, 5.0]]
    _, stats, _ = loss_of(ratios, [1.0], [[1, 1, 0]])
    k3 = [r - 1 - math.log(r) for r in (1.2, 0.7)]
    assert stats["approx_kl"] == pytest.approx(sum(k3) / 2)


def test_approximate_kl_in_float32_does_not_cancel():
    """At a log-ratio of 1e-4, exp(l) - 1 - l is off by a factor of three in float32."""
    old = torch.zeros(1, 1)
    logp = torch.full((1, 1), 1e-4)
    _, stats = arl.ppo_policy_loss(logp, old, torch.ones(1), torch.ones(1, 1))
    assert stats["approx_kl"] == pytest.approx(0.5e-8, rel=0.02)


@pytest.mark.parametrize(
    ("mode", "loss"),
    [
        ("token_mean", -1.0),
        ("seq_mean_token_mean", -1.0),
        ("seq_mean_token_sum", -2.0),  # not divided by a length
        ("constant", -0.5),
    ],
)
def test_lengths_one_and_three(mode, loss):
    got, _, _ = loss_of(
        torch.ones(2, 3),
        [1.0, 1.0],
        [[1, 0, 0], [1, 1, 1]],
        loss_mode=mode,
        norm_const=8,
    )
    assert got == pytest.approx(loss)


# ---- whole kinds


@given(cases())
def test_the_loss_is_what_the_definition_says(case):
    log_r, a, mask, low, high = case
    terms, counts = [], 0
    for row, adv, bits in zip(log_r.tolist(), a.tolist(), mask.tolist(), strict=True):
        for l, m in zip(row, bits, strict=True):
            if m:
                r = math.exp(l)
                clipped = min(max(r, 1 - low), 1 + high)
                terms.append(-min(r * adv, clipped * adv))
                stops = (adv > 0 and r > 1 + high) or (adv < 0 and r < 1 - low)
                counts += stops
    old = torch.full_like(log_r, -3.0)
    loss, stats = arl.ppo_policy_loss(old + log_r, old, a, mask, low, high)
    n = max(len(terms), 1)
    assert loss.item() == pytest.approx(sum(terms) / n, abs=1e-9)
    assert stats["clip_frac"] == pytest.approx(counts / n)
    assert all(type(value) is float for value in stats.values())
    assert set(stats) == {"clip_frac", "approx_kl", "ratio_min", "ratio_max"}


@given(cases(), st.sampled_from([200.0, -200.0, INF, NAN, 1e38]))
def test_masked_positions_change_nothing(case, poison):
    log_r, a, mask, low, high = case
    results = []
    for fill in (0.0, poison):
        logp = log_r.masked_fill(mask == 0, fill).requires_grad_()
        loss, stats = arl.ppo_policy_loss(
            logp, torch.zeros_like(logp), a, mask, low, high
        )
        loss.backward()
        results.append((loss.item(), stats, logp.grad.tolist()))
    assert results[0] == results[1]


@given(cases(), st.sampled_from(["seq_mean_token_mean", "seq_mean_token_sum"]))
def test_on_policy_the_gradient_is_that_of_reinforce(case, mode):
    """At ratio 1 the clip is idle: the gradient is -A times the token's weight."""
    log_r, a, mask, _, _ = case
    logp = log_r.clone().requires_grad_()
    loss, stats = arl.ppo_policy_loss(logp, log_r, a, mask, loss_mode=mode)
    loss.backward()
    ours = logp.grad
    plain = log_r.clone().requires_grad_()
    arl.aggregate_loss(-a[:, None] * plain, mask, mode).backward()
    torch.testing.assert_close(ours, plain.grad)
    assert stats["clip_frac"] == stats["approx_kl"] == 0
    assert stats["ratio_min"] == stats["ratio_max"] == 1


# ---- overflow and emptiness


def test_overflow_at_a_masked_position():
    logp = torch.tensor([[0.0, 200.0]], requires_grad=True)
    loss, stats = arl.ppo_policy_loss(
        logp, torch.zeros(1, 2), torch.tensor([-1.0]), torch.tensor([[1.0, 0.0]])
    )
    loss.backward()
    assert loss.item() == 1 and logp.grad.tolist() == [[1.0, 0.0]]
    assert all(math.isfinite(value) for value in stats.values())


@pytest.mark.parametrize("log_r", [100.0, 1000.0, -1000.0])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_overflow_at_a_policy_token(log_r, advantage):
    logp = torch.tensor([[log_r]], requires_grad=True)
    loss, stats = arl.ppo_policy_loss(
        logp, torch.zeros(1, 1), torch.tensor([advantage]), torch.ones(1, 1)
    )
    loss.backward()
    assert loss.isfinite() and logp.grad.item() == 0
    assert all(math.isfinite(value) for value in stats.values())


@pytest.mark.parametrize("mode", ["token_mean", "seq_mean_token_mean", "constant"])
def test_all_tokens_masked(mode):
    logp = torch.randn(2, 3, requires_grad=True)
    loss, stats = arl.ppo_policy_loss(
        logp,
        torch.zeros(2, 3),
        torch.ones(2),
        torch.zeros(2, 3),
        loss_mode=mode,
        norm_const=4,
    )
    loss.backward()
    assert loss == 0 and not logp.grad.any()
    assert stats["clip_frac"] == stats["approx_kl"] == 0
    assert all(math.isfinite(value) for value in stats.values())


def test_no_gradient_into_old_log_probs_and_advantages():
    old = torch.zeros(1, 1, requires_grad=True)
    a = torch.ones(1, requires_grad=True)
    logp = torch.full((1, 1), 0.1, requires_grad=True)
    loss, _ = arl.ppo_policy_loss(logp, old, a, torch.ones(1, 1))
    loss.backward()
    assert old.grad is None and a.grad is None and logp.grad is not None


def test_float32_agrees_with_float64():
    g = torch.Generator().manual_seed(0)
    logp, old = torch.randn(2, 4, 9, generator=g) * 0.3
    a, mask = torch.randn(4, generator=g), torch.ones(4, 9)
    single, _ = arl.ppo_policy_loss(logp, old, a, mask)
    double, _ = arl.ppo_policy_loss(logp.double(), old.double(), a.double(), mask)
    assert single.item() == pytest.approx(double.item(), rel=1e-5)


# ---- errors


@pytest.mark.parametrize("name", ["clip_low", "clip_high"])
@pytest.mark.parametrize("bad", [-0.1, NAN, INF, "0.2", None, True])
def test_an_impossible_clip_is_named(name, bad):
    x = torch.ones(1, 1)
    with pytest.raises((ValueError, TypeError), match=f"{name} is .*number") as e:
        arl.ppo_policy_loss(x, x, torch.ones(1), x, **{name: bad})
    assert repr(bad) in str(e.value)


def test_shapes_that_do_not_fit_are_named():
    x, wide = torch.zeros(2, 3), torch.zeros(2, 4)
    for args, name in [
        ((x, wide, torch.ones(2), x), "old_logp"),
        ((x, x, torch.ones(2), wide), "mask"),
        ((x, x, torch.ones(3), x), "advantages"),
        ((x, x, torch.ones(2, 3), x), "advantages"),
        ((x, x, torch.ones(()), x), "advantages"),
    ]:
        with pytest.raises(ValueError, match=rf"{name}.shape is "):
            arl.ppo_policy_loss(*args)


def test_loss_mode_and_its_constant_are_checked():
    x = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="mode is 'mean'"):
        arl.ppo_policy_loss(x, x, torch.ones(1), x, loss_mode="mean")
    with pytest.raises((ValueError, TypeError), match="norm_const is None"):
        arl.ppo_policy_loss(x, x, torch.ones(1), x, loss_mode="constant")
