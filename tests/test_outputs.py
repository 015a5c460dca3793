"""book/outputs.py: what is masked, and that no text makes it slow."""

import asyncio
import base64
import random
import sys
import tempfile
from pathlib import Path
from queue import Empty

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book"))
from outputs import look_again, mask, without_pictures  # noqa: E402

TEMPORARY = tempfile.gettempdir()


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("<f at 0x7f3a5c0e8d60>", "<f at 0x…>"),
        ("at 0x1f, hat 0x7f3a5c0e8d60", "at 0x1f, hat 0x7f3a5c0e8d60"),
        (f"{TEMPORARY}/ipykernel_71/123.py:9: Warning", "<cell>:9: Warning"),
        (f'File "{TEMPORARY}/ipykernel_71/123.py", line 1', 'File "<cell>", line 1'),
        (r"(C:\T\ipykernel_7\12.py:1)", "(<cell>:1)"),
        ("ipykernel_71/123.py", "ipykernel_71/123.py"),
        (f"in {ROOT}/notebooks, {ROOT}", "in <root>/notebooks, <root>"),
        (f"file://{ROOT}/a, x={ROOT}", "file://<root>/a, x=<root>"),
        (f"a{ROOT}", f"a{ROOT}"),
        (f"'{TEMPORARY}/tmp1 x' <{TEMPORARY}/y>", "'<temporary> x' <<temporary>>"),
        (f"{TEMPORARY} and a{TEMPORARY}/b", f"{TEMPORARY} and a{TEMPORARY}/b"),
        ("<a>\n  <dc:date>2026-01-01</dc:date>\n</a>", "<a>\n</a>"),
        ("<dc:date>1</dc:date> <dc:date>2</dc:date>", ""),
        ("<dc:date>open", "<dc:date>open"),
    ],
)
def test_accidents_are_masked_and_nothing_else(text, masked):
    assert mask(text) == masked
    assert mask(masked) == masked


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a<svg><path/></svg>b<svg x='1'/></svg>", "a<picture>b<picture>"),
        ("<svg>\n</svg> <svg> never closed", "<picture> <svg> never closed"),
        ("</svg> <svgs></svg>", "</svg> <svgs></svg>"),
        ("<img src=\"data:image/png;base64,AA'A\">", "<img src=<picture>>"),
        ("<img src='data:image/png;base64,AAA'>", "<img src='<picture>'>"),
        ("url(data:image/png;base64,AAA) data:text/plain,A",
         "url(<picture>) data:text/plain,A"),
        ("no picture", "no picture"),
    ],
)  # fmt: skip
def test_pictures_become_a_word(text, left):
    assert without_pictures(text) == left


RANDOM = random.Random(0).randbytes(200_000)
LONG = {
    "base64": base64.b64encode(RANDOM).decode(),
    "base64-lines": base64.encodebytes(RANDOM).decode(),
    "one-letter": "x" * 300_000,
    "blanks": " " * 300_000,
    "lines": "\n" * 300_000,
    "slashes": "/" * 300_000,
    "kernels": "/ipykernel_" * 30_000,
    "kernel-digits": "/ipykernel_" + "1" * 300_000,
    "addresses": "at 0x" * 60_000,
    "hex": "at 0x" + "f" * 300_000 + "g",
    "roots": f"{ROOT}x" * 3_000,
    "temporary": f"{TEMPORARY}/" * 60_000,
    "dates": "<dc:date>" * 30_000,
    "blanks-dates": "  <dc:date>" * 30_000,
    "svg": "<svg " * 60_000,
    "svg-last": "<svg " * 60_000 + "</svg>",
    "svg-first": "</svg>" + "<svg " * 60_000,
    "pictures": '"data:image/' * 30_000,
    "pictures-bare": "data:image/" * 30_000,
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_text_takes_time_by_its_length_only(name):
    """By the square of it, each would take minutes, up to the time limit of a test."""
    for text in (LONG[name], LONG[name] + "\nend", "start " + LONG[name]):
        without_pictures(mask(text))


def test_a_long_text_without_accidents_stays():
    for name in ("base64", "base64-lines", "one-letter", "blanks", "lines", "slashes"):
        assert without_pictures(mask(LONG[name])) == LONG[name]


def test_a_folder_with_a_longer_name_is_not_the_root():
    assert "<root>" not in mask(f"{ROOT}2") and mask(f"{ROOT}/2") == "<root>/2"


class Asleep:
    """A channel whose message is there, but only who looks anew will see it."""

    def __init__(self, looks):
        self.looks = looks

    async def get_msg(self, timeout=None):
        assert timeout is not None, "who waits without an end is never woken"
        self.looks -= 1
        if self.looks:
            raise Empty
        return "answer"


def test_a_message_that_woke_nobody_is_found_by_looking_again():
    channel = Asleep(looks=3)
    look_again(channel)
    assert asyncio.run(channel.get_msg()) == "answer"


def test_who_waits_for_some_time_only_is_told_that_it_is_over():
    channel = Asleep(looks=3)
    look_again(channel)
    with pytest.raises(Empty):
        asyncio.run(channel.get_msg(timeout=0))
    assert channel.looks == 2
