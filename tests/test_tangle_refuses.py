"""book/tangle.py: what a saved cell and a notebook may not hold, one line each."""

import os

import pytest
from tangling import code, text


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
    ("source", "line", "shown"),
    [
        ("def f():\n    break", 3, "'break' outside loop"),
        ("def f():\n    continue", 3, "'continue' not properly in loop"),
        ("class C:\n    continue", 3, "'continue' not properly in loop"),
        ("class C:\n    return 1", 3, "'return' outside function"),
        ("class C:\n    yield 1", 3, "'yield' outside function"),
        ("class C:\n    x = yield 1", 3, "'yield' outside function"),
        ("class C:\n    yield from ()", 3, "outside function"),
        ("X = (yield 1)", 2, "'yield' outside function"),
        ("class C:\n    await f()", 3, "'await' outside"),
        ("def f():\n    await f()", 3, "'await' outside async function"),
        ("def f():\n    async with f():\n        pass", 3, "'async with' outside"),
        ("def f():\n    X = [i async for i in f()]", 3, "outside of an async"),
        ("async def f():\n    yield 1\n    return 1", 4, "'return' with value"),
        ("def f(a, a): ...", 2, "duplicate argument 'a'"),
        ("X = lambda a, a: 1", 2, "duplicate argument 'a'"),
        ("def f():\n    nonlocal a", 3, "no binding for nonlocal 'a'"),
        ("class C:\n    nonlocal a", 3, "no binding for nonlocal 'a'"),
        ("def f(a):\n    global a", 3, "'a' is parameter and global"),
        ("def f():\n    a = 1\n    global a", 4, "assigned to before global"),
        ("def f():\n    print(a)\n    global a", 4, "used prior to global"),
        ("def f():\n    from __future__ import annotations", 3, "from __future__"),
        ("def f():\n    None = 1", 3, "cannot assign to None"),
        ("def f():\n    __debug__ = 1", 3, "cannot assign to __debug__"),
        ("def f():\n    *a = 1", 3, "starred assignment target"),
        ("def f():\n    a, *b, *c = f()", 3, "multiple starred"),
        ("def f(a):\n    match a:\n        case b:\n            f()\n"
         "        case 1:\n            f()", 4, "makes remaining patterns unreachable"),
        ("X = 'a\0b'", 0, "null bytes"),
        ("X = '\ud800'", 0, "surrogates not allowed"),
        ("X = " + "(" * 300 + ")" * 300, 2, "too many nested parentheses"),
        ("X = " + "-" * 100_000 + "1", 0, "nested"),
        ("X = 1" + "0" * 5000, 2, "digits"),
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_code_that_python_would_refuse(project, source, line, shown):
    """A good module is there; a broken one never takes its place."""
    project.notebook("04_gym", "#@save\nimport os", "#@save\nX = os")
    project.run()
    before = project.files()
    project.notebook("04_gym", "#@save\nimport os", f"#@save\n{source}")
    code, out, err = project.run()
    assert (code, out, len(err.splitlines())) == (1, "", 1), err
    place = f"notebooks/04_gym.ipynb: cell 2 [c2], line {line or 1}: "
    assert err.startswith(place), err
    assert shown in err
    assert project.files() == before


@pytest.mark.parametrize("title", ["of \0", "half \ud800"])
def test_a_title_that_python_would_refuse(project, title):
    project.notebook("04_gym", text(f"# Gym {title}"), "#@save\nX = 1")
    project.errors("agentrl/gym.py: line 1: ")


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cells": {}}, "not a notebook of nbformat 4"),
        ({"cells": None}, "not a notebook of nbformat 4"),
        ({"nbformat": "4"}, "not a notebook of nbformat 4"),
        ({"metadata": None}, "the notebook has no metadata"),
        ({"cells": ["X = 1"]}, "cell 1: it is no object but str"),
        ({"cells": [None]}, "cell 1: it is no object but NoneType"),
    ],
    ids=str,
)
def test_a_mutilated_notebook(project, changes, message):
    project.notebook("04_gym", "#@save\nX = 1", **changes)
    project.errors(f"notebooks/04_gym.ipynb: {message}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": 5}, "its source is neither a text nor a list of texts"),
        ({"source": None}, "its source is neither a text nor a list of texts"),
        ({"source": {"#@save": 1}}, "its source is neither a text nor a list"),
        ({"source": ["#@save\n", 5]}, "its source is neither a text nor a list"),
        ({"metadata": None}, "it has no metadata"),
        ({"metadata": []}, "it has no metadata"),
        ({"outputs": None}, "it has no list of outputs"),
        ({"cell_type": "cod"}, "its cell_type is 'cod'"),
        ({"cell_type": None}, "its cell_type is 'None'"),
        ({"cell_type": ["code"]}, "its cell_type is \"['code']\""),
        ({"id": 5.5}, "has no cell id"),
        ({"id": "a b"}, "has no cell id"),
    ],
    ids=str,
)
def test_a_mutilated_cell(project, changes, message):
    cell = {**code("#@save\nX = 1", "x"), **changes}
    project.notebook("04_gym", text("# Gym"), cell)
    colon = "" if "id" in changes else ":"
    project.errors(f"notebooks/04_gym.ipynb: cell 2{colon} {message}")


@pytest.mark.parametrize("missing", ["cell_type", "source", "metadata", "outputs"])
def test_a_cell_that_lacks_a_part(project, missing):
    cell = code("#@save\nX = 1", "x")
    del cell[missing]
    project.notebook("04_gym", cell)
    project.errors("notebooks/04_gym.ipynb: cell 1: it")


def test_a_notebook_that_is_nested_too_deeply(project):
    path = project.notebook("04_gym", "X = 1")
    path.write_text("[" * 200_000, encoding="utf-8")
    project.errors("notebooks/04_gym.ipynb: not valid JSON: it is nested too deeply")


def test_a_folder_with_the_name_of_a_notebook(project):
    project.notebook("04_gym", "X = 1")
    (project.root / "notebooks" / "05_agent.ipynb").mkdir()
    project.errors("notebooks/05_agent.ipynb: cannot be read: ")


def test_a_huge_notebook_takes_no_time(project):
    """Lines that patterns could try again and again: blanks, hashes, a long source."""
    long = " " * 200_000
    cells = [text(f"{mark}{long}x", f"t{n}") for n, mark in enumerate(["# A", "#", ""])]
    cells += [code(f"{long}#", "blanks"), code(f"x = 1 {'#' * 200_000}", "hashes")]
    numbers = ", ".join(map(str, range(20_000)))
    project.notebook("04_gym", *cells, code(f"#@save\nX = [{numbers}]", "numbers"))
    assert project.run()[0] == 0


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
