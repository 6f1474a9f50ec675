"""Keys of the group `data`: the corpus, its tokenizer and its cleaning."""

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from transformer_cli.config.checks import BLEU_TOKENIZERS, REQUIRED, check_bleu_tokenizer, check_file_name
from transformer_cli.config.fields import check_ranges, key
from transformer_cli.errors import ConfigError


class TokenizerKind(Enum):
    bpe = "bpe"
    unigram = "unigram"


BYTE_FALLBACK_FROM = 1000  # pieces: byte_fallback is on by default in vocabularies from this size


@dataclass
class TokenizerConfig:
    """The SentencePiece model that is trained on the training text."""

    kind: TokenizerKind = key(TokenizerKind.bpe, "Algorithm of SentencePiece.")
    vocab_size: int = key(8000, "Pieces of the vocabulary, control symbols counted.", low=8, high=1_000_000)
    joint: bool = key(True, "One vocabulary for both languages; false: one for each.")
    character_coverage: float = key(
        1.0, "Share of all characters of the text that the vocabulary covers; 0.9995 for Chinese.", low=0.9, high=1
    )
    byte_fallback: bool | None = key(
        None,
        "Spell characters outside the vocabulary as UTF-8 bytes; unset: with a vocabulary of 1,000 pieces or more.",
    )
    fold_case: bool = key(False, "Lowercase the text and normalize ½, ² and full-width forms (nfkc_cf).")
    max_sentences: int = key(2_000_000, "Lines sampled from larger corpora to train the tokenizer on.", low=1)

    def __post_init__(self) -> None:
        check_ranges(self, "data.tokenizer")

    @property
    def has_bytes(self) -> bool:
        """Whether the vocabulary has the 256 bytes, which would be too many of its pieces by default if it is small."""
        return self.vocab_size >= BYTE_FALLBACK_FROM if self.byte_fallback is None else self.byte_fallback


@dataclass
class Download:
    """A file that a corpus needs, and how it is verified."""

    url: str = REQUIRED
    size: int | None = None  # bytes, where published
    sha256: str | None = None  # of the file as downloaded, where published
    text_sha256: str | None = None  # of the unpacked text with a final newline, where known


class OnBad(Enum):
    error = "error"
    skip = "skip"


class Task(Enum):
    """What is trained on a corpus, and so what its files hold."""

    translation = "translation"  # parallel text
    classification = "classification"  # label<TAB>text
    language_model = "language_model"  # text


# The entry of the model registry for each task.
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
    In `train`, two files or a table are a corpus: `weights` and `temperature` set how often each is used.
    """

    name: str = key("files", "What the cache and the run directory call this corpus.")
    task: Task = key(Task.translation, "What is trained on this corpus, and so what its files hold.")
    source_lang: str = key(REQUIRED, "Language code of the source side, as en.")
    target_lang: str = key(REQUIRED, "Language code of the target side, as de.")
    languages: list[str] = key(
        [],
        "Languages of the first and the second file (or column); source_lang and target_lang then choose the direction."
        " Unset: the first is the source.",
    )
    columns: list[int] = key(
        [], "Columns of a table, from 0: source and target, or label and text. Unset: the first two.", low=0, high=999
    )
    reader: str | None = key(
        None, "Entry of the reader registry for the format of the files; unset: by the task and the files."
    )
    options: dict[str, Any] = key({}, "Settings of a reader that a plugin registers, by name.")
    builtin: str | None = key(None, "Name of a built-in corpus, generated instead of read from files.")
    root: str | None = key(None, "Folder with the files; unset: the working folder, or that of the downloads.")
    downloads: list[Download] = key([], "Files to download: url, and where known size (bytes), sha256, text_sha256.")
    train: Any = key(None, "Training text: file, table or prefix, or a list of them; see docs/data.md.")
    dev: Any = key(None, "Development set, in the same form; unset: held out from the training text.")
    test: Any = key(None, "Test set, in the same form; unset: held out from the training text.")
    weights: list[float] = key(
        [], "How often an epoch repeats each corpus of `train`; unset: once.", low=0.001, high=1000
    )
    temperature: float = key(
        1.0,
        "Sampling temperature T of several corpora: shares are weight × tokens^(1/T); high: equal shares.",
        low=0.1,
        high=1000,
    )
    subword_dropout: float = key(
        0.0, "BPE dropout (or unigram sampling's alpha): other subwords for a sentence in each epoch.", low=0, high=1
    )
    seed: int = key(
        1, "Seed of the held-out pairs and of the tokenizer's sample; apart from `seed`.", low=0, high=2**31 - 1
    )
    holdout: int = key(1000, "Pairs held out as dev, and again as test, where none is given (at most 5 % each).", low=1)
    cache: str = key("data", "Folder for downloads and encoded corpora.")
    verify: bool = key(False, "Hash large files again at each start, instead of comparing sizes and times.")
    on_bad: OnBad = key(OnBad.error, "Stop at a line that is not UTF-8 or lacks columns, or skip it.")
    max_length: int = key(
        256, "Longest side of a training pair in tokens, EOS counted; longer pairs are dropped.", low=2, high=100_000
    )
    max_ratio: float = key(
        9.0, "Length-ratio filter: training pairs with a larger ratio of longer to shorter side are dropped.", low=1
    )
    drop_duplicates: bool = key(True, "Deduplication: drop exact repetitions of a training pair.")
    bleu_tokenize: str | None = key(
        None, "sacrebleu's tokenizer for BLEU on dev and test; unset: by target_lang.", choices=BLEU_TOKENIZERS
    )
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)

    def __post_init__(self) -> None:
        for name in ("name", "source_lang", "target_lang"):
            check_file_name(f"data.{name}", getattr(self, name))
        for name in ("train", "dev", "test", "root"):
            if self.builtin is not None and getattr(self, name) is not None:
                raise ConfigError(f"data.{name}: data={self.name} is built in and reads no files. Add data=files")
        if self.builtin is not None and self.reader not in (None, "builtin"):
            raise ConfigError(
                f"data.reader={self.reader}: data={self.name} is built in and reads no files. Add data=files"
            )
        self._check_languages()
        self._check_columns()
        check_bleu_tokenizer("data.bleu_tokenize", self.bleu_tokenize)
        check_ranges(self, "data")

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
        if REQUIRED not in pair and sorted(pair) != sorted(self.languages):
            first, second = self.languages
            raise ConfigError(
                f"data.source_lang={self.source_lang} data.target_lang={self.target_lang}: data={self.name} has {first}"
                f" and {second}. Set data.source_lang={first} data.target_lang={second} or the other way round, or"
                " choose another corpus (your own: data=files)"
            )

    def _check_columns(self) -> None:
        if not self.columns:
            return
        if len(self.columns) != 2 or self.columns[0] == self.columns[1]:
            raise ConfigError(
                f"data.columns={self.columns}: must be two different ones, counted from 0. Choose two, as in [0,1]"
            )
        if self.builtin is not None or self.task is Task.language_model:
            what = "built in" if self.builtin is not None else "plain text"
            raise ConfigError(f"data.columns={self.columns}: data={self.name} is {what}, not a table. Leave it out")

    @property
    def is_swapped(self) -> bool:
        """Whether the source is the second side of the corpus, according to `languages`."""
        return bool(self.languages) and self.languages[0] != self.source_lang

    @property
    def title(self) -> str:
        """The name of this corpus in results, with its direction where that is the reverse."""
        return f"{self.name}.{self.source_lang}-{self.target_lang}" if self.is_swapped else self.name

    def in_direction(self, source_lang: str, target_lang: str) -> "DataConfig":
        """The same corpus from `source_lang` to `target_lang` if it can be read so, else as it is."""
        if sorted(self.languages) != sorted((source_lang, target_lang)):
            return self
        return replace(self, source_lang=source_lang, target_lang=target_lang)
