"""The sentences of a document before a source line, which a model of document-level translation reads with it.

Such a source is `first<brk> second<brk> line`, of which the line alone is translated: the "2 to 1" of Tiedemann and
Scherrer (2017). Documents end at blank lines, and with the file.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from transformer_cli.data.normalization import canonical
from transformer_cli.data.tags import split_tags
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.errors import ConfigError

END_OF_CONTEXT = "<brk>"  # the piece behind each sentence of a context
Context = tuple[str, ...]  # the sentences before a line, without their tags, oldest first
MANY = 20  # sentences, at most


class History:
    """The last `n` lines of a document that is read line by line."""

    def __init__(self, n: int, tags: Sequence[str] = ()) -> None:
        self._last, self._tags = deque[str](maxlen=n), tags
        self.n_documents = 1

    def before(self, line: str) -> Context:
        """The context of the next line; none of a blank one, which ends the document."""
        text = split_tags(line, self._tags)[1]
        if not canonical(text):
            self._last.clear()
            self.n_documents += 1
            return ()
        context = tuple(self._last)
        self._last.append(text)
        return context


def contexts_of(
    sources: Iterable[str], n: int, tags: Sequence[str] = (), sizes: Iterable[int] | None = None
) -> Iterator[Context]:
    """The context of each of the source lines, where parts of these `sizes` are documents of their own."""
    rest = iter(sources)
    if sizes is None:
        yield from map(History(n, tags).before, rest)
        return
    for size in sizes:
        yield from map(History(n, tags).before, islice(rest, size))


class ContextEncoder:
    """Encodes contexts with the source tokenizer of a model. Raises ConfigError if that has no END_OF_CONTEXT."""

    def __init__(self, tokenizer: Tokenizer, n: int) -> None:
        self.n, self._tokenizer, self._plain = n, tokenizer, tokenizer.without_tags()
        found = break_id(self._plain)
        if found is None:
            raise ConfigError(
                f"data.context_sentences={n}: the given vocabulary has no piece {END_OF_CONTEXT}, which stands between"
                " sentences. Train a vocabulary, or train the given one with"
                f' data.tokenizer.user_symbols=["{END_OF_CONTEXT}"]'
            )
        self.break_id = found

    def before(
        self,
        contexts: Sequence[Context],
        rooms: Sequence[int],
        *,
        n_threads: int | None = None,
        as_written: bool = False,
    ) -> list[list[int]]:
        """The tokens of each context, each sentence with END_OF_CONTEXT behind it: of the latest that have room."""
        texts = list(dict.fromkeys(chain.from_iterable(contexts)))
        encoded = self._plain.encode(list(map(without_breaks, texts)), n_threads=n_threads, as_written=as_written)
        ids = dict(zip(texts, encoded, strict=True))
        return [
            self._latest([ids[text] for text in context], room) for context, room in zip(contexts, rooms, strict=True)
        ]

    def _latest(self, sentences: Sequence[list[int]], room: int) -> list[int]:
        found: list[int] = []
        for ids in reversed(sentences):
            if len(ids) + 1 + len(found) > room:
                break
            found = [*ids, self.break_id, *found]
        return found

    def put_before(
        self,
        sources: Sequence[list[int]],
        contexts: Sequence[Context],
        longest: int,
        *,
        n_threads: int | None = None,
        as_written: bool = False,
    ) -> list[list[int]]:
        """Each encoded line with its context between its tags and its text, in at most `longest` tokens.

        A line that is longer by itself has none.
        """
        rooms = [longest - len(ids) if ids else 0 for ids in sources]
        found = self.before(contexts, rooms, n_threads=n_threads, as_written=as_written)
        starts = map(self._tokenizer.n_tags, sources)
        return [[*ids[:n], *one, *ids[n:]] for ids, one, n in zip(sources, found, starts, strict=True)]


def break_id(tokenizer: Tokenizer) -> int | None:
    """The id of END_OF_CONTEXT, if text with it is cut there."""
    ids = tokenizer.encode([f"a{END_OF_CONTEXT} a"])[0]
    found = [number for number, piece in zip(ids, tokenizer.pieces(ids), strict=True) if piece == END_OF_CONTEXT]
    return found[0] if len(found) == 1 else None


def without_breaks(text: str) -> str:
    """A text that holds no END_OF_CONTEXT, but where one is written out `< brk>`."""
    return text.replace(END_OF_CONTEXT, f"{END_OF_CONTEXT[0]} {END_OF_CONTEXT[1:]}")
