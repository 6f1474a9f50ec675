"""Records, while lines are classified, what the hops of the model read in them, for a page.

Shapes: B batch, S source, R hops, L tokens.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from transformer_cli.addons.classification.classifier import Classifier
from transformer_cli.addons.classification.hops.page import ReadLine, render
from transformer_cli.addons.embedding.encode import LineEncoder, ask_each
from transformer_cli.addons.embedding.pooling import padded_sentences, source_layout
from transformer_cli.config.poolings import with_pooling_options
from transformer_cli.data.lines import shown
from transformer_cli.errors import ConfigError
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile
from transformer_cli.text_io import open_output

MOST_SHOWN = 500  # of a page: those after them would make it slow to open


class HopRecord:
    """The lines so far that go onto the page. Raises ConfigError for a pooling without weights of tokens."""

    def __init__(self, classifier: Classifier, model: ModelFile, reader: LineEncoder, path: Path) -> None:
        self.classifier, self.model, self.reader, self.path = classifier, model, reader, path
        self.lines: list[ReadLine] = []
        self.n_left_out = 0
        with torch.inference_mode():
            tried = self.weights(torch.full((1, 2), reader.tokenizer.eos_id, device=reader.device))
        if tried is None:
            raise ConfigError(
                f"--html: model.pooling={model.config.pooling} of {shown(path)} has no weights of tokens to draw. Leave"
                " it out, or train with model.pooling=self_attentive"
            )

    def weights(self, source_BS: Tensor) -> Tensor | None:
        """The weights of the tokens in each hop, [B, R, S]."""
        states_BSD, source, _ = self.classifier.states(
            source_BS, source_layout(source_BS, self.reader.tokenizer.pad_id)
        )
        ((x_BSD, is_real_BS),) = padded_sentences(states_BSD, source)
        return self.classifier.pooling.token_weights(x_BSD, is_real_BS)

    def add(self, numbers: Sequence[int], ids: Sequence[Sequence[int]], logits: Sequence[Tensor]) -> None:
        """Lines that are not blank: their numbers, ids as the model reads them, and logits of their classes."""
        room = MOST_SHOWN - len(self.lines)
        self.n_left_out += max(0, len(ids) - room)
        numbers, ids, logits = numbers[:room], ids[:room], logits[:room]
        reader, labels = self.reader, self.model.tokenizers.labels

        def ask(source_BS: Tensor) -> Tensor:
            weights_BRS = self.weights(source_BS)
            assert weights_BRS is not None
            return weights_BRS

        found = ask_each(
            ask, ids, pad_id=reader.tokenizer.pad_id, device=reader.device, batch_tokens=reader.batch_tokens
        )
        for number, its_ids, logits_C, weights_RS in zip(numbers, ids, logits, found, strict=True):
            label = labels[int(logits_C.argmax())]
            probability = float(logits_C.double().softmax(0).amax())
            tokens = reader.tokenizer.pieces(its_ids)
            self.lines.append(ReadLine(number, label, probability, tokens, weights_RS[:, : len(its_ids)]))

    def write(self, output: str, *, replace: bool) -> None:
        notes = []
        if self.n_left_out:
            notes = [f"The first {MOST_SHOWN} lines are shown; {self.n_left_out:,} more were classified"]
            LOGGER.warning("--html %s: %s", shown(output), notes[0])
        options = with_pooling_options(self.model.config).pooling_options
        settings = ", ".join(f"{name} {value}" for name, value in sorted(options.items()))
        pooling = f"{self.model.config.pooling}{f' ({settings})' * bool(settings)}"
        facts = {"Model": shown(self.path), "Pooling": pooling, "Classes": ", ".join(self.model.tokenizers.labels)}
        with open_output(output, replace=replace) as sink:
            sink.write(render(self.lines, facts=facts, notes=notes).encode())
