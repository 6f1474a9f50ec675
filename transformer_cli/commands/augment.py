"""`tfm augment`: synthetic pairs, made with models, as a corpus that training can use."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from transformer_cli.api import Opened, open_models
from transformer_cli.config.commands import AugmentConfig, AugmentMethod
from transformer_cli.config.tags import tags_in
from transformer_cli.data.hashes import file_sha256
from transformer_cli.data.lines import shown
from transformer_cli.decoding.results import TranslateOptions
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.evaluation.scoring import score_translations
from transformer_cli.inference.precision import in_precision
from transformer_cli.interop.locate import locate_models
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.ensemble import build_all, read_models
from transformer_cli.synthesis.filters import PairFilters
from transformer_cli.synthesis.merge import merge, shard_name
from transformer_cli.synthesis.methods import BackTranslation, Distillation, LogProbs
from transformer_cli.synthesis.shards import Shard, lines_before, n_lines, range_of, read_all, read_range
from transformer_cli.synthesis.work import Made, Pair, Report, work
from transformer_cli.text_io import check_input, check_output, decode_line

INVALID = "not UTF-8"


def run(config: AugmentConfig) -> None:
    """Make a corpus, or join the shards of one, and print how to train on it. Raises TfmError."""
    if config.output is None:
        raise ConfigError("--output: not given. Name the corpus, as bt; its files are called bt.en and bt.de")
    name = Path(config.output)
    if config.method is AugmentMethod.merge:
        check_outputs(name, config)
        report, languages = merge(name)
    else:
        shard = Shard.parse(config.shard)
        name = shard_name(name, shard)
        report, languages = make(name, shard, config)
    print("\n".join(summary(name, report, languages, config)), flush=True)


def make(name: Path, shard: Shard, config: AugmentConfig) -> tuple[Report, Pair]:
    """The corpus of a shard, or what is there already if it was made in the same way."""
    source = input_of(config, shard)
    is_reverse = config.method is AugmentMethod.back_translate
    options = TranslateOptions(tags=tuple(tags_in(config.tag or "")), warns=False)
    opened = open_models(
        config.checkpoint, runs=config.runs, engine=config.engine, decode=config.decode, options=options
    )
    model = opened.models[0]
    languages: Pair = (model.source_lang, model.target_lang)
    if is_reverse:
        languages = languages[1], languages[0]
    settings = settings_of(config, opened, languages, shard, source)
    if (report := done_before(name, settings, config)) is not None:
        LOGGER.info("%s: was made before, in the same way", name)
        return report, languages
    check_outputs(name, config)
    device = choose_device(config.device)
    translator = opened.translator(config.decode, device, seed=config.seed, options=options, parallel=True)
    filters = PairFilters(config.max_ratio, config.drop_copies, config.drop_loops, config.drop_unfinished)
    bounds = range_of(source, shard) if shard.n > 1 else None
    first_line = 1 + (lines_before(source, bounds.start) if bounds is not None else 0)
    method: BackTranslation | Distillation
    if is_reverse:
        method = BackTranslation(translator, filters, forward_scores(config, languages), config.min_score)
    else:
        method = Distillation(translator, filters)
    references = references_of(config, source, first_line)

    def make_block(raw_lines: Sequence[bytes], number: int) -> Made:
        beside = None if references is None else list(islice(references, len(raw_lines)))
        lines = [
            decode_line(raw.removesuffix(b"\r"), number + i, name=str(source), strict=config.strict)
            for i, raw in enumerate(raw_lines)
        ]
        n_invalid = sum(line.is_invalid for line in lines)
        texts = ["" if line.is_invalid else line.text for line in lines]  # each keeps its number, which sampling uses
        made = method(texts, number, beside)
        return Made(made.pairs, made.dropped - Counter(blank=n_invalid) + Counter({INVALID: n_invalid}))

    lines = read_all(source) if bounds is None else read_range(source, bounds)
    report = work(name, languages, lines, make_block, settings, block_lines=config.block_lines, first_line=first_line)
    return report, languages


def input_of(config: AugmentConfig, shard: Shard) -> Path:
    """Raises ConfigError where none is named, and where it cannot be divided."""
    if config.input is None:
        raise ConfigError("--input: not given. Name the text file, one sentence a line")
    check_input(config.input, "input")
    if shard.n > 1 and config.input.endswith(".gz"):
        raise ConfigError(f"{shown(config.input)}: compressed, so it has no byte ranges for shard={shard}. Unpack it")
    return Path(config.input)


def settings_of(config: AugmentConfig, opened: Opened, languages: Pair, shard: Shard, source: Path) -> dict[str, Any]:
    """All that decides what is made; as JSON has it."""
    forward = [] if config.forward is None else locate_models(config.forward, config.runs)
    decode = {key: getattr(value, "name", value) for key, value in asdict(config.decode).items()}
    return {
        "method": config.method.name if config.method is not None else None,
        "languages": list(languages),
        "input": source.name,
        "input_sha256": file_sha256(source),
        "shard": str(shard),
        "models": opened.sha256(),
        "engine": opened.engine.name,
        "forward": [file_sha256(path) for path in forward],
        "min_score": config.min_score if forward else None,
        "reference_sha256": None if config.reference is None else file_sha256(Path(config.reference)),
        "choose": config.choose.name,
        "filters": [config.max_ratio, config.drop_copies, config.drop_loops, config.drop_unfinished],
        "tag": config.tag,
        "seed": config.seed,
        "decode": decode,
        "block_lines": config.block_lines,
    }


def done_before(name: Path, settings: dict[str, Any], config: AugmentConfig) -> Report | None:
    """The report of the corpus if it is there, whole, and made with these settings: nothing is left to do then."""
    file = Path(f"{name}.json")
    if config.overwrite or not file.is_file():
        return None
    report = Report.read(file)
    paths = {language: Path(f"{name}.{language}") for language in settings["languages"]}
    is_whole = all(path.is_file() and file_sha256(path) == report.sha256.get(one) for one, path in paths.items())
    return report if is_whole and dict(report.settings) == settings else None


def check_outputs(name: Path, config: AugmentConfig) -> None:
    """The report stands for all files of a corpus: it is written last."""
    inputs = {"--input": config.input, "--reference": config.reference}
    check_output(Path(f"{name}.json"), "--output", inputs, overwrite=config.overwrite)


def references_of(config: AugmentConfig, source: Path, first_line: int) -> Iterator[str] | None:
    """The references from line `first_line` on. Raises DataError unless there is one for each line of the input."""
    if config.reference is None:
        return None
    check_input(config.reference, "reference")
    path = Path(config.reference)
    counts = n_lines(source), n_lines(path)
    if counts[0] != counts[1]:
        raise DataError(
            f"{shown(path)}: has {counts[1]:,} lines, {shown(source)} {counts[0]:,}. Make line n of one the translation"
            " of line n of the other"
        )
    numbered = enumerate(read_all(path), 1)
    return (
        decode_line(raw.removesuffix(b"\r"), number, name=str(path), strict=config.strict).text
        for number, raw in numbered
        if number >= first_line
    )


def forward_scores(config: AugmentConfig, languages: Pair) -> LogProbs | None:
    """What gives the log-probability per token of each target, by the model of --forward. Raises ConfigError."""
    if config.forward is None:
        return None
    files = read_models(locate_models(config.forward, config.runs))
    theirs = files[0].source_lang, files[0].target_lang
    if theirs != languages:
        raise ConfigError(
            f"--forward: translates {theirs[0]} → {theirs[1]}, but the pairs are {languages[0]} → {languages[1]}."
            " Name a model of that direction"
        )
    device = choose_device(config.device)
    model = in_precision(build_all(files, device), config.decode.precision, device)

    def scores(pairs: Sequence[Pair]) -> list[float]:
        scored = score_translations(model, files, config.decode, device, pairs)
        return [one.log_prob / max(len(one.pieces), 1) for one in scored]

    return scores


def summary(name: Path, report: Report, languages: Pair, config: AugmentConfig) -> list[str]:
    """The counts, and how to train on the corpus."""
    dropped = ", ".join(f"{n:,} {reason}" for reason, n in sorted(report.dropped.items(), key=lambda one: -one[1]))
    lines = [
        f"{name}: {report.n_pairs:,} pairs of {report.n_lines:,} lines" + (f"; dropped: {dropped}" if dropped else "")
    ]
    files = ",".join(shown(f"{name}.{language}") for language in languages)
    if report.settings["shard"] != "1/1":
        return [*lines, f"When all shards are there: tfm augment merge --output {config.output}"]
    if report.settings["method"] == AugmentMethod.back_translate.name:
        return [*lines, f"To train with it: data.train=[…,{files}] data.tags=['','<bt>']"]
    return [*lines, f"To train on it: data.train=[{files}]"]
