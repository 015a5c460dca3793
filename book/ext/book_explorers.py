"""What a browser without JavaScript shows where an explorer stands: its first picture.

An explorer's output holds that picture as HTML beside the widget; MyST-NB would choose
the widget and drop the rest.
"""

from docutils import nodes
from myst_nb.core.render import WIDGET_VIEW_MIMETYPE
from myst_nb.sphinx_ import SelectMimeType
from sphinx.transforms.post_transforms import SphinxPostTransform


class KeepFirstPicture(SphinxPostTransform):
    """Puts the HTML beside a widget into a `<noscript>` after it."""

    default_priority = SelectMimeType.default_priority - 1
    formats = ("html",)

    def run(self, **kwargs):
        for bundle in self.document.findall(nodes.container):
            if bundle.get("nb_element") != "mime_bundle":
                continue
            kinds = {child["mime_type"]: child for child in bundle.children}
            widget, html = kinds.get(WIDGET_VIEW_MIMETYPE), kinds.get("text/html")
            if widget is not None and html is not None:
                text = f'<div class="explorer">{html.astext()}</div>'
                text = f"<noscript>{text}</noscript>"
                widget += nodes.raw("", text, format="html")


def setup(app):
    app.add_post_transform(KeepFirstPicture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
