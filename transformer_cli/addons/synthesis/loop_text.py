"""The text of `tfm augment loop`: the real pairs, in files that both directions read, and the monolingual text."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from transformer_cli.addons.synthesis.loop_keys import LoopConfig
from transformer_cli.addons.synthesis.run_augment import BACK_TRANSLATION_TAG, other_language
from transformer_cli.addons.synthesis.shards import read_range, refuse_other_formats
from transformer_cli.config.data import DataConfig, OnBad, TokenizerConfig
from transformer_cli.data.corpus import SPLITS, ParallelText, input_files
from transformer_cli.data.hashes import file_sha256
from transformer_cli.data.lines import shown
from transformer_cli.data.normalization import canonical
from transformer_cli.data.readers import Split
from transformer_cli.data.readers.base import Pair
from transformer_cli.data.splits import HeldOut, load_splits
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.files import make_folder, remove_leftovers, writing_whole
from transformer_cli.logs import LOGGER
from transformer_cli.text_io import check_input


@dataclass(frozen=True)
class LoopDirection:
    """A direction of the loop. `text` is the monolingual text in its target language, which becomes its new targets."""

    source: str
    target: str
    text: Path | None
    flag: str  # of `text`
    model: str | None  # of round 0, where one is named
    model_flag: str
    is_reverse: bool

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


def directions_of(config: LoopConfig) -> tuple[LoopDirection, LoopDirection]:
    """The forward and the reverse direction. Raises ConfigError and DataError for their monolingual text."""
    languages = config.data.source_lang, config.data.target_lang
    if config.source is None and config.target is None:
        raise ConfigError(
            "--source and --target: neither is given. Name text in one language or in both, as `tfm augment loop` with"
            " --source news.en --target news.fr"
        )
    source = None if config.source is None else _monolingual(config.source, "--source", *languages)
    target = None if config.target is None else _monolingual(config.target, "--target", *languages[::-1])
    return (
        LoopDirection(*languages, target, "--target", config.forward, "--forward", is_reverse=False),
        LoopDirection(*languages[::-1], source, "--source", config.reverse, "--reverse", is_reverse=True),
    )


def _monolingual(name: str, flag: str, language: str, other: str) -> Path:
    """A text in one language. Raises DataError for one that is empty, or in the other language."""
    check_input(name, f"the text of {flag}")
    path = Path(name)
    refuse_other_formats(path)
    if not any(line.strip() for line in read_range(path)):
        raise DataError(f"{flag} {shown(path)}: has no text. Put one sentence on each line")
    if what := other_language(path, language, other):
        raise DataError(
            f"{flag} {shown(path)}: {what}, and {flag} is text in {language}. Name it with the other flag, or exchange"
            " data.source_lang and data.target_lang"
        )
    return path


def hashes_of_inputs(config: DataConfig) -> dict[str, list[str]]:
    """The hashes of the files that a corpus is read from."""
    return {f"text of data.{split}": list(map(file_sha256, input_files(config, split))) for split in SPLITS}


@dataclass(frozen=True)
class RealText:
    """The real pairs in a folder: train.en and train.fr, and dev and test, held out of train where none is named."""

    folder: Path
    languages: Pair

    def file(self, split: Split, language: str) -> Path:
        return self.folder / f"{split}.{language}"

    def files(self, split: Split, direction: LoopDirection) -> list[str]:
        return [str(self.file(split, language)) for language in (direction.source, direction.target)]

    @property
    def all_files(self) -> list[Path]:
        return [self.file(split, language) for split in SPLITS for language in self.languages]

    def read(self, split: Split, direction: LoopDirection) -> ParallelText:
        """A split from the source to the target of a direction."""
        sources, targets = (
            Path(file).read_text(encoding="utf-8").split("\n")[:-1] for file in self.files(split, direction)
        )
        return ParallelText(sources, targets)

    def write(self, config: DataConfig) -> None:
        """Write the corpus of `config`, cleaned. Raises DataError, ConfigError where dev or test would be empty."""
        make_folder(self.folder)
        with TemporaryDirectory() as spool:
            splits = load_splits(config, Path(spool))
            texts: dict[Split, ParallelText | None] = {"dev": splits.dev, "test": splits.test}
            for split, text in texts.items():
                is_left_out = split in splits.held and not splits.held[split].sources
                if text is None or is_left_out or not len(text):
                    raise ConfigError(
                        f"data.{split}: not given, and data.train is too short to hold pairs out of it. Name"
                        f" data.{split}=[{split}.{config.source_lang},{split}.{config.target_lang}]"
                    )
                self._write_split(split, text.each())
            self._write_split("train", _without(splits.train.each(), splits.held))

    def _write_split(self, split: Split, pairs: Iterable[Pair]) -> None:
        source, target = (self.file(split, language) for language in self.languages)
        for file in (source, target):
            remove_leftovers(file)
        with writing_whole(source) as sources, writing_whole(target) as targets:
            for pair in pairs:
                for side, output in zip(pair, (sources, targets), strict=True):
                    output.write(f"{_on_one_line(side)}\n".encode())

    def warn_of_overlap(self, directions: Sequence[LoopDirection]) -> None:
        """Warn of monolingual lines that are references of dev or test, on which a model would train."""
        for one in directions:
            for split in ("dev", "test") if one.text is not None else ():
                assert one.text is not None
                references = set(map(canonical, self.read(split, one).targets))
                lines = (line.decode("utf-8", errors="ignore") for line in read_range(one.text))
                if n := sum(canonical(line) in references for line in lines if line.strip()):
                    LOGGER.warning(
                        "%s %s: %s of its lines are references of %s, and a model that trains on them has seen the"
                        " answers. Leave them out",
                        *(one.flag, shown(one.text), f"{n:,}", f"data.{split}"),
                    )


def _without(pairs: Iterable[Pair], held: Mapping[Split, HeldOut]) -> Iterable[Pair]:
    """The pairs neither of whose sides is held out: each is the source of one of the two directions."""
    sources = frozenset().union(*(one.sources for one in held.values()))
    targets = {canonical(target) for one in held.values() for target in one.text.targets}
    if not sources:
        return pairs
    return (pair for pair in pairs if canonical(pair[0]) not in sources and canonical(pair[1]) not in targets)


def _on_one_line(text: str) -> str:
    return " ".join(text.split("\n")) if "\n" in text else text


def data_of(config: DataConfig, text: RealText, direction: LoopDirection, pairs: Sequence[Path]) -> DataConfig:
    """The corpus of a training: the real text and, behind a tag, the synthetic `pairs`, source and target."""
    if direction.is_reverse:
        config = replace(config, bleu_tokenize=None, tokenizer=_turned(config.tokenizer))
    return replace(
        config,
        source_lang=direction.source,
        target_lang=direction.target,
        train=[*text.files("train", direction), *map(str, pairs)],
        dev=text.files("dev", direction),
        test=text.files("test", direction),
        tags=["", BACK_TRANSLATION_TAG] if pairs else [],
        dev_tags=[""] if pairs else [],
        test_tags=[""] if pairs else [],
        weights=config.weights if pairs else [],
        # These say how the text was read, before it was written as plain files.
        builtin=None,
        reader=None,
        options={},
        root=None,
        downloads=[],
        languages=[],
        columns=[],
        quoted=None,
        header=None,
        detokenize=False,
        mtdata=[],
        fold=None,
        on_bad=OnBad.error,
    )


def _turned(config: TokenizerConfig) -> TokenizerConfig:
    """The config of the vocabularies of the other direction."""
    model, size = (
        list(reversed(one)) if isinstance(one, list | tuple) else one for one in (config.model, config.vocab_size)
    )
    return replace(config, model=model, vocab_size=size)
