"""The scores of a masked language model on a text."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import torch
from tqdm import tqdm

from transformer_cli.addons.embedding.encode import longest_of
from transformer_cli.addons.language_models.evaluate_text import TextSet
from transformer_cli.addons.language_models.perplexity import TextSums
from transformer_cli.addons.masked_language_models.masked_language_model import MaskedLanguageModel
from transformer_cli.addons.masked_language_models.masking import special_ids
from transformer_cli.addons.masked_language_models.predictor import MaskPredictor
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.decoding.plan import named
from transformer_cli.errors import DataError
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile

_LINES = 64  # that are encoded at a time


@dataclass(frozen=True)
class MaskedTextScores(TextSums):
    """Scores of a text of which each token is masked in turn, all others being known (Salazar et al. 2020)."""

    of_unknown = "An <unk> is easier to predict than a spelling, so the figures look better than they are"

    n_right: int  # pieces that the model finds the most probable

    @property
    def accuracy(self) -> float:
        """Percent."""
        return 100 * self.n_right / self.n_tokens

    def scores(self) -> dict[str, float]:
        return {
            "accuracy": self.accuracy,
            "pseudo-perplexity/token": self.perplexity_per_token,
            "pseudo-perplexity/word": self.perplexity_per_word,
        }

    def as_dict(self) -> dict[str, float]:
        return {
            "pseudo_perplexity_per_token": self.perplexity_per_token,
            "pseudo_perplexity_per_word": self.perplexity_per_word,
            "accuracy": self.accuracy,
            **asdict(self),
        }

    def lines(self) -> list[str]:
        return [
            f"accuracy                     {self.accuracy:10.2f}  {self.n_tokens:,} pieces, each masked in turn",
            f"pseudo-perplexity per token  {self.perplexity_per_token:10.2f}  {self.n_tokens:,} pieces",
            f"pseudo-perplexity per word   {self.perplexity_per_word:10.2f}  {self.n_words:,} words",
            f"pseudo-log-likelihood        {self.log_prob:10.2f}  natural logarithm, of all",
        ]


def measure_masked(model: ModelFile, test: TextSet, device: torch.device, decode: DecodeConfig) -> MaskedTextScores:
    """Raises DataError where there is no text."""
    if not any(line.strip() for line in test.lines):
        raise DataError(f"{test.name}: holds no text. Name another --source")
    network = model.build_as(MaskedLanguageModel, device)
    predictor = MaskPredictor(network, model.tokenizers.source, device=device, batch_tokens=decode.batch_tokens)
    longest = longest_of(model) - 2  # BOS and EOS
    with tqdm(total=len(test.lines), unit="line", desc="read", disable=None, leave=False, file=sys.stderr) as bar:
        return masked_text_scores(predictor, test.lines, longest=longest, on_progress=bar.update)


def masked_text_scores(
    predictor: MaskPredictor,
    lines: Sequence[str],
    *,
    longest: int,
    on_progress: Callable[[int], object] = lambda n_lines: None,
) -> MaskedTextScores:
    """The scores of all lines; a line is cut to `longest` tokens, and a warning names it."""
    tokenizer, cut = predictor.tokenizer, list[int]()
    special = frozenset(special_ids(tokenizer))
    log_probs: list[float] = []
    n_right = n_unknown = 0
    for start in range(0, len(lines), _LINES):
        encoded = tokenizer.encode(lines[start : start + _LINES])
        cut += [start + n for n, ids in enumerate(encoded, 1) if len(ids) > longest]
        for sentences, wanted in _masked_in_turn([ids[:longest] for ids in encoded], special, predictor):
            for log_p_V, token in zip(predictor.log_probs(sentences), wanted, strict=True):
                log_probs.append(float(log_p_V[token]))
                n_right += int(log_p_V.argmax()) == token
                n_unknown += token == tokenizer.unk_id
        on_progress(len(encoded))
    if cut:
        LOGGER.warning("%s: longer than the model's %d tokens; the rest is not scored", named(cut), longest + 2)
    real = [line for line in lines if line.strip()]
    return MaskedTextScores(
        n_lines=len(lines),
        n_blank=len(lines) - len(real),
        n_tokens=len(log_probs),
        n_words=sum(len(line.split()) for line in real),
        n_unknown=n_unknown,
        n_right=n_right,
        log_prob=math.fsum(log_probs),
    )


def _masked_in_turn(
    lines: Sequence[Sequence[int]], special: frozenset[int], predictor: MaskPredictor
) -> Iterator[tuple[list[list[int]], list[int]]]:
    """The sentences with one mask for each token of the lines, and these tokens: some at a time."""
    tokenizer = predictor.tokenizer
    sentences: list[list[int]] = []
    wanted: list[int] = []
    for ids in lines:
        for place, token in enumerate(ids):
            if token in special:
                continue
            masked = [*ids[:place], predictor.mask_id, *ids[place + 1 :]]
            sentences.append([tokenizer.bos_id, *masked, *tokenizer.end_ids])
            wanted.append(token)
            if len(sentences) == predictor.at_once:
                yield sentences, wanted
                sentences, wanted = [], []
    if sentences:
        yield sentences, wanted
