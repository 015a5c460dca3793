"""The exercises as built: a solution is folded on the page, gone from the download."""

import json

import pytest
from answers import tags
from browsing import Visit, from_disk
from house import HTML, book_extension, build_book, read_notebook, toc_notebooks

EXERCISES = [name for name in toc_notebooks() if name.startswith("exercises_")]
SOLVED = ["98_exercises", *EXERCISES]


@pytest.fixture(scope="module", autouse=True)
def built():
    status, printed = build_book()
    assert status == 0, printed


def offered(name):
    path = HTML / "_sources" / "notebooks" / f"{name}.ipynb"
    return path.read_text(encoding="utf-8")


def strings(value):
    """Every text in a piece of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings(part)


def as_stored(value):
    return json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize("name", SOLVED)
def test_the_notebook_to_download_has_no_word_of_the_solution(name):
    cells = read_notebook(name)["cells"]
    kept = [cell for cell in cells if "solution" not in tags(cell)]
    download = json.loads(offered(name))
    assert download["cells"] == kept and 0 < len(kept) < len(cells)
    # And nowhere else in the file: the state of widgets would hold their pictures.
    common, file, tried = as_stored(kept), offered(name), 0
    for text in strings([cell for cell in cells if "solution" in tags(cell)]):
        text = as_stored(text.strip())[1:-1]
        if len(text) > 30 and text not in common:
            assert text not in file
            tried += 1
    assert tried > 0
    assert "## Solution" not in file and "right: " not in file


@pytest.mark.parametrize("name", SOLVED)
def test_the_page_folds_the_solution_and_all_of_it(name):
    page = (HTML / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
    start, end = page.index('<details class="solution">'), page.rindex("</details>")
    assert page.count('<details class="solution">') == 1
    inside = page[start:end]
    solved = [c for c in read_notebook(name)["cells"] if "solution" in tags(c)]
    code = [cell for cell in solved if cell["cell_type"] == "code"]
    assert inside.count("cell_input") >= len(code) > 0
    outside = page[:start] + page[end:]
    assert outside.count("cell_input docutils") == sum(
        c["cell_type"] == "code" and "solution" not in tags(c)
        for c in read_notebook(name)["cells"]
    )


def test_notebooks_without_a_solution_are_left_alone():
    extension = book_extension("book_exercises")
    plain = {"cells": [extension.markdown("a", "text")], "metadata": {"widgets": {}}}
    assert extension.fold(plain) == plain
    assert not extension.has_solution(json.dumps(plain))


@pytest.mark.parametrize("script", [True, False])
def test_a_solution_is_folded_until_it_is_asked_for(chromium, script):
    url = from_disk("notebooks/98_exercises")
    with Visit(chromium, url, java_script_enabled=script) as visit:
        inside = visit.page.locator("details.solution p").first
        assert not inside.is_visible()
        visit.page.locator("details.solution > summary").click()
        assert inside.is_visible()
        assert "0.25" in visit.page.locator("details.solution").inner_text()
