"""The house: what the files around the package promise, and that they agree."""

import ast
import importlib.metadata
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
import yaml
from house import ROOT, project, toc_notebooks, tracked_files
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

HOLDER = "The agentrl companion authors"
PIN = re.compile(r"([A-Za-z0-9._-]+)==([0-9][0-9A-Za-z.!]*)( ; [^#]+)?")


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def run_py():
    spec = importlib.util.spec_from_file_location("run", ROOT / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- Pins and requirements ----


def pin_lines():
    lines = text("requirements.txt").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def pins():
    found = [PIN.fullmatch(line) for line in pin_lines()]
    return {canonicalize_name(pin[1]): pin[2] for pin in found}


def asked_for():
    """Everything that pyproject.toml asks for and requirements.txt must pin."""
    about = project()
    extras = about["project"]["optional-dependencies"]
    lines = [
        *about["build-system"]["requires"],
        *about["project"]["dependencies"],
        *extras["book"],
        *extras["test"],
    ]
    return [Requirement(line) for line in lines]


def test_every_pin_is_exact_and_stands_once():
    loose = [line for line in pin_lines() if not PIN.fullmatch(line)]
    assert loose == []
    assert len(pins()) == len(pin_lines())


@pytest.mark.parametrize("wanted", asked_for(), ids=str)
def test_each_requirement_is_pinned_to_a_release_that_it_allows(wanted):
    pinned = pins().get(canonicalize_name(wanted.name))
    assert pinned is not None, f"{wanted.name} is missing from requirements.txt"
    assert wanted.specifier.contains(pinned, prereleases=True)


def test_this_environment_has_the_pinned_releases():
    wrong = {}
    for line in pin_lines():
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate():
            installed = importlib.metadata.version(wanted.name).partition("+")[0]
            if not wanted.specifier.contains(installed, prereleases=True):
                wrong[wanted.name] = installed
    assert wrong == {}


def test_nothing_that_the_pins_need_is_unpinned():
    known = pins()
    missing = {}
    for name in known:
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system
        for line in needs:
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                # PyTorch pins its own CUDA parts exactly.
                cuda = re.match("nvidia-|cuda-|triton", need.name)
                if canonicalize_name(need.name) not in known and not cuda:
                    missing[need.name] = name
    assert missing == {}


def test_environment_yml_agrees():
    environment = yaml.safe_load(text("environment.yml"))
    plain = [line for line in environment["dependencies"] if isinstance(line, str)]
    (pip,) = (line["pip"] for line in environment["dependencies"] if "pip" in line
              and isinstance(line, dict))  # fmt: skip
    (python,) = (line for line in plain if line.startswith("python"))
    wanted = SpecifierSet(project()["project"]["requires-python"])
    assert python.removeprefix("python=") in wanted  # Binder wants one release
    assert "-r requirements.txt" in pip
    assert "-e ." in pip
    # No release is stated a second time.
    assert [line for line in plain if "==" in line] == []
    assert [line for line in pip if not line.startswith("-")] == []
    assert environment["variables"] == {"OMP_NUM_THREADS": "1"}


def test_run_py_wants_the_pythons_that_the_package_wants(run_py):
    oldest, newest = run_py.OLDEST, run_py.NEWEST
    after = (newest[0], newest[1] + 1)
    wanted = ">={}.{},<{}.{}".format(*oldest, *after)
    assert project()["project"]["requires-python"] == wanted


# ---- The package ----


def module_of(notebook):
    """'9_2_training_loop' -> 'training_loop'; exercises have no module."""
    return re.sub(r"^(\d+_)+", "", notebook)


def test_each_notebook_has_its_module_and_each_module_its_notebook():
    lessons = [name for name in toc_notebooks() if not name.startswith("exercises")]
    modules = {path.stem for path in (ROOT / "agentrl").glob("[!_]*.py")}
    assert {module_of(name) for name in lessons} == modules
    stored = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert stored == set(toc_notebooks())


def declared():
    names = (Requirement(line).name for line in project()["project"]["dependencies"])
    return {canonicalize_name(name) for name in names}


def needed(names):
    """The distributions that these need, and so on down."""
    found, todo = set(), set(names)
    while todo:
        name = todo.pop()
        found.add(name)
        for line in importlib.metadata.requires(name) or []:
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                todo.add(canonicalize_name(need.name))
        todo -= found
    return found


def test_the_package_imports_only_what_it_declares():
    """Also inside functions, where an import runs only for some readers."""
    owners = importlib.metadata.packages_distributions()
    undeclared = set()
    for path in (ROOT / "agentrl").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module]
            for name in (full.partition(".")[0] for full in names):
                if name not in sys.stdlib_module_names | {"agentrl"}:
                    owner = {canonicalize_name(dist) for dist in owners.get(name, ())}
                    if not owner & declared():
                        undeclared.add((path.name, name))
    assert undeclared == set()


BLOCK = """
import importlib.abc, json, sys
blocked = set(json.loads(sys.argv[1]))

class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Block())
sys.path.insert(0, sys.argv[2])
import agentrl
print(agentrl.__file__, len(agentrl.__all__))
"""


def test_the_package_imports_with_everything_undeclared_blocked(tmp_path):
    allowed = needed(declared()) | {"agentrl"}
    blocked = [
        name
        for name, owners in importlib.metadata.packages_distributions().items()
        if not {canonicalize_name(owner) for owner in owners} & allowed
    ]
    assert "pytest" in blocked
    run = subprocess.run(
        [sys.executable, "-I", "-c", BLOCK, json.dumps(blocked), str(ROOT)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    file, names = run.stdout.split()
    assert Path(file).parent == ROOT / "agentrl"
    assert int(names) > 0


def test_the_package_installs_and_works_from_another_folder(tmp_path):
    # A copy, because building leaves files beside the sources.
    source, target, elsewhere = (
        tmp_path / n for n in ("source", "target", "elsewhere")
    )
    elsewhere.mkdir()
    shutil.copytree(ROOT / "agentrl", source / "agentrl")
    for name in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-TEXT"):
        shutil.copy(ROOT / name, source)
    options = "--quiet --no-deps --no-build-isolation --no-index --target"
    command = [sys.executable, "-m", "pip", "install", *options.split(), target, source]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import agentrl as arl; "
        "print(arl.__file__, arl.__version__, len(arl.make_tasks('all')))"
    )
    command = [sys.executable, "-I", "-c", code, target]
    run = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    file, version, tasks = run.stdout.split()
    assert Path(file).parent == target / "agentrl"
    assert version == project()["project"]["version"]
    assert int(tasks) == 30


# ---- Commands ----


def test_the_makefile_has_the_targets_of_run_py(run_py):
    recipes = dict(re.findall(r"^(\w+): ; (.*)$", text("Makefile"), re.MULTILINE))
    assert list(recipes) == list(run_py.TARGETS)
    for target, recipe in recipes.items():
        assert recipe == f"@$(PYTHON) run.py {target} $(ARGS)"
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text("Makefile"), re.MULTILINE)
    assert phony.split() == list(run_py.TARGETS)


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


@pytest.mark.parametrize("target", ["lab", "notebooks", "evidence", "bench"])
def test_what_trains_runs_on_one_thread(run_py, monkeypatch, target):
    seen = []
    monkeypatch.setattr(run_py, "call", lambda *command, **env: seen.append(env))
    run_py.TARGETS[target]([])
    assert [env["OMP_NUM_THREADS"] for env in seen] == ["1"]


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


def test_without_any_browser_one_line_says_what_to_install(run_py, monkeypatch):
    asked = []
    monkeypatch.delenv("AGENTRL_BROWSER", raising=False)
    monkeypatch.setattr(run_py, "installed_browser", lambda: None)
    monkeypatch.setattr(run_py, "own_browser", lambda: "")
    monkeypatch.setattr(run_py, "is_debian", lambda: False)
    monkeypatch.setattr(
        run_py.subprocess, "call", lambda command, **_: asked.append(command)
    )
    with pytest.raises(run_py.Failure, match="please install one") as failure:
        run_py.browser()
    assert "\n" not in str(failure.value)
    assert asked == [[run_py.PYTHON, "-m", "playwright", "install", "chromium"]]


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


def test_ci_runs_the_two_commands_of_a_reader():
    lines = text(".ci/run").splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines
    assert lines[-2:] == ["make test", "make book"]
    assert "install" not in text(".ci/run")


# ---- Words ----


def test_holder_and_version_are_the_same_everywhere():
    citation = yaml.safe_load(text("CITATION.cff"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert citation["authors"] == [{"name": HOLDER}]
    assert citation["version"] == project()["project"]["version"]
    assert project()["project"]["authors"] == [{"name": HOLDER}]
    assert f"\n## {project()['project']['version']}" in text("CHANGELOG.md")
    config = yaml.safe_load(text("book/_config.yml"))
    assert config["author"] == HOLDER
    for name in ("LICENSE", "LICENSE-TEXT"):
        assert re.search(rf"Copyright \(c\) {config['copyright']} {HOLDER}", text(name))


Line = namedtuple("Line", "file number text")


def all_lines():
    for path in tracked_files():
        try:
            content = path.read_bytes().decode()
        except UnicodeDecodeError:
            continue  # a picture or another binary file
        for number, line in enumerate(content.split("\n"), start=1):
            yield Line(path.relative_to(ROOT).as_posix(), number, line)


def test_no_file_names_a_machine_or_a_registry():
    # Written in two parts, so that this file does not name them either.
    words = ["/wo" "rk/", "/ro" "ot/", "/ho" "me/", "pypi" ".org", "python" "hosted",
             "npmjs" ".", "deb.debian" ".org", "npm" "mirror"]  # fmt: skip
    word = re.compile("|".join(map(re.escape, words)))
    assert [line for line in all_lines() if word.search(line.text)] == []


def test_the_repository_address_stands_once():
    owner = "OWNER" + "/agentrl"
    found = [line.file for line in all_lines() if owner in line.text]
    assert found == ["pyproject.toml"]
    address = project()["project"]["urls"]["Repository"]
    path = address.removeprefix("https://")
    assert [line.file for line in all_lines() if path in line.text] == found


def test_text_files_have_lf_endings_and_end_with_one():
    wrong = set()
    for path in tracked_files():
        data = path.read_bytes()
        if b"\0" not in data and data and (b"\r" in data or not data.endswith(b"\n")):
            wrong.add(path.relative_to(ROOT).as_posix())
    assert wrong == set()
