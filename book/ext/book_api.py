"""The API page, and the links between a name and the cell that saves it.

`{api}` documents every public name of agentrl, module by module in reading order, from
its docstring. On the lesson pages each `#@save` cell gets an anchor for every public
name that it defines (`def-train_rl`) and a line that leads to the API page, and a name
in the prose becomes a link. Nothing is listed by hand, so nothing can be forgotten.
"""

import ast
import importlib
import inspect
import io
import re
import sys
import tokenize
import typing

from book_rooms import PACKAGE, read_rooms
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.addnodes import desc_signature, pending_xref
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

# The page documents the package beside it, whatever else is installed.
sys.path.insert(0, str(PACKAGE.parent))

API_PAGE = "book/api"
WIDE = 80  # columns of a constant's value, at most


# ---- Reading the code ----


def section_number(notebook):
    """'notebooks/9_2_training_loop.ipynb' -> '9.2', 'notebooks/04_gym.ipynb' -> '4'."""
    digits = re.match(r"(?:\d+_)+", notebook.rpartition("/")[2])
    return ".".join(str(int(part)) for part in digits[0].split("_") if part)


def defined_names(source):
    """The names that a piece of code defines at its top level, with their nodes."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (name for target in targets for name in ast.walk(target))
            found |= {name.id: node for name in names if isinstance(name, ast.Name)}
    return found


def remarks(source):
    """{line number: comment} for the comments that stand behind code."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: token.string.lstrip("# ")
        for token in tokens
        if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip()
    }


# ---- What stands on the API page ----


def as_rst(text):
    """A docstring as reStructuredText: all is plain text but for code.

    Code stands in backticks, and so does a value in quotes. Each paragraph becomes one
    line, so that no indentation has a meaning.
    """
    paragraphs = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(as_line(" ".join(part.split())) for part in paragraphs)


def as_line(text):
    said = []
    for part in re.split(r"(`+[^`]+`+|(?<!\w)'[^']+'(?!\w))", text):
        if part[:1] in ("`", "'"):
            # A backslash and a space are nothing, but let words touch the code.
            said.append(f"\\ ``{part.strip('`')}``\\ ")
        else:
            said.append(re.sub(r"([*|\\]|_\b)", r"\\\1", part))
    return "".join(said)


def process_docstring(app, what, name, obj, options, lines):
    if name.split(".")[0] == "agentrl":
        lines[:] = as_rst("\n".join(lines)).splitlines()


def options(**values):
    return [f":{key}: {value}" for key, value in values.items()]


def indented(lines):
    return [f"   {line}" if line else "" for line in lines]


def directive(name, argument, lines):
    return [f".. {name}:: {argument}", *indented(lines), ""]


def constant(name, value, remark):
    """A py:data entry: the value where it is short, else how it begins."""
    kind, text = type(value).__name__, repr(value)
    lines = options(module="agentrl", type=kind)
    if len(text) <= WIDE and " at 0x" not in text:
        lines += options(value=text)
    else:
        items = list(map(repr, value))
        n = len(items)
        while len(", ".join(items[:n])) > WIDE:
            n -= 1
        first = ", ".join(f"`{item}`" for item in items[:n])
        more = ", ..." if n < len(items) else ""
        remark = remark or f"Holds {len(items)}: {first}{more}"
    return directive("py:data", name, [*lines, "", as_rst(remark or "")])


def fields(node, comments):
    """An entry for each field of a dataclass, with the comment behind it."""
    lines = []
    for field in (n for n in node.body if isinstance(n, ast.AnnAssign)):
        content = options(type=ast.unparse(field.annotation))
        if field.value is not None:
            content += options(value=ast.unparse(field.value))
        remark = comments.get(field.lineno)
        content += ["", as_rst(remark)] if remark else []
        lines += directive("py:attribute", field.target.id, content)
    return lines


def entry(name, value, node, comments):
    """The reStructuredText of one public name."""
    full = f"agentrl.{name}"
    if inspect.isclass(value):
        content = [":members:"]
        base = value.__base__
        if not base.__name__.startswith("_"):
            content += [":show-inheritance:"] if base is not object else []
        elif base.__base__ is object:  # not named, so what it gives is shown here
            content.append(":inherited-members:")
        if "__dataclass_fields__" in vars(value) or typing.is_typeddict(value):
            # The fields have entries of their own, with defaults and comments.
            full += "(...)" if base in (object, dict) else ""
            content += ["", *fields(node, comments)]
        return directive("autoclass", full, content)
    if callable(value):
        return directive("autofunction", full, [])
    return constant(name, value, comments.get(node.lineno))


def cell_link(name, room):
    """A reference to the cell that defines a name; where it leads is known later."""
    link = pending_xref(
        "",
        nodes.inline("", "source cell"),
        reftype="cell",
        refdomain="",
        reftarget=name,
        refexplicit=True,
        refwarn=True,
        lesson=room["notebook"].removesuffix(".ipynb"),
    )
    return nodes.inline("", "", link, classes=["cell-link"])


class Api(SphinxDirective):
    """`{api}`: a section for each module, with an entry for each public name."""

    def run(self):
        for path in PACKAGE.glob("*.py"):
            self.env.note_dependency(str(path))
        return [self.module(name, room) for name, room in read_rooms().items()]

    def module(self, module, room):
        section = nodes.section(ids=[f"api-{module}"], classes=["api-module"])
        section += nodes.title("", module)
        intro = f"`agentrl.{module}`, from the lesson [](/{room['notebook']})."
        source = (PACKAGE / f"{module}.py").read_text(encoding="utf-8")
        nodes_of, comments = defined_names(source), remarks(source)
        code = importlib.import_module(f"agentrl.{module}")
        lines = []
        for name in room["names"]:
            lines += entry(name, getattr(code, name), nodes_of[name], comments)
        if not lines:
            intro += " Nothing in it is public."
        # autodoc writes reStructuredText, and this page is Markdown.
        # The entries carry full names, so no module may be put before them.
        start = [f".. py:module:: agentrl.{module}", ".. py:currentmodule:: None", ""]
        parsed = [intro, "", "````{eval-rst}", *start, *lines, "````"]
        where = self.get_source_info()[0]
        self.state.nested_parse(StringList(parsed, where), 0, section)
        for signature in section.findall(desc_signature):
            name = signature["ids"][0].removeprefix("agentrl.")
            if name in room["names"]:
                signature += cell_link(name, room)
                self.note_alias(module, name, signature["ids"][0])
        return section

    def note_alias(self, module, name, node_id):
        """A name may also be referred to with its module: agentrl.gym.make_tasks."""
        python = self.env.domains["py"]
        full = f"agentrl.{module}.{name}"
        if full not in python.objects:
            kind = python.objects[f"agentrl.{name}"].objtype
            python.note_object(full, kind, node_id, aliased=True)


# ---- On the other pages ----


def api_link(name, *children):
    return pending_xref(
        "",
        *children,
        refdomain="py",
        reftype="obj",
        reftarget=f"agentrl.{name}",
        refexplicit=True,
        refwarn=True,
        classes=["api-link"],
    )


def public():
    return {name for room in read_rooms().values() for name in room["names"]}


class MarkSavedCells(SphinxTransform):
    """An anchor for each public name that a cell defines, and a line with links."""

    default_priority = 700

    def apply(self, **kwargs):
        names = public()
        here = self.env.metadata[self.env.docname].setdefault("saved", [])
        for cell in list(self.document.findall(nodes.container)):
            code = saved_code(cell)
            saved = [name for name in defined_names(code) if name in names]
            if code:
                cell["classes"] += ["saved"]
            if not saved:
                continue
            here += saved
            cell["ids"] += [f"def-{name}" for name in saved]
            line = nodes.paragraph("", "saved as ", classes=["saved-as"])
            for name in saved:
                line += nodes.Text(", ") if name != saved[0] else nodes.Text("")
                line += api_link(name, nodes.literal("", f"agentrl.{name}"))
            cell.insert(1, line)


def saved_code(cell):
    """The code of a cell that starts with `#@save`, else nothing."""
    if cell.get("nb_element") == "cell_code":
        for block in cell.findall(nodes.literal_block):
            code = block.astext()
            return code if code.startswith("#@save\n") else ""
    return ""


class LinkNames(SphinxTransform):
    """A name of the package in the prose leads to its entry, once in each section."""

    default_priority = 710
    name = re.compile(r"(?:agentrl\.|arl\.)?(\w+)(?:\((?:\.\.\.)?\))?")

    def apply(self, **kwargs):
        if self.env.docname == API_PAGE:
            return
        names, seen = public(), set()
        for literal in list(self.document.findall(nodes.literal)):
            match = self.name.fullmatch(literal.astext())
            above = list(ancestors(literal))
            if not match or match[1] not in names or any(map(is_closed, above)):
                continue
            section = next((id(n) for n in above if isinstance(n, nodes.section)), 0)
            if (section, match[1]) not in seen:
                seen.add((section, match[1]))
                link = api_link(match[1])
                literal.replace_self(link)
                link += literal


def ancestors(node):
    while node.parent is not None:
        node = node.parent
        yield node


def is_closed(node):
    """Whether no link may stand in it: a heading, another link, a code cell."""
    kinds = (nodes.title, nodes.rubric, nodes.reference, pending_xref, nodes.target)
    return isinstance(node, kinds) or node.get("nb_element") == "cell_code"


def resolve_cell(app, env, node, contents):
    """Lead to the cell, or to its lesson where an exercise keeps the cell hidden."""
    if node["reftype"] != "cell":
        return None
    name, lesson = node["reftarget"], node["lesson"]
    anchor = f"def-{name}"
    if name not in env.metadata[lesson].get("saved", []):
        anchor = ""
        told = f"exercise of section {section_number(lesson)}"
        contents = nodes.inline("", told)
    return make_refnode(app.builder, node["refdoc"], lesson, anchor, contents)


def setup(app):
    app.add_directive("api", Api)
    app.add_transform(MarkSavedCells)
    app.add_transform(LinkNames)
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("missing-reference", resolve_cell)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
