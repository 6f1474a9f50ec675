"""Lines that are too long for the model, as parts that are not."""

import re
from collections.abc import Sequence

from transformer_cli.data.tokenizer import Tokenizer

# The last mark of a sentence, with the quotes and brackets that close behind it. Latin marks end a sentence only before
# white space, so 3.14 stays whole; Chinese and Japanese ones need none. No pattern here looks at a character twice.
SENTENCE_END = re.compile(r"""[.!?…]["'”’»)\]]*+(?=\s)|[。！？]["'”’»)\]」』）]*+(?![。！？])""")
WORD_START = "▁"  # SentencePiece's mark


def sentences(text: str) -> list[str]:
    """The sentences of a line; together they hold all of it but white space between them."""
    ends = [match.end() for match in SENTENCE_END.finditer(text)]
    parts = (text[start:end].strip() for start, end in zip([0, *ends], [*ends, len(text)], strict=True))
    return [part for part in parts if part]


def split_line(text: str, tokenizer: Tokenizer, *, max_tokens: int) -> list[list[int]]:
    """Ids of each sentence, and of as many parts of it as `max_tokens` demands."""
    encoded = tokenizer.encode(sentences(text))
    return [part for ids in encoded for part in cut_at_words(ids, tokenizer.pieces(ids), max_tokens=max_tokens)]


def cut_at_words(ids: Sequence[int], pieces: Sequence[str], *, max_tokens: int) -> list[list[int]]:
    """Parts of at most `max_tokens` ids, each as long as it can be; only a word longer than that is torn."""
    parts, start = [], 0
    while len(ids) - start > max_tokens:
        limit = start + max_tokens
        end = next((i for i in range(limit, start, -1) if pieces[i].startswith(WORD_START)), limit)
        parts.append(list(ids[start:end]))
        start = end
    return [*parts, list(ids[start:])] if start < len(ids) else parts
