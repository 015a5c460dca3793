"""What makes the output of a cell the same on every run and on every machine.

Shared by `execute.py`, which stores outputs, and by `notebooks/conftest.py`, which
compares them: both run their cells in `running` and pass every text through `mask`.
"""

import math
import os
import re
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from queue import Empty

from ipykernel.kernelspec import RESOURCES, get_kernel_dict
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

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


class OwnKernel(KernelSpecManager):
    """Any kernel is the Python that runs this script, whatever else is installed."""

    def get_kernel_spec(self, kernel_name):
        return self.kernel_spec_class(resource_dir=RESOURCES, **get_kernel_dict())


@contextmanager
def running(notebook, folder, timeout=None):
    """A new kernel in the folder: the client whose `execute_cell` runs a cell there.

    It follows the notebook's protocol (`clear_output`, updated displays, a `;` at the
    end, output widgets), so what is compared is made just as what is stored.
    """
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=OwnKernel())
    client = NotebookClient(
        notebook,
        km=manager,
        timeout=timeout,
        startup_timeout=600,  # on a busy machine a start, or a message, takes its time:
        iopub_timeout=600,  # an output that comes late must not be left out
        raise_on_iopub_timeout=True,
        record_timing=False,
        store_widget_state=True,
        extra_arguments=["--log-level=ERROR"],  # else it warns that TCP is in clear
    )
    # Not client.execute(): that one takes Ctrl-C for itself.
    environment = {**os.environ, **KERNEL_ENV}
    with client.setup_kernel(cleanup_kc=True, cwd=str(folder), env=environment):
        look_again(client.kc.shell_channel)
        try:
            yield client
        except BaseException as error:
            if not isinstance(error, Exception):  # Ctrl-C: do not wait for a busy cell
                client.shutdown_kernel = "immediate"
            raise


def look_again(channel, seconds=1.0):
    """Look at a channel anew every second while a message is waited for.

    nbclient tells the kernel of output widgets on the channel on which it waits for the
    answer to a cell; an answer that comes in that moment would wake nobody.
    """
    get = channel.get_msg

    async def get_msg(timeout=None):
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            try:
                return await get(timeout=min(seconds, max(left, 0.0)))
            except Empty:
                if left <= seconds:
                    raise

    channel.get_msg = get_msg


# What stands in a text by accident: (pattern, replacement), in this order. Each takes
# time in proportion to the text: a part that repeats may begin at one place only, and
# gives nothing back (`*+`).
ACCIDENTS = [
    # <function f at 0x7f3a5c0e8d60>; a bare 0x1f is a number and stays
    (re.compile(r"\bat 0x[0-9A-Fa-f]{6,}"), "at 0x…"),
    # the file that ipykernel invents for a cell, in warnings and tracebacks
    (
        re.compile(r"(?<![^\s'\"(<])[^\s'\"(<]*[/\\]ipykernel_\d+[/\\]\d+\.py"),
        "<cell>",
    ),
    # not in the middle of a name: /book is no part of /book2
    (re.compile(rf"(?<!\w){re.escape(str(ROOT))}(?!\w)"), "<root>"),
    (
        re.compile(rf"(?<!\w){re.escape(tempfile.gettempdir())}[/\\][^\s'\"<>)]+"),
        "<temporary>",
    ),
    (re.compile(r"(?<!\s)\s*+<dc:date>[^<]*+</dc:date>"), ""),
]


def mask(text):
    """The text without addresses, paths of this machine, and dates of figures."""
    for pattern, replacement in ACCIDENTS:
        text = pattern.sub(replacement, text)
    return text


def without_pictures(text):
    """The text with each embedded picture replaced by a word: for comparing."""
    text = re.sub(r'"data:image/[^"]*"|data:image/[^"\')\s]+', "<picture>", text)
    # Up to the last end, so that no <svg is looked for in vain.
    text, end, rest = text.rpartition("</svg>")
    return re.sub(r"<svg\b.*?</svg>", "<picture>", text + end, flags=re.S) + rest


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
