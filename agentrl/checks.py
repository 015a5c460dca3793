# Generated from notebooks/99_1_checks.ipynb by book/tangle.py; edit the notebook.
"""Checks."""

# %% [imports]
import math


# %% [require]
def require(ok, name, value, allowed, error=ValueError):
    """Raise `error` unless `ok` (section 0).

    The message names the argument, its value and what is allowed.
    """
    if not ok:
        raise error(f'{name} is {value!r}; allowed: {allowed}')


# %% [require-count]
def require_count(name, value, low=1):
    """Raise unless `value` is an `int` (no `bool`) of at least `low` (section 0)."""
    is_int = isinstance(value, int) and not isinstance(value, bool)
    require(is_int, name, value, f'an integer, at least {low}', TypeError)
    require(value >= low, name, value, f'an integer, at least {low}')


def require_choice(name, value, allowed):
    """Raise unless `value` is one of the words in `allowed` (section 0)."""
    require(isinstance(value, str) and value in allowed, name, value,
            'one of ' + ', '.join(map(repr, allowed)))


# %% [require-number]
def require_number(name, value, low=-math.inf, high=math.inf, open_low=False):
    """Raise unless `value` is a finite real number in the given range (section 0).

    Bounds are included, but for `low` with `open_low`.
    """
    allowed = 'a finite number'
    if low > -math.inf:
        allowed += f', {"above" if open_low else "at least"} {low:g}'
    if high < math.inf:
        allowed += f', at most {high:g}'
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    require(real, name, value, allowed, TypeError)
    inside = low < value <= high if open_low else low <= value <= high
    require(math.isfinite(value) and inside, name, value, allowed)


__all__ = [
    "require",
    "require_count",
    "require_choice",
    "require_number",
]
