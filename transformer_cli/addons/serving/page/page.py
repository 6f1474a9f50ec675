"""The web page of `tfm serve`: text on the left, its translation on the right.

The page asks the server for everything else: its script reads /api/models, and posts to /api/translate and
/api/attention. Paths are relative, so a proxy may serve it under any folder.
"""

import json

from transformer_cli.addons.documents.formats import formats, names_by_ending, text_formats
from transformer_cli.addons.pages.document import document, escaped

# The rest of its policy is in the page. Its address, of which a proxy may have made a secret, goes to no other site.
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def render() -> str:
    """The page; the same text for every reader and every model."""
    return document(
        "transformer_cli.addons.serving.page",
        title="Translate",
        connect_to="'self'",
        framed="transformer_cli.addons.attention_maps",
        formats=escaped(json.dumps(names_by_ending())),
        packages=escaped(json.dumps([name for name in formats() if name not in text_formats()])),
    )
