"""notebooks/conftest.py: what nbval lets differ, and what it does not."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parent.parent
WIDGET = "application/vnd.jupyter.widget-view+json"


def load_rule():
    """The class Rule; the conftest also sets the environment, which is put back."""
    path = ROOT / "notebooks" / "conftest.py"
    spec = importlib.util.spec_from_file_location("book_conftest", path)
    module = importlib.util.module_from_spec(spec)
    before = dict(os.environ)
    spec.loader.exec_module(module)
    os.environ.clear()
    os.environ.update(before)
    return module.Rule


Rule = load_rule()


# ---- the rule on its own


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


# ---- the rule in nbval


def shown(**data):
    """A display output; `html` for `text/html` and so on."""
    kinds = {"plain": "text/plain", "html": "text/html", "svg": "image/svg+xml"}
    data = {kinds.get(kind, kind): value for kind, value in data.items()}
    return {"output_type": "display_data", "metadata": {}, "data": data}


def printed(text, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text}


def display(data):
    return f"from IPython.display import display\ndisplay({data!r}, raw=True)"


SVG = "<svg><path d='M 0 {} L 1 1'/></svg>"
TABLE = "<table><tr><td>{}</td></tr></table>"
IMG = "<noscript><img alt='{}' src=\"data:image/svg+xml;base64,{}\"></noscript>"
CLAIM = (
    "def claim(text, value, low, high):\n    assert low <= value <= high, text\n\n\n"
)

# name of the cell: (does it pass, tags, source, stored outputs)
CELLS = {
    "same": (True, [], "print('two', 2, 0.5)", [printed("two 2 0.5\n")]),
    "word": (False, [], "print('two')", [printed("too\n")]),
    "float-untagged": (False, [], "print(0.5)", [printed("0.51\n")]),
    "float-within": (True, ["tol:0.02"], "print(0.5)", [printed("0.51\n")]),
    "float-beyond": (False, ["tol:0.02"], "print(0.5)", [printed("0.53\n")]),
    "float-relative": (True, ["rtol:0.1"], "print(9.5)", [printed("10.1\n")]),
    "integer": (False, ["tol:2"], "print(3, 0.5)", [printed("4 0.5\n")]),
    "nan": (False, ["tol:2"], "print(float('nan'))", [printed("0.5\n")]),
    "bad-tag": (False, ["tol=1"], "print(0.5)", [printed("0.5\n")]),
    "trained": (
        True,
        ["trained"],
        f"{CLAIM}print(7, 'of 16')\nclaim('half', 0.5, 0.4, 0.6)",
        [printed("9 of 16\n")],
    ),
    "trained-false-claim": (
        False,
        ["trained"],
        f"{CLAIM}print(7)\nclaim('half', 0.5, 0.6, 0.7)",
        [printed("7\n")],
    ),
    "trained-other-kind": (False, ["trained"], "print(7)", [shown(plain="7")]),
    "trained-fewer": (
        False,
        ["trained"],
        display({"text/html": "<b>1</b>"}),
        [shown(html="<b>1</b>"), shown(html="<b>2</b>")],
    ),
    "trained-data": (
        True,
        ["trained"],
        display({"application/json": {"a": 1}}),
        [shown(**{"application/json": {"a": 2}})],
    ),
    "data": (
        False,
        [],
        display({"application/json": {"a": 1}}),
        [shown(**{"application/json": {"a": 2}})],
    ),
    "svg": (
        True,
        [],
        display({"image/svg+xml": SVG.format(1), "text/plain": "<Figure>"}),
        [shown(svg=SVG.format(2), plain="<Figure>")],
    ),
    "svg-missing": (
        False,
        [],
        display({"text/plain": "<Figure>"}),
        [shown(svg=SVG.format(2), plain="<Figure>")],
    ),
    "png": (
        True,
        [],
        display({"image/png": "AAAA", "text/plain": "<Figure>"}),
        [shown(**{"image/png": "BBBB", "plain": "<Figure>"})],
    ),
    "png-missing": (
        False,
        [],
        display({"text/plain": "<Figure>"}),
        [shown(**{"image/png": "BBBB", "plain": "<Figure>"})],
    ),
    "svg-in-html": (
        True,
        [],
        display({"text/html": "<b>x</b>" + SVG.format(1) + IMG.format("x", "AAAA")}),
        [shown(html="<b>x</b>" + SVG.format(2) + IMG.format("x", "BBBB"))],
    ),
    "alt": (
        False,
        [],
        display({"text/html": IMG.format("curve", "AAAA")}),
        [shown(html=IMG.format("curves", "AAAA"))],
    ),
    "html": (
        False,
        [],
        display({"text/html": TABLE.format(0.5)}),
        [shown(html=TABLE.format(0.51))],
    ),
    "html-within": (
        True,
        ["tol:0.02"],
        display({"text/html": TABLE.format(0.5)}),
        [shown(html=TABLE.format(0.51))],
    ),
    "widget": (
        True,
        [],
        display({WIDGET: {"model_id": "a1"}, "text/plain": "HBox(1"}),
        [shown(**{WIDGET: {"model_id": "1"}, "plain": "HBox(2"})],
    ),
    "widget-missing": (
        False,
        [],
        display({"text/plain": "HBox(1"}),
        [shown(**{WIDGET: {"model_id": "1"}, "plain": "HBox(1"})],
    ),
    "none-stored": (False, [], "print(1)", []),
    "none-printed": (False, [], "x = 1", [printed("1\n")]),
    "stream": (False, [], "print(1)", [printed("1\n", "stderr")]),
    "streams-merge": (
        True,
        [],
        "import sys\nprint(1, flush=True)\nprint(2, file=sys.stderr)\nprint(3)",
        [printed("1\n3\n"), printed("2\n", "stderr")],
    ),
    "address": (True, [], "print(object())", [printed("<object object at 0x…>\n")]),
    "environment": (
        True,
        [],
        "import os\nprint([os.environ.get(k) for k in ("
        "'OMP_NUM_THREADS', 'SOURCE_DATE_EPOCH', 'PYTHONHASHSEED')])",
        [printed("['1', '0', '0']\n")],
    ),
}


def write(root, name, cells, run=True):
    notebook = {
        "cells": [
            {
                "cell_type": "code",
                "execution_count": 1 if run else None,
                "id": f"c{number}",
                "metadata": {"tags": tags},
                "outputs": outputs,
                "source": source,
            }
            for number, (_, tags, source, outputs) in enumerate(cells)
        ],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (root / "notebooks" / name).write_text(json.dumps(notebook), encoding="utf-8")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """(notebook, cell number) -> PASSED or FAILURE, of one run on two workers."""
    root = tmp_path_factory.mktemp("rule")
    (root / "notebooks").mkdir()
    (root / "book").mkdir()
    shutil.copy(ROOT / "notebooks" / "conftest.py", root / "notebooks")
    shutil.copy(ROOT / "book" / "outputs.py", root / "book")
    shutil.copy(ROOT / "book" / "matplotlibrc", root / "book")
    cells = list(CELLS.values())
    write(root, "a.ipynb", cells)
    write(root, "b.ipynb", [(False, [], "print(1)", []), cells[0]], run=False)
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env"]
    command += [
        "-n",
        "2",
        "--dist",
        "loadscope",
        "--color=no",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, "--rootdir", str(root), "--junit-xml=results.xml", "notebooks"],
        cwd=root,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    states = {}
    for case in ElementTree.parse(root / "results.xml").iter("testcase"):
        notebook = case.get("classname").split(".")[1]
        number = int(case.get("name").removeprefix("Cell "))
        states[notebook, number] = "PASSED" if len(case) == 0 else case[0].tag.upper()
    return states, done.stdout + done.stderr


@pytest.mark.parametrize("name", CELLS)
def test_nbval(results, name):
    states, log = results
    wanted = "PASSED" if CELLS[name][0] else "FAILURE"
    assert states.get(("a", list(CELLS).index(name))) == wanted, log


def test_a_cell_that_was_never_run_is_compared(results):
    states, log = results
    assert states.get(("b", 0)) == "FAILURE", log
    assert states.get(("b", 1)) == "PASSED", log


def test_the_report_names_the_rule_and_the_fault(results):
    log = results[1]
    assert "(floats compared with tol:0.02)" in log
    assert "tag 'tol=1': write 'tol:0.02' or 'rtol:0.05'" in log
