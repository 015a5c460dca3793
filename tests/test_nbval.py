"""notebooks/conftest.py in nbval: what `make notebooks` stores, the tests accept."""

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import agentrl as arl

ROOT = Path(__file__).resolve().parent.parent
WIDGET = "application/vnd.jupyter.widget-view+json"


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


def row(value, text="it learns", low=0, high=1):
    """A claim as a cell shows it."""
    claim = arl.claim(text, value, low, high)
    return {"text/html": claim._repr_html_(), "text/plain": repr(claim)}


def rows(value):
    """Two claims in one output, which is no claim itself."""
    return {"text/html": "<p>" + row(value)["text/html"] * 2, "text/plain": "rows"}


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
    "claim": (True, [], display(row(0.7)), [shown(**row(0.2))]),
    "claim-zero": (True, [], display(row(1.4e-06)), [shown(**row(0))]),
    "claim-sentence": (False, [], display(row(0.7)), [shown(**row(0.7, "it lears"))]),
    "claim-number-in-sentence": (
        False,
        [],
        display(row(0.7, "in 3: 0.5 is in [0, 1]")),
        [shown(**row(0.7, "in 3: 0.6 is in [0, 1]"))],
    ),
    "claim-low": (False, [], display(row(0.7, low=0.1)), [shown(**row(0.7))]),
    "claim-high": (False, [], display(row(0.7, high=2)), [shown(**row(0.7))]),
    "claim-no-verdict": (
        False,
        [],
        display(row(0.7)),
        [shown(html=row(0.7)["text/html"].replace("holds", ""), plain=repr(0.7))],
    ),
    "claim-exact": (
        False,
        ["exact-claim"],
        display(row(0.7)),
        [shown(**row(0.2))],
    ),
    "claim-exact-same": (
        True,
        ["exact-claim"],
        display(row(0.7)),
        [shown(**row(0.7))],
    ),
    "claim-exact-within": (
        True,
        ["exact-claim", "tol:0.1"],
        display(row(0.7)),
        [shown(**row(0.75))],
    ),
    "claim-as-text": (
        False,
        [],
        f"print({row(0.7)['text/plain']!r})",
        [printed(row(0.2)["text/plain"] + "\n")],
    ),
    "claim-in-other-html": (False, [], display(rows(0.7)), [shown(**rows(0.2))]),
    "nearly-zero": (True, [], "print('sum', 1.431e-06)", [printed("sum 0\n")]),
    "no-zero": (False, [], "print(0.5)", [printed("0.000\n")]),
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


# Whatever is stored by execute.py must pass.
STORED = {
    "semicolon": "1 + 1;",
    "semicolon-comment": "1 + 1;  # quiet",
    "semicolon-display": "display('shown')\n'hidden';",
    "clear": "print('gone')\nclear_output()\nprint('stays')",
    "clear-wait": "print('gone')\nclear_output(wait=True)\nprint('stays')",
    "clear-wait-alone": "print('stays')\nclear_output(wait=True)",
    "clear-all": "display(1)\nclear_output()",
    "handle": "handle = display('old', display_id=True)\nhandle.update('new')",
    "named-display": (
        "from IPython.display import HTML, update_display\n"
        "display(HTML('<b>old</b>'), display_id='x')\nprint('between')\n"
        "update_display(HTML('<b>new</b>'), display_id='x')"
    ),
    "twice-shown": (
        "display('old', display_id='y')\ndisplay('new', display_id='y')\n"
        "display('newest', display_id='y', update=True)"
    ),
    "update-unknown": "display('x', display_id='never', update=True)",
    "update-after-clear": (
        "handle = display('old', display_id=True)\nclear_output()\n"
        "handle.update('nowhere')\nprint('end')"
    ),
    "output-widget": (
        "import ipywidgets\nout = ipywidgets.Output()\ndisplay(out)\n"
        "with out:\n    print('inside')\n    display('inside, too')\nprint('outside')"
    ),
    "output-widget-cleared": "with out:\n    clear_output()\n    print('later')",
    "carriage-return": "print('1 %\\r50 %\\r100 %')",
    "streams": (
        "import sys\nprint(1, flush=True)\nprint(2, file=sys.stderr, flush=True)\n"
        "display(3)\nprint(4)\nprint(5, file=sys.stderr)"
    ),
    "raises": "print('before')\n1 / 0",
    "empty": "",
    "comment": "# nothing",
    "magic": "%%capture\nprint('kept to itself')",
    "warning": "import warnings\nwarnings.warn('careful')",
    "last-value": "_ = 3\n4",
    "long": "print('x' * 300_000)",
    "long-lines": "for i in range(20_000):\n    print(i, 'line')",
    "shell-history": "print(In[-1][:5], len(Out))",
}


def load_execute():
    """book/execute.py, for its function that runs one notebook and stores it."""
    sys.path.insert(0, str(ROOT / "book"))
    return importlib.import_module("execute")


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
    first = "from IPython.display import clear_output, display"
    tags = {"raises": ["raises-exception"]}
    sources = [(True, tags.get(name, []), text, []) for name, text in STORED.items()]
    write(root, "c.ipynb", [(True, [], first, []), *sources])
    load_execute().refresh(root / "notebooks" / "c.ipynb")
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
    return states, done.stdout + done.stderr, root


@pytest.mark.parametrize("name", CELLS)
def test_nbval(results, name):
    states, log, _ = results
    wanted = "PASSED" if CELLS[name][0] else "FAILURE"
    assert states.get(("a", list(CELLS).index(name))) == wanted, log


def test_a_cell_that_was_never_run_is_compared(results):
    states, log, _ = results
    assert states.get(("b", 0)) == "FAILURE", log
    assert states.get(("b", 1)) == "PASSED", log


def test_the_report_names_the_rule_and_the_fault(results):
    log = results[1]
    assert "(floats compared with tol:0.02)" in log
    assert "tag 'tol=1': write 'tol:0.02' or 'rtol:0.05'" in log


@pytest.mark.parametrize("name", STORED)
def test_what_is_stored_is_accepted(results, name):
    states, log, _ = results
    assert states.get(("c", 1 + list(STORED).index(name))) == "PASSED", log


def test_what_is_stored_is_what_a_reader_would_see(results):
    """The cells above are no test if all of them store nothing."""
    path = results[2] / "notebooks" / "c.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"][1:]
    stored = {
        name: "".join(
            "".join(output.get("text", "")) + str(output.get("data", ""))
            for output in cell["outputs"]
        )
        for name, cell in zip(STORED, cells, strict=True)
    }
    assert stored["semicolon"] == stored["clear-all"] == stored["magic"] == ""
    assert stored["clear"] == stored["clear-wait"] == stored["clear-wait-alone"]
    assert stored["clear"] == "stays\n"
    assert "new" in stored["handle"] and "old" not in stored["handle"]
    assert "new" in stored["named-display"] and "old" not in stored["named-display"]
    assert stored["output-widget"].endswith("outside\n")
    assert len(stored["long"]) == 300_001
