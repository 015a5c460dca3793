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
import tempfile
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


def moved():
    """Whether .venv was made in another place: its programs name the Python there."""
    try:
        lines = (VENV / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False  # whether it works is another question
    made = [os.path.normcase(line) for line in lines if line.startswith("command =")]
    return any(not line.endswith(os.path.normcase(VENV)) for line in made)


def set_up():
    if STAMP.exists() and STAMP.read_text() == wanted() and PYTHON.exists():
        return
    if moved() or not works():
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
    """The path of a Chromium. None is installed unless the reader, or CI, asked."""
    chosen = os.environ.get("AGENTRL_BROWSER")
    if chosen:
        if shutil.which(chosen):
            return chosen
        raise Failure(f"AGENTRL_BROWSER={chosen} is not a program that can be started.")
    found = installed_browser() or own_browser()
    if not found and may_install():
        install_browser()
        found = installed_browser() or own_browser()
    if found:
        return found
    raise Failure(
        "the tests need Chromium or Chrome, and there is none. To install one: "
        f"`{install_line()}`; or set AGENTRL_INSTALL_BROWSER=1, and this command does "
        "it; or AGENTRL_BROWSER to the path of yours."
    )


def may_install():
    """AGENTRL_INSTALL_BROWSER=1 asks for it; so does CI, whose machines are its own."""
    asked = os.environ.get("AGENTRL_INSTALL_BROWSER") or os.environ.get("CI", "")
    return asked.lower() in ("1", "true", "yes")


def is_debian_root():
    return is_debian() and bool(shutil.which("apt-get")) and os.geteuid() == 0


def install_line():
    """The one command that gets a browser on this machine."""
    if is_debian_root():
        return "apt-get install chromium"
    return f"{PYTHON.relative_to(ROOT)} -m playwright install chromium"


def install_browser():
    if is_debian_root():
        say("No Chromium found; installing Debian's ...")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        subprocess.call(["apt-get", "update"], **quiet)
        install = ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]
        if subprocess.call(install, env=env, **quiet) == 0:
            return
    say("No Chromium found; fetching Playwright's ...")
    playwright = [PYTHON, "-m", "playwright", "install", "chromium"]
    subprocess.call(playwright, env=environment())


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
    make_bases(environment(**ONE_THREAD))
    call(
        *pytest(*args),
        failure="some tests failed; they are listed above.",
        AGENTRL_BROWSER=chromium,
        **ONE_THREAD,
    )


def python_files():
    rooms = "notebooks agentrl book tests benchmarks evidence run.py"
    return [name for name in rooms.split() if (ROOT / name).exists()]


def pytest(*args):
    """The command for all tests: two workers, and every notebook whole in one."""
    notebooks = ["notebooks"] if any(ROOT.glob("notebooks/*.ipynb")) else []
    workers = ["-n", "2", "--dist", "loadscope"]
    nbval = ["--nbval", "--nbval-current-env"]
    return [PYTHON, "-m", "pytest", *workers, *nbval, *notebooks, "tests", *args]


BASE = """
import sys
import agentrl as arl
getattr(arl, sys.argv[1])(arl.build_tokenizer(arl.make_tasks("all")))
"""


def make_bases(env):
    """Make the lessons' two base agents: else one worker would wait for the other."""
    makers = ("make_base_agent", "make_rl_base")
    commands = [[str(PYTHON), "-c", BASE, maker] for maker in makers]
    running = [subprocess.Popen(command, cwd=ROOT, env=env) for command in commands]
    statuses = [process.wait() for process in running]
    if any(statuses):
        raise Failure("the base agents could not be made; the message is above.")


# Kinds of CPU, weakest first: how PyTorch calls them, and how MKL does.
KINDS = {"default": "COMPATIBLE", "avx2": "AVX2", "avx512": "AVX512"}
# Tests of pages, tools and words, which no kind of CPU can change.
ANY_KIND = "api_page book cover explorers house lab pages publishing tangle run".split()


def cpus(args):
    """run notebooks and tests as other kinds of CPU would (slow; names choose kinds)"""
    unknown = set(args) - set(KINDS)
    if unknown:
        kinds = ", ".join(KINDS)
        raise Failure(f"cpus takes {kinds}, not {', '.join(sorted(unknown))}.", 2)
    here = kinds_here()
    failed = []
    (ROOT / "book" / "_build").mkdir(exist_ok=True)
    for kind in args or here:
        if kind not in here:
            say(f"{kind}: this machine cannot be one")
            continue
        log = ROOT / "book" / "_build" / f"cpu-{kind}.txt"
        status, summary = as_kind(kind, log)
        say(f"{kind}: {summary}; all of it in {log.relative_to(ROOT).as_posix()}")
        failed += [kind] if status else []
    if failed:
        raise Failure(f"something differs on {', '.join(failed)}.")


def kinds_here():
    """The kinds that this machine can be: its own, and the weaker ones."""
    code = "import torch; print(torch.backends.cpu.get_cpu_capability().lower())"
    env = {k: v for k, v in environment().items() if k != "ATEN_CPU_CAPABILITY"}
    run = subprocess.run([PYTHON, "-c", code], env=env, capture_output=True, text=True)
    own, kinds = run.stdout.strip(), list(KINDS)
    return kinds[: kinds.index(own) + 1] if own in kinds else kinds[:1]


def as_kind(kind, log):
    """Run what depends on the CPU, with an empty cache. -> status and a summary"""
    skip = [f"--ignore-glob=tests/test_{name}*.py" for name in ANY_KIND]
    command = [str(part) for part in pytest(*skip, "--quiet")]
    with tempfile.TemporaryDirectory() as cache, open(log, "wb") as file:
        env = environment(
            ATEN_CPU_CAPABILITY=kind,
            MKL_CBWR=KINDS[kind],
            AGENTRL_CACHE=cache,
            **ONE_THREAD,
        )
        make_bases(env)
        status = subprocess.call(command, cwd=ROOT, env=env, stdout=file, stderr=file)
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return status, lines[-1].strip(" =") if lines else "nothing ran"


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
    for target in (book, test, cpus, lab, notebooks, package, evidence, bench, clean)
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
