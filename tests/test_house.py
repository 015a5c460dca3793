"""The house: what the files around the package promise, and that they agree."""

import importlib.metadata
import importlib.util
import re
from collections import namedtuple

import pytest
import yaml
from house import ROOT, project, tracked_files, walk
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

HOLDER = "The agentrl companion authors"
PIN = re.compile(r"([A-Za-z0-9._-]+)==([0-9][0-9A-Za-z.!]*)( ; [^#]+)?")


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


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


def test_no_file_of_tests_is_too_long_to_read():
    files = [path for path in tracked_files() if path.parent == ROOT / "tests"]
    assert files
    lines = {path.name: len(path.read_bytes().splitlines()) for path in files}
    assert {name: n for name, n in lines.items() if n > 400} == {}


def test_without_git_the_files_are_found_by_walking(tmp_path):
    ignored = "# tools\n.venv/\n*.egg-info/\nbook/_static/v/\n"
    (tmp_path / ".gitignore").write_text(ignored)
    kept = [".gitignore", ".ci/run", "a b/ü.py", "book/v/x", "v.py", "venv/x"]
    left = [".git/x", ".venv/x", "in/.venv/x", "in/a.egg-info/x", "book/_static/v/x"]
    for name in kept[1:] + left:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = {path.relative_to(tmp_path).as_posix() for path in walk(tmp_path)}
    assert found == set(kept)


def test_walking_finds_what_git_tracks():
    """The pins, a notebook, a hidden folder; no environment, no rendered page."""
    found = {path.relative_to(ROOT).as_posix() for path in walk(ROOT)}
    wanted = {"requirements.txt", "notebooks/04_gym.ipynb", ".ci/run", ".gitignore"}
    assert wanted <= found
    assert not [name for name in found if re.match(r"\.venv/|book/_build|\.git/", name)]
