"""Language codes of clients, as zh-Hans, pt_BR or EN, and those of the models."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from transformer_cli.addons.interop.languages import language_name

# Codes of old, of other lists, and of programs; `no` and `nb` are used for the same language.
_SAME = {
    "iw": "he",
    "in": "id",
    "ji": "yi",
    "jw": "jv",
    "fil": "tl",
    "nb": "no",
    "cmn": "zh",
    "pb": "pt-br",
    "zt": "zh-hant",
}
_USUAL_SCRIPT = {"zh": "hans", "sr": "cyrl", "az": "latn", "uz": "latn", "bs": "latn", "kk": "cyrl", "mn": "cyrl"}
_SCRIPT_OF_REGION = {("zh", "tw"): "hant", ("zh", "hk"): "hant", ("zh", "mo"): "hant"}
_SCRIPT_OF_MODIFIER = {"latin": "latn", "cyrillic": "cyrl"}


@dataclass(frozen=True)
class Code:
    """BCP 47's parts, in small letters."""

    language: str
    script: str | None
    region: str | None

    @classmethod
    def of(cls, written: str) -> "Code":
        """Of pt-BR, pt_BR, PT-br, sr@latin, zh-Hant-TW."""
        code, _, modifier = written.strip().lower().replace("_", "-").partition("@")
        language, *rest = _SAME.get(code, code).split("-")
        language, *more = _SAME.get(language, language).split("-")
        rest = [*more, *rest]
        region = next((part for part in rest if len(part) == 2 or (len(part) == 3 and part.isdecimal())), None)
        script = next((part for part in rest if len(part) == 4 and part.isalpha()), _SCRIPT_OF_MODIFIER.get(modifier))
        script = script or _SCRIPT_OF_REGION.get((language, region or ""))
        return cls(language, script, region)

    @property
    def usual_script(self) -> str | None:
        return self.script or _USUAL_SCRIPT.get(self.language)


def matched(asked: str, known: Iterable[str]) -> str | None:
    """The one of `known` that a client means by `asked`; None where there is none, or more than one.

    A region that only one of the two names does not matter; another region is another language, as is another script
    (zh-Hant is not zh, which is written in simplified characters).
    """
    known, wanted = list(known), Code.of(asked)
    for code in known:
        if code.lower() == asked.strip().lower():
            return code
    ranked: dict[int, list[str]] = {}
    for code in known:
        rank = _distance(wanted, Code.of(code))
        if rank is not None:
            ranked.setdefault(rank, []).append(code)
    nearest = ranked[min(ranked)] if ranked else []
    return nearest[0] if len(nearest) == 1 else None


def _distance(asked: Code, code: Code) -> int | None:
    """None: another language."""
    regions = {asked.region, code.region} - {None}
    scripts = {asked.usual_script, code.usual_script} - {None}
    if asked.language != code.language or len(regions) > 1 or len(scripts) > 1:
        return None
    return 2 * (asked.region != code.region) + (asked.script != code.script)


def written(code: str) -> str:
    """As BCP 47 writes it: pt-BR for pt_BR."""
    return code.replace("_", "-")


def names_of(codes: Iterable[str]) -> dict[str, str]:
    """In English, with the code where several have the same."""
    names = {code: language_name(code) or code for code in codes}
    counts = Counter(names.values())
    return {code: f"{name} ({written(code)})" if counts[name] > 1 else name for code, name in names.items()}
