"""How nbval compares what a notebook prints with what is stored in it.

Text is compared exactly, `text/html` too. Of pictures (png, jpeg, svg, also those
inside html) and of widgets only the presence is compared: what they show is a claim.
Tags in a cell's metadata change the rule for its texts:

    tol:0.02    floats may differ by 0.02
    rtol:0.05   floats may differ by 0.05 of the stored value (with both: by the sum)
    trained     texts may differ; the kinds and the number of outputs may not. What such
                a cell says must be a claim, which raises when it is false

A float is a number with digits after its point, or an exponent. Integers, words, `nan`
and `inf` stay exact under a tolerance; the width of columns does not count.
"""

import os
import re
import sys
from decimal import Decimal, InvalidOperation
from pathlib import Path

import nbformat
from nbval.plugin import IPyNbCell

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "book"))
from outputs import KERNEL_ENV, mask, without_pictures  # noqa: E402

os.environ.update(KERNEL_ENV)  # the kernels inherit it

WIDGET = "application/vnd.jupyter.widget-view+json"
PRESENCE = {WIDGET, "image/jpeg", "image/png", "image/svg+xml"}
NOT_COMPARED = ("metadata", "traceback", "output_type", "name", "execution_count")
# A number, where it is no part of a word or of a version (x1, 2.13.0).
NUMBER = re.compile(
    r"(?<![\w.])([-+\u2212]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?!\.?\d)"
)
FLOAT = re.compile(r"\.\d|[eE]")


class Rule:
    """What the tags of a cell allow."""

    def __init__(self, tags):
        self.trained = "trained" in tags
        self.tolerance = {}  # of `tol` and `rtol`
        for tag in tags:
            if tag.startswith(("tol", "rtol")):
                kind, _, number = tag.partition(":")
                self.tolerance[kind] = positive(number)
                if kind not in ("tol", "rtol") or not self.tolerance[kind]:
                    raise ValueError(f"tag {tag!r}: write 'tol:0.02' or 'rtol:0.05'")

    def same(self, stored, new):
        """Whether two texts agree."""
        if self.trained or stored == new or not self.tolerance:
            return self.trained or stored == new
        stored, new = NUMBER.split(stored), NUMBER.split(new)  # words, number, words...
        return (
            len(stored) == len(new)
            and all(map(same_words, stored[::2], new[::2]))
            and all(map(self.same_number, stored[1::2], new[1::2]))
        )

    def same_number(self, stored, new):
        # numpy prints a float that is whole as `1.`, which alone may end a sentence
        floats = FLOAT.search(stored) or FLOAT.search(new)
        if stored == new or not floats or not all(map(pointed, (stored, new))):
            return stored == new
        stored, new = (Decimal(n.replace("\u2212", "-")) for n in (stored, new))
        allowed = self.tolerance.get("tol", 0)
        allowed += self.tolerance.get("rtol", 0) * abs(stored)
        return abs(stored - new) <= allowed


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


class BookCell(IPyNbCell):
    """A cell that is compared by the rule above."""

    def runtest(self):
        # nbval would not compare a cell that was never run
        if self.cell.execution_count is None:
            self.cell.execution_count = 0
        super().runtest()

    def sanitize(self, value):
        if not isinstance(value, str) and not self.rule.trained:
            return value
        text = Text(without_pictures(mask(str(value))))
        text.rule = self.rule
        return text

    def compare_outputs(self, test, ref, skip_compare=None):
        self.rule = Rule(self.cell.metadata.get("tags", []))
        test, ref = [[by_presence(o) for o in outputs] for outputs in (test, ref)]
        same = super().compare_outputs(test, ref, NOT_COMPARED)
        if not same and self.rule.tolerance:
            allowed = ", ".join(f"{k}:{v}" for k, v in self.rule.tolerance.items())
            self.comparison_traceback.append(f"(floats compared with {allowed})")
        return same


def by_presence(output):
    """The output with its pictures and widgets replaced by a word."""
    data = output.get("data")
    if not data:
        return output
    words = dict.fromkeys(PRESENCE & data.keys(), "<present>")
    if WIDGET in words:
        words["text/plain"] = "<present>"  # the widget's repr, cut off at some length
    return nbformat.from_dict({**output, "data": {**data, **words}})


def pytest_itemcollected(item):
    if type(item) is IPyNbCell:  # nbval names its own class, so it is changed here
        item.__class__ = BookCell
