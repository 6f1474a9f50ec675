"""Keys of `tfm evaluate`; beside the groups, as scoring a test set reads them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformer_cli.config.checks import BLEU_TOKENIZERS, check_bleu_tokenizer, model_names, one_file
from transformer_cli.config.comet import CometConfig
from transformer_cli.config.data import DataConfig
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.fields import CHECKPOINTS, DEVICE, PLUGINS, RUNS, SEED, check_ranges, key
from transformer_cli.config.shared import ENGINE, FROM, TAG, TO, engine_names
from transformer_cli.config.train import Device
from transformer_cli.errors import ConfigError
from transformer_cli.tables import TableFormat

# The last two are reported for the languages that papers report them for.
_METRICS = ("bleu", "chrf", "ter", "tokenised_bleu", "paper_bleu")


# Keys of `tfm evaluate` without a meaning for translations that are given.
_OF_DIRECTIONS = ("tag", "source_lang", "target_lang")
OF_A_MODEL = ("checkpoint", "engine", "decode", "save", *_OF_DIRECTIONS, "robustness", "robustness_lines", "report")


ROBUSTNESS = "robustness"  # the report that has a flag of its own
ROBUSTNESS_LINES = 500


TABLE = "Print the table alone, to be pasted: as LaTeX, Markdown or CSV; all else goes to standard error."


def check_table(table: TableFormat | None, *, as_json: bool) -> None:
    """Raise ConfigError for two formats."""
    if table is not None and as_json:
        raise ConfigError(f"--table {table.value}: and --json is another format. Leave one of them out")


@dataclass
class EvaluateConfig:
    """`tfm evaluate`."""

    checkpoint: Any = key(None, CHECKPOINTS, path=True, flag="--checkpoint", repeated=True)
    runs: str = key("runs", RUNS, path=True)
    source: str | None = key(
        None,
        "Own test set: file to translate; a classifier's table of label<TAB>text, a tagger's CoNLL file.",
        path=True,
        flag="--source",
    )
    reference: Any = key(
        None, "Own test set: reference translation, or a list of several.", path=True, flag="--reference", repeated=True
    )
    test_set: Any = key(
        None,
        "Test sets of sacrebleu by name, as wmt14 or [wmt14,wmt15]; downloaded once. `list` prints the names.",
        flag="--test-set",
        repeated=True,
    )
    languages: str | None = key(
        None, "Direction of `test_set`, as en-de; unset: that of the model.", flag="--languages"
    )
    hypotheses: Any = key(
        None,
        "File of existing translations, or labels, to score without a model; of several `test_set`, one of each.",
        path=True,
        flag="--hypotheses",
        repeated=True,
    )
    save: str | None = key(
        None, "Output file for the translations, or labels; unset: beside the model.", path=True, flag="--save"
    )
    overwrite: bool = key(False, "Replace `save` and `sentence_scores` if they exist.", flag="--overwrite")
    tag: str | None = key(None, TAG, flag="--tag")
    source_lang: str | None = key(None, FROM, flag="--from")
    target_lang: str | None = key(None, TO, flag="--to")
    metrics: list[str] = key(
        [*_METRICS], "Metrics of translations, in order, also spbleu, chrf++ and comet; a plugin may register others."
    )
    sentence_scores: str | None = key(
        None,
        "Output file for the scores of each line by those of `metrics` that have them, as JSONL.",
        path=True,
        flag="--sentence-scores",
    )
    tokenize: str | None = key(
        None,
        "sacrebleu's tokenizer for BLEU; unset: data.bleu_tokenize, or by the target language.",
        choices=BLEU_TOKENIZERS,
        flag="--tokenize",
    )
    robustness: bool = key(
        False, "Also translate perturbed source lines: capitals, typos, emoji, placeholders, ….", flag="--robustness"
    )
    robustness_lines: int = key(ROBUSTNESS_LINES, "Source lines that are perturbed, drawn by the seed.", low=1)
    report: list[str] = key(
        [], "Reports beside the scores, by name: robustness, or one that a plugin registers.", flag="--report"
    )
    json: bool = key(False, "Print JSON.", flag="--json")
    table: TableFormat | None = key(None, TABLE, flag="--table")
    engine: str | None = key(None, ENGINE, choices=engine_names, flag="--engine")
    seed: int = key(1, SEED, low=0, high=2**31 - 1)
    device: Device = key(Device.auto, DEVICE, flag="--device")
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
        check_table(self.table, as_json=self.json)
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
        if self.robustness_lines != ROBUSTNESS_LINES and ROBUSTNESS not in self.reports:
            raise ConfigError(f"robustness_lines={self.robustness_lines}: nothing is perturbed. Add --robustness")

    @property
    def reports(self) -> list[str]:
        """The names of the reports beside the scores, each once."""
        return list(dict.fromkeys([*([ROBUSTNESS] if self.robustness else []), *self.report]))

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

    def refuse_translating(self, what: str, paths: Sequence[Path]) -> None:
        """Raise ConfigError for keys of translations, and for a second model: those at `paths` are `what`, a tagger."""
        if len(paths) > 1:
            second = what.split(" ", 1)[1]
            raise ConfigError(f"{paths[1]}: a second {second}; they answer one at a time. Name one --checkpoint")
        if self.reference is not None:
            raise ConfigError(f"--reference: for translations; of {what}, --source is all. Leave it out")
        self.refuse_metrics(f"this is {what}")

    def refuse_metrics(self, why: str) -> None:
        """Raise ConfigError if metrics of translations are chosen, for a model that does not translate."""
        if self.tokenize is not None:
            raise ConfigError(f"--tokenize {self.tokenize}: for BLEU of translations; {why}. Leave it out")
        if tuple(self.metrics) != _METRICS:
            raise ConfigError(f"metrics={','.join(self.metrics)}: for translations; {why}. Leave it out")
        if self.sentence_scores is not None:
            raise ConfigError(f"--sentence-scores {self.sentence_scores}: for translations; {why}. Leave it out")
        if self.test_set:
            raise ConfigError(f"--test-set {','.join(self.test_set)}: for translations; {why}. Leave it out")
        if self.table is not None:
            raise ConfigError(f"--table {self.table.value}: for scores of translations; {why}. Leave it out")
        for name in self.reports:
            flag = "--robustness" if name == ROBUSTNESS and self.robustness else f"--report {name}"
            raise ConfigError(f"{flag}: for translations; {why}. Leave it out")

    def refuse_given(self, keys: Iterable[str]) -> None:
        """Raise ConfigError for a key of the model or its search, among those given, where there is no model."""
        for name in keys:
            if self.hypotheses is not None and name.split(".")[0] in OF_A_MODEL:
                raise ConfigError(
                    f"{name}: for a model that translates, but --hypotheses {self.hypothesis_files[0]} is an input,"
                    " which is scored as it is. Leave one of them out; --save names the file for a model's translations"
                )
