"""The gym: tasks, what the agent reads, edits, blind sequences."""

import itertools
import re
from dataclasses import FrozenInstanceError, replace

import pytest
from tiny import passes

import agentrl as arl

TASKS = arl.make_tasks("all")
OPS = ["swap_minmax", "fix_range_end", "fix_comparison", "fix_init", "fix_accumulate"]


# ---- tasks


def test_the_splits():
    train, heldout = arl.make_tasks("train"), arl.make_tasks("heldout")
    assert (len(train), len(heldout), len(TASKS)) == (20, 10, 30)
    assert sorted(t.name for t in train + heldout) == sorted(t.name for t in TASKS)
    assert {t.split for t in train} == {"train"}
    assert {t.split for t in heldout} == {"heldout"}
    places = [train[0], train[4], heldout[0]]
    assert [(t.fn_name, t.fix_op) for t in places] == [
        ("clamp", "swap_minmax"),
        ("sum_to", "fix_range_end"),
        ("pin", "swap_minmax"),
    ]
    assert arl.make_tasks("train") == train


@pytest.mark.parametrize("split", ["test", "", None, 3, ["train"]])
def test_an_unknown_split_is_named(split):
    with pytest.raises(ValueError, match=r"split is .*'train', 'heldout', 'all'") as e:
        arl.make_tasks(split)
    assert repr(split) in str(e.value)


def test_families_and_operations():
    assert len(arl.FAMILIES) == 5
    assert arl.FIX_OPS == [f["fix_op"] for f in arl.FAMILIES.values()] == OPS
    assert list(arl.EDIT_OPS) == OPS
    for family in arl.FAMILIES.values():
        assert set(family) == {"fix_op", "variants"}
        assert len(family["variants"]) == 6
    names = [v["f"] for f in arl.FAMILIES.values() for v in f["variants"]]
    assert sorted(names) == sorted(t.fn_name for t in TASKS)
    assert len(set(names)) == 30
    assert arl.FIX_OP == {t.name: t.fix_op for t in TASKS}
    for name, family in arl.FAMILIES.items():  # family by family, four then two
        kept = [t for t in TASKS if t.name.startswith(name + "/")]
        assert [t.fn_name for t in kept] == [v["f"] for v in family["variants"]]
        assert [t.split for t in kept] == ["train"] * 4 + ["heldout"] * 2
        assert {t.fix_op for t in kept} == {family["fix_op"]}


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.name)
def test_the_fields_of_a_task(task):
    assert task.name.split("/")[1] == task.fn_name
    assert task.issue == f"issue : {task.fn_name} returns wrong results"
    assert task.source.startswith(f"def {task.fn_name}(")
    assert len(task.public_tests) == len(task.hidden_tests) == 3
    assert not set(task.public_tests) & set(task.hidden_tests)
    hash(task)  # tuples all the way down
    with pytest.raises(FrozenInstanceError):
        task.source = ""


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.name)
def test_the_agent_sees_19_to_28_words(task):
    text = arl.compact_source(task.source)
    assert 19 <= len(text.split()) <= 28
    assert len(text.splitlines()) == len(task.source.splitlines())


def test_what_the_agent_sees():
    (tally,) = (t for t in TASKS if t.fn_name == "tally")
    assert arl.compact_source(tally.source) == (
        "def tally ( count ) :\nresult = 0\nfor j in range ( 1 , count ) :\n"
        "result += 2 * j\nreturn result"
    )
    renamed = tally.source.replace("tally(count)", "tally(value, lower, upper)")
    first = arl.compact_source(renamed).splitlines()[0]
    assert first == "def tally ( value , lower , upper ) :"
    assert arl.compact_source("") == ""
    assert arl.compact_source("x = 1") == "x = 1"  # no end of line
    assert arl.compact_source("# note\n\nx = 'a b'  # note\n") == "x = 'a b'"


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("def f(x:\n    return  x\n", "def f(x:\nreturn x"),
        ("if x:\n        y\n    z\n", "if x:\ny\nz"),
        ("(((\n\n\t]", "(((\n]"),
        ("x = 'a", None),  # how Python splits these depends on its release
        ('x = """a', None),
        ("a ? b $ c !", None),
        ("x = 1 \\", None),
        ("x \0 y", None),
        ("x \ud800 y", None),
        ("0777 1_ 0b3", None),
    ],
)
def test_what_is_no_python_is_read_word_by_word(source, seen):
    text = arl.compact_source(source)
    assert seen is None or text == seen
    assert "".join(text.split()) == "".join(source.split())  # nothing is lost
    assert "  " not in text and text.strip() == text
    task = replace(TASKS[0], source=source)
    env = arl.BugFixEnv()
    env.reset(task)
    assert env.step("<call> read </call>")[0] == text


def test_an_f_string_is_read_too():
    words = arl.compact_source("def f(x):\n    return f'{x} and {x:3}'\n").split()
    assert "".join(words) == "deff(x):returnf'{x}and{x:3}'"


@pytest.mark.parametrize("bad", [None, 3, b"x = 1", ["x = 1"]])
def test_a_source_that_is_no_text_is_named(bad):
    message = re.escape(f"source is {bad!r}; allowed: a string")
    with pytest.raises(TypeError, match=message):
        arl.compact_source(bad)
    with pytest.raises(TypeError, match=message):
        arl.run_tests(bad, [((1,), 1)], "f")
    with pytest.raises(TypeError, match=message):
        replace(TASKS[0], source=bad)


@pytest.mark.parametrize("field", ["name", "split", "fn_name", "issue", "fix_op"])
def test_a_task_names_a_field_that_is_no_text(field):
    with pytest.raises(TypeError, match=f"{field} is 3; allowed: a string"):
        replace(TASKS[0], **{field: 3})


@pytest.mark.parametrize("bad", [None, "abc", [1], [((1,), 1, 2)], [(1, 1)], {1: 2}])
def test_tests_that_are_no_pairs_are_named(bad):
    message = re.escape(f"tests is {bad!r}; allowed: pairs (args, expected)")
    with pytest.raises(TypeError, match=message):
        arl.run_tests("def f(x):\n    return x\n", bad, "f")
    for field in ("public_tests", "hidden_tests"):
        with pytest.raises(TypeError, match=f"{field} is "):
            replace(TASKS[0], **{field: bad})


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.name)
def test_only_the_right_edit_repairs(task):
    assert not all(passes(task)[:3]) and not all(passes(task)[3:])
    for op in OPS:
        public, hidden = passes(task, [op])[:3], passes(task, [op])[3:]
        assert all(hidden) == (op == task.fix_op)
        assert all(public) == (op == task.fix_op)


def test_the_edits_interfere_as_the_book_needs():
    def broken_by(op):
        families = {}
        for task in TASKS:
            ok = all(passes(task, [task.fix_op, op]))
            families.setdefault(task.name.split("/")[0], []).append(ok)
        return {name for name, oks in families.items() if not all(oks)}

    assert broken_by("fix_init") >= {"range_end", "accumulate", "comparison"}
    assert "comparison" in broken_by("fix_accumulate")


def test_lists_are_stored_as_tuples_and_passed_as_fresh_lists():
    tests = [[[[3, [1, 2]]], True], [([3, [1, 2]],), True]]
    source = (
        "def check(items):\n"
        "    ok = type(items) is list and type(items[1]) is list and len(items) == 2\n"
        "    items.append(1)\n"
        "    return ok\n"
    )
    task = arl.Task("a/check", "train", "check", "i", source, "fix_init", tests, tests)
    stored = (((3, (1, 2)),), True)
    assert task.public_tests == task.hidden_tests == (stored, stored)
    assert [ok for ok, _ in arl.run_tests(source, task.public_tests, "check")] == [
        True
    ] * 2
    assert tests[0][0] == [[3, [1, 2]]]
    tests[0][0][0].append(9)
    assert task.public_tests == (stored, stored)


def test_a_returned_list_is_compared_with_a_list():
    tests = [(([1, 2],), [2, [1]])]
    source = "def f(x):\n    return [x[1], [x[0]]]\n"
    assert arl.run_tests(source, tests, "f")[0][0]


# ---- blind sequences


def test_the_best_blind_sequences_by_enumeration():
    """All 5 + 25 + 125 sequences: nothing is sampled."""

    def rates(n):
        return {
            ops: arl.blind_pass_rate(ops, TASKS)
            for ops in itertools.product(OPS, repeat=n)
        }

    one, two, three = rates(1), rates(2), rates(3)
    assert max(one.values()) == one[("swap_minmax",)] == 0.20
    assert max(two.values()) == two[("swap_minmax", "fix_range_end")] == 0.40
    best = ("swap_minmax", "fix_range_end", "fix_comparison")
    assert max(three.values()) == three[best] == 0.60
