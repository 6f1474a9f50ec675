"""Dual conditional cross-entropy of pairs, by a model of each direction."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import parent_process

import numpy as np
from tqdm import tqdm

from transformer_cli.addons.dual_cross_entropy.translators import Translator, read_translators, the_only
from transformer_cli.config.data import DataConfig
from transformer_cli.config.tags import languages_of
from transformer_cli.data.checks.profiles import Floats
from transformer_cli.data.cleaning.base import Languages, PairTexts, unrelated_targets
from transformer_cli.data.readers.base import Pair
from transformer_cli.errors import ConfigError
from transformer_cli.logs import LOGGER

_SAMPLE = 5_000  # pairs that unrelated ones are made of
_AT_A_TIME = 1_000  # pairs: enough to sort by length, few enough to see progress


@dataclass(frozen=True)
class DualModels:
    """The models from source to target, and back."""

    forward: Translator
    backward: Translator

    def scores(self, pairs: Sequence[Pair]) -> Floats:
        """exp(-(|a - b| + (a + b) / 2)) of each pair, where a and b are its cross-entropies in both directions."""
        hidden = None if parent_process() is None else True  # of several processes none has the terminal
        found: Floats = np.empty(len(pairs))
        with tqdm(total=len(pairs), desc="scoring", unit=" pairs", leave=False, disable=hidden, file=sys.stderr) as bar:
            for first in range(0, len(pairs), _AT_A_TIME):
                part = pairs[first : first + _AT_A_TIME]
                there = self.forward.cross_entropies(part)
                back = self.backward.cross_entropies([(target, source) for source, target in part])
                found[first : first + len(part)] = np.exp(-(np.abs(there - back) + (there + back) / 2))
                bar.update(len(part))
        return found

    def scores_of_unrelated(self, text: PairTexts) -> Floats:
        """The scores of sources from all over the text, each with the target of another pair, of nearly the length."""
        pairs = unrelated(text)
        LOGGER.info(
            "dual_cross_entropy: %s and %s score %s unrelated pairs, and then the text",
            *(self.forward.path, self.backward.path, f"{len(pairs):,}"),
        )
        return self.scores(pairs)


def unrelated(text: PairTexts) -> list[Pair]:
    """Pairs of a source and the target of another pair, from all over a text."""
    some = text.pick(np.arange(len(text)) % max(1, -(-len(text) // _SAMPLE)) == 0)
    return [(source, some.targets[n]) for source, n in zip(some.sources, unrelated_targets(some).tolist(), strict=True)]


def dual_models(config: DataConfig, languages: Languages) -> DualModels:
    """The two of data.clean_models that translate between these languages, in whatever order. Raises TfmError."""
    if not config.clean_models:
        raise ConfigError(
            "data.clean: dual_cross_entropy needs two models. Train one of each direction, and name them as"
            " data.clean_models=[runs/forward,runs/backward]"
        )
    there, back = languages.source, languages.target
    if not (there and back):
        raise ConfigError(
            f"data.clean: dual_cross_entropy compares one source language with one target language, and"
            f" data.source_lang={config.source_lang} are several. Leave it out"
        )
    translators = read_translators(config)
    return DualModels(the_only(translators, there, back), the_only(translators, back, there))


def all_dual_models(config: DataConfig) -> list[DualModels]:
    """The models of each pair of languages of a corpus."""
    sources = languages_of(config.source_lang)
    source = sources[0] if len(sources) == 1 else ""
    return [dual_models(config, Languages(source, target)) for target in languages_of(config.target_lang)]
