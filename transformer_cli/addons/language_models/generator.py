"""Continuations of a prompt by a language model, with the searches that translate.

Shapes: B = 1 prompt, N continuations of it, T tokens of the prompt with BOS, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transformer_cli.addons.language_models.incremental import LanguageModelDecoder
from transformer_cli.addons.language_models.language_model import LanguageModel
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.data.normalization import normalize
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.data.transfer import to_device
from transformer_cli.data.unknown import unknown_characters
from transformer_cli.decoding.search import (
    SEARCHES,
    ControlIds,
    Hypothesis,
    SearchRequest,
    check_search,
    rows_per_sentence,
)
from transformer_cli.errors import ConfigError
from transformer_cli.inference.kv_cache import KVCache
from transformer_cli.inference.precision import dtype_of, in_precision, overflow_named
from transformer_cli.models.memory import SplitBatches

_LONGEST = 256  # tokens of a continuation, where decode.max_length is unset
_MARK = "▁"  # with which SentencePiece begins a word
BROKEN = "\ufffd"  # what bytes that are no whole character yet are shown as


@dataclass(frozen=True)
class Prompt:
    """The beginning of a line. White space at its end means that its last word is complete."""

    text: str  # as it was given, but for white space
    ids: list[int]  # without BOS
    ends_word: bool
    unknown: tuple[str, ...] = ()  # characters that the vocabulary does not have


@dataclass(frozen=True)
class Generated:
    """A prompt and its continuation."""

    text: str  # both
    ids: list[int]  # of the continuation, without its end
    pieces: list[str]
    log_prob: float  # natural logarithm, of the continuation; with its end, where there is one
    finished: bool  # False: truncated at the longest length allowed


def read_prompt(text: str, tokenizer: Tokenizer) -> Prompt:
    (ids,) = tokenizer.encode([text])
    return Prompt(normalize(text), ids, text[-1:].isspace(), unknown_characters(text, ids, tokenizer))


class Generator:
    """Generates continuations; each depends on its prompt, the seed and a number, and on no other prompt."""

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer,
        config: DecodeConfig,
        *,
        device: torch.device,
        max_positions: int | None = None,
        seed: int = 1,
    ) -> None:
        """`max_positions` is how many tokens the model has positions for, BOS counted; None: any number."""
        check_search(config)
        if SEARCHES[config.search].compares_texts:
            raise ConfigError(f"decode.search={config.search}: for translations only. Leave it out")
        model = in_precision(model, config.precision, device)
        self.dtype = dtype_of(model)
        self.decoder, self.tokenizer, self.config = LanguageModelDecoder(model), tokenizer, config
        self.device, self.max_positions, self.seed = device, max_positions, seed
        self.control = ControlIds.of(tokenizer)
        begins = [piece.startswith(_MARK) for piece in tokenizer.pieces(range(len(tokenizer)))]
        self.within_V = to_device(~torch.tensor(begins), device)  # pieces that do not begin a word

    @property
    def can_stream(self) -> bool:
        """Whether a chosen token is final: there is one hypothesis, which no other can overtake."""
        return rows_per_sentence(self.config) == 1

    def room(self, prompt: Prompt) -> int:
        """How many tokens may follow on the prompt, the end counted."""
        wanted = self.config.max_length or _LONGEST
        return wanted if self.max_positions is None else min(wanted, self.max_positions - len(prompt.ids))

    @torch.inference_mode()
    def generate(
        self, prompt: Prompt, *, number: int = 1, on_text: Callable[[str], object] | None = None
    ) -> list[Generated]:
        """`config.n_best` texts, best first; of samples, in the order of their scores.

        `number` gives prompts with the same seed different samples. `on_text` is given the text piece by piece,
        the prompt first, where it `can_stream`. Raises CheckpointError if logits are not numbers.
        """
        split = SplitBatches(
            lower="",  # there is one
            alone="Lower decode.beam_size, decode.n_best or decode.max_length, or choose another device=",
        )
        with overflow_named(self.dtype):
            (found,) = split([prompt], lambda prompts: [self._generate(prompts[0], number, on_text)])
        return found

    def _generate(self, prompt: Prompt, number: int, on_text: Callable[[str], object] | None) -> list[Generated]:
        assert prompt.ids, "an empty prompt"
        stream = Streamed(self.tokenizer, prompt, on_text) if on_text is not None and self.can_stream else None
        first_id = self.control.bos
        logits_1V, cache = self.decoder.start(
            to_device(torch.tensor([[first_id, *prompt.ids]]), self.device),
            beam_size=rows_per_sentence(self.config),
            max_length=1 + len(prompt.ids) + self.room(prompt),
        )
        if prompt.ends_word:
            logits_1V = logits_1V.masked_fill(self.within_V, -torch.inf)
        has_begun = False

        def step(ids_N: Tensor, cache: KVCache) -> Tensor:
            nonlocal has_begun
            if not has_begun:  # the search begins with BOS: the logits after the prompt are known
                has_begun = True
                return logits_1V.repeat(len(ids_N), 1)
            if stream is not None:
                stream(int(ids_N))
            return self.decoder.step(ids_N, cache)

        request: SearchRequest[Any] = SearchRequest(
            step,
            cache,
            self.control,
            torch.tensor([self.room(prompt)]),
            self.config,
            seeds=[(self.seed, number)],
            device=self.device,
            sync_interval=None if stream is None else 1,  # what is streamed has to be live
        )
        (hypotheses,) = SEARCHES[self.config.search](request)
        found = [self._generated(prompt, hypothesis) for hypothesis in hypotheses]
        if stream is not None:
            stream.end(found[0].text)
        return found

    def _generated(self, prompt: Prompt, hypothesis: Hypothesis) -> Generated:
        tokenizer = self.tokenizer
        text = with_continuation(prompt, hypothesis.ids, tokenizer)
        all_ids = [*hypothesis.ids, *[tokenizer.eos_id] * hypothesis.finished]
        return Generated(
            text=text,
            ids=hypothesis.ids,
            pieces=tokenizer.pieces(all_ids),
            log_prob=hypothesis.log_prob,
            finished=hypothesis.finished,
        )


def with_continuation(prompt: Prompt, ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """The prompt as it was given, also where the vocabulary cannot write it, and the text of `ids` behind it."""
    return prompt.text + tokenizer.decode([*prompt.ids, *ids])[len(tokenizer.decode(prompt.ids)) :]


class Streamed:
    """Passes text on as soon as it is final: no part of a character that may still be completed.

    The parts, one after the other, are the whole text in the end.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Prompt, on_text: Callable[[str], object]) -> None:
        self.tokenizer, self.prompt, self.on_text = tokenizer, prompt, on_text
        self.ids: list[int] = []  # of the continuation
        self.given = ""
        self._give(prompt.text)

    def __call__(self, newest: int) -> None:
        self.ids.append(newest)
        self._give(with_continuation(self.prompt, self.ids, self.tokenizer).rstrip(BROKEN))

    def end(self, text: str) -> None:
        self._give(text)

    def _give(self, text: str) -> None:
        if len(text) > len(self.given):
            self.on_text(text[len(self.given) :])
            self.given = text
