"""The registry of poolings: how encoder states become the vector that an output layer reads. It needs no torch."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from transformer_cli.config.options import checked_options
from transformer_cli.registry import Registry, check_callable, guarded

# From the ModelConfig, whose pooling_options are complete, to an `addons.embedding.pooling.Pooling`.
BuildPooling: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True)
class PoolingKind:
    """A pooling, and the models that it is for: every classifier, and what is named here."""

    build: BuildPooling
    of_words: bool = False  # also a tagger, which pools the tokens of each word
    of_pairs: bool = False  # a classifier of pairs alone: it reads which of the two texts a token is of
    is_fixed: bool = False  # it has no weights and is as wide as the model: `tfm embed` can have any model's states so


def _adopted(name: str, entry: Any) -> PoolingKind:
    kind = entry if isinstance(entry, PoolingKind) else PoolingKind(entry)
    check_callable(kind.build, what="a pooling", arguments="config")
    return replace(kind, build=guarded(kind.build, _fault_of))


def _fault_of(made: object, *_: object) -> str | None:
    is_pooling = hasattr(made, "of_sentences") and isinstance(getattr(made, "width", None), int)
    return None if is_pooling else f"a {type(made).__name__}, not a Pooling with a `width`"


POOLINGS: Registry[PoolingKind] = Registry("pooling", adopt=_adopted, options_key="model.pooling_options")


def with_pooling_options(config: Any) -> Any:
    """A ModelConfig with all settings of its pooling.

    Raises ConfigError for a pooling that is not registered, and for settings that it does not take.
    """
    POOLINGS.check(config.pooling)
    return replace(config, pooling_options=checked_options(POOLINGS, config.pooling, config.pooling_options))


def fixed_poolings() -> list[str]:
    """The poolings that `tfm embed` has."""
    return [name for name in POOLINGS.names() if POOLINGS[name].is_fixed]
