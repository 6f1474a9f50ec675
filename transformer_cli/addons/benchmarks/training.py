"""`tfm bench train`: training throughput beside baselines and beside the matrix products of an update."""

import os

import torch

from transformer_cli.addons.benchmarks.baselines import BASELINES, check_comparable
from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.addons.benchmarks.matmuls import count_projections, flops, peak_rate, seconds_alone
from transformer_cli.addons.benchmarks.report import Measured
from transformer_cli.addons.benchmarks.timing import Spread, ratio
from transformer_cli.addons.benchmarks.worker import BenchmarkWorker, Round
from transformer_cli.config.compose import to_plain
from transformer_cli.config.model import Vocabulary
from transformer_cli.logs import LOGGER
from transformer_cli.models.memory import gigabytes
from transformer_cli.models.transformer import Transformer
from transformer_cli.training.precision import choose_dtype

TFM = "tfm"
COMPILED = "nn.Transformer lean"
_COLUMNS = ("", "target tokens/s", "tfm is faster by", "ms an update", "filled", "of matmul", "memory")


def bench_train(config: BenchConfig, device: torch.device) -> Measured:
    """Time each implementation in a process of its own, in interleaved rounds after a warm-up round."""
    if config.rivals:
        check_comparable(config)
    workers = _start_workers(config, device)
    try:
        for worker in workers:
            worker.round()
        rounds: dict[str, list[Round]] = {worker.name: [] for worker in workers}
        for number in range(config.rounds):
            LOGGER.info("round %d of %d", number + 1, config.rounds)
            for worker in workers:
                rounds[worker.name].append(worker.round())
            if number == 0:
                ceiling = Ceiling(config, rounds[TFM][0], device)
            ceiling.measure(rounds[TFM][-1])
    finally:
        for worker in workers:
            worker.close()
    return summary(config, rounds, ceiling)


def _start_workers(config: BenchConfig, device: torch.device) -> list[BenchmarkWorker]:
    """A process for each implementation. Only tfm keeps the environment that the `tfm` command sets.

    On a GPU, nn.Transformer is also measured compiled.
    """
    plain = to_plain(config)
    usual = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    workers = [BenchmarkWorker(TFM, "transformer_cli.addons.benchmarks.tfm_training", {"config": plain}, os.environ)]
    for net in BASELINES.names() if config.rivals else []:
        for compiled in (False, True) if device.type == "cuda" and net == COMPILED else (False,):
            parameters = {"config": plain, "net": net, "compiled": compiled}
            name = f"{net}, compiled" if compiled else net
            workers.append(BenchmarkWorker(name, "transformer_cli.addons.benchmarks.baselines", parameters, usual))
    return workers


class Ceiling:
    """The matrix products of an update of tfm on their own, and the peak rate of the machine."""

    def __init__(self, config: BenchConfig, example: Round, device: torch.device) -> None:
        self.device, self.dtype = device, choose_dtype(config.train.precision, device)
        self.model = skeleton(config, vocab_size=config.data.tokenizer.vocab_size)
        self.n_updates = config.n_updates
        n_source, n_target = example.n_source_tokens // self.n_updates, example.n_target_tokens // self.n_updates
        self.products = count_projections(self.model, n_source=n_source, n_target=n_target)
        self.shares: list[float] = []
        self.rates: list[float] = []

    def measure(self, done: Round) -> None:
        alone = sum(n * seconds_alone(p, dtype=self.dtype, device=self.device) for p, n in self.products.items())
        # The timed updates may have a few tokens more or less.
        alone *= self.flops(done) / (flops(self.products) * self.n_updates)
        self.shares.append(alone / done.seconds)
        self.rates.append(peak_rate(self.dtype, self.device))

    def flops(self, of: Round) -> int:
        """Operations of the matrix products of real tokens, without padding."""
        return flops(count_projections(self.model, n_source=of.n_source_tokens, n_target=of.n_target_tokens))


def skeleton(config: BenchConfig, *, vocab_size: int) -> Transformer:
    """The model on the meta device, without weights."""
    vocabulary = Vocabulary(vocab_size, pad_id=0)
    with torch.device("meta"):
        return Transformer(config.model, vocabulary, vocabulary)


def summary(config: BenchConfig, rounds: dict[str, list[Round]], ceiling: Ceiling) -> Measured:
    found = Measured("train", _COLUMNS)
    rates = {name: [one.n_target_tokens / one.seconds for one in of] for name, of in rounds.items()}
    for name, of in rounds.items():
        useful = ratio([ceiling.flops(one) / one.seconds for one in of], ceiling.rates)
        faster = ratio(rates[TFM], rates[name])
        real = sum(one.n_source_tokens + one.n_target_tokens for one in of) / sum(one.n_padded_tokens for one in of)
        row = [name, Spread.of(rates[name]).shown_briefly(), "" if name == TFM else faster.shown(".2f")]
        row += [f"{Spread.of([1e3 * one.seconds / config.n_updates for one in of]).median:,.1f}", f"{real:.1%}"]
        found.rows.append([*row, f"{useful.median:.1%}", gigabytes(of[-1].peak_bytes)])
        found.figures[name] = [one.as_dict() for one in of]
        if name == TFM:
            found.ratios["useful FLOP/s to a large product"] = useful
        else:
            found.ratios[f"tfm to {name}"] = faster
    shares, peak_rates = Spread.of(ceiling.shares), Spread.of([rate / 1e9 for rate in ceiling.rates])
    found.ratios["matrix products alone to the update"] = shares
    found.figures["large product, FLOP/s"] = ceiling.rates
    found.notes = [
        f"A large matrix product makes {peak_rates.shown()} GFLOP/s, of which the products of real tokens are so many"
        f" percent. Those of an update of tfm, made by themselves, take {shares.shown('.0%')} of its time.",
        f"Rounds: {len(rounds[TFM])} of {config.n_updates} updates each, in turn, after one that is not counted. The"
        " median; in brackets the quartiles, after ± half their distance. Ratios are taken round by round.",
    ]
    return found
