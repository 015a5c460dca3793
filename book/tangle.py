"""Write the agentrl package from the notebooks: the `#@save` rule.

    python book/tangle.py            write what changed
    python book/tangle.py --check    write nothing; print a diff and exit 1 if anything
                                     would change

A code cell whose first line is exactly `#@save` goes into the module of its notebook:
`notebooks/04_gym.ipynb` gives `agentrl/gym.py`. It may hold imports (in the first saved
cell only), `def`, `class`, and constants that are UPPER_CASE or annotated. All else is
an error, because a module that is imported must not run a lesson. Every error is found
before anything is written. Standard library only, so that it runs anywhere.
"""

import argparse
import ast
import bisect
import builtins
import difflib
import json
import keyword
import os
import re
import symtable
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
TOC = ROOT / "book" / "_toc.yml"
TOC_ENTRY = re.compile(r"""[ ]*(?:-[ ]+)?(?:file|root):[ ]+['"]?([^\s'"#]+)""")
ALLOWED = "a saved cell holds imports, def, class, UPPER_CASE or annotated constants"
SAVE_LIKE = re.compile(r"\s*#\s*@save\b", re.IGNORECASE)
HEADING = re.compile(r"#+ +[^ ]")
CELL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
UPPER_CASE = re.compile(r"_*[A-Z][A-Z0-9_]*")
# What the compiler raises: a bad text, a NUL, half a surrogate pair, deep nesting.
REFUSED = (SyntaxError, ValueError, RecursionError, MemoryError)
# Names that every module and class body has, beside the builtins.
IMPLICIT = {*dir(builtins), "__file__", "__module__", "__qualname__"}


@dataclass
class Cell:
    """A saved cell: where it stands, and its source with the `#@save` line."""

    number: int
    id: str
    source: str

    def at(self, line):
        return f"cell {self.number} [{self.id}], line {line}"


@dataclass(eq=False)
class Module:
    """What one notebook saves."""

    path: PurePosixPath  # of the notebook, as it is shown to the reader
    name: str = ""
    title: str = ""
    cells: list = field(default_factory=list)
    names: dict = field(default_factory=dict)  # saved name -> (cell, line)
    imported: dict = field(default_factory=dict)  # name of an import -> (cell, line)
    agentrl: list = field(default_factory=list)  # (module, name, cell, line) it imports
    errors: list = field(default_factory=list)

    def error(self, message, cell=None, line=None):
        place = f"{cell.at(line)}: " if cell else ""
        self.errors.append(f"{self.path}: {place}{message}")

    @property
    def public(self):
        return [name for name in self.names if not name.startswith("_")]


# ---- reading a notebook


def toc_pages(toc=TOC):
    """The pages of `_toc.yml` in reading order: 'book/intro', 'notebooks/04_gym', ...

    The only reader of that file, and no more of YAML than the file uses: one entry a
    line, plain or in quotes. Without the file there are no pages.
    """
    text = toc.read_text(encoding="utf-8") if toc.is_file() else ""
    entries = map(TOC_ENTRY.match, text.splitlines())
    return [entry[1].removesuffix(".ipynb") for entry in entries if entry]


def in_toc_order(notebooks, toc):
    """The notebooks in the order of `_toc.yml`; those not in it follow by name."""
    listed = [page.rpartition("/")[2] for page in toc_pages(toc)]
    rank = {stem: position for position, stem in reversed(list(enumerate(listed)))}
    return sorted(notebooks, key=lambda p: (rank.get(p.stem, len(listed)), p.stem))


def read_notebook(path, shown):
    """The Module of a notebook; what is wrong with its cells is in `errors`."""
    module = Module(shown, name=re.sub(r"^[\d_]+", "", path.stem))
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        module.error(f"cannot be read: {error.strerror}")
        return module
    except ValueError as error:  # bad JSON, or bytes that are not UTF-8
        module.error(f"not valid JSON: {error}")
        return module
    except RecursionError:
        module.error("not valid JSON: it is nested too deeply")
        return module
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or notebook.get("nbformat") != 4:
        module.error("not a notebook of nbformat 4")
        return module
    if not isinstance(notebook.get("metadata"), dict):
        module.error("the notebook has no metadata")
    seen = set()
    for number, entry in enumerate(cells, 1):
        damage = damage_of(entry)
        if damage:
            module.error(f"cell {number}: {damage}")
            continue
        source = "".join(entry["source"]).replace("\r\n", "\n").replace("\r", "\n")
        cell = Cell(number, str(entry.get("id", "")), source)
        if not CELL_ID.fullmatch(cell.id):
            module.error(f"cell {number} has no cell id (nbformat 4.5 asks for one)")
        elif cell.id in seen:
            module.error(f"cell {number}: the id [{cell.id}] is used twice")
        seen.add(cell.id)
        if entry["cell_type"] == "markdown":
            module.title = module.title or first_heading(source)
        elif entry["cell_type"] == "code" and is_saved(cell, module):
            module.cells.append(cell)
            read_cell(cell, module)
    if module.cells and not (
        module.name.isidentifier() and not keyword.iskeyword(module.name)
    ):
        module.error(f"{module.name!r} is not a name for a module")
    return module


def damage_of(entry):
    """What keeps an entry of a notebook's cells from being a cell, in words, or ''."""
    if not isinstance(entry, dict):
        return f"it is no object but {type(entry).__name__}"
    if entry.get("cell_type") not in ("code", "markdown", "raw"):
        return f"its cell_type is {str(entry.get('cell_type'))[:40]!r}"
    source = entry.get("source")
    lines = source if isinstance(source, list) else [source]
    if not all(isinstance(line, str) for line in lines):
        return "its source is neither a text nor a list of texts"
    if not isinstance(entry.get("metadata"), dict):
        return "it has no metadata"
    if entry["cell_type"] == "code" and not isinstance(entry.get("outputs"), list):
        return "it has no list of outputs"
    return ""


def first_heading(source):
    """The text of the first heading of a markdown cell, or ''."""
    for line in source.split("\n"):
        if HEADING.match(line):
            return line.strip(" #") or line
    return ""


def is_saved(cell, module):
    lines = cell.source.split("\n")
    for line, text in enumerate(lines[1:], 2):
        if SAVE_LIKE.match(text):
            module.error("#@save must be the first line of its cell", cell, line)
            return False
    if SAVE_LIKE.match(lines[0]) and lines[0] != "#@save":
        module.error(f"write exactly #@save, not {lines[0]!r}", cell, 1)
        return False
    return lines[0] == "#@save"


def read_cell(cell, module):
    """Note what the cell defines and imports; anything not allowed is an error."""
    try:
        tree = ast.parse(cell.source)
    except REFUSED as error:
        line, why = line_and_message(error)
        text = cell.source.split("\n")[line - 1].strip()
        if text.startswith(("%", "!")):
            module.error(f"the magic {text!r}; {ALLOWED}", cell, line)
        else:
            module.error(f"syntax error: {why}", cell, line)
        return
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            if cell is not module.cells[0]:
                module.error(
                    "imports stand in the first saved cell only", cell, node.lineno
                )
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                define(module.imported, name, module, cell, node.lineno)
        else:
            for name in defined_names(node, module, cell):
                define(module.names, name, module, cell, node.lineno)
    for node in ast.walk(tree):  # imports inside a function count as well
        if isinstance(node, ast.Import | ast.ImportFrom):
            read_import(node, module, cell)


def line_and_message(error):
    """The line and the words of an error of Python's compiler."""
    if isinstance(error, RecursionError | MemoryError):
        return 1, "it is nested too deeply"
    return getattr(error, "lineno", None) or 1, getattr(error, "msg", error)


def defined_names(node, module, cell):
    """The names that a statement saves; [] with an error for one not allowed."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign) and node.value and node.simple:
        if not re.fullmatch("__.*__", node.target.id):
            return [node.target.id]
    if isinstance(node, ast.Assign):
        targets = []
        for target in node.targets:
            targets += getattr(target, "elts", [target])
        names = [getattr(target, "id", "") for target in targets]
        if all(UPPER_CASE.fullmatch(name) for name in names):
            return names
    text = ast.unparse(node).split("\n")[0]
    text = text if len(text) <= 50 else text[:47] + "..."
    module.error(f"`{text}` cannot be saved; {ALLOWED}", cell, node.lineno)
    return []


def define(where, name, module, cell, line):
    first = module.names.get(name) or module.imported.get(name)
    if first:
        message = f"{name} is saved twice; first in {first[0].at(first[1])}"
        module.error(message, cell, line)
    where.setdefault(name, (cell, line))


def read_import(node, module, cell):
    """Note what a saved cell imports from agentrl; refuse what cannot be checked."""
    if isinstance(node, ast.Import):
        inside = any(alias.name.split(".")[0] == "agentrl" for alias in node.names)
    else:
        inside = node.level > 0 or (node.module or "").split(".")[0] == "agentrl"
    example = "write it like `from agentrl.gym import BugFixEnv`"
    if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
        module.error("`import *` hides names; name each one", cell, node.lineno)
    elif not inside:
        return
    elif isinstance(node, ast.Import) or node.level or node.module.count(".") != 1:
        text = ast.unparse(node)
        module.error(f"`{text}` cannot be checked; {example}", cell, node.lineno)
    else:
        source = node.module.split(".")[1]
        for alias in node.names:
            module.agentrl.append((source, alias.name, cell, node.lineno))


# ---- checks over a whole module, then over all of them


def check_code(module):
    """The saved cells compile as one module, and every global name is known.

    A name is known when it is saved, imported or built in. Some errors are seen by the
    compiler only: a `break` outside of a loop, a `return` outside of a function.
    """
    starts, source = [], ""
    for cell in module.cells:
        starts.append(source.count("\n") + 1)
        source += cell.source + "\n"

    def report(message, line):
        index = max(bisect.bisect_right(starts, line) - 1, 0)
        module.error(message, module.cells[index], line - starts[index] + 1)

    try:
        compile(source, str(module.path), "exec", dont_inherit=True)
        table = symtable.symtable(source, str(module.path), "exec")
    except REFUSED as error:
        line, why = line_and_message(error)
        return report(f"syntax error: {why}", line)
    tree = ast.parse(source)
    read = global_names(table)
    for node, names in quoted_annotations(tree):
        if names is None:
            report(f"the annotation {node.value!r} is no expression", node.lineno)
        for name in names or ():
            read.setdefault(name, node.lineno)
    known = {*module.names, *module.imported, *IMPLICIT, *assigned_globals(table)}
    lines = {}  # name -> the lines that it stands in
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            lines.setdefault(node.id, []).append(node.lineno)
    for name in sorted(read.keys() - known):
        line = min((n for n in lines.get(name, ()) if n >= read[name]), default=0)
        message = f"{name} is used but neither saved nor imported in this notebook"
        report(message, line or read[name])


def scopes(table):
    yield table
    for inner in table.get_children():
        yield from scopes(inner)


def global_names(table):
    """{name: first line of the first scope that reads it} of the global names read."""
    read = {}
    for scope in scopes(table):
        line = max(1, scope.get_lineno())
        for symbol in scope.get_symbols():
            if symbol.is_referenced() and symbol.is_global():
                name = symbol.get_name()
                read[name] = min(read.get(name, line), line)
    return read


def assigned_globals(table):
    """The names that a function makes global and assigns."""
    return {
        symbol.get_name()
        for scope in scopes(table)
        for symbol in scope.get_symbols()
        if symbol.is_declared_global() and symbol.is_assigned()
    }


def quoted_annotations(tree):
    """(text node, names or None) for each annotation, or part of one, in quotes."""
    for node in ast.walk(tree):
        for key in ("annotation", "returns"):
            if isinstance(getattr(node, key, None), ast.expr):
                yield from quoted_parts(getattr(node, key))


def quoted_parts(node):
    """The texts in an annotation that are types themselves: none inside a Literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            inner = ast.parse(node.value.strip(), mode="eval").body
        except REFUSED:
            yield node, None
            return
        yield node, {n.id for n in ast.walk(inner) if isinstance(n, ast.Name)}
        for part, names in quoted_parts(inner):
            yield ast.copy_location(part, node), names
        return
    parts = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Subscript):
        kind = ast.unparse(node.value).rpartition(".")[2]
        if kind == "Literal":
            parts = [node.value]
        elif kind == "Annotated":  # a type, then remarks
            parts = [node.value, *getattr(node.slice, "elts", [node.slice])[:1]]
    for part in parts:
        yield from quoted_parts(part)


def check_imports(module, modules):
    for source, name, cell, line in module.agentrl:
        if source not in modules:
            module.error(f"there is no module agentrl.{source}", cell, line)
        elif not modules[source].errors and name not in modules[source].names:
            module.error(f"agentrl.{source} saves no {name}", cell, line)


def check_public(modules):
    """A public name is saved once in the whole package, and is no module's name."""
    owner = {}
    for module in modules.values():
        for name in module.public:
            cell, line = module.names[name]
            if name in owner:
                message = f"{name} is saved twice; first in {owner[name].path}"
                module.error(message, cell, line)
            elif name in modules:
                message = f"{name} would hide the module agentrl.{name}"
                module.error(message, cell, line)
            owner.setdefault(name, module)


def in_dependency_order(modules):
    """The modules, each after those that it imports; a cycle is an error."""
    order, path = [], []

    def visit(name):
        if name in path:
            cycle = " -> ".join([*path[path.index(name) :], name])
            last = modules[path[-1]]
            cell, line = next(e[2:] for e in last.agentrl if e[0] == name)
            last.error(f"import cycle: {cycle}", cell, line)
        elif name in modules and modules[name] not in order:
            path.append(name)
            for source in dict.fromkeys(entry[0] for entry in modules[name].agentrl):
                visit(source)
            path.pop()
            order.append(modules[name])

    for name in modules:
        visit(name)
    return order


# ---- writing the package


def docstring(text):
    text = text.replace("\\", "\\\\").replace('"""', "'''").strip()
    if text.endswith('"'):
        text = text[:-1] + '\\"'
    return f'"""{text if text[-1:] in ".?!" else text + "."}"""'


def name_list(names):
    """A list with one name a line, so that a diff shows one name."""
    lines = "".join(f'    "{name}",\n' for name in names)
    return f"[\n{lines}]" if names else "[]"


def render_module(module):
    head = (
        f"# Generated from {module.path} by book/tangle.py; "
        f"edit the notebook.\n{docstring(module.title or module.name)}"
    )
    parts = [f"# %% [{cell.id}]\n{saved_code(cell)}" for cell in module.cells]
    parts[0] = f"{head}\n\n{parts[0]}"
    return "\n\n\n".join([*parts, f"__all__ = {name_list(module.public)}\n"])


def saved_code(cell):
    return cell.source.removeprefix("#@save").strip("\n").rstrip()


def render_init(order, project):
    lines = [
        "# Generated from the notebooks by book/tangle.py; edit the notebooks.",
        docstring(project.get("description", "agentrl")),
        "",
    ]
    for module in order:
        if module.public:
            lines.append(f"from agentrl.{module.name} import (")
            lines += [f"    {name}," for name in module.public]
            lines.append(")")
    names = [name for module in order for name in module.public]
    lines += ["", f'__version__ = "{project["version"]}"', ""]
    return "\n".join([*lines, f"__all__ = {name_list(names)}\n"])


def build(notebooks, package, toc, pyproject):
    """({path: text} of the whole package, list of errors)."""
    errors, modules = [], {}
    found = in_toc_order(notebooks.glob("*.ipynb"), toc)
    read = [
        read_notebook(path, PurePosixPath(notebooks.name, path.name)) for path in found
    ]
    for module in read:
        if module.cells and module.name in modules:
            other = modules[module.name].path
            module.error(f"{other} gives the module {module.name} already")
        elif module.cells or module.errors:
            modules.setdefault(module.name, module)
    for module in read:
        if not module.errors:
            check_code(module)
    for module in modules.values():
        check_imports(module, modules)
    check_public(modules)
    order = in_dependency_order(modules)
    errors += [error for module in read for error in module.errors]
    if not found:
        errors.append(f"{notebooks}: there is no notebook here")
    for path in sorted(package.rglob("*.py")):
        inner = path.relative_to(package)
        if inner.with_suffix("").as_posix() not in {"__init__", *modules}:
            shown = Path(package.name, inner).as_posix()
            errors.append(f"{shown}: no notebook saves this module; delete it")
    try:
        project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
        project["version"]
    except (OSError, ValueError, KeyError) as error:
        errors.append(f"{pyproject.name}: no [project] version to read: {error!r}")
    if errors:
        return {}, errors
    texts = {package / "__init__.py": render_init(order, project)}
    texts |= {package / f"{module.name}.py": render_module(module) for module in order}
    for path, text in texts.items():  # the last look before anything is written
        try:
            compile(text.encode(), path.name, "exec", dont_inherit=True)
        except REFUSED as error:
            line, why = line_and_message(error)
            errors.append(f"{package.name}/{path.name}: line {line}: {why}")
    return ({} if errors else texts), errors


def write_all(texts):
    """Replace the files by complete new ones; all are on disk before the first is."""
    waiting = {}
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            waiting[path] = temporary
            temporary.write_text(text, encoding="utf-8", newline="\n")
        for path, temporary in waiting.items():
            os.replace(temporary, path)
    finally:
        for temporary in waiting.values():
            temporary.unlink(missing_ok=True)


def print_diff(path, old, new):
    shown = Path(path.parent.name, path.name).as_posix()
    old = old.decode("utf-8", errors="replace").splitlines(keepends=True)
    new = new.splitlines(keepends=True)
    sys.stdout.writelines(
        difflib.unified_diff(old, new, shown, f"{shown} (from the notebooks)")
    )


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--root", type=Path, default=ROOT, help="of the project")
    parser.add_argument("--notebooks", type=Path, help="default: ROOT/notebooks")
    parser.add_argument("--package", type=Path, help="default: ROOT/agentrl")
    parser.add_argument("--toc", type=Path, help="default: ROOT/book/_toc.yml")
    options = parser.parse_args(argv)
    root = options.root
    texts, errors = build(
        options.notebooks or root / "notebooks",
        options.package or root / "agentrl",
        options.toc or root / "book" / "_toc.yml",
        root / "pyproject.toml",
    )
    if errors:
        print(*errors, sep="\n", file=sys.stderr)
        return 1
    old = {path: path.read_bytes() if path.is_file() else b"" for path in texts}
    changed = {p: text for p, text in texts.items() if old[p] != text.encode()}
    if options.check:
        for path, text in changed.items():
            print_diff(path, old[path], text)
        return 1 if changed else 0
    write_all(changed)
    for path in changed:
        print(f"wrote {path.parent.name}/{path.name}")
    return 0


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):  # a Windows console may lack a letter
        stream.reconfigure(errors="backslashreplace")
    sys.exit(main())
