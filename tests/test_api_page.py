"""The API page, the links to it and the links from it."""

import re
from collections import Counter

import pytest
from house import (
    ROOT,
    article,
    book_extension,
    build_book,
    modules_in_order,
    read_notebook,
    toc_pages,
)

import agentrl


@pytest.fixture(scope="module")
def pages():
    """{'book/api': its article, ...}: every page of the table of contents."""
    status, printed = build_book()
    assert status == 0, printed
    return {name: article(name) for name in toc_pages()}


@pytest.fixture(scope="module")
def book_api():
    return book_extension("book_api")


def hidden_names(book_api):
    """Names from saved cells that the pages do not show: the solutions of exercises."""
    names = set()
    for page in toc_pages():
        if page.startswith("notebooks/"):
            for cell in read_notebook(page.split("/")[1])["cells"]:
                code = "".join(cell["source"])
                if "remove-cell" in cell["metadata"].get("tags", []):
                    if code.startswith("#@save\n"):
                        names |= set(book_api.defined_names(code))
    return names


# ---- The page ----


def test_every_public_name_has_one_entry(pages):
    entries = [dt["id"] for dt in pages["book/api"].select(".api-module > dl > dt")]
    names = [f"agentrl.{name}" for name in agentrl.__all__ if name != "__version__"]
    assert Counter(entries) == Counter(names)


def test_the_modules_stand_in_reading_order(pages):
    headings = [h.find(string=True) for h in pages["book/api"].select("section h2")]
    assert headings == modules_in_order()


def test_every_entry_leads_to_the_cell_that_saves_the_name(pages, book_api):
    hidden = hidden_names(book_api)
    assert "cispo_policy_loss" in hidden
    for dt in pages["book/api"].select(".api-module > dl > dt"):
        name = dt["id"].removeprefix("agentrl.")
        (link,) = dt.select(".cell-link a")
        page, _, anchor = link["href"].removeprefix("../").partition("#")
        lesson = pages[page.removesuffix(".html")]
        if name in hidden:
            assert anchor == "" and link.text.startswith("exercise of section ")
        else:
            assert anchor == f"def-{name}"
            cell = lesson.find(id=anchor).find_parent(class_="cell")
            cell = cell or lesson.find(id=anchor)
            assert re.search(rf"\b{name}\b", cell.find("pre").text), name


def test_every_saved_name_leads_back_to_its_entry(pages):
    entries = {dt["id"] for dt in pages["book/api"].select("dt[id]")}
    linked = []
    for name, page in pages.items():
        for line in page.select(".saved-as"):
            assert name.startswith("notebooks/")
            cell = line.find_parent(class_="cell")
            assert cell.find("pre").text.startswith("#@save\n")
            linked += [link["href"].partition("#")[2] for link in line.find_all("a")]
    assert len(linked) == len(set(linked))
    hidden = {f"agentrl.{name}" for name in agentrl.__all__} - set(linked)
    assert hidden <= {"agentrl.cispo_policy_loss", "agentrl.__version__"}
    assert set(linked) <= entries


def test_entries_say_what_the_docstrings_say(pages):
    text = " ".join(pages["book/api"].text.split())
    for name in agentrl.__all__:
        value = getattr(agentrl, name)
        if callable(value):
            first = value.__doc__.strip().splitlines()[0].replace("`", "")
            assert plain(first) in plain(text), name
    assert " at 0x" not in text
    assert "agentrl.MAX_CALL_TOKENS" in text


def plain(text):
    """Letters and digits only: typography may change the rest."""
    return re.sub(r"\W+", "", text)


def test_a_field_of_the_config_shows_its_default_and_its_comment(pages):
    entry = pages["book/api"].find(id="agentrl.RLConfig.group_size").find_parent("dl")
    code = (ROOT / "agentrl" / "grpo.py").read_text(encoding="utf-8")
    remark = re.search(r"group_size: int = 8 +# (.+)", code)[1]
    assert " ".join(entry.text.split()) == f"group_size: int = 8# {remark}"


def test_a_docstring_is_plain_text_but_for_its_code(book_api):
    rst = book_api.as_rst
    assert rst("Mean of `x`s\n    and *all* |x| of a_, b_c.") == (
        r"Mean of \ ``x``\ s and \*all\* \|x\| of a\_, b_c."
    )
    assert rst("An arm's 'a b' or\n- none.\n\n  `B`") == (
        "An arm's \\ ``'a b'``\\  or - none.\n\n\\ ``B``\\ "
    )


def test_a_long_constant_is_told_by_how_it_begins(book_api):
    def told(value):
        return "\n".join(book_api.constant("X", value, None))

    assert ":value: (1, 2)" in told((1, 2))
    many = dict.fromkeys(range(60), "long")
    assert "Holds 60: \\ ``0``\\ , \\ ``1``\\ , " in told(many)
    assert told(many).rstrip().endswith(", ...")
    # An address would be another one in each build.
    assert told({"f": told}).endswith("Holds 1: \\ ``'f'``\\ \n")


def test_sections_are_named_as_in_the_book(book_api):
    names = ["notebooks/9_2_training_loop.ipynb", "notebooks/04_gym", "05_2_episodes"]
    assert list(map(book_api.section_number, names)) == ["9.2", "4", "5.2"]


# ---- Names in the prose ----


def test_a_name_in_the_prose_is_linked_once_in_each_section(pages, book_api):
    names, linked = set(agentrl.__all__), 0
    for page, content in pages.items():
        seen = set()
        if page == book_api.API_PAGE:
            continue
        for code in content.find_all("code"):
            match = book_api.LinkNames.name.fullmatch(code.text)
            closed = code.find_parent(["h1", "h2", "h3", "h4"])
            if not match or match[1] not in names or closed:
                assert not code.find_parent("a", class_="api-link"), code.text
                continue
            if code.find_parent(class_=["saved-as", "verdict"]):
                continue
            link = code.find_parent("a")
            where = id(code.find_parent("section")), match[1]
            if where in seen:
                assert link is None, (page, code.text)
            else:
                assert link["href"].endswith(f"#agentrl.{match[1]}"), (page, code.text)
                linked += 1
            seen.add(where)
    assert linked > 100  # the map alone names all
