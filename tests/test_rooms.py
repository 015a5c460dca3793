"""The rooms of the house: a module for each lesson, floors, private names, the map."""

import ast
import re

import pytest
from house import (
    HTML,
    ROOT,
    article,
    book_extension,
    build_book,
    modules_in_order,
    toc_notebooks,
)


@pytest.fixture(scope="module")
def book_rooms():
    return book_extension("book_rooms")


@pytest.fixture(scope="module")
def rooms(book_rooms):
    return book_rooms.read_rooms()


def test_what_a_notebook_saves_is_a_module_and_each_module_has_its_notebook():
    modules = {path.stem for path in (ROOT / "agentrl").glob("[!_]*.py")}
    assert set(modules_in_order()) == modules
    stored = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert stored == set(toc_notebooks())


# ---- Imports ----


def climbs(imports, floors):
    """The imports that do not lead to a lower floor."""
    return [
        (room, other)
        for room, others in imports.items()
        for other in others
        if floors[room] <= floors[other]
    ]


def test_no_module_imports_from_its_own_floor_or_a_higher_one(book_rooms, rooms):
    """So no imports lead round in a circle."""
    imports = {name: room["imports"] for name, room in rooms.items()}
    assert sum(map(len, imports.values())) > len(rooms)
    assert climbs(imports, book_rooms.floors_of(rooms)) == []
    assert climbs({"a": {"b"}, "b": {"a"}}, {"a": 1, "b": 0}) == [("b", "a")]


def test_a_module_without_a_floor_is_named(book_rooms):
    assert book_rooms.floors_of("ca", ["a", "b", "c"]) == {"c": 1, "a": 0}
    with pytest.raises(ValueError, match="agentrl.attic has no place in FLOORS"):
        book_rooms.floors_of(["gym", "attic"])


def private_imports(source):
    """The names with a leading underscore that a module takes from another room."""
    return [
        alias.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        if node.level or node.module.partition(".")[0] == "agentrl"
        for alias in node.names
        if alias.name.startswith("_")
    ]


@pytest.mark.parametrize("path", sorted((ROOT / "agentrl").glob("*.py")), ids=str)
def test_no_module_takes_a_private_name_from_another(path):
    assert private_imports(path.read_text(encoding="utf-8")) == []


def test_a_private_import_is_seen_wherever_it_stands():
    source = "from agentrl.gym import a, _b\ndef f():\n from agentrl.agent import _c"
    assert private_imports(source) == ["_b", "_c"]


# ---- The map ----


def closure(imports):
    """Every (module, other) such that the one needs the other, at any distance."""
    pairs = {(room, other) for room, others in imports.items() for other in others}
    while True:
        more = {(a, d) for a, b in pairs for c, d in pairs if b == c} | pairs
        if more == pairs:
            return pairs
        pairs = more


def test_the_arrows_imply_exactly_the_imports(book_rooms, rooms):
    imports = {name: room["imports"] for name, room in rooms.items()}
    drawn = {name: set() for name in rooms}
    for room, other in book_rooms.direct_arrows(imports):
        drawn[room].add(other)
    assert closure(drawn) == closure(imports)


def test_the_map_shows_every_module(book_rooms, rooms):
    status, printed = build_book()
    assert status == 0, printed
    page = (HTML / "book" / "map.html").read_text(encoding="utf-8")
    boxes = re.findall(r"<text [^>]*>(\w+)</text>", page)
    assert sorted(boxes) == sorted(rooms)
    imports = {name: room["imports"] for name, room in rooms.items()}
    arrows = page.count('class="arrow"')
    assert arrows == len(book_rooms.direct_arrows(imports))
    links = {link.get("href") for link in article("book/map").find_all("a")}
    storeys = page.count('class="storey"')
    assert storeys == len(set(book_rooms.floors_of(rooms).values())) - 1
    for room in rooms.values():
        assert f"../{room['notebook'].removesuffix('.ipynb')}.html" in links


def test_the_layout_keeps_the_importer_above(book_rooms):
    imports = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set(), "e": {"d"}}
    floors = {"a": 3, "b": 2, "c": 1, "d": 0, "e": 2}
    rows, chains = book_rooms.layout(imports, floors)
    height = {place: y for y, row in enumerate(rows) for place in row}
    assert book_rooms.direct_arrows(imports) == [
        ("a", "b"), ("b", "c"), ("c", "d"), ("e", "d"),
    ]  # fmt: skip
    for chain in chains:
        steps = [height[place] for place in chain]
        assert steps == list(range(steps[0], steps[0] + len(steps)))
