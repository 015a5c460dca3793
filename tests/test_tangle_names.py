"""book/tangle.py: names that nobody saved, in every scope and in annotations."""

import pytest
from tangling import GYM


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


@pytest.mark.parametrize(
    "annotation",
    [
        "'Config'",
        "'Config | None'",
        "'list[Config]'",
        "list['Config']",
        "'dict[str, list[Config]]'",
        "\"Literal['token mean', 'sum']\"",
        "\"Literal['token mean', 'sum'] | None\"",
        "\"dict[str, Literal['no such', 'name']]\"",
        "\"list['Config']\"",
        "\"typing.Literal['a b']\"",
        "Literal['not a name', 'nor(']",
        "\"Literal['not a name', 'nor(']\"",
        "Annotated['Config', 'of the run']",
        "\"Annotated[float, 'in seconds', Config]\"",
        "\"Callable[['Config'], 'Config']\"",
        "' Config'",
    ],
)
def test_annotations_in_quotes_are_read_as_types(project, annotation):
    imports = (
        "#@save\nimport typing\nfrom collections.abc import Callable\n"
        "from typing import Annotated, Literal"
    )
    code = f"#@save\ndef f(a: {annotation}, *b: {annotation}) -> {annotation}: ..."
    field = f"#@save\nclass Config:\n    mode: {annotation}"
    project.notebook("04_gym", imports, code, field)
    assert project.run()[::2] == (0, "")


@pytest.mark.parametrize(
    "annotation",
    [
        "'missing'",
        "'list[missing]'",
        "list['missing']",
        "\"dict[str, 'missing']\"",
        "\"missing['int']\"",
        "'Literal[1] | missing'",
        "Literal[1] | 'missing'",
        "\"Annotated['missing', 'in seconds']\"",
    ],
)
def test_a_missing_name_in_quotes_is_found(project, annotation):
    imports = "#@save\nfrom typing import Annotated, Literal"
    project.notebook("04_gym", imports, f"#@save\n\ndef f(a: {annotation}): ...")
    project.errors("cell 2 [c2], line 3: missing is used but neither saved")


def test_quotes_around_what_is_no_type(project):
    project.notebook("04_gym", "#@save\n\ndef f(a: 'of the |'): ...")
    project.errors("cell 1 [c1], line 3: the annotation 'of the |' is no expression")


def test_many_unknown_names_are_told_at_once(project):
    """Each is looked up: a search of the whole module for each took minutes."""
    lines = [f"X{n} = missing_{n} + missing_{n} + 1" for n in range(1000)]
    project.notebook("04_gym", "#@save\n" + "\n".join(lines))
    code, _, err = project.run()
    assert code == 1
    assert len(err.splitlines()) == len(lines)
