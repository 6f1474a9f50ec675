"""The models of data.clean_models, and the cross-entropies that they give to pairs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import parent_process
from pathlib import Path

import numpy as np
import torch

from transformer_cli.config.data import DataConfig
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.train import Device
from transformer_cli.data.checks.profiles import Floats
from transformer_cli.data.hashes import file_sha256
from transformer_cli.data.readers.base import Pair
from transformer_cli.data.tags import with_tags
from transformer_cli.decoding.directions import asked_tags
from transformer_cli.environment import folder_named
from transformer_cli.errors import CheckpointError, ConfigError
from transformer_cli.inference.force_decode import force_decode
from transformer_cli.inference.precision import in_precision
from transformer_cli.languages import matched
from transformer_cli.models.device import choose_device
from transformer_cli.models.ensemble import read_models
from transformer_cli.models.locate import locate_model

_LONGEST = 256  # tokens of a side, where a model does not say how long those were that it was trained on


@dataclass(frozen=True)
class Translator:
    """A model file that translates from one language to another."""

    path: Path
    sha256: str
    source: str
    target: str

    def cross_entropies(self, pairs: Sequence[Pair]) -> Floats:
        """The cross-entropy of each target given its source, in nats a token, with the end of the sentence."""
        return _opened(self.path, self.sha256).cross_entropies(pairs)


def read_translators(config: DataConfig) -> list[Translator]:
    """The models of data.clean_models. Raises TfmError for one that is missing, or is no translator."""
    found = []
    for name in config.clean_models:
        try:
            path = locate_model(str(folder_named(name)), runs="runs")
            [model] = read_models([path])
        except CheckpointError as error:
            raise CheckpointError(str(error).replace("--checkpoint", "data.clean_models")) from error
        found.append(Translator(path, file_sha256(path), model.source_lang, model.target_lang))
    return found


def the_only(translators: Sequence[Translator], source: str, target: str) -> Translator:
    """The one that translates from `source` to `target`. Raises ConfigError for none, or several."""
    found = [one for one in translators if matched(source, [one.source]) and matched(target, [one.target])]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(
            f"data.clean_models: {found[0].path} and {found[1].path} both translate {source} → {target}. Leave one out"
        )
    named = ", ".join(f"{one.path} translates {one.source} → {one.target}" for one in translators)
    raise ConfigError(
        f"data.clean_models: none translates {source} → {target}; {named}. Name one of each direction of the corpus"
    )


class _Opened:
    """A model in memory."""

    def __init__(self, path: Path) -> None:
        if parent_process() is not None:
            torch.set_num_threads(1)  # one of several processes that clean text, one for each core
        self._device = choose_device(Device.auto)
        [file] = read_models([path])
        self._tokenizers, self._tags = file.tokenizers, " ".join(asked_tags(file, None, None, None))
        self._model = in_precision(file.build(self._device), DecodeConfig().precision, self._device)
        longest = file.data.get("max_length")
        self._most = (longest if isinstance(longest, int) and longest > 1 else _LONGEST) - 1

    def cross_entropies(self, pairs: Sequence[Pair]) -> Floats:
        """The cross-entropy of each target, of sides cut at the length that they had in training at most."""
        known = self._tokenizers.source.tags
        sources = [with_tags(source, self._tags, known) for source, _ in pairs]
        targets = [target for _, target in pairs]
        encoded = self._tokenizers.source.encode(sources), self._tokenizers.encode_targets(sources, targets)
        sides = [self._cut(side) for side in encoded]
        scores = force_decode(
            self._model,
            list(zip(*sides, strict=True)),
            self._tokenizers,
            device=self._device,
            batch_tokens=DecodeConfig().batch_tokens,
        )
        return np.array([-one.log_prob / len(one.log_probs) for one in scores], np.float64)

    def _cut(self, lines: Iterable[Sequence[int]]) -> list[Sequence[int]]:
        return [ids[: self._most] for ids in lines]


@cache
def _opened(path: Path, sha256: str) -> _Opened:
    """The model file with this hash, read once in each process."""
    return _Opened(path)
