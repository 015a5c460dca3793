"""book/tangle.py: what a saved cell may hold, what it becomes, and every refusal."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TANGLE = Path(__file__).resolve().parent.parent / "book" / "tangle.py"
spec = importlib.util.spec_from_file_location("tangle", TANGLE)
tangle = importlib.util.module_from_spec(spec)
sys.modules["tangle"] = tangle
spec.loader.exec_module(tangle)


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


@pytest.fixture
def project(tmp_path, capsys):
    return Project(tmp_path, capsys)


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


# ---- what is written


def test_all_blocks_of_a_saved_cell_are_kept_in_order(project):
    project.notebook(
        "04_gym",
        text("(gym)=\n# 4. The gym: \\name\n\nMore."),
        code(GYM, "imports"),
        code("print('not saved')", "show"),
        code(GYM_BLOCKS, "blocks"),
    )
    assert project.run() == (0, "wrote agentrl/__init__.py\nwrote agentrl/gym.py\n", "")
    head = (
        "# Generated from notebooks/04_gym.ipynb by book/tangle.py; "
        "edit the notebook.\n"
        '"""4. The gym: \\\\name."""\n\n'
    )
    names = ["LIMIT", "A", "B", "decorate", "area", "Task", "rate", "later"]
    saved = (
        f"# %% [imports]{GYM.removeprefix('#@save')}\n\n\n"
        f"# %% [blocks]{GYM_BLOCKS.removeprefix('#@save')}\n\n\n"
    )
    names = "".join(f'    "{name}",\n' for name in names)
    assert project.module("gym") == f"{head}{saved}__all__ = [\n{names}]\n"


def test_the_package_passes_ruff(project):
    project.notebook("04_gym", text("# Gym"), GYM, GYM_BLOCKS)
    project.notebook("05_a", "#@save\nimport os", "#@save\ndef f():\n    return os")
    project.notebook("06_b", "#@save\nfrom agentrl.a import f", "#@save\nF = f")
    project.run()
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=E,F,W"]
    done = subprocess.run(
        [*command, "--no-cache", "agentrl"],
        cwd=project.root,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_the_package_is_flat_and_in_the_order_of_imports(project):
    project.notebook(
        "9_2_loop",
        "#@save\nfrom agentrl.shortcuts import shortcut",
        "#@save\ndef run():\n    return shortcut()",
    )
    project.notebook("9_4_shortcuts", "#@save\ndef shortcut():\n    return 7")
    project.notebook("00_first", "#@save\n_LIMIT = 1\nZERO = 0\n")
    project.notebook("exercises_1", "print(1)")
    project.toc("00_first", "9_2_loop", "9_4_shortcuts", "exercises_1")
    assert project.run()[0] == 0
    init = project.module("__init__")
    assert '"""Small."""' in init
    imports = [line for line in init.splitlines() if line.startswith("from")]
    assert imports == [
        "from agentrl.first import (",
        "from agentrl.shortcuts import (",
        "from agentrl.loop import (",
    ]
    assert "_LIMIT" not in init
    script = "import agentrl as a; print(a.run(), a.__version__, a.__all__)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=project.root, capture_output=True, text=True
    )
    assert done.stdout == "7 1.2.3 ['ZERO', 'shortcut', 'run']\n", done.stderr
    assert {p.name for p in (project.root / "agentrl").glob("*.py")} == {
        "__init__.py",
        "first.py",
        "shortcuts.py",
        "loop.py",
    }


def test_the_toc_gives_the_order_of_modules(project):
    project.notebook("1_a", "#@save\ndef fa(): ...")
    project.notebook("2_b", "#@save\ndef fb(): ...")
    project.notebook("3_c", "#@save\ndef fc(): ...")
    project.toc("3_c", "2_b")
    assert project.run()[0] == 0
    init = project.module("__init__")
    assert init.index("fc") < init.index("fb") < init.index("fa")


def test_crlf_becomes_lf(project):
    path = project.notebook("04_gym", "#@save\r\ndef f():\r\n    return 1\r")
    path.write_bytes(path.read_bytes().replace(b"}", b"}\r\n"))
    assert project.run()[0] == 0
    assert "\r" not in project.module("gym")
    assert "# %% [c1]\ndef f():\n    return 1\n\n\n__all__" in project.module("gym")


def test_a_source_may_be_a_list_of_lines(project):
    project.notebook("04_gym", code(["#@save\n", "X = 'é'\n"], "x"))
    assert project.run()[0] == 0
    assert "# %% [x]\nX = 'é'\n" in project.module("gym")


def test_a_notebook_may_save_private_names_only(project):
    project.notebook("04_gym", "#@save\n_LIMIT = 1")
    assert project.run()[0] == 0
    assert project.module("gym").endswith("_LIMIT = 1\n\n\n__all__ = []\n")
    assert "gym" not in project.module("__init__")


def test_a_second_run_changes_nothing(project):
    project.notebook("04_gym", GYM, GYM_BLOCKS)
    project.run()
    before = project.files()
    assert project.run() == (0, "", "")
    assert project.files() == before


def test_only_what_changed_is_written(project):
    project.notebook("04_gym", "#@save\nX = 1")
    project.notebook("05_agent", "#@save\nY = 1")
    project.run()
    project.notebook("05_agent", "#@save\nY = 2")
    assert project.run() == (0, "wrote agentrl/agent.py\n", "")


def test_check_is_clean_until_one_character_changes(project):
    project.notebook("04_gym", GYM, GYM_BLOCKS)
    project.run()
    before = project.files()
    assert project.run("--check") == (0, "", "")
    project.notebook("04_gym", GYM, GYM_BLOCKS.replace("LIMIT = 6", "LIMIT = 7"))
    code, out, err = project.run("--check")
    assert (code, err) == (1, "")
    assert "--- agentrl/gym.py" in out
    assert "\n-LIMIT = 6  # turns\n+LIMIT = 7  # turns\n" in out
    assert project.files() == before


def test_check_sees_an_edited_and_a_missing_module(project):
    project.notebook("04_gym", "#@save\nX = 1")
    assert project.run("--check")[0] == 1
    project.run()
    module = project.root / "agentrl" / "gym.py"
    module.write_bytes(module.read_bytes().replace(b"\n", b"\r\n"))
    assert project.run("--check")[0] == 1


def test_a_failed_write_leaves_the_old_package(project, monkeypatch):
    project.notebook("04_gym", "#@save\nX = 1")
    project.run()
    before = project.files()
    project.notebook("04_gym", "#@save\nX = 2")
    project.notebook("05_agent", "#@save\nY = 2")
    real = Path.write_text

    def full(path, data, **options):
        real(path, data[: len(data) // 2], **options)
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="no space"):
        project.run()
    assert project.files() == before


def test_as_a_command_from_another_folder(project):
    project.notebook("04_gym", "#@save\nX = 1\nprint(X)")
    command = [sys.executable, str(TANGLE), "--root", str(project.root)]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("notebooks/04_gym.ipynb: cell 1 [c1], line 3: ")
    assert len(done.stderr.splitlines()) == 1


# ---- what is refused


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("train(3)", "`train(3)` cannot be saved"),
        ("print('hello')", "`print('hello')` cannot be saved"),
        ("x = 1", "`x = 1` cannot be saved"),
        ("X, y = 1, 2", "`X, y = (1, 2)` cannot be saved"),
        ("X = y = 1", "`X = y = 1` cannot be saved"),
        ("LIMIT += 1", "`LIMIT += 1` cannot be saved"),
        ("LIMIT.x = 1", "`LIMIT.x = 1` cannot be saved"),
        ("'a string'", "`'a string'` cannot be saved"),
        ("LIMIT", "`LIMIT` cannot be saved"),
        ("for i in ():\n    pass", "`for i in ():` cannot be saved"),
        ("with open(LIMIT):\n    pass", "`with open(LIMIT):` cannot be saved"),
        ("if LIMIT:\n    Y = 1", "`if LIMIT:` cannot be saved"),
        ("try:\n    Y = 1\nfinally:\n    pass", "`try:` cannot be saved"),
        ("del LIMIT", "`del LIMIT` cannot be saved"),
        ("x: int", "`x: int` cannot be saved"),
        ("__all__: list = []", "`__all__: list = []` cannot be saved"),
        ("%matplotlib inline", "the magic '%matplotlib inline'"),
        ("!ls", "the magic '!ls'"),
        ("def f(:", "syntax error"),
    ],
)
def test_a_saved_cell_holds_only_definitions(project, statement, shown):
    project.notebook("04_gym", "1 + 1", f"#@save\nLIMIT = 1\n\n{statement}")
    project.errors(f"notebooks/04_gym.ipynb: cell 2 [c2], line 4: {shown}")


def test_the_message_says_what_is_allowed(project):
    project.notebook("04_gym", "#@save\nx = 1")
    allowed = "a saved cell holds imports, def, class, UPPER_CASE or annotated constant"
    project.errors(allowed)


def test_a_statement_after_a_semicolon_is_seen(project):
    project.notebook("04_gym", "#@save\nX = 1; print(X)")
    project.errors("line 2: `print(X)` cannot be saved")


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("# @save", "line 1: write exactly #@save, not '# @save'"),
        ("#@save figures", "line 1: write exactly #@save, not '#@save figures'"),
        ("#@save ", "line 1: write exactly #@save, not '#@save '"),
        (" #@save", "line 1: write exactly #@save, not ' #@save'"),
        ("#@Save", "line 1: write exactly #@save, not '#@Save'"),
        ("\n#@save", "line 2: #@save must be the first line of its cell"),
        ("Y = 2\n# @save", "line 2: #@save must be the first line of its cell"),
        ("#@save\n#@save", "line 2: #@save must be the first line of its cell"),
    ],
)
def test_save_stands_alone_on_the_first_line(project, first, message):
    project.notebook("04_gym", f"{first}\nX = 1")
    project.errors(f"notebooks/04_gym.ipynb: cell 1 [c1], {message}")


@pytest.mark.parametrize("second", ["X = 2", "def X(): ...", "class X: ..."])
def test_a_name_saved_twice_in_a_notebook(project, second):
    project.notebook("04_gym", "#@save\nX = 1", f"#@save\n{second}")
    project.errors(
        "cell 2 [c2], line 2: X is saved twice; first in cell 1 [c1], line 2"
    )


def test_an_import_and_a_definition_of_one_name(project):
    project.notebook("04_gym", "#@save\nimport math\ndef math(): ...")
    project.errors("line 3: math is saved twice; first in cell 1 [c1], line 2")


def test_a_public_name_saved_by_two_notebooks(project):
    project.notebook("04_gym", "#@save\ndef f(): ...\ndef _f(): ...")
    project.notebook("05_agent", "#@save\ndef f(): ...\ndef _f(): ...")
    project.errors(
        "notebooks/05_agent.ipynb: cell 1 [c1], line 2: f is saved twice; "
        "first in notebooks/04_gym.ipynb"
    )


def test_a_name_that_would_hide_a_module(project):
    project.notebook("04_gym", "#@save\ndef agent(): ...")
    project.notebook("05_agent", "#@save\ndef f(): ...")
    project.errors("04_gym.ipynb: cell 1 [c1], line 2: agent would hide the module")


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("def f():\n    return missing", 3),
        ("def f(a=missing): ...", 2),
        ("def f(a: missing): ...", 2),
        ("def f() -> missing: ...", 2),
        ("def f(a: 'missing | None'): ...", 2),
        ("def f():\n    x: missing = 1", 3),
        ("@missing\ndef f(): ...", 2),
        ("class C(missing): ...", 2),
        ("class C:\n    x: missing", 3),
        ("class C:\n    x = 1\n\n    def f(self):\n        return x", 6),
        ("X = [missing for i in ()]", 2),
        ("X = [i for i in ()] + [i]", 2),
        ("F = lambda a: missing", 2),
        ("def f(a):\n    match a:\n        case missing():\n            pass", 4),
        ("def f(missing):\n    return missing\n\n\ndef g():\n    return missing", 7),
        ("def f():\n    missing = 1\n\n    def g():\n        global missing\n"
         "        return missing", 7),
        ("X = f'{missing}'", 2),
        ("def f():\n    display(1)", 3),
        ("X = np.zeros(1)", 2),
    ],
)  # fmt: skip
def test_an_undefined_name_is_found_in_every_scope(project, source, line):
    names = "missing|display|np|x|i"
    project.notebook("04_gym", f"#@save\n{source}")
    code, _, err = project.run()
    assert code == 1
    assert len(err.splitlines()) == 1, err
    place, name, rest = err.partition(
        next(n for n in names.split("|") if f": {n} is used" in err) + " is used"
    )
    assert place == f"notebooks/04_gym.ipynb: cell 1 [c1], line {line}: "
    assert rest == " but neither saved nor imported in this notebook\n"


def test_the_line_of_an_undefined_name_counts_from_its_own_cell(project):
    project.notebook("04_gym", GYM, "x = 1", "#@save\n\ndef f():\n    return x")
    project.errors("04_gym.ipynb: cell 3 [c3], line 4: x is used")


def test_names_that_are_defined_are_not_reported(project):
    project.notebook(
        "04_gym",
        "#@save\nfrom __future__ import annotations\nimport os.path as p, json",
        """#@save
def f(a: Later, *args, key: Later | None = None, **options) -> Later:
    if (n := len(args)) > 1:
        print(n, a, key, options, p, json, __name__)
    try:
        pass
    except ValueError as error:
        print(error)
    for i, (j, *k) in []:
        print(i, j, k)
    with open("x") as stream:
        print(stream)
    inner = [x + y for x in range(3) for y in range(x) if (z := y)]
    total = 0

    def g():
        nonlocal total
        total += z
        return inner, lambda q, r=1: q + r

    def h():
        global COUNT, _MEMO
        COUNT += 1
        _MEMO = 1
        return _MEMO

    match a:
        case {"k": v, **others}:
            print(v, others)
        case Later(w) | [w, _]:
            print(w)
    import random
    return g, h, random


class Later:
    size = 3
    both = size + 1
    name = __qualname__

    @property
    def x(self):
        return super().x, __class__

    @x.setter
    def x(self, value):
        self.value = value


COUNT = 0
""",
    )
    assert project.run()[::2] == (0, "")


def test_an_import_cycle_is_printed(project):
    for one, other in (("a", "b"), ("b", "c"), ("c", "a")):
        project.notebook(
            f"0_{one}",
            f"#@save\nfrom agentrl.{other} import f{other}",
            f"#@save\ndef f{one}():\n    return f{other}",
        )
    cycle = "import cycle: a -> b -> c -> a"
    project.errors(f"notebooks/0_c.ipynb: cell 1 [c1], line 2: {cycle}")


def test_a_cycle_is_printed_without_the_way_to_it(project):
    for one, other in (("a", "b"), ("b", "c"), ("c", "b")):
        project.notebook(
            f"0_{one}",
            f"#@save\nfrom agentrl.{other} import f{other}",
            f"#@save\ndef f{one}():\n    return f{other}",
        )
    project.errors(
        "notebooks/0_c.ipynb: cell 1 [c1], line 2: import cycle: b -> c -> b"
    )


def test_an_import_inside_a_function_counts_for_cycles(project):
    project.notebook("0_a", "#@save\ndef f():\n    from agentrl.a import f\n    f()")
    project.errors("cell 1 [c1], line 3: import cycle: a -> a")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("from .gym import f", "`from .gym import f` cannot be checked"),
        ("from . import gym", "`from . import gym` cannot be checked"),
        ("import agentrl", "`import agentrl` cannot be checked"),
        ("import agentrl.gym as g", "`import agentrl.gym as g` cannot be checked"),
        ("from agentrl import f", "`from agentrl import f` cannot be checked"),
        ("from agentrl.gym.x import f", "`from agentrl.gym.x import f` cannot be"),
        ("from agentrl.gum import f", "there is no module agentrl.gum"),
        ("from agentrl.gym import g", "agentrl.gym saves no g"),
        ("from agentrl.gym import math", "agentrl.gym saves no math"),
        ("from math import *", "`import *` hides names"),
        ("from agentrl.gym import *", "`import *` hides names"),
    ],
)
def test_imports_that_are_refused(project, statement, message):
    project.notebook("04_gym", "#@save\nimport math\ndef f(): ...")
    project.notebook("05_agent", f"#@save\nimport os\n{statement}")
    project.errors(f"notebooks/05_agent.ipynb: cell 1 [c1], line 3: {message}")


def test_imports_stand_in_the_first_saved_cell(project):
    project.notebook("04_gym", "#@save\nimport os", "#@save\nX = 1\nimport math")
    project.errors("cell 2 [c2], line 3: imports stand in the first saved cell only")


@pytest.mark.parametrize(
    "content", [b"{", b"", b"<<<<<<< ours\n{}\n", b'{"cells": ["\xff"]}']
)
def test_a_notebook_that_is_not_json(project, content):
    project.notebook("05_agent", "#@save\nfrom agentrl.gym import f\nX = f")
    (project.root / "notebooks" / "04_gym.ipynb").write_bytes(content)
    project.errors("notebooks/04_gym.ipynb: not valid JSON: ")


def test_a_notebook_of_another_format(project):
    project.notebook("04_gym", "#@save\nX = 1", nbformat=3)
    (project.root / "notebooks" / "05_agent.ipynb").write_text("[]")
    message = "not a notebook of nbformat 4"
    project.errors(f"04_gym.ipynb: {message}", f"05_agent.ipynb: {message}")


def test_cell_ids_are_there_and_differ(project):
    bare = code("X = 1", "x")
    del bare["id"]
    twice = [code("X = 1", "same"), text("Words", "same")]
    project.notebook("04_gym", bare)
    project.notebook("05_agent", *twice)
    project.errors(
        "04_gym.ipynb: cell 1 has no cell id",
        "05_agent.ipynb: cell 2: the id [same] is used twice",
    )


def test_an_orphan_module(project):
    project.notebook("04_gym", "#@save\nX = 1")
    project.run()
    (project.root / "agentrl" / "old.py").write_text("")
    (project.root / "agentrl" / "inner").mkdir()
    (project.root / "agentrl" / "inner" / "gym.py").write_text("")
    project.errors(
        "agentrl/inner/gym.py: no notebook saves this module",
        "agentrl/old.py: no notebook saves this module",
    )


def test_the_module_of_a_notebook_that_saves_nothing_is_an_orphan(project):
    project.notebook("04_gym", "#@save\nX = 1")
    project.notebook("05_agent", "#@save\nY = 1")
    project.run()
    project.notebook("05_agent", "Y = 1")
    project.errors("agentrl/agent.py: no notebook saves this module")


def test_two_notebooks_for_one_module(project):
    project.notebook("04_gym", "#@save\nX = 1")
    project.notebook("9_1_gym", "#@save\nY = 1")
    project.errors("9_1_gym.ipynb: notebooks/04_gym.ipynb gives the module gym already")


@pytest.mark.parametrize("name", ["04_my-gym", "04_class", "04_"])
def test_a_notebook_whose_name_is_no_module(project, name):
    project.notebook(name, "#@save\nX = 1")
    project.errors("is not a name for a module")


def test_errors_are_reported_together(project):
    project.notebook("04_gym", "#@save\nx = 1\nprint(x)", "# @save")
    project.notebook("05_agent", "#@save\nY = missing")
    (project.root / "agentrl").mkdir()
    (project.root / "agentrl" / "old.py").write_text("")
    project.errors(
        "04_gym.ipynb: cell 1 [c1], line 2",
        "04_gym.ipynb: cell 1 [c1], line 3",
        "04_gym.ipynb: cell 2 [c2], line 1",
        "05_agent.ipynb: cell 1 [c1], line 2: missing is used",
        "agentrl/old.py",
    )


def test_no_version_and_no_notebooks(project):
    os.remove(project.root / "pyproject.toml")
    project.errors("there is no notebook here", "pyproject.toml: no [project] version")
