"""What makes the output of a cell the same on every run and on every machine.

Shared by `execute.py`, which stores outputs, and by `notebooks/conftest.py`, which
compares them: both start kernels with KERNEL_ENV and pass every text through `mask`.
"""

import re
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# One thread (more give other last bits, and are slower here), one order of sets, no
# date in a figure, our own matplotlibrc in place of the reader's, no progress bar.
KERNEL_ENV = {
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "SOURCE_DATE_EPOCH": "0",
    "MATPLOTLIBRC": str(ROOT / "book" / "matplotlibrc"),
    "TQDM_DISABLE": "1",
}

# What stands in a text by accident: (pattern, replacement), in this order.
ACCIDENTS = [
    # <function f at 0x7f3a5c0e8d60>; a bare 0x1f is a number and stays
    (re.compile(r"\bat 0x[0-9A-Fa-f]{6,}"), "at 0x…"),
    # the file that ipykernel invents for a cell, in warnings and tracebacks
    (re.compile(r"[^\s'\"(<]*[/\\]ipykernel_\d+[/\\]\d+\.py"), "<cell>"),
    (re.compile(re.escape(str(ROOT))), "<root>"),
    (
        re.compile(re.escape(tempfile.gettempdir()) + r"[/\\][^\s'\"<>)]+"),
        "<temporary>",
    ),
    (re.compile(r"\s*<dc:date>.*?</dc:date>", re.DOTALL), ""),
]


def mask(text):
    """The text without addresses, paths of this machine, and dates of figures."""
    for pattern, replacement in ACCIDENTS:
        text = pattern.sub(replacement, text)
    return text


def without_pictures(text):
    """The text with each embedded picture replaced by a word: for comparing."""
    text = re.sub(r'"data:image/[^"]*"|data:image/[^"\')\s]+', "<picture>", text)
    return re.sub(r"<svg\b.*?</svg>", "<picture>", text, flags=re.DOTALL)


def mask_output(output):
    """A stored output with each of its texts masked, in place."""
    for key in ("text", "evalue"):
        if key in output:
            output[key] = mask(output[key])
    if "traceback" in output:
        output["traceback"] = [mask(line) for line in output["traceback"]]
    for kind, value in output.get("data", {}).items():
        if isinstance(value, str) and (kind.startswith("text/") or "svg" in kind):
            output["data"][kind] = mask(value)


def merge_streams(outputs):
    """Neighbouring stream outputs joined, stdout before stderr.

    The kernel sends its two streams by a timer, so how they interleave is an accident.
    """
    merged, run = [], {}
    for output in [*outputs, None]:
        if output is not None and output["output_type"] == "stream":
            if output["name"] in run:
                run[output["name"]]["text"] += output["text"]
            else:
                run[output["name"]] = output
            continue
        merged += [run[name] for name in ("stdout", "stderr") if name in run]
        run = {}
        if output is not None:
            merged.append(output)
    return merged
