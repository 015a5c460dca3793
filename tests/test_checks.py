"""Checks of arguments: what they let through, and what they say of the rest."""

import math
import numbers
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import agentrl as arl

VALUES = st.one_of(
    st.integers(),
    st.floats(),
    st.booleans(),
    st.text(),
    st.none(),
    st.integers(-9, 9).map(np.int64),
    st.floats(width=32).map(np.float32),
)


def is_a(kind, value):
    return isinstance(value, kind) and not isinstance(value, bool)


def test_require_names_argument_value_and_what_is_allowed():
    arl.require(True, "n", 3, "anything")
    with pytest.raises(ValueError, match=r"^n is 'x'; allowed: a number$"):
        arl.require(False, "n", "x", "a number")
    with pytest.raises(TypeError):
        arl.require(False, "n", "x", "a number", TypeError)


# ---- counts


@given(VALUES)
def test_counts(value):
    is_int = is_a(numbers.Integral, value)
    if is_int and value >= 2:
        assert arl.require_count("n", value, low=2) is None
    else:
        error = ValueError if is_int else TypeError
        with pytest.raises(error, match="^n is .*at least 2") as e:
            arl.require_count("n", value, low=2)
        assert repr(value) in str(e.value)


@pytest.mark.parametrize("value", [4, np.int64(4), np.uint8(4), np.int32(4), 10**400])
def test_an_integer_of_any_kind_is_a_count(value):
    arl.require_count("n", value)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (4.0, "float"),
        (np.float64(4), "float64"),
        (True, "bool"),
        (np.True_, "bool"),
        (torch.tensor(4), "Tensor"),
        (np.array(4), "ndarray"),
        (Fraction(4), "Fraction"),
        ("4", "str"),
        (None, "NoneType"),
    ],
)
def test_what_prints_like_an_integer_and_is_none_is_refused_by_its_type(value, kind):
    with pytest.raises(TypeError, match=f"an integer, at least 1; not a {kind}_?$"):
        arl.require_count("n", value)


# ---- numbers


@given(VALUES)
def test_numbers(value):
    real = is_a(numbers.Real, value)
    if real and 0 < value <= 1:
        assert arl.require_number("x", value, 0, 1, open_low=True) is None
    else:
        error = ValueError if real else TypeError
        with pytest.raises(error, match="x is .*above 0.* 1"):
            arl.require_number("x", value, 0, 1, open_low=True)


@pytest.mark.parametrize(
    "value",
    [0, 1, 0.5, np.float32(1), np.float64(0.5), np.float16(0.5), np.int64(1),
     Fraction(1, 3)],
)  # fmt: skip
def test_a_number_of_any_kind_inside_closed_bounds(value):
    arl.require_number("x", value, 0, 1)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, np.float32("nan")])
def test_a_number_is_finite(value):
    with pytest.raises(ValueError, match="x is .*; allowed: a finite number$"):
        arl.require_number("x", value)


def test_a_number_too_large_for_a_float_is_compared_all_the_same():
    arl.require_number("x", 10**400, 0)
    with pytest.raises(ValueError, match="at most 1$"):
        arl.require_number("x", 10**400, 0, 1)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, "bool"),
        (torch.tensor(0.5), "Tensor"),
        (Decimal("0.5"), "Decimal"),
        ("0.5", "str"),
        (0.5 + 0j, "complex"),
    ],
)
def test_what_prints_like_a_number_and_is_none_is_refused_by_its_type(value, kind):
    with pytest.raises(TypeError, match=f"a finite number; not a {kind}$"):
        arl.require_number("x", value)


def test_a_bound_is_printed_so_that_it_does_not_contradict_the_value():
    with pytest.raises(ValueError) as e:
        arl.require_number("x", 16777217.5, 0.1, 16777217.25)
    allowed = "a finite number, at least 0.1, at most 16777217.25"
    assert str(e.value) == f"x is 16777217.5; allowed: {allowed}"


# ---- choices


def test_choices():
    assert arl.require_choice("mode", "a", ("a", "b")) is None
    for value in ("c", "", None, 3, ["a"]):
        with pytest.raises(ValueError, match="mode is .*'a', 'b'"):
            arl.require_choice("mode", value, ("a", "b"))


# ---- rewards


@pytest.mark.parametrize(
    "reward",
    [1, 1.0, True, np.True_, np.int64(1), np.float32(1), torch.tensor(1),
     torch.tensor(True), np.array(1.0), Fraction(1)],
)  # fmt: skip
def test_a_reward_of_any_kind_becomes_a_float(reward):
    value = arl.checked_reward("episode 3", reward)
    assert value == 1 and type(value) is float


def test_a_reward_keeps_its_bits():
    assert arl.checked_reward("episode 3", 0.1) == 0.1
    assert arl.checked_reward("episode 3", np.float32(0.1)) == float(np.float32(0.1))


@pytest.mark.parametrize(
    "reward",
    [None, "1", math.nan, math.inf, np.float32("nan"), torch.tensor(math.nan),
     torch.ones(1), np.ones(1), [1.0], 1j, 10**400],
)  # fmt: skip
def test_what_is_no_reward_is_refused_with_its_episode(reward):
    with pytest.raises(ValueError) as e:
        arl.checked_reward("episode 3", reward)
    assert str(e.value).startswith("reward of episode 3 is ")
    assert str(e.value).endswith("; allowed: a finite number")
