"""What the tests of the house and of the pages share."""

import functools
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path, PurePosixPath

from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "book" / "_build" / "html"


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def book_module(name):
    """A script of book/ as a module: 'tangle', 'build', ..."""
    folder = str(ROOT / "book")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)


def toc_pages():
    """The pages of the book in reading order: 'book/intro', 'notebooks/04_gym', ..."""
    return book_module("tangle").toc_pages()


def toc_notebooks():
    """The names of the notebooks in the book, without their folder and ending."""
    return [page.split("/")[1] for page in toc_pages() if page.startswith("notebooks/")]


def modules_in_order():
    """The modules of agentrl in reading order: those of notebooks that save cells."""
    return [
        re.sub(r"^(\d+_)+", "", name)
        for name in toc_notebooks()
        if any(
            "".join(cell["source"]).startswith("#@save\n")
            for cell in read_notebook(name)["cells"]
        )
    ]


def read_notebook(name):
    path = ROOT / "notebooks" / f"{name}.ipynb"
    return json.loads(path.read_text(encoding="utf-8"))


def tracked_files():
    """Every file that a clone holds: as git lists them, or, without git, by walking."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        return walk(ROOT)
    run = subprocess.run(command, cwd=ROOT, capture_output=True)
    if run.returncode:  # a folder of somebody else, say, which git does not trust
        return walk(ROOT)
    paths = [ROOT / name for name in run.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def walk(root):
    """Every file below root that its .gitignore does not name."""
    lines = (root / ".gitignore").read_text(encoding="utf-8").splitlines()
    ignored = [line for line in lines if line and not line.startswith("#")]
    found = []
    for folder, folders, files in os.walk(root):
        here = Path(folder).relative_to(root)
        folders[:] = [
            name
            for name in folders
            if name != ".git" and not is_ignored(here / name, ignored)
        ]
        found += [root / here / name for name in files if name != ".git"]
    return found


def is_ignored(folder, patterns):
    """Whether a folder is named: '.venv/' anywhere, 'book/_static/vendor/' there."""
    path = PurePosixPath(*folder.parts)
    return any(path.match(pattern.rstrip("/")) for pattern in patterns)


@functools.cache
def build_book():
    """Render the book unless it is up to date. -> (exit status, what was printed)"""
    command = [sys.executable, "book/build.py", "--if-changed"]
    run = subprocess.run(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return run.returncode, run.stdout


def article(name):
    """What a rendered page says, without the theme around it: 'book/intro', ..."""
    text = (HTML / f"{name}.html").read_text(encoding="utf-8")
    return BeautifulSoup(text, "html.parser").find("article")


def book_extension(name):
    """A Sphinx extension of the book as a module: 'book_api', ..."""
    folder = str(ROOT / "book" / "ext")
    if folder not in sys.path:  # one extension imports another
        sys.path.insert(0, folder)
    return importlib.import_module(name)


def browser():
    """The Chromium that run.py found, or one on the PATH, or None: Playwright's own."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = (os.environ.get("AGENTRL_BROWSER"), *map(shutil.which, names))
    return next((path for path in found if path), None)
