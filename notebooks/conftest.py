"""How nbval compares what a notebook prints with what is stored in it.

Text is compared exactly, `text/html` too, with three exceptions for every cell:

- Two numbers that are both smaller than 0.00001 in size are equal: a sum of rounding
  errors is 0 on one kind of CPU and 1.4e-06 on another.
- Of a claim (the row that `agentrl.claim` shows) the sentence, the bounds and the
  verdict are compared, not the value: that it lies within the bounds has been checked.
- Of pictures (png, jpeg, svg, also those inside html) and of widgets only the presence
  is compared: what they show is a claim.

Tags in a cell's metadata change the rule for its texts:

    tol:0.02     floats may differ by 0.02
    rtol:0.05    floats may differ by 0.05 of the stored value (with both: by the sum)
    exact-claim  the value of a claim is compared, too: like any other text of the cell
    trained      texts may differ; the kinds and the number of outputs may not. What
                 such a cell says must be a claim, which raises when it is false

A float is a number with digits after its point, or an exponent. Integers, words, `nan`
and `inf` stay exact under a tolerance; the width of columns does not count.
"""

import copy
import re
import sys
from contextlib import ExitStack
from decimal import Decimal, InvalidOperation
from pathlib import Path

import nbformat
from nbclient.exceptions import (
    CellExecutionError,
    CellTimeoutError,
    DeadKernelError,
)
from nbval.plugin import IPyNbCell, IPyNbFile, coalesce_streams

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "book"))
from outputs import mask, running, without_pictures  # noqa: E402

WIDGET = "application/vnd.jupyter.widget-view+json"
PRESENCE = {WIDGET, "image/jpeg", "image/png", "image/svg+xml"}
NOT_COMPARED = ("metadata", "traceback", "output_type", "name", "execution_count")
# A number, where it is no part of a word or of a version (x1, 2.13.0).
NUMBER = re.compile(
    r"(?<![\w.])([-+\u2212]?(?:\d++\.?+\d*+|\.\d++)(?:[eE][-+]?\d++)?+)(?!\.?\d)"
)
FLOAT = re.compile(r"\.\d|[eE]")
SMALL = Decimal("0.00001")  # numbers below it are equal to 0, and to each other
# A claim as html, and as text: what stands before its value, the value.
CLAIM = re.compile(
    r'(<div class="claim"><table><tr><td class="claim-text">[^<]*</td>'
    r'<td class="claim-value">)([^<]*)'
)
CLAIM_TEXT = re.compile(r"(.*: )(\S+)(?= is in \[)", re.DOTALL)


class Rule:
    """What the tags of a cell allow."""

    def __init__(self, tags):
        self.trained = "trained" in tags
        self.exact_claim = "exact-claim" in tags
        self.tolerance = {}  # of `tol` and `rtol`
        for tag in tags:
            if tag.startswith(("tol", "rtol")):
                kind, _, number = tag.partition(":")
                self.tolerance[kind] = positive(number)
                if kind not in ("tol", "rtol") or not self.tolerance[kind]:
                    raise ValueError(f"tag {tag!r}: write 'tol:0.02' or 'rtol:0.05'")

    def same(self, stored, new):
        """Whether two texts agree."""
        if self.trained or stored == new:
            return True
        stored, new = NUMBER.split(stored), NUMBER.split(new)  # words, number, words...
        # Without a tolerance, blanks count unless a number has another width.
        return (
            len(stored) == len(new)
            and (bool(self.tolerance) or stored[1::2] != new[1::2])
            and all(map(same_words, stored[::2], new[::2]))
            and all(map(self.same_number, stored[1::2], new[1::2]))
        )

    def same_number(self, stored, new):
        if stored == new:
            return True
        size, new_size = (Decimal(n.replace("\u2212", "-")) for n in (stored, new))
        if abs(size) < SMALL and abs(new_size) < SMALL:
            return True
        # numpy prints a float that is whole as `1.`, which alone may end a sentence
        floats = FLOAT.search(stored) or FLOAT.search(new)
        if not floats or not all(map(pointed, (stored, new))):
            return False
        allowed = self.tolerance.get("tol", 0)
        allowed += self.tolerance.get("rtol", 0) * abs(size)
        return bool(allowed) and abs(size - new_size) <= allowed


def positive(number):
    """The number, or None where it is none or not above 0."""
    try:
        value = Decimal(number)
    except InvalidOperation:
        return None
    return value if value.is_finite() and value > 0 else None


def pointed(number):
    return "." in number or "e" in number.lower()


def same_words(stored, new):
    return re.sub(" +", " ", stored).strip(" ") == re.sub(" +", " ", new).strip(" ")


class Text(str):
    """A text that equals another one where the rule of its cell says so."""

    def __eq__(self, other):
        return self.rule.same(str(self), str(other))

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


class BookFile(IPyNbFile):
    """A notebook whose cells run just as when their outputs were stored."""

    def setup(self):
        # A cell that is run loses its stored outputs: it works on a copy.
        code = [cell for cell in self.nb.cells if cell.cell_type == "code"]
        notebook = nbformat.from_dict({**self.nb, "cells": copy.deepcopy(code)})
        timeout = int(self.config.option.nbval_cell_timeout)
        self.stack = ExitStack()
        folder = Path(str(self.fspath)).parent
        self.client = self.stack.enter_context(running(notebook, folder, timeout))

    def teardown(self):
        self.stack.close()


class BookCell(IPyNbCell):
    """A cell that is compared by the rule above."""

    def runtest(self):
        client = self.parent.client
        cell = client.nb.cells[self.cell_num]
        cell.outputs = []  # an empty cell is not run
        try:
            client.execute_cell(cell, self.cell_num)
        except CellExecutionError as error:
            self.raise_cell_error("Cell execution caused an exception", str(error))
        except (CellTimeoutError, DeadKernelError) as error:
            self.raise_cell_error(str(error))
        new, stored = map(coalesce_streams, (cell.outputs, self.cell.outputs))
        if not self.compare_outputs(new, stored):
            difference = "\n".join(self.comparison_traceback)
            self.raise_cell_error("Cell outputs differ", difference)

    def sanitize(self, value):
        if not isinstance(value, str) and not self.rule.trained:
            return value
        text = Text(without_pictures(mask(str(value))))
        text.rule = self.rule
        return text

    def compare_outputs(self, test, ref, skip_compare=None):
        self.rule = Rule(self.cell.metadata.get("tags", []))
        test, ref = [
            [self.by_presence(output) for output in outputs] for outputs in (test, ref)
        ]
        same = super().compare_outputs(test, ref, NOT_COMPARED)
        if not same and self.rule.tolerance:
            allowed = ", ".join(f"{k}:{v}" for k, v in self.rule.tolerance.items())
            self.comparison_traceback.append(f"(floats compared with {allowed})")
        return same

    def by_presence(self, output):
        """The output with a word for each picture, widget and value of a claim."""
        data = dict(output.get("data") or {})
        if not data:
            return output
        data |= dict.fromkeys(PRESENCE & data.keys(), "<present>")
        if WIDGET in data:
            data["text/plain"] = "<present>"  # its repr, cut off at some length
        html = data.get("text/html")
        if not self.rule.exact_claim and isinstance(html, str) and CLAIM.match(html):
            data["text/html"] = CLAIM.sub(r"\1<value>", html)
            data["text/plain"] = CLAIM_TEXT.sub(r"\1<value>", data["text/plain"])
        return nbformat.from_dict({**output, "data": data})

    def format_output_compare(self, key, left, right):
        # What pytest says of two texts takes time by the square of their length.
        if all(isinstance(text, str) for text in (left, right)):
            left, right = shorter(left, right)
        super().format_output_compare(key, left, right)


def shorter(left, right, around=2000):
    """Two long texts from a little before their first difference."""
    if len(left) + len(right) < 4 * around:
        return left, right
    pairs = enumerate(zip(left, right, strict=False))
    first = next((i for i, (a, b) in pairs if a != b), min(len(left), len(right)))
    start = max(0, first - around // 2)
    return [str(text)[start : start + around] for text in (left, right)]


def pytest_itemcollected(item):
    if type(item) is IPyNbCell:  # nbval names its own classes, so they are changed here
        item.__class__ = BookCell
        item.parent.__class__ = BookFile
