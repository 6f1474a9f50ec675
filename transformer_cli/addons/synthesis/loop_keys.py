"""Keys of `tfm augment loop`."""

from dataclasses import dataclass
from typing import Any

from transformer_cli.config.checks import REQUIRED, check_choice, one_model_name
from transformer_cli.config.data import InlineTags
from transformer_cli.config.fields import key
from transformer_cli.config.shared import ENGINE, engine_names
from transformer_cli.config.tags import languages_of
from transformer_cli.config.train import TrainConfig
from transformer_cli.errors import ConfigError

TEXT_SEARCHES = ("beam", "greedy", "sample")  # files of the group decode


@dataclass
class LoopConfig(TrainConfig):
    """`tfm augment loop`: the config of all trainings, and the text and the models that the loop begins with."""

    name: str | None = key(None, "Of `tfm train`; not used.")
    source: str | None = key(
        None,
        "Monolingual text in the source language, one sentence a line; unset: the reverse model gets no more text.",
        path=True,
        flag="--source",
    )
    target: str | None = key(
        None,
        "Monolingual text in the target language, one sentence a line; unset: the forward model gets no more text.",
        path=True,
        flag="--target",
    )
    forward: Any = key(
        None,
        "Model from source to target of round 0; unset: one is trained on the real text.",
        path=True,
        flag="--forward",
    )
    reverse: Any = key(
        None,
        "Model from target to source of round 0; unset: one is trained on the real text.",
        path=True,
        flag="--reverse",
    )
    rounds: int = key(
        2,
        "Rounds of back-translation and training, after the models of round 0; of text in one language there is one.",
        low=1,
        high=100,
        flag="--rounds",
    )
    stop_early: bool = key(False, "End after a round in which no direction has gained dev BLEU.", flag="--stop-early")
    search: str = key("beam", "Search of the back-translations.", choices=TEXT_SEARCHES, flag="--search")
    search_beam: int = key(4, "Beam of the back-translations, with search=beam.", low=1, high=64, flag="--beam")
    engine: str | None = key(None, ENGINE, choices=engine_names, flag="--engine")
    output: str = key("loop", "Folder of the text, the runs and the table.", path=True, flag="--output")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.forward, self.reverse = one_model_name(self.forward), one_model_name(self.reverse)
        check_choice("search", self.search, TEXT_SEARCHES)
        data = self.data
        if not data.trained.translates:
            raise ConfigError(f"data={data.name}: back-translation needs translations. Choose data=files")
        languages = data.source_lang, data.target_lang
        is_pair = {len(languages_of(side)) for side in languages} == {1} and len(set(languages)) == 2
        if not is_pair and REQUIRED not in languages:
            raise ConfigError(
                f"data.source_lang={data.source_lang} data.target_lang={data.target_lang}: the loop has two directions,"
                " between two languages. Choose one of each"
            )
        if data.weights and len(data.weights) != 2:
            raise ConfigError(
                f"data.weights={data.weights}: here are two, of the real text and of the synthetic. Give two, as [4,1]"
            )
        self._refuse_what_has_one_direction()

    def _refuse_what_has_one_direction(self) -> None:
        """Raise ConfigError for what the other direction, or the text of the other language, does not have."""
        data = self.data
        for setting, is_set in (
            (f"name={self.name}", self.name is not None),
            (f"resume={self.resume}", self.resume != "auto"),
            (f"init.from={self.init.from_}", self.init.from_ is not None),
            (f"data.tags={data.tags}", bool(data.tags)),
            (f"data.line_tags={data.line_tags}", bool(data.line_tags)),
            (f"data.alignments={data.alignments}", data.alignments is not None),
            ("data.bidirectional=true", data.bidirectional),
            (f"data.context_sentences={data.context_sentences}", bool(data.context_sentences)),
            ("data.truncate_source=true", data.truncate_source),
            ("data.inline_tags=keep", data.inline_tags is InlineTags.keep),
        ):
            if is_set:
                instead = " --forward and --reverse name the models that it begins with." if "init" in setting else ""
                raise ConfigError(f"{setting}: is not for a loop of both directions.{instead} Leave it out")
