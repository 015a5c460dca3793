"""Load MathJax and the widgets' script from this site instead of a CDN.

book/build.py lays them under _static/vendor. What is not there keeps Sphinx's default.
"""

from pathlib import Path

VENDOR = Path(__file__).resolve().parent.parent / "_static" / "vendor"


def use_vendored(app, config):
    mathjax = "vendor/mathjax/tex-mml-chtml.js"
    widgets = "vendor/html-manager/embed.js"
    if (VENDOR.parent / mathjax).exists():
        config.mathjax_path = mathjax
    if (VENDOR.parent / widgets).exists():
        config.nb_ipywidgets_js = {widgets: {}}


def setup(app):
    # Early, before MyST-NB copies its settings.
    app.connect("config-inited", use_vendored, priority=1)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
