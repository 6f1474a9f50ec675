"""The page of `tfm attention` for one sentence of a served model."""

import threading
from pathlib import Path

from transformer_cli.addons.attention_maps.maps import compute_attention_maps
from transformer_cli.addons.attention_maps.page import render
from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.models import ServedModel, Step
from transformer_cli.config.model import Positions
from transformer_cli.data.hashes import file_sha256
from transformer_cli.decoding.batch_queue import Call, GoneError
from transformer_cli.errors import TfmError
from transformer_cli.models.file import ModelFile, read_model, require
from transformer_cli.models.transformer import Transformer

_MAX_TOKENS = 150  # of a side: a page of 13 MB for a model with 6 layers and 8 heads


class AttentionPages:
    """Attention weights by torch, whichever engine translates.

    A model is read once more when its weights are first asked for, and kept. One page is made at a time.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loaded: dict[Path, tuple[str, ModelFile, Transformer]] = {}  # with the SHA-256 of the file

    def page(self, step: Step, text: str, translation: str, call: Call) -> str:
        """HTML. Raises RequestError 400 for what has no attention weights, or too many, and GoneError."""
        while not self.lock.acquire(timeout=0.2):
            if call.is_cancelled:
                raise GoneError
            if call.is_over:
                raise RequestError(503, "attention: others are being drawn. Try again later", retry_after=1)
        try:
            file, model = self._load(step.model)
            source, target = _encode(file, step, text, translation)
            name = f"{step.model.name}, {file.source_lang} → {file.target_lang}"
            return render(compute_attention_maps(model, file.tokenizers, source, target, name=name))
        except TfmError as error:
            raise RequestError(500, str(error)) from error
        except OSError as error:
            raise RequestError(503, f"{step.model.name}: its file cannot be read ({error.strerror})") from error
        finally:
            self.lock.release()

    def _load(self, served: ServedModel) -> tuple[ModelFile, Transformer]:
        sha256, *_ = self.loaded.get(served.path, ("",))
        if sha256 != served.sha256:
            if served.is_export:
                raise RequestError(
                    400, f"{served.name}: an exported model, which gives no attention weights. Serve the model file"
                )
            if file_sha256(served.path) != served.sha256:
                raise RequestError(503, f"{served.name}: its file is being replaced. Try again", retry_after=5)
            file = read_model(served.path)
            require(file, served.path, "transformer")
            self.loaded[served.path] = (served.sha256, file, file.build(served.device, copies=False))
        _, file, model = self.loaded[served.path]
        return file, model


def _encode(file: ModelFile, step: Step, text: str, translation: str) -> tuple[list[int], list[int]]:
    """Ids of both sides, without BOS and EOS."""
    tokenizers = file.tokenizers
    tags = step.tags
    (source,), (target,) = tokenizers.source.encode([text]), tokenizers.target.encode([translation])
    target = [*tokenizers.source.asked_ids(tags), *target] if target else []
    limit = _MAX_TOKENS
    if file.config.positions is Positions.learned:
        limit = min(limit, file.config.max_positions - 1)
    for name, ids in (("text", source), ("translation", target)):
        if not 0 < len(ids) <= limit:
            raise RequestError(
                400, f"{name}: {len(ids)} tokens, and attention is shown of 1 to {limit}. Give one sentence"
            )
    return tokenizers.source.behind(tags, source), target
