"""What this add-on brings: formats of documents, each registered by its own module, and catalogues as corpora."""

import importlib
import pkgutil

from transformer_cli.addons.documents import formats, po_corpus

for found in pkgutil.iter_modules(formats.__path__):
    importlib.import_module(f"{formats.__name__}.{found.name}")

__all__ = ["po_corpus"]
