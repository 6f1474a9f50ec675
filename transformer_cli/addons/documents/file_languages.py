"""The languages of a file that has its texts in several: which are translated from, and which into."""

from transformer_cli.addons.documents.units import LANGUAGES
from transformer_cli.errors import quoted
from transformer_cli.languages import Code, bcp47, codes_meant, language_name, matched

_MOST_NAMED = 10  # languages of an error


class UnknownLanguageError(ValueError):
    """A language that a file does not have, or does not name."""


def choose_languages(known: list[str], of_file: str) -> tuple[list[str], list[str]]:
    """The codes of the sources and of the targets among those that the file has, each with the best one first.

    `of_file` is the source that the file names itself. The target may be one that the file does not have yet.
    Raises UnknownLanguageError.
    """
    source, target = LANGUAGES.get()
    has, asked = f"has texts in {_listed(known)}", source or of_file
    sources = _variants(asked, known)
    if not sources:
        missing = f"none in {quoted(asked, 20)[1:-1]}" if asked else "does not say which is the source"
        raise UnknownLanguageError(f"{has}, and {missing}. Name the language to translate from, by --from")
    others = [code for code in known if code not in sources]
    if target:
        return sources, _variants(target, others) or [language_tag(target)]
    targets = _variants(others[0], others) if others else []
    if not others or targets != others:
        raise UnknownLanguageError(f"{has}. Name the language to translate into, by --to")
    return sources, targets


def language_tag(code: str) -> str:
    """The code as BCP 47 has it: de of deu_Latn, pt-BR of pt_br, zh-Hans of zho_Hans; unknown ones as they are."""
    parsed = Code.of(code)
    if not code or language_name(parsed.language) is None:
        return bcp47(code)
    is_usual = parsed.script == Code(parsed.language, None, None).usual_script and parsed.language != "zh"
    script = "" if parsed.script is None or is_usual else parsed.script.title()
    return "-".join(part for part in (parsed.language, script, (parsed.region or "").upper()) if part)


def _variants(asked: str, known: list[str]) -> list[str]:
    """The codes that stand for a language, as en, en-US and en-GB do for en; those that are nearest first."""
    found = codes_meant(asked, known)
    return [*found, *(code for code in known if code not in found and matched(asked, [code]) is not None)]


def _listed(codes: list[str]) -> str:
    more = f" and {len(codes) - _MOST_NAMED} more" if len(codes) > _MOST_NAMED else ""
    return ", ".join(quoted(code, 20)[1:-1] for code in codes[:_MOST_NAMED]) + more
