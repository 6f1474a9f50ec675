"""Changes of the training pairs that are made as their batches are, other ones in each epoch.

`data.augment` is one that an add-on registers, and `data.changes` names those of plugins.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from transformer_cli.config.data import DataConfig
from transformer_cli.errors import ConfigError
from transformer_cli.registry import Registry, check_callable, guarded

if TYPE_CHECKING:
    from transformer_cli.config.train import TrainConfig
    from transformer_cli.data.cache import EncodedCorpus
    from transformer_cli.data.prepare import Prepared

AUGMENT = "augment"  # that of the keys data.augment

# Gets the pairs of an update, their numbers in the corpus, and `epoch=`; returns as many pairs, none of them longer
# than data.max_length. What it draws follows from these and the seed alone: a resumed run has the same pairs.
PairChange = Callable[..., "EncodedCorpus"]


def _adopted(name: str, entry: Any) -> Callable[["TrainConfig", "Prepared"], PairChange]:
    check_callable(entry, what="a change of training pairs", arguments="config, prepared")

    def make(config: "TrainConfig", prepared: "Prepared") -> PairChange:
        def fault_of(found: Any, pairs: "EncodedCorpus", *_: Any, **__: Any) -> str | None:
            if len(found) != len(pairs):
                return f"{len(found)} pairs for {len(pairs)}"
            longest = int(max(found.source_lengths.max(), found.target_lengths.max()))
            is_long = longest > config.data.max_length
            return f"a sentence of {longest} tokens, over data.max_length={config.data.max_length}" if is_long else None

        return guarded(entry(config, prepared), fault_of)

    return make


PAIR_CHANGES: Registry[Callable[["TrainConfig", "Prepared"], PairChange]] = Registry(
    "change of training pairs", adopt=_adopted
)


def pair_changes(config: DataConfig) -> list[str]:
    """The names of the changes that a run makes, in order."""
    chosen = [*([AUGMENT] if config.augment.rates else []), *config.changes]
    return [*(name for name in chosen if name not in config.trained.changes), *config.trained.changes]


def check_pair_changes(config: DataConfig) -> None:
    """Raise ConfigError for a change that is not registered, or has keys by which it is chosen."""
    if AUGMENT in config.changes:
        raise ConfigError(
            f"data.changes: {AUGMENT} is chosen by the shares in data.augment. Set one there, and leave it out"
        )
    for name in pair_changes(config):
        PAIR_CHANGES.check(name)
