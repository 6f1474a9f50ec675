"""`tfm bench students`: quality, speed and size of models by each engine, in turn on one text."""

import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.addons.benchmarks.report import Measured
from transformer_cli.addons.benchmarks.students_picture import StudentPoint, check_picture, draw_students
from transformer_cli.addons.benchmarks.timing import Spread
from transformer_cli.config.decode import DecodeConfig, Quantize
from transformer_cli.config.shared import TORCH, engine_names
from transformer_cli.data.lines import read_lines
from transformer_cli.decoding.directions import asked_tags, known_languages
from transformer_cli.decoding.opening import Opened, open_models
from transformer_cli.decoding.results import TranslateOptions
from transformer_cli.decoding.shortlist import Shortlist, shortlist_path
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import CheckpointError, ConfigError, DataError, EnvironmentFault
from transformer_cli.evaluation.metrics import bleu, chrf
from transformer_cli.evaluation.tokenization import Tokenization, tokenization
from transformer_cli.models.exported import Exported
from transformer_cli.models.file import ModelFile

LINES_ALONE = 50  # lines that are also translated one at a time
# Kernels that oneDNN keeps: one model has some 400, and of several in turn more than the 1,024 that it keeps by itself
# would be compiled anew in each round, which no translation with one of them does.
_KERNELS = 1 << 14
_COLUMNS = (
    *("model", "engine", "search", "threads", "MB", "loaded in", "source tokens/s", "one: p50, p99 ms"),
    *("BLEU", "chrF", "Pareto"),
)
_WAYS = (
    (TORCH, Quantize.none),
    ("ctranslate2", Quantize.none),
    ("ctranslate2", Quantize.int8),
    ("firefox", Quantize.none),
)


@dataclass
class Contender:
    """A model with an engine and a search, opened, and what was measured of it."""

    model: str
    target_lang: str
    engine: str
    search: str
    threads: int
    translator: Translator
    megabytes: float  # of the file or folder that the engine reads
    load_s: float
    n_tokens: int = 0  # of the source, by the first model's tokenizer, EOS counted
    seconds: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    bleu: float | None = None
    chrf: float | None = None
    is_best: bool = False  # no other with as many threads is as fast and better

    @property
    def point(self) -> StudentPoint:
        """The place of the row in the picture."""
        assert self.bleu is not None
        return StudentPoint(self.model, f"{self.engine}, {self.search}", self.speed.median, self.bleu, self.is_best)

    @property
    def speed(self) -> Spread:
        return Spread.of([self.n_tokens / one for one in self.seconds])


def bench_students(config: BenchConfig, device: torch.device) -> Measured:
    """Measure each model by each engine that runs it, `rounds` times in turn. Raises TfmError."""
    if config.source is None:
        raise ConfigError("source: not given. Name a text, as source=test.en reference=test.de")
    lines = read_lines(Path(config.source)).texts
    references = None if config.reference is None else read_lines(Path(config.reference)).texts
    if not lines:
        raise DataError(f"{config.source}: is empty. Put one sentence on each line")
    if references is not None and len(references) != len(lines):
        raise DataError(
            f"{config.reference}: has {len(references):,} lines, {config.source} {len(lines):,}. Make line n of one the"
            " translation of line n of the other"
        )
    lines, references = lines[: config.n_lines], None if references is None else references[: config.n_lines]
    if config.picture is not None:
        if references is None:
            raise ConfigError(f"picture={config.picture}: shows BLEU. Give a translation, as reference=test.de")
        check_picture(Path(config.picture))
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(_KERNELS))  # read before its first product
    greedy = replace(config.decode, search="greedy", beam_size=1, n_best=1, shortlist=None)
    models = [open_models(checkpoint, runs=config.runs, decode=greedy) for checkpoint in config.checkpoints]
    for model, *_ in (opened.models for opened in models):  # what cannot be measured is refused before anything is
        tags_of(model, config)
        if references is not None:
            tokenization_of(_target_of(model, config), config)
    found = Measured("students", _COLUMNS)
    without = without_shortlist(models, config)
    found.notes += [f"{name} is not measured with a shortlist: {why}" for name, why in without.items()]
    contenders: list[Contender] = []
    left_out: dict[str, list[str]] = {}
    for threads in thread_counts(device):
        with n_threads(threads):
            opened = list(_opened(config, device, threads, set(without), left_out))
            measure_in_turn(opened, lines, config.rounds, device)
            contenders += opened
    found.notes += [f"{', '.join(names)}: not measured by {why}" for why, names in left_out.items()]
    for one in contenders:
        _score(one, config, references)
    mark_best(contenders)
    for one in contenders:
        add_row(found, one)
    n_alone = min(len(lines), LINES_ALONE)
    found.notes.append(
        f"{len(lines):,} lines of {config.source}, the first {n_alone} also one at a time. Source tokens are those of"
        " the first model's vocabulary, EOS counted, for every row. MB are of the files that the engine reads. Rounds:"
        f" {config.rounds}, in turn; the median, in brackets the quartiles. Pareto: no other is as fast and has more"
        " BLEU."
    )
    if counts_processor_time(1, device):
        found.notes.append("Seconds of one thread are those of processor time, which other programs take none of.")
    if config.picture is not None:
        draw_students(
            [one.point for one in contenders if one.threads == 1 and one.bleu is not None], Path(config.picture)
        )
        found.notes.append(f"Picture: {config.picture}")
    return found


def without_shortlist(models: Sequence[Opened], config: BenchConfig) -> dict[str | None, CheckpointError]:
    """The checkpoints that decode.shortlist is not for, and why. Raises CheckpointError if these are all."""
    found: dict[str | None, CheckpointError] = {}
    if config.decode.shortlist is None:
        return found
    for checkpoint, opened in zip(config.checkpoints, models, strict=True):
        model = opened.models[0]
        try:
            path = shortlist_path(config.decode.shortlist, opened.paths[0])
            Shortlist.read(path, model.tokenizers, (model.source_lang, model.target_lang))
        except CheckpointError as error:
            found[checkpoint] = error
    if found.keys() == set(config.checkpoints):
        raise found[config.checkpoints[0]]
    return found


def _target_of(model: ModelFile | Exported, config: BenchConfig) -> str:
    """The language of the translations; of a model of several that no flag names, all of them."""
    return known_languages(model, config.source_lang, config.target_lang)[1] or model.target_lang


def thread_counts(device: torch.device) -> list[int]:
    """One, and on a CPU two where torch has several."""
    return [1, 2] if device.type == "cpu" and torch.get_num_threads() > 1 else [1]


@contextmanager
def n_threads(n: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _opened(
    config: BenchConfig, device: torch.device, threads: int, without: set[str | None], left_out: dict[str, list[str]]
) -> Iterator[Contender]:
    """Each model with each engine that runs it, and each search that this has.

    Those `without` a shortlist are measured without. `left_out` gets the engine that cannot run a model with the
    reason, and the models that it is the reason for.
    """
    known = engine_names()
    members = tuple(str(name) for name in config.checkpoints[: config.ensemble])
    for checkpoint in [*config.checkpoints, *([members] if members else [])]:
        has_none = checkpoint in without or checkpoint == members  # shortlists are those of one model
        searches = list(_searches(replace(config.decode, shortlist=None) if has_none else config.decode))
        for engine, quantize in _WAYS:
            if engine not in known:
                continue
            for search, decode in searches:
                name = f"{engine} int8" if quantize is Quantize.int8 else engine
                try:
                    yield _open(
                        checkpoint, name, search, engine, replace(decode, quantize=quantize), device, threads, config
                    )
                except (ConfigError, EnvironmentFault, CheckpointError) as error:
                    if engine == TORCH:
                        raise
                    if decode.search == "greedy":  # which every engine has
                        models = left_out.setdefault(f"{engine}: {error}", [])
                        model = name_of(checkpoint) or "the newest run"
                        models += [model] if model not in models else []


def _searches(decode: DecodeConfig) -> Iterator[tuple[str, DecodeConfig]]:
    """The search that is set, and greedy search, each also with the shortlist where there is one."""
    for shortlist in dict.fromkeys([None, decode.shortlist]):
        suffix = "" if shortlist is None else ", shortlist"
        if decode.beam_size > 1 and decode.search == "beam":
            yield f"beam {decode.beam_size}{suffix}", replace(decode, shortlist=shortlist)
        greedy = replace(decode, search="greedy", beam_size=1, n_best=1, shortlist=shortlist)
        yield f"greedy{suffix}", greedy


def name_of(checkpoint: str | Sequence[str] | None) -> str | None:
    """A model or the members of an ensemble, as tables call them."""
    return checkpoint if checkpoint is None or isinstance(checkpoint, str) else " + ".join(checkpoint)


def _open(
    checkpoint: str | tuple[str, ...] | None,
    name: str,
    search: str,
    engine: str,
    decode: DecodeConfig,
    device: torch.device,
    threads: int,
    config: BenchConfig,
) -> Contender:
    for _ in range(2):  # a first time converts the model
        start = time.perf_counter()
        opened = open_models(checkpoint, runs=config.runs, engine=engine, decode=decode, options=TranslateOptions())
        options = TranslateOptions(tags=tags_of(opened.models[0], config))
        translator = opened.translator(decode, device, parallel=threads > 1, options=options)
        translator.translate(["."])
        seconds = time.perf_counter() - start
    size = sum(weights_size(translator, *one) for one in zip(opened.paths, opened.models, strict=True))
    return Contender(
        name_of(checkpoint) or str(opened.paths[0].parent),
        _target_of(opened.models[0], config),
        name,
        search,
        threads,
        translator,
        size / 1e6,
        seconds,
    )


def tags_of(model: ModelFile | Exported, config: BenchConfig) -> tuple[str, ...]:
    """The tags of the direction that is asked for. Raises ConfigError for one that the model does not have."""
    return asked_tags(model, None, config.source_lang, config.target_lang)


def weights_size(translator: Translator, path: Path, model: ModelFile | Exported) -> int:
    """Bytes of the files that the engine has read."""
    directory = getattr(translator.engine, "directory", model.directory if isinstance(model, Exported) else None)
    if directory is None:
        return path.stat().st_size
    return sum(file.stat().st_size for file in Path(directory).rglob("*") if file.is_file())


def measure_in_turn(contenders: Sequence[Contender], lines: Sequence[str], rounds: int, device: torch.device) -> None:
    """Translate the lines by each of them once for the texts, and then in `rounds` for the seconds."""
    # One count for all: a model of fewer pieces has more of them in a line, and is no faster for it.
    n_tokens = sum(len(ids) + 1 for ids in contenders[0].translator.tokenizers.source.encode(lines))
    for one in contenders:
        one.n_tokens = n_tokens
        one.texts = _texts(one.translator, lines)
    gc.collect()
    gc.freeze()  # as `tfm translate` does: or whatever is open would be searched for garbage, in some of the rounds
    try:
        for _ in range(rounds):
            for one in contenders:
                clock = time.process_time if counts_processor_time(one.threads, device) else time.perf_counter
                one.seconds.append(_seconds(one.translator, lines, clock))
                if one.threads == 1:
                    one.alone += [_seconds(one.translator, [line], clock) for line in lines[:LINES_ALONE]]
    finally:
        gc.unfreeze()


def counts_processor_time(threads: int, device: torch.device) -> bool:
    """Whether seconds are those of the processor, which other programs take none of: one thread never waits."""
    return threads == 1 and device.type == "cpu"


def _texts(translator: Translator, lines: Sequence[str]) -> list[str]:
    return [translated.hypotheses[0][0] for translated in translator.translate(lines)]


def _seconds(translator: Translator, lines: Sequence[str], clock: Callable[[], float]) -> float:
    start = clock()
    _texts(translator, lines)
    return clock() - start


def tokenization_of(language: str, config: BenchConfig) -> Tokenization:
    """The tokenization for BLEU of a language. Raises EnvironmentFault where a library for it is not installed."""
    tokens = tokenization(language, config.data.bleu_tokenize)
    if tokens.missing:
        raise EnvironmentFault(f"BLEU of {language}: {tokens.missing}")
    return tokens


def _score(one: Contender, config: BenchConfig, references: Sequence[str] | None) -> None:
    if references is None:
        return
    one.bleu = bleu(one.texts, [references], tokenization_of(one.target_lang, config)).value
    one.chrf = chrf(one.texts, [references]).value


def mark_best(contenders: Sequence[Contender]) -> None:
    """Mark those of the Pareto front, of each number of threads."""
    for one in contenders:
        if one.bleu is None:
            continue
        others = [other for other in contenders if other.threads == one.threads and other is not one]
        one.is_best = not any(
            (other.speed.median >= one.speed.median and (other.bleu or 0) > one.bleu)
            or (other.speed.median > one.speed.median and (other.bleu or 0) >= one.bleu)
            for other in others
        )


def add_row(found: Measured, one: Contender) -> None:
    alone = np.quantile(one.alone, (0.5, 0.99)).tolist() if one.alone else []
    found.rows.append(
        [
            one.model,
            one.engine,
            one.search,
            str(one.threads),
            f"{one.megabytes:.1f}",
            f"{one.load_s:.2f} s",
            one.speed.shown(),
            ", ".join(f"{1000 * second:.1f}" for second in alone),
            "" if one.bleu is None else f"{one.bleu:.2f}",
            "" if one.chrf is None else f"{one.chrf:.1f}",
            "*" if one.is_best else "",
        ]
    )
    found.figures[f"{one.model}, {one.engine}, {one.search}, {one.threads} threads"] = {
        "megabytes": one.megabytes,
        "load_s": one.load_s,
        "tokens_per_s": one.speed.median,
        "one_p50_ms": 1000 * alone[0] if alone else None,
        "one_p99_ms": 1000 * alone[1] if alone else None,
        "bleu": one.bleu,
        "chrf": one.chrf,
        "is_pareto": one.is_best,
    }
