"""book/execute.py: stored outputs that a second run does not change."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book"))
import execute  # noqa: E402

EXECUTE = [sys.executable, str(ROOT / "book" / "execute.py")]
WIDGETS = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"

RICH = [
    "import sys\nimport warnings\n\nprint('out')\nprint('err', file=sys.stderr)\n"
    "print('more')\nprint(object())\nprint(hex(31))\nwarnings.warn('careful')",
    "class C:\n    pass\n\n\nC()",
    "import tempfile\nprint(tempfile.mkdtemp())\nprint({'b', 'a', 'c'})",
    "import os\nnames = ('OMP_NUM_THREADS', 'SOURCE_DATE_EPOCH')\n"
    "print([os.environ[name] for name in names], os.path.basename(os.getcwd()))",
    "import ipywidgets as w\n\nunseen = w.Button()\n"
    "pictures = w.Stack([w.HTML('<b>1</b>'), w.HTML('<b>2</b>')], selected_index=0)\n"
    "slider = w.SelectionSlider(options=['1', '2'], description='G')\n"
    "w.jslink((slider, 'index'), (pictures, 'selected_index'))\n"
    "w.VBox([slider, pictures])",
    "import matplotlib_inline\nimport matplotlib.pyplot as plt\n\n"
    "matplotlib_inline.backend_inline.set_matplotlib_formats('svg')\n"
    "_ = plt.plot([1, 2], [3, 4], marker='o')",
    "print('a', flush=True)\nprint('b', flush=True)",
    "",
]  # fmt: skip


def write(root, name, *sources):
    cells = [
        {
            "cell_type": "code",
            "execution_count": 17,
            "id": f"c{number}",
            "metadata": {},
            "outputs": [],
            "source": source,
        }
        for number, source in enumerate(sources, 1)
    ]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path = root / "notebooks" / f"{name}.ipynb"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return path


def run(root, *names):
    command = [*EXECUTE, "--root", str(root), *names]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8")


def outputs(path):
    return [cell["outputs"] for cell in json.loads(path.read_bytes())["cells"]]


def text(output):
    return "".join(output.get("text") or output["data"]["text/plain"])


def processes_with(word):
    """Process ids of the commands that hold the word (of kernels: their folder)."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word in os.readlink(folder / "cwd"):
                found.add(folder.name)
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def rich(tmp_path_factory):
    """A notebook with all that could differ from run to run, after one run."""
    root = tmp_path_factory.mktemp("rich")
    path = write(root, "04_rich", *RICH)
    done = run(root)
    assert done.returncode == 0, done.stderr
    return root, path, done


def test_a_rerun_changes_not_one_byte(rich):
    root, path, first = rich
    before = path.read_bytes(), path.stat().st_mtime_ns
    done = run(root)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert re.fullmatch(r"notebooks/04_rich.ipynb: written, \d+\.\d s\n", first.stdout)
    assert re.fullmatch(r"notebooks/04_rich.ipynb: unchanged, \d+\.\d s\n", done.stdout)


def test_the_file_is_in_its_normal_form(rich):
    raw = rich[1].read_bytes()
    notebook = json.loads(raw)
    normal = json.dumps(notebook, sort_keys=True, indent=1, ensure_ascii=False) + "\n"
    assert raw == normal.encode()
    assert notebook["metadata"]["language_info"] == {
        "name": "python",
        "pygments_lexer": "ipython3",
    }
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    counts = [cell["execution_count"] for cell in notebook["cells"]]
    assert counts == [1, 2, 3, 4, 5, 6, 7, None]
    assert all(cell["metadata"] == {} for cell in notebook["cells"])


def test_accidents_are_masked_and_streams_merged(rich):
    printed, shown, folder, environment, _, _, two_parts, _ = outputs(rich[1])
    assert [output["name"] for output in printed] == ["stdout", "stderr"]
    assert text(printed[0]) == "out\nmore\n<object object at 0x…>\n0x1f\n"
    assert text(printed[1]).startswith("err\n<cell>:9: UserWarning: careful\n")
    assert text(shown[0]) == "<__main__.C at 0x…>"
    assert shown[0]["execution_count"] == 2
    assert text(folder[0]).startswith("<temporary>\n{")
    assert text(environment[0]) == "['1', '0'] notebooks\n"
    assert [text(output) for output in two_parts] == ["a\nb\n"]


def test_widgets_are_stored_with_ids_that_count(rich):
    notebook = json.loads(rich[1].read_bytes())
    state = notebook["metadata"]["widgets"][WIDGETS]["state"]
    assert sorted(state) == [f"{n:032x}" for n in range(1, len(state) + 1)]
    view = notebook["cells"][4]["outputs"][0]["data"][VIEW]["model_id"]
    box = state[view]
    assert box["model_name"] == "VBoxModel"
    children = [child.removeprefix("IPY_MODEL_") for child in box["state"]["children"]]
    names = [state[child]["model_name"] for child in children]
    assert names == ["SelectionSliderModel", "StackModel"]
    [link] = [m["state"] for m in state.values() if m["model_name"] == "LinkModel"]
    assert link["source"] == [f"IPY_MODEL_{children[0]}", "index"]
    assert link["target"] == [f"IPY_MODEL_{children[1]}", "selected_index"]
    assert not any(m["model_name"] == "ButtonModel" for m in state.values())


def test_a_figure_has_no_date(rich):
    svg = "".join(outputs(rich[1])[5][0]["data"]["image/svg+xml"])
    assert "<svg" in svg
    assert "dc:date" not in svg


def test_stderr_is_a_warning_that_names_the_cell(rich):
    expected = "warning: notebooks/04_rich.ipynb: cell 1 [c1] stores stderr: err"
    assert expected in rich[2].stderr.splitlines()


def test_old_widgets_do_not_stay(tmp_path):
    path = write(tmp_path, "04_a", "1 + 1")
    notebook = json.loads(path.read_bytes())
    notebook["metadata"]["widgets"] = {WIDGETS: {"state": {"old": {}}}}
    path.write_text(json.dumps(notebook))
    assert run(tmp_path).returncode == 0
    assert "widgets" not in json.loads(path.read_bytes())["metadata"]


def test_a_failing_cell_is_reported_and_nothing_is_written(tmp_path):
    first = write(tmp_path, "1_a", "print('new')")
    path = write(tmp_path, "2_b", "print(1)", "def f():\n    return 1 / 0\n\n\nf()")
    last = write(tmp_path, "3_c", "print('new')")
    before = path.read_bytes(), last.read_bytes()
    done = run(tmp_path)
    assert done.returncode == 1
    assert text(outputs(first)[0][0]) == "new\n"
    assert (path.read_bytes(), last.read_bytes()) == before
    assert done.stderr.startswith("notebooks/2_b.ipynb: cell 2 [c2] failed\n")
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert "return 1 / 0" in done.stderr
    assert "\x1b" not in done.stderr
    assert "1 of 3 notebooks run; left as they were: 2_b, 3_c" in done.stdout
    assert [p.name for p in path.parent.iterdir() if p.suffix != ".ipynb"] == []


def test_a_dead_kernel_is_reported(tmp_path):
    path = write(tmp_path, "1_a", "import os\nos._exit(3)")
    before = path.read_bytes()
    done = run(tmp_path)
    assert done.returncode == 1
    assert "notebooks/1_a.ipynb: cell 1 [c1] failed\nKernel died" in done.stderr
    assert path.read_bytes() == before


def test_a_cell_may_be_tagged_to_raise(tmp_path):
    path = write(tmp_path, "1_a", "raise ValueError('asked for')")
    notebook = json.loads(path.read_bytes())
    notebook["cells"][0]["metadata"] = {"tags": ["raises-exception"]}
    path.write_text(json.dumps(notebook))
    assert run(tmp_path).returncode == 0
    first = path.read_bytes()
    [[error]] = outputs(path)
    assert (error["ename"], error["evalue"]) == ("ValueError", "asked for")
    assert run(tmp_path).returncode == 0
    assert path.read_bytes() == first


def test_names_select_and_the_toc_orders(tmp_path):
    for name in ("04_gym", "9_1_grpo", "9_3_original_gym", "9_30_other"):
        write(tmp_path, name, "")
    toc = tmp_path / "book" / "_toc.yml"
    toc.parent.mkdir()
    listed = ["9_3_original_gym", "04_gym", "9_1_grpo"]
    lines = "".join(f"  - file: notebooks/{name}\n" for name in listed)
    toc.write_text(f"chapters:\n{lines}")

    def order(*names):
        return [path.stem for path in execute.select(names, paths)]

    paths = execute.in_toc_order((tmp_path / "notebooks").iterdir(), toc)
    assert order() == [*listed, "9_30_other"]
    assert order("04_gym", "9_3") == ["9_3_original_gym", "04_gym"]
    assert order("notebooks/9_1_grpo.ipynb", "9_1") == ["9_1_grpo"]
    assert order("9_3_original_gym") == ["9_3_original_gym"]
    assert order("9") == ["9_3_original_gym", "9_1_grpo", "9_30_other"]
    done = run(tmp_path, "04_gym", "9_3")
    shown = re.findall(r"notebooks/(\w+)\.ipynb", done.stdout)
    assert shown == ["9_3_original_gym", "04_gym"]
    done = run(tmp_path, "9_4")
    assert done.returncode == 2
    assert "no notebook is called '9_4'; there are 9_3_original_gym," in done.stderr


def test_a_display_that_a_later_cell_changes_is_refused(tmp_path):
    """What a cell shows is compared when it has run, so it must be complete by then."""
    path = write(
        tmp_path, "1_a", "handle = display('old', display_id=True)", "handle.update(1)"
    )
    before = path.read_bytes()
    done = run(tmp_path)
    assert done.returncode == 1
    expected = "notebooks/1_a.ipynb: cell 1 [c1] shows what a later cell has changed; "
    assert done.stderr.startswith(expected)
    assert path.read_bytes() == before


# Started in the background (nohup, a shell's `&`), a process ignores Ctrl-C, and so do
# those that it starts: this one listens again, and becomes the command.
LISTENING = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


def test_ctrl_c_leaves_old_or_new(tmp_path):
    done = write(tmp_path, "1_a", "print('new')")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(600)
        # The cell says that it runs, and waits for an answer that never comes.
        busy = (
            f"import socket\nsocket.create_connection({server.getsockname()!r}).recv(1)"
        )
        path = write(tmp_path, "2_b", "print('new')", busy)
        before = path.read_bytes()
        command = [sys.executable, "-c", LISTENING, *EXECUTE[1:], "--root"]
        process = subprocess.Popen(
            [*command, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        connection, _ = server.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
    assert process.returncode == 130
    assert text(outputs(done)[0][0]) == "new\n"
    assert path.read_bytes() == before
    assert err == "interrupted\n"
    assert "1 of 2 notebooks run; left as they were: 2_b" in out
    assert processes_with(tmp_path.name) == set()
