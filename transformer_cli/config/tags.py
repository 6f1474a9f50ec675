"""Tags: tokens at the beginning of a source line that say what its translation should be, or where the line is from.

`<2de>` asks for German, `<bt>` marks a back-translation, `<domain:medical>` a domain. A tag begins and ends with a
mark, so that no word is one. NLLB and M2M-100 need the language of the source, too: `<eng_Latn> <2fra_Latn>`.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence

from transformer_cli.errors import ConfigError, quoted

LANGUAGES_JOIN = "+"  # between the languages of a side that has several, as de+fr
LONGEST_TAG = 64  # characters
_CONTROL = re.compile(r"</?s>|<(?:pad|unk|mask)>|<0x[0-9A-Fa-f]{2}>")
# What names a language within a tag: <2de>, <de>, >>de<<, __de__, <2pt_BR>, <to:de>; not <domain:de_law>.
_LANGUAGE_TAG = re.compile(r"[^\w\s]*_*(?P<to>2|to[^\w\s]|to_)?(?P<code>[^\W\d_]+(?:[-_][^\W_]+)*?)_*[^\w\s]*")


def source_tag(code: str) -> str:
    """The tag that says which language a line is in, for a model that needs to know."""
    return f"<{code}>"


def target_tag(code: str) -> str:
    """The tag that asks for a language."""
    return f"<2{code}>"


def tags_in(entry: str) -> list[str]:
    """The tags of an entry, which has white space between them; none of an empty one."""
    return entry.split()


def distinct(entries: Iterable[str]) -> list[str]:
    """All tags of several entries, each once, in their order."""
    return list(dict.fromkeys(tag for entry in entries for tag in tags_in(entry)))


def check_tag(key: str, tag: str) -> None:
    """Refuse what cannot be a tag: a word, a control token, or what a text could not hold as it is."""
    if len(tag) > LONGEST_TAG or not tag.isprintable() or unicodedata.normalize("NFC", tag) != tag:
        raise ConfigError(f"{key}: {quoted(tag)} cannot be a tag. Use at most {LONGEST_TAG} plain characters")
    if len(tag) < 3 or tag[0].isalnum() or tag[-1].isalnum() or not any(map(str.isalnum, tag)) or "\u2581" in tag:
        raise ConfigError(f"{key}: {quoted(tag)} could be a part of a text. Put it in marks, as <{tag.strip('<>')}>")
    check_symbol(key, tag)


def is_tag(piece: str) -> bool:
    try:
        check_tag("", piece)
    except ConfigError:
        return False
    return True


def check_symbol(key: str, symbol: str) -> None:
    """Refuse what vocabularies have for a purpose of their own."""
    if _CONTROL.fullmatch(symbol):
        raise ConfigError(f"{key}: {symbol} is a control token of vocabularies. Choose another")


def languages_of(side: str) -> list[str]:
    """The languages of a side, as `data.target_lang` names them: one, or several as de+fr."""
    return side.split(LANGUAGES_JOIN)


def languages_named(tags: Sequence[str], languages: Sequence[str]) -> list[str]:
    """The languages among `languages` that some tag names, in the order of the tags.

    Where a tag names one with a 2 or `to`, as <2de>, it alone says what the translation is in: others may name the
    language of the source.
    """
    found: dict[str, bool] = {}
    by_code = {language.lower(): language for language in languages}
    for tag in tags:
        match = _LANGUAGE_TAG.fullmatch(tag)
        language = by_code.get(match["code"].lower()) if match else None
        if match and language is not None:
            found[language] = found.get(language, False) or match["to"] is not None
    asked = [language for language, is_asked in found.items() if is_asked]
    return asked or list(found)


def language_of(tags: Sequence[str], target_lang: str) -> str:
    """The language that a line with these tags is translated into; empty where no tag names one of several."""
    languages = languages_of(target_lang)
    if len(languages) == 1:
        return target_lang
    named = languages_named(tags, languages)
    return named[0] if len(named) == 1 else ""
