"""Explorers in a real browser: every control, by keyboard, mouse and touch."""

import gzip
import re

import pytest
from browsing import SETTLED, Visit, from_disk
from house import HTML, read_notebook, toc_notebooks

VIEW = "application/vnd.jupyter.widget-view+json"


def explorers(notebook):
    """How many explorers a notebook shows."""
    return sum(
        "".join(output["data"]["text/plain"]).startswith("PictureSlider(")
        for cell in read_notebook(notebook)["cells"]
        for output in cell.get("outputs", [])
        if VIEW in output.get("data", {})
    )


PAGES = [name for name in toc_notebooks() if explorers(name)]


def place_of(where, server, name):
    page = f"notebooks/{name}"
    return from_disk(page) if where == "disk" else f"{server}/{page}.html"


def shown(explorer):
    """What the explorer shows now: its pictures and texts, without the controls."""
    return explorer.locator("> .widget-box").last.inner_html()


def wait_for_change(visit, explorer, before):
    """Until another picture is there; an error after Playwright's own limit."""
    picture = explorer.locator("> .widget-box").last.element_handle()
    changed = "([element, before]) => element.innerHTML !== before"
    visit.page.wait_for_function(changed, arg=[picture, before])


def controls(explorer):
    return explorer.locator("> .widget-slider, > .widget-toggle-buttons").all()


def by_keyboard(visit, control):
    handle = control.locator("[role=slider]")
    if handle.count():
        handle.focus()
        at_end = handle.get_attribute("aria-valuenow") == handle.get_attribute(
            "aria-valuemax"
        )
        visit.page.keyboard.press("ArrowLeft" if at_end else "ArrowRight")
    else:
        control.locator("button[aria-pressed=false]").first.focus()
        visit.page.keyboard.press("Enter")


def by_pointer(visit, control, press):
    """Two options on, on a slider; or to another button."""
    # In the middle of the window, where the bar at the top of the page is not.
    control.evaluate("element => element.scrollIntoView({block: 'center'})")
    handle = control.locator("[role=slider]")
    if handle.count():
        now, last = (
            float(handle.get_attribute(f"aria-value{name}")) for name in ("now", "max")
        )
        places = (now + 2, now - 2, now + 1, now - 1)
        target = next(place for place in places if 0 <= place <= last)
        box = control.locator(".noUi-base").bounding_box()
        share = min(max(target / last, 0.01), 0.99)  # the very end is outside
        press(box["x"] + box["width"] * share, box["y"] + box["height"] / 2)
    else:
        box = control.locator("button[aria-pressed=false]").last.bounding_box()
        press(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def open_explorers(visit, name):
    visit.page.evaluate(SETTLED)
    found = visit.page.locator(".explorer.widget-vbox")
    found.first.wait_for()
    assert found.count() == explorers(name)
    return found.all()


def check_names(explorer):
    """Every control has a name, and every picture a text."""
    for control in controls(explorer):
        label = control.locator(".widget-label").inner_text().strip()
        assert label
        named = control.locator("[role=slider]")
        if not named.count():
            named = control
            assert control.locator("button[aria-pressed=true]").count() == 1
        assert named.get_attribute("aria-label") == label
    for image in explorer.locator("img").all():
        assert len(image.get_attribute("alt")) > 20
        assert image.evaluate("image => image.naturalWidth") > 0


@pytest.mark.parametrize("where", ["disk", "server"])
@pytest.mark.parametrize("name", PAGES)
def test_every_control_answers_to_keyboard_and_mouse(chromium, server, name, where):
    with Visit(chromium, place_of(where, server, name)) as visit:
        for explorer in open_explorers(visit, name):
            explorer.scroll_into_view_if_needed()
            check_names(explorer)
            for control in controls(explorer):
                before = shown(explorer)
                by_keyboard(visit, control)
                wait_for_change(visit, explorer, before)
                before = shown(explorer)
                by_pointer(visit, control, visit.page.mouse.click)
                wait_for_change(visit, explorer, before)
        assert visit.wrong == []


@pytest.mark.parametrize("name", PAGES)
def test_a_finger_on_a_phone(chromium, name):
    with Visit(chromium, from_disk(f"notebooks/{name}"), phone=True) as visit:
        for explorer in open_explorers(visit, name):
            for control in controls(explorer):
                before = shown(explorer)
                by_pointer(visit, control, visit.page.touchscreen.tap)
                wait_for_change(visit, explorer, before)
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert visit.wrong == []


@pytest.mark.parametrize("name", PAGES)
def test_without_javascript_the_first_picture_stands_there(chromium, name):
    with Visit(
        chromium, from_disk(f"notebooks/{name}"), java_script_enabled=False
    ) as visit:
        found = visit.page.locator("noscript .explorer").filter(
            has_text="choose other pictures"
        )
        assert found.count() == explorers(name)
        for explorer in found.all():
            picture = explorer.locator("img, table").first
            picture.scroll_into_view_if_needed()
            assert picture.bounding_box()["height"] > 20


@pytest.mark.parametrize("name", toc_notebooks())
def test_a_page_is_small_enough_to_load_on_a_phone(name):
    """Compressed, with its own pictures, without what all pages share."""
    page = HTML / "notebooks" / f"{name}.html"
    text = page.read_text(encoding="utf-8")
    parts = {
        (page.parent / src).resolve() for src in re.findall(r'src="([^":]*)"', text)
    }
    own = [part for part in parts if part.suffix in (".svg", ".png") and part.exists()]
    sizes = [len(gzip.compress(path.read_bytes())) for path in (page, *own)]
    assert sum(sizes) < 1_000_000
