"""Attention maps without a model: any tokens, and random weights."""

from collections.abc import Sequence
from typing import Any

import torch

from transformer_cli.addons.attention_maps.maps import AttentionMaps

# Tokens that could inject markup into a page, or be shown wrongly.
HOSTILE = [
    *("▁</script><script>window.broken=1</script>", "▁&amp;", "\"quote'", "▁<s>", "<!--", "]]>"),
    *("<img onerror=broken()>", "▁שלום", "▁مرحبا", "▁👩‍👩‍👧‍👦", "▁", "▁a\u2028b", "$maps", "${style}"),
    *("\\u003c", "</s>"),
]


def words(count: int, *, long: bool = False) -> list[str]:
    """Every second token begins a word; the last is </s>."""
    stem = "Rindfleischetikettierungsgesetz" if long else "ab"
    return [*(f"{'' if i % 2 else '▁'}{stem}{i}" for i in range(count - 1)), "</s>"]


def toy_explanation(tokens: Sequence[str], *, n_beams: int = 2) -> dict[str, Any]:
    """The steps of a search that writes these tokens: at each, as many hypotheses are kept and dropped."""
    hypotheses: list[dict[str, Any]] = []
    path = [0]
    for step, token in enumerate(tokens, start=1):
        for n in range(2 * n_beams):
            fate = "finished" if step == len(tokens) and n == 0 else "kept" if n < n_beams else "dropped"
            place = {"id": len(hypotheses) + 1, "step": step, "parent": path[-1], "token": f"▁other{n}" if n else token}
            numbers = {"probability": 0.6 / (n + 1), "token_log_prob": -0.5 - n, "log_prob": -0.5 * step - n}
            hypotheses.append({**place, **numbers, "score": -0.4 * step - n, "fate": fate})
        path.append(hypotheses[-2 * n_beams]["id"])
    likeliest = [{"token": one["token"], "probability": one["probability"]} for one in hypotheses[: 2 * n_beams]]
    best = {"hypothesis": path[-1], "translation": " ".join(tokens), "log_prob": -0.5 * len(tokens)}
    other = {**best, "hypothesis": 2, "translation": "other", "score": -9.0, "finished": False, "returned": None}

    def step_of(token: str) -> dict[str, Any]:
        found = {"token": token, "probability": 0.6}
        return {**found, "token_log_prob": -0.5, "likeliest": [found, *likeliest[1:]]}

    return {
        "translation": " ".join(tokens),
        "steps": [step_of(token) for token in tokens],
        "path": path[1:],
        "hypotheses": hypotheses,
        "ranking": [{**best, "score": -0.4 * len(tokens), "finished": True, "returned": 1}, other],
        "next": {str(node): likeliest for node in (0, *path[1:-1])},
        "notes": [],
    }


def toy_targets(tokens: Sequence[str], *, smoothing: float | None = 0.1) -> dict[str, Any]:
    """The steps of a given translation, of which the model expects another token at each."""
    smoothed: list[dict[str, float]] = [{}, {}] if smoothing is None else [{"smoothed": 0.0125}, {"smoothed": 0.9125}]
    loss = {} if smoothing is None else {"smoothed": 0.9125, "loss": 1.6}
    other = {"token": "▁other", "probability": 0.7, "target": 0, **smoothed[0]}

    def step_of(token: str) -> dict[str, Any]:
        found = {"token": token, "probability": 0.22}
        likeliest = [other, {**found, "target": 1, **smoothed[1]}]
        return {**found, "token_log_prob": -1.5, "rank": 2, **loss, "likeliest": likeliest}

    about = {"translation": " ".join(tokens), "log_prob": -1.5 * len(tokens), "label_smoothing": smoothing}
    return {**about, "vocabulary": 8, "steps": [step_of(token) for token in tokens], "notes": []}


def toy_maps(
    source: Sequence[str],
    written: Sequence[str],
    *,
    n_layers: int = 2,
    n_heads: int = 4,
    text: str = "ab",
    seed: int = 1,
) -> AttentionMaps:
    generator = torch.Generator().manual_seed(seed)

    def scores(rows: int, columns: int) -> torch.Tensor:
        return 3 * torch.randn(n_layers, n_heads, rows, columns, generator=generator)

    n_source, n_target = len(source), len(written)
    later = torch.ones(n_target, n_target).triu(1).bool()
    return AttentionMaps(
        source=list(source),
        read=["<s>", *written[:-1]],
        written=list(written),
        encoder_YHSS=scores(n_source, n_source).softmax(-1),
        decoder_YHTT=scores(n_target, n_target).masked_fill(later, -torch.inf).softmax(-1),
        cross_YHTS=scores(n_target, n_source).softmax(-1),
        source_text=text,
        translation=text,
        model=text,
        notes=[text],
    )
