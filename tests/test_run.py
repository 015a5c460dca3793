"""run.py: setting up, the browser, and what each command promises."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from house import ROOT, project


@pytest.fixture(scope="module")
def run_py():
    spec = importlib.util.spec_from_file_location("run", ROOT / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_run_py_wants_the_pythons_that_the_package_wants(run_py):
    oldest, newest = run_py.OLDEST, run_py.NEWEST
    after = (newest[0], newest[1] + 1)
    wanted = ">={}.{},<{}.{}".format(*oldest, *after)
    assert project()["project"]["requires-python"] == wanted


def test_an_unknown_target_lists_those_that_there_are(run_py, capsys):
    assert run_py.main(["bok"]) == 2
    shown = capsys.readouterr().err
    assert "'bok'" in shown
    assert all(target in shown for target in run_py.TARGETS)


def test_another_python_is_refused_in_one_line(run_py, capsys, monkeypatch):
    monkeypatch.setattr(run_py.sys, "version_info", (3, 9, 1))
    assert run_py.main(["book"]) == 1
    assert (
        capsys.readouterr().err
        == "run.py: this is Python 3.9; it needs 3.11 to 3.13.\n"
    )


def test_a_python_that_cannot_make_environments_is_told_so(
    run_py, capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr(run_py, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(run_py, "PYTHON", tmp_path / ".venv" / "python")
    monkeypatch.setattr(run_py, "STAMP", tmp_path / ".venv" / "installed.txt")
    monkeypatch.setattr(run_py.importlib.util, "find_spec", lambda name: None)
    assert run_py.main(["book"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "ensurepip" in line


def test_a_failing_command_gives_its_status_and_one_line(run_py, capsys, monkeypatch):
    def fail(args):
        run_py.call(sys.executable, "-c", "raise SystemExit(7)")

    monkeypatch.setattr(run_py, "set_up", lambda: None)
    monkeypatch.setitem(run_py.TARGETS, "book", fail)
    assert run_py.main(["book"]) == 7
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("run.py: ")


def test_a_change_of_the_pins_asks_for_an_installation(run_py, monkeypatch, tmp_path):
    for name in ("requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    monkeypatch.setattr(run_py, "ROOT", tmp_path)
    before = run_py.wanted()
    assert run_py.wanted() == before
    with open(tmp_path / "requirements.txt", "a") as file:
        file.write("one-more==1.0\n")
    assert run_py.wanted() != before


def test_a_browser_that_is_not_there_is_named(run_py, monkeypatch):
    monkeypatch.setenv("AGENTRL_BROWSER", "no-such-browser")
    with pytest.raises(run_py.Failure, match="no-such-browser"):
        run_py.browser()


# ---- A browser ----


@pytest.fixture
def bare(run_py, monkeypatch):
    """A machine without any browser; what would be called to get one."""
    asked = []
    for name in ("AGENTRL_BROWSER", "AGENTRL_INSTALL_BROWSER", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(run_py, "installed_browser", lambda: None)
    monkeypatch.setattr(run_py, "own_browser", lambda: "")
    monkeypatch.setattr(run_py, "is_debian_root", lambda: False)

    def call(command, **_):
        asked.append(" ".join(map(str, command)).removeprefix(f"{run_py.PYTHON} "))
        return 0

    monkeypatch.setattr(run_py.subprocess, "call", call)
    return asked


@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize("asked", [{}, {"CI": "false"}, {"CI": ""}])
def test_a_browser_is_not_installed_unasked(run_py, monkeypatch, bare, root, asked):
    monkeypatch.setattr(run_py, "is_debian_root", lambda: root)
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(run_py.Failure, match="AGENTRL_INSTALL_BROWSER=1") as failure:
        run_py.browser()
    assert bare == []
    (line,) = str(failure.value).splitlines()
    wanted = "apt-get install chromium" if root else "playwright install chromium"
    assert wanted in line


@pytest.mark.parametrize("asked", ["CI=true", "AGENTRL_INSTALL_BROWSER=1"])
def test_a_browser_is_installed_when_asked(run_py, monkeypatch, bare, asked):
    monkeypatch.setenv(*asked.split("="))
    with pytest.raises(run_py.Failure, match="there is none"):  # it did not help
        run_py.browser()
    assert bare == ["-m playwright install chromium"]
    monkeypatch.setattr(run_py, "own_browser", lambda: "chrome" if bare[1:] else "")
    assert run_py.browser() == "chrome"


def test_root_on_debian_gets_the_package(run_py, monkeypatch, bare):
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(run_py, "is_debian_root", lambda: True)
    monkeypatch.setattr(run_py, "installed_browser", lambda: "c" if bare else None)
    assert run_py.browser() == "c"
    assert bare[0] == "apt-get update"
    assert bare[1].startswith("apt-get install") and len(bare) == 2


# ---- Moving, cleaning ----


def test_an_environment_that_was_moved_is_made_anew(run_py, monkeypatch, tmp_path):
    """Its programs name the Python of the old place: the first line of `jb`, say."""
    old, new = tmp_path / "old" / ".venv", tmp_path / "a b ü'é" / ".venv"
    new.mkdir(parents=True)
    monkeypatch.setattr(run_py, "VENV", new)
    config = new / "pyvenv.cfg"
    assert not run_py.moved()  # nothing there
    for made, wanted in ((old, True), (new, False), (f"{new}2", True)):
        lines = f"home = /usr/bin\ncommand = python3 -m venv --clear {made}\n"
        config.write_text(lines, encoding="utf-8")
        assert run_py.moved() is wanted
    config.write_text("home = /usr/bin\n", encoding="utf-8")  # by another tool
    assert not run_py.moved()


def test_an_environment_that_works_is_remade_when_it_was_moved(
    run_py, monkeypatch, tmp_path
):
    made = []

    def stop(command, **_):
        made.append(command)
        return subprocess.CompletedProcess(command, 3, "", "stopped")

    monkeypatch.setattr(run_py, "STAMP", tmp_path / "installed.txt")
    monkeypatch.setattr(run_py, "works", lambda: True)
    monkeypatch.setattr(run_py, "moved", lambda: True)
    monkeypatch.setattr(run_py.subprocess, "run", stop)
    with pytest.raises(run_py.Failure, match="could not make .venv"):
        run_py.set_up()
    assert made == [[sys.executable, "-m", "venv", "--clear", run_py.VENV]]


def test_clean_removes_what_was_built_and_nothing_else(run_py, monkeypatch, tmp_path):
    built = ["book/_build/html/x", "book/_static/vendor/x", "agentrl/__pycache__/x"]
    kept = [".venv/lib/__pycache__/x", "book/x", "agentrl/x", "notebooks/x"]
    for name in built + kept:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(run_py, "ROOT", tmp_path)
    monkeypatch.setattr(run_py, "VENV", tmp_path / ".venv")
    assert run_py.main(["clean"]) == 0
    assert [name for name in built + kept if (tmp_path / name).exists()] == kept
    assert run_py.main(["clean", "--all"]) == 0
    assert not (tmp_path / ".venv").exists()
    assert run_py.main(["clean", "--everything"]) == 2


# ---- Kinds of CPU ----


def test_cpus_runs_each_kind_with_an_empty_cache(run_py, monkeypatch, tmp_path, capsys):
    seen = []

    def call(command, env, stdout, **_):
        cache = Path(env["AGENTRL_CACHE"])
        seen.append((env["ATEN_CPU_CAPABILITY"], env["MKL_CBWR"], cache))
        assert list(cache.iterdir()) == []
        failed = env["MKL_CBWR"] == "AVX2"
        stdout.write(b"more\n== 1 failed ==\n" if failed else b"more\n== 3 passed ==\n")
        return int(failed)

    monkeypatch.setattr(run_py, "ROOT", tmp_path)
    monkeypatch.setattr(run_py.subprocess, "call", call)
    monkeypatch.setattr(run_py, "kinds_here", lambda: ["default", "avx2"])
    monkeypatch.setattr(run_py, "make_bases", lambda env: None)
    (tmp_path / "book").mkdir()
    with pytest.raises(run_py.Failure, match=r"differs on avx2\.$"):
        run_py.cpus([])
    assert capsys.readouterr().out.splitlines() == [
        "default: 3 passed; all of it in book/_build/cpu-default.txt",
        "avx2: 1 failed; all of it in book/_build/cpu-avx2.txt",
    ]
    assert [kind[:2] for kind in seen] == [("default", "COMPATIBLE"), ("avx2", "AVX2")]
    assert seen[0][2] != seen[1][2] and not seen[0][2].exists()
    run_py.cpus(["default"])
    run_py.cpus(["avx512"])  # said, and no difference
    assert len(seen) == 3
    with pytest.raises(run_py.Failure, match="default, avx2, avx512, not arm"):
        run_py.cpus(["arm"])


def test_the_kinds_of_this_machine_start_with_the_weakest(run_py, monkeypatch):
    monkeypatch.setattr(run_py, "PYTHON", sys.executable)
    kinds = run_py.kinds_here()
    assert kinds == list(run_py.KINDS)[: len(kinds)] and kinds


def test_the_base_agents_are_made_before_the_tests(run_py, monkeypatch, tmp_path):
    """Two processes at once; a failing one is told."""
    monkeypatch.setattr(run_py, "PYTHON", sys.executable)
    monkeypatch.setattr(run_py, "BASE", "import sys; open(sys.argv[1], 'w')")
    monkeypatch.setattr(run_py, "ROOT", tmp_path)
    run_py.make_bases(dict(os.environ))
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"make_base_agent", "make_rl_base"}
    monkeypatch.setattr(run_py, "BASE", "import sys; sys.exit('rl' in sys.argv[1])")
    with pytest.raises(run_py.Failure, match="base agents"):
        run_py.make_bases(dict(os.environ))


# ---- A signal ----


def test_the_tests_hear_ctrl_c_in_the_background_too():
    """A shell starts what runs in the background with SIGINT ignored."""
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
