"""data.detokenize: corpora without the tokenization of Moses, undone once, as it takes longer than reading."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from transformer_cli.config.data import DataConfig
from transformer_cli.config.tags import language_of, languages_of, tags_in
from transformer_cli.data.lines import Lines
from transformer_cli.data.moses import MosesText
from transformer_cli.data.readers import Corpus
from transformer_cli.data.readers.base import Pair
from transformer_cli.data.readers.checked import checked_pairs
from transformer_cli.data.tags import split_tags

_PAIRS_AT_A_TIME = 100_000  # in memory, where there is a folder to spool to

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
        stem = spool and spool / f"detokenized-{number}"
        sides = _sides(checked_pairs(corpus, files, on_fault), texts, config.all_tags, stem)
        for side, lines in zip(sides, (files[0], files[-1]) if files else (), strict=False):
            side.name = lines.name
        sides[0].bad = {index: fault for lines in files for index, fault in lines.bad.items()}
        done.append((_with_lines(corpus, files), sides))
    return done


def _sides(
    pairs: Iterator[Pair], texts: tuple[MosesText, MosesText], known_tags: Sequence[str], stem: Path | None
) -> tuple[Lines, Lines]:
    """The lines of both sides of `pairs`, in files that begin with `stem` where there are many."""
    sides = Lines(""), Lines("")
    for n_pairs, (source, target) in enumerate(pairs, 1):
        tags, rest = split_tags(source, known_tags)
        sides[0].texts.append(" ".join([*tags, texts[0].detokenized(rest)]))
        sides[1].texts.append(texts[1].detokenized(target))
        if stem is not None and n_pairs % _PAIRS_AT_A_TIME == 0:
            for side, lines in enumerate(sides):
                lines.spool_to(stem.with_suffix(f".{side}"))
    return sides


def _with_lines(corpus: Corpus, files: Sequence[Lines]) -> Corpus:
    """The corpus with one file for each side; its warnings are still of the files that it was read from."""

    def pairs(sides: Sequence[Lines]) -> Iterator[Pair]:
        return zip(sides[0].each(), sides[1].each(), strict=True)

    return replace(corpus, pairs=pairs, warnings=lambda _: corpus.warnings(files))
