"""Keys of `tfm translate`."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from transformer_cli.commands.translate.formats import DOCUMENT_FORMATS, LINES
from transformer_cli.config.checks import model_names
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.fields import CHECKPOINTS, DEVICE, OVERWRITE, PLUGINS, RUNS, SEED, STRICT, check_ranges, key
from transformer_cli.config.shared import ENGINE, FROM, TAG, TO, OutputFormat, engine_names
from transformer_cli.config.train import Device
from transformer_cli.errors import ConfigError


class OnIssue(Enum):
    keep = "keep"
    retry = "retry"  # translate lines with quality flags again, in another way


@dataclass
class TranslateConfig:
    """`tfm translate`."""

    checkpoint: Any = key(None, CHECKPOINTS, path=True, flag="--checkpoint", repeated=True)
    runs: str = key("runs", RUNS, path=True)
    text: str | None = key(None, "The text to translate, instead of a file or standard input.", word=True)
    input: str | None = key(None, "Input file, one text a line; unset: standard input.", path=True, flag="--input")
    output: str | None = key(
        None, "Output file, written whole or not at all; unset: standard output.", path=True, flag="--output"
    )
    overwrite: bool = key(False, OVERWRITE, flag="--overwrite")
    strict: bool = key(False, STRICT, flag="--strict")
    format: str = key(
        LINES,
        "What the input is: lines of text, or one document, whose mark-up is kept.",
        choices=DOCUMENT_FORMATS.names,
        flag="--format",
    )
    output_format: OutputFormat = key(
        OutputFormat.text,
        "Lines of text, a JSON object for each line (jsonl), or n-best lists as Moses writes them.",
        flag="--output-format",
    )
    on_issue: OnIssue = key(
        OnIssue.keep,
        "Keep a translation with quality flags, or translate its line again in another way (retry).",
        flag="--on-issue",
    )
    prefix: str | None = key(
        None, "File of target prefixes: the translation of line n begins with its line n.", path=True, flag="--prefix"
    )
    tag: str | None = key(None, TAG, flag="--tag")
    source_lang: str | None = key(None, FROM, flag="--from")
    target_lang: str | None = key(None, TO, flag="--to")
    terms: str | None = key(
        None,
        "Terminology file: source phrase, tab, the phrase that its translation must contain.",
        path=True,
        flag="--terms",
    )
    alignments: str | None = key(None, "Output file for word alignments, as i-j.", path=True, flag="--alignments")
    report: str | None = key(
        None,
        "Output file for the texts of a document that have flags, and their places, as TSV.",
        path=True,
        flag="--report",
    )
    fail_on_flags: bool = key(
        False, "End with exit code 8 if a text of a document has flags; the output is written.", flag="--fail-on-flags"
    )
    token_scores: bool = key(False, "Add the log-probability of each token. jsonl only.", flag="--token-scores")
    explain: bool = key(
        False, "Show every step: the likeliest tokens, and the hypotheses of the beam.", flag="--explain"
    )
    reference: str | None = key(
        None,
        "File of reference translations, line by line: also show what the model predicts at each of their tokens.",
        path=True,
        flag="--reference",
    )
    likeliest: int = key(5, "How many of the likeliest tokens --explain shows of each step.", low=1, high=1000)
    engine: str | None = key(None, ENGINE, choices=engine_names, flag="--engine")
    seed: int = key(1, SEED, low=0, high=2**31 - 1)
    device: Device = key(Device.auto, DEVICE, flag="--device")
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
        if self.format != LINES:
            self._check_document()
        elif self.report is not None or self.fail_on_flags:
            given = "--fail-on-flags" if self.report is None else f"--report {self.report}"
            raise ConfigError(
                f"{given}: is for documents. Add --format, or use --output-format jsonl, which has the flags"
            )

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
                    f"{setting}: is for lines, and format={self.format} is one document. Leave one of them out"
                )
