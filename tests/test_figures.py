"""Claims, published figures beside ours, the figure style, tables."""

import math
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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
    assert str(e.value) == (
        "claim does not hold: reads fade: 0.25 is not in [0.0, 0.1]"
    )


def test_a_claim_that_misses_by_a_bit_says_by_which():
    with pytest.raises(
        AssertionError, match=r"0\.6000000000000001 is not in \[.*0\.6\]"
    ):
        arl.claim("the sum", 0.1 + 0.2 + 0.3, 0, 0.6)


def test_a_claim_takes_numbers_of_any_library():
    for value in (np.float32(0.5), torch.tensor(0.5), True):
        shown = arl.claim("x", value, np.float32(0), torch.tensor(1))
        assert shown.value == float(value)
        assert repr(shown).endswith(" is in [0, 1]")


def test_a_claim_is_shown_as_a_row_of_a_table():
    shown = arl.claim("2 < 3 & so on", 0.25, 0, 1)
    row = shown._repr_html_()
    parts = {td.get("class"): td.text for td in ElementTree.fromstring(row).iter("td")}
    assert parts == {
        "claim-text": "2 < 3 & so on",
        "claim-value": "0.25",
        "claim-range": "0 to 1",
        "claim-verdict": "holds",
    }
    assert row.startswith('<div class="claim"><table>') and row.count("<tr>") == 1
    assert repr(shown) == "2 < 3 & so on: 0.25 is in [0, 1]"


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


# ---- style


def test_the_style_is_reproducible_and_reads_without_colour():
    with mpl.rc_context():
        arl.use_style()
        assert mpl.rcParams["svg.hashsalt"] == "agentrl"
        cycle = mpl.rcParams["axes.prop_cycle"].by_key()["color"]
    assert cycle == list(arl.PALETTE.values())
    assert len(set(cycle)) == len(cycle) >= 5  # one colour a variant
    assert len(set(arl.LINES)) == len(arl.LINES) >= 3


def test_what_draws_is_imported_when_something_is_drawn():
    """A program that trains waits for neither matplotlib nor widgets."""
    code = (
        "import sys, types\n"
        "package = types.ModuleType('agentrl')\n"
        "package.__path__ = [sys.argv[1]]\n"
        "sys.modules['agentrl'] = package\n"
        "import agentrl.figures\n"
        "print({name.split('.')[0] for name in sys.modules})"
    )
    folder = str(Path(arl.__file__).parent)
    command = [sys.executable, "-c", code, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not re.search("'(matplotlib|IPython|ipywidgets|torch)'", done.stdout)


# ---- tables


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
