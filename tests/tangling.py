"""A small project of notebooks, for the tests of book/tangle.py."""

import json
from pathlib import Path

from house import book_module

TANGLE = Path(__file__).resolve().parent.parent / "book" / "tangle.py"
tangle = book_module("tangle")


def code(source, id):
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": id,
        "metadata": {},
        "outputs": [],
        "source": source,
    }


def text(source, id="title"):
    return {"cell_type": "markdown", "id": id, "metadata": {}, "source": source}


class Project:
    """A small tree with notebooks, where tangle.py is called as on a command line."""

    def __init__(self, root, capsys):
        self.root, self.capsys = root, capsys
        for folder in ("notebooks", "book"):
            (root / folder).mkdir()
        (root / "pyproject.toml").write_text(
            '[project]\nname = "agentrl"\nversion = "1.2.3"\ndescription = "Small."\n'
        )

    def notebook(self, name, *cells, **changes):
        """Cells are dicts, or sources that get the ids c1, c2, ..."""
        cells = [
            cell if isinstance(cell, dict) else code(cell, f"c{number}")
            for number, cell in enumerate(cells, 1)
        ]
        notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        path = self.root / "notebooks" / f"{name}.ipynb"
        path.write_text(json.dumps({**notebook, **changes}), encoding="utf-8")
        return path

    def toc(self, *names):
        lines = [f"  - file: notebooks/{name}\n" for name in names]
        head = "format: jb-book\nroot: book/intro\nchapters:\n"
        (self.root / "book" / "_toc.yml").write_text(head + "".join(lines))

    def run(self, *options):
        code = tangle.main(["--root", str(self.root), *options])
        out, err = self.capsys.readouterr()
        return code, out, err

    def module(self, name):
        return (self.root / "agentrl" / f"{name}.py").read_bytes().decode()

    def files(self):
        """Every file of the package with its bytes and time of change."""
        package = self.root / "agentrl"
        found = [p for p in package.rglob("*") if p.is_file()]
        return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in found}

    def errors(self, *expected):
        """A run fails, prints just these lines, and leaves the package alone."""
        before = self.files()
        for options in ((), ("--check",)):
            code, out, err = self.run(*options)
            assert (code, out) == (1, "")
            lines = err.splitlines()
            assert len(lines) == len(expected), err
            for line, wanted in zip(lines, expected, strict=True):
                assert wanted in line
        assert self.files() == before


GYM = """#@save
import math
from dataclasses import dataclass, field"""

GYM_BLOCKS = '''#@save
LIMIT = 6  # turns
A, B = 1, 2


def decorate(function):
    return function


@decorate
def area(r: float) -> "Task":
    """Of a circle."""
    return Task(math.pi * r**2)


@dataclass(frozen=True)
class Task:
    size: float = 0.0
    tags: list = field(default_factory=list)


rate: float = 0.5
_CACHE: dict = {}


async def later():
    return [limit for limit in range(LIMIT)]


# the last line'''
