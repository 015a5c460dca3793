"""Prose follows the outputs: a measured number in a sentence was printed by a cell.

Read are the markdown cells of the notebooks, and the pages, as MyST parses them.
Looked for are numbers with a decimal point or a percent sign, and integers directly
before one of UNITS. Each must be in an output of the same notebook, or of a notebook
that the page links to, rounded as the prose rounds it.

Not looked at: mathematics, code, links, roles, headings and comments; lines with a
citation; markdown cells tagged `published`; and, for pages, which have no tags, the
block after a comment line `% published`.
"""

import functools
import html
import re
from decimal import Decimal

import pytest
import yaml
from house import ROOT, read_notebook, toc_notebooks, toc_pages
from markdown_it.renderer import RendererHTML
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

# Each also with -s or -es. An adjective stands for the noun that it precedes.
UNITS = """
action advantage agent answer attempt batch bit body bodies byte call case cell core
demonstration digit edit entry entries episode epoch error evaluation example failure
family families function gradient group head held-out hidden hour key layer line
message minibatch minute mistake name nat neuron output parameter percentage player
point policy position probe process processor prompt public question read repair
repetition reset response reward rollout round row run sample second seed sequence
source step submission success task test thread time token training trial try tries
turn update variant weight word worker
B KB MB GB KiB MiB GiB s ms µs us ns min h FLOP MFLOP GFLOP TFLOP
""".split()
# A number behind one of these names a place or a release; behind a plural, several do.
PLACES = "chapter edition equation figure lesson section".split()
RELEASES = "Python PyTorch NumPy TRL verl CUDA release version".split()
# Directives whose body is no prose. That of any other is read.
CODE = {"math", "code", "code-block", "code-cell", "literalinclude", "mermaid", "raw"}

# A minus between the two ends of a range is none. 2.13.0 is no number, nor is #53628f.
NUMBER = re.compile(
    r"(?P<sign>(?<![\w.)])[-−])?(?<![\w.#])"
    r"(?P<digits>(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?)"
    r"(?!\d|_|\.\d)(?P<percent>\s?%)?"
)
UNIT = re.compile(rf"[\s-]?(?:{'|'.join(map(re.escape, UNITS))})(?:e?s)?(?!\w)")
PLACE = r"[1-9]\d*(?:\.\d+)*[a-z]?\b"
REFERENCE = re.compile(
    rf"\b(?:{'|'.join(PLACES + RELEASES)})\s+{PLACE}"
    rf"|\b(?:{'|'.join(PLACES)})s\s+{PLACE}(?:(?:,?\s+(?:and|or|to)|,)\s+{PLACE})*",
    re.IGNORECASE,
)


@functools.cache
def myst():
    """The parser of the book, with its extensions."""
    config = yaml.safe_load((ROOT / "book" / "_config.yml").read_text("utf-8"))
    extensions = set(config["parse"]["myst_enable_extensions"])
    return create_md_parser(MdParserConfig(enable_extensions=extensions), RendererHTML)


def unpublished(tokens):
    """The tokens, without the block after each comment line `% published`."""
    tokens = iter(tokens)
    for token in tokens:
        yield token
        if token.type == "myst_line_comment" and token.content.strip() == "published":
            depth = 0
            for skipped in tokens:
                depth += skipped.nesting
                if depth <= 0:
                    break


def inline_prose(children):
    """What a paragraph or a table cell says, with … in place of what is no prose."""
    said, links = [], 0
    for child in children:
        links += {"link_open": 1, "link_close": -1}.get(child.type, 0)
        if links:
            continue
        if child.type == "text":
            said.append(child.content)
        elif child.type in ("softbreak", "hardbreak"):
            said.append(" ")
        elif child.type in ("link_close", "code_inline", "math_inline", "myst_role"):
            said.append("…")
    return "".join(said)


def blocks(text):
    """The prose of a markdown text, block by block."""
    before = None
    for token in unpublished(myst().parse(text)):
        if token.type == "inline" and before.type != "heading_open":
            yield inline_prose(token.children)
        elif token.type == "html_block":
            bare = re.sub(r"<!--.*?-->|<[^>]+>", " ", token.content, flags=re.DOTALL)
            yield html.unescape(bare)
        elif token.type in ("fence", "colon_fence"):
            directive = re.match(r"\{([\w:-]+)\}(.*)", token.info)
            if directive and directive[1] not in CODE:
                body = re.sub(r"\A(\s*:[\w-]+:.*\n)+", "", token.content)
                yield from blocks(f"{directive[2].strip()}\n\n{body}")
        before = token


def sentences(text):
    """The sentences of a markdown text. Lines with a citation lose their numbers."""
    lines = text.splitlines()
    kept = (re.sub(r"\d", "", line) if "{cite" in line else line for line in lines)
    for block in blocks("\n".join(kept)):
        yield from re.split(r'(?<=[.!?])\s+(?=[A-Z"(…])', " ".join(block.split()))


def value(match):
    digits = Decimal(match["digits"].replace(",", ""))
    return -digits if match["sign"] else digits


def measured(sentence):
    """The numbers of a sentence that need an origin, as matches of NUMBER."""
    sentence = REFERENCE.sub("…", sentence)
    for match in NUMBER.finditer(sentence):
        unit = UNIT.match(sentence, match.end())
        if "." in match["digits"] or match["percent"] or unit:
            yield match


def output_texts(notebook):
    """What the cells of a notebook print and show, pictures aside."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            if output["output_type"] == "stream":
                yield "".join(output["text"])
            data = output.get("data", {})
            if any(kind.startswith("image/") for kind in data):
                continue
            for kind in ("text/plain", "text/markdown", "text/html"):
                text = "".join(data.get(kind, []))
                if kind == "text/html":
                    text = html.unescape(re.sub(r"<[^>]*>", " ", text))
                yield text


def origins(notebooks):
    """What numbers, and what percentages, may stand in prose about the notebooks."""
    texts = (text for notebook in notebooks for text in output_texts(notebook))
    found = [match for text in texts for match in NUMBER.finditer(text)]
    numbers = {value(match) for match in found if not match["percent"]}
    percentages = {value(match) for match in found if match["percent"]}
    return numbers, percentages | {100 * number for number in numbers}


def has_origin(match, numbers, percentages):
    """Whether a printed number, rounded as the prose is, is that number.

    The prose may leave a minus sign to its words, and round a tie either way.
    """
    number, rounding = value(match), 0
    if "." in match["digits"] or match["percent"]:
        rounding = Decimal(1).scaleb(number.as_tuple().exponent) / 2
    printed = percentages if match["percent"] else numbers
    signed = (other if match["sign"] else abs(other) for other in printed)
    return any(abs(other - number) <= rounding for other in signed)


def linked(text):
    """The notebooks that a markdown text links to."""
    names = "|".join(map(re.escape, toc_notebooks()))
    return set(re.findall(rf"(?:\{{doc\}}`|\]\()[^`)]*?\b({names})\b", text))


def without_origin(page, read=read_notebook):
    """A line for each number of a page that no output shows."""
    folder, name = page.split("/")
    if folder == "notebooks":
        cells = [c for c in read(name)["cells"] if c["cell_type"] == "markdown"]
        near = {name}.union(*(linked("".join(cell["source"])) for cell in cells))
        own = (c for c in cells if "published" not in c["metadata"].get("tags", []))
        texts = ["".join(cell["source"]) for cell in own]
    else:
        texts = [(ROOT / f"{page}.md").read_text("utf-8")]
        near = linked(texts[0])
    printed = origins(map(read, near))
    return [
        f"{page}: {match[0]} has no origin: {sentence}"
        for text in texts
        for sentence in sentences(text)
        for match in measured(sentence)
        if not has_origin(match, *printed)
    ]


@pytest.mark.parametrize("page", toc_pages())
def test_every_number_of_the_prose_is_in_an_output(page):
    faults = without_origin(page)
    assert not faults, "\n".join(faults)


def lesson(*prose, printed="", tags=()):
    """A notebook that says one thing after another and prints another."""
    said = {"cell_type": "markdown", "metadata": {"tags": tags}}
    stream = {"output_type": "stream", "name": "stdout", "text": [printed]}
    code = {"cell_type": "code", "outputs": [stream]}
    return {"cells": [*({**said, "source": [text]} for text in prose), code]}


def lost(prose, printed=""):
    """The numbers of a text that have no origin in what is printed."""
    numbers = origins([lesson(printed=printed)])
    found = (match for sentence in sentences(prose) for match in measured(sentence))
    return [match[0] for match in found if not has_origin(match, *numbers)]


def test_an_invented_number_is_named_with_its_sentence_and_notebook():
    invented = lesson("All is well. It passes 0.97\nof *them*. So much.", printed="0.9")
    assert without_origin("notebooks/04_gym", {"04_gym": invented}.get) == [
        "notebooks/04_gym: 0.97 has no origin: It passes 0.97 of them."
    ]


def test_outputs_of_linked_notebooks_count():
    there = lesson(printed="pass 0.975")
    for link, faults in {
        "{doc}`05_agent`": 0,
        "{doc}`the agent </notebooks/05_agent>`": 0,
        "[the agent](05_agent.ipynb#base)": 0,
        "`05_agent`": 1,
    }.items():
        here = lesson(f"As {link} says:", "it passes 0.975.")
        read = {"04_gym": here, "05_agent": there}.get
        assert len(without_origin("notebooks/04_gym", read)) == faults


def test_what_others_published_needs_no_origin():
    quoted = lesson("They report 0.5.", tags=["published"])
    assert without_origin("notebooks/04_gym", {"04_gym": quoted}.get) == []
    assert lost("In {cite}`a2024b` it is 0.5,\nwhile we find 0.6.") == ["0.6"]
    assert lost("They:\n\n% published\n1. 0.5\n\n   of 0.6\n2. 0.7\n\nWe: 0.8") == [
        "0.8"
    ]
    assert lost("% published\n```{note}\n0.5\n```\n% a remark\n0.6") == ["0.6"]


def test_a_number_may_be_rounded_but_not_made_more_precise():
    assert lost("0.98, .98, 0.97, 0.979", "0.9781 98%") == ["0.97", "0.979"]
    assert lost("0.12 or 0.13, not 0.14", "0.125") == ["0.14"]
    assert lost("0.20, not 0.21", "0.2") == ["0.21"]
    assert lost("2,000.5 and 1.5e-3, not 2.5", "2000.5 0.00152") == ["2.5"]
    assert lost("33%, 32.7 %, not 32.68%", "0.3267 32.68") == ["32.68%"]
    assert lost("33%, 32.7 %, not 0.33", "32.67 %") == ["0.33"]
    assert lost("−0.5, or less by 0.5", "-0.52") == []
    assert lost("0.11-0.16, not -0.16", "0.11 - 0.16 to 0.11-0.16") == ["-0.16"]
    assert lost("156,736 parameters, 1234 words", "156736 1,234") == []
    missing = lost("8 tasks, 64-word, 1.3x, 3 MB", "8.0 64.2 1 3_0 #3 x3 3.0.1")
    assert missing == ["64", "1.3", "3"]


def test_what_measures_nothing_needs_no_origin():
    for prose in (
        "# 0.5 of it",
        "Half, $0.5$ or\n\n$$\n0.5\n$$ (a)\n\n\\begin{align}\n0.5\n\\end{align}",
        "`lr = 0.5`, {math}`0.5`, {numref}`fig-0.5`, [gives 0.5](0.5.md), ![0.5](a.b)",
        "```python\n0.5\n```\n\n    0.5\n\n```{math}\n0.5\n```",
        "<!-- 0.5 -->\n\n% 0.5\n\nA<!-- 0.5 -->.",
        "Sections 9.2, 9.3 and 9.4; section 9.4, figure 9.3a, Python 3.11, TRL 1.16.0",
        "One of 3 and a reward of 1, from 1 to 8.",
    ):
        assert lost(prose) == [], prose


def test_prose_is_read_wherever_it_stands():
    assert lost("```{note}\n:class: wide\nIt is 0.1.\n```") == ["0.1"]
    assert lost(":::{tip} Of 0.1\n```{note}\n0.2\n```\n:::") == ["0.1", "0.2"]
    assert lost("| 0.1 |\n|---|\n| **0.2** |\n\n- a\n  > 0.3") == ["0.1", "0.2", "0.3"]
    assert lost("<div>\n<b>0.1</b>\n</div>\n\nA <b>0.2</b>") == ["0.1", "0.2"]
    assert lost("Section 9.4 and 0.1, or the figure 0.2") == ["0.1", "0.2"]


def test_pictures_print_nothing_and_claims_do():
    picture = {"image/svg+xml": "0.25", "text/plain": "0.25"}
    row = {"text/html": ["<td>a <b>", "rate</b></td><td>0.75</td>"]}
    shown = [{"output_type": "display_data", "data": data} for data in (picture, row)]
    notebook = {"cells": [{"cell_type": "code", "outputs": shown}]}
    assert origins([notebook]) == ({Decimal("0.75")}, {Decimal("75")})
