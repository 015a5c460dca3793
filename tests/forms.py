"""What one does with a form, and what one sees of it."""

import html
import re

from ipywidgets import HTML, Button, IntProgress
from waiting import PATIENCE


def run(explorer):
    explorer.train()
    explorer.wait(PATIENCE)
    assert not explorer.running
    return explorer


def start(explorer, gate):
    """Train until the gate holds the run."""
    explorer.train()
    assert gate.reached.wait(PATIENCE)
    assert explorer.running


def finish(explorer, gate):
    gate.go.set()
    explorer.wait(PATIENCE)
    assert not explorer.running


# ---- What a user sees of a form ----


def inside(widget, kind):
    """All widgets of a kind, from top to bottom."""
    if isinstance(widget, kind):
        yield widget
    for child in getattr(widget, "children", ()):
        yield from inside(child, kind)


def button(explorer, name):
    (found,) = (b for b in inside(explorer, Button) if b.description == name)
    return found


def text(value):
    return html.unescape(re.sub("<[^>]+>", "", value))


def lines(explorer, role="(?:status|alert)"):
    """The lines of text that a screen reader would read out."""
    values = [widget.value for widget in inside(explorer, HTML)]
    return [text(value) for value in values if re.match(f'<div role="{role}"', value)]


def status(explorer):
    return lines(explorer)[0]


def notices(explorer):
    """What a form says besides how far the run is."""
    return lines(explorer)[1:]


def curves(explorer):
    """The picture; here its alternative text, unless pictures are drawn."""
    return list(inside(explorer, HTML))[-2].value


def bar(explorer):
    (found,) = inside(explorer, IntProgress)
    return found.value, found.max


def results(explorer):
    return explorer.model, explorer.history, explorer.config


def same(found, expected):
    return all(a is b for a, b in zip(found, expected, strict=True))
