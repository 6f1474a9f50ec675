"""Whole updates: target tokens a second, beside rivals and beside the update's own matrix products."""

import os
from dataclasses import asdict

import torch

from transformer_cli.benchmarks.baselines import RIVALS, refuse_unlike
from transformer_cli.benchmarks.matmuls import flops, peak_rate, projections, seconds_alone
from transformer_cli.benchmarks.report import Measured
from transformer_cli.benchmarks.timing import Spread, ratio
from transformer_cli.benchmarks.worker import Contestant, Round
from transformer_cli.config.bench import BenchConfig
from transformer_cli.config.compose import to_plain
from transformer_cli.data.checks.findings import gigabytes
from transformer_cli.logs import LOGGER
from transformer_cli.models.transformer import Transformer
from transformer_cli.training.precision import choose_dtype

OURS = "tfm"
COMPILED = "nn.Transformer lean"
COLUMNS = ("", "target tokens/s", "tfm is faster by", "ms an update", "filled", "of matmul", "memory")


def bench_train(config: BenchConfig, device: torch.device) -> Measured:
    """Rounds of each contestant in turn, in a process of its own; the first round is not counted."""
    if config.rivals:
        refuse_unlike(config)
    contestants = enter(config, device)
    try:
        for contestant in contestants:
            contestant.round()
        rounds: dict[str, list[Round]] = {contestant.name: [] for contestant in contestants}
        for number in range(config.rounds):
            LOGGER.info("round %d of %d", number + 1, config.rounds)
            for contestant in contestants:
                rounds[contestant.name].append(contestant.round())
            if number == 0:
                ceiling = Ceiling(config, rounds[OURS][0], device)
            ceiling.measure(rounds[OURS][-1])
    finally:
        for contestant in contestants:
            contestant.close()
    return summary(config, rounds, ceiling)


def enter(config: BenchConfig, device: torch.device) -> list[Contestant]:
    """Ours with the settings of `tfm`, the others with none. On a GPU torch's module comes compiled, too."""
    plain = to_plain(config)
    usual = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    contestants = [Contestant(OURS, "transformer_cli.benchmarks.ours", {"config": plain}, os.environ)]
    for net in RIVALS.names() if config.rivals else []:
        for compiled in (False, True) if device.type == "cuda" and net == COMPILED else (False,):
            parameters = {"config": plain, "net": net, "compiled": compiled}
            name = f"{net}, compiled" if compiled else net
            contestants.append(Contestant(name, "transformer_cli.benchmarks.baselines", parameters, usual))
    return contestants


class Ceiling:
    """The matrix products of our update by themselves, and the largest rate of any."""

    def __init__(self, config: BenchConfig, example: Round, device: torch.device) -> None:
        self.device, self.dtype = device, choose_dtype(config.train.precision, device)
        self.model = skeleton(config, vocab_size=config.data.tokenizer.vocab_size)
        self.n_updates = config.n_updates
        n_source, n_target = example.n_source_tokens // self.n_updates, example.n_target_tokens // self.n_updates
        self.products = projections(self.model, n_source=n_source, n_target=n_target)
        self.shares: list[float] = []
        self.rates: list[float] = []

    def measure(self, ours: Round) -> None:
        alone = sum(n * seconds_alone(p, dtype=self.dtype, device=self.device) for p, n in self.products.items())
        # The update that was timed may have had a few tokens more or less.
        alone *= self.flops(ours) / (flops(self.products) * self.n_updates)
        self.shares.append(alone / ours.seconds)
        self.rates.append(peak_rate(self.dtype, self.device))

    def flops(self, of: Round) -> int:
        """Of the matrix products that real tokens need."""
        return flops(projections(self.model, n_source=of.n_source_tokens, n_target=of.n_target_tokens))


def skeleton(config: BenchConfig, *, vocab_size: int) -> Transformer:
    """The model without its numbers."""
    with torch.device("meta"):
        return Transformer(
            config.model,
            source_vocab_size=vocab_size,
            target_vocab_size=vocab_size,
            source_pad_id=0,
            target_pad_id=0,
        )


def summary(config: BenchConfig, rounds: dict[str, list[Round]], ceiling: Ceiling) -> Measured:
    found = Measured("train", COLUMNS)
    rates = {name: [one.n_target_tokens / one.seconds for one in of] for name, of in rounds.items()}
    for name, of in rounds.items():
        useful = ratio([ceiling.flops(one) / one.seconds for one in of], ceiling.rates)
        faster = ratio(rates[OURS], rates[name])
        filled = sum(one.n_source_tokens + one.n_target_tokens for one in of) / sum(one.n_cells for one in of)
        row = [name, Spread.of(rates[name]).shown_briefly(), "" if name == OURS else faster.shown(".2f")]
        row += [f"{Spread.of([1e3 * one.seconds / config.n_updates for one in of]).median:,.1f}", f"{filled:.1%}"]
        found.rows.append([*row, f"{useful.median:.1%}", gigabytes(of[-1].peak_bytes)])
        found.figures[name] = [asdict(one) for one in of]
        if name == OURS:
            found.ratios["useful FLOP/s to a large product"] = useful
        else:
            found.ratios[f"tfm to {name}"] = faster
    shares, peak_rates = Spread.of(ceiling.shares), Spread.of([rate / 1e9 for rate in ceiling.rates])
    found.ratios["matrix products alone to the update"] = shares
    found.figures["large product, FLOP/s"] = ceiling.rates
    found.notes = [
        f"A large matrix product makes {peak_rates.shown()} GFLOP/s, of which the products of real tokens are so many"
        f" percent. Those of our update, made by themselves, take {shares.shown('.0%')} of its time.",
        f"Rounds: {len(rounds[OURS])} of {config.n_updates} updates each, in turn, after one that is not counted. The"
        " median; in brackets the quartiles, after ± half their distance. Ratios are taken round by round.",
    ]
    return found
