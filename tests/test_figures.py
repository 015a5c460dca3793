"""Claims, argument checks, the figure style, and the names of the package."""

import ast
import json
import math
import re
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import ipywidgets as widgets
import matplotlib as mpl
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt

import agentrl as arl

# ---- claims


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [(0.5, 0.4, 0.6), (0.4, 0.4, 0.6), (0.6, 0.4, 0.6), (1, 1, 1), (5, 0, math.inf)],
)
def test_a_claim_holds_with_its_bounds(value, low, high):
    shown = arl.claim("it learns", value, low, high)
    assert (shown.text, shown.value, shown.low, shown.high) == (
        "it learns",
        value,
        low,
        high,
    )


def test_a_claim_shows_a_rounded_zero_without_a_sign():
    shown = arl.claim("no difference", round(-1e-9, 5), 0, 0)
    assert "-0" not in repr(shown) + shown._repr_html_()


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        (0.39999999, 0.4, 0.6),
        (0.60000001, 0.4, 0.6),
        (math.nan, 0.4, 0.6),
        (math.nan, -math.inf, math.inf),
        (math.inf, 0, 1),
        (0.5, 0.6, 0.4),
        (0.5, math.nan, 1),
    ],
)
def test_a_false_claim_raises_and_names_itself(value, low, high):
    with pytest.raises(AssertionError, match="it learns"):
        arl.claim("it learns", value, low, high)


@given(st.floats(), st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_a_claim_holds_exactly_inside_its_range(value, low, high):
    inside = low <= value <= high
    try:
        arl.claim("x", value, low, high)
    except AssertionError:
        assert not inside
    else:
        assert inside


def test_a_claim_says_what_and_how_much_when_false():
    with pytest.raises(AssertionError) as e:
        arl.claim("reads fade", 0.25, 0, 0.1)
    assert all(part in str(e.value) for part in ("reads fade", "0.25", "[0, 0.1]"))


def test_a_claim_takes_numbers_of_any_library():
    for value in (np.float32(0.5), torch.tensor(0.5), True):
        assert arl.claim("x", value, 0, 1).value == float(value)


def test_a_claim_is_shown_as_a_row_of_a_table():
    shown = arl.claim("2 < 3 & so on", 0.25, 0, 1)
    row = shown._repr_html_()
    assert "2 &lt; 3 &amp; so on" in row and "<td>0.25</td>" in row
    assert row.count("<tr>") == 1
    assert repr(shown) == "2 < 3 & so on: 0.25 is in [0, 1]"


# ---- checks of arguments


def test_require_names_argument_value_and_what_is_allowed():
    arl.require(True, "n", 3, "anything")
    with pytest.raises(ValueError, match=r"^n is 'x'; allowed: a number$"):
        arl.require(False, "n", "x", "a number")
    with pytest.raises(TypeError):
        arl.require(False, "n", "x", "a number", TypeError)


@given(st.integers() | st.floats() | st.booleans() | st.text() | st.none())
def test_counts(value):
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if is_int and value >= 2:
        arl.require_count("n", value, low=2)
    else:
        error = ValueError if is_int else TypeError
        with pytest.raises(error, match="^n is .*at least 2") as e:
            arl.require_count("n", value, low=2)
        assert repr(value) in str(e.value)


@given(st.integers() | st.floats() | st.booleans() | st.text() | st.none())
def test_numbers(value):
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    if real and 0 < value <= 1:
        arl.require_number("x", value, 0, 1, open_low=True)
    else:
        with pytest.raises(
            ValueError if real else TypeError, match="x is .*above 0.* 1"
        ):
            arl.require_number("x", value, 0, 1, open_low=True)


def test_numbers_are_finite_and_a_closed_bound_counts():
    arl.require_number("x", 0, 0, 1)
    for value in (math.inf, -math.inf, math.nan):
        with pytest.raises(ValueError, match="x is .*finite"):
            arl.require_number("x", value)


def test_choices():
    arl.require_choice("mode", "a", ("a", "b"))
    for value in ("c", "", None, 3, ["a"]):
        with pytest.raises(ValueError, match="mode is .*'a', 'b'"):
            arl.require_choice("mode", value, ("a", "b"))


# ---- figures


def test_the_style_is_reproducible_and_reads_without_colour():
    with mpl.rc_context():
        arl.use_style()
        assert mpl.rcParams["svg.hashsalt"] == "agentrl"
        cycle = mpl.rcParams["axes.prop_cycle"].by_key()["color"]
    assert cycle == list(arl.PALETTE.values())
    assert len(set(cycle)) == len(cycle) >= 5  # one colour a variant
    assert len(set(arl.LINES)) == len(arl.LINES) >= 3


# ---- the names of the package

# Those of the public interface, room by room.
NAMES = """
    claim picture_slider
    Task FAMILIES make_tasks FIX_OPS EDIT_OPS FIX_OP compact_source run_tests parse_call
    MESSAGES BugFixEnv
    Tokenizer build_tokenizer make_base_agent Trajectory MAX_CALL_TOKENS rollout_batch
    collate
    selected_log_probs entropy_from_logits masked_mean aggregate_loss group_advantages
    rloo_advantages ppo_policy_loss
    RLConfig make_env EditBudgetEnv FN_NAMES randomize_names sample_groups
    behavior_stats compute_advantages kl_penalty policy_loss gspo_policy_loss
    cispo_policy_loss rl_update sample_step train_rl evaluate make_rl_base VARIANTS
    compare blind_pass_rate read_then_edit
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_every_public_name_is_there(name):
    assert name in arl.__all__
    assert hasattr(arl, name)


def test_all_is_complete_and_without_repeats():
    assert len(set(arl.__all__)) == len(arl.__all__)
    public = {
        name
        for name, value in vars(arl).items()
        if not name.startswith("_") and type(value) is not type(arl)
    }
    assert public == set(arl.__all__)


def test_every_function_and_class_says_what_it_is_for():
    for name in arl.__all__:
        thing = getattr(arl, name)
        if callable(thing):
            assert thing.__doc__, name


def test_the_order_of_imports_has_no_cycle():
    """Each module imports only modules that the package has imported before it."""
    folder = Path(arl.__file__).parent
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    order = [n.module for n in tree.body if isinstance(n, ast.ImportFrom)]
    for i, module in enumerate(order):
        path = folder / f"{module.split('.')[1]}.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("agentrl"):
                assert node.module in order[:i]


# ---- Published figures beside ours


@pytest.mark.parametrize(
    ("published", "place"), [(0.5, "inside"), (0.61, "above"), (0.39, "below")]
)
def test_a_published_figure_beside_ours(capsys, published, place):
    arl.beside("pass", published, [0.4, 0.5, 0.6])
    line = capsys.readouterr().out.rstrip()
    assert line.startswith("pass ") and line.endswith(f"| {place}")
    assert f"published {published:.2f} | ours 0.50 (0.40 to 0.60)" in line


def test_the_digits_of_a_published_figure(capsys):
    arl.beside("episodes", 64, [63, 66], digits=0)
    assert "published 64 | ours 64 (63 to 66) | inside" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"values is \[\]"):
        arl.beside("pass", 0.5, [])


def test_a_study_is_read_arm_by_arm_and_seed_by_seed(tmp_path):
    path = tmp_path / "study.json"
    results = [{"arm": a, "seed": s} for a, s in (("b", 2), ("a", 1), ("b", 0))]
    path.write_text(json.dumps({"study": "x", "results": results}), encoding="utf-8")
    found = arl.read_study(path)
    assert found == arl.read_study(str(path))
    assert [r["seed"] for r in found["b"]] == [0, 2] and len(found["a"]) == 1


# ---- Explorers


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
    *controls, stack = shown.children
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
    (text,) = leaves(arl.picture_slider(bars, n=[3], _alt=alt).children[-1])
    assert text.startswith(f'<img alt="{expected}" src="data:image/svg+xml,')
    assert text.count('"') == 4
    svg = unquote(text.split(",", 1)[1].removesuffix('">'))
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert not re.search(r"\d\.\d{3}", re.sub(r"scale\([^)]*\)", "", svg))
    assert "scale(0.015625)" in svg  # rounding it would change the size of letters
    assert plt.get_fignums() == []
    assert leaves(arl.picture_slider(bars, n=[3], _alt=alt).children[-1]) == [text]


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({}, ValueError, r"options is \[\]; allowed: one to three"),
        ({k: [1] for k in "abcd"}, ValueError, "one to three"),
        ({"k": []}, ValueError, r"k is \[\]; allowed: at least one"),
        ({"k": 3}, TypeError, "k is 3; allowed: a list"),
        ({"k": "abc"}, TypeError, "k is 'abc'; allowed: a list"),
        ({"k": [1], "_control": "dial"}, ValueError, "_control is 'dial'"),
        ({"k": [1], "_control": ("slider",) * 2}, ValueError, "one a control"),
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
    with pytest.raises(RuntimeError, match="_alt failed at k 1: KeyError"):
        arl.picture_slider(named, k=[1], _alt="{j}")
    with pytest.raises(TypeError, match="draw at k 1 is 3; allowed: a Figure or a str"):
        arl.picture_slider(lambda k: 3, k=[1])
    with pytest.raises(TypeError, match="draw is 3; allowed: a function"):
        arl.picture_slider(3, k=[1])


def test_a_table_names_its_rows_and_columns():
    table = ElementTree.fromstring(
        arl.html_table(["a", "b"], [("x", "1"), ("y", "<b>2</b>")], "all")
    )
    assert [th.get("scope") for th in table.iter("th")] == ["col"] * 2 + ["row"] * 2
    assert ["".join(td.itertext()) for td in table.iter("td")] == ["1", "2"]
    assert table.find("caption").text == "all"


def test_a_bar_is_as_long_as_its_value():
    assert "width: 4.00em" in arl.html_bar(0.5)
    assert "width: 0.00em" in arl.html_bar(-1)
    assert arl.PALETTE["red"] in arl.html_bar(1, "red")
