"""Language identification by script and, for some languages, by their most frequent words.

Only clear mismatches are reported: none for languages without a list, or with the same frequent words.
"""

import re
from collections import Counter
from collections.abc import Iterable

from transformer_cli.languages import iso_639_1

_MAX_WORDS = 20_000  # of a text that are counted
_MIN_WORDS, _MIN_LETTERS = 100, 200  # fewer are too few to decide
_MIN_SHARE = 0.04  # of all words that are common ones of the other language; 0.2 and more in running text
_MAX_OWN = 0.1  # of all letters that are of a script of the declared language
_MIN_DIFFERENT = 4  # of these, so that no single name decides
_CLEARLY = 8  # times as many as common words of the declared language

_WORDS = {
    "en": "the of and to is that it was for with he she you they are this have not be at by his her from we there were",
    "de": "der die und das ist nicht ein eine zu mit den von sie auf für im dem des wir auch sich wie ich er war sind",
    "fr": "le la les et est des une un que dans pas pour il elle du qui sur au je nous vous avec ce cette sont été",
    "es": "el los las y es una un que en por con para del no se su lo al como más está pero son fue muy esta",
    "it": "il di che è una un per con non del la le gli sono della nel si ho lo ha più anche come questo alla dei",
    "pt": "o os as e que não uma um em do da para com é por no na se mais dos como foi mas são ele você isso",
    "nl": "de het een en van is dat niet op te zijn voor met die ik er maar aan hij ook wij ze naar heeft bij deze",
    "sv": "och att det är en ett som på inte för med den har jag av till om vi de hon han var men från så",
    "da": "og at det er en et som på ikke for med den har jeg af av til om vi de hun han var men fra så",
    "fi": "ja on ei se että hän oli en mutta kun ovat minä ole joka niin myös kuin tämä sen mitä he ne olen",
    "pl": "i w nie się na jest to że z do jak ale jego ona są był dla od czy po co tak tym przez oraz",
    "cs": "a je se na že v to z do jsem ale jako s pro jsou byl jeho si by které nebo tak podle ve",
    "ro": "și în de la nu un o este pe cu să care din mai pentru ce sunt am lui se al sau fost",
    "hu": "a az és nem hogy egy is van ez volt de meg csak már mint nagyon ki el azt kell lesz volna vagy",
    "tr": "bir ve bu için ben çok o ne da de mi var daha gibi sen değil ama her kadar olarak yok benim",
}
_COMMON = {language: frozenset(words.split()) for language, words in _WORDS.items()}

SCRIPTS = {
    "Latin": "A-Za-z\u00c0-\u024f\u1e00-\u1eff",
    "Greek": "\u0370-\u03ff\u1f00-\u1fff",
    "Cyrillic": "\u0400-\u052f",
    "Hebrew": "\u0590-\u05ff",
    "Arabic": "\u0600-\u06ff\u0750-\u077f",
    "Devanagari": "\u0900-\u097f",
    "Thai": "\u0e00-\u0e7f",
    "Korean": "\u1100-\u11ff\uac00-\ud7af",
    "Japanese": "\u3040-\u30ff",
    "Chinese": "\u3400-\u4dbf\u4e00-\u9fff",
}
_LETTERS = {name: re.compile(f"[{letters}]") for name, letters in SCRIPTS.items()}
_WRITTEN_IN = {
    **{language: {"Latin"} for language in _WORDS},
    **{"el": {"Greek"}, "he": {"Hebrew"}, "th": {"Thai"}, "hi": {"Devanagari"}},
    **{language: {"Cyrillic"} for language in ("ru", "uk", "bg")},
    **{language: {"Arabic"} for language in ("ar", "fa", "ur")},
    **{"zh": {"Chinese"}, "ja": {"Japanese", "Chinese"}, "ko": {"Korean", "Chinese"}},
}
_READ_AS = {"no": "da", "nb": "da", "nn": "da"}  # whose common words are almost the same


def reads_like(lines: Iterable[str], declared: str) -> str | None:
    """The language or script of the lines if that is clearly not the language of the code `declared`, else None."""
    code = iso_639_1(declared)
    language = _READ_AS.get(code, code)
    if language not in _WRITTEN_IN:
        return None
    text: list[str] = []
    n_words = 0
    for line in lines:
        text.append(line)
        n_words += 1 + line.count(" ")
        if n_words > _MAX_WORDS:
            break
    return _other_script("\n".join(text)[: 10 * _MAX_WORDS], language) or _other_words(text, language)


def _other_script(text: str, language: str) -> str | None:
    counts = {name: len(letters.findall(text)) for name, letters in _LETTERS.items()}
    total, own = sum(counts.values()), sum(counts[name] for name in _WRITTEN_IN[language])
    if total < _MIN_LETTERS or own > _MAX_OWN * total:
        return None
    if counts["Japanese"] > _MAX_OWN * total:  # which is written in Chinese letters, too
        counts["Japanese"] += counts["Chinese"]
    return f"{max(counts, key=lambda name: counts[name])} letters"


def _other_words(lines: Iterable[str], language: str) -> str | None:
    if language not in _COMMON:
        return None
    words = Counter(word for line in lines for word in re.findall(r"[^\W\d_]+", line.lower()))
    total = words.total()
    if total < _MIN_WORDS:
        return None
    found: dict[str, int] = {}
    for other, common in _COMMON.items():
        theirs = {word: words[word] for word in common - _COMMON[language] if words[word]}
        ours = sum(words[word] for word in _COMMON[language] - common)
        count = sum(theirs.values())
        if count >= max(_MIN_SHARE * total, _CLEARLY * (ours + 1)) and len(theirs) >= _MIN_DIFFERENT:
            found[other] = count
    return max(found, key=lambda other: found[other]) if found else None
