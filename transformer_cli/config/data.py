"""Keys of the group `data`: the corpus, its tokenizer and its cleaning."""

import re
import unicodedata
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ClassVar

from transformer_cli.config.checks import (
    AUTO,
    BLEU_TOKENIZERS,
    REQUIRED,
    check_bleu_tokenizer,
    check_file_name,
    check_range,
    part_of,
)
from transformer_cli.config.fields import Affects, check_ranges, key, key_infos
from transformer_cli.config.tags import check_symbol, check_tag, distinct, languages_named, languages_of, tags_in
from transformer_cli.config.tasks import TASKS, Task
from transformer_cli.errors import ConfigError, quoted
from transformer_cli.registry import did_you_mean


class TokenizerKind(Enum):
    bpe = "bpe"
    unigram = "unigram"
    word = "word"  # whole words, as white space divides them; those that are not in the vocabulary are <unk>


SMALLEST_VOCABULARY = 8  # pieces
BYTE_FALLBACK_FROM = 1000  # pieces: byte_fallback is on by default in vocabularies from this size


@dataclass
class TokenizerConfig:
    """The SentencePiece model that is trained on the training text, or `model`."""

    AFFECTS: ClassVar[Affects] = "text"

    model: Any = key(
        None,
        "Your own SentencePiece model, used as it is instead of one that is trained; or a list of two, of source and"
        " target.",
        path=True,
    )
    kind: TokenizerKind = key(
        TokenizerKind.bpe,
        "Algorithm of SentencePiece; word: the most frequent words, as white space divides them, and <unk> for others.",
    )
    vocab_size: Any = key(
        AUTO,
        "Pieces of the vocabulary, control symbols counted; or with joint=false a list of two, of source and target."
        " auto: by the size of the text.",
        low=SMALLEST_VOCABULARY,
        high=1_000_000,
        auto=True,
        pair=True,
        chosen_once=True,
    )
    joint: bool = key(True, "One vocabulary for both languages; false: one for each.")
    character_coverage: float = key(
        1.0, "Share of all characters of the text that the vocabulary covers; 0.9995 for Chinese.", low=0.98, high=1
    )
    byte_fallback: bool | None = key(
        None,
        "Spell characters outside the vocabulary as UTF-8 bytes; unset: with a vocabulary of 1,000 pieces or more, but"
        " not of words.",
        chosen_once=True,
    )
    fold_case: bool = key(False, "Lowercase the text and normalize ½, ² and full-width forms (nfkc_cf).")
    max_sentences: int = key(2_000_000, "Lines sampled from larger corpora to train the tokenizer on.", low=1)
    user_symbols: list[str] = key([], 'Texts that are one piece each and never cut, wherever they stand, as ["<num>"].')
    split_digits: bool = key(False, "Cut every number into its digits.")
    multiple_of: int = key(1, "Round the size of the vocabulary up to a multiple of this, as 8.", low=1, high=1024)

    def __post_init__(self) -> None:
        check_ranges(self, "data.tokenizer")
        self._check_sizes()
        if self.kind is TokenizerKind.word:
            self._refuse_parts_of_words()
        self._check_model()
        self.user_symbols = list(dict.fromkeys(self.user_symbols))  # SentencePiece fails at a second one
        for symbol in self.user_symbols:
            if not symbol or symbol.split() != [symbol] or "\u2581" in symbol:
                raise ConfigError(
                    f"data.tokenizer.user_symbols={self.user_symbols}: {symbol!r} is empty or has white space in it."
                    " Write one text for each piece"
                )
            if any(unicodedata.category(character) in ("Cc", "Cs") for character in symbol):
                raise ConfigError(
                    f"data.tokenizer.user_symbols: {quoted(symbol)} has a control character, which vocabularies cannot"
                    " hold. Leave it out"
                )
            check_symbol("data.tokenizer.user_symbols", symbol)

    def _refuse_parts_of_words(self) -> None:
        """Raise ConfigError for what would cut a word, or spell it: SentencePiece ignores it."""
        for option, is_set, has in (
            ("byte_fallback=true", self.byte_fallback, "has <unk> for what is not in the vocabulary"),
            ("split_digits=true", self.split_digits, "cuts no words"),
            (f"user_symbols={self.user_symbols}", self.user_symbols, "cuts no words"),
        ):
            if is_set:
                raise ConfigError(f"data.tokenizer.{option}: data.tokenizer.kind=word {has}. Leave it out")

    def _check_model(self) -> None:
        """Raise ConfigError for names that are none, and for keys that only training a vocabulary follows."""
        if self.model is None:
            return
        names = self.model_files
        setting = f"data.tokenizer.model={self.model}"
        if not 1 <= len(names) <= 2 or not all(isinstance(name, str) and name for name in names):
            raise ConfigError(f"{setting}: must be a file, or two as [source.model,target.model]")
        if self.joint != (len(set(names)) == 1):
            remedy = "Name two models" if len(set(names)) == 1 else "Add data.tokenizer.joint=false"
            raise ConfigError(f"{setting} data.tokenizer.joint={str(self.joint).lower()}: do not fit. {remedy}")
        for option, is_set in (
            (f"fold_case={str(self.fold_case).lower()}", self.fold_case),
            (f"split_digits={str(self.split_digits).lower()}", self.split_digits),
            (f"user_symbols={self.user_symbols}", self.user_symbols),
        ):
            if is_set:
                raise ConfigError(f"data.tokenizer.{option}: {setting} is used as it is. Leave one of them out")

    @property
    def model_files(self) -> list[str]:
        """The files of `model`, that of the source first; none if it is not set."""
        if self.model is None:
            return []
        return list(self.model) if isinstance(self.model, list | tuple) else [self.model]

    def _check_sizes(self) -> None:
        if isinstance(self.vocab_size, list | tuple) and (self.joint or len(self.vocab_size) != 2):
            raise ConfigError(
                f"data.tokenizer.vocab_size={list(self.vocab_size)}: must be one number, or two with"
                " data.tokenizer.joint=false, of source and target. Correct it"
            )

    def of_side(self, side: int) -> "TokenizerConfig":
        """The config of the vocabulary of the source (0) or of the target (1), which has one size."""
        if not isinstance(self.vocab_size, list | tuple):
            return self
        return replace(self, vocab_size=self.vocab_size[side], joint=True)

    @property
    def is_auto(self) -> bool:
        return bool(self.vocab_size == AUTO)

    @property
    def size(self) -> int:
        """The pieces of a vocabulary of one size that is not auto: `vocab_size`, rounded up."""
        n_pieces: int = self.vocab_size
        return -(-n_pieces // self.multiple_of) * self.multiple_of

    @property
    def has_bytes(self) -> bool:
        """Whether the vocabulary has the 256 bytes, which would be too many of its pieces by default if it is small."""
        if self.byte_fallback is None:
            return self.size >= BYTE_FALLBACK_FROM and self.kind is not TokenizerKind.word
        return self.byte_fallback


# In the order in which they are applied: what is to be copied comes last, so that nothing damages it.
AUGMENTATIONS = ("merged", "split", "upper_case", "title_case", "no_final_stop", "typos", "placeholders", "noise")
WITHIN_A_LINE = ("upper_case", "title_case", "no_final_stop")  # those that may change the source alone; typos always do


@dataclass
class AugmentationConfig:
    """Augmentation: shares of the training pairs that are changed, drawn anew in each epoch.

    The kinds are those of OpusTrainer (Bogoychev et al. 2023), each drawn apart, so that a pair may have several.
    """

    AFFECTS: ClassVar[Affects] = "weights"

    merged: float = key(0.0, "Share of the pairs to which another pair is joined, on both sides.", low=0, high=1)
    split: float = key(
        0.0, "Share of the pairs of several sentences, as many on each side, of which one is used.", low=0, high=1
    )
    noise: float = key(
        0.0, "Share of the pairs replaced by words of random characters, equal on both sides.", low=0, high=1
    )
    placeholders: float = key(
        0.0, "Share of the pairs with a placeholder, URL or emoji put into both sides.", low=0, high=1
    )
    upper_case: float = key(0.0, "Share of the pairs in capitals.", low=0, high=1)
    title_case: float = key(0.0, "Share of the pairs in which each word gets a capital.", low=0, high=1)
    no_final_stop: float = key(0.0, "Share of the pairs that lose the full stop at their end.", low=0, high=1)
    typos: float = key(0.0, "Share of the pairs with typos in a tenth of the words of the source.", low=0, high=1)
    source_only: list[str] = key(
        [],
        "Kinds that change the source alone, as typos always do: " + ", ".join(WITHIN_A_LINE) + ".",
        choices=WITHIN_A_LINE,
    )

    def __post_init__(self) -> None:
        check_ranges(self, "data.augment")
        # The saved configs of some runs have `typos` there.
        chosen = [kind for kind in self.source_only if kind != "typos"]
        if unknown := [kind for kind in chosen if kind not in WITHIN_A_LINE]:
            raise ConfigError(
                f"data.augment.source_only={self.source_only}: {unknown[0]} changes both sides or is no kind."
                f" Choose among {', '.join(WITHIN_A_LINE)}"
            )
        if unused := [kind for kind in chosen if kind not in self.rates]:
            raise ConfigError(
                f"data.augment.source_only={self.source_only}: data.augment.{unused[0]} is 0, so it changes nothing."
                " Set its share, or leave it out"
            )

    @property
    def rates(self) -> dict[str, float]:
        """The rates of the kinds that are used, in the order in which they are applied."""
        every = {
            "merged": self.merged,
            "split": self.split,
            "upper_case": self.upper_case,
            "title_case": self.title_case,
            "no_final_stop": self.no_final_stop,
            "typos": self.typos,
            "placeholders": self.placeholders,
            "noise": self.noise,
        }
        assert tuple(every) == AUGMENTATIONS
        return {kind: rate for kind, rate in every.items() if rate}


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


class InlineTags(Enum):
    remove = "remove"
    keep = "keep"


@dataclass
class DataConfig:
    """A corpus: where its text is, how it is cleaned and encoded.

    With task=classification `train`, `dev` and `test` are tables of label<TAB>text, or lists of several; with
    task=token_classification they are CoNLL files, with task=question_answering SQuAD's JSON, with task=language_model
    text files, or lists of them. Else each names parallel text as
      a list of files, source and target in turn:        [news.en.gz, news.de.gz, talks.en, talks.de]
      a table, source<TAB>target (or see `columns`):     corpus.txt; among other files it must be called .tsv or .tsv.gz
      a prefix to which the languages are added:         corpus  (corpus.en and corpus.de, or with .gz)
    `archive.tgz::path/inside` names a member of an archive, which is read without unpacking it.
    In `train`, two files or a table are a corpus: `weights` and `temperature` set how often each is used.
    """

    name: str = key(
        "files", "What the cache and the run directory call this corpus.", affects="place", may_change=False
    )
    task: str = key(
        "translation",
        "Entry of the task registry, what is trained on this corpus, and so what its files hold: translation,"
        " classification, token_classification, question_answering, language_model, or one of a plugin.",
        affects="text",
    )
    source_lang: str = key(REQUIRED, "Language code of the source side, as en.", affects="text")
    target_lang: str = key(REQUIRED, "Language code of the target side, as de.", affects="text")
    languages: list[str] = key(
        [],
        "Languages of the first and the second file (or column); source_lang and target_lang then choose the direction."
        " Unset: the first is the source.",
        affects="text",
    )
    columns: list[int | str] = key(
        [],
        "Columns of a table, by number from 0 or by name, as [en,fr]: source and target, or label and text; three of"
        " label and two texts (unset: those that are called so, else the first two); of a language model the text; in"
        " CoNLL text, word and label, by number (unset: the first and the last; of CoNLL-U, 1 and 3).",
        affects="text",
    )
    quoted: bool | None = key(
        None,
        "Fields of tables stand in quotes, as csv and spreadsheets write them, and are read without; unset: where all"
        " of a table is written so.",
        affects="text",
    )
    header: bool | None = key(
        None,
        "Tables begin with a row that names the columns, which is left out; unset: if it names languages or columns.",
        affects="text",
    )
    detokenize: bool = key(
        False,
        "Undo the tokenization of Moses in all text (`&apos;`, `@-@`), so that models read and write plain text.",
        affects="text",
    )
    inline_tags: InlineTags = key(
        InlineTags.remove,
        "Inline tags of TMX and XLIFF: removed, or kept in the text as <1>, </1> and <2/>, so that a model translates"
        " text with such tags.",
        affects="text",
    )
    reader: str | None = key(
        None,
        "Entry of the reader registry for the format of the files; unset: by the task and the files.",
        affects="text",
    )
    options: dict[str, Any] = key(
        {}, "Settings of a reader that a plugin registers, by name.", affects="text", entry="reader"
    )
    builtin: str | None = key(None, "Name of a built-in corpus, whose text comes with the package.", affects="text")
    root: str | None = key(
        None, "Folder with the files; unset: the working folder, or that of the downloads.", path=True, affects="place"
    )
    downloads: list[Download] = key(
        [],
        "Files to download: url, and where known size (bytes), sha256, text_sha256.",
        affects="place",
        may_change=False,
    )
    train: Any = key(
        None, "Training text: file, table or prefix, or a list of them; see docs/data.md.", path=True, affects="text"
    )
    mtdata: list[str] = key(
        [],
        "Training corpora by their ids in the index of mtdata, as [Statmt-europarl-10-deu-eng], before those of"
        " `train`; see docs/corpora.md.",
        affects="text",
    )
    dev: Any = key(
        None, "Development set, in the same form; unset: held out from the training text.", path=True, affects="text"
    )
    test: Any = key(
        None, "Test set, in the same form; unset: held out from the training text.", path=True, affects="text"
    )
    tags: list[str] = key(
        [],
        'Tags of each corpus of `train`, as ["<2de>","<2fr>"]: put before its source lines, one token each. Several are'
        ' "<2de> <bt>", none are "".',
        affects="text",
    )
    dev_tags: list[str] = key(
        [], "Tags of each corpus of `dev`; needed with `tags`, if `dev` names files.", affects="text"
    )
    test_tags: list[str] = key(
        [], "Tags of each corpus of `test`; needed with `tags`, if `test` names files.", affects="text"
    )
    line_tags: list[str] = key([], "Further tags, which source lines of the files begin with already.", affects="text")
    weights: list[float] = key(
        [], "How often an epoch repeats each corpus of `train`; unset: once.", low=0.001, high=1000, affects="weights"
    )
    temperature: float = key(
        1.0,
        "Sampling temperature T of several corpora: shares are weight × tokens^(1/T); high: equal shares.",
        low=0.1,
        high=1000,
        affects="weights",
    )
    bidirectional: bool = key(
        False,
        "Train on each pair in both directions, without tags: pre-training, after which init.from trains one direction"
        " (Ding et al. 2021).",
        affects="text",
    )
    context_sentences: int = key(
        0,
        "Document level: how many sentences of the document before each source line the model reads with it. A blank"
        " line ends a document; see docs/document_level.md.",
        low=0,
        high=20,
        affects="text",
    )
    subword_dropout: float = key(
        0.0,
        "BPE dropout (or unigram sampling's alpha): other subwords for a sentence in each epoch.",
        low=0,
        high=1,
        affects="weights",
    )
    seed: int = key(
        1,
        "Seed of the held-out pairs and of the tokenizer's sample; apart from `seed`.",
        low=0,
        high=2**31 - 1,
        affects="text",
    )
    holdout: int = key(
        1000, "Pairs held out as dev, and again as test, where none is given (at most 5 % each).", low=1, affects="text"
    )
    fold: str | None = key(
        None,
        "Cross-validation: the test set is fold I of N of the training text, as 2/5, and the rest is trained on; unset:"
        " no folds. See docs/sweeps.md.",
        affects="text",
    )
    cache: str = key("data", "Folder for downloads and encoded corpora.", path=True, affects="place")
    verify: bool = key(
        False, "Hash large files again at each start, instead of comparing sizes and times.", affects="place"
    )
    on_bad: OnBad = key(OnBad.error, "Stop at a line that is not UTF-8 or lacks columns, or skip it.", affects="text")
    max_length: int = key(
        256,
        "Longest side of a training pair in tokens, EOS counted; longer pairs are dropped.",
        low=2,
        high=100_000,
        affects="text",
    )
    truncate_source: bool = key(
        False,
        "Truncate longer sources to max_length, in training and in translation, instead of dropping or splitting them:"
        " for summaries. recipe=summarization sets it.",
        affects="text",
    )
    max_ratio: float = key(
        9.0,
        "Length-ratio filter: training pairs with a larger ratio of longer to shorter side are dropped.",
        low=1,
        affects="text",
    )
    drop_duplicates: bool = key(True, "Deduplication: drop exact repetitions of a training pair.", affects="text")
    clean: Any = key(
        [],
        "Filters of the training text, as [auto], [auto,-language] or [copies,length_ratio:4]; auto: those that are"
        " measured to help and cheap. Pairs are dropped or repaired, and counted; see docs/cleaning.md.",
        affects="text",
    )
    clean_models: list[str] = key(
        [],
        "Models that dual_cross_entropy of `clean` scores pairs by, one of each direction: model files, checkpoints or"
        " run directories.",
        path=True,
        affects="text",
    )
    bleu_tokenize: str | None = key(
        None,
        "sacrebleu's tokenizer for BLEU on dev and test; unset: by target_lang.",
        choices=BLEU_TOKENIZERS,
        affects="scores",
        may_change=True,
    )
    alignments: str | None = key(
        None,
        "File with the word alignment of data.train for train.guided_alignment, i-j for each link and a line for each"
        " pair; unset: the text is aligned by tfm.",
        path=True,
        affects="weights",
    )
    augment: AugmentationConfig = field(default_factory=AugmentationConfig)
    changes: list[str] = key(
        [], "Changes of the training pairs that a plugin registers, in this order.", affects="weights"
    )
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)

    @property
    def trained(self) -> Task:
        """The task that is trained on this corpus."""
        return TASKS[self.task]

    @property
    def filters(self) -> list[str]:
        """The entries of `clean` that have an effect: auto has none on what is no translation, line for line."""
        entries = [self.clean] if isinstance(self.clean, str) else list(self.clean)
        is_translated = self.trained.translates and not self.truncate_source and self.builtin is None
        return entries if is_translated else [entry for entry in entries if entry != AUTO]

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            near = did_you_mean(self.task, TASKS)
            raise ConfigError(
                f"data.task={self.task}: unknown{near} (choices: {', '.join(TASKS.names())}). Name one of them, or the"
                " plugin that brings it with --plugin"
            )
        for name in ("name", "source_lang", "target_lang"):
            check_file_name(f"data.{name}", getattr(self, name))
        for name in ("train", "dev", "test", "root"):
            if self.builtin is not None and getattr(self, name) is not None:
                raise ConfigError(f"data.{name}: data={self.name} is built in and reads no files. Add data=files")
        if self.builtin is not None and self.reader not in (None, "builtin"):
            raise ConfigError(
                f"data.reader={self.reader}: data={self.name} is built in and reads no files. Add data=files"
            )
        self._check_mtdata()
        self._check_languages()
        if self.augment.rates and not self.trained.translates:
            kind, rate = next(iter(self.augment.rates.items()))
            raise ConfigError(
                f"data.augment.{kind}={rate:g}: data.task={self.task} has no pairs of sentences. Leave it out"
            )
        for kind in ("upper_case", "title_case"):
            if self.tokenizer.fold_case and kind in self.augment.rates:
                raise ConfigError(
                    f"data.augment.{kind}={self.augment.rates[kind]:g}: data.tokenizer.fold_case=true lowercases every"
                    " line. Leave one of them out"
                )
        if self.subword_dropout and self.tokenizer.kind is TokenizerKind.word and self.tokenizer.model is None:
            raise ConfigError(
                f"data.subword_dropout={self.subword_dropout:g}: data.tokenizer.kind=word has no subwords. Leave one of"
                " them out"
            )
        self._check_fold()
        self._check_bidirectional()
        self._check_context()
        self._check_columns()
        self._check_tags()
        check_bleu_tokenizer("data.bleu_tokenize", self.bleu_tokenize)
        check_ranges(self, "data")

        self._check_clean()
        if self.detokenize and not self.trained.translates:
            raise ConfigError(f"data.detokenize=true: data.task={self.task} has no translations. Leave it out")
        if self.truncate_source and not self.trained.translates:
            raise ConfigError(f"data.truncate_source=true: data.task={self.task} has no targets. Leave it out")

    def _check_clean(self) -> None:
        """Raise ConfigError for what names no filters; which there are, the preparation knows."""
        entries = [self.clean] if isinstance(self.clean, str) else self.clean
        if not isinstance(entries, list | tuple) or not all(isinstance(entry, str) and entry for entry in entries):
            raise ConfigError(
                f"data.clean={self.clean}: must be a list of filters, as [auto] or [copies,length_ratio:4]"
            )
        if self.filters and (not self.trained.translates or self.builtin is not None):
            what = "is built in" if self.builtin is not None else f"is of data.task={self.task}"
            raise ConfigError(f"data.clean={self.clean}: data={self.name} {what}, and the filters are for translations")

    def _check_fold(self) -> None:
        """Raise ConfigError for what is no fold, or for a test set beside it."""
        if self.fold is None:
            return
        if (part_of(self.fold) or (1, 1))[1] < 2:
            raise ConfigError(
                f"data.fold={self.fold}: must be I/N with I from 1 to N, and N at least 2, as 2/5. Correct it; all"
                " folds in turn are `tfm train -m data.fold=1/5,2/5,3/5,4/5,5/5`"
            )
        if self.test is not None:
            raise ConfigError(
                f"data.fold={self.fold}: the fold is the test set, and data.test={self.test} is another. Leave one of"
                " them out; data.test=null where a file names it"
            )

    def _check_languages(self) -> None:
        """Raise ConfigError for a direction that the corpus does not have."""
        if not self.languages:
            return
        if not self.trained.translates:
            raise ConfigError(f"data.languages={self.languages}: data.task={self.task} has one. Leave it out")
        for language in self.languages:
            check_file_name("data.languages", language)
        if len(self.languages) != 2:
            raise ConfigError(f"data.languages={self.languages}: must be two. Name that of each side, as in [en,fr]")
        pair = (self.source_lang, self.target_lang)
        if REQUIRED not in pair and sorted(pair) != sorted(self.languages):
            first, second = self.languages
            raise ConfigError(
                f"data.source_lang={self.source_lang} data.target_lang={self.target_lang}: data={self.name} has {first}"
                f" and {second}. Set data.source_lang={first} data.target_lang={second} or the other way round, or"
                " choose another corpus (your own: data=files)"
            )

    def _check_bidirectional(self) -> None:
        """Raise ConfigError for what the other direction of a pair has not."""
        if not self.bidirectional:
            return
        for setting, is_set in (
            (f"data.task={self.task}", not self.trained.translates),
            ("data.tokenizer.joint=false", not self.tokenizer.joint),
            (f"data.tags={self.tags}", bool(self.all_tags)),
            (f"data.weights={self.weights}", bool(self.weights)),
            (f"data.temperature={self.temperature:g}", self.temperature != 1),
            ("data.truncate_source=true", self.truncate_source),  # which would end targets in mid-sentence, too
        ):
            if is_set:
                raise ConfigError(f"data.bidirectional=true: does not go with {setting}. Leave one of them out")

    def _check_context(self) -> None:
        """Raise ConfigError for what has no document, or would tear or lose the context of a line."""
        if not self.context_sentences:
            return
        augmented = next(iter(self.augment.rates), "")
        for setting, is_set in (
            (f"data.task={self.task}", not self.trained.translates),
            ("data.bidirectional=true", self.bidirectional),
            ("data.truncate_source=true", self.truncate_source),
            (f"data.augment.{augmented}", bool(augmented)),
            ("data.tokenizer.kind=word", self.tokenizer.kind is TokenizerKind.word and self.tokenizer.model is None),
        ):
            if is_set:
                raise ConfigError(
                    f"data.context_sentences={self.context_sentences}: does not go with {setting}. Leave one of them"
                    " out"
                )

    def _check_mtdata(self) -> None:
        """Raise ConfigError for an id that stands twice."""
        if len(set(self.mtdata)) < len(self.mtdata):
            raise ConfigError(
                f"data.mtdata={self.mtdata}: names a corpus twice. Use data.weights to see one more often"
            )

    def _check_columns(self) -> None:
        # The command line and YAML files give them as they are written.
        is_number = re.compile(r"[+-]?[0-9]+").fullmatch
        self.columns = [int(column) if is_number(str(column)) else column for column in self.columns]
        if not self.columns:
            return
        may_be_three = self.trained.labels_lines
        if not self.trained.has_source:
            if len(self.columns) != 1:
                raise ConfigError(
                    f"data.columns={self.columns}: must be one, of the text. Choose one, as in data.columns=[text]"
                )
        elif len(self.columns) not in ((2, 3) if may_be_three else (2,)) or len(set(self.columns)) < len(self.columns):
            how_many, example = ("two or three", "[0,1] or [0,1,2]") if may_be_three else ("two", "[0,1]")
            raise ConfigError(
                f"data.columns={self.columns}: must be {how_many} different ones, counted from 0. Choose {how_many}, as"
                f" in {example}"
            )
        for column in self.columns:
            self._check_column(column)
        if self.has_column_names and self.header is False:
            raise ConfigError(
                f"data.columns={self.columns} data.header=false: names of columns stand in a header. Leave one out"
            )
        if self.builtin is not None:
            raise ConfigError(f"data.columns={self.columns}: data={self.name} is built in, not a table. Leave it out")

    def _check_column(self, column: int | str) -> None:
        """Raise ConfigError for what is neither a number nor a name."""
        if isinstance(column, int):
            check_range("data.columns", column, 0, 999, among=self.columns)
        elif not str(column).strip():
            raise ConfigError(f"data.columns={self.columns}: {column!r} is neither a number nor a name. Correct it")
        elif self.trained.has_words:
            raise ConfigError(f"data.columns={self.columns}: columns of CoNLL files have no names. Give their numbers")

    def _check_tags(self) -> None:
        """Raise ConfigError for what is no tag, for one that training does not have, or where one is needed."""
        for name in ("tags", "dev_tags", "test_tags", "line_tags"):
            entries = getattr(self, name)
            for tag in distinct(entries):
                check_tag(f"data.{name}", tag)
            if entries and not self.trained.translates:
                raise ConfigError(f"data.{name}={entries}: data.task={self.task} has none. Leave it out")
        for split in ("dev", "test"):
            entries = self.tags_of(split)
            if unseen := [tag for tag in distinct(entries) if tag not in self.all_tags]:
                raise ConfigError(
                    f"data.{split}_tags={entries}: no corpus of data.tags has {unseen[0]}. Use tags of data.tags"
                )
            if entries and getattr(self, split) is None and self.builtin is None:
                raise ConfigError(
                    f"data.{split}_tags={entries}: data.{split} names no files, and what is held out of data.train has"
                    " its tags. Leave it out"
                )
        if both := [symbol for symbol in self.tokenizer.user_symbols if symbol in self.all_tags]:
            raise ConfigError(
                f"data.tokenizer.user_symbols={self.tokenizer.user_symbols}: {both[0]} is a tag already. Leave it out"
            )
        self._check_target_languages()

    def _check_target_languages(self) -> None:
        """Raise ConfigError unless the tags of each corpus name one of several target languages."""
        targets = languages_of(self.target_lang)
        if self.target_lang == REQUIRED or len(targets) == 1:
            return
        key = f"data.target_lang={self.target_lang}"
        if "" in targets or len(set(targets)) < len(targets):
            raise ConfigError(f"{key}: must be different languages, joined by +. Name them as de+fr")
        if not self.all_tags:
            return  # a model's file says what its languages are without tags; reading a corpus refuses it
        for name, split in (("tags", "train"), ("dev_tags", "dev"), ("test_tags", "test")):
            for number, entry in enumerate(self.tags_of(split), 1):
                named = languages_named(tags_in(entry), targets)
                if len(named) != 1 and not (self.line_tags and not entry):
                    raise ConfigError(
                        f"data.{name}: {entry!r}, of corpus {number}, names {' and '.join(named) or 'none'} of the"
                        f" languages of {key}. Name the one of the corpus, as <2{targets[0]}>"
                    )
        if missing := set(targets).difference(*(languages_named([tag], targets) for tag in self.all_tags)):
            raise ConfigError(f"{key}: no corpus has a tag for {min(missing)}. Add it to data.tags, or leave it out")

    def tags_of(self, split: str) -> list[str]:
        """The entries of train, dev or test."""
        return {"train": self.tags, "dev": self.dev_tags, "test": self.test_tags}[split]

    @property
    def has_own_test(self) -> bool:
        """Whether the corpus has a test set apart from its training text, which is scored."""
        return self.test is not None or (self.builtin is not None and self.fold is None)

    @property
    def test_name(self) -> str:
        """The name of the test set in results."""
        return f"{self.title}.test" if self.fold is None else f"{self.title}.fold-{self.fold.replace('/', '-of-')}"

    @property
    def all_tags(self) -> list[str]:
        """The tags that training lines may have."""
        return distinct([*self.tags, *self.line_tags])

    @property
    def has_column_names(self) -> bool:
        """Whether some of `columns` are names."""
        return any(isinstance(column, str) for column in self.columns)

    @property
    def n_texts(self) -> int:
        """Texts in a source: two, first<TAB>second, in pairs that are classified, and of question and passage."""
        return 2 if len(self.columns) == 3 or self.trained.has_spans else 1

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


# Keys that name folders of this machine, which no shared file names.
FOLDERS = tuple(name for name, info in key_infos(DataConfig).items() if info.affects == "place" and info.path)
