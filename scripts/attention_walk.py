"""Trains the small models of docs/attention.md, and writes their numbers and pictures into it.

python scripts/attention_walk.py runs/attention_walk

A block of the page begins with a line `<!-- walk: NAME -->`; dictionaries at the end map names to functions.
No part of the model is implemented here again: the numbers come from hooks in one forward pass, or from methods of the
model. The one exception is `by_hand`, equation 1 written out, which is compared with the model's result.

Shapes: L tokens of a sentence, S of the source, T of the target, D width, H heads, E head width, V vocabulary.
"""

import argparse
import json
import math
import os
import platform
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from transformer_cli.config.compose import load_config
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.model import ModelConfig, Norm
from transformer_cli.config.yaml_files import config_dir
from transformer_cli.data.batching import Batch, BatchPlan, micro_batches
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.prepare import prepare
from transformer_cli.data.readers.base import Pair
from transformer_cli.data.readers.builtin import read_builtin
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.results import Translated
from transformer_cli.decoding.torch_engine import torch_translator
from transformer_cli.evaluation.metrics import bleu
from transformer_cli.models.attention import CrossAttention, SelfAttention
from transformer_cli.models.attention_kernels import attention_weights
from transformer_cli.models.embeddings import sinusoid_table
from transformer_cli.models.file import read_model
from transformer_cli.models.header import MODEL_FILE
from transformer_cli.models.transformer import Transformer
from transformer_cli.training.forward import predict_batch
from transformer_cli.training.loss import smoothed_nll
from transformer_cli.training.schedules import build_schedule
from transformer_cli.training.trainer import Trainer
from transformer_cli.training.validation import encode_pairs

PAGE = config_dir().parent / "docs" / "attention.md"
PICTURES = PAGE.parent / "pictures"
BLOCK = re.compile(r"(?<=^<!-- walk: )([\w-]+)( -->\n```\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)

SENTENCE = "She sat down in the chair, it was very comfortable."
TRANSLATION = "Elle s'est assise dans la chaise, elle était très confortable."
PRONOUN, ANTECEDENT = "▁it", "▁chair"  # the pronoun whose gender French needs, and its antecedent
COLUMNS = 6  # of a wide matrix that are printed
CPU = torch.device("cpu")

# What is trained, by the name of the run. The model of the walk is the usual tiny one at half its width.
WHOLE_WORDS = "data.tokenizer.byte_fallback=false"  # a vocabulary without 256 bytes has more words in one piece
DEMO = "demo_en_fr_without_places"
CORPUS = f"data={DEMO}"
SMALL = [
    CORPUS,
    WHOLE_WORDS,
    "model.d_model=64",
    "model.d_ff=256",
    "train.tokens_per_update=1024",
    "train.max_tokens_per_microbatch=1024",
    "train.average_last=1",
]
LONG = ["train.max_steps=1000", "train.eval_every=250", "train.save_every=250", "train.best_metric=nll"]
DEEP = [
    "model.n_encoder_layers=6",
    "model.n_decoder_layers=6",
    "schedule=constant",
    "schedule.lr=3e-3",
    "decode=greedy",
    "train.max_steps=100",
    "train.log_every=25",
    "train.eval_every=100",
    "train.save_every=100",
    "train.eval_lines=1",
]
WALK, SMOOTHED, UNSMOOTHED = "walk", "smoothed", "unsmoothed"
NORMS = {
    "post-LN, with warm-up": "post-warm",
    "post-LN, without": "post-cold",
    "pre-LN, with warm-up": "pre-warm",
    "pre-LN, without": "pre-cold",
}
RUNS: dict[str, list[str]] = {
    WALK: [*SMALL, *LONG],
    SMOOTHED: ["experiment=table3_base"],
    UNSMOOTHED: ["experiment=table3_d_smoothing_0.0"],
} | {
    run: [*SMALL, *DEEP, f"norm={norm}", f"schedule.warmup_steps={n_steps}"]
    for norm in ("post", "pre")
    for run, n_steps in ((f"{norm}-warm", 50), (f"{norm}-cold", 1))
}


@dataclass(frozen=True)
class Call:
    """First argument and output of one call of a module."""

    input: Tensor
    output: Tensor


class Walk:
    """A model, and inputs and outputs of all its modules in one forward pass over SENTENCE and TRANSLATION."""

    def __init__(self, model: Transformer, tokenizers: Tokenizers) -> None:
        self.model, self.tokenizers = model, tokenizers
        (source,), (target,) = tokenizers.source.encode([SENTENCE]), tokenizers.target.encode([TRANSLATION])
        self.source_ids = [*source, tokenizers.source.eos_id]
        self.written_ids = [*target, tokenizers.target.eos_id]
        self.read_ids = [tokenizers.target.bos_id, *target]
        self.source = tokenizers.source.pieces(self.source_ids)
        self.written = tokenizers.target.pieces(self.written_ids)
        self.read = tokenizers.target.pieces(self.read_ids)
        self.calls, self.logits_TV = self.trace()
        inputs = torch.tensor([self.source_ids]), torch.tensor([self.read_ids])
        self.weights = {
            kind: torch.stack([layer_BHRC[0] for layer_BHRC in layers])  # Y layers: [Y, H, R, C]
            for kind, layers in model.attention_weights(*inputs).items()
        }

    @torch.no_grad()
    def trace(self) -> tuple[dict[str, list[Call]], Tensor]:
        """Calls of each module by its name, in order and without the batch dimension; and the logits."""
        calls: dict[str, list[Call]] = defaultdict(list)

        def keep(name: str) -> Callable[..., None]:
            def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
                if isinstance(output, Tensor):
                    calls[name].append(Call(args[0][0], output[0]))

            return hook

        hooks = [module.register_forward_hook(keep(name)) for name, module in self.model.named_modules()]
        try:
            logits_BTV = self.model(torch.tensor([self.source_ids]), torch.tensor([self.read_ids]))
        finally:
            for hook in hooks:
                hook.remove()
        return calls, logits_BTV[0]

    @cached_property
    def encoder_attention(self) -> SelfAttention:
        attention = self.model.encoder.layers[0].self_attention
        assert isinstance(attention, SelfAttention)
        return attention

    @cached_property
    def projected(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of the first layer, [H, L, E] each."""
        x_LD = self.calls["encoder.layers.0.self_attention"][0].input
        with torch.no_grad():
            q_LHE, k_LHE, v_LHE = self.encoder_attention.project(x_LD, None)
        return q_LHE.transpose(0, 1), k_LHE.transpose(0, 1), v_LHE.transpose(0, 1)

    @property
    def pronoun(self) -> int:
        return self.source.index(PRONOUN)

    @cached_property
    def head(self) -> int:
        """The head of the first layer in which the pronoun attends most to its antecedent."""
        return int(self.weights["encoder"][0, :, self.pronoun, self.source.index(ANTECEDENT)].argmax())


# ---- Printing


def number(x: float) -> str:
    return f"{round(x, 2) + 0.0:7.2f}"  # no -0.00


def matrix(labels: Sequence[str], x_LD: Tensor) -> Iterator[str]:
    """Rows with their labels, and only the first columns."""
    width = max(14, *(len(label) + 1 for label in labels)) if len(labels) > 1 else 14
    for label, row_D in zip(labels, x_LD, strict=True):
        more = "  …" if len(row_D) > COLUMNS else ""
        yield f"{label:<{width}}" + "".join(number(x) for x in row_D[:COLUMNS].tolist()) + more


def shape(x: Tensor) -> str:
    return " × ".join(map(str, x.shape))


# ---- The sentence on its way through the model. Each yields the lines of a block.


def pieces(walk: Walk) -> Iterator[str]:
    yield SENTENCE
    widths = [max(len(piece), 4) + 1 for piece in walk.source]
    for row in (walk.source, walk.source_ids):
        yield "".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))


def embedding(walk: Walk) -> Iterator[str]:
    table, x_SD = walk.model.source_embedding, walk.calls["source_embedding"][0].output
    row = table.weight[walk.source_ids[walk.pronoun]].detach()
    yield f"matrix {shape(table.weight)}, √d_model = {table.scale:g}"
    yield from matrix([f"row {walk.source_ids[walk.pronoun]}"], row[None])
    yield f"times {table.scale:g}: {shape(x_SD)}"
    yield from matrix(walk.source, x_SD)


def positions(walk: Walk) -> Iterator[str]:
    call = walk.calls["encoder.positions"][0]
    yield "the sinusoids of the first positions"
    table_LD = sinusoid_table(4, call.input.size(-1), interleaved=True, dtype=torch.float32, device=CPU)
    yield from matrix([f"position {i}" for i in range(4)], table_LD)
    yield f"{PRONOUN}: embedding, position {walk.pronoun}, and their sum"
    embedded_D, summed_D = call.input[walk.pronoun], call.output[walk.pronoun]
    rows = torch.stack([embedded_D, summed_D - embedded_D, summed_D])
    yield from matrix(["embedding", f"position {walk.pronoun}", "sum"], rows)


def queries(walk: Walk) -> Iterator[str]:
    q_HLE, k_HLE, v_HLE = walk.projected
    n_heads, _, width = q_HLE.shape
    yield f"layer 1: {n_heads} heads, queries, keys and values of {width} numbers each; head {walk.head + 1}"
    labels = [f"query {PRONOUN}", f"key {PRONOUN}", f"value {PRONOUN}", f"key {ANTECEDENT}"]
    of_pronoun = [x_HLE[walk.head, walk.pronoun] for x_HLE in (q_HLE, k_HLE, v_HLE)]
    yield from matrix(labels, torch.stack([*of_pronoun, k_HLE[walk.head, walk.source.index(ANTECEDENT)]]))


def scores(walk: Walk) -> Iterator[str]:
    q_HLE, k_HLE, _ = walk.projected
    raw_S = k_HLE[walk.head] @ q_HLE[walk.head, walk.pronoun]
    root = math.sqrt(q_HLE.size(-1))
    yield f"{PRONOUN} attends to    q·k  q·k/{root:g}  softmax"
    weights_S = walk.weights["encoder"][0, walk.head, walk.pronoun]
    for label, raw, weight in zip(walk.source, raw_S.tolist(), weights_S.tolist(), strict=True):
        yield f"{label:<16}{raw:7.2f}{raw / root:8.2f}{weight:9.3f}"


def by_hand(walk: Walk) -> Tensor:
    """Equation 1 for all heads of the first layer, and its output projection: [L, D]."""
    q_HLE, k_HLE, v_HLE = walk.projected
    scores_HLL = torch.einsum("hqe,hke->hqk", q_HLE, k_HLE) / math.sqrt(q_HLE.size(-1))
    powers_HLL = scores_HLL.exp()
    weights_HLL = powers_HLL / powers_HLL.sum(dim=-1, keepdim=True)
    heads_HLE = torch.einsum("hqk,hke->hqe", weights_HLL, v_HLE)
    out = walk.encoder_attention.to_out
    return torch.cat(list(heads_HLE), dim=-1) @ out.weight.T + out.bias  # heads concatenated


@torch.no_grad()
def weighted_sum(walk: Walk) -> Iterator[str]:
    _, _, v_HLE = walk.projected
    weights_S = walk.weights["encoder"][0, walk.head, walk.pronoun]
    order = weights_S.argsort(descending=True).tolist()
    yield f"head {walk.head + 1}, {PRONOUN}: values by weight"
    first = [f"{weights_S[i]:.3f} {walk.source[i]}" for i in order[:3]]
    sum_1E = (weights_S @ v_HLE[walk.head])[None]
    yield from matrix([*first, "sum of all"], torch.cat([v_HLE[walk.head, order[:3]], sum_1E]))
    output_LD, hand_LD = walk.calls["encoder.layers.0.self_attention"][0].output, by_hand(walk)
    yield f"all heads, projected: {shape(output_LD)}"
    yield from matrix(["by hand", "the fast path"], torch.stack([hand_LD[walk.pronoun], output_LD[walk.pronoun]]))
    is_equal = bool(((hand_LD - output_LD).abs() <= 1e-5).all())
    yield f"equal to 1e-5 at all {output_LD.numel()} places: {'yes' if is_equal else 'no'}"


def heads(walk: Walk) -> Iterator[str]:
    yield f"{PRONOUN} attends most to, in the encoder"
    for y, weights_HSS in enumerate(walk.weights["encoder"], start=1):
        for h, weights_S in enumerate(weights_HSS[:, walk.pronoun], start=1):
            weight, i = weights_S.max(dim=0)
            yield f"layer {y} head {h}   {walk.source[int(i)]:<16}{float(weight):.3f}"


def residual(walk: Walk) -> Iterator[str]:
    layer, at = "encoder.layers.0", walk.pronoun
    x_D = walk.calls[f"{layer}.around_self_attention"][0].input[at]
    norm = walk.calls[f"{layer}.around_self_attention.norm"][0]
    rows = {
        "x": x_D,
        "attention(x)": walk.calls[f"{layer}.self_attention"][0].output[at],
        "their sum": norm.input[at],
        "LayerNorm": norm.output[at],
    }
    yield from statistics(rows)


def feed_forward(walk: Walk) -> Iterator[str]:
    layer, at = "encoder.layers.0", walk.pronoun
    hidden_LF = walk.calls[f"{layer}.feed_forward.to_hidden"][0].output
    active_LF = walk.calls[f"{layer}.feed_forward.to_out"][0].input
    yield f"hidden {shape(hidden_LF)}; ReLU leaves {float((active_LF > 0).double().mean()):.0%} above zero"
    norm = walk.calls[f"{layer}.around_feed_forward.norm"][0]
    rows = {
        "x": walk.calls[f"{layer}.around_feed_forward"][0].input[at],
        "feed-forward(x)": walk.calls[f"{layer}.feed_forward"][0].output[at],
        "their sum": norm.input[at],
        "LayerNorm": norm.output[at],
    }
    yield from statistics(rows)


def statistics(rows: dict[str, Tensor]) -> Iterator[str]:
    """Vectors, with the mean and the deviation of all their numbers."""
    yield f"{PRONOUN:<16}{'mean':>6}{'std':>7}   first numbers"
    for name, x_D in rows.items():
        first = "".join(number(x) for x in x_D[: COLUMNS - 2].tolist())
        yield f"{name:<15}{number(float(x_D.mean()))}{number(float(x_D.std(correction=0)))}   {first}  …"


def memory(walk: Walk) -> Iterator[str]:
    memory_SD = walk.calls["encoder"][0].output
    yield f"memory {shape(memory_SD)}"
    yield from matrix(walk.source, memory_SD)


@torch.no_grad()
def mask(walk: Walk) -> Iterator[str]:
    n = 6
    yield "decoder, layer 1, head 1: rows attend to columns"
    yield " " * 12 + "".join(f"{label:>9}" for label in walk.read[:n])
    for label, row_T in zip(walk.read[:n], walk.weights["decoder"][0, 0, :n, :n], strict=True):
        yield f"{label:<12}" + "".join(f"{x:9.3f}" for x in row_T.tolist())
    other = torch.tensor([[*walk.read_ids[:-1], walk.tokenizers.target.unk_id]])
    logits_TV = walk.model(torch.tensor([walk.source_ids]), other)[0]
    moved_T = (logits_TV - walk.logits_TV).abs().amax(dim=-1)
    before, own = float(moved_T[:-1].max()), float(moved_T[-1])
    yield f"another last token: the {len(moved_T) - 1} logits before it move by {before:.1f}, its own up to {own:.1f}"


def cross(walk: Walk) -> Iterator[str]:
    yield "predicts        attends most to weight   (last layer, mean of the heads)"
    for label, row_S in zip(walk.written, walk.weights["cross"][-1].mean(dim=0), strict=True):
        weight, i = row_S.max(dim=0)
        yield f"{label:<16}{walk.source[int(i)]:<16}{float(weight):6.3f}"


def logits(walk: Walk) -> Iterator[str]:
    yield f"logits {shape(walk.logits_TV)}; the three most probable after each token"
    for label, row_V in zip(walk.read, walk.logits_TV, strict=True):
        p_K, ids_K = row_V.softmax(dim=-1).topk(3)
        found = walk.tokenizers.target.pieces(ids_K.tolist())
        row = "".join(f"{piece:<14}{p:.3f}  " for piece, p in zip(found, p_K.tolist(), strict=True))
        yield f"{label:<14}→ {row}"


def search(walk: Walk) -> Iterator[str]:
    beam = DecodeConfig(n_best=4)
    for n in (1, 2, 3):
        yield f"after {n} token{'s' * (n > 1)}"
        yield from hypotheses(walk, replace(beam, max_length=n))
    yield "at the end"
    yield from hypotheses(walk, beam)


def hypotheses(walk: Walk, config: DecodeConfig) -> Iterator[str]:
    (line,) = torch_translator(walk.model, walk.tokenizers, config, device=CPU).translate([SENTENCE])
    for candidate in line.candidates:
        yield f"{candidate.log_prob:8.2f}  {candidate.text}"


# ---- Without training: these depend on seeds only


def seeded(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def scaling(widths: Sequence[int] = (4, 8, 16, 32, 64, 128, 256, 512)) -> Iterator[str]:
    """1,000 queries and 32 keys for each, all of their d_k numbers drawn from N(0, 1)."""
    yield "              q·k           softmax(q·k)            softmax(q·k / √d_k)"
    yield " d_k     variance    largest    gradient      largest    gradient"
    for d_k in widths:
        q_1K1E = torch.randn(1, 1000, 1, d_k, generator=seeded())
        k_1KSE = torch.randn(1, 1000, 32, d_k, generator=seeded(2))
        variance = float((q_1K1E @ k_1KSE.transpose(-1, -2)).var())
        row = ""
        for scale in (math.sqrt(d_k), 1.0):  # the first undoes the division by √d_k in attention_weights
            p_KS = attention_weights(q_1K1E * scale, k_1KSE)[0, :, 0].double()
            # ‖diag(p) - p pᵀ‖, the norm of the Jacobian of softmax.
            jacobian_norm = (torch.diag_embed(p_KS) - p_KS[:, :, None] * p_KS[:, None, :]).flatten(1).norm(dim=1)
            row += f"{float(p_KS.amax(dim=-1).mean()):11.3f}{float(jacobian_norm.median()):12.4f}  "
        yield f"{d_k:4}{variance:13.1f}{row}"


def first_gradients(tokenizers: Tokenizers, n_layers: int = 6) -> Iterator[str]:
    """The gradient norm, on the first batch at initialisation, of each feed-forward layer's output matrix."""
    batch = first_batch(tokenizers)
    found = {norm: gradient_norms(norm, tokenizers, batch, n_layers) for norm in (Norm.post, Norm.pre)}
    yield "         post-LN               pre-LN"
    yield "layer    encoder   decoder     encoder   decoder"
    for y in range(n_layers):
        row = "  ".join("".join(f"{found[norm][side][y]:10.4f}" for side in ("encoder", "decoder")) for norm in found)
        yield f"{y + 1:<5}  {row}"


def first_batch(tokenizers: Tokenizers) -> Batch:
    corpus = encode_pairs(as_text(read_builtin(DEMO, "train")[:64]), tokenizers, max_length=256)
    (batch,) = micro_batches(corpus, np.arange(len(corpus)), tokenizers, max_tokens=10_000)
    return batch


def gradient_norms(norm: Norm, tokenizers: Tokenizers, batch: Batch, n_layers: int) -> dict[str, list[float]]:
    layers: dict[str, Any] = {"n_encoder_layers": n_layers, "n_decoder_layers": n_layers}
    model = untrained(ModelConfig(**layers, d_model=64, n_heads=4, d_ff=256, norm=norm), tokenizers)
    logits_KV, targets_K = predict_batch(model, batch, CPU)
    loss, _ = smoothed_nll(logits_KV, targets_K, smoothing=0.1)
    torch.autograd.backward(loss / batch.n_target_tokens)
    grads = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {
        side: [float(torch.norm(grads[f"{side}.layers.{y}.feed_forward.to_out.weight"])) for y in range(n_layers)]
        for side in ("encoder", "decoder")
    }


def untrained(config: ModelConfig, tokenizers: Tokenizers) -> Transformer:
    torch.manual_seed(1)
    return Transformer(config, *tokenizers.vocabularies).eval()


# ---- With training


def unscaled(n_updates: int = 150, every: int = 50, d_model: int = 128) -> Iterator[str]:
    """One head of all the width, trained as usual, and with queries so much longer that nothing divides the scores."""
    sizes = [WHOLE_WORDS, f"model.d_model={d_model}", "model.d_ff=256", "model.n_heads=1"]
    config = load_config("train", [*sizes, "train.tokens_per_update=1024", "train.max_tokens_per_microbatch=1024"])
    prepared = prepare(config.data)
    schedule = build_schedule(config.schedule, d_model=d_model, max_steps=config.train.max_steps)
    lengths = prepared.train.source_lengths, prepared.train.target_lengths
    plan = BatchPlan(*lengths, tokens_per_update=config.train.tokens_per_update, seed=config.seed)
    ends = range(every, n_updates + 1, every)
    yield f"d_k = {d_model}: train NLL of updates" + "".join(f"{f'–{n}':>8}" for n in ends)
    for name, root in (("with ÷ √d_k", 1.0), ("without", math.sqrt(d_model))):
        trainer, nll = Trainer(config, prepared.tokenizers, CPU), []
        lengthen_queries(trainer.model, root)
        for step in range(1, n_updates + 1):
            batches = micro_batches(
                prepared.train,
                plan.update(step - 1),
                prepared.tokenizers,
                max_tokens=config.train.max_tokens_per_microbatch,
            )
            nll.append(float(trainer.train_step(batches, step=step, lr=schedule(step)).nll))
        means = [sum(nll[n : n + every]) / every for n in range(0, n_updates, every)]
        yield f"{name:<{27 + len(str(d_model))}}" + "".join(f"{mean:8.3f}" for mean in means)


def lengthen_queries(model: nn.Module, factor: float) -> None:
    """Multiply the queries of all attention with `factor`, whenever they are projected."""

    def hook(width: int) -> Callable[..., Tensor]:
        return lambda module, args, x: torch.cat([x[..., :width] * factor, x[..., width:]], dim=-1)

    for module in model.modules():
        if isinstance(module, SelfAttention | CrossAttention):
            projection = module.to_qkv if isinstance(module, SelfAttention) else module.to_q
            projection.register_forward_hook(hook(module.widths[0]))


def warm_up(runs: Path) -> Iterator[str]:
    steps: list[int] = []
    for name, run in NORMS.items():
        entries = [json.loads(line) for line in (runs / run / "metrics.jsonl").read_bytes().split(b"\n")[:-1]]
        train = {entry["step"]: entry["nll"] for entry in entries if entry["kind"] == "train"}
        if not steps:
            steps = list(train)
            yield "train NLL of updates    " + "".join(f"{f'–{step}':>8}" for step in steps) + f"{'dev NLL':>10}"
        dev = [entry["dev_nll"] for entry in entries if entry["kind"] == "dev"][-1]
        yield f"{name:<24}" + "".join(f"{train[step]:8.3f}" for step in steps) + f"{dev:10.3f}"
    nll = frequency_nll(read_model(runs / WALK / MODEL_FILE).tokenizers)
    yield f"{'frequencies alone':<{24 + 8 * len(steps)}}{nll:10.3f}"


def frequency_nll(tokenizers: Tokenizers) -> float:
    """The NLL of dev, in nats a token, by the frequency of each token in 5,000 training sentences."""
    train_K, dev_K = (
        torch.from_numpy(encode_pairs(as_text(pairs), tokenizers, max_length=256).target_ids.astype(np.int64))
        for pairs in (read_builtin(DEMO, "train")[:5000], read_builtin(DEMO, "dev"))
    )
    counts_V = torch.bincount(train_K, minlength=len(tokenizers.target)).double() + 1  # none is impossible
    return float(-(counts_V / counts_V.sum()).log()[dev_K].mean())


def smoothing(runs: Path) -> Iterator[str]:
    yield f"{'label smoothing':<34}{'0.0':>8}{'0.1':>8}"
    found = [confidence_of(runs / name) for name in (UNSMOOTHED, SMOOTHED)]
    for name in found[0]:
        digits = 1 if "BLEU" in name or "%" in name else 3
        yield f"{name:<34}" + "".join(f"{each[name]:8.{digits}f}" for each in found)


def confidence_of(run: Path) -> dict[str, float]:
    file = read_model(run / MODEL_FILE)
    model = file.build(CPU)
    figures: dict[str, float] = {}
    for name, pairs in (("train", read_builtin(DEMO, "train")[:500]), ("dev", read_builtin(DEMO, "dev"))):
        text = as_text(pairs)
        nll_K, confidence_K, right_K = token_predictions(model, file.tokenizers, text)
        figures[f"NLL of {name}, nats a token"] = float(nll_K.mean())
    figures["dev: likeliest token right, %"] = 100 * float(right_K.mean())
    figures["dev: probability it is given, %"] = 100 * float(confidence_K.mean())
    figures["dev: the same where it is wrong, %"] = 100 * float(confidence_K[right_K == 0].mean())
    figures["dev: calibration error, %"] = 100 * calibration_error(confidence_K, right_K)
    translated = torch_translator(model, file.tokenizers, DecodeConfig(), device=CPU).translate(text.sources)
    figures["dev: BLEU, beam 4"] = bleu([line.text for line in translated], [text.targets]).value
    return figures


def as_text(pairs: Sequence[Pair]) -> ParallelText:
    sources, targets = zip(*pairs, strict=True)
    return ParallelText(list(sources), list(targets))


@torch.no_grad()
def token_predictions(model: Transformer, tokenizers: Tokenizers, text: ParallelText) -> tuple[Tensor, Tensor, Tensor]:
    """The NLL of each target token, the probability of the likeliest one, and whether that is it."""
    corpus = encode_pairs(text, tokenizers, max_length=256)
    found = []
    for batch in micro_batches(corpus, np.arange(len(corpus)), tokenizers, max_tokens=4096):
        logits_KV, targets_K = predict_batch(model, batch, CPU)
        log_p_KV = logits_KV.double().log_softmax(dim=-1)
        log_p_K, ids_K = log_p_KV.max(dim=-1)
        found.append((-log_p_KV.gather(1, targets_K[:, None])[:, 0], log_p_K.exp(), (ids_K == targets_K).double()))
    nll_K, confidence_K, right_K = (torch.cat(parts) for parts in zip(*found, strict=True))
    return nll_K, confidence_K, right_K


def calibration_error(confidence_K: Tensor, right_K: Tensor, n_bins: int = 10) -> float:
    """Guo et al. 2017, equation 3: |share that is right - mean confidence| in bins of equal width, by their size."""
    bin_K = (confidence_K * n_bins).long().clamp(max=n_bins - 1)
    gaps = [(confidence_K[bin_K == b].sum() - right_K[bin_K == b].sum()).abs() for b in range(n_bins)]
    return float(sum(gaps)) / len(confidence_K)


def beams(runs: Path) -> Iterator[str]:
    """BLEU and log-probability of greedy and beam search on the dev set, by the model of the run."""
    file, text = read_model(runs / SMOOTHED / MODEL_FILE), as_text(read_builtin(DEMO, "dev"))
    model = file.build(CPU)
    greedy_config = DecodeConfig(search="greedy", beam_size=1)
    greedy, beam = (
        torch_translator(model, file.tokenizers, config, device=CPU).translate(text.sources)
        for config in (greedy_config, DecodeConfig())
    )
    yield f"{len(text)} dev sentences      greedy   beam 4"
    for name, measure in (("BLEU", bleu_of), ("log-probability, mean", mean_log_prob)):
        yield f"{name:<24}{measure(greedy, text):6.2f}{measure(beam, text):9.2f}"
    differing = [i for i in range(len(text)) if greedy[i].text != beam[i].text]
    found = [i for i in differing if beam[i].candidates[0].log_prob > greedy[i].candidates[0].log_prob]
    yield f"differing lines: {len(differing)}, of them likelier by beam: {len(found)}"
    for i in found[:1]:
        yield f"source     {text.sources[i]}"
        yield f"reference  {text.targets[i]}"
        for name, line in (("greedy", greedy[i]), ("beam 4", beam[i])):
            yield f"{name:<10} {line.text}  ({line.candidates[0].log_prob:.2f})"


def bleu_of(lines: Sequence[Translated], text: ParallelText) -> float:
    return bleu([line.text for line in lines], [text.targets]).value


def mean_log_prob(lines: Sequence[Translated], text: ParallelText) -> float:
    return sum(line.candidates[0].log_prob for line in lines) / len(lines)


# ---- The page

OF_THE_SENTENCE: dict[str, Callable[[Walk], Iterator[str]]] = {
    "pieces": pieces,
    "embedding": embedding,
    "positions": positions,
    "queries": queries,
    "scores": scores,
    "weighted-sum": weighted_sum,
    "heads": heads,
    "residual": residual,
    "feed-forward": feed_forward,
    "memory": memory,
    "mask": mask,
    "cross": cross,
    "logits": logits,
    "search": search,
}
OF_RUNS: dict[str, Callable[[Path], Iterator[str]]] = {"warm-up": warm_up, "smoothing": smoothing, "beams": beams}


def train(name: str, runs: Path) -> None:
    """`tfm train`; a finished run is not repeated."""
    if (runs / name / MODEL_FILE).is_file():
        return
    tfm = [sys.executable, "-c", "from transformer_cli.cli import entry_point; entry_point()", "train"]
    where = [f"runs={runs}", f"name={name}", "train.samples=0"]
    # The test score that it prints is not used here.
    subprocess.run(
        [*tfm, *RUNS[name], *where], check=True, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )


def of_the_sentence(walk: Walk) -> dict[str, str]:
    return {name: as_block(block(walk)) for name, block in OF_THE_SENTENCE.items()}


def of_seeds(tokenizers: Tokenizers) -> dict[str, str]:
    return {"scaling": as_block(scaling()), "first-gradients": as_block(first_gradients(tokenizers))}


def of_runs(runs: Path) -> dict[str, str]:
    return {name: as_block(block(runs)) for name, block in OF_RUNS.items()}


def machine() -> str:
    """Version, instruction set and maker: others round differently, and the difference grows during training."""
    capability = torch.backends.cpu.get_cpu_capability()
    return f"torch {torch.__version__.partition('+')[0]}, {capability} of {_maker()}, one thread\n"


def _maker() -> str:
    """MKL chooses its kernels by the maker of the processor, too."""
    try:
        found = re.search(r"^vendor_id\s*:\s*(\S+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def as_block(lines: Iterator[str]) -> str:
    return "".join(f"{line.rstrip()}\n" for line in lines)


def blocks_of(page: str) -> dict[str, str]:
    return {match[1]: match[3] for match in BLOCK.finditer(page)}


def fill_blocks(page: str, texts: dict[str, str]) -> str:
    """`page` with these blocks. Raises SystemExit if it has others."""
    if set(blocks_of(page)) != set(texts):
        raise SystemExit(f"{PAGE.name}: other blocks than are printed: {sorted(set(blocks_of(page)) ^ set(texts))}")
    return BLOCK.sub(lambda match: match[1] + match[2] + texts[match[1]], page)


def pictures(walk: Walk) -> dict[str, bytes]:
    """Name of a file → SVG. Nothing else here needs matplotlib."""
    from transformer_cli.addons.attention_maps.heatmaps import render_heat_map
    from transformer_cli.addons.attention_maps.maps import LABEL_SIDES, compute_attention_maps

    kinds = {kind.name: kind for kind in LABEL_SIDES}
    ids = walk.source_ids[:-1], walk.written_ids[:-1]
    maps = compute_attention_maps(walk.model, walk.tokenizers, *ids, name="the model of this page")
    return {
        "attention-encoder.svg": render_heat_map(maps, "svg", kind=kinds["encoder"], layer=1),
        "attention-decoder.svg": render_heat_map(maps, "svg", kind=kinds["decoder"], layer=1),
        "attention-cross.svg": render_heat_map(maps, "svg", kind=kinds["cross"], mean=True),
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=Path)
    runs: Path = parser.parse_args(argv).runs
    torch.set_num_threads(1)  # several would add up in another order
    for name in RUNS:
        train(name, runs)
    file = read_model(runs / WALK / MODEL_FILE)
    walk = Walk(file.build(CPU), file.tokenizers)
    texts = of_the_sentence(walk) | of_seeds(file.tokenizers) | of_runs(runs)
    texts |= {"unscaled": as_block(unscaled()), "machine": machine()}
    PAGE.write_text(fill_blocks(PAGE.read_text(encoding="utf-8"), texts), encoding="utf-8")
    PICTURES.mkdir(exist_ok=True)
    for name, picture in pictures(walk).items():
        (PICTURES / name).write_bytes(picture)
        print(PICTURES / name)
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
