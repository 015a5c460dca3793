"""The pages in a browser: from disk and a server, light and dark, wide and narrow."""

import functools
import http.server
import os
import threading

import pytest
from axe_playwright_python.sync_playwright import Axe
from house import HTML, browser, build_book, toc_pages
from playwright.sync_api import sync_playwright

# A page may run its scripts before it is judged: formulas, widgets, icons.
SETTLED = """async () => {
  await document.fonts.ready;
  if (window.MathJax?.startup?.promise) await window.MathJax.startup.promise;
  return new Promise((done) => setTimeout(done, 300));
}"""


@pytest.fixture(scope="module")
def chromium():
    status, printed = build_book()
    assert status == 0, printed
    # Chromium's sandbox refuses to run as root.
    root = ["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    quiet = ["--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=browser(), args=[*root, *quiet]
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def server():
    """The address of a web server for the book, on this machine only."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = functools.partial(Quiet, directory=HTML)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


class Visit:
    """A page that is open, with what went wrong while it loaded."""

    def __init__(self, chromium, url, scheme="light"):
        size = {"width": 1280, "height": 900}
        self.context = chromium.new_context(color_scheme=scheme, viewport=size)
        self.page = self.context.new_page()
        self.wrong = []
        self.page.on("console", self.hear)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("request", self.watch)
        self.page.on("requestfailed", lambda r: self.wrong.append(f"failed: {r.url}"))
        self.page.on("response", self.answer)
        self.page.goto(url, wait_until="load")

    def hear(self, message):
        if message.type == "error":
            self.wrong.append(f"console: {message.text}")

    def watch(self, request):
        here = ("file:", "data:", "blob:", "http://127.0.0.1:")
        if not request.url.startswith(here):
            self.wrong.append(f"leaves the machine: {request.url[:200]}")

    def answer(self, response):
        if response.status >= 400:
            self.wrong.append(f"status {response.status}: {response.url}")

    def faults(self):
        """What axe-core calls serious or critical."""
        # Without preload: it would fetch the style sheets, which a file may not.
        found = Axe().run(self.page, options={"preload": False}).response
        return [
            (fault["id"], node["target"], node["failureSummary"])
            for fault in found["violations"]
            if fault["impact"] in ("serious", "critical")
            for node in fault["nodes"]
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


def from_disk(name):
    return (HTML / f"{name}.html").as_uri()


@pytest.mark.parametrize("name", [*toc_pages(), "search", "genindex"])
def test_nothing_goes_wrong_on_a_server(chromium, server, name):
    with Visit(chromium, f"{server}/{name}.html") as visit:
        visit.page.evaluate(SETTLED)
        assert visit.wrong == []


# One visit in each scheme looks at everything: opening a page is what takes time.
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", toc_pages())
def test_a_page_from_disk_is_sound_accessible_and_fits_a_phone(chromium, name, scheme):
    with Visit(chromium, from_disk(name), scheme) as visit:
        visit.page.evaluate(SETTLED)
        assert visit.page.locator("html").get_attribute("data-theme") == scheme
        assert visit.faults() == []
        visit.page.set_viewport_size({"width": 390, "height": 800})
        visit.page.evaluate(SETTLED)
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert visit.wrong == []


def test_the_first_page_leads_to_the_cover(chromium):
    with Visit(chromium, from_disk("index")) as visit:
        visit.page.wait_for_url("**/book/intro.html")
        assert visit.wrong == []


def test_the_theme_can_be_switched(chromium):
    with Visit(chromium, from_disk("book/intro")) as visit:
        seen = set()
        for _ in range(3):
            seen.add(visit.page.locator("html").get_attribute("data-theme"))
            visit.page.locator(".theme-switch-button:visible").first.click()
        assert seen == {"light", "dark"}
        assert visit.wrong == []


def test_formulas_are_typeset_by_our_own_mathjax(chromium):
    pages = ((HTML / f"{name}.html").read_text("utf-8") for name in toc_pages())
    formulas = [text.count('class="math') for text in pages]
    name = toc_pages()[formulas.index(max(formulas))]
    with Visit(chromium, from_disk(name)) as visit:
        visit.page.evaluate(SETTLED)
        source = visit.page.locator("script[src*=tex-mml-chtml]").get_attribute("src")
        assert "_static/vendor/" in source
        assert visit.page.locator("mjx-container").count() >= max(formulas) > 0


SLIDER = """<div class="widget-slider"><label class="widget-label">Group size</label>
<div class="noUi-handle" role="slider" tabindex="0" aria-valuenow="0"></div>
<div class="widget-readout">G = 2</div></div>"""


def test_a_slider_that_appears_later_gets_its_name(chromium):
    with Visit(chromium, from_disk("book/intro")) as visit:
        visit.page.evaluate(
            "html => document.querySelector('article').insertAdjacentHTML"
            "('beforeend', html)",
            SLIDER,
        )
        handle = visit.page.get_by_role("slider", name="Group size")
        assert handle.get_attribute("aria-valuetext") == "G = 2"
        readout = visit.page.locator(".widget-readout")
        readout.evaluate("element => { element.textContent = 'G = 8'; }")
        assert handle.get_attribute("aria-valuetext") == "G = 8"
