"""What comes out of a model, step by step, as one JSON object of a line: tables and pages show the same.

docs/explaining.md describes the keys.
"""

import math
from collections.abc import Sequence
from typing import Any

from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.decoding.results import Searched
from transformer_cli.decoding.search import Hypothesis
from transformer_cli.decoding.search.trace import ROOT, Continuation, SearchTrace, TokenOption
from transformer_cli.decoding.torch_engine import TorchEngine
from transformer_cli.errors import DataError
from transformer_cli.inference.force_decode import ForcedDistribution, force_decode_distributions

Record = dict[str, Any]


def explain_search(searched: Searched, tokenizers: Tokenizers) -> Record:
    """The steps of the best hypothesis, all hypotheses with their scores and parents, and the final ranking.

    Hypothesis 0 is the empty one. `parent` is the hypothesis that one continues; `path` are those of the translation.
    """
    source, target = tokenizers.source, tokenizers.target
    best, trace = searched.hypotheses[0], trace_of(searched)
    path = trace.path(trace.find(best.ids, finished=best.finished)[0])
    return {
        "source": source.pieces([*searched.source_ids, *source.end_ids]),
        "translation": target.decode(best.ids),
        "steps": [_step(trace, node, target) for node in path],
        "path": path,
        "hypotheses": [
            {"id": index, "step": trace.depths[index], **_hypothesis(node, target)}
            for index, node in enumerate(trace.nodes)
            if index != ROOT
        ],
        "ranking": _ranking(trace, searched.hypotheses, target),
    }


def trace_of(searched: Searched) -> SearchTrace:
    """The trace of a search that recorded one."""
    trace = searched.hypotheses[0].trace
    assert trace is not None, "the search was not asked for a trace"
    return trace


def _step(trace: SearchTrace, index: int, target: Tokenizer) -> Record:
    node = trace.nodes[index]
    return {
        **_token(node, target),
        "likeliest": [option_record(one, target) for one in trace.options[node.parent]],
    }


def _token(node: Continuation, target: Tokenizer) -> Record:
    found = {
        "token": _piece(node.token, target),
        "probability": rounded_probability(node.token_log_prob),
        "token_log_prob": round(node.token_log_prob, 6),
    }
    return found if node.drawn is None else {**found, "drawn": float(f"{node.drawn:.6g}")}


def _hypothesis(node: Continuation, target: Tokenizer) -> Record:
    found = {
        "parent": node.parent,
        **_token(node, target),
        "log_prob": round(node.log_prob, 6),
        "score": round(node.score, 6),
        "fate": node.fate.name,
    }
    return {**found, "lacks_terms": True} if node.lacks_terms else found


def option_record(option: TokenOption, target: Tokenizer) -> Record:
    """A token that a step could have taken."""
    found: Record = {"token": _piece(option.id, target), "probability": rounded_probability(option.log_prob)}
    if not option.allowed:
        found["allowed"] = False
    if option.drawn is not None:
        found["drawn"] = float(f"{option.drawn:.6g}")
    return found


def _ranking(trace: SearchTrace, returned: Sequence[Hypothesis], target: Tokenizer) -> list[Record]:
    place: dict[int, int] = {}
    for n, one in enumerate(returned, start=1):
        equal = trace.find(one.ids, finished=one.finished)
        place[next((node for node in equal if node not in place), equal[0])] = n
    found = []
    for index in trace.ranking():
        node, ids = trace.nodes[index], [trace.nodes[i].token for i in trace.path(index)]
        is_finished = node.fate.name == "finished"
        found.append(
            {
                "hypothesis": index,
                "translation": target.decode(ids[:-1] if is_finished else ids),
                "log_prob": round(node.log_prob, 6),
                "score": round(node.score, 6),
                "finished": is_finished,
                "returned": place.get(index),
            }
        )
    return found


def explain_reference(
    engine: TorchEngine, source_ids: list[int], target_ids: list[int], *, n_likeliest: int, smoothing: float | None
) -> Record:
    """A given translation, force-decoded: at each token what the model predicts, beside what it was trained to predict.

    The latter has 1 - smoothing at the target, and smoothing / V at each of the V tokens, also at the target; None:
    it is unknown.
    Both sides are without EOS. Nothing is decoded where both are empty, as in `tfm score`.
    """
    target = engine.tokenizers.target
    predicted: list[ForcedDistribution] = []
    if source_ids or target_ids:
        predicted = force_decode_distributions(
            engine.model, (source_ids, target_ids), engine.tokenizers, device=engine.device, n_likeliest=n_likeliest
        )
    ids = [*target_ids, target.eos_id][: len(predicted)]
    steps = [_reference_step(one, i, target, smoothing) for one, i in zip(predicted, ids, strict=True)]
    return {
        "translation": target.decode(target_ids),
        "log_prob": round(math.fsum(one.log_prob for one in predicted), 6),
        "label_smoothing": smoothing,
        "vocabulary": len(target),
        "steps": steps,
    }


def _reference_step(one: ForcedDistribution, expected: int, target: Tokenizer, smoothing: float | None) -> Record:
    options = one.likeliest
    if expected not in [i for i, _ in options]:
        options = [*options, (expected, one.log_prob)]
    likeliest: list[Record] = []
    for i, log_prob in options:
        option: Record = {"token": _piece(i, target), "probability": rounded_probability(log_prob)}
        option["target"] = int(i == expected)
        if smoothing is not None:
            option["smoothed"] = smoothed_target(len(target), smoothing, is_target=i == expected)
        likeliest.append(option)
    found: Record = {
        "token": _piece(expected, target),
        "probability": rounded_probability(one.log_prob),
        "token_log_prob": round(one.log_prob, 6),
        "rank": one.rank,
    }
    if smoothing is not None:
        found["smoothed"] = smoothed_target(len(target), smoothing, is_target=True)
        found["loss"] = round(-(1 - smoothing) * one.log_prob - smoothing * one.mean_log_prob, 6)
    return {**found, "likeliest": likeliest}


def smoothed_target(n_vocab: int, smoothing: float, *, is_target: bool) -> float:
    """The probability of a token in the distribution that `training.loss.smoothed_nll` trains on."""
    return (1 - smoothing) * is_target + smoothing / n_vocab


def check_length(engine: TorchEngine, source_ids: list[int], target_ids: list[int], where: str) -> None:
    """Raise DataError for a pair that is longer than the model's table of positions."""
    longest, most = max(len(source_ids), len(target_ids)) + 1, engine.text.max_positions
    if most is not None and longest > most:
        raise DataError(
            f"{where}: {longest:,} tokens with its end, but the model has positions for {most}. Shorten the line"
        )


def _piece(index: int, target: Tokenizer) -> str:
    (piece,) = target.pieces([index])
    return piece


def rounded_probability(log_prob: float) -> float:
    return float(f"{math.exp(log_prob):.6g}")
