"""GSPO, CISPO and the presets."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import cases

import agentrl as arl

INF, NAN = math.inf, math.nan


def gspo(log_r, advantages, mask, **options):
    log_r = torch.as_tensor(log_r, dtype=torch.float64).clone().requires_grad_()
    loss, stats = arl.gspo_policy_loss(
        log_r,
        torch.zeros_like(log_r),
        torch.as_tensor(advantages, dtype=torch.float64),
        torch.as_tensor(mask).float(),
        **options,
    )
    loss.backward()
    return loss.item(), stats, log_r.grad


# ---- GSPO


def test_gspo_weighs_sequences_not_their_tokens():
    loss, _, grad = gspo(torch.zeros(2, 3), [1.0, -1.0], [[1, 0, 0], [1, 1, 1]])
    assert loss == 0
    assert grad.flatten().tolist() == pytest.approx([-0.5, 0, 0] + [1 / 6] * 3)


def test_gspo_ratio_is_a_geometric_mean():
    """Ten tokens of log-ratio 0.1: s = exp(0.1), not exp(1)."""
    loss, stats, _ = gspo(torch.full((1, 10), 0.1), [-1.0], torch.ones(1, 10))
    assert loss == pytest.approx(math.exp(0.1)) == pytest.approx(1.105, abs=1e-3)
    assert stats["ratio_min"] == stats["ratio_max"] == pytest.approx(math.exp(0.1))


@pytest.mark.parametrize(
    ("s", "advantage", "loss", "flows"),
    [
        (1.0002, 1.0, -1.0002, True),
        (1.0005, 1.0, -1.0004, False),
        (0.9995, -1.0, 0.9997, False),
        (1.0005, -1.0, 1.0005, True),
        (0.9995, 1.0, -0.9995, True),
    ],
)
def test_gspo_clips_the_sequence(s, advantage, loss, flows):
    log_r = torch.full((1, 4), math.log(s), dtype=torch.float64)
    got, stats, grad = gspo(log_r, [advantage], torch.ones(1, 4))
    assert got == pytest.approx(loss, abs=1e-9)
    assert stats["clip_frac"] == float(not flows)
    expected = -advantage * s / 4 if flows else 0.0
    assert grad.flatten().tolist() == pytest.approx([expected] * 4, abs=1e-9)


def test_gspo_drops_rows_without_policy_tokens():
    loss, stats, _ = gspo(
        [[0.3, 0.3], [0.0, 0.0]], [1.0, 5.0], [[1, 1], [0, 0]], clip_high=0.1
    )
    assert loss == pytest.approx(-1.1)
    assert stats["clip_frac"] == 1
    assert stats["ratio_min"] == pytest.approx(math.exp(0.3))


def test_gspo_clip_fraction_is_per_sequence():
    log_r = torch.tensor([[0.5] * 9, [0.0] * 9])
    _, stats, _ = gspo(log_r, [1.0, 1.0], [[1] * 9, [1] + [0] * 8])
    assert stats["clip_frac"] == 0.5


@given(cases())
def test_gspo_is_what_the_definition_says(case):
    log_r, a, mask, low, high = case
    terms = []
    for row, adv, bits in zip(log_r.tolist(), a.tolist(), mask.tolist(), strict=True):
        live = [l for l, m in zip(row, bits, strict=True) if m]
        if live:
            s = math.exp(sum(live) / len(live))
            terms.append(-min(s * adv, min(max(s, 1 - low), 1 + high) * adv))
    loss, stats, grad = gspo(log_r, a, mask, clip_low=low, clip_high=high)
    assert loss == pytest.approx(sum(terms) / max(len(terms), 1), abs=1e-9)
    assert grad.isfinite().all() and not grad[mask == 0].any()
    assert all(math.isfinite(value) for value in stats.values())


@given(cases(), st.sampled_from([200.0, INF, NAN]))
def test_gspo_and_cispo_ignore_masked_positions(case, poison):
    log_r, a, mask, low, high = case
    for loss_fn in (arl.gspo_policy_loss, arl.cispo_policy_loss):
        results = []
        for fill in (-1.0, poison):
            logp = log_r.masked_fill(mask == 0, fill).requires_grad_()
            loss, stats = loss_fn(logp, torch.zeros_like(logp), a, mask, clip_high=high)
            loss.backward()
            results.append((loss.item(), stats, logp.grad.tolist()))
        assert results[0] == results[1]


def test_gspo_default_range():
    a, b = torch.zeros(1, 1), torch.full((1, 1), math.log(2))
    for advantage, bound in ((1.0, 1 + 4e-4), (-1.0, 1 - 3e-4)):
        log_r = b if advantage > 0 else -b
        loss, _ = arl.gspo_policy_loss(log_r, a, torch.tensor([advantage]), a + 1)
        assert loss.item() == pytest.approx(-advantage * bound)


# ---- CISPO


@pytest.mark.parametrize(
    ("ratio", "advantage", "weight", "counted"),
    [
        (1.0, 1.0, 1.0, 0),
        (1.5, 1.0, 1.2, 1),
        (1.5, -1.0, 1.2, 1),  # either sign
        (0.1, -1.0, 0.1, 0),  # no lower bound
        (0.1, 1.0, 0.1, 0),
        (1.2, 2.0, 1.2, 0),
    ],
)
def test_cispo_one_token(ratio, advantage, weight, counted):
    """-sg(min(ratio, 1.2)) A log pi: every token keeps a gradient."""
    old = torch.full((1, 1), -2.0, dtype=torch.float64)
    logp = (old + math.log(ratio) - 1e-12).requires_grad_()
    loss, stats = arl.cispo_policy_loss(
        logp, old, torch.tensor([advantage]).double(), torch.ones(1, 1)
    )
    loss.backward()
    assert loss.item() == pytest.approx(-weight * advantage * (math.log(ratio) - 2))
    assert logp.grad.item() == pytest.approx(-weight * advantage)
    assert stats["clip_frac"] == counted
    assert stats["ratio_max"] == pytest.approx(ratio)


@pytest.mark.parametrize("mode", ["token_mean", "seq_mean_token_sum", "constant"])
def test_cispo_aggregates_like_the_others(mode):
    logp = torch.tensor([[-1.0, -2.0], [-3.0, -9.0]], requires_grad=True)
    mask, a = torch.tensor([[1.0, 1.0], [1.0, 0.0]]), torch.tensor([1.0, -1.0])
    loss, _ = arl.cispo_policy_loss(
        logp, logp.detach(), a, mask, loss_mode=mode, norm_const=8
    )
    expected = arl.aggregate_loss(-a[:, None] * logp, mask, mode, 8)
    assert loss.item() == pytest.approx(expected.item())


@given(cases())
def test_cispo_keeps_the_gradients_that_the_clip_removes(case):
    log_r, a, mask, _, high = case
    logp = log_r.clone().requires_grad_()
    old = torch.zeros_like(log_r)
    loss, stats = arl.cispo_policy_loss(logp, old, a, mask, high)
    loss.backward()
    n = max(mask.sum().item(), 1)
    weight = log_r.exp().clamp(max=1 + high) * mask
    torch.testing.assert_close(logp.grad, -weight * a[:, None] / n)
    over = ((log_r.exp() > 1 + high) * mask).sum().item()
    assert stats["clip_frac"] == pytest.approx(over / n)


@pytest.mark.parametrize("loss_fn", [arl.gspo_policy_loss, arl.cispo_policy_loss])
def test_overflow_and_an_empty_mask(loss_fn):
    for value, bit in ((1000.0, 1.0), (1000.0, 0.0), (-1000.0, 1.0)):
        logp = torch.full((2, 2), value, requires_grad=True)
        loss, stats = loss_fn(
            logp, torch.zeros(2, 2), torch.tensor([1.0, -1.0]), torch.full((2, 2), bit)
        )
        loss.backward()
        assert loss.isfinite() and logp.grad.isfinite().all()
        assert all(math.isfinite(value) for value in stats.values())
        if not bit:
            assert loss == 0 and not logp.grad.any() and stats["clip_frac"] == 0


@pytest.mark.parametrize(
    ("loss_fn", "name"),
    [
        (arl.gspo_policy_loss, "clip_low"),
        (arl.gspo_policy_loss, "clip_high"),
        (arl.cispo_policy_loss, "clip_high"),
    ],
)
@pytest.mark.parametrize("bad", [-1.0, NAN, "x", None])
def test_variants_name_what_they_refuse(loss_fn, name, bad):
    x = torch.zeros(2, 3)
    with pytest.raises((ValueError, TypeError), match=f"{name} is ") as e:
        loss_fn(x, x, torch.ones(2), x, **{name: bad})
    assert repr(bad) in str(e.value)
    with pytest.raises(ValueError, match="advantages.shape is"):
        loss_fn(x, x, torch.ones(3), x)
    with pytest.raises(ValueError, match="mask.shape is"):
        loss_fn(x, x, torch.ones(2), torch.zeros(2, 4))


# ---- presets


@pytest.mark.parametrize("name", arl.VARIANTS)
def test_every_preset_is_a_config(name):
    cfg = replace(arl.RLConfig(), **arl.VARIANTS[name])
    assert cfg == arl.RLConfig(**arl.VARIANTS[name])
