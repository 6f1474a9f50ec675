"""Lines as parts that fit a model: their sentences, or as much as its longest source."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from transformer_cli.data.normalization import has_letters
from transformer_cli.data.sentences import split_sentences
from transformer_cli.data.tokenizer import Tokenizer

_WORD_START = "▁"  # SentencePiece's mark
# Where a sentence that is too long is divided. No pattern here backtracks.
_CLAUSE_END = re.compile(r"""[.!?…,;:،؛]["'”’»)\]]*+(?=\s)|(?<=\s)[–—-](?=\s)|[，、；：]""")


@dataclass(frozen=True)
class EncodedText:
    """A text and its tokens."""

    text: str
    ids: list[int]  # without EOS


def split_line(
    text: str, tokenizer: Tokenizer, *, max_tokens: int, language: str, packs: bool = True
) -> list[EncodedText]:
    """Parts of at most `max_tokens` ids: a sentence each, or as many together as there is room for if it `packs`.

    A sentence that is too long by itself is divided behind clauses, one of these between words, a word anywhere.
    """
    found: list[EncodedText] = []
    sentences = sentences_of(text, language)
    for part in group_parts(text, sentences, tokenizer, max_tokens=max_tokens if packs else 0):
        if len(part.ids) <= max_tokens:
            found.append(part)
            continue
        for clause in group_parts(part.text, clauses(part.text), tokenizer, max_tokens=max_tokens):
            if len(clause.ids) <= max_tokens:
                found.append(clause)
                continue
            cut = cut_at_words(clause.ids, tokenizer.pieces(clause.ids), max_tokens=max_tokens)
            found += [EncodedText(tokenizer.decode(ids), ids) for ids in cut]
    return found


def sentences_of(text: str, language: str) -> list[str]:
    """The sentences of a line that have something to translate, with what has not behind one of them, as 3. or 😀."""
    found: list[str] = []
    start = end = 0
    for part in split_sentences(text, language):
        place = text.index(part, end)
        end = place + len(part)
        if found and not (has_letters(part) and has_letters(found[-1])):
            found[-1] = text[start:end]
        else:
            found.append(part)
            start = place
    return found


def group_parts(text: str, parts: Sequence[str], tokenizer: Tokenizer, *, max_tokens: int) -> list[EncodedText]:
    """`parts` of `text`, grouped while they are no longer than `max_tokens`; a longer one by itself."""
    groups: list[list[int]] = []  # first character, end, tokens
    end = 0
    for part, ids in zip(parts, tokenizer.encode(parts), strict=True):
        start = text.index(part, end)
        end = start + len(part)
        if groups and groups[-1][2] + len(ids) <= max_tokens:
            groups[-1][1:] = [end, groups[-1][2] + len(ids)]
        else:
            groups.append([start, end, len(ids)])
    texts = [text[start:end] for start, end, _ in groups]
    return [EncodedText(*pair) for pair in zip(texts, tokenizer.encode(texts), strict=True) if pair[1]]


def clauses(sentence: str) -> list[str]:
    """The clauses of a sentence, which together hold all of it but white space between them."""
    ends = [match.end() for match in _CLAUSE_END.finditer(sentence)]
    parts = (sentence[start:end].strip() for start, end in zip([0, *ends], [*ends, len(sentence)], strict=True))
    return [part for part in parts if part]


def cut_at_words(ids: Sequence[int], pieces: Sequence[str], *, max_tokens: int) -> list[list[int]]:
    """Parts of at most `max_tokens` ids, each as long as it can be; only a word longer than that is torn."""
    parts, start = [], 0
    while len(ids) - start > max_tokens:
        limit = start + max_tokens
        end = next((i for i in range(limit, start, -1) if pieces[i].startswith(_WORD_START)), limit)
        parts.append(list(ids[start:end]))
        start = end
    return [*parts, list(ids[start:])] if start < len(ids) else parts
