"""`tfm align`: the word alignment of two texts in Pharaoh format, a line for each pair."""

from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from transformer_cli.addons.alignment.keys import AlignConfig
from transformer_cli.addons.alignment.word_corpus import WordCorpus, WordLinks
from transformer_cli.data.encoding import chunks
from transformer_cli.data.lines import each_line, open_text, shown
from transformer_cli.data.pharaoh import link_line
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.files import wrap_os_errors
from transformer_cli.logs import LOGGER
from transformer_cli.text_io import STDOUT, check_files, open_output, write_responses

_PAIRS = 4096  # that a model aligns together: enough to sort by length
_WRITTEN = 1000  # lines at a time


def run(config: AlignConfig) -> None:
    """Write the links of all pairs. Raises TfmError."""
    if config.source is None or config.translation is None:
        raise ConfigError(
            "tfm align: takes a text and its translation. Name two files, as `tfm align train.en train.de`"
        )
    inputs = {"--source": config.source, "--translation": config.translation}
    check_files(inputs, {"--output": config.output}, overwrite=config.overwrite)
    source, translation = Path(config.source), Path(config.translation)
    with TemporaryDirectory(prefix="tfm-align-") as name:
        folder = Path(name)
        if config.checkpoint is None:
            links = _estimated(source, translation, folder)
        else:
            links = _attended(source, translation, config)
        _write(links, config)


def _estimated(source: Path, translation: Path, folder: Path) -> Iterator[WordLinks]:
    with wrap_os_errors(folder, "keep the text"):
        corpus = WordCorpus.of(each_pair(source, translation), folder)
        if not corpus.has_text:
            raise DataError(f"{shown(source)}: no pair has text on both sides. Name two files of sentences")
        return corpus.links(folder)


def _attended(source: Path, translation: Path, config: AlignConfig) -> Iterator[WordLinks]:
    from transformer_cli.addons.alignment.model_links import open_aligner  # which needs torch

    aligner = open_aligner(config)
    for _ in each_pair(source, translation):
        pass  # so that a fault is said before anything is written

    def links() -> Iterator[WordLinks]:
        n_lines, n_unknown = 0, 0
        for pairs in chunks(each_pair(source, translation), _PAIRS):
            found = aligner.links(pairs, first_line=n_lines + 1)
            n_unknown += found.count(None)
            n_lines += len(pairs)
            yield from (one or [] for one in found)
        if n_unknown:
            LOGGER.warning("%d of %d pairs have no links: the model reads other words than theirs", n_unknown, n_lines)

    return links()


def each_pair(source: Path, translation: Path) -> Iterator[tuple[str, str]]:
    """The pairs of two files. Raises DataError where one has more lines than the other."""
    with open_text(source) as of_source, open_text(translation) as of_translation:
        lines = (
            each_line(stream, shown(path)) for stream, path in ((of_source, source), (of_translation, translation))
        )
        n_lines = [0, 0]
        for both in zip_longest(*lines):
            n_lines = [n + (line is not None) for n, line in zip(n_lines, both, strict=True)]
            if n_lines[0] == n_lines[1]:
                yield both[0][0], both[1][0]
        if n_lines[0] != n_lines[1]:
            raise DataError(
                f"{shown(translation)}: has {n_lines[1]:,} lines, {shown(source)} {n_lines[0]:,}. Make line n of one"
                " the translation of line n of the other"
            )


def _write(links: Iterator[WordLinks], config: AlignConfig) -> None:
    n_pairs, n_aligned, n_links = 0, 0, 0
    with open_output(config.output, replace=config.overwrite) as sink:
        while some := list(islice(links, _WRITTEN)):
            write_responses(sink, map(link_line, some), config.output or STDOUT, first_line=n_pairs + 1)
            n_pairs += len(some)
            n_aligned += sum(map(bool, some))
            n_links += sum(map(len, some))
    LOGGER.info("%s links in %s of %s pairs", f"{n_links:,}", f"{n_aligned:,}", f"{n_pairs:,}")
