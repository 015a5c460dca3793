"""What the tests in a browser share: opening a page, and hearing what goes wrong."""

import functools
import http.server
import os
import threading
from contextlib import contextmanager

from axe_playwright_python.sync_playwright import Axe
from house import HTML, browser, build_book
from playwright.sync_api import sync_playwright

PATIENCE = 300_000  # milliseconds until a browser counts as stuck

# Resolves once a page has run its scripts: fonts, formulas, icons, widgets, animations.
# The bound is one on hanging only.
SETTLED = """async () => {
  const root = document.documentElement.classList;
  const count = (selector) => document.querySelectorAll(selector).length;
  const ready = () =>
    (!root.contains('fontawesome-i2svg-active')
      || root.contains('fontawesome-i2svg-complete'))
    && count('script[type="application/vnd.jupyter.widget-view+json"]')
      <= count('.widget-subarea:has(.jupyter-widgets)');
  const frame = () => new Promise(requestAnimationFrame);
  const end = performance.now() + 300000;
  await document.fonts.ready;
  await window.MathJax?.startup?.promise;
  while (!ready()) {
    if (performance.now() > end) throw new Error('the page does not settle');
    await frame();
  }
  await frame();
  await frame();
  const moving = document.getAnimations().filter(
    (animation) => animation.effect.getComputedTiming().endTime < Infinity);
  await Promise.allSettled(moving.map((animation) => animation.finished));
}"""


@contextmanager
def open_chromium():
    """A Chromium, after the book has been built."""
    status, printed = build_book()
    assert status == 0, printed
    # Chromium's sandbox refuses to run as root.
    root = ["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    quiet = ["--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=browser(), args=[*root, *quiet], timeout=PATIENCE
        )
        yield started
        started.close()


@contextmanager
def serve_book():
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

    def __init__(self, chromium, url, scheme="light", phone=False, **options):
        size = {"width": 390 if phone else 1280, "height": 800 if phone else 900}
        self.context = chromium.new_context(
            color_scheme=scheme, viewport=size, has_touch=phone, **options
        )
        self.context.set_default_timeout(PATIENCE)
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
        # Only what it finds wrong: telling all that is right takes it as long again.
        options = {"preload": False, "resultTypes": ["violations"]}
        found = Axe().run(self.page, options=options).response
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
