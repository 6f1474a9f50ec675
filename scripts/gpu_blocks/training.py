"""(c) Training base and big in bf16: ways to compile, sizes of micro-batches, and other programs."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpu_blocks.block import Block, failure, note, with_train
from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.addons.benchmarks.matmuls import count_projections, flops, peak_rate
from transformer_cli.addons.benchmarks.report import Measured
from transformer_cli.addons.benchmarks.timing import Spread, ratio
from transformer_cli.addons.benchmarks.training import skeleton
from transformer_cli.addons.benchmarks.worker import BenchmarkWorker, Round
from transformer_cli.addons.benchmarks.workload import load_workload
from transformer_cli.config.compose import to_plain
from transformer_cli.errors import TfmError
from transformer_cli.models.memory import gigabytes
from transformer_cli.training.batch_size import fitting_batch_size
from transformer_cli.training.precision import choose_dtype

COLUMNS = (
    *("", "target tokens/s", "of the first", "ms an update", "of matmul", "memory", "first updates, s"),
    "kernels an update",
)
LEAN, MARIAN = "nn.Transformer lean", "Hugging Face Marian"
N_WARM_UP = 3  # rounds; each of the few sizes is compiled when its first batch comes, and captured soon after
NEEDED_TO_COUNT_S = 30
LATEST = 0.7  # of the time that is left, for the first updates of what compiles
SMALL = 8192  # tokens of a small micro-batch
SMALL_MODEL = """
    model.d_model=128 model.d_ff=256 model.n_heads=4 model.n_encoder_layers=4 model.n_decoder_layers=4
    data.tokenizer.vocab_size=9500 train.tokens_per_update=2048 train.max_tokens_per_microbatch=2400 n_updates=20
"""
AIMS = {"base": 1_000_000, "big": 350_000}  # target tokens a second
AIM_FASTER = 4  # than nn.Transformer, eager


class Way(NamedTuple):
    """A program and its settings, which trains in a process of its own."""

    name: str
    config: BenchConfig
    is_compiled: bool
    net: str | None = None  # of another program

    def start(self) -> BenchmarkWorker:
        plain = to_plain(self.config)
        if self.net is None:
            parameters: dict[str, Any] = {"config": plain, "checked": False}  # block b compares the results
            return BenchmarkWorker(self.name, "transformer_cli.addons.benchmarks.tfm_training", parameters, os.environ)
        parameters = {"config": plain, "net": self.net, "compiled": self.is_compiled}
        return BenchmarkWorker(self.name, "transformer_cli.addons.benchmarks.baselines", parameters, os.environ)


@dataclass
class Timed:
    """The rounds of one way."""

    worker: BenchmarkWorker
    warm_up_s: float
    rounds: list[Round] = field(default_factory=list)
    n_kernels: int | None = None

    @property
    def rates(self) -> list[float]:
        return [one.n_target_tokens / one.seconds for one in self.rounds]


def run(block: Block) -> None:
    for what, ways in (
        ("beside other programs", beside_others),
        ("ways to compile, and micro-batches", settings),
    ):
        for model in ("base",) if block.is_toy else ("base", "big"):  # at toy size they are the same
            block.measure(
                f"{model}, {what}",
                lambda ways=ways, model=model: contest(block, ways(block, model), model=model),
                needs_s=60,
            )
    block.measure("a small model", lambda: contest(block, small_updates(block), model="small"), needs_s=45)


def small_updates(block: Block) -> list[Way]:
    """The model of `recipe=auto` and updates of its size, which take the CPU longer to launch than the GPU to run."""

    def made(mode: str, n_updates: int) -> BenchConfig:
        size = [] if block.is_toy else SMALL_MODEL.split()
        return block.config("base", "train.precision=bf16", *size, f"train.max_steps={n_updates}", mode=mode)

    as_written = Way("nothing compiled", made("none", 1000), is_compiled=False)
    if not block.on_gpu:
        return [as_written]
    return [
        Way("CUDA graphs of what is not compiled", made("auto", 1000), is_compiled=False),
        as_written,
        Way("CUDA graphs of compiled layers", made("graphs", 100_000), is_compiled=True),
    ]


def beside_others(block: Block, model: str) -> list[Way]:
    config = bf16(block, model)
    found = [Way("tfm", config, block.on_gpu), Way(LEAN, config, False, LEAN)]
    found += [Way(f"{MARIAN}, compiled", config, block.on_gpu, MARIAN)]
    if model == "base":
        found += [Way(f"{LEAN}, compiled", config, block.on_gpu, LEAN)]
    return found


def settings(block: Block, model: str) -> list[Way]:
    """The ways to compile, and sizes of micro-batches. On a CPU, where graphs are refused, those that there are."""
    main = bf16(block, model)
    size = main.train.max_tokens_per_microbatch
    small = with_train(main, max_tokens_per_microbatch=SMALL if size > SMALL else size // 2)
    modes = ("default", "none", "graphs") if block.on_gpu else ("none",)
    found = [Way(f"compile={mode}", bf16(block, model, mode=mode), mode != "none") for mode in modes]
    found.append(Way(f"micro-batches of {small.train.max_tokens_per_microbatch:,}", small, block.on_gpu))
    number = fitting_batch_size(main, load_workload(main), block.device, world_size=1)
    auto = with_train(main, max_tokens_per_microbatch=number)
    return [*found, Way(f"micro-batches auto: {number:,}", auto, block.on_gpu)]


def bf16(block: Block, model: str, *, mode: str | None = None) -> BenchConfig:
    return block.config(model, "train.precision=bf16", "n_updates=8", mode=mode)


def contest(block: Block, ways: list[Way], *, model: str) -> Measured:
    """Time all ways in interleaved rounds; one that fails is left out, and named."""
    config = ways[0].config
    failed: dict[str, str] = {}
    with ExitStack() as stack:
        timed = warmed_up(block, ways, failed, stack)
        if not timed:
            raise RuntimeError("; ".join(f"{name}: {why}" for name, why in failed.items()))
        peaks: list[float] = []
        for number in range(config.rounds):
            if number and block.left_s < 20:
                break
            peaks.append(peak_rate(choose_dtype(config.train.precision, block.device), block.device))
            for_each(timed, failed, one_round)
        for_each(timed, failed, lambda one: count_kernels(one) if block.left_s > NEEDED_TO_COUNT_S else None)
    return summary(timed, failed, peaks, config, model)


def warmed_up(block: Block, ways: list[Way], failed: dict[str, str], stack: ExitStack) -> dict[str, Timed]:
    """Warms up: what compiles side by side, the rest one by one, as first updates need the most memory."""
    workers = {way.name: stack.enter_context(closing(way.start())) for way in ways}

    def warm_up(way: Way) -> Timed:
        workers[way.name].release()  # once it is ready
        start = time.perf_counter()
        for _ in range(N_WARM_UP):
            workers[way.name].round()
        seconds = time.perf_counter() - start
        workers[way.name].release()
        return Timed(workers[way.name], seconds)

    found: dict[str, Timed] = {}
    compiled = [way for way in ways if way.is_compiled]
    with ThreadPoolExecutor(max(1, len(compiled))) as pool:
        futures = {way.name: pool.submit(warm_up, way) for way in compiled}
        late = wait(futures.values(), timeout=None if block.is_toy else LATEST * block.left_s).not_done
        for way in compiled:
            if futures[way.name] in late:
                failed[way.name] = "its first updates took too long"
                workers[way.name].close()  # which ends the thread that waits for it
    again = [way for way in compiled if futures[way.name].exception() is not None and way.name not in failed]
    found |= {name: future.result() for name, future in futures.items() if future.exception() is None}
    for way in again:  # perhaps it was only the memory that did not suffice for all of them
        note(f"{way.name}: {futures[way.name].exception()}; once more by itself")
        workers[way.name].close()
        workers[way.name] = stack.enter_context(closing(way.start()))
    for way in [*again, *(way for way in ways if not way.is_compiled)]:
        try:
            found[way.name] = warm_up(way)
        except TfmError as error:
            failed[way.name] = failure(error)
    return {way.name: found[way.name] for way in ways if way.name in found and way.name not in failed}


def for_each(timed: dict[str, Timed], failed: dict[str, str], work: Callable[[Timed], None]) -> None:
    """`work` of each way that has not failed; one that fails, with its process, is named in `failed`."""
    for name, one in timed.items():
        if name not in failed:
            try:
                work(one)
            except TfmError as error:
                failed[name] = failure(error)


def one_round(one: Timed) -> None:
    one.worker.round()  # not counted: it takes back the memory that it has left to the others
    one.rounds.append(one.worker.round())
    one.worker.release()


def count_kernels(one: Timed) -> None:
    one.n_kernels = one.worker.n_kernels()


def summary(
    timed: dict[str, Timed], failed: dict[str, str], peaks: list[float], config: BenchConfig, model: str
) -> Measured:
    found = Measured("train", COLUMNS)
    finished = {name: one for name, one in timed.items() if len(one.rounds) == len(peaks)}
    if not finished:
        raise RuntimeError("; ".join(f"{name}: {why}" for name, why in failed.items()))
    first = next(iter(finished))
    network = skeleton(config, vocab_size=config.data.tokenizer.vocab_size)
    for name, one in finished.items():
        done = [
            flops(count_projections(network, n_source=of.n_source_tokens, n_target=of.n_target_tokens)) / of.seconds
            for of in one.rounds
        ]
        update_s = Spread.of([of.seconds / config.n_updates for of in one.rounds]).median
        compared = ratio(one.rates, finished[first].rates)
        kernels = "" if one.n_kernels is None else f"{one.n_kernels / config.n_updates:,.0f}"
        row = [name, Spread.of(one.rates).shown_briefly(), "" if name == first else compared.shown(".2f")]
        row += [f"{1e3 * update_s:,.1f}", f"{ratio(done, peaks).median:.1%}", gigabytes(one.rounds[-1].peak_bytes)]
        found.rows.append([*row, f"{max(0.0, one.warm_up_s - N_WARM_UP * update_s * config.n_updates):,.0f}", kernels])
        found.figures[name] = {"rounds": [of.as_dict() for of in one.rounds], "warm-up, s": one.warm_up_s}
        if name != first:
            found.ratios[f"{first} to {name}"] = ratio(finished[first].rates, one.rates)
    found.figures["large product, FLOP/s"] = peaks
    found.notes = [
        f"Updates of {config.train.tokens_per_update:,} target tokens, {len(peaks)} rounds of {config.n_updates}. A"
        f" large matrix product makes {Spread.of([peak / 1e12 for peak in peaks]).shown(',.1f')} TFLOP/s; the products"
        " of real tokens are so many percent of that. First updates: what they took longer than later ones, which is"
        " mostly the compiler.",
        *aims(finished, model),
        *(f"{name} failed: {why}" for name, why in failed.items()),
    ]
    return found


def aims(finished: dict[str, Timed], model: str) -> list[str]:
    if "tfm" not in finished:
        return []
    rate = Spread.of(finished["tfm"].rates).median
    found = f"Aimed at: {AIMS[model]:,} target tokens/s, measured {rate:,.0f}"
    if LEAN in finished:
        faster = ratio(finished["tfm"].rates, finished[LEAN].rates).shown(".2f")
        found += f"; {AIM_FASTER} times {LEAN}, eager, measured {faster}"
    return [f"{found}."]
