"""The report of `tfm bench decode`: table, ratios and notes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer_cli.addons.benchmarks.decoders import BASELINES, TFM
from transformer_cli.addons.benchmarks.decoding_rounds import FIXED_LENGTH, BenchmarkText, DecodeResult, SearchResults
from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.addons.benchmarks.report import Measured
from transformer_cli.addons.benchmarks.timing import Spread, ratio
from transformer_cli.evaluation.metrics import bleu
from transformer_cli.evaluation.tokenization import Tokenization, tokenization, tokenizer_in
from transformer_cli.models.file import ModelFile

_COLUMNS = ("", "sentences/s", "tokens/s", "tfm is faster by", "ms for one", "BLEU", "same as tfm")


def summary(config: BenchConfig, text: BenchmarkText, model: ModelFile, searches: Sequence[SearchResults]) -> Measured:
    found = Measured("decode", _COLUMNS)
    tokens = tokenization(model.target_lang, config.data.bleu_tokenize or tokenizer_in(model.data, Path("checkpoint")))
    for search in searches:
        add_search(found, search, text, model, tokens)
    if text.references and tokens.missing:
        found.notes.append(f"No BLEU: {tokens.missing}")
    kind = (
        f"Random weights; {len(text.rows)} sentences of {FIXED_LENGTH} tokens, and as many in each translation."
        if text.is_random
        else f"{len(text.rows)} sentences, {sum(map(len, text.rows)):,} tokens of source without their ends."
    )
    n_parameters = sum(weight.numel() for weight in model.weights.values())
    found.notes = [
        f"{kind} The model has {n_parameters / 1e6:.1f} million weights and a vocabulary of"
        f" {len(model.tokenizers.target):,}. Ids to ids, length penalty 0; tokens are those of translations, without"
        f" their ends. Rounds: {config.rounds}, in turn; the median, after ± half the distance of the quartiles, before"
        " brackets with the quartiles. Ratios are taken round by round.",
        *found.notes,
    ]
    return found


def add_search(
    found: Measured, search: SearchResults, text: BenchmarkText, model: ModelFile, tokens: Tokenization
) -> None:
    """Add rows, ratios and notes of one search."""
    spell: Callable[[list[int]], str] = repr if text.is_random else model.tokenizers.target.decode
    translations = {name: [spell(ids) for ids in one.found] for name, one in search.results.items()}
    of_tfm = search.results[TFM]
    for name, one in search.results.items():
        n_tokens, mine = sum(map(len, one.found)), search.results[one.counterpart]
        faster = ratio(one.seconds, mine.seconds)
        score = ""
        if text.references and not tokens.missing:
            score = f"{bleu(translations[name], [text.references], tokens).value:.2f}"
        alone = np.quantile(np.concatenate(one.alone), (0.5, 0.95)).tolist() if one.alone else []
        row = [f"{search.title}: {name}", f"{len(text.rows) / Spread.of(one.seconds).median:,.1f}"]
        row += [Spread.of([n_tokens / seconds for seconds in one.seconds]).shown_briefly()]
        row += ["" if name == TFM else faster.shown(".2f")]
        row += [" / ".join(f"{1e3 * seconds:,.0f}" for seconds in alone), score]
        found.rows.append(
            [*row, "" if one is of_tfm else f"{share_of_same(translations[name], translations[TFM]):.1%}"]
        )
        found.figures[row[0]] = {
            "way": one.preset,
            "way alone": one.preset_single,
            "tokens": n_tokens,
            "seconds": one.seconds,
            "seconds alone": one.alone,
            "seconds from lines to lines": one.whole,
            "BLEU": score,
        }
        if name in BASELINES:
            add_ratios(found.ratios, search.title, one, mine)
    add_parts(found, search)
    add_settings(found, search)
    for name, (n_likelier, n_different) in search.likelier.items():
        found.figures[f"{search.title}: of translations unlike those of {name}, likelier"] = [n_likelier, n_different]
        found.notes.append(
            f"{search.title}: {n_different} translations are not those of {name}. To the model itself, in fp32, {TFM}'s"
            f" is the likelier one in {n_likelier} of these lines."
        )


def add_ratios(ratios: dict[str, Spread], title: str, one: DecodeResult, mine: DecodeResult) -> None:
    """Add speed ratios of tfm to a baseline; above 1, tfm is faster."""
    against = f"{mine.name} to {one.name}"
    ratios[f"{title}: {against}"] = ratio(one.seconds, mine.seconds)
    ratios[f"{title}, alone: {against}"] = ratio(list(map(sum, one.alone)), list(map(sum, mine.alone)))
    if one.whole:
        ratios[f"{title}, lines to lines: {against}"] = ratio(one.whole, mine.whole)


def add_parts(found: Measured, search: SearchResults) -> None:
    """Add the share of time of each part of tfm, and that of its matrix products on their own."""
    share = ratio(search.products, search.results[TFM].seconds)
    found.ratios[f"{search.title}: matrix products alone to {TFM}"] = share
    parts, whole = search.parts["parts"], search.parts["seconds"]
    shares = {name: seconds / whole for name, seconds in parts.items()}
    shares["search and the rest"] = 1 - sum(shares.values())
    found.figures[f"{search.title}: parts of {TFM}"] = shares
    listed = ", ".join(f"{name} {part:.0%}" for name, part in shares.items())
    found.notes.append(
        f"{search.title}, {TFM}: {listed}; the matrix products of encoder and steps, made by themselves, take"
        f" {share.shown('.0%')} of its time."
    )


def add_settings(found: Measured, search: SearchResults) -> None:
    """Add the chosen settings of the baselines, and the ratios for single sentences and for text to text."""
    baselines = [one for one in search.results.values() if one.name in BASELINES]
    if not baselines:
        return
    settings = "; ".join(f"{one.name} with {one.preset} (one at a time: {one.preset_single})" for one in baselines)
    found.notes.append(f"{search.title}, the fastest of the settings that were tried: {settings}.")
    for kind in ("alone", "lines to lines"):
        start = f"{search.title}, {kind}: "
        ratios = [
            f"{name.removeprefix(start)} {one.shown('.2f')}"
            for name, one in found.ratios.items()
            if name.startswith(start)
        ]
        if ratios:
            found.notes.append(f"{start}{', '.join(ratios)}.")


def share_of_same(one: Sequence[Any], other: Sequence[Any]) -> float:
    return float(np.mean([a == b for a, b in zip(one, other, strict=True)]))
