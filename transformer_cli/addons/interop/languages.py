"""English names of languages by ISO 639-1 code, for what people read: model cards and the menus of other programs."""

import re

from transformer_cli.config.language_names import NAMES
from transformer_cli.config.tags import languages_of


def language_name(code: str) -> str | None:
    """None for a code that is not in the table; regions and scripts, as in en_US, are left out."""
    return NAMES.get(base_code(code))


def base_code(code: str) -> str:
    return re.split(r"[-_]", code)[0].lower()


def described(code: str) -> str:
    """`German (de)`, of several languages `German (de) and French (fr)`; a code alone where its name is not known."""
    names = [(one, language_name(one)) for one in languages_of(code)]
    return " and ".join(one if name is None else f"{name} ({one})" for one, name in names)
