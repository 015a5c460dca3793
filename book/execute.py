"""Run the notebooks and store their outputs.

    python book/execute.py                 all, in the order of _toc.yml
    python book/execute.py 9_3 04_gym      these, by number, name or path

A second run changes not one byte: whatever differs from run to run is left out, masked
or numbered anew (see `tidy`). A notebook is replaced only when all its cells ran, in
one step, so after an error or Ctrl-C each one is either old or new.
"""

import argparse
import json
import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient.exceptions import CellExecutionError, DeadKernelError
from outputs import mask_output, merge_streams, running
from tangle import ROOT, in_toc_order, write_all

WIDGETS = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"
# No version of Python here: the same notebook serves 3.11 to 3.13.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}
ANSI = re.compile(r"\x1b\[[0-9;]*m")


class CellFailed(Exception):
    """A cell raised, or its kernel died."""


def place(path, number, cell):
    return f"{path.parent.name}/{path.name}: cell {number} [{cell.get('id')}]"


def execute(notebook, path):
    """Run every cell in a new kernel, in the folder of the notebook."""
    notebook.metadata.pop("widgets", None)
    shown = []  # by each cell, when it had run
    with running(notebook, path.parent) as client:
        for index, cell in enumerate(notebook.cells):
            try:
                client.execute_cell(cell, index)
            except (CellExecutionError, DeadKernelError) as error:
                text = ANSI.sub("", getattr(error, "traceback", None) or str(error))
                where = place(path, index + 1, cell)
                raise CellFailed(f"{where} failed\n{text}") from None
            shown.append(json.dumps(cell.get("outputs")))
        client.set_widgets_metadata()
    for index, cell in enumerate(notebook.cells):
        if json.dumps(cell.get("outputs")) != shown[index]:  # the tests could not agree
            raise CellFailed(
                f"{place(path, index + 1, cell)} shows what a later cell has changed; "
                "update a display in the cell that makes it"
            )


def tidy(notebook):
    """The notebook with nothing left that differs between two runs."""
    notebook.metadata = nbformat.from_dict({**notebook.metadata, **METADATA})
    count = 0
    for cell in notebook.cells:
        cell.source = cell.source.replace("\r\n", "\n")
        if cell.cell_type != "code":
            continue
        cell.metadata.pop("execution", None)
        cell.execution_count = None
        if cell.source.strip():
            count += 1
            cell.execution_count = count
        cell.outputs = merge_streams(cell.outputs)
        for output in cell.outputs:
            mask_output(output)
            if "execution_count" in output:
                output.execution_count = count
    return renumber_widgets(drop_unseen_widgets(notebook))


def drop_unseen_widgets(notebook):
    """Of the stored widgets, only those stay that an output shows, or that link them.

    A form that only code has used would put its pictures into the page a second time.
    """
    state = notebook.metadata.get("widgets", {}).get(WIDGETS, {}).get("state", {})
    needs = {
        key: set(re.findall(r"IPY_MODEL_(\w+)", json.dumps(model)))
        for key, model in state.items()
    }
    seen = {
        output["data"][VIEW]["model_id"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if VIEW in output.get("data", {})
    }
    before = None
    while before != len(seen):
        before = len(seen)
        links = (key for key in state if "Link" in state[key]["model_name"])
        seen |= {key for key in links if needs[key] & seen}
        seen |= {other for key in seen for other in needs.get(key, ())}
    for key in set(state) - seen:
        del state[key]
    return notebook


def renumber_widgets(notebook):
    """Random ids of widgets become 1, 2, ... in the order of their making."""
    state = notebook.metadata.get("widgets", {}).get(WIDGETS, {}).get("state", {})
    ids = list(state)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            ids.append(output.get("data", {}).get(VIEW, {}).get("model_id"))
    new = {}
    for old in ids:
        if old:
            new.setdefault(old, f"{len(new) + 1:032x}")
    if not new:
        return notebook
    pattern = re.compile("|".join(map(re.escape, new)))
    text = pattern.sub(lambda match: new[match[0]], json.dumps(notebook))
    return nbformat.from_dict(json.loads(text))


def warn_of_stderr(notebook, path):
    for number, cell in enumerate(notebook.cells, 1):
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                line = output.text.strip().split("\n")[0]
                print(
                    f"warning: {place(path, number, cell)} stores stderr: {line}",
                    file=sys.stderr,
                )


def select(names, paths):
    """The paths that the names mean; a number such as 9 means all of 9_1, 9_2, ..."""
    chosen = set()
    for name in names:
        stem = re.split(r"[/\\]", name)[-1].removesuffix(".ipynb")
        found = [p for p in paths if p.stem == stem or p.stem.startswith(f"{stem}_")]
        if not found:
            known = ", ".join(path.stem for path in paths)
            raise ValueError(f"no notebook is called {name!r}; there are {known}")
        chosen |= {p for p in found if p.stem == stem} or set(found)
    return [path for path in paths if path in chosen] if names else paths


def refresh(path):
    """Run one notebook and replace it on disk; one line says how it went."""
    start = time.perf_counter()
    old = path.read_bytes()
    notebook = nbformat.reads(old.decode("utf-8"), as_version=4)
    execute(notebook, path)
    notebook = tidy(notebook)
    new = nbformat.writes(notebook, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"
    if new.encode("utf-8") != old:
        write_all({path: new})
    state = "unchanged" if new.encode("utf-8") == old else "written"
    seconds = time.perf_counter() - start
    print(f"{path.parent.name}/{path.name}: {state}, {seconds:.1f} s", flush=True)
    warn_of_stderr(notebook, path)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="such as 9_3; default: all")
    parser.add_argument("--root", type=Path, default=ROOT, help="of the project")
    options = parser.parse_args(argv)
    folder = options.root.resolve() / "notebooks"
    toc = options.root / "book" / "_toc.yml"
    try:
        paths = select(options.names, in_toc_order(folder.glob("*.ipynb"), toc))
    except ValueError as error:
        parser.error(str(error))
    done = 0
    try:
        for path in paths:
            refresh(path)
            done += 1
    except CellFailed as error:
        print(error, file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        if done < len(paths):
            left = ", ".join(path.stem for path in paths[done:])
            print(f"{done} of {len(paths)} notebooks run; left as they were: {left}")
    return 0 if done == len(paths) else 1


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")
    sys.exit(main())
