"""The gym: tasks, edits, tests in a process of their own, the environment."""

import itertools
import os
import re
import sys
import time
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import call

import agentrl as arl
from agentrl import gym

TASKS = arl.make_tasks("all")
OPS = ["swap_minmax", "fix_range_end", "fix_comparison", "fix_init", "fix_accumulate"]
LINUX = sys.platform == "linux"


def passes(task, ops=()):
    """Whether each public and each hidden test passes after some edits."""
    source = task.source
    for op in ops:
        source = arl.EDIT_OPS[op](source, task.public_tests)
    tests = task.public_tests + task.hidden_tests
    return [ok for ok, _ in arl.run_tests(source, tests, task.fn_name)]


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
    assert arl.compact_source("# note\n\nx = 'a b'  # note\n") == "x = 'a b'"


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


# ---- run_tests


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(x:\n", "did not finish"),
        ("", "raised KeyError"),
        ("def g(x):\n    return x\n", "raised KeyError"),
        ("def f(x):\n    return 1 / 0\n", "raised ZeroDivisionError"),
        ("def f():\n    return 1\n", "raised TypeError"),
        ("def f(x):\n    return x + 1\n", "returned 2, expected 1"),
        ("def f(x):\n    return {1, 2}\n", "raised TypeError"),
    ],
)
def test_a_wrong_source_fails_with_a_reason(source, message):
    assert arl.run_tests(source, [((1,), 1)], "f") == [(False, message)]


def test_each_test_has_a_verdict_of_its_own():
    source = "def f(x):\n    if x == 2:\n        raise ValueError\n    return x\n"
    tests = [((x,), 1 if x < 3 else x) for x in range(1, 4)]
    oks, messages = zip(*arl.run_tests(source, tests, "f"), strict=True)
    assert oks == (True, False, True)
    assert messages[1] == "raised ValueError"
    assert arl.run_tests(source, [], "f") == []


HOSTILE = {
    "never returns": "def f(x):\n    while True:\n        pass\n",
    "sleeps": "import time\ndef f(x):\n    time.sleep(99)\n",
    "recurses": "def f(x):\n    return f(x)\n",
    "recurses past any limit": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(x):\n    return f(x)\n"
    ),
    "ignores signals": (
        "import signal\nfor s in (1, 2, 15):\n    signal.signal(s, signal.SIG_IGN)\n"
        "def f(x):\n    while True:\n        pass\n"
    ),
    "raises at import": "raise RuntimeError\ndef f(x):\n    return x\n",
    "leaves at import": "import sys\nsys.exit(0)\n",
    "exit": "def f(x):\n    exit()\n",
    "SystemExit": "def f(x):\n    raise SystemExit(0)\n",
    "KeyboardInterrupt": "def f(x):\n    raise KeyboardInterrupt\n",
    "_exit": "import os\ndef f(x):\n    os._exit(0)\n",
    "kills its group": "import os\ndef f(x):\n    os.kill(0, 9)\n",
    "prints": "def f(x):\n    print('{\"value\": 1}')\n",
    "floods what it prints to": (
        "import os\ndef f(x):\n    while True:\n"
        "        for fd in range(1, 9):\n"
        "            try:\n                os.write(fd, b'x' * 2**20)\n"
        "            except OSError:\n                pass\n"
    ),
    "closes everything": (
        "import os\ndef f(x):\n    os.closerange(0, 64)\n    return x\n"
    ),
    "deep value": (
        "def f(x):\n    for _ in range(99999):\n        x = [x]\n    return x\n"
    ),
}
LINUX_ONLY = {
    "allocates gigabytes": "def f(x):\n    return len(bytearray(2**33)) and x\n",
    "allocates without end": (
        "def f(x):\n    y = []\n    while True:\n        y.append(bytearray(2**24))\n"
    ),
    "forks": (
        "import os, time\ndef f(x):\n    if os.fork() == 0:\n        time.sleep(99)\n"
        "    os._exit(0)\n"
    ),
}


@pytest.mark.parametrize("kind", [*HOSTILE, *(LINUX_ONLY if LINUX else ())])
def test_a_hostile_source_fails_and_the_caller_lives(kind, capfd):
    source = (HOSTILE | LINUX_ONLY)[kind]
    folder, alive = os.getcwd(), os.getpid()
    verdicts = arl.run_tests(source, [((1,), 1), ((2,), 1)], "f")
    assert [ok for ok, _ in verdicts] == [False, False]
    assert (os.getcwd(), os.getpid()) == (folder, alive)
    assert capfd.readouterr() == ("", "")
    assert arl.run_tests("def f(x):\n    return x\n", [((1,), 1)], "f")[0][0]


# What a source can write where the reports go, with any file descriptor.
GARBAGE = [
    b"\xff\xfe\x00",
    b"5",
    b'"error"',
    b"[1]",
    b"{}",
    b"null",
    b"NaN",
    b"[" * 100_000,
    b'{"value": ' + b"[" * 500 + b"]" * 500 + b"}",
    b"9" * 5000,
    b"\n\n\x0b\x0c\r",
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda g: repr(g[:12]))
def test_garbage_in_place_of_a_report_fails(garbage):
    source = (
        "import os\ndef f(x):\n    for fd in range(3, 9):\n        try:\n"
        f"            os.write(fd, {garbage!r} + b'\\n')\n"
        "        except OSError:\n            pass\n    os._exit(0)\n"
    )
    assert arl.run_tests(source, [((1,), 1)], "f")[0][0] is False


def test_a_child_of_the_source_holds_nobody_up():
    """It inherits every open file of the source, and outlives it."""
    source = (
        "import os, subprocess, sys\n"
        "for fd in range(3, 9):\n"
        "    try:\n        os.set_inheritable(fd, True)\n"
        "    except OSError:\n        pass\n"
        "def f(x):\n"
        "    code = 'import time; time.sleep(99)'\n"
        "    run = [sys.executable, '-c', code]\n"
        "    return subprocess.Popen(run, close_fds=False).pid\n"
    )
    ok, message = arl.run_tests(source, [((1,), 0)], "f")[0]
    assert not ok
    pid = re.fullmatch(r"returned (\d+), expected 0", message)[1]
    if LINUX:  # it was ended, too: gone, or a zombie that nobody has collected
        for _ in range(100):
            try:
                stat = Path(f"/proc/{pid}/stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                break
            if stat.rsplit(")", 1)[1].split()[0] == "Z":
                break
            time.sleep(0.05)
        else:
            pytest.fail(f"process {pid} is still there")


def test_a_source_cannot_fill_the_disk():
    source = (
        "import tempfile\ndef f(x):\n    with tempfile.TemporaryFile() as file:\n"
        "        return file.write(b'x' * 2**22)\n"
    )
    verdict = arl.run_tests(source, [((1,), 2**22)], "f")[0]
    assert verdict == (False, "raised OSError") or os.name != "posix"


def test_the_promise_of_two_seconds_is_a_limit_not_a_hope():
    """The clock is the child's limit, with room for its start and its end."""
    assert gym._TIME_LIMIT <= 1.5


def test_the_source_runs_outside_the_caller():
    """What it imports, sets and prints stays there."""
    source = (
        "import os, sys\n"
        "import agentrl_no_such_module\n"
        "os.environ['AGENTRL_MARK'] = 'x'\ndef f(x):\n    return x\n"
    )
    assert not arl.run_tests(source, [((1,), 1)], "f")[0][0]
    source = (
        "import os\ndef f(x):\n    os.environ['MARK'] = 'x'\n    return os.getpid()\n"
    )
    message = arl.run_tests(source, [((1,), 1)], "f")[0][1]
    assert "MARK" not in os.environ
    assert int(re.match(r"returned (\d+)", message)[1]) != os.getpid()


@pytest.fixture
def judged(monkeypatch):
    """The calls that reach a process; nothing is remembered from before."""
    calls, judge = [], gym._judge

    def spy(source, tests, fn_name):
        calls.append((source, fn_name))
        return judge(source, tests, fn_name)

    monkeypatch.setattr(gym, "_judge", spy)
    monkeypatch.setattr(gym, "_VERDICTS", {})
    return calls


def test_the_memo_does_not_depend_on_the_name(judged):
    tests = [((3,), 3)]
    for name in ("clamp", "limit", "a", "task_function"):
        verdicts = arl.run_tests(f"def {name}(x):\n    return x\n", tests, name)
        assert verdicts == [(True, "returned 3, expected 3")]
    assert len(judged) == 1
    arl.run_tests("def clamp(x):\n    return x + 1\n", tests, "clamp")
    arl.run_tests("def clamp(x):\n    return x\n", [((4,), 3)], "clamp")
    assert len(judged) == 3


def test_the_memo_keeps_apart_what_differs(judged):
    recursive = "def {0}(x):\n    return x if x < 1 else {0}(x - 1)\n"
    for name in ("f", "g"):
        assert arl.run_tests(recursive.format(name), [((3,), 0)], name)[0][0]
    # The name of another function is no reason to rename that one.
    source = (
        "def task_function(x):\n    return 0\ndef f(x):\n    return task_function(x)\n"
    )
    assert arl.run_tests(source, [((3,), 0)], "f")[0][0]
    # 1 and True are equal, but not the same argument.
    source = "def f(x):\n    return x is True\n"
    verdicts = [arl.run_tests(source, [((x,), True)], "f")[0][0] for x in (True, 1)]
    assert verdicts == [True, False]


def test_what_is_remembered_cannot_be_changed_from_outside():
    tests = [((1,), 1)]
    arl.run_tests("def f(x):\n    return x\n", tests, "f").clear()
    assert arl.run_tests("def f(x):\n    return x\n", tests, "f")[0][0]


def test_edits_reach_about_a_hundred_bodies(judged):
    """All orders of up to three edits on every task."""
    for task in TASKS:
        bodies = {task.source}
        for ops in itertools.product(OPS, repeat=3):
            source = task.source
            for op in ops:
                source = arl.EDIT_OPS[op](source, task.public_tests)
                bodies.add(source)
        for source in bodies:
            arl.run_tests(source, task.public_tests, task.fn_name)
    assert 60 <= len(judged) <= 150


# ---- calls


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("<call> read </call>", ("read",)),
        ("<call> test </call>", ("test",)),
        ("<call> submit </call>", ("submit",)),
        *((f"<call> edit {op} </call>", ("edit", op)) for op in OPS),
        ("<call> edit anything </call>", ("edit", "anything")),
        ("<call> edit read </call>", ("edit", "read")),
        ("<call> edit </call>", None),
        ("<call> edit fix_init fix_init </call>", None),
        ("<call> read fix_init </call>", None),
        ("<call> read", None),
        ("read </call>", None),
        ("<call> </call>", None),
        ("<call> reading </call>", None),
        ("<call> read </call> ", None),
        ("<call> read </call>\n", None),
        ("<call>  read </call>", None),
        ("<call> read </call> <call> read </call>", None),
        ("", None),
    ],
)
def test_calls_are_parsed_to_the_letter(text, parsed):
    assert arl.parse_call(text) == parsed


@given(st.text(max_size=30))
def test_any_other_text_is_no_call(text):
    assert arl.parse_call(text) is None
    assert arl.parse_call(f"<call> {text} </call>") in {
        None,
        *((word,) for word in ("read", "test", "submit")),
        ("edit", text.removeprefix("edit ")),
    }


def test_messages():
    assert arl.MESSAGES["unchanged"] == "no change"
    assert arl.MESSAGES["applied"] == "edit applied"
    assert arl.MESSAGES["invalid"] == "invalid call"


# ---- the environment


def clamp(env, *words):
    """Play calls on the first task; returns what the last one gave."""
    env.reset(TASKS[0])
    for word in words:
        result = env.step(call(word))
    return result


def test_an_episode_by_hand():
    env = arl.BugFixEnv()
    assert env.reset(TASKS[0]) == "issue : clamp returns wrong results"
    assert (env.turn, env.max_turns, env.done, env.ops) == (0, 6, False, [])
    read = env.step("<call> read </call>")
    assert read == (arl.compact_source(TASKS[0].source), 0.0, False, read[3])
    assert read[3] == {"turn": 1, "event": "read"}
    answer, reward, done, info = env.step("<call> test </call>")
    passed = sum(passes(TASKS[0])[:3])
    assert (answer, reward, done) == (f"{passed} of 3 tests pass", 0.0, False)
    answer, *_, info = env.step("<call> edit swap_minmax </call>")
    assert (answer, info) == ("edit applied", {"turn": 3, "event": "applied"})
    assert "max ( lower" in env.step("<call> read </call>")[0]
    assert env.step("<call> test </call>")[0] == "3 of 3 tests pass"
    answer, reward, done, info = env.step("<call> submit </call>")
    assert (reward, done, env.done, env.turn) == (1.0, True, True, 6)
    assert info == {
        "task": "minmax/clamp",
        "submitted": True,
        "hidden_pass": True,
        "public_pass": True,
        "fix_op": "swap_minmax",
        "ops": ["swap_minmax"],
        "actions": [
            call(w) for w in ("read", "test", "swap_minmax", "read", "test", "submit")
        ],
        "n_turns": 6,
    }
    assert info == env.final_info(True)


def test_every_call_costs_a_turn_malformed_ones_too():
    env = arl.BugFixEnv(max_turns=4)
    env.reset(TASKS[0])
    texts = [
        "",
        "<call> edit paint </call>",
        "<call> read",
        "<call> edit fix_init </call>",
    ]
    results = [env.step(text) for text in texts]
    assert [r[0] for r in results] == ["invalid call"] * 3 + ["no change"]
    assert [r[3].get("event") for r in results[:3]] == ["invalid"] * 3
    info = results[-1][3]
    assert info["actions"] == texts and info["n_turns"] == 4
    assert info["ops"] == ["fix_init"]  # applied, though the text stayed as it was
    assert info["submitted"] is False and results[-1][1:3] == (0.0, True)


def test_a_repair_without_submit_earns_nothing():
    for env in (arl.BugFixEnv(max_turns=1), arl.BugFixEnv(1, "public")):
        _, reward, done, info = clamp(env, "swap_minmax")
        assert (reward, done, info["submitted"], info["hidden_pass"]) == (
            0.0,
            True,
            False,
            True,
        )


def test_submit_on_the_last_turn_counts():
    _, reward, done, info = clamp(arl.BugFixEnv(max_turns=2), "swap_minmax", "submit")
    assert (reward, done, info["submitted"], info["n_turns"]) == (1.0, True, True, 2)


def test_hidden_and_public_rewards_differ():
    task = replace(TASKS[0], hidden_tests=(((0, 2, 5), 99),))
    rewards = {}
    for kind in ("hidden", "public"):
        env = arl.BugFixEnv(reward=kind)
        env.reset(task)
        env.step(call("swap_minmax"))
        rewards[kind] = env.step(call("submit"))[1]
    assert rewards == {"hidden": 0.0, "public": 1.0}


@pytest.mark.parametrize(
    "words", [("submit",), ("read", "read"), ("fix_init", "submit")]
)
def test_a_reward_function_gets_the_final_info_once(words):
    seen = []

    def reward(info):
        seen.append(info)
        return 3

    env = arl.BugFixEnv(max_turns=2, reward=reward)
    assert env.reward_fn is reward
    _, value, done, info = clamp(env, *words)
    assert done and len(seen) == 1 and seen[0] == info
    assert type(value) is float and value == 3.0
    assert info["submitted"] == (words[-1] == "submit")


@pytest.mark.parametrize(
    "bad", [float("nan"), float("inf"), -float("inf"), None, "1", []]
)
def test_a_reward_that_is_no_finite_number_is_an_error(bad):
    env = arl.BugFixEnv(reward=lambda info: bad)
    env.reset(TASKS[0])
    with pytest.raises(
        (ValueError, TypeError), match="minmax/clamp.*finite number"
    ) as e:
        env.step(call("submit"))
    assert repr(bad) in str(e.value)


@pytest.mark.parametrize("reward", ["secret", None, 1.0, "Hidden"])
def test_an_unknown_reward_is_named(reward):
    with pytest.raises(
        (ValueError, TypeError), match="reward.*'hidden', 'public'"
    ) as e:
        arl.BugFixEnv(reward=reward)
    assert repr(reward) in str(e.value)


@pytest.mark.parametrize("turns", [0, -1, 2.0, "6", None, True])
def test_an_impossible_number_of_turns_is_named(turns):
    with pytest.raises((ValueError, TypeError), match="max_turns.*at least 1") as e:
        arl.BugFixEnv(max_turns=turns)
    assert repr(turns) in str(e.value)


def test_no_step_before_reset_or_after_the_end():
    env = arl.BugFixEnv()
    for _ in range(2):
        with pytest.raises(ValueError, match="reset"):
            env.step(call("read"))
        env.reset(TASKS[0])
        env.step(call("submit"))
    env.reset(TASKS[0])
    assert (env.turn, env.done, env.ops, env.actions) == (0, False, [], [])


def test_an_info_is_a_copy():
    env = arl.BugFixEnv()
    env.reset(TASKS[0])
    before = env.final_info(False)
    env.step(call("fix_init"))
    assert before["ops"] == [] and before["actions"] == []


words = st.lists(st.sampled_from([*OPS, "read", "test", "submit"]), max_size=12)


@given(words, st.integers(1, 8), st.sampled_from(TASKS))
def test_the_rules_hold_for_any_play(played, max_turns, task):
    env = arl.BugFixEnv(max_turns)
    env.reset(task)
    done, source, texts = False, task.source, []
    for word in played:
        if done:
            break
        texts.append(call(word))
        answer, reward, done, info = env.step(texts[-1])
        if word in OPS:
            before, source = source, arl.EDIT_OPS[word](source, task.public_tests)
            assert answer == ("no change" if source == before else "edit applied")
        assert done == (word == "submit" or len(texts) == max_turns)
        assert reward == 0.0 or done
        assert env.turn == len(texts)
    if done:
        assert info["actions"] == texts
        assert info["ops"] == [w for w in played[: len(texts)] if w in OPS]
        assert info["submitted"] == (texts[-1] == call("submit"))
        verdicts = passes(replace(task, source=source))
        assert (info["public_pass"], info["hidden_pass"]) == (
            all(verdicts[:3]),
            all(verdicts[3:]),
        )
        assert reward == float(info["submitted"] and info["hidden_pass"])
