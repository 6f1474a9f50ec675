"""A classifier in Python: `tfm.load_classifier`.

Shapes: C classes.
"""

from collections.abc import Sequence
from threading import Lock

import torch

from transformer_cli.addons.classification.classifier import Classifier
from transformer_cli.addons.classification.run_classify import decide, pair_fault
from transformer_cli.addons.embedding.encode import LineEncoder
from transformer_cli.addons.embedding.encoder_filter import warn_of_texts
from transformer_cli.data.lines import list_of_texts
from transformer_cli.errors import DataError
from transformer_cli.inference.batch_size import BatchTokens
from transformer_cli.models.file import ModelFile
from transformer_cli.models.labelling import TextLabel


class TextLabeller:
    """Classifies as `tfm classify` does."""

    def __init__(self, model: ModelFile, device: torch.device, batch_tokens: BatchTokens) -> None:
        self.labels = model.tokenizers.labels
        classifier = model.build_as(Classifier, device)
        self._reader, self._lock = LineEncoder(classifier, model, device=device, batch_tokens=batch_tokens), Lock()

    def classify(self, texts: Sequence[str | tuple[str, str]]) -> list[TextLabel]:
        texts = list_of_texts(texts, "texts")
        lines = [text if isinstance(text, str) else "\t".join(text) for text in texts]
        if self._reader.n_texts == 2:
            for number, line in enumerate(lines, start=1):
                if (fault := pair_fault(line)) is not None:
                    raise DataError(f"text {number}: {fault}. Give (first, second), or first<TAB>second")
        elif number := next((n for n, text in enumerate(texts, start=1) if not isinstance(text, str)), 0):
            raise DataError(f"text {number}: a pair, and this model classifies single texts. Give one text")
        with self._lock:  # the reader counts what it cuts
            self._reader.begin()
            found = self._reader.read(lines)
            warn_of_texts(self._reader)
        return [
            TextLabel(None, {}) if logits_C is None else self._label(*decide(logits_C, self.labels))
            for logits_C in found
        ]

    def _label(self, label: str, probabilities: Sequence[float]) -> TextLabel:
        return TextLabel(label, dict(zip(self.labels, probabilities, strict=True)))
