# Generated from notebooks/99_2_figures.ipynb by book/tangle.py; edit the notebook.
"""Figures and explorers."""

# %% [imports]
import html
import io
import itertools
import re
from urllib.parse import quote

import ipywidgets as widgets
import matplotlib as mpl
import matplotlib.pyplot as plt
from IPython import get_ipython
from matplotlib.figure import Figure
from matplotlib_inline.backend_inline import set_matplotlib_formats

from agentrl.checks import require, require_choice, require_count


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


# %% [svg-image]
def svg_image(fig, alt):
    """A figure as an `<img>` with alternative text and an SVG inside (section 0)."""
    file = io.StringIO()
    fig.savefig(file, format='svg', metadata={'Date': None})
    svg = file.getvalue()
    svg = re.sub(r'<metadata>.*?</metadata>|<!--.*?-->', '', svg[svg.index('<svg'):],
                 flags=re.S)
    # A hundredth of a point is enough, but for the factors that scale a letter.
    svg = re.sub(r'(scale\([^)]*\))|-?\d+\.\d{3,}',
                 lambda m: m[1] or f'{float(m[0]):.2f}'.rstrip('0').rstrip('.'), svg)
    svg = re.sub(r'\s+', ' ', svg).replace('> <', '><').replace('"', "'")
    data = quote(svg, safe=" '<>()[]{}/:;,=+?@!*$|^")   # less would only cost space
    return f'<img alt="{html.escape(alt)}" src="data:image/svg+xml,{data}">'


# %% [draw-choice]
def draw_choice(draw, choice, alt, max_bytes):
    """The HTML of one choice, checked (section 0): from a figure or a string."""
    name = ', '.join(f'{key} {value}' for key, value in choice.items())
    opened, drawn = plt.get_fignums(), None
    try:
        drawn = draw(**choice)
        text = alt(**choice) if callable(alt) else (alt or name).format(**choice)
    except Exception as error:
        what = 'draw' if drawn is None else '_alt'
        raise RuntimeError(f'{what} failed at {name}: {error!r}') from error
    finally:                # an open figure would be shown at the end of the cell
        for number in set(plt.get_fignums()) - set(opened):
            plt.close(number)
    require(isinstance(drawn, (str, Figure)), f'draw at {name}', drawn,
            'a Figure or a string of HTML', TypeError)
    with mpl.rc_context({'svg.hashsalt': 'agentrl'}):       # the same bytes each time
        shown = svg_image(drawn, text) if isinstance(drawn, Figure) else drawn
    require(len(shown) <= max_bytes, f'size at {name}', len(shown),
            f'at most {max_bytes} bytes (_max_bytes)')
    return shown


# %% [stack-up]
def stack_up(controls, shown):
    """Nested stacks of the texts `shown`, linked to `controls` (section 0)."""
    if not controls:
        return widgets.HTML(next(shown))
    first, *others = controls
    stack = widgets.Stack([stack_up(others, shown) for _ in first.options],
                          selected_index=first.index)
    widgets.jslink((first, 'index'), (stack, 'selected_index'))
    return stack


def make_control(kind, name, values, start):
    """A labelled slider or a row of buttons over `values` (section 0)."""
    options = [(str(value), i) for i, value in enumerate(values)]
    label = name.replace('_', ' ')
    make = widgets.SelectionSlider if kind == 'slider' else widgets.ToggleButtons
    return make(options=options, index=start, description=label, tooltip=label,
                style={'description_width': 'initial'})


# %% [slider-class]
class PictureSlider(widgets.VBox):
    """Controls above the pictures that they choose; needs no kernel (section 0).

    `controls` is a dict from name to widget, `default` the HTML of the start.
    """

    def __init__(self, controls, stack, default):
        super().__init__([*controls.values(), stack])
        self.controls, self.default = controls, default
        self.add_class('explorer')

    def _repr_mimebundle_(self, **kwargs):
        note = ('<p>(The controls that choose other pictures need JavaScript and, in '
                'JupyterLab, a trusted notebook.)</p>')
        bundle = super()._repr_mimebundle_(**kwargs)
        return bundle | {'text/html': self.default + note}


# %% [check-options]
def check_options(draw, options, control, start, alt):
    """Refuse bad arguments of `picture_slider`; -> kinds, indices of the start."""
    require(callable(draw), 'draw', draw, 'a function of the options', TypeError)
    require(alt is None or isinstance(alt, str) or callable(alt), '_alt', alt,
            'a text, or a function of the options', TypeError)
    require(1 <= len(options) <= 3, 'options', list(options), 'one to three controls')
    for name, values in options.items():
        require(isinstance(values, (list, tuple, range)), name, values,
                'a list of options', TypeError)
        require(len(values) > 0, name, values, 'at least one option')
    require(isinstance(start, dict), '_start', start, 'a dict of values', TypeError)
    require(isinstance(control, (str, list, tuple)), '_control', control,
            'a word, or one a control', TypeError)
    kinds = [control] * len(options) if isinstance(control, str) else list(control)
    require(len(kinds) == len(options), '_control', control, 'a word, or one a control')
    for kind in kinds:
        require_choice('_control', kind, ('slider', 'buttons'))
    for name, value in start.items():
        require(name in options, '_start', name, f'one of {list(options)}')
        require(value in options[name], f'_start[{name!r}]', value,
                f'one of {list(options[name])}')
    return kinds, {name: list(values).index(start.get(name, values[0]))
                   for name, values in options.items()}


# %% [picture-slider]
def picture_slider(draw, *, _control='slider', _start=None, _alt=None,
                   _max_bytes=100_000, **options):
    """An explorer: `draw(**choice)` once for every choice, then linked (section 0).

    `options`: one to three lists, by the name of their control. `draw` returns a Figure
    or HTML. `_control`: 'slider' or 'buttons', or one a control; `_start`: a dict of
    values; `_alt`: text with {name} in it, or a function of the choice.
    `ValueError`, `TypeError`: bad options, a picture over `_max_bytes`; `RuntimeError`:
    `draw` failed; all name the choice.
    """
    kinds, start = check_options(draw, options, _control, _start or {}, _alt)
    require_count('_max_bytes', _max_bytes)
    choices = (dict(zip(options, values, strict=True))
               for values in itertools.product(*options.values()))
    shown = [draw_choice(draw, choice, _alt, _max_bytes) for choice in choices]
    controls = {name: make_control(kind, name, options[name], start[name])
                for name, kind in zip(options, kinds, strict=True)}
    place = 0
    for name, values in options.items():
        place = place * len(values) + start[name]
    stack = stack_up(list(controls.values()), iter(shown))
    return PictureSlider(controls, stack, shown[place])


# %% [html-table]
def html_table(head, rows, caption=''):
    """A `<table>` of HTML cells; the first cell of a row names it (section 0)."""
    pad = ' style="padding: .15em .7em; text-align: left"'
    top = ''.join(f'<th scope="col"{pad}>{cell}</th>' for cell in head)
    body = ''.join(
        f'<tr><th scope="row"{pad}>{first}</th>'
        + ''.join(f'<td{pad}>{cell}</td>' for cell in cells) + '</tr>'
        for first, *cells in rows)
    return (f'<table style="border-collapse: collapse"><caption>{caption}</caption>'
            f'<tr>{top}</tr>{body}</table>')


def html_bar(size, color='blue', width=8):
    """A bar of `width` em times `size`, 0 to 1, for a table's cell (section 0)."""
    style = (f'display: inline-block; height: .7em; background: {PALETTE[color]}; '
             f'width: {max(size, 0) * width:.2f}em')
    return f'<span aria-hidden="true" style="{style}"></span>'


__all__ = [
    "Claim",
    "claim",
    "beside",
    "PALETTE",
    "LINES",
    "use_style",
    "svg_image",
    "draw_choice",
    "stack_up",
    "make_control",
    "PictureSlider",
    "check_options",
    "picture_slider",
    "html_table",
    "html_bar",
]
