"""Explorers: every choice drawn, linked and described; pictures that stay true."""

import math
import re
from urllib.parse import unquote
from xml.etree import ElementTree

import ipywidgets as widgets
import matplotlib as mpl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt

import agentrl as arl


@pytest.fixture
def linked(monkeypatch):
    """Every pair that is tied together in the browser."""
    pairs = []
    monkeypatch.setattr(widgets, "jslink", lambda a, b: pairs.append((a, b)))
    return pairs


def leaves(stack):
    """The texts below nested stacks, in order."""
    if isinstance(stack, widgets.HTML):
        return [stack.value]
    return [text for child in stack.children for text in leaves(child)]


def named(**choice):
    return "<p>" + " ".join(f"{k}={v}" for k, v in choice.items()) + "</p>"


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_every_choice_is_drawn_once_and_linked(sizes, data):
    options = {f"c{i}": list(range(n)) for i, n in enumerate(sizes)}
    start = {name: data.draw(st.sampled_from(v)) for name, v in options.items()}
    drawn = []

    def draw(**choice):
        drawn.append(choice)
        return named(**choice)

    pairs = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(widgets, "jslink", lambda a, b: pairs.append((a, b)))
        shown = arl.picture_slider(draw, _start=start, **options)
    *controls, stack = shown.box.children
    assert leaves(stack) == [named(**choice) for choice in drawn]
    assert len(drawn) == len({str(d) for d in drawn}) == math.prod(sizes)
    # What a reader would see after moving each control to any place:
    for choice in drawn:
        place = dict(zip(controls, choice.values(), strict=True))
        seen = stack
        while not isinstance(seen, widgets.HTML):
            (control,) = {a[0] for a, b in pairs if b == (seen, "selected_index")}
            seen = seen.children[place[control]]
        assert seen.value == named(**choice)
    assert all(a[1] == "index" and b[1] == "selected_index" for a, b in pairs)
    assert shown.default == named(**start)


def test_the_controls_have_labels_options_and_a_start(linked):
    shown = arl.picture_slider(
        named, group_size=[4, 8], kind=["a b", "c"], _control=("slider", "buttons"),
        _start={"kind": "c"},
    )  # fmt: skip
    size, kind = shown.controls["group_size"], shown.controls["kind"]
    assert isinstance(size, widgets.SelectionSlider) and size.index == 0
    assert isinstance(kind, widgets.ToggleButtons) and kind.index == 1
    assert (size.description, [o[0] for o in kind.options]) == (
        "group size",
        ["a b", "c"],
    )
    assert len(linked) == 1 + 2
    bundle = shown._repr_mimebundle_()
    assert bundle["text/html"].startswith(named(group_size=4, kind="c"))
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == repr(shown) == "PictureSlider(group_size, kind)"


def bars(n):
    fig, ax = plt.subplots()
    ax.bar(range(n), range(n))
    ax.set_title("<&'\"%#>")
    return fig


@pytest.mark.parametrize(
    ("alt", "expected"),
    [
        ("{n} bars & more", "3 bars &amp; more"),
        (lambda n: f'"{n}"', "&quot;3&quot;"),
        (None, "n 3"),
    ],
)
def test_a_figure_becomes_an_image_with_its_text(linked, alt, expected):
    (text,) = leaves(arl.picture_slider(bars, n=[3], _alt=alt).box.children[-1])
    assert text.startswith(f'<img alt="{expected}" src="data:image/svg+xml,')
    assert text.count('"') == 4
    svg = unquote(text.split(",", 1)[1].removesuffix('">'))
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert not re.search(r" (d|x|y|width|height)='[^']*\d\.\d{3}", svg)
    assert not re.search(r"translate\([^)]*\d\.\d{3}", svg)
    assert "scale(0.015625)" in svg  # rounding it would change the size of letters
    assert plt.get_fignums() == []
    assert leaves(arl.picture_slider(bars, n=[3], _alt=alt).box.children[-1]) == [text]


@pytest.mark.parametrize(
    ("name", "option", "expected"),
    [
        ("weight", r"$\frac{1}{G}$", r"weight $\frac{1}{G}$"),
        ("weight", "{", "weight {"),
        ("weight", "{weight}", "weight {weight}"),
        ("a{b}", "x", "a{b} x"),
        ("k", {"a": 1}, "k {&#x27;a&#x27;: 1}"),
    ],
)
def test_the_name_of_a_choice_is_a_text_and_no_format(linked, name, option, expected):
    def draw(**choice):
        assert choice == {name: option}
        return bars(2)

    (text,) = leaves(arl.picture_slider(draw, **{name: [option]}).box.children[-1])
    assert text.startswith(f'<img alt="{expected}" src=')


# ---- what becomes of a picture


def faint(text, **style):
    fig, ax = plt.subplots(figsize=(2, 2))
    ax.plot([0, 1 / 3, 1], alpha=0.004, linewidth=1.23456, dashes=(1.23456, 2))
    ax.fill_between([0, 1], [0, 1], alpha=0.3333)
    ax.set_title(text)
    with mpl.rc_context(style):
        shown = arl.svg_image(fig, text)
    plt.close(fig)
    return shown


@pytest.mark.parametrize(
    "text",
    ["lr 0.0003", "1.23456789", 'say "hi" & <d="0.12345">', "it's 0.0001", "a  b",
     "d='M 0.12345 1'", "translate(0.12345)", "-->", "50 % #1"],
)  # fmt: skip
def test_words_and_opacities_keep_their_digits(text):
    shown = faint(text, **{"svg.fonttype": "none"})
    assert shown.count('"') == 4
    alt, _, data = shown.removeprefix('<img alt="').partition('" src="')
    root = ElementTree.fromstring(unquote(data.split(",", 1)[1].removesuffix('">')))
    assert text in ["".join(t.itertext()) for t in root.findall(".//{*}text")]
    assert text in ElementTree.fromstring(f'<i alt="{alt}"/>').get("alt")
    styles = " ".join(t.get("style", "") for t in root.iter())
    assert "opacity: 0.004" in styles and "stroke-width: 1.23456" in styles
    assert "opacity: 0.3333" in styles


def test_only_places_are_rounded():
    svg = unquote(faint("x"))
    assert "opacity: 0.004" in svg and "scale(0.12 -0.12)" in svg
    assert not re.search(r" (d|x|y|width|height)='[^']*\d\.\d{3}", svg)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({}, ValueError, r"options is \[\]; allowed: one to three"),
        ({k: [1] for k in "abcd"}, ValueError, "one to three"),
        ({"k": []}, ValueError, r"k is \[\]; allowed: at least one"),
        ({"k": 3}, TypeError, "k is 3; allowed: a list"),
        ({"k": "abc"}, TypeError, "k is 'abc'; allowed: a list"),
        ({"k": [1], "_control": "dial"}, ValueError, "_control is 'dial'"),
        ({"k": [1], "_control": ("slider",) * 2}, ValueError, "one for each"),
        ({"k": [1], "_control": 3}, TypeError, "_control is 3"),
        ({"k": [1], "_start": [1]}, TypeError, r"_start is \[1\]; .*a dict"),
        ({"k": [1], "_alt": 3}, TypeError, "_alt is 3; .*a text, or a function"),
        ({"k": [1], "_start": {"k": 2}}, ValueError, r"_start\['k'\] is 2; .*\[1\]"),
        ({"k": [1], "_start": {"j": 1}}, ValueError, "_start is 'j'"),
        ({"k": [1], "_max_bytes": 3}, ValueError, "size at k 1 is 10; .*3 bytes"),
        ({"k": [1], "_max_bytes": 0}, ValueError, "_max_bytes is 0"),
    ],
)
def test_what_an_explorer_refuses(linked, options, error, match):
    with pytest.raises(error, match=match):
        arl.picture_slider(named, **options)
    assert linked == []


def test_a_drawing_that_fails_is_named_and_leaves_no_figure(linked):
    def draw(G, k):
        plt.figure()
        return f"{1 / (G - k)}"

    with pytest.raises(
        RuntimeError, match="draw failed at G 3, k 3: ZeroDivision"
    ) as e:
        arl.picture_slider(draw, G=[3], k=[1, 2, 3])
    assert isinstance(e.value.__cause__, ZeroDivisionError)
    assert plt.get_fignums() == []
    for drawing in (named, bars):
        with pytest.raises(RuntimeError, match="_alt failed at n 1: KeyError"):
            arl.picture_slider(drawing, n=[1], _alt="{j}")
    assert plt.get_fignums() == []
    with pytest.raises(TypeError, match="draw at k 1 is 3; allowed: a Figure or a str"):
        arl.picture_slider(lambda k: 3, k=[1])
    with pytest.raises(TypeError, match="draw is 3; allowed: a function"):
        arl.picture_slider(3, k=[1])
