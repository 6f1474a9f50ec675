"""(d) The paths beside the main one: other precisions, dropout of attention, other tasks, an older GPU, evaluation."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, cast
from unittest import mock

import numpy as np

from gpu_blocks.block import TOY, Block, failure
from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.addons.benchmarks.report import Measured
from transformer_cli.addons.benchmarks.tfm_training import TfmTraining
from transformer_cli.addons.benchmarks.timing import Spread, finish, ratio
from transformer_cli.addons.benchmarks.workload import WorkloadVocabulary, load_workload, random_sentences, words
from transformer_cli.config.compose import load_config
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.training.validation import make_validator

TITLE = "paths of training, beside the main one"
COLUMNS = ("", "tokens/s, both sides", "of the main path", "first updates, s")
ROUNDS, N_UPDATES = 3, 4
N_WARM_UP = 2  # rounds
N_LABELS = 5
OLD = (7, 5)  # Turing: no bf16, no variable-length attention
N_DEV, TOY_DEV = 3000, 20  # lines
NEEDS_S = 15


class Path(NamedTuple):
    config: TrainConfig
    prepared: Prepared | None = None  # unless it is the workload of the config
    capability: tuple[int, int] | None = None  # that the GPU is taken to have


def run(block: Block) -> None:
    main = block.config("base", *brief(block), "train.precision=bf16")
    with ExitStack() as stack:
        block.measure(TITLE, lambda: compare(block, main, stack), needs_s=NEEDS_S)
    block.measure("evaluation on a dev set", lambda: evaluation(block, main), needs_s=NEEDS_S)


def brief(block: Block) -> list[str]:
    return [] if block.is_toy else [f"n_updates={N_UPDATES}"]


def paths(block: Block) -> dict[str, Callable[[], Path]]:
    """The paths in order of importance; each is made when it is measured."""

    def changed(*overrides: str, capability: tuple[int, int] | None = None) -> Callable[[], Path]:
        return lambda: Path(block.config("base", *brief(block), *overrides), capability=capability)

    bf16, fp16 = "train.precision=bf16", "train.precision=fp16"
    of_gpus = {
        "fp16": changed(fp16),
        "fp16, as on an older GPU": changed(fp16, capability=OLD),
        "tf32": changed("train.precision=tf32"),
    }
    return {
        "attention_dropout=0.1": changed(bf16, "model.attention_dropout=0.1"),
        **(of_gpus if block.on_gpu else {}),
        "language model": lambda: language_model(block),
        "classifier": lambda: classifier(block),
        "fp32": changed("train.precision=fp32"),
        "activation_checkpointing=true": changed(bf16, "train.activation_checkpointing=true"),
        "compile=none": changed(bf16, "train.compile=none"),
    }


def compare(block: Block, config: BenchConfig, stack: ExitStack) -> Measured:
    """Rounds of each path in turn with the main one; what has been measured is written down after each."""
    found = Measured("train", COLUMNS)
    found.notes = [
        f"Base, {config.train.tokens_per_update:,} target tokens an update; tokens of both sides, as a language model"
        " has no source and a classifier no target text. Older GPU: this one, taken to have capability"
        f" {OLD[0]}.{OLD[1]}."
    ]
    main, main_s = warmed_up(block, Path(config), stack)
    found.rows = [["main: bf16", "", "", f"{main_s:.0f}"]]
    all_rates: list[float] = []
    makers = paths(block)
    for name, make in makers.items():
        if block.left_s < NEEDS_S and not block.is_toy:
            found.notes.append(f"{name}: left out, no time.")
            continue
        try:
            mains, others, first_s = in_pairs(block, main, make())
        except Exception as error:
            found.notes.append(f"{name} failed: {failure(error)}")
            continue
        all_rates += mains
        compared = ratio(others, mains)
        found.ratios[f"{name} to main"] = compared
        found.rows[0][1] = Spread.of(all_rates).shown_briefly()
        found.rows.append([name, Spread.of(others).shown_briefly(), compared.shown(".2f"), f"{first_s:.0f}"])
        block.keep(found)
        block.free()
    return found


def in_pairs(block: Block, main: TfmTraining, path: Path) -> tuple[list[float], list[float], float]:
    """Tokens a second of rounds of the main path and of another in turn, and the seconds of the other's first ones."""
    with ExitStack() as stack, older(path.capability):
        other, first_s = warmed_up(block, path, stack)
        pairs = [(rate(main), rate(other)) for _ in range(1 if block.is_toy else ROUNDS)]
    return [one for one, _ in pairs], [one for _, one in pairs], first_s


@contextmanager
def older(capability: tuple[int, int] | None) -> Iterator[None]:
    """Makes the GPU report this `capability` in the block."""
    if capability is None:
        yield
        return
    with mock.patch("torch.cuda.get_device_capability", return_value=capability):
        yield


def warmed_up(block: Block, path: Path, stack: ExitStack) -> tuple[TfmTraining, float]:
    """A trainer, and the seconds of its first rounds."""
    start = time.perf_counter()
    trainer = TfmTraining(path.config, block.device, path.prepared, n_updates=N_UPDATES)
    stack.enter_context(closing(trainer.ahead))
    for _ in range(1 if block.is_toy else N_WARM_UP):
        trainer.round()
    return trainer, time.perf_counter() - start


def rate(trainer: TfmTraining) -> float:
    done = trainer.round()
    return (done.n_target_tokens + done.n_source_tokens) / done.seconds


# ---- Other tasks


def task_config(block: Block, *words: str) -> TrainConfig:
    """The sizes of the main path, for another task; toy sizes without those of the encoder or decoder it lacks."""
    base = block.config().train
    size = [f"train.tokens_per_update={base.tokens_per_update}"]
    size += [f"train.max_tokens_per_microbatch={base.max_tokens_per_microbatch}", "train.precision=bf16"]
    size += ["schedule.warmup_steps=4000", "train.max_steps=100000"]  # not by the corpus
    size += [word for word in TOY.split() if word.startswith("model.d_") or "n_heads" in word] if block.is_toy else []
    loaded: TrainConfig = load_config("train", [*words, *size, f"device={block.device.type}"])
    return loaded


def language_model(block: Block) -> Path:
    base = block.config()
    corpus = random_sentences(base.data.tokenizer.vocab_size, longest=base.data.max_length, seed=1)
    n = len(corpus)
    no_ids = EncodedCorpus(
        np.zeros(0, np.int32),
        np.zeros(n + 1, np.int64),
        np.zeros(n, np.int64),
        corpus.target_ids,
        corpus.target_offsets,
        corpus.target_lengths,
    )
    prepared = replace(load_workload(base), train=no_ids)
    return Path(task_config(block, "data=text", "model=decoder_base"), prepared)


def classifier(block: Block) -> Path:
    base = block.config()
    size = base.data.tokenizer.vocab_size
    corpus = random_sentences(size, longest=base.data.max_length, seed=1)
    n = len(corpus)
    vocabulary = cast(Tokenizer, WorkloadVocabulary(size))
    source_ids = corpus.source_ids.copy()
    source_ids[corpus.source_offsets[:-1]] = WorkloadVocabulary.bos_id
    classes = np.random.default_rng(1).integers(N_LABELS, size=n, dtype=np.int32)
    labelled = replace(
        corpus,
        source_ids=source_ids,
        target_ids=classes,
        target_offsets=np.arange(n + 1),
        target_lengths=np.ones(n, np.int64),
    )
    tokenizers = Tokenizers(vocabulary, vocabulary, tuple(f"label {k}" for k in range(N_LABELS)))
    prepared = replace(load_workload(base), train=labelled, tokenizers=tokenizers)
    config = task_config(block, "data=labels", "model=base", "model.name=classifier", "train.best_metric=accuracy")
    return Path(config, prepared)


# ---- Evaluation


def evaluation(block: Block, config: BenchConfig) -> Measured:
    """Target tokens a second of the dev loss, which is computed as training computes, without a backward pass."""
    found = Measured("evaluation", ("", "target tokens/s", "s"))
    tokenizer = words(config.data.tokenizer.vocab_size)
    corpus = random_sentences(len(tokenizer), longest=config.data.max_length - 1, seed=2)
    n = TOY_DEV if block.is_toy else N_DEV
    sides: list[list[str]] = []
    for ids, offsets in ((corpus.source_ids, corpus.source_offsets), (corpus.target_ids, corpus.target_offsets)):
        each: Any = (ids[offsets[i] : offsets[i + 1] - 1].tolist() for i in range(n))  # without EOS
        sides.append([tokenizer.decode(row) for row in each])
    prepared = replace(load_workload(config), tokenizers=Tokenizers(tokenizer, tokenizer), dev=ParallelText(*sides))
    trainer = TfmTraining(config, block.device, prepared)
    with closing(trainer.ahead):
        trainer.round()
        validator = make_validator(config, prepared, block.device)
        model, autocast = trainer.run.trainer.whole_model, trainer.run.trainer.autocast
        n_tokens = sum(batch.n_target_tokens for batch in validator.batches)
        seconds = []
        for _ in range(1 if block.is_toy else ROUNDS + 1):
            start = time.perf_counter()
            validator.nll(model, autocast)
            finish(block.device)
            seconds.append(time.perf_counter() - start)
        timed = seconds[1:] or seconds
        rates = [n_tokens / one for one in timed]
        found.rows.append(
            [f"dev loss of {n:,} pairs", Spread.of(rates).shown_briefly(), f"{Spread.of(timed).median:.2f}"]
        )
        found.figures = {"tokens": n_tokens, "seconds": seconds}
    return found
