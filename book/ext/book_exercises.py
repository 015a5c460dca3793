"""Solutions: folded on the page, and gone from the notebook that the page offers.

A cell tagged `solution` belongs to the solution of an exercise. Neighbouring ones
become a `<details>` element, which the browser folds without JavaScript; the heading
that they begin with becomes its summary. There is no second notebook: the one to
download is made from the same source, at the end of the build.
"""

import json
from itertools import groupby
from pathlib import Path

TAG = "solution"


def is_solution(cell):
    return TAG in cell["metadata"].get("tags", [])


def markdown(name, source):
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": source}


def fold(notebook):
    """The notebook with each run of solution cells between two lines of HTML."""
    cells = []
    for solution, run in groupby(notebook["cells"], is_solution):
        run = list(run)
        if solution:
            first = run.pop(0)
            heading = "".join(first["source"]).lstrip("#").strip()
            start = f'<details class="solution">\n<summary>{heading}</summary>'
            run.insert(0, markdown(first["id"], start))
            run.append(markdown(f"end-{first['id']}", "</details>"))
        cells += run
    return {**notebook, "cells": cells}


def without_solutions(notebook):
    """The notebook as a reader gets it who wants to find the answer."""
    cells = [cell for cell in notebook["cells"] if not is_solution(cell)]
    # The stored state of a solution's explorers would hold its pictures.
    metadata = {k: v for k, v in notebook["metadata"].items() if k != "widgets"}
    return {**notebook, "cells": cells, "metadata": metadata}


def has_solution(text):
    return f'"{TAG}"' in text and any(map(is_solution, json.loads(text)["cells"]))


def fold_page(app, page, source):
    if page.startswith("notebooks/") and has_solution(source[0]):
        source[0] = json.dumps(fold(json.loads(source[0])))


def strip_downloads(app, exception):
    if exception or app.builder.name != "html":
        return
    for path in (Path(app.outdir) / "_sources" / "notebooks").glob("*.ipynb"):
        text = path.read_text(encoding="utf-8")
        if has_solution(text):
            notebook = without_solutions(json.loads(text))
            text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
            path.write_text(text, encoding="utf-8", newline="\n")


def setup(app):
    app.connect("source-read", fold_page)
    app.connect("build-finished", strip_downloads)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
