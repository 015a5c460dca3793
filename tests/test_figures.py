"""Claims, argument checks, the figure style, and the names of the package."""

import ast
import json
import math
from pathlib import Path

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

# Those of the public interface, room by room. Explorers, studies and the picture slider
# belong to later rooms.
NAMES = """
    claim
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
