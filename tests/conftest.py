"""What the tests of the package share."""

import os
import signal

# A shell starts what runs in the background with SIGINT ignored, and children inherit
# that; tests interrupt some, as a reader does.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# One thread, and before anything imports torch: equal seeds then give equal bits.
os.environ["OMP_NUM_THREADS"] = "1"

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("book", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("book")


@pytest.fixture(scope="session")
def tok():
    """The tokenizer of the whole gym."""
    import agentrl as arl

    return arl.build_tokenizer(arl.make_tasks("all"))


@pytest.fixture(scope="session")
def train_tasks():
    import agentrl as arl

    return arl.make_tasks("train")


@pytest.fixture(scope="session")
def apprentice_state(tok):
    import tiny

    return tiny.apprentice(tok).state_dict()


@pytest.fixture
def apprentice(tok, apprentice_state):
    """A fresh copy of a small policy that mostly writes calls, on the fast path."""
    import tiny

    model = tiny.small_policy(tok, width=32)
    model.load_state_dict(apprentice_state)
    return model


@pytest.fixture
def project(tmp_path, capsys):
    """A small tree with notebooks, for the tests of book/tangle.py."""
    from tangling import Project

    return Project(tmp_path, capsys)


@pytest.fixture(scope="module")
def chromium():
    """A browser, in tests that look at pages."""
    from browsing import open_chromium

    with open_chromium() as started:
        yield started


@pytest.fixture(scope="module")
def server():
    """The address of a web server for the book."""
    from browsing import serve_book

    with serve_book() as address:
        yield address
