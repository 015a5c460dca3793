"""Everything this project does, by name: `python3 run.py TARGET [ARGUMENTS]`.

Standard library only, so that a fresh clone needs nothing but Python. The first run
makes .venv and installs requirements.txt into it; later runs start at once.
"""

import hashlib
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path

OLDEST, NEWEST = (3, 11), (3, 13)
ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
STAMP = VENV / "installed.txt"


class Failure(Exception):
    """A failure that we foresee: one line for the reader, and an exit status."""

    def __init__(self, message, status=1):
        super().__init__(message)
        self.status = status


def say(message):
    print(message, flush=True)


def call(*command, failure=None, **env):
    """Run a command of the environment; a failing one ends run.py with its status."""
    command = [str(part) for part in command]
    try:
        status = subprocess.call(command, cwd=ROOT, env=environment(**env))
    except OSError as error:
        raise Failure(f"{command[0]} did not start: {error}") from None
    if status < 0:  # ended by a signal: what a shell would report
        status = 128 - status
    if status:
        shown = " ".join(
            Path(command[0]).name if n == 0 else part for n, part in enumerate(command)
        )
        raise Failure(failure or f"`{shown}` failed (status {status}).", status)


def environment(**extra):
    """What a child sees: the environment of .venv, as if it were activated."""
    env = dict(os.environ, VIRTUAL_ENV=str(VENV), PYTHONUTF8="1", **extra)
    env["PATH"] = str(BIN) + os.pathsep + env.get("PATH", "")
    env.pop("PYTHONHOME", None)
    return env


# One thread: faster on these tiny models, and the same bits every time.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


# ---- Setting up ----


def wanted():
    """What .venv must hold: changes when the pins, the package or Python change."""
    digest = hashlib.sha256(platform.python_version().encode())
    for name in ("requirements.txt", "pyproject.toml"):
        digest.update((ROOT / name).read_bytes().replace(b"\r\n", b"\n"))
    # An editable install remembers where the tree is: a moved tree installs again.
    digest.update(str(ROOT).encode())
    return digest.hexdigest()


def works():
    """Whether .venv has a Python that starts and has this one's version."""
    show = "import sys, pip; print('%d.%d' % sys.version_info[:2])"
    try:
        seen = subprocess.run(
            [PYTHON, "-c", show], capture_output=True, text=True, timeout=120
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return seen.stdout.strip() == "{}.{}".format(*sys.version_info)


def set_up():
    if STAMP.exists() and STAMP.read_text() == wanted() and PYTHON.exists():
        return
    if not works():
        if importlib.util.find_spec("ensurepip") is None:
            version = "{}.{}".format(*sys.version_info)
            raise Failure(
                "this Python has no `ensurepip`, so it cannot make an environment. "
                f"On Debian and Ubuntu: apt install python{version}-venv"
            )
        say("Making the environment .venv ...")
        made = subprocess.run(
            [sys.executable, "-m", "venv", "--clear", VENV],
            capture_output=True,
            text=True,
        )
        if made.returncode:
            why = (made.stdout + made.stderr).strip().splitlines()[-1:]
            raise Failure(f"Python could not make .venv: {why}", made.returncode)
    STAMP.unlink(missing_ok=True)
    say("Installing what requirements.txt pins: about 90 seconds and 1.8 GB ...")
    if sys.platform == "linux" and not any(
        "INDEX_URL" in name for name in os.environ if name.startswith("PIP_")
    ):
        say("(PyTorch may bring CUDA, several GB more: README.md says how not to.)")
    # Without a terminal, pip's progress is noise; with one it shows that things move.
    pip = [PYTHON, "-m", "pip", "--disable-pip-version-check"]
    quiet = [] if sys.stdout.isatty() else ["--quiet"]
    hint = "pip could not install it; its message is above. Is the network reachable?"
    call(*pip, "install", *quiet, "-r", "requirements.txt", failure=hint)
    # The build uses the pinned setuptools, so this step needs no network.
    here = ["--no-deps", "--no-build-isolation", "-e", "."]
    hint = "pip could not install agentrl itself."
    call(*pip, "install", *quiet, *here, failure=hint)
    STAMP.write_text(wanted())


# ---- A browser, for the tests of the pages ----

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
OWN_BROWSER = """
from pathlib import Path
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    path = playwright.chromium.executable_path
print(path if Path(path).exists() else "")
"""


def browser():
    """The path of a Chromium: one on the PATH, else Debian's, else Playwright's."""
    chosen = os.environ.get("AGENTRL_BROWSER")
    if chosen:
        if shutil.which(chosen):
            return chosen
        raise Failure(f"AGENTRL_BROWSER={chosen} is not a program that can be started.")
    found = installed_browser()
    if found:
        return found
    if is_debian() and shutil.which("apt-get") and os.geteuid() == 0:
        say("No Chromium found; installing Debian's ...")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.call(["apt-get", "update"], **quiet)
        subprocess.call(
            ["apt-get", "install", "-y", "--no-install-recommends", "chromium"],
            env=dict(os.environ, DEBIAN_FRONTEND="noninteractive"),
            **quiet,
        )
        if installed_browser():
            return installed_browser()
    if not own_browser():
        say("No Chromium found; fetching Playwright's ...")
        subprocess.call(
            [PYTHON, "-m", "playwright", "install", "chromium"], env=environment()
        )
    if own_browser():
        return own_browser()
    raise Failure(
        "the tests need Chromium or Chrome; please install one (Debian, as root: "
        "apt-get install chromium), or set AGENTRL_BROWSER to its path."
    )


def installed_browser():
    return next((path for path in map(shutil.which, BROWSERS) if path), None)


def own_browser():
    """The path of the browser that Playwright downloaded, or ''."""
    seen = subprocess.run(
        [PYTHON, "-c", OWN_BROWSER], capture_output=True, text=True, env=environment()
    )
    return seen.stdout.strip()


def is_debian():
    try:
        return platform.freedesktop_os_release().get("ID") == "debian"
    except (AttributeError, OSError):
        return False


# ---- The targets: the first line of each docstring is its help ----


def book(args):
    """render the book and print the page to open"""
    call(PYTHON, "book/build.py", *args)


def test(args):
    """check the package, the style, every notebook and every page"""
    chromium = browser()
    call(PYTHON, "book/tangle.py", "--check")
    call(PYTHON, "-m", "ruff", "check", *python_files())
    notebooks = ["notebooks"] if any(ROOT.glob("notebooks/*.ipynb")) else []
    # Two workers, and every notebook whole in one of them.
    workers = ["-n", "2", "--dist", "loadscope"]
    nbval = ["--nbval", "--nbval-current-env"]
    call(
        *(PYTHON, "-m", "pytest", *workers, *nbval, *notebooks, "tests", *args),
        failure="some tests failed; they are listed above.",
        AGENTRL_BROWSER=chromium,
        **ONE_THREAD,
    )


def python_files():
    rooms = "notebooks agentrl book tests benchmarks evidence run.py"
    return [name for name in rooms.split() if (ROOT / name).exists()]


def lab(args):
    """open the notebooks in JupyterLab"""
    # Jupyter refuses to run as root unless told; it listens on this machine only.
    root = ["--allow-root"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    call(PYTHON, "-m", "jupyterlab", *root, "notebooks", *args, **ONE_THREAD)


def notebooks(args):
    """run notebooks, all or those named, and store their outputs"""
    call(PYTHON, "book/execute.py", *args, **ONE_THREAD)


def package(args):
    """write agentrl from the notebooks"""
    call(PYTHON, "book/tangle.py", *args)


def evidence(args):
    """run the studies over many seeds (slow)"""
    call(PYTHON, "evidence/studies.py", *args, **ONE_THREAD)


def bench(args):
    """time the training loop"""
    call(PYTHON, "benchmarks/bench.py", *args, **ONE_THREAD)


def clean(args):
    """remove what was built; with --all also .venv"""
    if set(args) - {"--all"}:
        raise Failure(f"clean takes no argument but --all, not {' '.join(args)}.", 2)
    built = "book/_build book/_static/vendor build"
    kept = ".pytest_cache .ruff_cache .hypothesis"
    doomed = [ROOT / name for name in f"{built} {kept}".split()]
    doomed += ROOT.glob("*.egg-info")
    for room in (ROOT, *(path for path in ROOT.iterdir() if path.is_dir())):
        if room != VENV:
            for name in ("__pycache__", ".ipynb_checkpoints"):
                doomed += room.glob(f"{'' if room == ROOT else '**/'}{name}")
    if args:
        doomed.append(VENV)
    for path in doomed:
        shutil.rmtree(path, ignore_errors=True)
    say("Clean." if args else "Clean; .venv stays (clean --all removes it too).")


TARGETS = {
    target.__name__: target
    for target in (book, test, lab, notebooks, package, evidence, bench, clean)
}


def usage():
    lines = [f"  {name:10} {target.__doc__}" for name, target in TARGETS.items()]
    return "\n".join(["usage: python3 run.py TARGET [ARGUMENTS]", "", *lines])


def main(arguments):
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        seen, oldest, newest = (
            "{}.{}".format(*version) for version in (sys.version_info, OLDEST, NEWEST)
        )
        print(
            f"run.py: this is Python {seen}; it needs {oldest} to {newest}.",
            file=sys.stderr,
        )
        return 1
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if arguments else 2
    name, *args = arguments
    if name not in TARGETS:
        print(f"run.py: there is no target {name!r}.\n\n{usage()}", file=sys.stderr)
        return 2
    try:
        if name != "clean":
            set_up()
        TARGETS[name](args)
    except Failure as failure:
        print(f"run.py: {failure}", file=sys.stderr)
        return failure.status
    except KeyboardInterrupt:
        print("run.py: stopped.", file=sys.stderr)
        return 128 + signal.SIGINT
    except OSError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
