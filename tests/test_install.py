"""The package as a reader installs it: what it imports, declares and promises."""

import ast
import importlib.metadata
import json
import shutil
import subprocess
import sys
from pathlib import Path

from house import ROOT, project
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


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
