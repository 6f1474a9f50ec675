"""Every key of every config, with its type, its default and its legal range.

A default is written here once; the YAML files under `configs/` spell out the named choices.
Each dataclass checks itself when it is built, so no config object with an impossible value exists.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from omegaconf import MISSING

from transformer_cli.errors import ConfigError

AUTO = "auto"  # of a number that tfm shall choose: by the memory (train.tokens_per_batch), or by the corpus


def _check(key: str, value: float | None, low: float, high: float = math.inf, *, below: bool = False) -> None:
    """Refuse `value` outside [low, high], or [low, high) with `below`; None means "not set" and passes."""
    if value is None:
        return
    if not (low <= value < high if below else low <= value <= high):  # a NaN fails both
        top = f"below {high:,}" if below else f"at most {high:,}"
        wanted = f"at least {low:,}" + ("" if math.isinf(high) else f" and {top}")
        raise ConfigError(f"{key}={value}: out of range. Choose a value of {wanted}")


def _check_open(key: str, value: Any, low: int) -> None:
    """Refuse what is neither auto nor a whole number from `low` up."""
    if value == AUTO:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{key}={value}: no whole number. Give one, or auto")
    _check(key, value, low)


def _check_name(key: str, value: str, also: str = "") -> None:
    """Refuse what cannot be part of a file name."""
    if value != MISSING and not re.fullmatch(rf"\w[\w.+{also}-]*", value):
        marks = " ".join((".", "_", "+", *also, "-"))
        raise ConfigError(f"{key}={value!r}: becomes part of a file name. Use letters, digits and {marks} only")


# Those of sacrebleu that download nothing; the two with mecab need a library (pip extras ja and ko).
BLEU_TOKENIZERS = ("13a", "intl", "zh", "char", "ja-mecab", "ko-mecab", "none")


def _check_tokenizer(key: str, value: str | None) -> None:
    """Refuse what is no tokenizer for BLEU; None means "not set" and passes."""
    if value is not None and value not in BLEU_TOKENIZERS:
        raise ConfigError(f"{key}={value}: no tokenizer for BLEU. Choose {', '.join(BLEU_TOKENIZERS)}, or leave it out")


def _model_names(value: Any) -> str | list[str] | None:
    """`checkpoint`: one name or a list of several. A folder may be called 2026."""
    names = [str(name) if type(name) is int else name for name in (value if isinstance(value, list) else [value])]
    if value is not None and not (names and all(isinstance(name, str) for name in names)):
        raise ConfigError(f"checkpoint={value}: no name of a model. Give a path, or several as [a,b]")
    return names[0] if len(names) == 1 else names


def _one_model_name(value: Any) -> str | None:
    """`checkpoint` of a command that asks one model."""
    names = _model_names(value)
    if isinstance(names, list):
        raise ConfigError(f"checkpoint={value}: several models, where one is asked. Name one")
    return names


def _one_file(key: str, value: Any) -> str | None:
    """A name that a flag may repeat: the last would win in silence."""
    if isinstance(value, list) and len(value) != 1:
        raise ConfigError(f"--{key}: names {len(value)} files, and one is read at a time. Name one")
    name = value[0] if isinstance(value, list) else value
    return None if name is None else str(name)


class Norm(Enum):
    pre = "pre"  # normalise before each sub-layer: deep stacks train without warm-up
    post = "post"  # normalise after the residual sum, as in the paper


class NormKind(Enum):
    layer = "layer"
    rms = "rms"


class Activation(Enum):
    relu = "relu"
    gelu = "gelu"
    silu = "silu"
    swiglu = "swiglu"


class Positions(Enum):
    sinusoidal = "sinusoidal"  # sine and cosine interleaved, as printed in the paper
    sinusoidal_concat = "sinusoidal_concat"  # all sines, then all cosines: tensor2tensor's arrangement
    learned = "learned"
    rotary = "rotary"


class Pooling(Enum):
    first = "first"  # the state of the first token, which is BOS
    mean = "mean"  # of all tokens


class Tying(Enum):
    three_way = "three_way"  # source embedding = target embedding = output projection (section 3.4)
    decoder = "decoder"  # target embedding = output projection
    none = "none"


@dataclass
class ModelConfig:
    """Sizes and variants of a model; the defaults are `base` of Vaswani et al. 2017, table 3.

    A classifier has no decoder and a language model no encoder, whatever n_decoder_layers and n_encoder_layers say.
    """

    name: str = "transformer"  # entry of the model registry: transformer, classifier or decoder
    preset: str = "custom"  # what the run directory calls this model
    n_encoder_layers: int = 6
    n_decoder_layers: int = 6
    d_model: int = 512
    n_heads: int = 8
    d_k: int | None = None  # width of a head's queries and keys; d_model / n_heads when unset
    d_v: int | None = None  # width of a head's values; d_model / n_heads when unset
    d_ff: int = 2048
    dropout: float = 0.1  # on each sub-layer's output and on the embeddings (section 5.4)
    attention_dropout: float = 0.0  # on the attention weights
    activation_dropout: float = 0.0  # inside the feed-forward layer
    norm: Norm = Norm.post
    norm_kind: NormKind = NormKind.layer
    activation: Activation = Activation.relu
    positions: Positions = Positions.sinusoidal
    max_positions: int = 1024  # rows of the table when positions=learned; the others have no limit
    tie_embeddings: Tying = Tying.three_way
    scale_embeddings: bool = True  # multiply embeddings by sqrt(d_model) (section 3.4)
    bias: bool = True  # on the projections of attention and of the feed-forward layer
    pooling: Pooling = Pooling.first  # classifier only: what of a sentence its class is told from

    def __post_init__(self) -> None:
        _check_name("model.preset", self.preset)
        for key in ("n_encoder_layers", "n_decoder_layers"):
            _check(f"model.{key}", getattr(self, key), 1, 512)
        for key in ("d_model", "n_heads", "d_k", "d_v", "d_ff", "max_positions"):
            _check(f"model.{key}", getattr(self, key), 1, 1_000_000)
        for key in ("dropout", "attention_dropout", "activation_dropout"):
            _check(f"model.{key}", getattr(self, key), 0, 1, below=True)
        if self.d_model % 2 and self.positions in (Positions.sinusoidal, Positions.sinusoidal_concat):
            raise ConfigError(
                f"model.d_model={self.d_model}: odd, but model.positions={self.positions.name} pairs columns."
                f" Choose {self.d_model - 1} or {self.d_model + 1}"
            )
        if (self.d_k is None or self.d_v is None) and self.d_model % self.n_heads:
            near = sorted((n for n in range(1, self.d_model + 1) if self.d_model % n == 0), key=self._distance)[:2]
            raise ConfigError(
                f"model.n_heads={self.n_heads}: does not divide model.d_model={self.d_model}."
                f" Choose model.n_heads={' or '.join(str(n) for n in sorted(near))}, or set model.d_k and model.d_v"
            )
        if self.positions is Positions.rotary and self.key_width % 2:
            raise ConfigError(
                f"model.d_k={self.key_width}: odd, but model.positions=rotary turns pairs."
                f" Choose model.d_k={self.key_width + 1}"
            )

    def _distance(self, n_heads: int) -> int:
        return abs(n_heads - self.n_heads)

    @property
    def key_width(self) -> int:
        return self.d_k if self.d_k is not None else self.d_model // self.n_heads

    @property
    def value_width(self) -> int:
        return self.d_v if self.d_v is not None else self.d_model // self.n_heads


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
        _check("data.tokenizer.vocab_size", self.vocab_size, 8, 1_000_000)
        _check("data.tokenizer.character_coverage", self.character_coverage, 0.9, 1)
        _check("data.tokenizer.max_sentences", self.max_sentences, 1)

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
    max_ratio: float = 9.0  # longer side / shorter side in tokens; more uneven training pairs are dropped
    drop_duplicates: bool = True  # exact repetitions of a training pair
    bleu_tokenize: str | None = None  # sacrebleu's tokenizer for BLEU, of dev and test text; unset: by target_lang
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)

    def __post_init__(self) -> None:
        for key in ("name", "source_lang", "target_lang"):
            _check_name(f"data.{key}", getattr(self, key))
        for key in ("train", "dev", "test", "root"):
            if self.builtin is not None and getattr(self, key) is not None:
                raise ConfigError(f"data.{key}: data={self.name} is built in and reads no files. Add data=files")
        self._check_languages()
        self._check_columns()
        for weight in self.weights:
            _check("data.weights", weight, 0.001, 1000)
        _check_tokenizer("data.bleu_tokenize", self.bleu_tokenize)
        _check("data.temperature", self.temperature, 0.1, 1000)
        _check("data.subword_dropout", self.subword_dropout, 0, 1)
        _check("data.seed", self.seed, 0, 2**31 - 1)
        _check("data.holdout", self.holdout, 1)
        _check("data.max_length", self.max_length, 2, 100_000)
        _check("data.max_ratio", self.max_ratio, 1)

    def _check_languages(self) -> None:
        """Raise ConfigError for a direction that the corpus does not have."""
        if not self.languages:
            return
        if self.task is not Task.translation:
            raise ConfigError(f"data.languages={self.languages}: data.task={self.task.name} has one. Leave it out")
        for language in self.languages:
            _check_name("data.languages", language)
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
            _check("data.columns", column, 0, 999)
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


LARGEST_BEAM = 1000


class SearchKind(Enum):
    greedy = "greedy"
    beam = "beam"
    sample = "sample"
    mbr = "mbr"  # of many samples the one that is most like the others


class LengthNormalization(Enum):
    gnmt = "gnmt"  # ((5 + n) / 6)^decode.length_penalty for n tokens
    average = "average"  # n
    none = "none"  # 1


class Quantize(Enum):
    none = "none"
    int8 = "int8"  # products of bytes on a CPU: the weights column by column, what meets them row by row


class LongLines(Enum):
    split = "split"  # into parts of whole sentences, translated one by one and joined again
    cut = "cut"


AUTO = "auto"  # of a key that tfm chooses a value for, where none is given


@dataclass
class DecodeConfig:
    """How a translation is searched for; the defaults are section 6.1 of the paper."""

    search: SearchKind = SearchKind.beam
    beam_size: int = 4
    length_normalization: LengthNormalization = LengthNormalization.gnmt  # what a log-probability is divided by
    length_penalty: float = 0.6  # α of gnmt (Wu et al. 2016, equation 14)
    coverage_penalty: float = 0.0  # β of the same equation: how much it costs not to look at a source token
    max_extra_length: int = 50  # a translation has at most source length + this many tokens, both with their end
    max_length: int | None = None  # and at most this many, its end counted
    min_length: int = 0  # tokens that come before the end
    no_repeat_ngram: int | None = None  # so many tokens in a row are not said twice
    n_best: int = 1
    diversity_groups: int = 1  # beam only: parts of the beam that look for different translations
    diversity_strength: float = 0.5  # what a token's log-probability loses for each hypothesis of an earlier group
    temperature: float = 1.0  # sampling only
    top_k: int | None = None  # sampling only: keep the k likeliest tokens
    top_p: float | None = None  # sampling only: keep the likeliest tokens that hold this probability
    n_samples: int = 32  # mbr only: drawn for each sentence
    max_source_length: int | None = None  # tokens of a source that is translated whole; unset: what the model has met
    long_lines: LongLines = LongLines.split  # what longer lines are, which a warning names
    split_sentences: Any = AUTO  # translate a line sentence by sentence; auto: if the model was trained on single ones
    batch_tokens: int = 4096  # source cells (rows × longest) × beam in one batch
    max_misplaced_cost: float | None = 1.5  # nats a token that a misplaced term of --terms may cost; null: any number
    quantize: Quantize = Quantize.none
    exact: bool = False  # scores equal to the last bit whatever the neighbours; CPU, one thread, any batch_tokens

    def __post_init__(self) -> None:
        _check("decode.beam_size", self.beam_size, 1, LARGEST_BEAM)
        _check("decode.length_penalty", self.length_penalty, 0, 10)
        _check("decode.max_extra_length", self.max_extra_length, 0, 100_000)
        _check("decode.coverage_penalty", self.coverage_penalty, 0, 10)
        _check("decode.max_length", self.max_length, 1, 100_000)
        _check("decode.min_length", self.min_length, 0, 100_000)
        _check("decode.no_repeat_ngram", self.no_repeat_ngram, 1, 1000)
        _check("decode.n_best", self.n_best, 1, 1000)
        _check("decode.diversity_groups", self.diversity_groups, 1, 1000)
        _check("decode.diversity_strength", self.diversity_strength, 0, 100)
        if self.temperature == 0:
            raise ConfigError("decode.temperature=0: is greedy search. Choose decode=greedy, or give 0.001 or more")
        _check("decode.temperature", self.temperature, 1e-3, 1e3)
        _check("decode.top_k", self.top_k, 1)
        _check("decode.top_p", self.top_p, 1e-6, 1)
        _check("decode.n_samples", self.n_samples, 2, 1000)
        _check("decode.max_source_length", self.max_source_length, 2, 100_000)
        if self.split_sentences != AUTO and not isinstance(self.split_sentences, bool):
            raise ConfigError(f"decode.split_sentences={self.split_sentences}: unknown. Choose auto, true or false")
        _check("decode.batch_tokens", self.batch_tokens, 1)
        _check("decode.max_misplaced_cost", self.max_misplaced_cost, 0, 1000)
        if self.exact and self.quantize is not Quantize.none:
            raise ConfigError(
                f"decode.quantize={self.quantize.name}: not proved with decode.exact=true. Leave one of them out"
            )
        if self.search is not SearchKind.beam and self.beam_size != 1:
            raise ConfigError(
                f"decode.beam_size={self.beam_size}: needs decode.search=beam, not {self.search.name}."
                " Choose decode=beam, or leave the beam out"
            )
        draws = self.search in (SearchKind.sample, SearchKind.mbr)
        if not draws and (self.top_k or self.top_p or self.temperature != 1):
            raise ConfigError(
                f"decode.search={self.search.name}: decode.temperature, decode.top_k and decode.top_p need sampling."
                " Choose decode=sample, or leave them out"
            )
        if self.search is SearchKind.mbr and self.n_best > self.n_samples:
            raise ConfigError(
                f"decode.n_best={self.n_best}: more than decode.n_samples={self.n_samples}. Raise decode.n_samples"
            )
        if self.search is SearchKind.greedy and self.n_best > 1:
            raise ConfigError(f"decode.n_best={self.n_best}: greedy search finds one. Choose decode=beam")
        if self.search is SearchKind.beam and self.n_best > self.beam_size:
            raise ConfigError(
                f"decode.n_best={self.n_best}: more than decode.beam_size={self.beam_size}."
                f" Raise decode.beam_size to {self.n_best}"
            )
        self._refuse_what_says_nothing_together()

    def _refuse_what_says_nothing_together(self) -> None:
        if self.length_normalization is not LengthNormalization.gnmt and self.length_penalty != 0.6:
            raise ConfigError(
                f"decode.length_penalty={self.length_penalty}: needs decode.length_normalization=gnmt, not"
                f" {self.length_normalization.name}. Leave one of them out"
            )
        if self.max_length is not None and self.min_length >= self.max_length:
            raise ConfigError(
                f"decode.min_length={self.min_length}: leaves no room for an end in decode.max_length="
                f"{self.max_length}. Raise decode.max_length to {self.min_length + 1}"
            )
        if self.diversity_groups > 1 and self.beam_size % self.diversity_groups:
            # Which also says that there is a beam.
            raise ConfigError(
                f"decode.diversity_groups={self.diversity_groups}: does not divide decode.beam_size={self.beam_size}."
                f" Set decode.beam_size={self.diversity_groups * -(-self.beam_size // self.diversity_groups)}"
            )
        if self.diversity_groups == 1 and self.diversity_strength != 0.5:
            raise ConfigError(
                f"decode.diversity_strength={self.diversity_strength}: does nothing in one group."
                " Set decode.diversity_groups, or leave it out"
            )


# Which key gives the height of each schedule. A test holds this to the registry of schedules.
SCHEDULE_HEIGHT = {
    "noam": "factor",
    "inverse_sqrt": "lr",
    "cosine": "lr",
    "linear": "lr",
    "wsd": "lr",
    "constant": "lr",
}


@dataclass
class ScheduleConfig:
    """The learning rate of update n, counted from 1.

    noam takes `factor` (section 5.3: factor · d_model^-0.5 · min(n^-0.5, n · warmup^-1.5)); the others take the
    peak rate `lr`, reached after `warmup_steps` (w). With N the last update that train.max_steps and
    train.max_epochs allow, linear is then lr · (N+1-n) / (N+1-w),
    cosine lr · (1 + cos(π · (n-w) / (N+1-w))) / 2, and wsd lr · (N+1-n) / (d+1) in its last d = decay · N updates:
    zero after the last update, not at it.
    """

    name: str = "noam"
    factor: float | None = None
    lr: float | None = None
    warmup_steps: Any = 4000  # updates; or auto: a tenth of the run, and more for a wide model
    decay: float | None = None  # of wsd: the part of all steps in which the rate falls

    def __post_init__(self) -> None:
        _check("schedule.factor", self.factor, 1e-6, 100)
        _check("schedule.lr", self.lr, 1e-9, 10)
        _check_open("schedule.warmup_steps", self.warmup_steps, 1)
        _check("schedule.decay", self.decay, 1e-3, 1)
        used = SCHEDULE_HEIGHT.get(self.name)
        if used is None:
            return  # the registry of schedules refuses the name, and knows the near ones
        unused = "lr" if used == "factor" else "factor"
        if getattr(self, used) is None or getattr(self, unused) is not None:
            raise ConfigError(
                f"schedule.{used if getattr(self, used) is None else unused}: schedule.name={self.name} takes"
                f" schedule.{used}, not schedule.{unused}. Set schedule.{used}=VALUE and schedule.{unused}=null"
            )
        if (self.name == "wsd") != (self.decay is not None):
            wanted = (
                "takes a part of all steps. Set schedule.decay=0.1" if self.decay is None else "has none. Leave it out"
            )
            raise ConfigError(f"schedule.decay={self.decay}: schedule.name={self.name} {wanted}")


@dataclass
class OptimizerConfig:
    """Adam's constants (section 5.3)."""

    name: str = "adam"
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-9
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if len(self.betas) != 2:
            raise ConfigError(f"optimizer.betas={list(self.betas)}: {len(self.betas)} numbers. Give two, as [0.9,0.98]")
        for beta in self.betas:
            _check("optimizer.betas", beta, 0, 1, below=True)
        self.betas = (self.betas[0], self.betas[1])  # YAML has lists only
        _check("optimizer.eps", self.eps, 0, 1)
        _check("optimizer.weight_decay", self.weight_decay, 0, 1)


class Metric(Enum):
    bleu = "bleu"  # of the dev set, by the Translator that `tfm translate` uses; chrF where BLEU cannot be computed
    accuracy = "accuracy"  # of the dev set, in percent: classification only
    nll = "nll"  # nats per target token of the dev set


class Precision(Enum):
    auto = "auto"  # bf16 on a GPU that has it, else fp16 there; fp32 on CPU
    fp32 = "fp32"
    tf32 = "tf32"  # fp32 whose matrix products round their factors to 10 bits; GPUs from Ampere on
    bf16 = "bf16"
    fp16 = "fp16"


class Sharding(Enum):
    none = "none"  # every rank holds the whole model
    full = "full"  # each holds a part of every layer, of its gradient and of the optimizer's memory


class Compile(Enum):
    auto = "auto"  # default on a GPU, none on a CPU; none too where that does not work, which is said
    none = "none"
    default = "default"
    graphs = "graphs"  # and the GPU repeats what it was told once: for small updates


class Device(Enum):
    auto = "auto"  # the first GPU when there is one
    cpu = "cpu"
    cuda = "cuda"


@dataclass
class TrainSettings:
    """The training loop. Tokens are target tokens, steps are optimizer updates; auto is what suits the corpus."""

    tokens_per_update: Any = 25_000  # whatever the hardware: section 5.1; or auto
    tokens_per_batch: Any = 8192  # of one forward pass, either side: bounds memory, moves dropout; or auto
    max_steps: Any = 100_000  # updates after which training ends; or auto: as max_epochs says, or as suits the corpus
    max_epochs: float | None = (
        None  # passes over the training pairs after which training ends, if max_steps is not first
    )
    label_smoothing: float = 0.1
    clip_norm: float | None = None  # the paper clips nothing
    max_skipped: int = 10  # updates in a row whose loss is not a number, and that are left out, before training stops
    rank_timeout: float = 600.0  # seconds that the processes of one training wait for the slowest
    log_every: Any = 100  # updates, as of the next two; or auto
    log_seconds: float = 30.0  # without a line in the log, after which one tells how far training is
    eval_every: Any = 1000
    save_every: Any = 1000
    eval_lines: int = 1000  # dev pairs translated for dev BLEU during training; the first ones
    keep_last: int = 5
    keep_best: int = 1
    average_last: int = 5  # checkpoints averaged at the end; the average ships only if it is no worse on dev
    ema: float | None = None  # decay of a moving average of the weights; it ships only if it is no worse on dev
    best_metric: Metric = Metric.bleu
    patience: int | None = None  # evaluations without a new best before training stops
    samples: int = 3  # dev translations shown in TensorBoard and the log
    precision: Precision = Precision.auto
    profile: bool = False  # trace a few updates, and tell what they spend their time on
    sharding: Sharding = Sharding.none
    recompute: bool = False  # forward passes again in the backward pass: less memory, a third more time
    compile: Compile = Compile.auto  # forward and backward pass to kernels of their own; moves dropout

    def __post_init__(self) -> None:
        for key in ("tokens_per_update", "tokens_per_batch", "max_steps", "log_every", "eval_every", "save_every"):
            _check_open(f"train.{key}", getattr(self, key), 1)
        _check("train.max_epochs", self.max_epochs, 1e-3, 1e6)
        _check("train.log_seconds", self.log_seconds, 0.1)
        for key in ("keep_last", "keep_best", "average_last", "patience", "eval_lines"):
            _check(f"train.{key}", getattr(self, key), 1)
        _check("train.samples", self.samples, 0, 100)
        _check("train.max_skipped", self.max_skipped, 1)
        _check("train.rank_timeout", self.rank_timeout, 1, 86_400)
        _check("train.label_smoothing", self.label_smoothing, 0, 1, below=True)
        _check("train.clip_norm", self.clip_norm, 1e-6)
        _check("train.ema", self.ema, 0, 1, below=True)
        if self.average_last > self.keep_last:
            raise ConfigError(
                f"train.average_last={self.average_last}: more than train.keep_last={self.keep_last}."
                f" Raise train.keep_last to {self.average_last}"
            )


@dataclass
class EncoderConfig:
    """What a classifier's encoder begins with."""

    init_from: str | None = None  # model file, checkpoint or run directory whose encoder and tokenizer are taken over


@dataclass
class TrainConfig:
    """`tfm train`."""

    name: str | None = None  # of the run directory; unset: made from the config, so the same command resumes
    runs: str = "runs"  # folder that holds the run directories
    resume: str = "auto"  # from the run directory's own checkpoints; without any, from nothing or from the one named
    force: bool = False  # go on although config or data are not those of the checkpoint; not with another vocabulary
    seed: int = 1
    device: Device = Device.auto
    model: ModelConfig = field(default_factory=ModelConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    data: DataConfig = field(default_factory=DataConfig)
    schedule: ScheduleConfig = field(default_factory=lambda: ScheduleConfig(factor=1.0))
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainSettings = field(default_factory=TrainSettings)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        _check("seed", self.seed, 0, 2**31 - 1)
        if self.name is not None:
            _check_name("name", self.name, also="=,")  # names of a sweep's runs have both
        if self.name == "latest":
            raise ConfigError("name=latest: is the link to the newest run. Choose another name")
        self._refuse_another_task()
        if self.train.sharding is Sharding.full:
            self._refuse_what_needs_the_whole_model()
        if self.train.tokens_per_update != AUTO and self.data.max_length > self.train.tokens_per_update:
            raise ConfigError(
                f"data.max_length={self.data.max_length}: more than train.tokens_per_update="
                f"{self.train.tokens_per_update}. Raise the second or lower the first"
            )
        if self.model.tie_embeddings is Tying.three_way and not self.data.tokenizer.joint:
            raise ConfigError(
                "data.tokenizer.joint=false: model.tie_embeddings=three_way needs one vocabulary for both languages."
                " Choose model.tie_embeddings=decoder, or data.tokenizer.joint=true"
            )
        longest = self.data.max_length
        if self.decode.max_source_length is not None:
            longest = max(longest, self.decode.max_source_length + self.decode.max_extra_length + 1)
        if self.model.positions is Positions.learned and longest > self.model.max_positions:
            raise ConfigError(
                f"model.max_positions={self.model.max_positions}: fewer than the {longest} tokens that"
                " data.max_length or decode.max_source_length + decode.max_extra_length + 1 allow."
                f" Raise model.max_positions to {longest}"
            )

    def _refuse_another_task(self) -> None:
        """Raise ConfigError for a model, a metric or an option that the corpus's task has no use for."""
        task = self.data.task
        if self.model.name != MODEL_OF[task] and self.model.name in MODEL_OF.values():
            raise ConfigError(
                f"model.name={self.model.name}: does not learn data.task={task.name} (data={self.data.name})."
                f" Set model.name={MODEL_OF[task]}, or choose other data"
            )
        own = {Task.translation: Metric.bleu, Task.classification: Metric.accuracy}.get(task, Metric.nll)
        if self.train.best_metric not in (own, Metric.nll):
            raise ConfigError(
                f"train.best_metric={self.train.best_metric.name}: data.task={task.name} has none."
                f" Set train.best_metric={own.name}"
            )
        if task is not Task.classification and self.encoder.init_from is not None:
            raise ConfigError(
                f"encoder.init_from={self.encoder.init_from}: for data.task=classification only, which"
                f" data={self.data.name} is not. Leave it out, or begin with resume={self.encoder.init_from}"
            )
        if task is Task.language_model and self.data.subword_dropout:
            raise ConfigError(
                f"data.subword_dropout={self.data.subword_dropout}: not for data.task=language_model. Leave it out"
            )
        if task is not Task.translation and self.decode.exact:
            raise ConfigError(f"decode.exact=true: data.task={task.name} translates nothing. Leave it out")
        if task is not Task.translation and not self.data.tokenizer.joint:
            raise ConfigError(
                f"data.tokenizer.joint=false: data.task={task.name} has text in one language. Leave it out"
            )

    def _refuse_what_needs_the_whole_model(self) -> None:
        for setting, is_set, instead in (
            (f"train.ema={self.train.ema}", self.train.ema is not None, "train.ema=null"),
            ("optimizer=muon", self.optimizer.name == "muon", "another optimizer"),
            ("train.tokens_per_batch=auto", self.train.tokens_per_batch == AUTO, "a number"),
        ):
            if is_set:
                raise ConfigError(f"{setting}: needs the whole model, which train.sharding=full divides. Set {instead}")


@dataclass
class DoctorConfig(TrainConfig):
    """`tfm doctor`: the config of the run that it looks at."""

    json: bool = False


class BenchSubject(Enum):
    machine = "machine"  # what its processor, memory and launches allow
    train = "train"  # whole updates, beside rivals
    loss = "loss"
    attention = "attention"
    data = "data"  # making batches
    start = "start"  # of `tfm train`, to its first update; with a checkpoint, of `tfm translate` to its first line
    decode = "decode"  # translating, beside other programs with the same weights
    layers = "layers"  # attention, recurrence and convolution: how time and memory grow with length and width


class Lengths(Enum):
    corpus = "corpus"  # the sentences of `data`
    wmt = "wmt"  # random sentences as long as those of WMT 14 en-de; no corpus is read


class Clock(Enum):
    wall = "wall"
    processor = "processor"  # time that this process had of the processor, all threads added: others may run beside


@dataclass
class LayersConfig:
    """`tfm bench layers`: the sizes at which layers are timed."""

    n: list[int] = field(default_factory=lambda: [128, 256, 512, 1024, 2048])  # positions of a sentence
    d: list[int] = field(default_factory=lambda: [64, 128, 256])  # width
    window: int = 32  # of restricted attention: half of it to either side
    kernel: int = 3  # positions that a convolution sees
    clock: Clock = Clock.wall
    plot: str | None = None  # .svg or .png to draw times and memory into

    def __post_init__(self) -> None:
        for key in ("n", "d"):
            sizes = getattr(self, key)
            if len(set(sizes)) < max(2, len(sizes)) or min(sizes) < 1:
                raise ConfigError(
                    f"layers.{key}={sizes}: an exponent is fitted to two sizes or more. Give different ones, from 1 up"
                )
        _check("layers.window", self.window, 1)
        _check("layers.kernel", self.kernel, 1)
        if self.kernel % 2 == 0:
            raise ConfigError(
                f"layers.kernel={self.kernel}: even, but a convolution sees as much before a position as after it."
                f" Choose {self.kernel - 1} or {self.kernel + 1}"
            )
        if self.plot is not None and not self.plot.endswith((".svg", ".png")):
            raise ConfigError(f"layers.plot={self.plot}: neither .svg nor .png. Choose a name that ends in one of them")


@dataclass
class BenchConfig(TrainConfig):
    """`tfm bench`: the config of the run that is measured, and how."""

    subject: BenchSubject = MISSING
    rounds: int = 5  # of each contestant, in turn
    n_updates: int = 1  # in a round
    lengths: Lengths = Lengths.corpus
    rivals: bool = True
    json: bool = False
    checkpoint: str | None = None  # of decode: the model; unset: random weights of `model`, and 20 tokens a sentence
    source: str | None = None  # of decode: file to translate
    reference: str | None = None  # of decode: its translation, for BLEU
    n_lines: int = 1000  # of decode: the first ones of `source`
    layers: LayersConfig = field(default_factory=LayersConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check("rounds", self.rounds, 1, 1000)
        _check("n_updates", self.n_updates, 1, 1000)
        _check("n_lines", self.n_lines, 1)
        if self.source is not None and self.checkpoint is None:
            raise ConfigError(f"source={self.source}: needs a model that can read it. Add checkpoint=PATH")
        if self.reference is not None and self.source is None:
            raise ConfigError(f"reference={self.reference}: of which text? Add source=FILE")
        if self.train.tokens_per_batch == AUTO:
            raise ConfigError("train.tokens_per_batch=auto: a benchmark tells of a size that is known. Give a number")
        if self.data.task is not Task.translation:
            raise ConfigError(f"data={self.data.name}: a benchmark translates. Choose parallel text")
        if self.train.sharding is not Sharding.none:
            raise ConfigError(
                f"train.sharding={self.train.sharding.name}: a benchmark has one process. Set train.sharding=none"
            )
        if self.subject is BenchSubject.layers and any(d % self.model.key_width for d in self.layers.d):
            width = self.model.key_width
            raise ConfigError(
                f"layers.d={self.layers.d}: not all are multiples of {width}, the width of a head. Choose multiples of"
                f" {width}, or set model.d_k"
            )


@dataclass
class PrepareConfig(TrainConfig):
    """`tfm prepare`: takes what `tfm train` does, so that the same command line serves both, and uses `data`."""

    def __post_init__(self) -> None:
        """Each part has checked itself; whether they suit each other is for `tfm train` to say."""


@dataclass
class ReplayConfig:
    """`tfm replay`."""

    incident: str = MISSING  # folder that a diverged run has left
    device: Device = Device.auto


class OutputFormat(Enum):
    text = "text"  # the translations; of several, line ||| translation ||| score, with lines from 1
    jsonl = "jsonl"  # an object a line: scores, alternatives, and what is suspicious
    moses = "moses"  # n-best lists as Moses and its tools have them, with lines from 0; for translating only


class OnIssue(Enum):
    keep = "keep"
    retry = "retry"  # translate lines with a suspicious translation again, in another way


class ExportFormat(Enum):
    ctranslate2 = "ctranslate2"
    huggingface = "huggingface"


class Quantization(Enum):
    """What CTranslate2 keeps weights in."""

    float32 = "float32"
    int8 = "int8"
    int8_float32 = "int8_float32"  # int8 is the same here, but follows the device where it computes in fewer bits
    int8_float16 = "int8_float16"
    int8_bfloat16 = "int8_bfloat16"
    int16 = "int16"
    float16 = "float16"
    bfloat16 = "bfloat16"


@dataclass
class ExportConfig:
    """`tfm export`."""

    format: ExportFormat | None = None
    checkpoint: Any = None  # model file, checkpoint or run directory; unset: the newest run
    runs: str = "runs"
    output: str | None = None  # folder, written whole or not at all
    overwrite: bool = False  # replace an earlier export
    quantization: Quantization = Quantization.float32  # format=ctranslate2 only

    def __post_init__(self) -> None:
        self.checkpoint = _model_names(self.checkpoint)
        if self.format is ExportFormat.huggingface and self.quantization is not Quantization.float32:
            raise ConfigError(
                f"--quantization {self.quantization.name}: huggingface keeps float32."
                " Leave it out, or export ctranslate2"
            )


class Engine(Enum):
    tfm = "tfm"
    ctranslate2 = "ctranslate2"  # of a folder that `tfm export ctranslate2` wrote


@dataclass
class TranslateConfig:
    """`tfm translate`."""

    checkpoint: Any = None  # model file, checkpoint or run directory; unset: the newest run; a list: an ensemble
    runs: str = "runs"
    text: str | None = None  # to translate, instead of a file or standard input
    input: str | None = None  # file; unset: standard input
    output: str | None = None  # file, written whole or not at all; unset: standard output
    overwrite: bool = False
    strict: bool = False  # stop at a line that is not UTF-8 instead of replacing its bytes
    output_format: OutputFormat = OutputFormat.text
    on_issue: OnIssue = OnIssue.keep
    prefix: str | None = None  # file: line n begins the translation of line n
    terms: str | None = None  # file: source phrase, tab, the phrase that its translation must hold
    alignments: str | None = None  # file for the words that each word comes from, as i-j
    token_scores: bool = False  # the log-probability of each token; in jsonl
    engine: Engine | None = None  # unset: ctranslate2 for a folder of `tfm export ctranslate2`, else tfm
    seed: int = 1
    device: Device = Device.auto
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        self.checkpoint = _model_names(self.checkpoint)
        _check("seed", self.seed, 0, 2**31 - 1)
        if self.text is not None and self.input is not None:
            raise ConfigError(f"--input {self.input}: and a text to translate are given. Leave one of them out")
        if self.token_scores and self.output_format is not OutputFormat.jsonl:
            raise ConfigError(
                f"token_scores=true: output_format={self.output_format.name} has no place for them."
                " Set output_format=jsonl"
            )


@dataclass
class GenerateConfig:
    """`tfm generate`."""

    prompt: str | None = None  # the beginning of a line; unset: standard input, with one a line
    checkpoint: Any = None  # model file, checkpoint or run directory of a language model; unset: the newest run
    runs: str = "runs"
    strict: bool = False  # stop at a line that is not UTF-8 instead of replacing its bytes
    seed: int = 1
    device: Device = Device.auto
    decode: DecodeConfig = field(default_factory=DecodeConfig)  # max_length: of what follows on the prompt, or 256

    def __post_init__(self) -> None:
        self.checkpoint = _one_model_name(self.checkpoint)
        _check("seed", self.seed, 0, 2**31 - 1)
        for setting, is_set in (
            ("decode.search=mbr", self.decode.search is SearchKind.mbr),
            (f"decode.coverage_penalty={self.decode.coverage_penalty}", self.decode.coverage_penalty > 0),
            ("decode.exact=true", self.decode.exact),
            (f"decode.quantize={self.decode.quantize.name}", self.decode.quantize is not Quantize.none),
        ):
            if is_set:
                raise ConfigError(f"{setting}: for translations only. Leave it out")


@dataclass
class ClassifyConfig:
    """`tfm classify`."""

    checkpoint: Any = None  # model file, checkpoint or run directory; unset: the newest run
    runs: str = "runs"
    input: str | None = None  # file; unset: standard input
    output: str | None = None  # file, written whole or not at all; unset: standard output
    overwrite: bool = False
    strict: bool = False  # stop at a line that is not UTF-8 instead of replacing its bytes
    probabilities: bool = False  # behind each label, that of every class, in the order of the classes
    output_format: OutputFormat = OutputFormat.text  # jsonl: an object a line, with the probability of every class
    batch_tokens: int = 4096  # cells (rows × longest) in one batch
    device: Device = Device.auto

    def __post_init__(self) -> None:
        self.checkpoint = _one_model_name(self.checkpoint)
        _check("batch_tokens", self.batch_tokens, 1)
        if self.output_format is OutputFormat.moses:
            raise ConfigError("output_format=moses: for translations. Choose text or jsonl")


@dataclass
class EmbedConfig:
    """`tfm embed`."""

    checkpoint: Any = None  # model file, checkpoint or run directory of anything with an encoder; unset: the newest run
    runs: str = "runs"
    input: str | None = None  # file; unset: standard input
    output: str | None = None  # NAME.npy, or NAME.jsonl; unset: JSONL on standard output
    overwrite: bool = False
    strict: bool = False  # stop at a line that is not UTF-8 instead of replacing its bytes
    pooling: Pooling = Pooling.mean
    nearest: int | None = None  # instead of vectors: so many lines of `among`, those with the largest cosine
    among: str | None = None  # file
    batch_tokens: int = 4096  # cells (rows × longest) in one batch
    device: Device = Device.auto

    def __post_init__(self) -> None:
        self.checkpoint = _one_model_name(self.checkpoint)
        _check("batch_tokens", self.batch_tokens, 1)
        _check("nearest", self.nearest, 1)
        if (self.nearest is None) != (self.among is None):
            given, lacking = ("nearest", "among") if self.among is None else ("among", "nearest")
            raise ConfigError(f"--{lacking}: not given, but --{given} is. Say how many lines, and of which file")
        if self.output is not None and self.nearest is None and not self.output.endswith((".npy", ".jsonl")):
            raise ConfigError(f"--output {self.output}: neither .npy nor .jsonl. Give it one of these endings")


@dataclass
class EvaluateConfig:
    """`tfm evaluate`."""

    checkpoint: Any = None  # as for `tfm translate`
    runs: str = "runs"
    source: str | None = None  # own test set: file to translate; for a classifier, a table of label<TAB>text
    reference: Any = None  # own test set: its reference translation, or a list of several
    hypotheses: Any = None  # input: file of translations, or labels, to be scored without a model
    save: str | None = None  # output: file for the translations, or labels; unset: beside the model
    overwrite: bool = False  # replace `save` if it exists
    tokenize: str | None = None  # sacrebleu's tokenizer for BLEU; unset: data.bleu_tokenize, or by the target language
    json: bool = False
    engine: Engine | None = None  # as for `tfm translate`
    seed: int = 1
    device: Device = Device.auto
    data: DataConfig | None = None  # unset: the corpus that the model was trained on
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        self.checkpoint = _model_names(self.checkpoint)
        self.hypotheses = _one_file("hypotheses", self.hypotheses)
        _check("seed", self.seed, 0, 2**31 - 1)
        _check_tokenizer("tokenize", self.tokenize)
        for name, value in (("source", self.source), ("reference", self.reference)):
            if value is not None and self.data is not None:
                shown = ",".join(map(str, value)) if isinstance(value, list) else value
                raise ConfigError(
                    f"{name}={shown}: and data={self.data.name} name two test sets. Leave one of them out"
                )
        if self.hypotheses is not None and self.reference is None and self.data is None:
            raise ConfigError(
                "--reference: not given, but --hypotheses is. A score needs both; or add data=NAME, whose test set has"
                " references"
            )
        if self.hypotheses is None and self.source is None and self.reference is not None:
            raise ConfigError("--source: not given, but --reference is. A score needs a text and its translation")

    def refuse_given(self, keys: Iterable[str]) -> None:
        """Raise ConfigError for a key that says how a model translates, among those given, where there is no model."""
        for key in keys:
            if self.hypotheses is not None and key.split(".")[0] in ("checkpoint", "engine", "decode", "save"):
                raise ConfigError(
                    f"{key}: for a model that translates, but --hypotheses {self.hypotheses} is an input, which is"
                    " scored as it is. Leave one of them out; --save names the file for a model's translations"
                )


@dataclass
class ScoreConfig:
    """`tfm score`."""

    checkpoint: Any = None  # as for `tfm translate`
    runs: str = "runs"
    source: str | None = None  # file; unset: standard input has lines of source, tab, translation, or of text
    translation: str | None = None  # file: line n translates line n of `source`; not for a language model
    json: bool = False
    strict: bool = False  # stop at a line that is not UTF-8 instead of replacing its bytes
    device: Device = Device.auto
    decode: DecodeConfig = field(default_factory=DecodeConfig)  # its length_penalty, batch_tokens, max_source_length

    def __post_init__(self) -> None:
        self.checkpoint = _model_names(self.checkpoint)
        if self.source is None and self.translation is not None:
            raise ConfigError("--source: not given, but --translation is. Give both files, or neither")


class AttentionKind(Enum):
    encoder = "encoder"  # the source looks at itself
    decoder = "decoder"  # the translation looks at its own past
    cross = "cross"  # the translation looks at the source


@dataclass
class AttentionConfig:
    """`tfm attention`."""

    sentence: str | None = None
    input: str | None = None  # file with a sentence a line, or a sentence, a tab and a translation of it
    translation: str | None = None  # to look at instead of the model's own
    checkpoint: Any = None  # model file, checkpoint or run directory; unset: the newest run
    runs: str = "runs"
    output: str = "attention.html"  # or .png, .svg, .json; of a file: one for each line, with its number in the name
    overwrite: bool = False
    words: bool = False  # join the pieces of a word
    link: str | None = None  # two words: tell which head looks most from the first to the second
    kind: AttentionKind | None = None  # unset: cross; png and svg only, as the next three
    layer: int | None = None  # from 1; unset: all
    head: int | None = None  # from 1; unset: all
    mean: bool = False  # over the heads of a layer
    seed: int = 1
    device: Device = Device.auto
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        self.checkpoint = _model_names(self.checkpoint)
        _check("layer", self.layer, 1, 512)
        _check("head", self.head, 1, 1_000_000)
        _check("seed", self.seed, 0, 2**31 - 1)
        if self.mean and self.head is not None:
            raise ConfigError(f"--head {self.head}: and --mean is over all heads. Leave one of them out")
        if self.decode.quantize is not Quantize.none:
            raise ConfigError(
                f"decode.quantize={self.decode.quantize.name}: translates with rounded weights, and other ones would be"
                " shown. Leave it out"
            )


@dataclass
class AverageConfig:
    """`tfm average`."""

    checkpoint: Any = None  # model files, checkpoints or run directories; unset: the newest run
    runs: str = "runs"
    last: int | None = None  # average so many of a run's checkpoints, the newest
    output: str | None = None  # file for the model, written whole or not at all
    overwrite: bool = False

    def __post_init__(self) -> None:
        self.checkpoint = _model_names(self.checkpoint)
        _check("last", self.last, 2)
