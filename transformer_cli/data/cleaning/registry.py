"""The registry of filters of training text, and their base class. Nothing slow is imported to register one."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from transformer_cli.config.data import DataConfig, InlineTags
from transformer_cli.errors import ConfigError
from transformer_cli.registry import Registry, place_of

if TYPE_CHECKING:
    from transformer_cli.data.checks.profiles import Floats
    from transformer_cli.data.cleaning.texts import PairTexts, Verdict


@dataclass(frozen=True)
class Languages:
    """The languages of the two sides: codes as the config has them, empty where a side has several."""

    source: str
    target: str


class Filter:
    """A filter of training pairs. Its object serves the corpora of one pair of languages in one preparation.

    `learn` gets a sample of the text, of which earlier filters have dropped and repaired what they could, and in which
    no pair is that will be held out as dev or test. `apply` then gets all text, in parts of pairs in a row.
    """

    what: ClassVar[str]  # the dropped pairs, as "copies of the source": completes "12 pairs left out: "
    repair: ClassVar[str] = ""  # the repaired pairs, as "without markup": completes "12 pairs kept "
    # The pairs to repair, where they are translations in spite of a fault, as "with markup on one side only".
    blemish: ClassVar[str] = ""
    threshold: ClassVar[float | None] = None  # the default; None: the filter has none
    low: ClassVar[float] = 0.0  # the range of the threshold
    high: ClassVar[float] = math.inf
    is_auto: ClassVar[bool] = False  # whether data.clean=auto has it
    uses_models: ClassVar[bool] = False  # whether it compares pairs by the models of data.clean_models

    keeps_tags = False  # whether texts have the inline tags of their files, as numbers

    def __init__(self, languages: Languages, threshold: float | None) -> None:
        self.languages, self.limit = languages, threshold

    @classmethod
    def version(cls, config: DataConfig) -> Any:
        """What the cache of a prepared corpus depends on besides the text and the threshold, as the hash of a model.

        Raises TfmError for settings that do not suit the filter, before any text is read.
        """
        return None

    def configure(self, config: DataConfig) -> None:
        """Take what it needs of the other settings of the corpus."""
        self.keeps_tags = config.inline_tags is InlineTags.keep

    def words_of(self, text: "PairTexts") -> "PairTexts":
        """The text without the inline tags that it keeps."""
        return text.without_tags() if self.keeps_tags else text

    def learn(self, text: "PairTexts") -> None:
        """Set what depends on the text."""

    def apply(self, text: "PairTexts") -> "Verdict":
        raise NotImplementedError

    def suspicion(self, text: "PairTexts") -> "Floats":
        """How certain it is that each of these pairs, which `apply` drops or repairs, is wrong: up to 1."""
        import numpy as np

        return np.ones(len(text))


def _adopted(name: str, entry: Any) -> type[Filter]:
    if not (isinstance(entry, type) and issubclass(entry, Filter) and hasattr(entry, "what")):
        raise ConfigError(f"{place_of(entry)}: a filter is a subclass of Filter with a sentence `what`. Correct it")
    return entry


FILTERS: Registry[type[Filter]] = Registry("filter of training text", adopt=_adopted)
