"""The rendered book: it builds without a warning, and its pages hold together."""

import json
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlparse

import pytest
from house import (
    HTML,
    ROOT,
    book_extension,
    book_module,
    build_book,
    read_notebook,
    toc_notebooks,
    toc_pages,
)

import agentrl

PICTURES = {"image/svg+xml", "image/png", "image/jpeg"}
# The tags and attributes by which a page loads something by itself.
LOADS = {
    ("script", "src"),
    ("link", "href"),
    ("img", "src"),
    ("img", "srcset"),
    ("iframe", "src"),
    ("source", "src"),
    ("video", "src"),
    ("audio", "src"),
    ("object", "data"),
    ("embed", "src"),
}
CSS_LOADS = re.compile(r"""@import\s+["'](?P<a>[^"']+)|url\(\s*["']?(?P<b>[^"')]+)""")


class Page(HTMLParser):
    """The tags of a page with their attributes, and its style sheets."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.styles, self.text, self._open = [], [], [], None
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open = tag

    def handle_endtag(self, tag):
        self._open = None

    def handle_data(self, data):
        if self._open == "style":
            self.styles.append(data)
        elif self._open != "script":
            self.text.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module")
def pages():
    """{'book/intro': Page, ...}: every page of the table of contents."""
    status, printed = build_book()
    assert status == 0, printed
    return {name: Page(HTML / f"{name}.html") for name in toc_pages()}


def test_the_book_builds_without_a_warning():
    status, printed = build_book()
    assert status == 0, printed
    assert printed.splitlines()[-1] == str(HTML / "index.html")


def test_the_printed_page_leads_to_the_cover(pages):
    index = (HTML / "index.html").read_text(encoding="utf-8")
    (target,) = re.findall(r"url=([^\"]+)\"", index)
    assert target == "book/intro.html"
    assert (HTML / target).exists()


def test_the_copyright_has_the_year_of_the_config(pages):
    """Not 1970, which a kernel's SOURCE_DATE_EPOCH would make of it."""
    config = (ROOT / "book" / "_config.yml").read_text(encoding="utf-8")
    year = re.search(r'copyright: "(\d{4})"', config)[1]
    assert all(f"Copyright {year}" in " ".join(p.text) for p in pages.values())


@pytest.mark.parametrize("name", toc_pages())
def test_page(pages, name):
    page = pages[name]
    # The theme repeats the title for print, outside the article and hidden.
    article = (HTML / f"{name}.html").read_text("utf-8").partition("<article")[2]
    assert len(re.findall("<h1[ >]", article.partition("</article>")[0])) == 1
    assert page.all("html")[0].get("lang") == "en"
    for image in page.all("img"):
        # Without a text of our own, MyST-NB uses the name of the file.
        alt = (image.get("alt") or "").strip()
        assert alt, image
        assert not re.search(r"\.(svg|png|jpe?g)$", alt), image


@pytest.mark.parametrize("name", [n for n in toc_pages() if n.startswith("notebooks/")])
def test_each_lesson_offers_its_notebook(pages, name):
    links = [link.get("href", "") for link in pages[name].all("a")]
    (link,) = {link for link in links if link.endswith(".ipynb")}
    file = (HTML / name).parent / unquote(link)
    stored = read_notebook(name.split("/")[1])
    if any("solution" in cell["metadata"].get("tags", []) for cell in stored["cells"]):
        # What becomes of it is tested with the exercises.
        stored = book_extension("book_exercises").without_solutions(stored)
        assert json.loads(file.read_text(encoding="utf-8")) == stored
    else:
        assert file.read_bytes() == (ROOT / f"{name}.ipynb").read_bytes()


def outside(url):
    return bool(urlparse(url.strip()).netloc)


def test_no_page_loads_anything_from_elsewhere(pages):
    loaded = []
    for path in HTML.rglob("*.html"):
        page = Page(path)
        for tag, attrs in page.tags:
            passive = tag == "link" and attrs.get("rel") in (
                "canonical",
                "prev",
                "next",
            )
            for key, value in attrs.items():
                if (tag, key) in LOADS and not passive and outside(value or ""):
                    loaded.append((path.name, tag, value))
        styles = [*page.styles, *(attrs.get("style") or "" for _, attrs in page.tags)]
        loaded += [(path.name, "style", url) for url in css_urls(" ".join(styles))]
    for path in HTML.rglob("*.css"):
        css = path.read_text(encoding="utf-8")
        loaded += [(path.name, "css", url) for url in css_urls(css)]
    assert loaded == []


def css_urls(css):
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    found = (match["a"] or match["b"] for match in CSS_LOADS.finditer(css))
    return [url for url in found if outside(url)]


def test_links_between_pages_lead_somewhere(pages):
    broken = []
    for name, page in pages.items():
        ids = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
        for link in page.all("a"):
            url = urlparse(link.get("href") or "")
            if url.scheme or url.netloc:
                continue
            file = (HTML / name).parent / unquote(url.path)
            if url.path and not file.exists():
                broken.append((name, link["href"]))
            if not url.path and url.fragment and unquote(url.fragment) not in ids:
                broken.append((name, link["href"]))
    assert broken == []


# ---- Figures ----


def pictures(notebook):
    """The code cells of a notebook that show a picture."""
    for cell in read_notebook(notebook)["cells"]:
        outputs = cell.get("outputs", [])
        if any(PICTURES & set(output.get("data", {})) for output in outputs):
            yield cell


def figure_names():
    for notebook in toc_notebooks():
        for cell in pictures(notebook):
            figure = cell["metadata"].get("mystnb", {}).get("figure", {})
            yield notebook, figure.get("name", "")


@pytest.mark.parametrize("notebook", toc_notebooks())
def test_each_figure_has_caption_number_and_alternative_text(notebook):
    # 9.1 to 9.3 are the numbers of the chapter's own figures; E2 is exercise 2.
    number = notebook.replace("exercises_", "E")
    number = "-".join(re.match(r"E\d|(\d+_)+", number)[0].strip("_").split("_"))
    name = re.compile(rf"fig-({number}[a-z]|9-[123])")
    for cell in pictures(notebook):
        options = cell["metadata"].get("mystnb", {})
        where = f"{notebook}, cell {cell['id']}"
        assert options.get("figure", {}).get("caption", "").strip(), where
        assert name.fullmatch(options["figure"].get("name", "")), where
        assert len(options.get("image", {}).get("alt", "").strip()) > 10, where


@pytest.mark.parametrize("notebook", toc_notebooks())
def test_each_lesson_ends_with_its_evidence(notebook):
    """What was measured, with how many seeds, and what it does not show."""
    cells = read_notebook(notebook)["cells"]
    if notebook == "98_exercises":  # it ends with a small solution
        cells = [c for c in cells if "solution" not in c["metadata"].get("tags", [])]
    text = "".join("".join(cell["source"]) for cell in cells[-2:])
    (evidence,) = re.findall(r"```\{admonition\} Evidence\n(.*?)```", text, re.DOTALL)
    evidence = " ".join(evidence.split())
    assert "Measured: " in evidence and "Not shown: " in evidence
    assert "seed" in evidence or "No policy is trained" in evidence


def test_no_two_figures_share_a_name():
    names = [name for _, name in figure_names()]
    assert len(names) == len(set(names))


def test_pages_show_the_number_that_the_name_says(pages):
    for notebook, name in figure_names():
        number = name.removeprefix("fig-").replace("-", ".")
        text = " ".join("".join(pages[f"notebooks/{notebook}"].text).split())
        assert f"Figure {number} " in text


# ---- Assets ----


def test_a_damaged_archive_is_refused(tmp_path, monkeypatch):
    build = book_module("build")

    class Done:
        returncode, stdout, stderr = 0, "", ""

    def pack(arguments, cwd):
        (tmp_path / "ours").mkdir(exist_ok=True)
        (build.Path(cwd) / "package.tgz").write_bytes(b"something else")
        return Done

    monkeypatch.setattr(build, "npm", pack)
    archive = tmp_path / "cache" / "package.tgz"
    with pytest.raises(OSError, match="hash"):
        build.cached(archive, "package@1.0.0", "0" * 64)
    assert not archive.exists()
    digest = build.sha256(b"something else")
    assert build.cached(archive, "package@1.0.0", digest) == b"something else"
    # A cache file that was damaged later is fetched again, not trusted.
    archive.write_bytes(b"broken")
    assert build.cached(archive, "package@1.0.0", digest) == b"something else"


@pytest.mark.parametrize("chosen", ["~/x", "~", "~/a b ü'é"])
def test_the_build_and_the_package_keep_files_in_one_folder(
    tmp_path, monkeypatch, chosen
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))  # the home folder on Windows
    monkeypatch.setenv("AGENTRL_CACHE", chosen)
    folder = tmp_path / chosen[2:]
    assert book_module("build").cache_folder() == agentrl.cache_dir() == folder
