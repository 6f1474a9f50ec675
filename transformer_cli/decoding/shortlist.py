"""A lexical shortlist: the target tokens that a translation may have, by the tokens of its source (decode.shortlist).

With the tokens that are frequent in any translation, and the likeliest few for each token of the source, a search
computes some hundred logits in place of the whole vocabulary's. Each sentence has its own list, so that what else is in
its batch does not matter.

Shapes: B sentences, N hypotheses of each, R = B × N rows, K tokens of the longest list of a batch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor

from transformer_cli.config.checks import AUTO
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.search import ControlIds, Hypothesis, SearchRequest
from transformer_cli.errors import CheckpointError, quoted
from transformer_cli.files import write_whole
from transformer_cli.inference.incremental import IncrementalDecoder
from transformer_cli.models.embeddings import RestrictedOutput

Tokens = npt.NDArray[np.int64]

SHORTLIST_FILE = "shortlist.safetensors"  # beside the model: decode.shortlist=auto
_FORMAT = "tfm shortlist 1"


@dataclass(frozen=True)
class Shortlist:
    """The lists of all source tokens: those of source token i are ids[starts[i] : starts[i + 1]], rising."""

    frequent: Tokens  # tokens that every list has, rising
    starts: Tokens
    ids: Tokens

    def of(self, source_ids: Iterable[int], always: Iterable[int] = ()) -> Tokens:
        """The tokens that a translation of these source tokens may have, rising; `always` are added."""
        lists = [self.ids[self.starts[i] : self.starts[i + 1]] for i in set(source_ids)]
        return np.unique(np.concatenate([self.frequent, np.fromiter(always, np.int64), *lists]))

    def write(self, path: Path, tokenizers: Tokenizers, languages: tuple[str, str]) -> None:
        """`languages` are those of source and target: two directions may have one vocabulary."""
        arrays = {"frequent": self.frequent, "starts": self.starts, "ids": self.ids}
        write_whole(path, save(arrays, {"format": _FORMAT, "made_for": identity_of(tokenizers, languages)}))

    @classmethod
    def read(cls, path: Path, tokenizers: Tokenizers, languages: tuple[str, str]) -> "Shortlist":
        """Raises CheckpointError for a file that is damaged, or of other vocabularies or another direction."""
        if not path.is_file():
            raise CheckpointError(f"decode.shortlist={path}: no such file. Write one with `tfm shortlist`")
        try:
            with safe_open(path, "numpy") as file:
                metadata = file.metadata() or {}
                found = cls(*(file.get_tensor(name) for name in ("frequent", "starts", "ids")))
        except (SafetensorError, OSError) as error:
            why = quoted(f"{type(error).__name__}: {error}")
            raise CheckpointError(
                f"decode.shortlist={path}: not a shortlist of tfm ({why}). Write one with `tfm shortlist`"
            ) from error
        if metadata.get("format") != _FORMAT or metadata.get("made_for") != identity_of(tokenizers, languages):
            raise CheckpointError(
                f"decode.shortlist={path}: is of other vocabularies than the model, or of another direction. Write one"
                " for this model with `tfm shortlist`"
            )
        if not found._fits(len(tokenizers.source), len(tokenizers.target)):
            raise CheckpointError(f"decode.shortlist={path}: is damaged. Write it again with `tfm shortlist`")
        return found

    def _fits(self, n_source: int, n_target: int) -> bool:
        """Whether there is a list for each source token, of tokens that the target has."""
        if len(self.starts) != n_source + 1 or self.starts[0] != 0 or self.starts[-1] != len(self.ids):
            return False
        is_rising = bool((np.diff(self.starts) >= 0).all())
        return is_rising and all(bool(((ids >= 0) & (ids < n_target)).all()) for ids in (self.frequent, self.ids))


def shortlist_path(named: str, model: Path) -> Path:
    """The file that decode.shortlist names, for a model of this path."""
    return model.parent / SHORTLIST_FILE if named == AUTO else Path(named)


def identity_of(tokenizers: Tokenizers, languages: tuple[str, str]) -> str:
    return " ".join([tokenizers.source.sha256, tokenizers.target.sha256, *languages])


class BatchShortlist:
    """The lists of the sentences of a batch, which are their vocabularies in a search.

    There a token is its place in the list of its sentence. The control tokens have the same places in all lists, and
    the others follow by rising id. What is behind the end of a list has probability 0.
    """

    def __init__(self, lists: Sequence[Tokens], control: ControlIds, device: torch.device) -> None:
        first = [control.eos, *control.banned]
        self.control = ControlIds(
            pad=first.index(control.pad),
            bos=first.index(control.bos),
            eos=0,
            unk=None if control.unk is None else first.index(control.unk),
        )
        self.lists = [np.concatenate([first, np.setdiff1d(own, first, assume_unique=True)]) for own in lists]
        longest = max(map(len, self.lists))
        ids_BK = np.stack([np.pad(own, (0, longest - len(own)), constant_values=control.pad) for own in self.lists])
        is_behind_BK = np.arange(longest) >= np.array([[len(own)] for own in self.lists])
        self.ids_BK, self.is_behind_BK = torch.from_numpy(ids_BK).to(device), torch.from_numpy(is_behind_BK).to(device)

    def request(self, request: SearchRequest[Any], decoder: IncrementalDecoder) -> SearchRequest[Any]:
        """The same search of the tokens in the lists."""

        def step(places_R: Tensor, cache: ShortlistCache) -> Tensor:
            places_BN = places_R.view(len(cache.ids_BK), -1)
            return decoder.restricted_step(cache.ids_BK.gather(1, places_BN).flatten(), cache.cache, cache.outputs)

        outputs = decoder.restricted_outputs(self.ids_BK, self.is_behind_BK)
        return replace(
            request,
            step=step,
            cache=ShortlistCache(request.cache, self.ids_BK, outputs),
            control=self.control,
            constraints=[
                replace(one, prefix=self._places(own, one.prefix))
                for own, one in zip(self.lists, request.constraints, strict=False)
            ],
        )

    def hypotheses(self, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """The hypotheses of such a search with the ids of the vocabulary."""
        return [
            [replace(one, ids=own[one.ids].tolist()) for one in of_sentence]
            for own, of_sentence in zip(self.lists, found, strict=True)
        ]

    @staticmethod
    def _places(own: Tokens, ids: Iterable[int]) -> tuple[int, ...]:
        place = {int(i): place for place, i in enumerate(own)}
        return tuple(place[i] for i in ids)


@dataclass
class ShortlistCache:
    """A cache with the lists of its sentences, and the rows of the output layer that are theirs."""

    cache: Any
    ids_BK: Tensor
    outputs: Sequence[RestrictedOutput]  # of each member of an ensemble

    @property
    def attention_BNS(self) -> Tensor:
        attention_BNS: Tensor = self.cache.attention_BNS
        return attention_BNS

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        self.cache.reorder(rows_R, sentences_B)
        if sentences_B is not None:
            self.ids_BK = self.ids_BK[sentences_B]
            for output in self.outputs:
                output.keep(sentences_B)
