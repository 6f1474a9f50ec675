"""A tagger in Python: `tfm.load_tagger`."""

from collections.abc import Sequence
from threading import Lock

import torch

from transformer_cli.addons.tagging.run_tag import report_on, word_probabilities
from transformer_cli.addons.tagging.word_tagger import WordTagger
from transformer_cli.addons.tagging.words import words_of_line
from transformer_cli.data.lines import list_of_texts
from transformer_cli.inference.batch_size import BatchTokens
from transformer_cli.models.file import ModelFile
from transformer_cli.models.labelling import WordLabels


class WordLabeller:
    """Labels words as `tfm tag` does."""

    def __init__(self, model: ModelFile, device: torch.device, batch_tokens: BatchTokens) -> None:
        self._tagger, self._lock = WordTagger(model, device=device, batch_tokens=batch_tokens), Lock()
        self.labels = self._tagger.labels

    def tag(self, sentences: Sequence[str | Sequence[str]]) -> list[WordLabels]:
        words = [
            words_of_line(one) if isinstance(one, str) else list(one) for one in list_of_texts(sentences, "sentences")
        ]
        with self._lock:  # the tagger counts what it cuts
            self._tagger.begin()
            found = self._tagger.tag(words)
            report_on(self._tagger)
        return [
            WordLabels(its_words, self._tagger.predicted(logits_TC), word_probabilities(logits_TC))
            for its_words, logits_TC in zip(words, found, strict=True)
        ]
