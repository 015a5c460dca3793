"""Advantages: mean, mean over std, leave-one-out."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import agentrl as arl

ESTIMATORS = {
    "grpo": lambda r, g: arl.group_advantages(r, g),
    "mean": lambda r, g: arl.group_advantages(r, g, normalize_std=False),
    "rloo": lambda r, g: arl.rloo_advantages(r, g),
}
every = pytest.mark.parametrize("estimate", ESTIMATORS.values(), ids=ESTIMATORS)


@st.composite
def groups(draw):
    """Rewards of some groups, and the size of a group."""
    size, n = draw(st.integers(2, 6)), draw(st.integers(1, 4))
    values = st.sampled_from([0.0, 0.1, 0.35, 0.5, 1.0]) | st.floats(-5, 5, width=32)
    rewards = draw(st.lists(values, min_size=n * size, max_size=n * size))
    return torch.tensor(rewards, dtype=torch.float64), size


# ---- by hand


def test_mean_and_std_by_hand():
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0])
    std = 0.5  # unbiased: sqrt((9/16 + 3/16) / 3)
    got = arl.group_advantages(rewards, 4)
    expected = torch.tensor([0.75, -0.25, -0.25, -0.25]) / (std + 1e-6)
    torch.testing.assert_close(got, expected)
    got = arl.group_advantages(rewards, 4, normalize_std=False)
    assert got.tolist() == [0.75, -0.25, -0.25, -0.25]


def test_leave_one_out_by_hand():
    got = arl.rloo_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), 4)
    torch.testing.assert_close(got, torch.tensor([1.0, -1 / 3, -1 / 3, -1 / 3]))


def test_leave_one_out_of_seven_equal_rewards():
    got = arl.rloo_advantages(torch.tensor([0.35] * 7 + [0.0]), 8)
    assert got[-1].item() == pytest.approx(-0.35, abs=1e-6)


def test_std_is_taken_within_each_group():
    got = arl.group_advantages(torch.tensor([1.0, 0.0, 11.0, 10.0]), 2)
    expected = torch.tensor([1, -1, 1, -1]) * math.sqrt(0.5)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_the_small_constant_is_1e_6_beside_the_std():
    rewards = torch.tensor([0.0, 2e-6], dtype=torch.float64)
    std = math.sqrt(2) * 1e-6
    got = arl.group_advantages(rewards, 2)[1].item()
    assert got == pytest.approx(1e-6 / (std + 1e-6))


# ---- whole kinds


@every
@pytest.mark.parametrize("value", [0.1, 0.3, 1.0, 0.0, -0.7, 1e-8, 12345.678])
@pytest.mark.parametrize("size", [2, 3, 7, 8, 16])
def test_equal_rewards_give_exactly_zero_in_float32(estimate, value, size):
    advantages = estimate(torch.full((2 * size,), value), size)
    assert advantages.tolist() == [0.0] * (2 * size)


@every
@given(groups())
def test_a_group_counts_for_itself(estimate, batch):
    rewards, size = batch
    alone = [estimate(group, size) for group in rewards.split(size)]
    torch.testing.assert_close(
        estimate(rewards, size), torch.cat(alone), atol=1e-12, rtol=1e-12
    )


@every
@given(groups())
def test_advantages_sum_to_zero_and_follow_the_rewards(estimate, batch):
    rewards, size = batch
    for r, a in zip(rewards.split(size), estimate(*batch).split(size), strict=True):
        assert a.sum().item() == pytest.approx(0, abs=1e-6)
        if r.max() == r.min():
            assert not a.any()
        else:
            assert (a[r.argmax()] > 0) and (a[r.argmin()] < 0)


@every
@given(groups(), st.floats(-3, 3))
def test_a_constant_added_to_a_group_changes_nothing(estimate, batch, shift):
    rewards, size = batch
    groups_ = rewards.view(-1, size)
    spread = groups_.max(1).values - groups_.min(1).values
    assume(bool(((spread == 0) | (spread > 0.01)).all()))
    torch.testing.assert_close(
        estimate(rewards + shift, size), estimate(rewards, size), atol=1e-6, rtol=1e-6
    )


@given(groups())
def test_leave_one_out_is_the_mean_baseline_scaled(batch):
    rewards, size = batch
    mean = arl.group_advantages(rewards, size, normalize_std=False)
    loo = arl.rloo_advantages(rewards, size)
    torch.testing.assert_close(loo, mean * size / (size - 1), atol=1e-9, rtol=0)


@given(groups())
def test_leave_one_out_is_reward_minus_the_mean_of_the_others(batch):
    rewards, size = batch
    expected = []
    for group in rewards.view(-1, size).tolist():
        for i, r in enumerate(group):
            others = group[:i] + group[i + 1 :]
            expected.append(r - sum(others) / len(others))
    got = arl.rloo_advantages(rewards, size).tolist()
    assert got == pytest.approx(expected, abs=1e-9)


@given(groups())
def test_with_std_the_spread_of_a_group_is_one(batch):
    rewards, size = batch
    for r, a in zip(
        rewards.split(size),
        arl.group_advantages(rewards, size).split(size),
        strict=True,
    ):
        if r.max() - r.min() > 0.01:
            assert a.std().item() == pytest.approx(1, abs=1e-3)


@every
@given(groups())
def test_float32_agrees_with_float64(estimate, batch):
    rewards, size = batch
    spread = rewards.view(-1, size).max(1).values - rewards.view(-1, size).min(1).values
    assume(bool(((spread == 0) | (spread > 0.01)).all()))
    single, double = estimate(rewards.float(), size), estimate(rewards, size)
    assert single.dtype == torch.float32 and double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, atol=1e-3, rtol=1e-3)


@every
def test_the_rewards_are_not_changed(estimate):
    rewards = torch.tensor([1.0, 0.0, 0.5, 0.5])
    estimate(rewards, 2)
    assert rewards.tolist() == [1.0, 0.0, 0.5, 0.5]


@every
def test_rewards_of_whole_numbers_will_do(estimate):
    got = estimate(torch.tensor([1, 0]), 2)
    assert got.is_floating_point() and got[0] > 0


@every
@pytest.mark.parametrize(
    "rewards",
    [
        torch.tensor([True, False, False, True]),
        [True, False, False, True],
        torch.tensor([1, 0, 0, 1]),
        [1, 0.0, False, 1],
        np.array([True, False, False, True]),
        np.array([1, 0, 0, 1], dtype=np.int8),
    ],
)
def test_passed_or_not_is_one_or_zero(estimate, rewards):
    expected = estimate(torch.tensor([1.0, 0.0, 0.0, 1.0]), 2)
    assert estimate(rewards, 2).tolist() == expected.tolist()


def test_over_std_a_large_group_follows_two_arcsin_root_p():
    """1,000 attempts, p = 0.2: success and failure lie 1 / sqrt(p (1 - p)) apart."""
    rewards = (torch.arange(1000) < 200).double()
    a = arl.group_advantages(rewards, 1000)
    slope = 1 / math.sqrt(0.2 * 0.8)  # of 2 arcsin(sqrt p) by p
    assert (a[0] - a[-1]).item() == pytest.approx(slope, rel=1e-3)


# ---- errors


@every
@pytest.mark.parametrize("size", [1, 0, -2])
def test_a_lone_attempt_has_no_baseline(estimate, size):
    with pytest.raises(ValueError, match=f"group_size is {size};.*at least 2"):
        estimate(torch.tensor([1.0, 0.0]), size)


@every
@pytest.mark.parametrize("size", [2.0, "2", None, True])
def test_a_group_size_of_another_type_is_named(estimate, size):
    with pytest.raises(TypeError, match="group_size is .*integer"):
        estimate(torch.tensor([1.0, 0.0]), size)


@every
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38, -3e38])
@pytest.mark.parametrize("place", range(4))
def test_a_reward_that_is_not_finite_names_its_episode(estimate, bad, place):
    rewards = torch.zeros(4)
    rewards[place] = bad
    with pytest.raises(ValueError, match=rf"episode \[?{place}\]?.*finite") as e:
        estimate(rewards, 2)
    assert str(rewards[place].item()) in str(e.value)


@every
def test_a_reward_that_never_came_names_its_episode(estimate):
    with pytest.raises(ValueError, match="^reward of episode 1 is nan; .*finite"):
        estimate([0.0, None], 2)


@every
def test_rewards_that_do_not_make_groups_are_named(estimate):
    with pytest.raises(ValueError, match=r"len\(rewards\) is 5;.*group_size=2"):
        estimate(torch.zeros(5), 2)
    with pytest.raises(ValueError, match=r"len\(rewards\) is 0"):
        estimate(torch.zeros(0), 2)
    with pytest.raises(ValueError, match=r"rewards.shape is \(2, 2\)"):
        estimate(torch.zeros(2, 2), 2)
