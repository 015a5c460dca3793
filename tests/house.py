"""What the tests of the house and of the pages share."""

import functools
import importlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "book" / "_build" / "html"


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def toc_pages():
    """The pages of the book in reading order: 'book/intro', 'notebooks/04_gym', ..."""
    toc = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text(encoding="utf-8"))
    chapters = [chapter for part in toc["parts"] for chapter in part["chapters"]]
    return [toc["root"], *(chapter["file"] for chapter in chapters)]


def toc_notebooks():
    """The names of the notebooks in the book, without their folder and ending."""
    return [page.split("/")[1] for page in toc_pages() if page.startswith("notebooks/")]


def read_notebook(name):
    path = ROOT / "notebooks" / f"{name}.ipynb"
    return json.loads(path.read_text(encoding="utf-8"))


def tracked_files():
    """Every file that git tracks, or would: what a clone will hold."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    paths = [ROOT / name for name in listed.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


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
