"""notebooks/conftest.py: which texts agree under which tags."""

import importlib.util
import re
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parent.parent / "notebooks" / "conftest.py"
SPEC = importlib.util.spec_from_file_location("book_conftest", PATH)
book_conftest = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(book_conftest)
Rule = book_conftest.Rule


@pytest.mark.parametrize(
    ("tags", "stored", "new"),
    [
        ([], "pass 0.50", "pass 0.50"),
        (["tol:0.02"], "pass 0.50", "pass 0.52"),
        (["tol:0.03"], "0.49", "0.52"),  # 0.52 - 0.49 > 0.03 in binary floats
        (["tol:0.02"], "pass 0.50 of 3 runs", "pass 0.48 of 3 runs"),
        (["tol:0.02"], "a  9.99 b", "a 10.01 b"),  # columns keep their width
        (["tol:0.02"], "[ 0.01 -0.01]", "[-0.01  0.01]"),
        (["tol:0.02"], "x = \u22120.01", "x = 0.01"),
        (["tol:0.02"], "[1.   0.5]", "[0.99 0.5 ]"),
        (["tol:0.02"], "0.50s", "0.51s"),
        (["tol:0.02"], "1e-05", "2e-05"),
        (["rtol:0.1"], "1.2e+03", "1.3e+03"),
        (["rtol:0.05"], "loss 200.0", "loss 210.0"),
        (["tol:0.1", "rtol:0.1"], "1.0", "1.2"),
        (["tol:0.02"], "nan 0.50", "nan 0.51"),
        (["tol:0.02"], "<td>0.50</td>", "<td>0.51</td>"),
        (["trained"], "12 of 16 pass", "none, nan"),
        (["other", "trained"], "1", "2"),
        # Nearly 0: with or without a tag, whatever the width of its column.
        ([], "difference 0", "difference 1.431e-06"),
        ([], "1e-14", "3e-15"),
        ([], "-0.00 | 0.00", "0.00 | -0.00"),
        ([], "0.000000", "0.000009"),
        ([], "0.000", "0.0000000"),
        ([], "a       0 | 1", "a 1.4e-06 | 1"),
        ([], "[0.   0.5]", "[1.4e-17 0.5]"),
        ([], "x = \u22121e-9", "x = 2e-9"),
        ([], "<td>0</td>", "<td>-8.9e-16</td>"),
        (["tol:1e-7"], "1e-14", "9e-6"),
        (["rtol:0.01"], "0", "9e-6"),
    ],
)
def test_texts_that_agree(tags, stored, new):
    assert Rule(tags).same(stored, new)


@pytest.mark.parametrize(
    ("tags", "stored", "new"),
    [
        ([], "pass 0.50", "pass 0.51"),
        ([], "pass  0.50", "pass 0.50"),
        (["hide-input"], "pass 0.50", "pass 0.51"),
        (["tol:0.02"], "pass 0.50", "pass 0.53"),
        (["tol:0.02"], "pass 0.50", "fail 0.50"),
        (["tol:2"], "3 of 16", "4 of 16"),
        (["tol:2"], "That was run 3. Next", "That was run 4. Next"),
        (["tol:2"], "3", "3.5"),
        (["tol:2"], "0.5 0.5", "0.5"),
        (["tol:2"], "0.5\n0.5", "0.5 0.5"),
        (["tol:2"], "1 2", "12"),
        (["tol:2"], "version 2.13.0", "version 2.14.0"),
        (["tol:2"], "w0.5", "w0.6"),
        (["tol:2"], "nan", "0.5"),
        (["tol:2"], "0.5", "nan"),
        (["tol:2"], "inf", "1.5"),
        (["rtol:0.05"], "loss 200.0", "loss 210.1"),
        (["rtol:0.5"], "0.0", "0.1"),
        (["tol:2"], "<b>0.5</b>", "<i>0.5</i>"),
        ([], "0.000", "0.5"),
        ([], "0.000", "0.001"),
        ([], "0", "1"),
        ([], "0 of 8", "1 of 8"),
        ([], "0.00001", "0.000001"),
        ([], "1e-5", "0"),
        ([], "0 0.50", "1e-9 0.51"),
        ([], "0  x", "0 x"),
        ([], "0 x", "1e-9 y"),
        ([], "0.50", "0.5"),
        ([], "nan", "0.0"),
        ([], "v0.0.0", "v0.0.1"),
        ([], "0 0", "0"),
    ],
)
def test_texts_that_differ(tags, stored, new):
    assert not Rule(tags).same(stored, new)


@pytest.mark.parametrize(
    "tag",
    ["tol=0.02", "tol:", "tol", "rtol:x", "tol:-1", "tol:0", "tol:nan", "tolx:1"],
)
def test_a_tag_that_is_not_understood(tag):
    with pytest.raises(ValueError, match=re.escape(repr(tag))):
        Rule([tag])


@pytest.mark.parametrize("tags", [[], ["tol:0.1"]])
@pytest.mark.parametrize(
    "text",
    ["1" * 40_000 + ".5.5", "1." * 20_000, "e1" * 20_000, "7 " * 20_000, "-" * 40_000],
)
def test_long_texts_take_no_longer_for_each_letter(tags, text):
    """Quadratic time would be minutes: far beyond any load of the machine."""
    assert not Rule(tags).same(text, text + "x")
    assert not Rule(tags).same("x" + text, text)


def test_long_texts_that_differ_are_shown_where_they_do():
    left, right = "a" * 9000 + "b" + "c" * 9000, "a" * 9000 + "d" + "c" * 9000
    shown = book_conftest.shorter(left, right)
    assert [len(text) for text in shown] == [2000, 2000]
    assert [text[1000] for text in shown] == ["b", "d"]
    assert book_conftest.shorter("a", "b") == ("a", "b")
    assert book_conftest.shorter(left, left + "x")[1].endswith("x")
