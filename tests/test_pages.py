"""The pages in a browser: from disk and a server, light and dark, wide and narrow."""

import pytest
from browsing import SETTLED, Visit, from_disk
from house import HTML, toc_pages

UNFOLD = "document.querySelectorAll('details').forEach(d => { d.open = true; })"


@pytest.mark.parametrize("name", [*toc_pages(), "search", "genindex"])
def test_nothing_goes_wrong_on_a_server(chromium, server, name):
    with Visit(chromium, f"{server}/{name}.html") as visit:
        visit.page.evaluate(SETTLED)
        assert visit.wrong == []


class EveryPage:
    """One visit looks at everything: opening a page is what takes time."""

    def look(self, chromium, name):
        with Visit(chromium, from_disk(name)) as visit:
            visit.page.evaluate(SETTLED)
            # What is folded is judged, too.
            visit.page.evaluate(UNFOLD)
            for scheme in ("dark", "light"):
                visit.page.emulate_media(color_scheme=scheme)
                visit.page.locator(f"html[data-theme={scheme}]").wait_for()
                visit.page.evaluate(SETTLED)
                assert visit.faults() == [], scheme
            visit.page.set_viewport_size({"width": 390, "height": 800})
            visit.page.evaluate(SETTLED)
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
            assert visit.wrong == []


# Two classes, because the workers of the tests divide them by class.
class TestEverySecondPage(EveryPage):
    @pytest.mark.parametrize("name", toc_pages()[::2])
    def test_from_disk_it_is_sound_accessible_and_fits_a_phone(self, chromium, name):
        self.look(chromium, name)


class TestTheOtherPages(EveryPage):
    @pytest.mark.parametrize("name", toc_pages()[1::2])
    def test_from_disk_it_is_sound_accessible_and_fits_a_phone(self, chromium, name):
        self.look(chromium, name)


def test_the_first_page_leads_to_the_cover(chromium):
    with Visit(chromium, from_disk("index")) as visit:
        visit.page.wait_for_url("**/book/intro.html")
        assert visit.wrong == []


def test_the_theme_can_be_switched(chromium):
    with Visit(chromium, from_disk("book/intro")) as visit:
        visit.page.evaluate(SETTLED)
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
