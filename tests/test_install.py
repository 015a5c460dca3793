"""The package as a reader installs it: what it imports, declares and promises."""

import ast
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from house import ROOT, project
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def declared(extras=()):
    """What the package needs, and what these extras add."""
    lists = project()["project"]["optional-dependencies"]
    lines = project()["project"]["dependencies"] + sum(map(lists.get, extras), [])
    return {canonicalize_name(Requirement(line).name) for line in lines}


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
    allowed = declared(extras=("dask", "ray"))  # the engines of a sweep
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
                    if not owner & allowed:
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
print(json.dumps([agentrl.__file__, len(agentrl.__all__)]))
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
    file, names = json.loads(run.stdout)
    assert Path(file).parent == ROOT / "agentrl"
    assert names > 0


# ---- As `pip install .` leaves it ----


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The packages of a new environment that holds agentrl alone."""
    folder = tmp_path_factory.mktemp("a b ü'é")
    # A copy, because building leaves files beside the sources.
    source, environment = folder / "source", folder / "venv"
    compiled = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "agentrl", source / "agentrl", ignore=compiled)
    for name in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-TEXT"):
        shutil.copy(ROOT / name, source)
    venv.create(environment, with_pip=False)
    (python,) = environment.glob("*/python*3") or environment.glob("*/python.exe")
    show = "import sysconfig; print(sysconfig.get_path('purelib'))"
    target = run([python, "-c", show], folder).strip()
    options = "--quiet --no-deps --no-build-isolation --no-index --target"
    pip = [sys.executable, "-m", "pip", "install", *options.split()]
    run([*pip, target, source], folder)
    return python, Path(target)


def run(command, folder, status=0):
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def readme_example():
    (example,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL
    )
    return example


def test_the_package_brings_its_files(site):
    _, target = site
    (info,) = target.glob("agentrl-*.dist-info")
    assert project()["project"]["version"] in info.name
    assert {path.name for path in info.rglob("LICENSE*")} == {"LICENSE", "LICENSE-TEXT"}
    shipped = {path.name for path in (target / "agentrl").iterdir()} - {"__pycache__"}
    here = {path.name for path in (ROOT / "agentrl").iterdir()} - {"__pycache__"}
    assert shipped == here
    assert "py.typed" in shipped


def test_the_example_of_the_readme_runs_from_another_folder(site, tmp_path):
    _, target = site
    example = readme_example().replace("steps=40", "steps=1")
    code = (
        f"import sys; sys.path.insert(0, sys.argv[1])\n{example}\n"
        "import json; print(json.dumps([arl.__file__, arl.__version__, len(history)]))"
    )
    shown = run([sys.executable, "-I", "-c", code, target], tmp_path)
    file, version, steps = json.loads(shown.splitlines()[-1])
    assert Path(file).parent == target / "agentrl"
    assert version == project()["project"]["version"]
    assert steps == 1


def typed(site, folder, code, status=0):
    """What mypy says about a script of a user, who has installed the package."""
    script = folder / "script.py"
    script.write_text(code, encoding="utf-8")
    python, _ = site
    mypy = [sys.executable, "-m", "mypy", "--cache-dir", folder / "cache"]
    options = ["--check-untyped-defs", "--no-error-summary", "--python-executable"]
    return run([*mypy, *options, python, script], folder, status)


def test_the_example_of_the_readme_is_well_typed(site, tmp_path):
    code = readme_example() + "print(arl.gym.make_tasks, history)\n"
    assert typed(site, tmp_path, f"import agentrl.gym\n{code}") == ""


def test_mistakes_of_a_user_are_seen_before_a_run(site, tmp_path):
    shown = typed(
        site,
        tmp_path,
        "import agentrl as arl\n\n"
        "arl.RLConfig(group_size=4, kl_coef=0.01)\n"
        "arl.RLConfig(group_sise=4)\n"
        "arl.RLConfig(group_size='four')\n"
        "arl.train_lr\n"
        "arl.RLConfig().group_sise\n",
        status=1,
    )
    lines = [line.partition(":")[2].split(":")[0] for line in shown.splitlines()]
    assert lines == ["4", "5", "6", "7"]
    assert '"group_sise"' in shown
