"""data.detokenize: corpora without the tokenization of Moses, undone once, as it takes longer than reading."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from transformer_cli.config.data import DataConfig
from transformer_cli.config.tags import language_of, languages_of, tags_in
from transformer_cli.data.lines import Lines
from transformer_cli.data.moses import MosesText
from transformer_cli.data.readers import Corpus
from transformer_cli.data.readers.base import Pair
from transformer_cli.data.readers.checked import checked_pairs
from transformer_cli.data.spooled import both_sides, of_both_sides
from transformer_cli.data.tags import split_tags

_Read = tuple[Corpus, Sequence[Lines]]  # a corpus with the lines of its files


def detokenized(
    corpora: Sequence[_Read],
    tags: Sequence[str],
    config: DataConfig,
    spool: Path | None,
    on_fault: Callable[[str], None],
) -> list[_Read]:
    """The same pairs, each side by the rules of its language: of several target languages, that of the tags."""
    source_lang, target_langs = languages_of(config.source_lang)[0], languages_of(config.target_lang)
    done: list[_Read] = []
    for number, ((corpus, files), entry) in enumerate(zip(corpora, tags or [""] * len(corpora), strict=True)):
        texts = MosesText(source_lang), MosesText(language_of(tags_in(entry), config.target_lang) or target_langs[0])
        pairs = _each(checked_pairs(corpus, files, on_fault), texts, config.all_tags)
        done.append(of_both_sides(corpus, files, both_sides(pairs, spool and spool / f"detokenized-{number}")))
    return done


def _each(pairs: Iterator[Pair], texts: tuple[MosesText, MosesText], known_tags: Sequence[str]) -> Iterator[Pair]:
    for source, target in pairs:
        tags, rest = split_tags(source, known_tags)
        yield " ".join([*tags, texts[0].detokenized(rest)]), texts[1].detokenized(target)
