"""Language identification by py3langid: naive Bayes over bytes (Lui and Baldwin 2012), for some hundred languages."""

from functools import cache
from importlib import import_module
from typing import Any


@cache
def identifier() -> Any:
    """The identifier, whose confidences are probabilities. It takes a second to load, and is read from arrays: no code
    is executed."""
    langid = import_module("py3langid.langid")
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
