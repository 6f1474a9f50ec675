"""The categories of plural forms that a language has, by Unicode's CLDR, and which of another language's they follow.

https://www.unicode.org/cldr/charts/latest/supplemental/language_plural_rules.html, of cardinal numbers. `many` of
1,000,000 in French, Spanish and their like is left out: `other` stands for it.
"""

from collections.abc import Iterable

from transformer_cli.languages import iso_639_1

_MOST = "one other"
_BY_CATEGORIES = {
    "other": "bo dz id ig ja jv km ko lo ms my sah su th to wo yo yue zh",
    "zero one other": "lv",
    "one two other": "he iu se",
    "one few other": "bs hr ro sh sr",
    "one few many other": "be cs lt pl ru sk uk",
    "one two few other": "dsb gd hsb sl",
    "one two few many other": "br ga gv mt",
    "zero one two few many other": "ar cy",
}
_CATEGORIES = {code: names for names, codes in _BY_CATEGORIES.items() for code in codes.split()}
# Forms that many numbers have, as the one of 1, 21 and 31 in Russian is: their texts need the number.
_ONE_OFTEN = "be br bs ceb dsb fil gv hr hsb is lt lv mk ru sh sl sr tl uk"
_OFTEN = {
    "zero": frozenset({"lv"}),
    "one": frozenset(_ONE_OFTEN.split()),
}
OF_OTHERS = "other"  # which each language has, and which is used where another is missing


def categories_of(language: str, of_source: Iterable[str]) -> list[str]:
    """The categories that a text needs in a language, if it has `of_source` in another, in the order of the alphabet.

    `zero` of the source is kept: on Apple's systems it is the text for 0 in any language.
    """
    own = _CATEGORIES.get(iso_639_1(language), _MOST)
    return sorted({*own.split(), *({"zero"} & {*of_source})})


def needs_number(category: str, language: str) -> bool:
    """Whether a form is that of many numbers."""
    return iso_639_1(language) in _OFTEN.get(category, ())
