"""Keys of `tfm compare`."""

from dataclasses import dataclass, field
from typing import Any

from transformer_cli.config.checks import BLEU_TOKENIZERS, check_bleu_tokenizer
from transformer_cli.config.comet import CometConfig
from transformer_cli.config.data import DataConfig
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.evaluate import TABLE, check_table
from transformer_cli.config.fields import DEVICE, OVERWRITE, PLUGINS, check_ranges, key
from transformer_cli.config.shared import ENGINE, FROM, TAG, TO, engine_names
from transformer_cli.config.train import Device
from transformer_cli.errors import ConfigError
from transformer_cli.tables import TableFormat

COMPARED = ("bleu", "chrf")


@dataclass
class CompareConfig:
    """`tfm compare`."""

    systems: list[str] = key(
        [],
        "Two or more: run directories, checkpoints, models, exports, or text files of translations. All are compared"
        " with the first.",
        path=True,
        word=True,
    )
    source: str | None = key(
        None, "Own test set: file to translate; for files of translations, not needed.", path=True, flag="--source"
    )
    reference: Any = key(
        None, "Own test set: reference translation, or a list of several.", path=True, flag="--reference", repeated=True
    )
    test_set: str | None = key(None, "Test set of sacrebleu, by its name, as wmt14.", flag="--test-set")
    languages: str | None = key(
        None, "Direction of `test_set`, as en-de; unset: that of the first model.", flag="--languages"
    )
    tag: str | None = key(None, TAG, flag="--tag")
    source_lang: str | None = key(None, FROM, flag="--from")
    target_lang: str | None = key(None, TO, flag="--to")
    metrics: list[str] = key(
        [*COMPARED],
        "Metrics to compare by: bleu, chrf, chrf++, ter, spbleu, or others with sentence-level scores.",
        flag="--metrics",
    )
    sentence_metric: str = key("chrf", "Metric by whose sentence-level scores the lines that differ most are found.")
    sentences: int = key(20, "Lines that are shown for each system, of gains and of losses.", low=0)
    tokenize: str | None = key(
        None,
        "sacrebleu's tokenizer for BLEU; unset: data.bleu_tokenize, or by the target language.",
        choices=BLEU_TOKENIZERS,
        flag="--tokenize",
    )
    seed: int | None = key(
        None, "Seed of the significance tests; unset: $SACREBLEU_SEED, or 12345.", low=1, high=2**31 - 1, flag="--seed"
    )
    # Of fewer no p-value can be below 0.05: the smallest is 1 / (n + 1).
    samples: int = key(1000, "Resamples of the paired bootstrap test.", low=20, flag="--samples")
    trials: int = key(10_000, "Trials of the approximate randomization test.", low=20)
    output: str | None = key(
        None,
        "File for the page; unset: compare.html, but none with json=true or a table to be pasted.",
        path=True,
        flag="--output",
    )
    overwrite: bool = key(False, OVERWRITE, flag="--overwrite")
    json: bool = key(False, "Print JSON.", flag="--json")
    table: TableFormat | None = key(None, TABLE, flag="--table")
    engine: str | None = key(None, ENGINE, choices=engine_names, flag="--engine")
    search_seed: int = key(1, "Seed of a search that draws at random.", low=0, high=2**31 - 1)
    device: Device = key(Device.auto, DEVICE, flag="--device")
    plugins: list[str] = key([], PLUGINS)
    data: DataConfig | None = None  # None: the corpus that the runs were trained on
    comet: CometConfig = field(default_factory=CometConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        check_ranges(self)
        check_table(self.table, as_json=self.json)
        check_bleu_tokenizer("tokenize", self.tokenize)
        names = [name.strip() for entry in self.metrics for name in entry.split(",")]  # as --metrics bleu,ter
        self.metrics = [name for name in dict.fromkeys(names) if name]
        if not self.metrics:
            raise ConfigError("metrics=[]: nothing to compare by. Choose one or more")
        for name, value in (("source", self.source), ("reference", self.reference)):
            if value is not None and self.data is not None:
                shown = ",".join(map(str, value)) if isinstance(value, list) else value
                raise ConfigError(
                    f"{name}={shown}: and data={self.data.name} name two test sets. Leave one of them out"
                )
        if self.source is not None and self.reference is None:
            raise ConfigError("--reference: not given, but --source is. Name its translation, too")
        others = {"--reference": self.reference, "data": self.data}
        if self.test_set is not None and (given := [name for name, it in others.items() if it is not None]):
            raise ConfigError(f"--test-set {self.test_set}: and {given[0]} name two test sets. Leave one of them out")
        if self.languages is not None and self.test_set is None:
            raise ConfigError(f"--languages {self.languages}: says what --test-set is read in. Leave it out")
