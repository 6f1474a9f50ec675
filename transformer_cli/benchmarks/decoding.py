"""Translating: sentences a second beside other programs that have the same weights, and beside its matrix products.

Shapes: M rows, K in, N out.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import torch

from transformer_cli.benchmarks.decoders import (
    BATCHES_OF_32,
    CT2_INT8,
    OURS,
    RIVALS,
)
from transformer_cli.benchmarks.matmuls import Projection, projections
from transformer_cli.benchmarks.report import Measured
from transformer_cli.benchmarks.timing import Spread, best, ratio
from transformer_cli.benchmarks.training import skeleton
from transformer_cli.benchmarks.worker import Contestant
from transformer_cli.benchmarks.workload import random_model
from transformer_cli.config.bench import BenchConfig
from transformer_cli.config.compose import to_plain
from transformer_cli.data.lines import read_lines
from transformer_cli.decoding.training_text import LONGEST
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault
from transformer_cli.evaluation.metrics import bleu
from transformer_cli.evaluation.tokenization import Tokenization, tokenization, tokenizer_in
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile, locate_model, read_model, write_model
from transformer_cli.models.linear import project

FORCED = 20  # tokens of each sentence, in and out, where there is no trained model
N_FORCED = 128  # sentences
N_ALONE = 10  # sentences that are also translated one at a time, others in each round
N_WHOLE = 250  # lines that are also translated from text to text, in each round of the beam
N_TRIED = 500  # sentences by which the way of a rival is chosen
N_CHECKED = 8
LEAST_ALIKE = {False: 0.8, True: 0.5}  # of int8: what two programs say at least in common, from 0 to 1
COLUMNS = ("", "sentences/s", "tokens/s", "tfm is faster by", "ms for one", "BLEU", "same as tfm")


T = TypeVar("T")


@dataclass(frozen=True)
class Text:
    """What is translated: lines, and their ids without EOS."""

    lines: list[str]
    rows: list[list[int]]
    references: list[str] | None = None
    is_forced: bool = False


def some(all_of_it: list[T], n: int) -> list[T]:
    """At most so many, from everywhere."""
    return all_of_it[:: -(-len(all_of_it) // n)]


def bench_decode(config: BenchConfig, device: torch.device) -> Measured:
    """Rounds of each program in turn, in a process of its own: greedy search, then a beam."""
    if config.decode.beam_size == 1:
        raise ConfigError("decode.beam_size=1: greedy search is measured anyway. Choose 2 or more")
    start = time.monotonic()
    with TemporaryDirectory() as folder:
        path, config = chosen(config, Path(folder))
        model = read_model(path)
        text = read(config, model)
        contestants = enter(config, path, device)
        try:
            check_alike(contestants, text)
            matches = [
                play(config, text, contestants, model, beam_size=beam_size, device=device)
                for beam_size in (1, config.decode.beam_size)
            ]
            versions = [contestant.ask('{"do": "know"}')["version"] for contestant in contestants.values()]
        finally:
            for contestant in contestants.values():
                contestant.close()
    found = summary(config, text, model, matches)
    found.figures["versions"] = sorted(set(filter(None, versions)))
    if config.rivals:
        found.notes.append(f"{', '.join(found.figures['versions'])}; {torch.get_num_threads()} threads for each.")
    LOGGER.info("%.0f s", time.monotonic() - start)
    return found


def chosen(config: BenchConfig, folder: Path) -> tuple[Path, BenchConfig]:
    """The model file; and the config, which without a trained model has translations as long as their sources."""
    if config.checkpoint is not None:
        if config.source is None:
            raise ConfigError(f"checkpoint={config.checkpoint}: and what is it to translate? Add source=FILE")
        return locate_model(config.checkpoint, config.runs), config
    path = folder / "random.safetensors"
    write_model(path, random_model(config))
    return path, replace(config, decode=replace(config.decode, max_extra_length=0))


def read(config: BenchConfig, model: ModelFile) -> Text:
    """Without the lines that no model ever meets whole. Raises DataError."""
    tokenizer = model.tokenizers.source
    if config.source is None:
        random = np.random.default_rng(config.seed)
        rows = random.integers(4, len(tokenizer), (N_FORCED, FORCED - 1)).tolist()
        return Text([tokenizer.decode(row) for row in rows], rows, is_forced=True)
    lines = read_lines(Path(config.source)).texts
    references = read_lines(Path(config.reference)).texts if config.reference is not None else None
    if references is not None and len(references) != len(lines):
        raise DataError(
            f"{config.reference}: has {len(references):,} lines, {config.source} {len(lines):,}. Give its translation"
        )
    rows = tokenizer.encode(lines[: config.n_lines])
    longest = config.decode.max_source_length or LONGEST
    kept = [n for n, row in enumerate(rows) if 0 < len(row) <= longest]
    if not kept:
        raise DataError(f"{config.source}: no line with 1 to {longest} tokens. Choose another")
    if len(kept) < len(rows):
        LOGGER.info("%d of %d lines are blank or too long, and left out", len(rows) - len(kept), len(rows))
    chosen = [references[n] for n in kept] if references is not None else None
    return Text([lines[n] for n in kept], [rows[n] for n in kept], chosen)


def enter(config: BenchConfig, path: Path, device: torch.device) -> dict[str, Contestant]:
    """Ours with the settings of `tfm`, the others with none."""
    usual = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    shared = {"config": to_plain(config), "model": str(path), "threads": torch.get_num_threads()}
    return {
        name: Contestant(
            name,
            "transformer_cli.benchmarks.decoders",
            {**shared, "engine": name},
            usual if name in RIVALS else os.environ,
        )
        for name in (OURS, *(RIVALS if config.rivals else ()))
    }


def ask(contestant: Contestant, do: str, **asked: Any) -> dict[str, Any]:
    return contestant.ask(json.dumps({"do": do, **asked}))


def check_alike(contestants: dict[str, Contestant], text: Text) -> None:
    """Nothing is timed that translates another text than the plainest of searches. Raises EnvironmentFault."""
    rows = some(text.rows, N_CHECKED)
    plain: list[list[int]] = ask(contestants[OURS], "plainly", rows=rows)["found"]
    for name, contestant in contestants.items():
        way = ask(contestant, "know")["ways"][0]
        found: list[list[int]] = ask(contestant, "decode", rows=rows, beam_size=1, way=way)["found"]
        if text.is_forced and {len(row) for row in found} != {FORCED}:
            raise EnvironmentFault(
                f"{name}: translations of {sorted({len(row) for row in found})} tokens, not {FORCED}"
            )
        is_int8 = name == CT2_INT8
        if text.is_forced and is_int8:
            continue  # what random weights say is turned by the least rounding
        same = float(np.mean([alike(one, other) for one, other in zip(found, plain, strict=True)]))
        if same < LEAST_ALIKE[is_int8]:
            raise EnvironmentFault(
                f"{name}: its translations have {same:.0%} in common with those of a plain greedy search, and"
                f" {LEAST_ALIKE[is_int8]:.0%} is the least. Nothing is timed that is wrong: run the tests on this"
                " machine, or another version of the library"
            )


def alike(one: Sequence[int], other: Sequence[int]) -> float:
    """From 0 to 1, which equal sentences are."""
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


# ---- Rounds


@dataclass
class Standing:
    """A program used in one way, and its rounds."""

    name: str
    contestant: Contestant
    way: str
    way_alone: str
    counterpart: str  # which of ours it is compared with
    seconds: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)  # seconds from lines to lines
    alone: list[list[float]] = field(default_factory=list)  # seconds of each sentence by itself
    found: list[list[int]] = field(default_factory=list)

    def play(self, text: Text, *, beam_size: int) -> None:
        done = ask(self.contestant, "decode", rows=text.rows, beam_size=beam_size, way=self.way)
        self.seconds.append(done["seconds"])
        self.found = done["found"]

    def play_whole(self, text: Text, *, beam_size: int) -> None:
        lines = some(text.lines, N_WHOLE)
        done = ask(self.contestant, "translate", lines=lines, beam_size=beam_size, way=self.way)
        self.whole.append(done["seconds"])

    def play_alone(self, rows: list[list[int]], *, beam_size: int) -> None:
        done = ask(self.contestant, "alone", rows=rows, beam_size=beam_size, way=self.way_alone)
        self.alone.append(done["seconds"])


@dataclass
class Match:
    """All that was measured of one search."""

    beam_size: int
    standings: dict[str, Standing]
    parts: dict[str, Any]  # of ours
    products: list[float] = field(default_factory=list)  # seconds that ours would take for nothing but its products
    likelier: dict[str, tuple[int, int]] = field(default_factory=dict)  # than a rival's is ours, of so many that differ

    @property
    def title(self) -> str:
        return "greedy" if self.beam_size == 1 else f"beam {self.beam_size}"


def play(
    config: BenchConfig,
    text: Text,
    contestants: dict[str, Contestant],
    model: ModelFile,
    *,
    beam_size: int,
    device: torch.device,
) -> Match:
    """All rounds of one search."""
    LOGGER.info("%s: trying the ways of each program", "greedy" if beam_size == 1 else f"beam {beam_size}")
    standings = {one.name: one for one in line_up(contestants, text, beam_size=beam_size)}
    parts = ask(contestants[OURS], "parts", rows=text.rows, beam_size=beam_size)
    match = Match(beam_size, standings, parts)
    products = Products(config, model, parts, device)
    alone = some(text.rows, N_ALONE * config.rounds)
    for number in range(config.rounds):
        LOGGER.info("%s: round %d of %d", match.title, number + 1, config.rounds)
        for one in standings.values():
            one.play(text, beam_size=beam_size)
        match.products.append(products.seconds())
        for one in standings.values():
            if one.way == BATCHES_OF_32:
                continue  # nothing but a size of batches
            one.play_alone(alone[number % len(alone) :: config.rounds], beam_size=beam_size)
            if beam_size > 1 and not text.is_forced:
                one.play_whole(text, beam_size=beam_size)
    if beam_size > 1 and not text.is_forced:
        match.likelier = {
            name: likelier(contestants[OURS], text, standings[OURS].found, standings[name].found)
            for name in standings
            if name in RIVALS
        }
    return match


def line_up(contestants: dict[str, Contestant], text: Text, *, beam_size: int) -> list[Standing]:
    """Ours as it comes and with the batches of the others; rivals in the way that was quickest when each was tried."""
    found: list[Standing] = []
    for name, contestant in contestants.items():
        known = ask(contestant, "know")
        if name not in RIVALS:
            way, alone = known["ways"][0], known["ways alone"][0]
            ask(contestant, "decode", rows=text.rows, beam_size=beam_size, way=way)  # what is first takes longer
            found.append(Standing(name, contestant, way, alone, counterpart=OURS))
            if name == OURS:
                found.append(Standing(f"{OURS}, {BATCHES_OF_32}", contestant, BATCHES_OF_32, alone, counterpart=OURS))
            continue
        way = quickest(contestant, "decode", known["ways"], some(text.rows, N_TRIED), beam_size=beam_size)
        alone = quickest(contestant, "alone", known["ways alone"], some(text.rows, N_ALONE), beam_size=beam_size)
        found.append(Standing(name, contestant, way, alone, counterpart=OURS))
    return found


def likelier(contestant: Contestant, text: Text, mine: list[list[int]], theirs: list[list[int]]) -> tuple[int, int]:
    """Of the lines in which two programs differ, in how many ours found what is likelier to the model; and all."""
    different = [n for n, (one, other) in enumerate(zip(mine, theirs, strict=True)) if one != other]
    rows = [text.rows[n] for n in different]
    of_mine, of_theirs = (
        ask(contestant, "likelihood", rows=rows, translations=[found[n] for n in different])["found"]
        for found in (mine, theirs)
    )
    return sum(one > other for one, other in zip(of_mine, of_theirs, strict=True)), len(different)


def quickest(contestant: Contestant, do: str, ways: Sequence[str], rows: list[list[int]], *, beam_size: int) -> str:
    """Which way takes the fewest seconds, each tried once after a few sentences that are not counted."""

    def seconds(way: str) -> float:
        ask(contestant, "decode", rows=rows[:2], beam_size=beam_size, way=way)
        return float(np.sum(ask(contestant, do, rows=rows, beam_size=beam_size, way=way)["seconds"]))

    return min(ways, key=seconds)


# ---- What the machine allows


class Products:
    """The matrix products of a search by themselves: of each call, in the order of the layers, each weight its own."""

    def __init__(self, config: BenchConfig, model: ModelFile, parts: dict[str, Any], device: torch.device) -> None:
        sizes = {"vocab_size": len(model.tokenizers.target)}
        network = skeleton(replace(config, model=model.config), **sizes)
        self.device = device
        self.calls: list[tuple[list[Projection], int]] = []  # products of a call, and how many there were
        for calls, sides in (
            (parts["encoded"], {"n_source": 1, "n_target": 0}),
            (parts["stepped"], {"n_source": 0, "n_target": 1}),
        ):
            found = [one for one in projections(network, **sides).elements() if one.m]
            for rows, n_calls in like_sizes(calls):
                self.calls.append(([replace(one, m=rows) for one in found], n_calls))

    def seconds(self) -> float:
        return sum(n_calls * self._seconds_of(chain) for chain, n_calls in self.calls)

    @torch.inference_mode()
    def _seconds_of(self, chain: list[Projection]) -> float:
        """Of one call. The weights are more than a cache holds, and so come from memory as they do in a step."""
        weights = [torch.randn(one.n, one.k, device=self.device) for one in chain]
        inputs = {k: torch.randn(chain[0].m, k, device=self.device) for k in {one.k for one in chain}}

        def work() -> None:
            for one, weight_NK in zip(chain, weights, strict=True):
                project(inputs[one.k], weight_NK)

        return best(work, self.device, budget_s=0.05)


def like_sizes(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Mean and number of those between the same two powers of two: enough to tell what all of them take."""
    groups: dict[int, list[int]] = {}
    for size in sizes:
        groups.setdefault(size.bit_length(), []).append(size)
    return [(round(float(np.mean(group))), len(group)) for _, group in sorted(groups.items())]


# ---- What was found


def summary(config: BenchConfig, text: Text, model: ModelFile, matches: Sequence[Match]) -> Measured:
    found = Measured("decode", COLUMNS)
    tokens = tokenization(model.target_lang, config.data.bleu_tokenize or tokenizer_in(model.data, Path("checkpoint")))
    for match in matches:
        put(found, match, text, model, tokens)
    if text.references and tokens.missing:
        found.notes.append(f"No BLEU: {tokens.missing}")
    kind = (
        f"Random weights; {len(text.rows)} sentences of {FORCED} tokens, and as many in each translation."
        if text.is_forced
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


def put(found: Measured, match: Match, text: Text, model: ModelFile, tokens: Tokenization) -> None:
    """Rows, ratios and notes of one search."""
    # Of random weights the text means nothing.
    spell: Callable[[list[int]], str] = repr if text.is_forced else model.tokenizers.target.decode
    said = {name: [spell(ids) for ids in one.found] for name, one in match.standings.items()}
    ours = match.standings[OURS]
    for name, one in match.standings.items():
        n_tokens, mine = sum(map(len, one.found)), match.standings[one.counterpart]
        faster = ratio(one.seconds, mine.seconds)
        score = ""
        if text.references and not tokens.missing:
            score = f"{bleu(said[name], [text.references], tokens).value:.2f}"
        alone = np.quantile(np.concatenate(one.alone), (0.5, 0.95)).tolist() if one.alone else []
        row = [f"{match.title}: {name}", f"{len(text.rows) / Spread.of(one.seconds).median:,.1f}"]
        row += [Spread.of([n_tokens / seconds for seconds in one.seconds]).shown_briefly()]
        row += ["" if name == OURS else faster.shown(".2f")]
        row += [" / ".join(f"{1e3 * seconds:,.0f}" for seconds in alone), score]
        found.rows.append([*row, "" if one is ours else f"{share_of_same(said[name], said[OURS]):.1%}"])
        found.figures[row[0]] = {
            "way": one.way,
            "way alone": one.way_alone,
            "tokens": n_tokens,
            "seconds": one.seconds,
            "seconds alone": one.alone,
            "seconds from lines to lines": one.whole,
            "BLEU": score,
        }
        if name in RIVALS:
            put_ratios(found.ratios, match.title, one, mine)
    put_parts(found, match)
    put_ways(found, match)
    for name, (n_likelier, n_different) in match.likelier.items():
        found.figures[f"{match.title}: of translations unlike those of {name}, likelier"] = [n_likelier, n_different]
        found.notes.append(
            f"{match.title}: {n_different} translations are not those of {name}. To the model itself, in fp32, {OURS}'s"
            f" is the likelier one in {n_likelier} of these lines."
        )


def put_ratios(ratios: dict[str, Spread], title: str, one: Standing, mine: Standing) -> None:
    """All of them the higher, the better."""
    against = f"{mine.name} to {one.name}"
    ratios[f"{title}: {against}"] = ratio(one.seconds, mine.seconds)
    ratios[f"{title}, alone: {against}"] = ratio(list(map(sum, one.alone)), list(map(sum, mine.alone)))
    if one.whole:
        ratios[f"{title}, lines to lines: {against}"] = ratio(one.whole, mine.whole)


def put_parts(found: Measured, match: Match) -> None:
    """What ours spends its time on."""
    share = ratio(match.products, match.standings[OURS].seconds)
    found.ratios[f"{match.title}: matrix products alone to {OURS}"] = share
    parts, whole = match.parts["parts"], match.parts["seconds"]
    shares = {name: seconds / whole for name, seconds in parts.items()}
    shares["search and the rest"] = 1 - sum(shares.values())
    found.figures[f"{match.title}: parts of {OURS}"] = shares
    told = ", ".join(f"{name} {part:.0%}" for name, part in shares.items())
    found.notes.append(
        f"{match.title}, {OURS}: {told}; the matrix products of encoder and steps, made by themselves, take"
        f" {share.shown('.0%')} of its time."
    )


def put_ways(found: Measured, match: Match) -> None:
    """How the rivals were used, and how they do with one sentence and with whole lines."""
    rivals = [one for one in match.standings.values() if one.name in RIVALS]
    if not rivals:
        return
    ways = "; ".join(f"{one.name} with {one.way} (one at a time: {one.way_alone})" for one in rivals)
    found.notes.append(f"{match.title}, the quickest of the ways that were tried: {ways}.")
    for kind in ("alone", "lines to lines"):
        start = f"{match.title}, {kind}: "
        told = [
            f"{name.removeprefix(start)} {one.shown('.2f')}"
            for name, one in found.ratios.items()
            if name.startswith(start)
        ]
        if told:
            found.notes.append(f"{start}{', '.join(told)}.")


def share_of_same(one: Sequence[Any], other: Sequence[Any]) -> float:
    return float(np.mean([a == b for a, b in zip(one, other, strict=True)]))
