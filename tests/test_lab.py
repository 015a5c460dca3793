"""A form of agentrl.live in JupyterLab: a kernel, a browser, and someone who presses.

The notebook is a small one around a policy without training, in which the form of
99_6_live.ipynb is stored as a reader finds it.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from house import ROOT, browser, read_notebook
from playwright.sync_api import expect, sync_playwright

START = 600  # seconds until a server or a kernel that should start counts as stuck
PATIENCE = 300_000  # milliseconds until a step in the browser counts as stuck

SENTENCE = "A form that trains. It works in a running kernel: run this cell."
SOURCES = [
    "import agentrl as arl\n\n"
    "tok = arl.build_tokenizer(arl.make_tasks('all'))\n"
    "small = arl.Policy(len(tok), width=16, layers=1, heads=2)",
    "form = arl.group_size_explorer(small, steps=3, group_size=2, prompts_per_step=2)\n"
    "form",
    "print(len(form.history), 'steps kept')",
    "arl.picture_slider(lambda k: f'<p>picture {k}</p>', k=[1, 2, 3])",
]


def stored_notebook():
    """The small notebook; its form and explorer are stored as those of lessons are."""
    lesson, first = read_notebook("99_6_live"), read_notebook("99_2_figures")
    (form,) = (cell for cell in lesson["cells"] if cell["id"] == "group-size-form")
    (coins,) = (cell for cell in first["cells"] if cell["id"] == "explorer-coins")
    cells = [
        {**form, "id": f"c{number}", "source": source, "outputs": []}
        for number, source in enumerate(SOURCES)
    ]
    cells[1]["outputs"] = form["outputs"]
    cells[3]["outputs"] = coins["outputs"]
    # The solution of an exercise, as it is stored.
    small = read_notebook("98_exercises")["cells"]
    solution = [c for c in small if "solution" in c["metadata"].get("tags", [])]
    text, code = solution[:2], {**solution[2], "source": "print(1 + 1)", "outputs": []}
    return {**lesson, "cells": [*cells, *text, code]}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of a JupyterLab that knows nothing of this machine's settings."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "root").mkdir()
    (folder / "root" / "small.ipynb").write_text(json.dumps(stored_notebook()))
    places = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR", "LAB_SETTINGS_DIR",
              "LAB_WORKSPACES_DIR")  # fmt: skip
    env = {f"JUPYTER{'' if name.startswith('LAB') else '_'}{name}": str(folder / name)
           for name in places}  # fmt: skip
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--port=0",
               "--ServerApp.port_retries=0", "--IdentityProvider.token=small",
               f"--ServerApp.root_dir={folder / 'root'}"]  # fmt: skip
    if getattr(os, "geteuid", lambda: 1)() == 0:
        command.append("--allow-root")
    env = {**os.environ, **env, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    log = folder / "log.txt"
    with open(log, "wb") as file:
        server = subprocess.Popen(command, env=env, stdout=file, stderr=file)
    try:
        yield address(server, log)
    finally:
        end(server)


def address(server, log):
    """Where the server says that it listens."""
    until = time.monotonic() + START
    while time.monotonic() < until and server.poll() is None:
        found = re.search(r"http://\S+:(\d+)/lab\?token=", log.read_text("utf-8"))
        if found:
            return f"http://127.0.0.1:{found[1]}/lab/tree/small.ipynb?token=small"
        time.sleep(0.1)
    raise AssertionError(log.read_text("utf-8"))


def end(server):
    """The server ends its kernels when it is asked to end; else it is made to."""
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def page(lab):
    root = ["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=browser(), args=root, timeout=PATIENCE
        )
        opened = chromium.new_page(viewport={"width": 1300, "height": 900})
        opened.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        opened.goto(lab)
        opened.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
        yield opened
        chromium.close()


def choose(page, menu, item):
    page.get_by_role("menuitem", name=menu, exact=True).click()
    page.get_by_role("menuitem", name=item, exact=True).click()


# One test, since each part needs the one before, and Lab takes long to start.
def test_a_reader_trains_and_stops_in_lab(page):
    outputs = page.locator(".jp-OutputArea-output")

    # Nothing has run, and Lab does not trust the notebook: a sentence stands in for the
    # form, and its first picture for the explorer.
    expect(outputs).to_have_text([SENTENCE, re.compile("^.The controls that choose")])
    first = outputs.last.locator("img")
    expect(first).to_have_attribute("alt", re.compile("^Bars: how often 4 throws"))
    assert first.evaluate("image => image.naturalWidth") > 0
    assert page.locator(".jupyter-widgets").count() == 0

    # The solution is collapsed, and one click shows it.
    answer = page.locator(".cm-content", has_text="print(1 + 1)")
    expect(answer).to_be_hidden()
    page.locator(".jp-showHiddenCellsButton").click()
    expect(answer).to_be_visible()

    # Before its kernel is there, Lab would ask for one.
    expect(page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible()
    choose(page, "Run", "Run All Cells")
    train = page.get_by_role("button", name="Train", exact=True)
    stop = page.get_by_role("button", name="Stop", exact=True)
    status = page.locator(".jp-OutputArea [role=status]")
    picture = page.locator(".jp-OutputArea img")
    kept = outputs.filter(has_text="steps kept")
    expect(kept).to_have_text("0 steps kept")
    expect(train).to_be_enabled()
    expect(stop).to_be_disabled()
    expect(status).to_have_text("No run yet.")
    expect(
        page.get_by_text("The buttons work only in a running kernel")
    ).to_be_visible()

    train.click()
    expect(status).to_contain_text("Finished: 3 of 3 steps, 12 episodes; last step: ")
    expect(train).to_be_enabled()
    expect(picture).to_have_attribute("alt", re.compile("^The run: 3 of 3 steps"))
    assert picture.evaluate("image => image.naturalWidth") > 0
    bar = page.locator(".jp-OutputArea .progress-bar")
    assert bar.evaluate("b => b.offsetWidth / b.parentElement.offsetWidth") > 0.95

    # A group of one is refused; all by keyboard.
    page.get_by_label("Group size").fill("1")
    for _ in range(4):
        page.keyboard.press("Tab")
    expect(train).to_be_focused()
    page.keyboard.press("Enter")
    alert = page.locator(".jp-OutputArea [role=alert]")
    expect(alert).to_contain_text("Not started: group_size is 1; allowed: at least 2")

    # A run that would take hours, stopped once its curves grow.
    page.get_by_label("Group size").fill("3")
    page.get_by_label("Steps").fill("99999")
    train.click()
    expect(picture).to_have_attribute("alt", re.compile(r"^The run: [1-9]\d* of 99999"))
    expect(train).to_be_disabled()
    expect(alert).to_have_count(0)
    stop.click()
    expect(status).to_contain_text("Stopped after")
    steps = re.search(r"Stopped after (\d+) of 99999 steps", status.inner_text())[1]
    expect(train).to_be_enabled()
    expect(stop).to_be_disabled()
    page.locator(".jp-CodeCell").nth(2).locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    expect(kept).to_have_text(f"{steps} steps kept")

    # An explorer answers in Lab, too.
    expect(page.get_by_text("picture 1", exact=True)).to_be_visible()
    page.locator(".explorer [role=slider]").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("picture 2", exact=True)).to_be_visible()

    # No traceback, no stderr.
    kinds = "[data-mime-type$=error], [data-mime-type$=stderr]"
    assert page.locator(kinds).count() == 0
