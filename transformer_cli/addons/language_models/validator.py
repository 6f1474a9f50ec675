"""Dev scores of a language model."""

from collections.abc import Callable

from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.corpus import ParallelText
from transformer_cli.models.transformer import Model
from transformer_cli.training.validation import Autocast, DevScores, Validator, encoded_lines, within_length


class LanguageModelValidator(Validator):
    """Computes the NLL of a language model on the dev set."""

    def encode(self, text: ParallelText) -> EncodedCorpus:
        lines = [line for line in text.targets if line.strip()]
        pairs: list[tuple[list[int], list[int]]] = [([], ids) for ids in encoded_lines(self.tokenizers.target, lines)]
        return within_length(pairs, max_length=self.config.data.max_length)

    def _score(self, model: Model, nll: float, autocast: Autocast, between: Callable[[], None]) -> DevScores:
        return DevScores(nll)
