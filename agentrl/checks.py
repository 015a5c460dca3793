# Generated from notebooks/99_1_checks.ipynb by book/tangle.py; edit the notebook.
"""Checks: errors that name the argument."""

# %% [imports]
import math
import numbers


# %% [require]
def require(ok, name, value, allowed, error=ValueError):
    """Raise `error` unless `ok` (workshop).

    The message names the argument, its value and what is allowed.
    """
    if not ok:
        raise error(f'{name} is {value!r}; allowed: {allowed}')


# %% [require-count]
def _require_type(value, kind, name, allowed):
    """Raise `TypeError` unless `value` is of this kind of numbers, and no `bool`."""
    ok = isinstance(value, kind) and not isinstance(value, bool)
    require(ok, name, value, f'{allowed}; not a {type(value).__name__}', TypeError)


def require_count(name, value, low=1):
    """Raise unless `value` is an integer (no `bool`) of at least `low` (workshop).

    Integers of NumPy are accepted.
    """
    allowed = f'an integer, at least {low}'
    _require_type(value, numbers.Integral, name, allowed)
    require(value >= low, name, value, allowed)


# %% [require-choice]
def require_choice(name, value, allowed):
    """Raise unless `value` is one of the words in `allowed` (workshop)."""
    require(isinstance(value, str) and value in allowed, name, value,
            'one of ' + ', '.join(map(repr, allowed)))


# %% [require-number]
def require_number(name, value, low=-math.inf, high=math.inf, open_low=False):
    """Raise unless `value` is a finite real number in the range (workshop).

    Both bounds are included; with `open_low`, `low` is not. Numbers of NumPy are
    accepted, a `bool` is not.
    """
    allowed = 'a finite number'
    if low > -math.inf:
        allowed += f', {"above" if open_low else "at least"} {low:.15g}'
    if high < math.inf:
        allowed += f', at most {high:.15g}'
    _require_type(value, numbers.Real, name, allowed)
    inside = low < value <= high if open_low else low <= value <= high
    require(inside and -math.inf < value < math.inf, name, value, allowed)


# %% [checked-reward]
def checked_reward(whose, reward):
    """The reward as a finite `float`, or a `ValueError` (workshop).

    A `bool`, a number of NumPy and a tensor without dimensions are accepted. `whose`
    completes the message: 'reward of episode 3 is None; ...'.
    """
    single = hasattr(reward, '__float__') and getattr(reward, 'ndim', 0) == 0
    try:
        value = float(reward) if single else math.nan
    except (OverflowError, RuntimeError, TypeError, ValueError):
        value = math.nan
    require(math.isfinite(value), f'reward of {whose}', reward, 'a finite number')
    return value


__all__ = [
    "require",
    "require_count",
    "require_choice",
    "require_number",
    "checked_reward",
]
