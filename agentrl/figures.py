# Generated from notebooks/00_figures.ipynb by book/tangle.py; edit the notebook.
"""How to read and run this book."""

# %% [imports]
import html
import json
import math
from pathlib import Path

import matplotlib as mpl
from IPython import get_ipython
from matplotlib_inline.backend_inline import set_matplotlib_formats


# %% [claim]
class Claim:
    """A checked sentence: text, value and allowed range, shown as a row (section 0)."""

    def __init__(self, text, value, low, high):
        self.text, self.value, self.low, self.high = text, float(value), low, high

    def __repr__(self):
        return f'{self.text}: {self.value:.4g} is in [{self.low:g}, {self.high:g}]'

    def _repr_html_(self):
        cells = (html.escape(self.text), f'{self.value:.4g}',
                 f'{self.low:g} to {self.high:g}', 'holds')
        row = ''.join(f'<td>{cell}</td>' for cell in cells)
        return f'<div class="claim"><table><tr>{row}</tr></table></div>'


# %% [claim-fn]
def claim(text, value, low, high):
    """Check that `value` lies in `[low, high]`, bounds included (section 0).

    Returns a `Claim`, displayed as a table row; raises `AssertionError` with the text
    of the claim when the value is outside or not a number.
    """
    value = float(value) + 0.0      # -0.0, which rounding makes, is shown as 0
    if not low <= value <= high:
        raise AssertionError(f'claim does not hold: {text}: '
                             f'{value:.6g} is not in [{low:g}, {high:g}]')
    return Claim(text, value, low, high)


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


# %% [read-study]
def read_study(path):
    """The results in a study file: `{arm: results}`, seed by seed (section 0).

    Each result is a dict: settings, `history`, and what was measured on both splits.
    """
    study = json.loads(Path(path).read_text(encoding='utf-8'))
    arms = {}
    for result in sorted(study['results'], key=lambda result: result['seed']):
        arms.setdefault(result['arm'], []).append(result)
    return arms


# %% [beside]
def beside(what, published, values, digits=2):
    """Print a published figure beside ours: mean and range over seeds (section 0).

    Says whether the published one, as printed, lies inside our range, above or below.
    """
    require(len(values) > 0, 'values', values, 'at least one')
    texts = [f'{x:.{digits}f}' for x in (
        published, sum(values) / len(values), min(values), max(values))]
    shown, _, low, high = map(float, texts)
    place = 'above' if shown > high else 'below' if shown < low else 'inside'
    ours = '{1} ({2} to {3})'.format(*texts)
    print(f'{what:<33} published {texts[0]} | ours {ours} | {place}')


# %% [palette]
PALETTE = {'blue': '#1f6fb4', 'orange': '#d1660a', 'green': '#2e8540', 'red': '#c02942',
           'purple': '#7a52a8', 'brown': '#7f5539', 'grey': '#6b7280'}
LINES = ('-', '--', '-.', ':')


# %% [style]
def use_style():
    """Set the figure style of this book: SVG, reproducible, one palette (section 0)."""
    mpl.rcParams.update({
        'figure.figsize': (6.4, 3.4), 'figure.facecolor': 'white',
        'figure.constrained_layout.use': True, 'font.size': 10,
        'axes.spines.top': False, 'axes.spines.right': False, 'axes.grid': True,
        'grid.color': '#e2e5ea', 'axes.axisbelow': True, 'legend.frameon': False,
        'lines.linewidth': 1.8, 'svg.hashsalt': 'agentrl', 'svg.fonttype': 'path',
        'axes.prop_cycle': mpl.cycler(color=list(PALETTE.values()))})
    if get_ipython():
        set_matplotlib_formats('svg', metadata={'Date': None})


__all__ = [
    "Claim",
    "claim",
    "require",
    "require_count",
    "require_choice",
    "require_number",
    "read_study",
    "beside",
    "PALETTE",
    "LINES",
    "use_style",
]
