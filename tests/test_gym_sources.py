"""The gym: sources run in a process of their own and cannot hurt the caller."""

import itertools
import os
import re
import select
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

import agentrl as arl
from agentrl import gym

TASKS = arl.make_tasks("all")
OPS = ["swap_minmax", "fix_range_end", "fix_comparison", "fix_init", "fix_accumulate"]
LINUX = sys.platform == "linux"


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
}


KINDS = [*HOSTILE, *(LINUX_ONLY if LINUX else ())]


@pytest.fixture(scope="module")
def hostile_verdicts():
    """All at once, since most of them only wait for their end; and what they print."""
    sources = [(HOSTILE | LINUX_ONLY)[kind] for kind in KINDS]

    def judge(source):
        return arl.run_tests(source, [((1,), 1), ((2,), 1)], "f")

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(4) as pool:
        patch.setattr(gym, "_WALL_LIMIT", 1.5)
        return dict(zip(KINDS, pool.map(judge, sources), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_source_fails(kind, hostile_verdicts):
    assert [ok for ok, _ in hostile_verdicts[kind]] == [False, False]


def test_a_hostile_source_leaves_its_caller_alone(capfd):
    folder, alive = os.getcwd(), os.getpid()
    for kind in ("prints", "closes everything", "kills its group", "exit"):
        arl.run_tests(HOSTILE[kind], [((3,), 1)], "f")
    assert (os.getcwd(), os.getpid()) == (folder, alive)
    assert capfd.readouterr() == ("", "")
    assert arl.run_tests("def f(x):\n    return x\n", [((1,), 1)], "f")[0][0]


# ---- time


RIGHT, TESTS = "def f(x):\n    return x\n", [((1,), 1)]


def test_a_slow_start_of_python_costs_the_source_nothing(monkeypatch):
    """Its processor time and the clock are counted from the source's own start."""
    slow = "import time\nwhile time.process_time() < 1.2:\n    pass\n"
    monkeypatch.setattr(gym, "_CHILD", slow + gym._CHILD)
    monkeypatch.setattr(gym, "_WALL_LIMIT", 1.0)
    monkeypatch.setattr(gym, "_VERDICTS", {})
    assert arl.run_tests(RIGHT, TESTS, "f") == [(True, "returned 1, expected 1")]


@pytest.mark.skipif(not LINUX, reason="the limit is the operating system's")
def test_processor_time_alone_ends_a_loop(monkeypatch):
    monkeypatch.setattr(gym, "_WALL_LIMIT", 600)
    in_time, lines = gym._run_child(HOSTILE["never returns"], [[1]], "f")
    assert in_time and lines == [""]


@pytest.fixture
def clock(monkeypatch):
    """Runs of the child that run out of time; the list of all runs."""
    runs, run, late = [], gym._run_child, []

    def child(source, args, fn_name):
        runs.append(source)
        if late:
            return late.pop(), [""]
        return run(source, args, fn_name)

    monkeypatch.setattr(gym, "_run_child", child)
    monkeypatch.setattr(gym, "_VERDICTS", {})
    return runs, late


def test_a_pause_of_the_machine_is_not_held_against_a_source(clock):
    runs, late = clock
    late.append(False)
    for _ in range(2):
        assert arl.run_tests(RIGHT, TESTS, "f") == [(True, "returned 1, expected 1")]
    assert len(runs) == 2


def test_a_source_that_sleeps_on_has_no_third_try(clock):
    runs, late = clock
    late += [False, False]
    for _ in range(2):
        assert arl.run_tests(RIGHT, TESTS, "f") == [(False, "did not finish")]
    assert len(runs) == 2


# ---- reports


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


STARTS = {
    "fork": "    return os.fork()\n",
    "forkpty": "    return os.forkpty()\n",
    "a new session": "    pid = os.fork()\n    os.setsid()\n    return pid\n",
    "subprocess": "    import subprocess\n    return subprocess.run(['sleep', '99'])\n",
    "system": "    return os.system('sleep 99')\n",
    "popen": "    return os.popen('sleep 99').read()\n",
    "spawn": "    return os.posix_spawn('/bin/sleep', ['sleep', '99'], {})\n",
    "exec": "    os.execv('/bin/sleep', ['sleep', '99'])\n",
    "ctypes": "    import ctypes\n    return ctypes.CDLL(None).fork()\n",
    "multiprocessing": (
        "    import multiprocessing\n    m = multiprocessing.get_context('fork')\n"
        "    return m.Process(target=print).start()\n"
    ),
}


@pytest.mark.skipif(os.name != "posix", reason="most of these are POSIX calls")
@pytest.mark.parametrize("kind", STARTS)
def test_a_source_starts_no_process(kind):
    source = "import os\ndef f(x):\n" + STARTS[kind]
    assert arl.run_tests(source, [((1,), 0)], "f") == [
        (False, "raised PermissionError")
    ]


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_a_child_of_the_source_holds_nobody_up(monkeypatch):
    """Where one can be started: it inherits every open file, and is ended as well."""
    open_fence = gym._CHILD.replace("sys.addaudithook(no_processes)", "")
    monkeypatch.setattr(gym, "_CHILD", open_fence.replace("'NPROC': 0", ""))
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
    pid = int(re.fullmatch(r"returned (\d+), expected 0", message)[1])
    with suppress(ProcessLookupError):  # gone already
        os.close(wait_for_exit(pid))


def wait_for_exit(pid):
    """Wait until a process that is not ours has ended; its file descriptor."""
    fd = os.pidfd_open(pid)
    assert select.select([fd], [], [], 60)[0], f"process {pid} is still there"
    return fd


def test_a_source_cannot_fill_the_disk():
    source = (
        "import tempfile\ndef f(x):\n    with tempfile.TemporaryFile() as file:\n"
        "        return file.write(b'x' * 2**22)\n"
    )
    verdict = arl.run_tests(source, [((1,), 2**22)], "f")[0]
    assert verdict == (False, "raised OSError") or os.name != "posix"


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


def test_edits_reach_about_a_hundred_bodies(monkeypatch):
    """All orders of up to three edits on every task; nothing need run for that."""
    judged = []
    monkeypatch.setattr(gym, "_judge", lambda *job: judged.append(job) or ())
    monkeypatch.setattr(gym, "_VERDICTS", {})
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
