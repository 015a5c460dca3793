"""When a group teaches: the closed form, and what is counted."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import trajectory

import agentrl as arl


@given(st.integers(0, 8), st.integers(1, 6))
def test_the_closed_form_is_the_sum_over_all_outcomes(eighths, size):
    p = eighths / 8
    exact = sum(
        p ** sum(rewards) * (1 - p) ** (size - sum(rewards))
        for rewards in itertools.product((0, 1), repeat=size)
        if len(set(rewards)) == 1
    )
    assert arl.p_all_equal(p, size) == pytest.approx(exact if size > 1 else 1.0)


def test_the_closed_form_by_hand():
    assert arl.p_all_equal(0.5, 2) == 0.5
    assert arl.p_all_equal(0.25, 2) == 0.625
    assert arl.p_all_equal(0, 8) == arl.p_all_equal(1, 8) == 1
    for p in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="p is .*at least 0, at most 1"):
            arl.p_all_equal(p, 8)
    with pytest.raises(ValueError, match="group_size is 0"):
        arl.p_all_equal(0.5, 0)


def test_informative_groups_are_contiguous():
    trajs = [trajectory(reward) for reward in (0, 0, 1, 1, 0, 1, 0, 1)]
    assert arl.informative_share(trajs, 2) == 0.5
    assert arl.informative_share(trajs, 4) == 1.0
    assert arl.informative_share(trajs, 1) == 0.0
    with pytest.raises(ValueError, match=r"len\(trajs\) is 8; .*group_size=3"):
        arl.informative_share(trajs, 3)
    with pytest.raises(ValueError, match=r"len\(trajs\) is 0"):
        arl.informative_share([], 3)
