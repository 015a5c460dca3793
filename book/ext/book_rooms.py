"""The map page: which module of agentrl imports which, read from the code.

`{rooms}` draws the modules as boxes with an arrow to each module that they import, and
lists them in a table. Only the floors are written by hand: a plan, which the tests hold
the imports to.
"""

import ast
import html
import itertools
import statistics
import sys
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

BOOK = Path(__file__).resolve().parent.parent
PACKAGE = BOOK.parent / "agentrl"
sys.path.insert(0, str(BOOK))
from tangle import toc_pages  # noqa: E402

# The floors of the house, from the ground. A module imports from lower ones only.
FLOORS = [
    floor.split()
    for floor in (
        "checks",
        "figures store gym policy_gradient",
        "agent group_baselines clipped_surrogate grpo",
        "speed variants",
        "episodes",
        "shortcuts",
        "training_loop",
        "sweeps live original_gym design_questions",
        "ablations exercises",
    )
]
WORKSHOP = "99_"  # how the names of its notebooks begin


# ---- Reading the code ----


def floors_of(names, floors=FLOORS):
    """{name: its floor, counted from the ground, without those that nobody uses}."""
    planned = {name: floor for floor, row in enumerate(floors) for name in row}
    for name in names:
        if name not in planned:
            raise ValueError(f"agentrl.{name} has no place in FLOORS of {__name__}.py")
    used = sorted({planned[name] for name in names})
    return {name: used.index(planned[name]) for name in names}


def read_rooms(package=PACKAGE):
    """-> {module: {'notebook', 'title', 'names', 'imports'}}, in reading order."""
    rooms = {}
    for path in package.glob("[!_]*.py"):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        first = text.splitlines()[0]  # "# Generated from notebooks/X.ipynb by ..."
        title = (ast.get_docstring(tree) or "").splitlines()[:1]
        rooms[path.stem] = {
            "notebook": next(w for w in first.split() if w.endswith(".ipynb")),
            "title": title[0].rstrip(".") if title else path.stem,
            "names": public_names(tree),
            "imports": imported_rooms(tree) - {path.stem},
        }
    place = {f"{page}.ipynb": number for number, page in enumerate(toc_pages())}
    return dict(sorted(rooms.items(), key=lambda room: place[room[1]["notebook"]]))


def public_names(tree):
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def imported_rooms(tree):
    """The modules of agentrl that a module imports, wherever the import stands."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            package, _, module = node.module.partition(".")
            if package == "agentrl":
                found |= {module} if module else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            parts = (alias.name.split(".") for alias in node.names)
            found |= {part[1] for part in parts if part[0] == "agentrl" and part[1:]}
    return found


# ---- Laying it out ----


def direct_arrows(imports):
    """The imports that no chain of other imports already implies, sorted."""

    def reached(room):
        return set().union(*({other} | reached(other) for other in imports[room]))

    return sorted(
        (room, other)
        for room in imports
        for other in imports[room]
        if not any(other in reached(third) for third in imports[room] - {other})
    )


def layout(imports, height):
    """Rows of names, the foundation last, and chains of names that arrows follow.

    A name stands on the floor `height[name]`, above all that it imports.

    An arrow that passes a row without stopping gets a place of its own in that row: a
    tuple (from, to, row) instead of a name.
    """
    rows = [[] for _ in range(max(height.values(), default=-1) + 1)]
    for room in imports:
        rows[height[room]].append(room)
    chains = []
    for room, other in direct_arrows(imports):
        between = [(room, other, y) for y in range(height[room] - 1, height[other], -1)]
        for place in between:
            rows[place[2]].append(place)
        chains.append([room, *between, other])
    # Sort each row by the mean position of its neighbours in the row before, downwards
    # and upwards in turn: fewer crossings.
    links = [pair for chain in chains for pair in itertools.pairwise(chain)]
    for step in (1, -1) * 4:
        for y in range(len(rows))[::step]:
            before = rows[y - step] if 0 <= y - step < len(rows) else []
            where, own = positions(before), positions(rows[y])
            mean = {
                place: statistics.fmean(near(place, links, where) or [own[place]])
                for place in rows[y]
            }
            rows[y].sort(key=mean.get)
    return rows[::-1], chains


def positions(row):
    """Where each place of a row stands, counted from the middle of the row."""
    return {place: x - (len(row) - 1) / 2 for x, place in enumerate(row)}


def near(place, links, where):
    """The positions of the places that a link joins to this one."""
    joined = [set(pair) - {place} for pair in links if place in pair]
    return [where[other] for others in joined for other in others if other in where]


# ---- Drawing it ----

BOX, GAP, SLIM, HIGH, RISE = 150, 22, 14, 34, 78  # widths, heights, in pixels


def draw(imports, height, workshop=()):
    """-> one <svg>: it takes its colours from the theme, so it suits light and dark."""
    rows, chains = layout(imports, height)
    spans = [
        sum(BOX if isinstance(p, str) else SLIM for p in row) + GAP * (len(row) - 1)
        for row in rows
    ]
    width = max(spans) + 20
    centre = {}
    for y, row in enumerate(rows):
        x = (width - spans[y]) / 2
        for place in row:
            step = BOX if isinstance(place, str) else SLIM
            centre[place] = (x + step / 2, y * RISE + HIGH / 2 + 10)
            x += step + GAP
    high = (len(rows) - 1) * RISE + HIGH + 20
    edges = (y * RISE + 10 - (RISE - HIGH) // 2 for y in range(1, len(rows)))
    floors = [f'<path class="storey" d="M0 {y}H{width:.0f}"/>' for y in edges]
    lines = [
        f'<path class="arrow" d="{path(chain, centre)}" marker-end="url(#room-tip)"/>'
        for chain in chains
    ]
    boxes = [
        f'<rect class="{"workshop" if name in workshop else "lesson"}" '
        f'x="{x - BOX / 2:.0f}" y="{y - HIGH / 2:.0f}" width="{BOX}" '
        f'height="{HIGH}" rx="6"/><text x="{x:.0f}" y="{y + 5:.0f}">{name}</text>'
        for name, (x, y) in centre.items()
        if isinstance(name, str)
    ]
    told = "; ".join(
        f"{room} imports {', '.join(sorted(others)) or 'no other module'}"
        for room, others in imports.items()
    )
    return (
        f'<svg class="rooms" role="img" viewBox="0 0 {width:.0f} {high}" '
        f'width="{width:.0f}" aria-labelledby="rooms-title rooms-told">'
        '<title id="rooms-title">The modules of agentrl and their imports</title>'
        f'<desc id="rooms-told">{html.escape(told)}.</desc>'
        '<defs><marker id="room-tip" viewBox="0 0 8 8" refX="7" refY="4" '
        'markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z"/>'
        "</marker></defs>" + "".join(floors + lines + boxes) + "</svg>"
    )


def path(chain, centre):
    """A smooth line from the bottom of the first box to the top of the last."""
    points = [centre[place] for place in chain]
    points[0] = (points[0][0], points[0][1] + HIGH / 2)
    points[-1] = (points[-1][0], points[-1][1] - HIGH / 2)
    x, y = points[0]
    drawn = f"M{x:.0f} {y:.0f}"
    for x2, y2 in points[1:]:
        middle = (y + y2) / 2
        drawn += f"C{x:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2:.0f}"
        x, y = x2, y2
    return drawn


def table(rooms):
    """The rooms as a Markdown table; the notebooks as links."""
    lines = ["| Module | Holds | Imports |", "|---|---|---|"]
    for name, room in rooms.items():
        names = ", ".join(f"`{n}`" for n in room["names"]) or "nothing public"
        imports = ", ".join(f"`{n}`" for n in sorted(room["imports"])) or "none"
        link = f"[{room['title']}](/{room['notebook']})"
        lines.append(f"| `{name}` | {link}: {names} | {imports} |")
    return lines


class Rooms(SphinxDirective):
    """`{rooms}`: the drawing, then the table."""

    def run(self):
        for path in PACKAGE.glob("*.py"):
            self.env.note_dependency(str(path))
        rooms = read_rooms()
        if not rooms:
            text = "The package has no module yet: `make package` writes it."
            return [nodes.paragraph(text, text)]
        workshop = [n for n, r in rooms.items() if f"/{WORKSHOP}" in r["notebook"]]
        imports = {name: room["imports"] for name, room in rooms.items()}
        svg = draw(imports, floors_of(rooms), workshop)
        # The frame scrolls on a phone, so the keyboard must reach it.
        frame = (
            '<div class="rooms-frame" role="region" tabindex="0" '
            f'aria-label="Map of the modules">{svg}</div>'
        )
        listing = nodes.container(classes=["rooms-table"])
        source = self.get_source_info()[0]
        self.state.nested_parse(StringList(table(rooms), source), 0, listing)
        return [nodes.raw("", frame, format="html"), listing]


def setup(app):
    app.add_directive("rooms", Rooms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
