"""Files beside the weights of an exported classifier or tagger: labels, the ids around a text, and the tokenizer."""

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer_cli.addons.embedding.encode import longest_of
from transformer_cli.addons.interop.text import folder_tokenizers, write_tokenizers
from transformer_cli.addons.interop.verify import padded_ids
from transformer_cli.addons.interop.verify_labels import LabelIds
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.models.file import ModelFile

_SIDES = ("source",)


def write_label_files(model: ModelFile, directory: Path, name: str, *, max_positions: int) -> None:
    """Write the file `name`, which is JSON, and the tokenizer of the source."""
    facts = json.dumps(label_settings(model, max_positions=max_positions), indent=2, ensure_ascii=False)
    (directory / name).write_text(f"{facts}\n", encoding="utf-8")
    write_tokenizers(model.tokenizers, directory, sides=_SIDES)
    write_vocabulary(model.tokenizers.source, "source", directory)


def write_vocabulary(tokenizer: Tokenizer, side: str, directory: Path) -> None:
    """The pieces in the order of their ids, if these are not those of its SentencePiece model."""
    if tokenizer.packed is not None:
        pieces = json.dumps(tokenizer.pieces(range(len(tokenizer))), indent=0, ensure_ascii=False)
        (directory / f"{side}_vocabulary.json").write_text(f"{pieces}\n", encoding="utf-8")


def label_settings(model: ModelFile, *, max_positions: int) -> dict[str, Any]:
    """What who asks the model has to know."""
    tokenizer, of_words = model.tokenizers.source, model.task.has_words
    found = {
        "task": "token classification" if of_words else "text classification",
        "labels": list(model.tokenizers.labels),
        "language": model.source_lang,
        "begin_ids": [] if of_words else [tokenizer.bos_id],
        "end_ids": tokenizer.end_ids,
        "pad_id": tokenizer.pad_id,
        "unk_id": tokenizer.unk_id,
        "max_length": min(longest_of(model), max_positions),
    }
    if of_words:
        return found | {"word_pooling": model.config.pooling}
    if model.config.n_segments == 2:
        return found | {"separator_ids": [tokenizer.eos_id], "end_ids": [tokenizer.eos_id]}
    return found


class LabelFolder:
    """The files of a folder as a user loads them: a LabelProgram of `verify_labels`, but for the model itself."""

    def __init__(self, directory: Path, name: str) -> None:
        self.settings = json.loads((directory / name).read_bytes())
        (self.tokenizer,) = folder_tokenizers(directory, _SIDES)

    def ask(self, ids_BS: Tensor, mask_BS: Tensor) -> Tensor:
        """Logits of texts, [B, C], or of their tokens, [B, S, C]; the mask is 1 at tokens that are real."""
        raise NotImplementedError

    def encode(self, texts: Sequence[Sequence[str]]) -> list[LabelIds]:
        return [self._ids([self.tokenizer.ids(text) for text in one]) for one in texts]

    def _ids(self, parts: list[list[int]]) -> LabelIds:
        """The ids of a text from those of its parts, as the code of the card puts them together."""
        settings = self.settings
        if settings["task"] == "token classification":
            words = [ids or [settings["unk_id"]] for ids in parts]
            return LabelIds([*chain.from_iterable(words), *settings["end_ids"]], [len(ids) for ids in words])
        first, *second = parts
        separated = [i for ids in second for i in (*settings["separator_ids"], *ids)]
        return LabelIds([*settings["begin_ids"], *first, *separated, *settings["end_ids"]])

    @torch.inference_mode()
    def logits(self, sentences: Sequence[LabelIds]) -> list[Tensor]:
        ids_BS = padded_ids([one.ids for one in sentences], self.settings["pad_id"])
        lengths_B = torch.tensor([len(one.ids) for one in sentences])
        mask_BS = (torch.arange(ids_BS.size(1)) < lengths_B[:, None]).long()
        pooling, found = self.settings.get("word_pooling", ""), self.ask(ids_BS, mask_BS)
        return [one.pooled(logits, pooling) for one, logits in zip(sentences, found, strict=True)]
