"""Keys of the commands that do not train."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from omegaconf import MISSING

from transformer_cli.config.checks import check_bleu_tokenizer, check_range, model_names, one_file, one_model_name
from transformer_cli.config.data import DataConfig
from transformer_cli.config.decode import DecodeConfig, Quantize, SearchKind
from transformer_cli.config.model import Pooling
from transformer_cli.config.train import Device
from transformer_cli.errors import ConfigError


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
        self.checkpoint = model_names(self.checkpoint)
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
        self.checkpoint = model_names(self.checkpoint)
        check_range("seed", self.seed, 0, 2**31 - 1)
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
        self.checkpoint = one_model_name(self.checkpoint)
        check_range("seed", self.seed, 0, 2**31 - 1)
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
        self.checkpoint = one_model_name(self.checkpoint)
        check_range("batch_tokens", self.batch_tokens, 1)
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
        self.checkpoint = one_model_name(self.checkpoint)
        check_range("batch_tokens", self.batch_tokens, 1)
        check_range("nearest", self.nearest, 1)
        if (self.nearest is None) != (self.among is None):
            given, lacking = ("nearest", "among") if self.among is None else ("among", "nearest")
            raise ConfigError(f"--{lacking}: not given, but --{given} is. Say how many lines, and of which file")
        if self.output is not None and self.nearest is None and not self.output.endswith((".npy", ".jsonl")):
            raise ConfigError(f"--output {self.output}: neither .npy nor .jsonl. Give it one of these endings")


# The last two are reported for the languages that papers report them for.
METRICS = ("bleu", "chrf", "ter", "tokenised_bleu", "paper_bleu")


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
    metrics: list[str] = field(default_factory=lambda: list(METRICS))  # of translations; a plugin may register others
    tokenize: str | None = None  # sacrebleu's tokenizer for BLEU; unset: data.bleu_tokenize, or by the target language
    json: bool = False
    engine: Engine | None = None  # as for `tfm translate`
    seed: int = 1
    device: Device = Device.auto
    data: DataConfig | None = None  # unset: the corpus that the model was trained on
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        self.checkpoint = model_names(self.checkpoint)
        self.hypotheses = one_file("hypotheses", self.hypotheses)
        check_range("seed", self.seed, 0, 2**31 - 1)
        check_bleu_tokenizer("tokenize", self.tokenize)
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

    def refuse_metrics(self, why: str) -> None:
        """Raise ConfigError if metrics of translations are chosen, for a model that does not translate."""
        if tuple(self.metrics) != METRICS:
            raise ConfigError(f"metrics={','.join(self.metrics)}: for translations; {why}. Leave it out")

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
        self.checkpoint = model_names(self.checkpoint)
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
        self.checkpoint = model_names(self.checkpoint)
        check_range("layer", self.layer, 1, 512)
        check_range("head", self.head, 1, 1_000_000)
        check_range("seed", self.seed, 0, 2**31 - 1)
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
        self.checkpoint = model_names(self.checkpoint)
        check_range("last", self.last, 2)
