# Generated from notebooks/99_2_figures.ipynb by book/tangle.py; edit the notebook.
"""Figures and explorers."""

# %% [imports]
import html
import io
import itertools
import re
from urllib.parse import quote

from agentrl.checks import require, require_choice, require_count


# %% [claim]
class Claim:
    """A checked sentence: text, value, allowed range; shown as a row (workshop)."""

    def __init__(self, text, value, low, high):
        self.text, self.value, self.low, self.high = text, float(value), low, high

    def __repr__(self):
        return f'{self.text}: {self.value:.4g} is in [{self.low:g}, {self.high:g}]'

    def _repr_html_(self):
        cells = {'text': html.escape(self.text), 'value': f'{self.value:.4g}',
                 'range': f'{self.low:g} to {self.high:g}', 'verdict': 'holds'}
        row = ''.join(f'<td class="claim-{k}">{cell}</td>' for k, cell in cells.items())
        return f'<div class="claim"><table><tr>{row}</tr></table></div>'


# %% [claim-fn]
def claim(text, value, low, high):
    """Check that `value` lies in `[low, high]`, bounds included (workshop).

    Returns a `Claim`, displayed as a table row; raises `AssertionError` with the text
    of the claim when the value is outside or not a number.
    """
    value, low, high = float(value), float(low), float(high)
    if not low <= value <= high:
        raise AssertionError(
            f'claim does not hold: {text}: {value} is not in [{low}, {high}]')
    return Claim(text, value + 0.0, low, high)      # -0.0, from rounding, is shown as 0


# %% [beside]
def beside(what, published, values, digits=2):
    """Print a published figure beside ours: mean and range over seeds (workshop).

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
    """Set the figure style of this book: SVG, one palette (workshop)."""
    import matplotlib as mpl
    from IPython import get_ipython
    from matplotlib_inline.backend_inline import set_matplotlib_formats

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
_PLACES = 'cx cy d height points r rx ry viewBox width x x1 x2 y y1 y2'.split()
_PLACE = re.compile(rf' (?:{"|".join(_PLACES)})="[^"]*"|translate\([^)]*\)')


def _shorten_tag(tag):
    """A tag of SVG with short coordinates, and quotes that a data URL can hold."""
    tag = re.sub(r'\s+', ' ', tag[0])
    tag = _PLACE.sub(lambda place: re.sub(
        r'-?\d+\.\d{3,}(?!\d|e)',
        lambda x: f'{float(x[0]):.2f}'.rstrip('0').rstrip('.'), place[0]), tag)
    return tag.replace("'", '&#39;').replace('"', "'")


def svg_image(fig, alt):
    """A figure as an `<img>` with alternative text and an SVG inside (workshop)."""
    file = io.StringIO()
    fig.savefig(file, format='svg', metadata={'Date': None})
    svg = file.getvalue()
    svg = svg[svg.index('<svg'):].strip()
    svg = re.sub(r'(?s)<metadata>.*?</metadata>|<!--.*?-->', '', svg)
    svg = re.sub(r'<[^<>]+>', _shorten_tag, re.sub(r'>\s+<', '><', svg))
    data = quote(svg, safe=" '<>()[]{}/:;,=+?@!*$|^")   # less would only cost space
    return f'<img alt="{html.escape(alt)}" src="data:image/svg+xml,{data}">'


# %% [draw-choice]
def _draw_choice(draw, choice, alt, max_bytes):
    """The HTML of one choice, checked: from a figure or a string."""
    import matplotlib.pyplot as plt

    name = ', '.join(f'{key} {value}' for key, value in choice.items())
    opened, drawn = plt.get_fignums(), None
    try:
        drawn = draw(**choice)
        text = alt and (alt(**choice) if callable(alt) else alt.format(**choice))
    except Exception as error:
        what = 'draw' if drawn is None else '_alt'
        raise RuntimeError(f'{what} failed at {name}: {error!r}') from error
    finally:                # an open figure would be shown at the end of the cell
        for number in set(plt.get_fignums()) - set(opened):
            plt.close(number)
    require(isinstance(drawn, (str, plt.Figure)), f'draw at {name}', drawn,
            'a Figure or a string of HTML', TypeError)
    if not isinstance(drawn, str):
        with plt.rc_context({'svg.hashsalt': 'agentrl'}):   # the same bytes each time
            drawn = svg_image(drawn, text or name)
    require(len(drawn) <= max_bytes, f'size at {name}', len(drawn),
            f'at most {max_bytes} bytes (_max_bytes)')
    return drawn


# %% [stack-up]
def _stack_up(controls, shown):
    """Nested stacks of the texts `shown`, linked to `controls`."""
    import ipywidgets as widgets

    if not controls:
        return widgets.HTML(next(shown))
    first, *others = controls
    stack = widgets.Stack([_stack_up(others, shown) for _ in first.options],
                          selected_index=first.index)
    widgets.jslink((first, 'index'), (stack, 'selected_index'))
    return stack


# %% [make-control]
def _make_control(kind, name, values, start):
    """A labelled slider or a row of buttons over `values`."""
    import ipywidgets as widgets

    options = [(str(value), i) for i, value in enumerate(values)]
    first = list(values).index(start)
    label = name.replace('_', ' ')
    make = widgets.SelectionSlider if kind == 'slider' else widgets.ToggleButtons
    return make(options=options, index=first, description=label, tooltip=label,
                style={'description_width': 'initial'})


# %% [slider-class]
class PictureSlider:
    """What `picture_slider` returns: controls and their pictures (workshop).

    `controls` is a dict from name to widget, `box` the widget with all of them, and
    `default` the HTML of the start.
    """

    def __init__(self, controls, stack, default):
        import ipywidgets as widgets

        self.controls, self.default = controls, default
        self.box = widgets.VBox([*controls.values(), stack])
        self.box.add_class('explorer')

    def __repr__(self):
        return f'PictureSlider({", ".join(self.controls)})'

    def _repr_mimebundle_(self, **kwargs):
        note = ('<p>(The controls that choose other pictures need JavaScript and, in '
                'JupyterLab, a trusted notebook.)</p>')
        bundle = self.box._repr_mimebundle_(**kwargs)
        return bundle | {'text/plain': repr(self), 'text/html': self.default + note}


# %% [check-options]
def _check_settings(draw, options, control, start, alt):
    """Refuse what `picture_slider` cannot use, before anything is drawn."""
    require(callable(draw), 'draw', draw, 'a function of the options', TypeError)
    require(alt is None or isinstance(alt, str) or callable(alt), '_alt', alt,
            'a text, or a function of the options', TypeError)
    require(1 <= len(options) <= 3, 'options', list(options), 'one to three controls')
    for name, values in options.items():
        require(isinstance(values, (list, tuple, range)), name, values,
                'a list of options', TypeError)
        require(len(values) > 0, name, values, 'at least one option')
    require(isinstance(start, dict), '_start', start, 'a dict of values', TypeError)
    for name, value in start.items():
        require(name in options, '_start', name, f'one of {list(options)}')
        require(value in options[name], f'_start[{name!r}]', value,
                f'one of {list(options[name])}')
    require(isinstance(control, (str, list, tuple)), '_control', control,
            'a word, or one for each control', TypeError)
    require(isinstance(control, str) or len(control) == len(options), '_control',
            control, 'a word, or one for each control')
    for kind in [control] if isinstance(control, str) else control:
        require_choice('_control', kind, ('slider', 'buttons'))


# %% [picture-slider]
def picture_slider(draw, *, _control='slider', _start=None, _alt=None,
                   _max_bytes=100_000, **options):
    """An explorer: `draw(**choice)` once for every choice, then linked (workshop).

    `options`: one to three lists, by the name of their control. `draw` returns a Figure
    or HTML. `_control`: 'slider' or 'buttons', or one for each; `_start`: a dict of
    values; `_alt`: text with {name} in it, or a function of the choice.
    `ValueError`, `TypeError`: bad options, a picture over `_max_bytes`; `RuntimeError`:
    `draw` failed; all name the choice.
    """
    _check_settings(draw, options, _control, _start or {}, _alt)
    require_count('_max_bytes', _max_bytes)
    start = {name: values[0] for name, values in options.items()} | (_start or {})
    kinds = [_control] * len(options) if isinstance(_control, str) else _control
    choices = [dict(zip(options, values, strict=True))
               for values in itertools.product(*options.values())]
    shown = [_draw_choice(draw, choice, _alt, _max_bytes) for choice in choices]
    controls = {name: _make_control(kind, name, options[name], start[name])
                for name, kind in zip(options, kinds, strict=True)}
    stack = _stack_up([*controls.values()], iter(shown))
    return PictureSlider(controls, stack, shown[choices.index(start)])


# %% [html-table]
def html_table(head, rows, caption=''):
    """A `<table>` of HTML cells; the first cell of a row names it (workshop)."""
    pad = ' style="padding: .15em .7em; text-align: left"'
    top = ''.join(f'<th scope="col"{pad}>{cell}</th>' for cell in head)
    body = ''.join(
        f'<tr><th scope="row"{pad}>{first}</th>'
        + ''.join(f'<td{pad}>{cell}</td>' for cell in cells) + '</tr>'
        for first, *cells in rows)
    return (f'<table style="border-collapse: collapse"><caption>{caption}</caption>'
            f'<tr>{top}</tr>{body}</table>')


def html_bar(size, color='blue', width=8):
    """A bar of `width` em times `size`, 0 to 1, for a table's cell (workshop)."""
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
    "PictureSlider",
    "picture_slider",
    "html_table",
    "html_bar",
]
