"""Keys of the group `data`: the corpus, its tokenizer and its cleaning."""

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from omegaconf import MISSING

from transformer_cli.config.checks import check_bleu_tokenizer, check_file_name, check_range
from transformer_cli.errors import ConfigError


class TokenizerKind(Enum):
    bpe = "bpe"
    unigram = "unigram"


BYTE_FALLBACK_FROM = 1000  # pieces of a vocabulary for which byte_fallback is on unless it is set


@dataclass
class TokenizerConfig:
    """The SentencePiece model that is trained on the training text."""

    kind: TokenizerKind = TokenizerKind.bpe
    vocab_size: int = 8000
    joint: bool = True  # one vocabulary for both languages; else one each
    character_coverage: float = 1.0
    byte_fallback: bool | None = (
        None  # spell characters outside the vocabulary as UTF-8 bytes; unset: from 1,000 pieces
    )
    fold_case: bool = False  # reads capitals as small letters, and ½, ² or full-width forms as plain ones (nfkc_cf)
    max_sentences: int = 2_000_000  # a seeded sample of this many lines is enough to train on

    def __post_init__(self) -> None:
        check_range("data.tokenizer.vocab_size", self.vocab_size, 8, 1_000_000)
        check_range("data.tokenizer.character_coverage", self.character_coverage, 0.9, 1)
        check_range("data.tokenizer.max_sentences", self.max_sentences, 1)

    @property
    def has_bytes(self) -> bool:
        """Whether the vocabulary has the 256 bytes: too many of its pieces if it is small and nothing was chosen."""
        return self.vocab_size >= BYTE_FALLBACK_FROM if self.byte_fallback is None else self.byte_fallback


@dataclass
class Download:
    """A file that a corpus needs, and how to know that it is the right one."""

    url: str = MISSING
    size: int | None = None  # bytes, where published
    sha256: str | None = None  # of the file as downloaded, where published
    text_sha256: str | None = None  # of the unpacked text with a final newline, where known


class OnBad(Enum):
    error = "error"
    skip = "skip"


class Task(Enum):
    """What is learnt from a corpus, and so what its files hold."""

    translation = "translation"  # parallel text
    classification = "classification"  # label<TAB>text
    language_model = "language_model"  # text


# The entry of the model registry that each is learnt by.
MODEL_OF = {
    Task.translation: "transformer",
    Task.classification: "classifier",
    Task.language_model: "decoder",
}


@dataclass
class DataConfig:
    """A corpus: where its text is, how it is cleaned and encoded.

    With task=classification `train`, `dev` and `test` are tables of label<TAB>text, or lists of several; with
    task=language_model they are text files, or lists of them. Else each names parallel text as
      a list of files, source and target in turn:        [news.en.gz, news.de.gz, talks.en, talks.de]
      a table, source<TAB>target (or see `columns`):     corpus.txt; among other files it must be called .tsv or .tsv.gz
      a prefix to which the languages are added:         corpus  (corpus.en and corpus.de, or with .gz)
    `archive.tgz::path/inside` names a member of an archive, which is read without unpacking it.
    In `train`, two files or a table are a corpus: `weights` and `temperature` say how often each is seen.
    """

    name: str = "files"  # what the cache and the run directory call this corpus
    task: Task = Task.translation
    source_lang: str = MISSING
    target_lang: str = MISSING
    # Those of the first and the second file of each two (or column of a table): source_lang and target_lang may then be
    # these, in either order, and the sides follow them. Unset: the first is the source, whatever language it is in.
    languages: list[str] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)  # of a table, from 0: source and target (or label and text)
    reader: str | None = None  # format of the files, by its name in the registry; unset: by the task and the files
    options: Any = None  # of that reader, as in {source: en}
    builtin: str | None = None  # a generator of our own instead of files
    root: str | None = None  # folder with the files; unset: the working folder, or what was downloaded
    downloads: list[Download] = field(default_factory=list)
    train: Any = None
    dev: Any = None  # unset: held out from the training text
    test: Any = None
    weights: list[float] = field(default_factory=list)  # times an epoch goes through each corpus of `train`; none: once
    temperature: float = 1.0  # the corpora's shares are as weight × tokens^(1 / temperature); high: equal shares
    subword_dropout: float = 0.0  # training sentences in other pieces each epoch: merges left out; unigram: the alpha
    seed: int = 1  # of what is held out and of the tokenizer's sample: runs with another `seed` share their data
    holdout: int = 1000  # pairs held out as dev, and again as test, where none is named (at most 5 % each)
    cache: str = "data"  # folder for downloads and encoded corpora
    verify: bool = False  # read and hash large files at each start, too, rather than trust that size and times tell
    on_bad: OnBad = OnBad.error  # what a line that is not UTF-8, or has too few columns, does
    max_length: int = 256  # tokens a side, the end of sentence counted; longer training pairs are dropped
    max_ratio: float = 9.0  # longer side / shorter side in tokens; training pairs of a higher ratio are dropped
    drop_duplicates: bool = True  # exact repetitions of a training pair
    bleu_tokenize: str | None = None  # sacrebleu's tokenizer for BLEU, of dev and test text; unset: by target_lang
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)

    def __post_init__(self) -> None:
        for key in ("name", "source_lang", "target_lang"):
            check_file_name(f"data.{key}", getattr(self, key))
        for key in ("train", "dev", "test", "root"):
            if self.builtin is not None and getattr(self, key) is not None:
                raise ConfigError(f"data.{key}: data={self.name} is built in and reads no files. Add data=files")
        if self.builtin is not None and self.reader not in (None, "builtin"):
            raise ConfigError(
                f"data.reader={self.reader}: data={self.name} is built in and reads no files. Add data=files"
            )
        if not isinstance(self.options, dict | None):
            raise ConfigError(f"data.options={self.options}: must be options by their names, as in {{source: en}}")
        self._check_languages()
        self._check_columns()
        for weight in self.weights:
            check_range("data.weights", weight, 0.001, 1000)
        check_bleu_tokenizer("data.bleu_tokenize", self.bleu_tokenize)
        check_range("data.temperature", self.temperature, 0.1, 1000)
        check_range("data.subword_dropout", self.subword_dropout, 0, 1)
        check_range("data.seed", self.seed, 0, 2**31 - 1)
        check_range("data.holdout", self.holdout, 1)
        check_range("data.max_length", self.max_length, 2, 100_000)
        check_range("data.max_ratio", self.max_ratio, 1)

    def _check_languages(self) -> None:
        """Raise ConfigError for a direction that the corpus does not have."""
        if not self.languages:
            return
        if self.task is not Task.translation:
            raise ConfigError(f"data.languages={self.languages}: data.task={self.task.name} has one. Leave it out")
        for language in self.languages:
            check_file_name("data.languages", language)
        if len(self.languages) != 2 or len(set(self.languages)) != 2:
            raise ConfigError(f"data.languages={self.languages}: must be two. Name that of each side, as in [en,fr]")
        pair = (self.source_lang, self.target_lang)
        if MISSING not in pair and sorted(pair) != sorted(self.languages):
            first, second = self.languages
            raise ConfigError(
                f"data.source_lang={self.source_lang} data.target_lang={self.target_lang}: data={self.name} has {first}"
                f" and {second}. Set data.source_lang={first} data.target_lang={second} or the other way round, or"
                " choose another corpus (your own: data=files)"
            )

    def _check_columns(self) -> None:
        if not self.columns:
            return
        for column in self.columns:
            check_range("data.columns", column, 0, 999)
        if len(self.columns) != 2 or self.columns[0] == self.columns[1]:
            raise ConfigError(
                f"data.columns={self.columns}: must be two different ones, counted from 0. Choose two, as in [0,1]"
            )
        if self.builtin is not None or self.task is Task.language_model:
            what = "built in" if self.builtin is not None else "plain text"
            raise ConfigError(f"data.columns={self.columns}: data={self.name} is {what}, not a table. Leave it out")

    @property
    def is_swapped(self) -> bool:
        """Whether the source is the second side of the corpus, as `languages` tells."""
        return bool(self.languages) and self.languages[0] != self.source_lang

    @property
    def title(self) -> str:
        """What results of this corpus are called: its name, and the direction where that is not the usual one."""
        return f"{self.name}.{self.source_lang}-{self.target_lang}" if self.is_swapped else self.name

    def in_direction(self, source_lang: str, target_lang: str) -> "DataConfig":
        """The same corpus from `source_lang` to `target_lang` if it can be read so, else as it is."""
        if sorted(self.languages) != sorted((source_lang, target_lang)):
            return self
        return replace(self, source_lang=source_lang, target_lang=target_lang)
