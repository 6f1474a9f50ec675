"""The divergence dump: an update whose loss was not finite, kept so that it can be run again.

<run>/incidents/step-00001204/   incident.json       the config, the update's pairs, and what each batch gave
                                 model.safetensors   the weights before it
"""

import json
import shutil
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from transformer_cli.config.compose import from_plain, to_plain
from transformer_cli.config.tasks import Task
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.batching import Batch, micro_batches
from transformer_cli.data.cache import Alignment, Array, EncodedCorpus
from transformer_cli.data.fixed_size import Sizes
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import CheckpointError, ConfigError
from transformer_cli.files import write_new
from transformer_cli.models.file import ModelFile, model_pieces, read_model
from transformer_cli.models.header import MALFORMED, MODEL_FILE, is_whole, read_json, whole
from transformer_cli.system import rename, sync_folder
from transformer_cli.training.trainer import Trainer, stable_seed

INCIDENTS, INCIDENT_FILE = "incidents", "incident.json"
_FORMAT = 1


@dataclass(frozen=True)
class BatchFinding:
    """Loss and gradient norms of one batch of an update, computed by itself."""

    pairs: list[tuple[str, str]]
    loss: float  # nats per target token of the batch
    grad_norms: dict[str, float]  # by parameter, in the order of the forward pass

    @property
    def is_finite(self) -> bool:
        return all(map(np.isfinite, [self.loss, *self.grad_norms.values()]))

    def state(self) -> dict[str, Any]:
        """The finding for JSON, which has no NaN: numbers in hexadecimal, to the last bit."""
        return {"loss": self.loss.hex(), "grad_norms": {name: norm.hex() for name, norm in self.grad_norms.items()}}


@dataclass(frozen=True)
class DivergenceDump:
    step: int
    config: TrainConfig
    model: ModelFile
    pairs: EncodedCorpus
    scaler: dict[str, Any]
    compiled_sizes: list[Sizes]
    recorded: list[dict[str, Any]]  # `Finding.state` of each batch

    def replay(self, device: torch.device) -> list[BatchFinding]:
        """The update again, on `device`."""
        trainer = Trainer(self.config, self.model.tokenizers, device)
        if trainer.compiled is not None:
            trainer.compiled.prepare(self.compiled_sizes)
        trainer.model.load_state_dict(self.model.weights)
        if self.scaler:
            trainer.scaler.load_state_dict(self.scaler)
        return diagnose(trainer, self.pairs, self.model.tokenizers, self.config.data.trained, step=self.step)


def diagnose(
    trainer: Trainer, pairs: EncodedCorpus, tokenizers: Tokenizers, task: Task, *, step: int
) -> list[BatchFinding]:
    """Each batch of the update of `step`, which consists of `pairs`, with the dropout that it had there."""
    max_tokens = trainer.settings.max_tokens_per_microbatch
    batches = micro_batches(pairs, np.arange(len(pairs)), tokenizers, max_tokens=max_tokens)
    n_tokens = sum(batch.n_target_tokens for batch in batches)
    n_linked = sum(batch.n_linked for batch in batches)
    findings = []
    for i, batch in enumerate(batches):
        trainer.optimizer.zero_grad(set_to_none=True)
        seed = stable_seed(trainer.seed, step, i)
        loss, *_ = trainer.forward_backward(batch, seed=seed, n_tokens=n_tokens, n_linked=n_linked).tolist()
        norms = {
            name: parameter.grad.norm().item()
            for name, parameter in trainer.model.named_parameters()
            if parameter.grad is not None
        }
        findings.append(BatchFinding(_text(batch, tokenizers, task), loss / batch.n_target_tokens, norms))
    trainer.optimizer.zero_grad(set_to_none=True)
    return findings


def _text(batch: Batch, tokenizers: Tokenizers, task: Task) -> list[tuple[str, str]]:
    def of_target(source: list[int], ids: list[int]) -> str:
        if task.has_spans:
            return tokenizers.source.decode(source[ids[0] : ids[-1] + 1])
        if tokenizers.labels:
            return " ".join(tokenizers.labels[i] for i in ids)
        return tokenizers.target.decode(ids)

    def of_source(ids: list[int]) -> str:
        return tokenizers.source.decode([i for i in ids if i < len(tokenizers.source)])  # a mask is no piece

    return [(of_source(source), of_target(source, target)) for source, target in batch.pairs()]


def write_divergence_dump(
    run_dir: Path,
    trainer: Trainer,
    model: ModelFile,
    config: TrainConfig,
    tokenizers: Tokenizers,
    *,
    step: int,
    pairs: EncodedCorpus,
) -> Path:
    """Write the update of `step`, which consists of `pairs`, to a folder of the run. Raises OSError."""
    folder = run_dir / INCIDENTS / f"step-{step:08d}"
    findings = diagnose(trainer, pairs, tokenizers, config.data.trained, step=step)
    words = {} if pairs.word_ends is None else {"word_ends": _sentences(pairs.word_ends, pairs.target_offsets)}
    content = {
        "format": _FORMAT,
        "step": step,
        "config": to_plain(config),
        "scaler": trainer.scaler.state_dict(),
        "compiled_sizes": trainer.compiled_sizes,
        "source_ids": _sentences(pairs.source_ids, pairs.source_offsets),
        "target_ids": _sentences(pairs.target_ids, pairs.target_offsets),
        **words,
        **_links(pairs),
        "batches": [{**finding.state(), "pairs": finding.pairs} for finding in findings],
    }
    temporary = folder.with_name(f".tmp-{folder.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    write_new(temporary / INCIDENT_FILE, [json.dumps(content, indent=1, ensure_ascii=False).encode()])
    write_new(temporary / MODEL_FILE, model_pieces(model))
    sync_folder(temporary)
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier try at the same step, which was the same
    rename(temporary, folder)
    sync_folder(folder.parent)
    return folder


def read_divergence_dump(folder: Path) -> DivergenceDump:
    """Raises CheckpointError."""
    file = folder / INCIDENT_FILE
    try:
        content = read_json(file.read_bytes(), file)
        model = read_model(folder / MODEL_FILE)
        if not is_whole(content["format"], least=1):
            raise ValueError(f"format is {content['format']!r}")
        if content["format"] > _FORMAT:
            raise CheckpointError(f"{file}: kept by a newer tfm (format {content['format']}). Install that")
        sources, targets = content["source_ids"], content["target_ids"]
        return DivergenceDump(
            step=whole(content["step"], "step"),
            config=from_plain(TrainConfig, content["config"]),
            model=model,
            pairs=_with_links(EncodedCorpus.of(sources, targets, content.get("word_ends")), content.get("links")),
            scaler=dict(content["scaler"]),
            compiled_sizes=[Sizes(*map(int, sizes)) for sizes in content["compiled_sizes"]],
            recorded=[{key: batch[key] for key in ("loss", "grad_norms")} for batch in content["batches"]],
        )
    except OSError as error:
        raise CheckpointError(
            f"{error.filename or file}: {error.strerror}. Name a folder below <run>/{INCIDENTS}"
        ) from error
    except (ConfigError, *MALFORMED) as error:
        raise CheckpointError(f"{file}: not an incident that tfm has kept ({error!r}). Restore it") from error


def _links(pairs: EncodedCorpus) -> dict[str, Any]:
    """The links of each pair, as source and target positions, if the pairs are aligned."""
    if pairs.alignment is None:
        return {}
    sides = (pairs.alignment.sources, pairs.alignment.targets)
    return {"links": [_sentences(side, pairs.alignment.offsets) for side in sides]}


def _with_links(pairs: EncodedCorpus, links: list[list[list[int]]] | None) -> EncodedCorpus:
    if links is None:
        return pairs
    sources, targets = ([np.array(one, np.int64) for one in side] for side in links)
    offsets = np.cumsum([0, *map(len, sources)])
    return replace(pairs, alignment=Alignment(np.concatenate(sources), np.concatenate(targets), offsets))


def _sentences(ids: Array, offsets: Array) -> list[list[int]]:
    return [ids[start:end].tolist() for start, end in pairwise(offsets)]
