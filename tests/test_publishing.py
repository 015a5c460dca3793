"""The workflows that check and publish the book: valid, and true to the README."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest
import yaml
from house import HTML, ROOT

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = sorted(path.name for path in FOLDER.iterdir())
SYSTEMS = {
    "ubuntu-latest": "Linux",
    "macos-latest": "macOS (Apple silicon)",
    "windows-latest": "Windows",
}


def text(name):
    return (FOLDER / name).read_text(encoding="utf-8")


def workflow(name):
    return yaml.safe_load(text(name))


def jobs(name):
    return workflow(name)["jobs"]


def steps(name):
    return [step for job in jobs(name).values() for step in job["steps"]]


def readme():
    """The README in one line, so that no line break hides a sentence."""
    return " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


# ---- The schema ----


def lint(path):
    """Check a workflow against the schema that comes with check-jsonschema."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    # A proxy that nobody answers: the check must not need the network.
    offline = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    return subprocess.run(
        [*command, "vendor.github-workflows", path],
        capture_output=True,
        text=True,
        env=dict(os.environ, **offline),
    )


def test_there_is_a_workflow_to_check_and_one_to_publish():
    assert WORKFLOWS == ["ci.yml", "publish.yml"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_follows_the_schema(name):
    run = lint(FOLDER / name)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    "right, wrong",
    [
        ("runs-on:", "run-on:"),
        ("timeout-minutes: 60", "timeout-minutes: long"),
        ("fail-fast:", "failfast:"),
        ("contents: read", "contents: reed"),
        ("    steps:", "    step:"),
    ],
)
def test_the_schema_refuses_a_mistake(tmp_path, right, wrong):
    assert right in text("ci.yml")
    broken = tmp_path / "ci.yml"
    broken.write_text(text("ci.yml").replace(right, wrong), encoding="utf-8")
    run = lint(broken)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "Schema validation errors" in run.stdout


# ---- The README's promises ----


def test_ci_covers_the_pythons_and_the_systems_that_the_readme_names():
    run_py = module(ROOT / "run.py")
    (major, first), (_, last) = run_py.OLDEST, run_py.NEWEST
    pythons = [f"{major}.{minor}" for minor in range(first, last + 1)]
    matrix = jobs("ci.yml")["check"]["strategy"]["matrix"]
    assert matrix == {"system": list(SYSTEMS), "python": pythons}
    *most, newest = pythons
    *others, windows = SYSTEMS.values()
    named = f"{', '.join(most)} or {newest}, on {', '.join(others)} or {windows}"
    assert f"You need Python {named}." in readme()


def test_ci_uses_its_matrix_and_lets_no_failure_hide_another():
    job = jobs("ci.yml")["check"]
    assert job["runs-on"] == "${{ matrix.system }}"
    (python,) = [s["with"] for s in steps("ci.yml") if "setup-python" in str(s)]
    assert python["python-version"] == "${{ matrix.python }}"
    assert job["strategy"]["fail-fast"] is False
    for name in WORKFLOWS:
        assert "continue-on-error" not in text(name)
        assert "|| true" not in text(name)


def commands(name):
    return [step["run"] for step in steps(name) if "run" in step]


def test_the_workflows_run_the_commands_of_the_readme_and_nothing_else():
    """So nothing is installed in another way than a reader installs it."""
    runs = {}
    for name in WORKFLOWS:
        index, *runs[name] = commands(name)
        assert index.startswith("echo ")
    assert runs == {
        "ci.yml": ["python run.py test", "python run.py book"],
        "publish.yml": ["python run.py book"],
    }
    assert "`python3 run.py book`" in readme()
    targets = module(ROOT / "run.py").TARGETS
    for command in runs["ci.yml"]:
        target = command.split()[-1]
        assert target in targets
        assert f"make {target} " in readme()


def test_publishing_uses_the_newest_python_that_ci_checks():
    (python,) = [s["with"] for s in steps("publish.yml") if "setup-python" in str(s)]
    matrix = jobs("ci.yml")["check"]["strategy"]["matrix"]
    assert python["python-version"] == matrix["python"][-1]


def test_pytorch_comes_from_the_index_that_the_readme_gives():
    """The first command of each workflow reads it from environment.yml."""
    (command,) = {commands(name)[0] for name in WORKFLOWS}
    pattern = re.search(r"\$\(grep -o '(.*)' environment.yml\)", command)[1]
    environment = (ROOT / "environment.yml").read_text(encoding="utf-8")
    (index,) = re.findall(pattern, environment)
    assert command.startswith('echo "PIP_EXTRA_INDEX_URL=$(grep')
    assert command.endswith('>> "$GITHUB_ENV"')
    assert f"export PIP_EXTRA_INDEX_URL={index} " in readme()


def test_what_is_published_is_what_the_build_writes():
    (path,) = [s["with"]["path"] for s in steps("publish.yml") if "upload" in str(s)]
    build = module(ROOT / "book" / "build.py")
    assert ROOT / path == build.INDEX.parent == HTML
    assert f"`{path}`" in readme()


# ---- What a workflow may do ----


def test_only_the_deployment_may_write():
    for name in WORKFLOWS:
        assert workflow(name)["permissions"] == {"contents": "read"}
    deploy = jobs("publish.yml")["deploy"]
    assert deploy["permissions"] == {"pages": "write", "id-token": "write"}
    assert deploy["needs"] == "build"
    assert deploy["environment"]["name"] == "github-pages"
    # It holds the right to write, so it runs none of the repository's code.
    assert [sorted(step) for step in deploy["steps"]] == [["id", "uses"]]
    others = [jobs("ci.yml")["check"], jobs("publish.yml")["build"]]
    assert [job for job in others if "permissions" in job] == []


def test_when_the_workflows_run():
    # YAML 1.1 reads the key `on` as True.
    ci, publish = (workflow(name)[True] for name in WORKFLOWS)
    assert ci == {"push": {"branches": ["main"]}, "pull_request": None}
    # What has passed the tests, or what someone starts by hand.
    finished = {"workflows": [workflow("ci.yml")["name"]], "types": ["completed"]}
    finished["branches"] = ["main"]
    assert publish == {"workflow_run": finished, "workflow_dispatch": None}
    build = jobs("publish.yml")["build"]
    assert "workflow_run.conclusion == 'success'" in build["if"]
    (checkout,) = (s["with"] for s in build["steps"] if "checkout" in str(s))
    assert "workflow_run.head_sha" in checkout["ref"]


def test_a_newer_check_replaces_an_older_one_but_a_deployment_finishes():
    ci, publish = (workflow(name)["concurrency"] for name in WORKFLOWS)
    assert "github.ref" in ci["group"]
    assert ci["cancel-in-progress"] is True
    assert publish == {"group": "pages", "cancel-in-progress": False}
