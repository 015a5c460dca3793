"""Number a figure by its name: `fig-9-1` is Figure 9.1, `fig-E2a` is Figure E2a.

Sphinx would number the figures of the book from 1 to N, and every new figure would
rename all that follow.
"""

from sphinx.util import logging

PREFIX = "fig-"


def figure_number(name):
    """'fig-9-4b' -> ('9', '4b'): Sphinx joins the parts with dots.

    Names are lower-case by the time they come here: 'fig-e2a' is Figure E2a.
    """
    return tuple(part.capitalize() for part in name.removeprefix(PREFIX).split("-"))


def number_figures(app, env):
    names = {}  # (page, id of the node) -> name of the figure
    for name, (page, node_id, *_) in env.domains["std"].anonlabels.items():
        if name.startswith(PREFIX):
            names[page, node_id] = name
    for page, kinds in env.toc_fignumbers.items():
        for node_id in kinds.get("figure", {}):
            if (page, node_id) in names:
                kinds["figure"][node_id] = figure_number(names[page, node_id])
            else:
                logging.getLogger(__name__).warning(
                    "a figure (%s) has no name that starts with %r", node_id, PREFIX,
                    location=page,
                )  # fmt: skip


def setup(app):
    # `env-updated` would be too early: Sphinx numbers after it.
    app.connect("env-check-consistency", number_figures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
