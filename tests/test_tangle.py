"""book/tangle.py: what it makes of the saved cells, and when it writes."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from house import ROOT
from tangling import GYM, GYM_BLOCKS, TANGLE, code, tangle, text


def test_all_blocks_of_a_saved_cell_are_kept_in_order(project):
    project.notebook(
        "04_gym",
        text("(gym)=\n# 4. The gym: \\name\n\nMore."),
        code(GYM, "imports"),
        code("print('not saved')", "show"),
        code(GYM_BLOCKS, "blocks"),
    )
    assert project.run() == (0, "wrote agentrl/__init__.py\nwrote agentrl/gym.py\n", "")
    head = (
        "# Generated from notebooks/04_gym.ipynb by book/tangle.py; "
        "edit the notebook.\n"
        '"""4. The gym: \\\\name."""\n\n'
    )
    names = ["LIMIT", "A", "B", "decorate", "area", "Task", "rate", "later"]
    saved = (
        f"# %% [imports]{GYM.removeprefix('#@save')}\n\n\n"
        f"# %% [blocks]{GYM_BLOCKS.removeprefix('#@save')}\n\n\n"
    )
    names = "".join(f'    "{name}",\n' for name in names)
    assert project.module("gym") == f"{head}{saved}__all__ = [\n{names}]\n"


def test_the_package_passes_ruff(project):
    project.notebook("04_gym", text("# Gym"), GYM, GYM_BLOCKS)
    project.notebook("05_a", "#@save\nimport os", "#@save\ndef f():\n    return os")
    project.notebook("06_b", "#@save\nfrom agentrl.a import f", "#@save\nF = f")
    project.run()
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=E,F,W"]
    done = subprocess.run(
        [*command, "--no-cache", "agentrl"],
        cwd=project.root,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_the_package_is_flat_and_in_the_order_of_imports(project):
    project.notebook(
        "9_2_loop",
        "#@save\nfrom agentrl.shortcuts import shortcut",
        "#@save\ndef run():\n    return shortcut()",
    )
    project.notebook("9_4_shortcuts", "#@save\ndef shortcut():\n    return 7")
    project.notebook("00_first", "#@save\n_LIMIT = 1\nZERO = 0\n")
    project.notebook("exercises_1", "print(1)")
    project.toc("00_first", "9_2_loop", "9_4_shortcuts", "exercises_1")
    assert project.run()[0] == 0
    init = project.module("__init__")
    assert '"""Small."""' in init
    imports = [line for line in init.splitlines() if line.startswith("from")]
    assert imports == [
        "from agentrl.first import (",
        "from agentrl.shortcuts import (",
        "from agentrl.loop import (",
    ]
    assert "_LIMIT" not in init
    script = "import agentrl as a; print(a.run(), a.__version__, a.__all__)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=project.root, capture_output=True, text=True
    )
    assert done.stdout == "7 1.2.3 ['ZERO', 'shortcut', 'run']\n", done.stderr
    assert {p.name for p in (project.root / "agentrl").glob("*.py")} == {
        "__init__.py",
        "first.py",
        "shortcuts.py",
        "loop.py",
    }


def test_the_toc_gives_the_order_of_modules(project):
    project.notebook("1_a", "#@save\ndef fa(): ...")
    project.notebook("2_b", "#@save\ndef fb(): ...")
    project.notebook("3_c", "#@save\ndef fc(): ...")
    project.toc("3_c", "2_b")
    assert project.run()[0] == 0
    init = project.module("__init__")
    assert init.index("fc") < init.index("fb") < init.index("fa")


def test_crlf_becomes_lf(project):
    path = project.notebook("04_gym", "#@save\r\ndef f():\r\n    return 1\r")
    path.write_bytes(path.read_bytes().replace(b"}", b"}\r\n"))
    assert project.run()[0] == 0
    assert "\r" not in project.module("gym")
    assert "# %% [c1]\ndef f():\n    return 1\n\n\n__all__" in project.module("gym")


def test_a_source_may_be_a_list_of_lines(project):
    project.notebook("04_gym", code(["#@save\n", "X = 'é'\n"], "x"))
    assert project.run()[0] == 0
    assert "# %% [x]\nX = 'é'\n" in project.module("gym")


def test_a_notebook_may_save_private_names_only(project):
    project.notebook("04_gym", "#@save\n_LIMIT = 1")
    assert project.run()[0] == 0
    assert project.module("gym").endswith("_LIMIT = 1\n\n\n__all__ = []\n")
    assert "gym" not in project.module("__init__")


def test_a_second_run_changes_nothing(project):
    project.notebook("04_gym", GYM, GYM_BLOCKS)
    project.run()
    before = project.files()
    assert project.run() == (0, "", "")
    assert project.files() == before


def test_only_what_changed_is_written(project):
    project.notebook("04_gym", "#@save\nX = 1")
    project.notebook("05_agent", "#@save\nY = 1")
    project.run()
    project.notebook("05_agent", "#@save\nY = 2")
    assert project.run() == (0, "wrote agentrl/agent.py\n", "")


def test_check_is_clean_until_one_character_changes(project):
    project.notebook("04_gym", GYM, GYM_BLOCKS)
    project.run()
    before = project.files()
    assert project.run("--check") == (0, "", "")
    project.notebook("04_gym", GYM, GYM_BLOCKS.replace("LIMIT = 6", "LIMIT = 7"))
    code, out, err = project.run("--check")
    assert (code, err) == (1, "")
    assert "--- agentrl/gym.py" in out
    assert "\n-LIMIT = 6  # turns\n+LIMIT = 7  # turns\n" in out
    assert project.files() == before


def test_check_sees_an_edited_and_a_missing_module(project):
    project.notebook("04_gym", "#@save\nX = 1")
    assert project.run("--check")[0] == 1
    project.run()
    module = project.root / "agentrl" / "gym.py"
    module.write_bytes(module.read_bytes().replace(b"\n", b"\r\n"))
    assert project.run("--check")[0] == 1


def test_a_failed_write_leaves_the_old_package(project, monkeypatch):
    project.notebook("04_gym", "#@save\nX = 1")
    project.run()
    before = project.files()
    project.notebook("04_gym", "#@save\nX = 2")
    project.notebook("05_agent", "#@save\nY = 2")
    real = Path.write_text

    def full(path, data, **options):
        real(path, data[: len(data) // 2], **options)
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="no space"):
        project.run()
    assert project.files() == before


def test_as_a_command_from_another_folder(project):
    project.notebook("04_gym", "#@save\nX = 1\nprint(X)")
    command = [sys.executable, str(TANGLE), "--root", str(project.root)]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("notebooks/04_gym.ipynb: cell 1 [c1], line 3: ")
    assert len(done.stderr.splitlines()) == 1


def test_the_toc_is_read_as_yaml_reads_it():
    toc = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text(encoding="utf-8"))
    chapters = [chapter for part in toc["parts"] for chapter in part["chapters"]]
    pages = [toc["root"], *(chapter["file"] for chapter in chapters)]
    assert tangle.toc_pages() == pages


def test_a_toc_with_quotes_comments_and_nothing_in_it(tmp_path):
    toc = tmp_path / "_toc.yml"
    assert tangle.toc_pages(toc) == []
    toc.write_text(
        "root: 'book/intro'\n# - file: notebooks/old\nparts:\n- caption: file: x\n"
        '  chapters:\n  - file: "notebooks/a.ipynb"  # first\n  - file: b\n' + "\n" * 99
    )
    assert tangle.toc_pages(toc) == ["book/intro", "notebooks/a", "b"]


def test_a_title_ends_where_its_heading_ends(project):
    """However long the line: no pattern may try its parts again and again."""
    long = "# A" + " #" * 100_000 + "b ##"
    project.notebook("04_gym", text(f"words\n{long}"), "#@save\nX = 1")
    project.notebook("05_a", text("## C# ##\n# D", "d"), "#@save\nY = 1")
    assert project.run()[0] == 0
    assert f'"""{long.strip(" #")}."""' in project.module("gym")
    assert '"""C."""' in project.module("a")
