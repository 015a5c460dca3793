"""Advantages from rewards, group by group."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from updates import NAN, config

import agentrl as arl


def batch_of(rewards, **more):
    return {"rewards": torch.as_tensor(rewards), **more}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("grpo", lambda r: arl.group_advantages(r, 4)),
        ("mean", lambda r: arl.group_advantages(r, 4, normalize_std=False)),
        ("rloo", lambda r: arl.rloo_advantages(r, 4)),
    ],
)
def test_the_mode_names_the_estimator(mode, expected):
    batch = batch_of([1.0, 0, 0, 0, 0.5, 0.2, 0.1, 0.9])
    got = arl.compute_advantages(batch, config(adv_mode=mode))
    assert torch.equal(got, expected(batch["rewards"]))


def test_the_overlong_ramp_by_hand():
    """Buffer 2 of 6 turns: 0 up to turn 4, -0.5 on turn 5, -1 on turn 6."""
    turns = torch.tensor([1.0, 4.0, 5.0, 6.0])
    cfg = config(overlong_buffer=2, adv_mode="mean")
    got = arl.compute_advantages(batch_of([1.0] * 4, n_turns=turns), cfg)
    shaped = torch.tensor([1.0, 1.0, 0.5, 0.0])
    torch.testing.assert_close(got, shaped - shaped.mean())


@given(st.integers(1, 9), st.integers(1, 9), st.lists(st.integers(1, 9), min_size=2))
def test_the_overlong_ramp_of_any_buffer(max_turns, buffer, turns):
    max_turns = max(max_turns, buffer)
    turns = torch.tensor(turns, dtype=torch.float64).clamp(max=max_turns)
    cfg = config(
        max_turns=max_turns,
        overlong_buffer=buffer,
        group_size=len(turns),
        adv_mode="mean",
    )
    rewards = torch.ones(len(turns), dtype=torch.float64)
    got = arl.compute_advantages({"rewards": rewards, "n_turns": turns}, cfg)
    late = [max(0.0, t - (max_turns - buffer)) / buffer for t in turns.tolist()]
    shaped = rewards - torch.tensor(late, dtype=torch.float64)
    torch.testing.assert_close(got, shaped - shaped.mean(), atol=1e-12, rtol=0)
    assert rewards.tolist() == [1.0] * len(turns)  # not changed in place


def test_what_advantages_need():
    assert arl.compute_advantages(batch_of([1.0, 0, 0, 0]), config())[0] > 0
    with pytest.raises(ValueError, match="batch is .*'n_turns' in it"):
        arl.compute_advantages(batch_of([1.0, 0, 0, 0]), config(overlong_buffer=2))
    for mode in ("grpo", "mean", "rloo"):
        with pytest.raises(ValueError, match="group_size is 1"):
            arl.compute_advantages(
                batch_of([1.0, 0.0]), config(group_size=1, adv_mode=mode)
            )
        with pytest.raises(ValueError, match=r"episode \[?1\]?"):
            arl.compute_advantages(batch_of([1.0, NAN, 0, 0]), config(adv_mode=mode))


@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.int8, torch.uint8])
@pytest.mark.parametrize("mode", ["grpo", "mean", "rloo"])
@pytest.mark.parametrize("buffer", [0, 2])
def test_rewards_that_are_no_floats_count_as_floats(kind, mode, buffer):
    """The penalty is a fraction: it must not be rounded to whole numbers."""
    turns = torch.tensor([6.0, 5.0, 2.0, 6.0, 6.0, 5.0, 1.0, 3.0])
    rewards = torch.tensor([1.0, 0, 0, 1, 0, 1, 1, 0])
    cfg = config(adv_mode=mode, overlong_buffer=buffer)
    expected = arl.compute_advantages(batch_of(rewards, n_turns=turns), cfg)
    got = arl.compute_advantages(batch_of(rewards.to(kind), n_turns=turns), cfg)
    assert got.dtype == torch.float32 and torch.equal(got, expected)
    whole = batch_of(rewards.to(kind), n_turns=turns.long())
    assert torch.equal(arl.compute_advantages(whole, cfg), expected)
