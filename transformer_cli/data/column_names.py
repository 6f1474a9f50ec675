"""Names of columns: which row is a header, and which columns hold source and target, or label and text."""

import re
from collections.abc import Iterable, Sequence, Set

from transformer_cli.config.data import DataConfig
from transformer_cli.config.tags import languages_of
from transformer_cli.errors import DataError, quoted
from transformer_cli.languages import NAMES, code_of_name, iso_639_1, matched, spelled_names
from transformer_cli.registry import did_you_mean

_SHOWN = 40  # characters of a field in an error
_MOST_NAMES = 30  # of a table with many columns, in an error
_REGIONAL = re.compile(r"[a-z]{2,3}[-_][a-z]{2,4}")
_CODE = re.compile(r"[a-z]{2,3}([-_][a-z]{4})?([-_]([a-z]{2}|[0-9]{3}))?")
_IDENTIFIER = re.compile(r"[^\W\d][\w.-]*( [\w.-]+)?")
_PARTS = re.compile(r"[\W_]+")  # between the parts of a name, as in text_en

# Words that name a side of a pair, or the label and the text of a line.
_SOURCES = ("source", "src", "source text", "source sentence", "source_text", "source_lang")
_TARGETS = ("target", "tgt", "trg", "target text", "target sentence", "target_text", "target_lang", "translation")
_LABELS = ("label", "class", "category", "sentiment", "polarity", "emotion", "intent", "topic", "rating", "stars")
_TEXTS = ("text", "sentence", "review", "tweet", "comment", "utterance")
_OTHERS = ("reference", "text1", "text2", "sentence1", "sentence2", "premise", "hypothesis")
_WORDS = {*_SOURCES, *_TARGETS, *_LABELS, *_TEXTS, *_OTHERS}


def is_header(first: str, second: str, source_lang: str, target_lang: str) -> bool:
    """Whether two fields name columns: a code or the name of a language of the corpus, or a word as source, label."""
    names = _names(source_lang) | _names(target_lang) | _WORDS
    are_same = _word(first) == _word(second) or _language_named(first) == _language_named(second) is not None
    return not are_same and _is_of(first, names) and _is_of(second, names)  # the same: English and its translation


def is_exchanged(first: str, second: str, source_lang: str, target_lang: str) -> bool:
    """Whether the two fields of a header name the target's language first, and then the source's."""
    source, target = _names(source_lang), _names(target_lang)
    return _is_of(first, target - source) and _is_of(second, source - target)


def named_columns(names: Sequence[str], config: DataConfig, *, in_so_many_words: bool = False) -> list[int] | None:
    """The columns of source and target by the languages of the corpus, or those of label and text by these words.

    A language model has the column of its text alone.

    None where none, or more than one, is named so. `translation.en` and `text_en` name English where nothing is called
    `en`, unless the names must be the words themselves, as those of a first row that may be a pair.
    """
    if config.trained.labels_lines:
        return _both(_only(names, _LABELS), _only(names, _TEXTS))
    if not config.trained.has_source:
        return text_columns(names) or None
    sides = config.source_lang, config.target_lang
    spellings = [list(names)] if in_so_many_words else [list(names), [name.rpartition(".")[2] for name in names]]
    for spelled in spellings:
        if found := _both(*(_of_language(spelled, side) for side in sides)):
            return found
    if not in_so_many_words and (found := _both(*(_of_part(names, side) for side in sides))):
        return found
    by_words = _both(_only(names, _SOURCES), _only(names, _TARGETS))
    return by_words[::-1] if by_words and config.is_swapped else by_words


def language_columns(names: Sequence[str]) -> dict[str, int]:
    """The columns that are called by a language, its code as it is written there → index; no language of two."""
    found: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        if language := _language_named(name):
            found.setdefault(language, []).append(index)
    once = {language: columns[0] for language, columns in found.items() if len(columns) == 1}
    if len(once) > 2:  # beside two languages it is no Indonesian
        once.pop("id", None)
    return once


def role_columns(names: Sequence[str], *, has_labels: bool) -> list[int] | None:
    """The columns that are called source and target, or label and text, in these words."""
    words = (_LABELS, _TEXTS) if has_labels else (_SOURCES, _TARGETS)
    return _both(*(_only(names, one) for one in words))


def text_columns(names: Sequence[str]) -> list[int]:
    """The column that is called text, or by another such word; none where there is not one alone."""
    found = _only(names, _TEXTS)
    return [] if found is None else [found]


def looks_like_header(row: Sequence[str]) -> bool:
    """Whether a first row names columns, whatever the languages are: two words or languages, or one among names."""
    fields = [field for field in row if field.strip()]
    words = [_language_named(field) or _word(field) for field in fields]
    known = {word for word in words if word in _WORDS or iso_639_1(word) in NAMES}
    n_known = len(known)  # English and Englisch are a pair
    are_names = len(set(fields)) == len(row) and all(map(_IDENTIFIER.fullmatch, fields))
    return n_known > 1 or (n_known == 1 and are_names)


def _language_named(name: str) -> str | None:
    """The language that a column is called by, as en, pt-BR, translation.en, French or text_en."""
    tail = name.rpartition(".")[2].strip()
    if (code := code_of_name(_word(tail))) is not None:
        return code
    if _CODE.fullmatch(_word(tail)) and iso_639_1(_word(tail)) in NAMES:
        return tail
    codes = [part for part in _PARTS.split(tail) if part.casefold() in NAMES]
    return codes[0] if len(codes) == 1 and _IDENTIFIER.fullmatch(tail) else None


def selected_columns(names: Sequence[str], config: DataConfig, file: str) -> list[int] | None:
    """The columns that data.columns selects, or else those that are called so; None where none are.

    Raises DataError for a name that no column has.
    """
    if config.columns:
        columns = chosen_columns(config.columns, names, file)
        is_pair_swapped = config.is_swapped and not config.trained.labels_lines
        return columns[::-1] if is_pair_swapped else columns
    return named_columns(names, config)


def chosen_columns(chosen: Sequence[int | str], names: Sequence[str], file: str) -> list[int]:
    """The indices of data.columns, which has numbers and names. Raises DataError for a name that no column has."""
    return [_index(column, chosen, names, file) for column in chosen]


def shown_row(row: Sequence[str], most: int = 4) -> str:
    """The first fields of a row, for messages."""
    fields = [quoted(field, _SHOWN) for field in row[:most]]
    return " | ".join([*fields, *(["…"] if len(row) > most else [])])


def shown_names(names: Sequence[str]) -> str:
    return shown_row(names, _MOST_NAMES)


def columns_setting(columns: Iterable[int | str]) -> str:
    """The setting as a shell takes it."""
    return f"data.columns=[{','.join(map(str, columns))}]"


def _index(column: int | str, chosen: Sequence[int | str], names: Sequence[str], file: str) -> int:
    if isinstance(column, int):
        return column
    for spelling in (str, _word):
        found = [index for index, name in enumerate(names) if spelling(name) == spelling(column)]
        if len(found) == 1:
            return found[0]
        if found:
            raise DataError(
                f"{file}: {columns_setting(chosen)}: {len(found)} columns are called {quoted(column)}"
                f" ({shown_names(names)}). Give their numbers, counted from 0"
            )
    raise DataError(
        f"{file}: {columns_setting(chosen)}: no column is called {quoted(column)}{did_you_mean(column, names)}"
        f" (columns: {shown_names(names)}). Correct data.columns"
    )


def _both(first: int | None, second: int | None) -> list[int] | None:
    return None if first is None or second is None or first == second else [first, second]


def _of_language(names: Sequence[str], side: str) -> int | None:
    """The only column that is called by the code or a name of the language of a side."""
    words = [_word(name) for name in names]
    if words.count(_word(side)) == 1:
        return words.index(_word(side))
    named = [index for index, word in enumerate(words) if word in spelled_names(side)]
    if len(named) == 1:
        return named[0]
    found = matched(side, {word for word in words if _CODE.fullmatch(word)})
    return words.index(found) if found is not None and words.count(found) == 1 else None


def _of_part(names: Sequence[str], side: str) -> int | None:
    """The only column with the code or the name of the language among the parts of its name, as text_en."""
    wanted = _names(side)
    found = [index for index, name in enumerate(names) if wanted & set(_PARTS.split(name.casefold()))]
    return found[0] if len(found) == 1 else None


def _only(names: Sequence[str], words: Sequence[str]) -> int | None:
    found = [index for index, name in enumerate(names) if _word(name) in words]
    return found[0] if len(found) == 1 else None


def _is_of(field: str, names: Set[str]) -> bool:
    """Whether a field is one of these names, or another code of one, as en_US or eng."""
    word = _word(field)
    is_regional = _REGIONAL.fullmatch(word) is not None and re.split("[-_]", word)[0] in names
    return word in names or is_regional or iso_639_1(word) in names


def _word(field: str) -> str:
    return " ".join(field.casefold().split())


def _names(side: str) -> set[str]:
    """Codes and names of the languages of a side."""
    languages = {language.casefold() for language in languages_of(side)}
    codes = languages | {re.split("[-_]", language)[0] for language in languages}
    return codes.union(*map(spelled_names, codes))
