"""Keys of the commands that do not train."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from transformer_cli.config.checks import (
    AUTO,
    BLEU_TOKENIZERS,
    REQUIRED,
    check_bleu_tokenizer,
    check_file_name,
    model_names,
    one_file,
    one_model_name,
)
from transformer_cli.config.comet import CometConfig
from transformer_cli.config.data import DataConfig
from transformer_cli.config.decode import DecodeConfig, Quantize
from transformer_cli.config.fields import (
    BATCH_TOKENS,
    CHECKPOINT,
    CHECKPOINTS,
    DEVICE,
    OVERWRITE,
    PLUGINS,
    RUNS,
    SEED,
    STRICT,
    check_ranges,
    key,
)
from transformer_cli.config.model import Pooling, Positions
from transformer_cli.config.train import Device
from transformer_cli.errors import ConfigError
from transformer_cli.registry import did_you_mean


@dataclass
class ReplayConfig:
    """`tfm replay`."""

    incident: str = key(
        REQUIRED, "Folder that a diverged run has left, as runs/NAME/incidents/step-00001204.", path=True
    )
    device: Device = key(Device.auto, DEVICE)
    plugins: list[str] = key([], PLUGINS)


class OutputFormat(Enum):
    text = "text"  # the translations; of an n-best list, line ||| translation ||| score, with lines from 1
    jsonl = "jsonl"  # an object a line: scores, alternatives, quality flags
    moses = "moses"  # n-best lists as Moses and its tools write them, with lines from 0; for translating only


class DocumentFormat(Enum):
    text = "text"  # lines, each of which is translated
    html = "html"
    xml = "xml"
    markdown = "markdown"
    po = "po"  # messages of gettext: those without a translation
    srt = "srt"  # SubRip subtitles


class OnIssue(Enum):
    keep = "keep"
    retry = "retry"  # translate lines with quality flags again, in another way


class ConfigAction(Enum):
    why = "why"  # where the value of a key is from
    diff = "diff"  # in which keys two configs differ


@dataclass
class ConfigConfig:
    """`tfm config`."""

    action: ConfigAction | None = key(
        None, "why: where the value of a key is from, and what it would be otherwise; diff: the keys that differ."
    )
    words: list[str] = key(
        [],
        "why: a key, then the words of a command line, or a run; diff: two runs, model files, YAML files, or command"
        " lines in quotes.",
    )
    command: str = key("train", "Command that command lines without one, and YAML files, are for.")
    json: bool = key(False, "Print JSON.")
    config_dir: str | None = key(None, "Folder with your own YAML files, for the command lines.", path=True)
    plugins: list[str] = key([], PLUGINS)


class ExportFormat(Enum):
    """Formats of other programs; importing has the same names."""

    ctranslate2 = "ctranslate2"
    huggingface = "huggingface"
    hf = "huggingface"
    onnx = "onnx"
    argos = "argos"  # a CTranslate2 model in a package of Argos Translate
    marian = "marian"  # .npz, for Marian and what is made from its models


class Quantization(Enum):
    """Number formats of CTranslate2's weights."""

    float32 = "float32"
    int8 = "int8"
    int8_float32 = "int8_float32"  # as int8, but always with float32 activations
    int8_float16 = "int8_float16"
    int8_bfloat16 = "int8_bfloat16"
    int16 = "int16"
    float16 = "float16"
    bfloat16 = "bfloat16"


SCORES = "Output of `tfm evaluate --json`, for the model card."
LICENSE = "Licence of the model, for the model card; unset: it says that none is stated."


@dataclass
class ExportConfig:
    """`tfm export`."""

    format: ExportFormat | None = key(None, "Program that the model is written for.")
    checkpoint: Any = key(None, CHECKPOINT, path=True)
    runs: str = key("runs", RUNS, path=True)
    output: str | None = key(
        None,
        "Folder for the exported model, or for argos FILE.argosmodel; written whole or not at all.",
        path=True,
    )
    overwrite: bool = key(False, "Replace an earlier export.")
    quantization: Quantization = key(Quantization.float32, "Number format of the weights. ctranslate2 and argos only.")
    license: str | None = key(None, LICENSE)
    scores: str | None = key(None, SCORES, path=True)
    package_version: str = key("1.0", "Version of the package. argos only.")
    from_name: str | None = key(None, "Name of the source language; unset: by its code. argos only.")
    to_name: str | None = key(None, "Name of the target language; unset: by its code. argos only.")
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        self.checkpoint = model_names(self.checkpoint)
        has_ctranslate2 = self.format in (None, ExportFormat.ctranslate2, ExportFormat.argos)
        if not has_ctranslate2 and self.quantization is not Quantization.float32:
            assert self.format is not None
            raise ConfigError(
                f"--quantization {self.quantization.name}: {self.format.name} keeps float32."
                " Leave it out, or export ctranslate2"
            )
        for name, value in (("from-name", self.from_name), ("to-name", self.to_name)):
            if value is not None and self.format is not ExportFormat.argos:
                raise ConfigError(f"--{name} {value}: for the format argos only. Leave it out")
        if not re.fullmatch(r"[0-9A-Za-z]+([.+-][0-9A-Za-z]+)*", self.package_version):
            raise ConfigError(f"--package-version {self.package_version}: no version. Write one as 1.0")


@dataclass
class InspectConfig:
    """`tfm inspect`."""

    checkpoint: Any = key(None, "Model file, checkpoint, run directory, or what `tfm export` wrote.", path=True)
    runs: str = key("runs", RUNS, path=True)
    json: bool = key(False, "Print JSON.")
    card: bool = key(False, "Print the model card, as Markdown.")
    license: str | None = key(None, LICENSE)
    scores: str | None = key(None, SCORES, path=True)
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        self.checkpoint = one_model_name(self.checkpoint)
        if self.json and self.card:
            raise ConfigError("--json: and --card are two forms of the same. Leave one of them out")


class ImportFormat(Enum):
    """Other programs' models that can be read."""

    hf = "hf"  # a folder of Hugging Face transformers: Marian (OPUS-MT), Pegasus as we export it, M2M-100
    huggingface = "hf"
    marian = "marian"  # .npz, or a folder of OPUS-MT
    fairseq = "fairseq"
    opennmt = "opennmt"
    ctranslate2 = "ctranslate2"  # and an unpacked package of Argos Translate
    argos = "ctranslate2"


@dataclass
class ImportConfig:
    """`tfm import`."""

    path: str | None = key(None, "Folder or file of the model to import.", path=True)
    format: ImportFormat | None = key(None, "Format of the model; unset: recognised.")
    output: str | None = key(None, "File for the model, written whole or not at all.", path=True)
    overwrite: bool = key(False, OVERWRITE)
    source_lang: str | None = key(None, "Language that the model translates from; unset: what its files say.")
    target_lang: str | None = key(None, "Language that the model translates into; unset: what its files say.")
    vocabulary: list[str] = key(
        [], "Vocabulary file, or that of the source and of the target; unset: those beside.", path=True
    )
    segmenter: list[str] = key(
        [],
        "SentencePiece model or BPE codes, or those of the source and of the target; unset: those beside.",
        path=True,
    )
    lines: str | None = key(
        None, "File of source lines on which both programs are compared; unset: random pieces.", path=True
    )
    compare: bool = key(True, "Compare with the original program, and write nothing if it says something else.")
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        for name, files in (("vocabulary", self.vocabulary), ("segmenter", self.segmenter)):
            if len(files) > 2:
                raise ConfigError(f"--{name}: names {len(files)} files. Name one, or that of each language")
        if self.lines is not None and not self.compare:
            raise ConfigError(f"--lines {self.lines}: for a comparison, and compare=false. Leave one of them out")
        for name, language in (("source_lang", self.source_lang), ("target_lang", self.target_lang)):
            if language is not None:
                check_file_name(name, language)


class Engine(Enum):
    """What translates. Aliases of a member keep old command lines working."""

    torch = "torch"
    tfm = "torch"  # its earlier name
    ctranslate2 = "ctranslate2"  # converted on demand, or a folder of `tfm export ctranslate2`
    auto = "auto"  # ctranslate2 where it is installed and has all that is asked for, else torch


TAG = 'Tags of every line that does not begin with one itself, as <2de> or "<2de> <bt>".'
ENGINE = "torch, ctranslate2, or auto; unset: ctranslate2 for a folder of `tfm export ctranslate2`, else torch."


@dataclass
class TranslateConfig:
    """`tfm translate`."""

    checkpoint: Any = key(None, CHECKPOINTS, path=True)
    runs: str = key("runs", RUNS, path=True)
    text: str | None = key(None, "The text to translate, instead of a file or standard input.")
    input: str | None = key(None, "Input file, one text a line; unset: standard input.", path=True)
    output: str | None = key(None, "Output file, written whole or not at all; unset: standard output.", path=True)
    overwrite: bool = key(False, OVERWRITE)
    strict: bool = key(False, STRICT)
    format: DocumentFormat = key(
        DocumentFormat.text, "What the input is: lines of text, or one document, whose mark-up is kept."
    )
    output_format: OutputFormat = key(
        OutputFormat.text, "Lines of text, a JSON object for each line (jsonl), or n-best lists as Moses writes them."
    )
    on_issue: OnIssue = key(
        OnIssue.keep,
        "Keep a translation with quality flags, or translate its line again in another way (retry).",
    )
    prefix: str | None = key(
        None, "File of target prefixes: the translation of line n begins with its line n.", path=True
    )
    tag: str | None = key(None, TAG)
    terms: str | None = key(
        None, "Terminology file: source phrase, tab, the phrase that its translation must contain.", path=True
    )
    alignments: str | None = key(None, "Output file for word alignments, as i-j.", path=True)
    token_scores: bool = key(False, "Add the log-probability of each token. jsonl only.")
    explain: bool = key(False, "Show every step: the likeliest tokens, and the hypotheses of the beam.")
    reference: str | None = key(
        None,
        "File of reference translations, line by line: also show what the model predicts at each of their tokens.",
        path=True,
    )
    likeliest: int = key(5, "How many of the likeliest tokens --explain shows of each step.", low=1, high=1000)
    engine: Engine | None = key(None, ENGINE)
    seed: int = key(1, SEED, low=0, high=2**31 - 1)
    device: Device = key(Device.auto, DEVICE)
    plugins: list[str] = key([], PLUGINS)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        self.checkpoint = model_names(self.checkpoint)
        check_ranges(self)
        if self.text is not None and self.input is not None:
            raise ConfigError(f"--input {self.input}: and a text to translate are given. Leave one of them out")
        if self.token_scores and self.output_format is not OutputFormat.jsonl:
            raise ConfigError(
                f"token_scores=true: output_format={self.output_format.name} has no place for them."
                " Set output_format=jsonl"
            )
        if self.explain and self.output_format is OutputFormat.moses:
            raise ConfigError("--explain: output_format=moses has no place for it. Choose text or jsonl")
        if self.reference is not None and not self.explain:
            raise ConfigError(
                f"--reference {self.reference}: is for --explain. Add it, or evaluate with `tfm evaluate`"
            )
        if self.likeliest != 5 and not self.explain:
            raise ConfigError(f"likeliest={self.likeliest}: is for --explain. Add it, or leave this out")
        if self.format is not DocumentFormat.text:
            self._check_document()

    def _check_document(self) -> None:
        for setting, is_set in (
            (f"--prefix {self.prefix}", self.prefix is not None),
            (f"--alignments {self.alignments}", self.alignments is not None),
            (f"output_format={self.output_format.name}", self.output_format is not OutputFormat.text),
            (f"decode.n_best={self.decode.n_best}", self.decode.n_best > 1),
            ("--explain", self.explain),
        ):
            if is_set:
                raise ConfigError(
                    f"{setting}: is for lines, and format={self.format.name} is one document. Leave one of them out"
                )


@dataclass
class GenerateConfig:
    """`tfm generate`."""

    prompt: str | None = key(None, "The text to continue; unset: standard input, one prompt a line.")
    checkpoint: Any = key(None, CHECKPOINT, path=True)
    runs: str = key("runs", RUNS, path=True)
    strict: bool = key(False, STRICT)
    seed: int = key(1, SEED, low=0, high=2**31 - 1)
    device: Device = key(Device.auto, DEVICE)
    plugins: list[str] = key([], PLUGINS)
    # Its max_length counts the tokens after the prompt, and is 256 when unset.
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        self.checkpoint = one_model_name(self.checkpoint)
        check_ranges(self)
        for setting, is_set in (
            (f"decode.coverage_penalty={self.decode.coverage_penalty}", self.decode.coverage_penalty > 0),
            ("decode.batch_invariant=true", self.decode.batch_invariant),
            (f"decode.quantize={self.decode.quantize.name}", self.decode.quantize is not Quantize.none),
        ):
            if is_set:
                raise ConfigError(f"{setting}: for translations only. Leave it out")


@dataclass
class ClassifyConfig:
    """`tfm classify`."""

    checkpoint: Any = key(None, CHECKPOINT, path=True)
    runs: str = key("runs", RUNS, path=True)
    input: str | None = key(None, "Input file, one text a line; unset: standard input.", path=True)
    output: str | None = key(None, "Output file, written whole or not at all; unset: standard output.", path=True)
    overwrite: bool = key(False, OVERWRITE)
    strict: bool = key(False, STRICT)
    probabilities: bool = key(False, "Print the probability of every class after each label.")
    output_format: OutputFormat = key(
        OutputFormat.text, "Lines of text, or a JSON object for each line with all probabilities (jsonl)."
    )
    batch_tokens: Any = key(AUTO, BATCH_TOKENS, low=1, auto=True)
    device: Device = key(Device.auto, DEVICE)
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        self.checkpoint = one_model_name(self.checkpoint)
        check_ranges(self)
        if self.output_format is OutputFormat.moses:
            raise ConfigError("output_format=moses: for translations. Choose text or jsonl")


class TokenUnit(Enum):
    pieces = "pieces"  # of the tokenizer
    words = "words"  # each the mean of its pieces


class TagFormat(Enum):
    text = "text"  # a sentence a line
    conll = "conll"  # a word a line, in columns
    conllu = "conllu"  # the columns of Universal Dependencies, with comments


@dataclass
class TagConfig:
    """`tfm tag`."""

    checkpoint: Any = key(None, CHECKPOINT, path=True)
    runs: str = key("runs", RUNS, path=True)
    input: str | None = key(None, "Input file; unset: standard input.", path=True)
    output: str | None = key(None, "Output file, written whole or not at all; unset: standard output.", path=True)
    overwrite: bool = key(False, OVERWRITE)
    strict: bool = key(False, STRICT)
    format: TagFormat = key(
        TagFormat.text, "A sentence a line with spaces between words (text), or CoNLL columns (conll, conllu)."
    )
    columns: list[int] = key(
        [],
        "Columns of word and tag in conll and conllu, from 0; unset: those of a training text of this format, or"
        " the first, and the tag as one more (of conllu, 1 and 3).",
        low=0,
        high=999,
    )
    output_format: OutputFormat = key(
        OutputFormat.text,
        "Lines of tags, or a JSON object for each sentence with words, tags and probabilities (jsonl).",
    )
    batch_tokens: Any = key(AUTO, BATCH_TOKENS, low=1, auto=True)
    device: Device = key(Device.auto, DEVICE)
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        self.checkpoint = one_model_name(self.checkpoint)
        check_ranges(self)
        if self.output_format is OutputFormat.moses:
            raise ConfigError("output_format=moses: for translations. Choose text or jsonl")
        if self.format is not TagFormat.text and self.output_format is not OutputFormat.text:
            raise ConfigError(
                f"output_format=jsonl: format={self.format.name} writes the columns that it reads."
                " Leave one of them out"
            )
        if self.columns and self.format is TagFormat.text:
            raise ConfigError(f"columns={self.columns}: a line of text has none. Add format=conll")
        if self.columns and (len(self.columns) != 2 or self.columns[0] == self.columns[1]):
            raise ConfigError(
                f"columns={self.columns}: must be two different ones, counted from 0. Choose two, as in [0,1]"
            )


@dataclass
class EmbedConfig:
    """`tfm embed`."""

    checkpoint: Any = key(None, CHECKPOINT, path=True)
    runs: str = key("runs", RUNS, path=True)
    input: str | None = key(None, "Input file, one text a line; unset: standard input.", path=True)
    output: str | None = key(
        None,
        "Output file, NAME.npy (of tokens: NAME.npz) or NAME.jsonl; unset: JSONL on standard output.",
        path=True,
    )
    overwrite: bool = key(False, OVERWRITE)
    strict: bool = key(False, STRICT)
    tokens: TokenUnit | None = key(
        None,
        "A vector for each token instead of each line: pieces of the tokenizer, or words, the mean of their pieces.",
    )
    layer: str | None = key(
        None,
        "Layer of the encoder that vectors are from: 0 (what enters the first) to the last, -1, or all, or mean (of all"
        " with 0); unset: the last.",
    )
    pooling: Pooling = key(Pooling.mean, "Vector of a line: the mean of all encoder states, the first, or the maximum.")
    nearest: int | None = key(
        None, "Print this many lines of `among`, those with the largest cosine, instead of vectors.", low=1
    )
    among: str | None = key(None, "File of the lines that `nearest` searches.", path=True)
    batch_tokens: Any = key(AUTO, BATCH_TOKENS, low=1, auto=True)
    device: Device = key(Device.auto, DEVICE)
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        self.checkpoint = one_model_name(self.checkpoint)
        check_ranges(self)
        if self.pooling is Pooling.segments:
            raise ConfigError("--pooling segments: is for classifiers of pairs of texts. Choose mean, max or first")
        if (self.nearest is None) != (self.among is None):
            given, lacking = ("nearest", "among") if self.among is None else ("among", "nearest")
            raise ConfigError(f"--{lacking}: not given, but --{given} is. Say how many lines, and of which file")
        if self.layer not in (None, "all", "mean") and not re.fullmatch("-?[0-9]{1,9}", str(self.layer)):
            raise ConfigError(f"--layer {self.layer}: not a layer. Choose a number from 0, all or mean")
        if self.nearest is not None and (self.tokens is not None or self.layer == "all"):
            other = "--layer all" if self.tokens is None else f"--tokens {self.tokens.name}"
            raise ConfigError(f"{other}: several vectors of a line, but --nearest compares one. Leave one of them out")
        if self.tokens is not None and self.pooling is not Pooling.mean:
            raise ConfigError(f"--pooling {self.pooling.name}: of lines, but --tokens has none. Leave one of them out")
        endings = (".npy" if self.tokens is None else ".npz", ".jsonl")
        if self.output is not None and self.nearest is None and not self.output.endswith(endings):
            of_tokens = "" if self.tokens is None else ", which hold the vectors of tokens"
            raise ConfigError(
                f"--output {self.output}: neither {' nor '.join(endings)}{of_tokens}. Give it one of these endings"
            )


# The last two are reported for the languages that papers report them for.
METRICS = ("bleu", "chrf", "ter", "tokenised_bleu", "paper_bleu")


# Keys of `tfm evaluate` without a meaning for translations that are given.
OF_A_MODEL = ("checkpoint", "engine", "decode", "save", "tag", "robustness", "robustness_lines")
ROBUSTNESS_LINES = 500


@dataclass
class EvaluateConfig:
    """`tfm evaluate`."""

    checkpoint: Any = key(None, CHECKPOINTS, path=True)
    runs: str = key("runs", RUNS, path=True)
    source: str | None = key(
        None,
        "Own test set: file to translate; a classifier's table of label<TAB>text, a tagger's CoNLL file.",
        path=True,
    )
    reference: Any = key(None, "Own test set: reference translation, or a list of several.", path=True)
    test_set: Any = key(
        None,
        "Test sets of sacrebleu by name, as wmt14 or [wmt14,wmt15]; downloaded once. `list` prints the names.",
    )
    languages: str | None = key(None, "Direction of `test_set`, as en-de; unset: that of the model.")
    hypotheses: Any = key(
        None,
        "File of existing translations, or labels, to score without a model; of several `test_set`, one of each.",
        path=True,
    )
    save: str | None = key(None, "Output file for the translations, or labels; unset: beside the model.", path=True)
    overwrite: bool = key(False, "Replace `save` and `sentence_scores` if they exist.")
    tag: str | None = key(None, TAG)
    metrics: list[str] = key(
        [*METRICS], "Metrics of translations, in order, also spbleu, chrf++ and comet; a plugin may register others."
    )
    sentence_scores: str | None = key(
        None,
        "Output file for the scores of each line by those of `metrics` that have them, as JSONL.",
        path=True,
    )
    tokenize: str | None = key(
        None,
        "sacrebleu's tokenizer for BLEU; unset: data.bleu_tokenize, or by the target language.",
        choices=BLEU_TOKENIZERS,
    )
    robustness: bool = key(False, "Also translate perturbed source lines: capitals, typos, emoji, placeholders, ….")
    robustness_lines: int = key(ROBUSTNESS_LINES, "Source lines that are perturbed, drawn by the seed.", low=1)
    json: bool = key(False, "Print JSON.")
    engine: Engine | None = key(None, ENGINE)
    seed: int = key(1, SEED, low=0, high=2**31 - 1)
    device: Device = key(Device.auto, DEVICE)
    plugins: list[str] = key([], PLUGINS)
    data: DataConfig | None = None  # None: the corpus that the model was trained on
    comet: CometConfig = field(default_factory=CometConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        self.checkpoint = model_names(self.checkpoint)
        self.test_set = self._test_sets()
        if len(self.test_set) < 2:
            self.hypotheses = one_file("hypotheses", self.hypotheses)
        check_ranges(self)
        self.metrics = list(dict.fromkeys(self.metrics))
        if not self.metrics:
            raise ConfigError("metrics=[]: nothing to score by. Choose one or more")
        check_bleu_tokenizer("tokenize", self.tokenize)
        self._check_test_set()
        for name, value in (("source", self.source), ("reference", self.reference)):
            if value is not None and self.data is not None:
                shown = ",".join(map(str, value)) if isinstance(value, list) else value
                raise ConfigError(
                    f"{name}={shown}: and data={self.data.name} name two test sets. Leave one of them out"
                )
        if self.hypotheses is not None and self.reference is None and self.data is None and not self.test_set:
            raise ConfigError(
                "--reference: not given, but --hypotheses is. A score needs both; or add data=NAME, whose test set has"
                " references"
            )
        if self.hypotheses is None and self.source is None and self.reference is not None:
            raise ConfigError("--source: not given, but --reference is. A score needs a text and its translation")
        if self.robustness_lines != ROBUSTNESS_LINES and not self.robustness:
            raise ConfigError(f"robustness_lines={self.robustness_lines}: nothing is perturbed. Add --robustness")

    @property
    def hypothesis_files(self) -> list[str]:
        """One for each of `test_set`, or one in all; none of a model."""
        named = self.hypotheses if isinstance(self.hypotheses, list) else [self.hypotheses]
        return [str(name) for name in named if name is not None]

    def _test_sets(self) -> list[str]:
        """The names in `test_set`: a list, or with commas between them. Raises ConfigError."""
        given = [] if self.test_set is None else self.test_set
        entries = [given] if isinstance(given, str) else given
        names = [name.strip() for entry in entries for name in str(entry).split(",")]
        if not all(names):
            raise ConfigError(f"--test-set {self.test_set}: names nothing. Name a set, as wmt14; `list` prints all")
        return names

    def _check_test_set(self) -> None:
        """Raise ConfigError for what does not go together with sets by name."""
        if not self.test_set:
            if self.languages is not None:
                raise ConfigError(f"--languages {self.languages}: says what --test-set is read in. Leave it out")
            return
        flag = f"--test-set {','.join(self.test_set)}"
        corpus = None if self.data is None else f"data={self.data.name}"
        for other in (corpus, self.source and f"--source {self.source}", self.reference and "--reference"):
            if other:
                raise ConfigError(f"{flag}: and {other} name two test sets. Leave one of them out")
        n_sets, n_files = len(self.test_set), len(self.hypothesis_files)
        if n_files not in (0, n_sets):
            raise ConfigError(
                f"{flag}: {n_sets} sets, but files of --hypotheses: {n_files}. Give one of each, in order"
            )
        if n_files and self.languages is None:
            raise ConfigError(f"--languages: not given, but --hypotheses is. Say the direction of {flag}, as en-de")
        for name, file in (("save", self.save), ("sentence-scores", self.sentence_scores)):
            if file is not None and n_sets > 1:
                raise ConfigError(f"--{name} {file}: one file, but {flag} is {n_sets} sets. Leave it out, or name one")

    def refuse_metrics(self, why: str) -> None:
        """Raise ConfigError if metrics of translations are chosen, for a model that does not translate."""
        if tuple(self.metrics) != METRICS:
            raise ConfigError(f"metrics={','.join(self.metrics)}: for translations; {why}. Leave it out")
        if self.sentence_scores is not None:
            raise ConfigError(f"--sentence-scores {self.sentence_scores}: for translations; {why}. Leave it out")
        if self.test_set:
            raise ConfigError(f"--test-set {','.join(self.test_set)}: for translations; {why}. Leave it out")
        if self.robustness:
            raise ConfigError(f"--robustness: for translations; {why}. Leave it out")

    def refuse_given(self, keys: Iterable[str]) -> None:
        """Raise ConfigError for a key of the model or its search, among those given, where there is no model."""
        for name in keys:
            if self.hypotheses is not None and name.split(".")[0] in OF_A_MODEL:
                raise ConfigError(
                    f"{name}: for a model that translates, but --hypotheses {self.hypothesis_files[0]} is an input,"
                    " which is scored as it is. Leave one of them out; --save names the file for a model's translations"
                )


class AugmentMethod(Enum):
    back_translate = "back-translate"  # target text → pairs with synthetic sources
    distill = "distill"  # source text → pairs with a teacher's translations
    merge = "merge"  # the shards of either → one corpus


class Choose(Enum):
    score = "score"  # the best hypothesis of the search
    chrf = "chrf"  # of the n-best list that which is most similar to the reference
    all = "all"  # every hypothesis of the n-best list, as a pair of its own


METHODS = tuple(one.value for one in AugmentMethod)
FOR_A_MERGE = ("method", "output", "overwrite", "plugins")
MIN_SCORE = -3.0


@dataclass(frozen=True, order=True)
class Shard:
    """Part `number` of `n`, counted from 1."""

    number: int
    n: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Of `2/8`. Raises ConfigError."""
        match = re.fullmatch(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})", text)
        if match is None or int(match[1]) > int(match[2]):
            several = "; several need -m, as in `-m shard=1/2,2/2`" if "," in text else ""
            raise ConfigError(f"shard={text}: must be I/N with I from 1 to N, as 2/8{several}. Correct it")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.n}"


@dataclass
class AugmentConfig:
    """`tfm augment`."""

    method: str | None = key(None, "What is made: back-translate or distill; or merge, of shards.", choices=METHODS)
    checkpoint: Any = key(
        None,
        "Model that translates the input (of back-translate: from the target language), or a list of them for an"
        " ensemble; unset: the newest finished run.",
        path=True,
    )
    runs: str = key("runs", RUNS, path=True)
    input: str | None = key(None, "Text file, one sentence a line.", path=True)
    reference: str | None = key(None, "File whose line n translates line n of the input, for choose=chrf.", path=True)
    output: str | None = key(
        None, "Name of the corpus: NAME.SOURCE and NAME.TARGET, by the languages, and NAME.json.", path=True
    )
    overwrite: bool = key(False, "Make the corpus again if it exists.")
    shard: str = key("1/1", "Part of the input that is used, I/N: a byte range of whole lines.")
    choose: Choose = key(
        Choose.score,
        "Which of the decode.n_best translations of a line make pairs: the best by score, the most similar to the"
        " reference by sentence chrF, or all.",
    )
    max_ratio: float | None = key(
        3.0,
        "Length-ratio filter, in tokens with EOS: pairs with a larger one are dropped; null: none.",
        low=1,
        high=1000,
    )
    drop_copies: bool = key(True, "Drop translations that are copies of their line, but for a model of one language.")
    drop_loops: bool = key(True, "Drop translations that repeat themselves.")
    drop_unfinished: bool = key(True, "Drop translations that were truncated, and those of lines that were cut.")
    forward: Any = key(
        None,
        "Model from source to target, or a list of them for an ensemble, that scores each synthetic pair;"
        " back-translate only.",
        path=True,
    )
    min_score: float = key(
        MIN_SCORE,
        "Least log-probability per token that `forward` gives the line; pairs below are dropped.",
        low=-1000,
        high=0,
    )
    block_lines: int = key(
        1000, "Lines of a block, after each of which the work can be resumed.", low=1, high=1_000_000
    )
    tag: str | None = key(None, TAG)
    strict: bool = key(False, "Stop at a line that is not UTF-8, instead of dropping it.")
    engine: Engine | None = key(None, ENGINE)
    seed: int = key(1, SEED, low=0, high=2**31 - 1)
    device: Device = key(Device.auto, DEVICE)
    plugins: list[str] = key([], PLUGINS)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        self.checkpoint, self.forward = model_names(self.checkpoint), model_names(self.forward)
        if self.method is not None:
            self.method = self.method.replace("_", "-")
            if self.method not in METHODS:
                near = did_you_mean(self.method, METHODS) or f". Choose {', '.join(METHODS)}"
                raise ConfigError(f"method={self.method}: unknown{near}")
        check_ranges(self)
        Shard.parse(self.shard)
        is_distilled = self.method == AugmentMethod.distill.value
        if self.choose is Choose.chrf and (not is_distilled or self.reference is None):
            raise ConfigError("choose=chrf: compares with references. Use it with distill, and give --reference")
        if self.reference is not None and self.choose is not Choose.chrf:
            raise ConfigError(f"--reference {self.reference}: is not used. Add --choose chrf, or leave it out")
        if self.choose is not Choose.score and self.decode.n_best == 1:
            raise ConfigError(
                f"choose={self.choose.name}: needs several translations of a line. Set decode.n_best to 2 or more"
            )
        if self.choose is Choose.score and self.decode.n_best > 1:
            raise ConfigError(
                f"decode.n_best={self.decode.n_best}: all but the best are unused. Add --choose all or chrf, or leave"
                " it out"
            )
        if self.forward is not None and self.method != AugmentMethod.back_translate.value:
            raise ConfigError("--forward: scores back-translations alone. Leave it out")
        if self.forward is None and self.min_score != MIN_SCORE:
            raise ConfigError(f"min_score={self.min_score:g}: is of the model of --forward. Name one, or leave it out")

    @property
    def corpus(self) -> str:
        """What the command writes, as messages name it; no two runs of a sweep may write the same."""
        return f"{self.output} (shard={self.shard})"

    def refuse_given(self, keys: Iterable[str]) -> None:
        """Raise ConfigError for a key of making pairs, among those given, where shards are merged."""
        for name in keys:
            if self.method == AugmentMethod.merge.value and name.split(".")[0] not in FOR_A_MERGE:
                raise ConfigError(f"{name}: of pairs that are made, and merge joins finished shards. Leave it out")


@dataclass
class ScoreConfig:
    """`tfm score`."""

    checkpoint: Any = key(None, CHECKPOINTS, path=True)
    runs: str = key("runs", RUNS, path=True)
    source: str | None = key(
        None,
        "Source file; unset: standard input with source<TAB>translation on each line, or text for a language model.",
        path=True,
    )
    translation: str | None = key(
        None, "File whose line n translates line n of `source`; not for a language model.", path=True
    )
    tag: str | None = key(None, TAG)
    json: bool = key(False, "Print a JSON object for each line, with the score of each token.")
    strict: bool = key(False, STRICT)
    device: Device = key(Device.auto, DEVICE)
    plugins: list[str] = key([], PLUGINS)
    # Of which length_penalty, batch_tokens, max_source_length and precision are used.
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        self.checkpoint = model_names(self.checkpoint)
        if self.source is None and self.translation is not None:
            raise ConfigError("--source: not given, but --translation is. Give both files, or neither")


class AttentionKind(Enum):
    encoder = "encoder"  # self-attention of the source
    decoder = "decoder"  # causal self-attention of the translation
    cross = "cross"  # the translation attends to the source


@dataclass
class PositionsModel:
    """Keys of `model` on which position encodings depend, for `tfm attention --positions` without a trained model."""

    d_model: int | None = key(
        None, "Width of the embeddings; unset: that of the paper's base model. Only with --positions."
    )
    positions: Positions | None = key(
        None, "Position encoding that is drawn; unset: the paper's. Only with --positions."
    )
    first_position: int | None = key(None, "Position of the first token in the sinusoids. Only with --positions.")
    n_heads: int | None = key(None, "Attention heads, whose width rotary positions have. Only with --positions.")
    d_k: int | None = key(None, "Width of a head's queries and keys, for rotary positions. Only with --positions.")

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


# Keys that have a meaning with --positions; no sentence is translated then.
WITH_POSITIONS = ("positions", "model", "checkpoint", "runs", "output", "overwrite", "device", "plugins")


@dataclass
class AttentionConfig:
    """`tfm attention`."""

    sentence: str | None = key(None, "The sentence to translate.")
    input: str | None = key(None, "File with a sentence on each line, or sentence<TAB>translation.", path=True)
    translation: str | None = key(None, "Translation to show, instead of the model's own.")
    checkpoint: Any = key(None, CHECKPOINT, path=True)
    runs: str = key("runs", RUNS, path=True)
    positions: int | None = key(
        None,
        "Draw the encodings of this many positions instead: those of `model`, or of a trained one with --checkpoint.",
        low=1,
        high=512,
    )
    output: str | None = key(
        None,
        "Output file: .html, .png, .svg or .json; of a file, one for each line, with its number in the name; unset:"
        " attention.html, or positions.html with --positions.",
        path=True,
    )
    overwrite: bool = key(False, OVERWRITE)
    words: bool = key(False, "Merge the subwords of each word.")
    link: str | None = key(None, 'Two words, as "it chair": print the head with the largest weight between them.')
    kind: AttentionKind | None = key(None, "Attention that is drawn; unset: cross. .png and .svg only.")
    layer: int | None = key(None, "Layer that is drawn, from 1; unset: all. .png and .svg only.", low=1, high=512)
    head: int | None = key(None, "Head that is drawn, from 1; unset: all. .png and .svg only.", low=1, high=1_000_000)
    mean: bool = key(False, "Draw the mean of the heads of each layer. .png and .svg only.")
    seed: int = key(1, SEED, low=0, high=2**31 - 1)
    device: Device = key(Device.auto, DEVICE)
    plugins: list[str] = key([], PLUGINS)
    model: PositionsModel = field(default_factory=PositionsModel)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        self.checkpoint = model_names(self.checkpoint)
        check_ranges(self)
        for name, value in self.model.given().items():
            text = f"model.{name}={value.name if isinstance(value, Enum) else value}"
            if self.positions is None:
                raise ConfigError(f"{text}: only with --positions; a sentence needs a trained model. Leave it out")
            if self.checkpoint is not None:
                raise ConfigError(f"{text}: and --checkpoint names a model with its own. Leave one of them out")
        if self.mean and self.head is not None:
            raise ConfigError(f"--head {self.head}: and --mean is over all heads. Leave one of them out")
        if self.decode.quantize is not Quantize.none:
            raise ConfigError(
                f"decode.quantize={self.decode.quantize.name}: translates with rounded weights, and other ones would be"
                " shown. Leave it out"
            )

    @property
    def output_file(self) -> str:
        if self.output is not None:
            return self.output
        return "attention.html" if self.positions is None else "positions.html"

    def refuse_given(self, keys: Iterable[str]) -> None:
        """Raise ConfigError for a key of a translated sentence, among those given, where positions are drawn."""
        for name in keys:
            if self.positions is not None and name.split(".")[0] not in WITH_POSITIONS:
                raise ConfigError(
                    f"{name}: of a sentence's attention weights, and --positions {self.positions} draws position"
                    " encodings. Leave one of them out"
                )


@dataclass
class AverageConfig:
    """`tfm average`."""

    checkpoint: Any = key(
        None, "Models to average: files, checkpoints or run directories; unset: the newest finished run.", path=True
    )
    runs: str = key("runs", RUNS, path=True)
    last: int | None = key(None, "Average this many of a run's checkpoints, the newest.", low=2)
    output: str | None = key(None, "Output file for the model, written whole or not at all.", path=True)
    overwrite: bool = key(False, OVERWRITE)
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        self.checkpoint = model_names(self.checkpoint)
        check_ranges(self)
