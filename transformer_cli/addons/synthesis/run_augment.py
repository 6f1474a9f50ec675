"""`tfm augment`: synthetic pairs, made with models, as a corpus that training can use."""

import math
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import compress, islice
from pathlib import Path
from typing import Any

from transformer_cli.addons.synthesis.filters import PairFilters
from transformer_cli.addons.synthesis.keys import AugmentConfig, AugmentMethod
from transformer_cli.addons.synthesis.merge import merge, shard_name
from transformer_cli.addons.synthesis.methods import REPEATED, LogProbs, Synthesis
from transformer_cli.addons.synthesis.shards import Range, n_lines, range_of, read_range, refuse_other_formats
from transformer_cli.addons.synthesis.work import CorpusReport, Made, files_of, finished, is_begun, report_of, work
from transformer_cli.config.decode import DecodeConfig, LengthNormalization
from transformer_cli.config.fields import keys_that_affect
from transformer_cli.config.overrides import as_list
from transformer_cli.config.shard import Shard
from transformer_cli.config.tags import language_of, languages_of
from transformer_cli.data.checks.languages import reads_like
from transformer_cli.data.hashes import file_sha256
from transformer_cli.data.lines import shown
from transformer_cli.data.readers.base import Pair
from transformer_cli.data.tags import split_tags
from transformer_cli.decoding.directions import asked_tags
from transformer_cli.decoding.opening import Opened, open_models, with_own_length_penalty
from transformer_cli.decoding.plan import listed_tags
from transformer_cli.decoding.results import TranslateOptions
from transformer_cli.decoding.training_text import training_text
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.evaluation.scoring import score_translations
from transformer_cli.inference.precision import in_precision
from transformer_cli.languages import iso_639_1
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.ensemble import build_all, read_models
from transformer_cli.models.exported import Exported
from transformer_cli.models.file import ModelFile
from transformer_cli.models.locate import locate_models
from transformer_cli.text_io import check_input, check_output, decode_line
from transformer_cli.training.signals import stop_signals

INVALID = "not UTF-8"
BACK_TRANSLATION_TAG = "<bt>"  # as in the examples of docs/multilingual.md
SAMPLE_LINES = 1000  # whose language is looked at
_FEW = 100  # lines, of which no share says much
WITHOUT_EFFECT = keys_that_affect(DecodeConfig, "speed")  # on what is made


@dataclass(frozen=True)
class Augmented:
    """The result: a corpus, whole or of one shard."""

    name: Path
    report: CorpusReport
    is_new: bool  # False: an earlier command had made it


def run(config: AugmentConfig) -> None:
    """Make a corpus, or join the shards of one, and print how to train on it. Raises TfmError."""
    augment_and_report(config)


def augment_and_report(config: AugmentConfig) -> Augmented:
    result = augmented(config)
    print("\n".join([count_line(result), *_next(result, config)]), flush=True)
    return result


def augmented(config: AugmentConfig) -> Augmented:
    """The corpus, made or found. Raises TfmError."""
    if config.output is None:
        raise ConfigError("--output: not given. Name the corpus, as bt; its files are called bt.en and bt.de")
    name = Path(config.output)
    if name.name in ("", "..") or config.output.endswith("/") or name.is_dir():
        raise ConfigError(f"--output {config.output}: names a folder. Name the corpus in it, as {name / 'bt'}")
    with stop_signals(idle="the blocks that are finished are kept"):
        if config.method == AugmentMethod.merge.value:
            result = Augmented(name, *merge(name, replace=config.overwrite))
        else:
            shard = Shard.parse(config.shard)
            name = shard_name(name, shard)
            result = Augmented(name, *make(name, shard, config))
    if not result.is_new:
        LOGGER.info("%s: was made before, in the same way", name)
    _warn_of_few(result)
    return result


def make(name: Path, shard: Shard, config: AugmentConfig) -> tuple[CorpusReport, bool]:
    """The corpus of a shard, or what is there already if it was made in the same way; and whether it is new."""
    source = input_of(config, shard)
    is_reverse = config.method == AugmentMethod.back_translate.value
    options = TranslateOptions(warns=False)
    opened = open_models(
        config.checkpoint,
        runs=config.runs,
        engine=config.engine,
        decode=config.decode,
        options=options,
    )
    _refuse_document_level(opened.models)
    decode = with_own_length_penalty(config.decode, opened.length_penalties)
    config, model = replace(config, decode=decode), opened.models[0]
    options = replace(options, tags=asked_tags(model, config.tag, config.source_lang, config.target_lang))
    config = replace(config, tag=" ".join(options.tags) or None)  # as the corpus records it
    of_model = model.source_lang, language_of(options.tags, model.target_lang)
    if not of_model[1]:
        tags = listed_tags(model.tokenizers.source.tags)
        raise ConfigError(f"--tag: names none of the target languages {model.target_lang}. Choose one ({tags})")
    languages: Pair = (of_model[1], language_of_text(source, of_model[0])) if is_reverse else of_model
    settings = settings_of(config, opened, languages, shard, source)
    if not config.overwrite and (report := finished(name, settings)) is not None:
        return report, False
    check_outputs(name, languages, config, is_begun=is_begun(name, settings))
    refuse_other_language(source, of_model)
    bounds = range_of(source, shard)
    references = references_of(config, source)
    inputs = {source: settings["input_sha256"]}
    if config.reference is not None:
        inputs[Path(config.reference)] = settings["reference_sha256"]
    first_line = 1 + (n_lines(source, Range(0, bounds.start)) if bounds.start else 0)
    device = choose_device(config.device)
    synthesis = Synthesis(
        opened.translator(config.decode, device, seed=config.seed, options=options, parallel=True),
        PairFilters(
            config.max_ratio,
            copies=config.drop_copies and of_model[0] != of_model[1],
            loops=config.drop_loops,
            unfinished=config.drop_unfinished,
        ),
        is_reverse,
        of_model[1],
        config.choose,
        forward_scores(config, languages),
        config.min_score,
    )

    def make_block(raw_lines: Sequence[bytes], number: int) -> Made:
        beside = None if references is None else list(references(number, len(raw_lines)))
        lines = [
            decode_line(raw, number + i, name=str(source), strict=config.strict) for i, raw in enumerate(raw_lines)
        ]
        n_invalid = sum(line.is_invalid for line in lines)
        texts = ["" if line.is_invalid else line.text for line in lines]  # each keeps its number, which sampling uses
        made = synthesis(texts, number, beside)
        return Made(made.n_lines, made.pairs, made.dropped - Counter(blank=n_invalid) + Counter({INVALID: n_invalid}))

    report = work(
        name,
        read_range(source, bounds),
        make_block,
        settings,
        inputs=inputs,
        n_expected=n_lines(source, bounds),
        block_lines=config.block_lines,
        first_line=first_line,
        replace=config.overwrite,
    )
    return report, True


def input_of(config: AugmentConfig, shard: Shard) -> Path:
    """Raises ConfigError where none is named, and where it cannot be divided; DataError for what is not text."""
    if config.input is None:
        raise ConfigError("--input: not given. Name the text file, one sentence a line")
    check_input(config.input, "the input")
    if shard.n > 1 and config.input.endswith(".gz"):
        raise ConfigError(f"{shown(config.input)}: compressed, so it has no byte ranges for shard={shard}. Unpack it")
    path = Path(config.input)
    refuse_other_formats(path)
    if next(read_range(path), None) is None:
        raise DataError(f"{shown(path)}: is empty. Put one sentence on each line")
    return path


def language_of_text(source: Path, known: str) -> str:
    """The text's language among those that the model reads, as `de+fr`; of several, the ending of the file decides.

    Raises ConfigError where it does not.
    """
    languages = languages_of(known)
    ending = source.name.removesuffix(".gz").rpartition(".")[2]
    if len(languages) > 1 and ending not in languages:
        raise ConfigError(
            f"--input {shown(source)}: the model reads {known}, and the file's name does not end with one of these."
            f" Call it {source.name.partition('.')[0]}.{languages[0]} if it is in {languages[0]}"
        )
    return ending if len(languages) > 1 else known


def refuse_other_language(source: Path, of_model: Pair) -> None:
    """Raise DataError for text in the language that the model translates into, by the name of its file or its words."""
    if what := other_language(source, *of_model):
        raise DataError(
            f"{shown(source)}: {what}, but the model translates {' → '.join(of_model)}. Choose another --checkpoint:"
            " back-translate needs a model from the language of the text"
        )


def other_language(source: Path, ours: str, theirs: str) -> str:
    """How a text shows that it is in the second language and not in the first; empty where it does not.

    A text that reads like a third language is warned of.
    """
    other = iso_639_1(theirs)
    if iso_639_1(ours) == other:
        return ""
    ending = iso_639_1(source.name.removesuffix(".gz").rpartition(".")[2])
    lines = [line.decode("utf-8", errors="ignore") for line in islice(read_range(source), SAMPLE_LINES)]
    found = reads_like(lines, ours)
    if other in (ending, found):
        return f"reads like {found}" if other == found else f"is {ending} by its name"
    if found is not None:
        LOGGER.warning("%s: reads like %s, and should be %s", shown(source), found, ours)
    return ""


def settings_of(config: AugmentConfig, opened: Opened, languages: Pair, shard: Shard, source: Path) -> dict[str, Any]:
    """All that decides what is made; as JSON has it."""
    forward = [] if config.forward is None else locate_models(config.forward, config.runs)
    if config.reference is not None:
        check_input(config.reference, "the reference")
    decode = {key: getattr(value, "name", value) for key, value in asdict(config.decode).items()}
    if config.decode.length_normalization is LengthNormalization.gnmt:
        decode["length_penalty"] = config.decode.alpha  # that of the search, also where none is set
    return {
        "method": config.method,
        "languages": list(languages),
        "input": source.name,
        "input_sha256": file_sha256(source),
        "shard": str(shard),
        "models": opened.sha256(),
        "engine": opened.engine,
        "forward": [file_sha256(path) for path in forward],
        "min_score": config.min_score if forward else None,
        "reference_sha256": None if config.reference is None else file_sha256(Path(config.reference)),
        "choose": config.choose.name,
        "filters": {
            "max_ratio": config.max_ratio,
            "drop_copies": config.drop_copies,
            "drop_loops": config.drop_loops,
            "drop_unfinished": config.drop_unfinished,
        },
        "tag": config.tag,
        "tags_of_model": list(opened.models[0].tokenizers.source.tags),
        "seed": config.seed,
        "decode": {key: value for key, value in decode.items() if key not in WITHOUT_EFFECT},
    }


def check_outputs(name: Path, languages: Pair, config: AugmentConfig, *, is_begun: bool) -> None:
    """Refuse a file that is there, unless it is of a run with the same settings that was stopped as it finished.

    Refuse an input as the output of this shard, or of the merge that comes later.
    """
    assert config.output is not None
    inputs = {"--input": config.input, "--reference": config.reference}
    for file in (report_of(name), *files_of(name, languages)):
        check_output(file, "--output", inputs, overwrite=config.overwrite or is_begun)
    for file in files_of(Path(config.output), languages):
        check_output(file, "--output", inputs, overwrite=True)


def references_of(config: AugmentConfig, source: Path) -> "References | None":
    """Raises DataError unless there is a reference for each line of the input."""
    if config.reference is None:
        return None
    path = Path(config.reference)
    refuse_other_formats(path)
    counts = n_lines(source), n_lines(path)
    if counts[0] != counts[1]:
        raise DataError(
            f"{shown(path)}: has {counts[1]:,} lines, and {shown(source)} {counts[0]:,}. Make line n of one the"
            " translation of line n of the other"
        )
    return References(path, strict=config.strict)


class References:
    """The lines of a file by their numbers, which rise from call to call."""

    def __init__(self, path: Path, *, strict: bool) -> None:
        self.path, self.strict = path, strict
        self.numbered = enumerate(read_range(path), 1)

    def __call__(self, first: int, n: int) -> Iterator[str]:
        for number, raw in self.numbered:
            if number >= first:
                yield decode_line(raw, number, name=str(self.path), strict=self.strict).text
            if number == first + n - 1:
                return


def forward_scores(config: AugmentConfig, languages: Pair) -> LogProbs | None:
    """What gives the log-probability per token of each target, by the model of --forward. Raises ConfigError.

    -inf for pairs that are longer than its training text, which it cannot judge.
    """
    if config.forward is None:
        return None
    files = read_models(locate_models(config.forward, config.runs))
    _refuse_document_level(files)
    theirs = files[0].source_lang, files[0].target_lang
    if theirs != languages:
        raise ConfigError(
            f"--forward: translates {theirs[0]} → {theirs[1]}, but the pairs are {languages[0]} → {languages[1]}."
            " Name a model of that direction"
        )
    device = choose_device(config.device)
    model = in_precision(build_all(files, device), config.decode.precision, device)
    tokenizers, longest = files[0].tokenizers, training_text(files).longest_source(config.decode)

    def scores(pairs: Sequence[Pair]) -> list[float]:
        sources = tokenizers.source.encode([source for source, _ in pairs])
        targets = tokenizers.encode_targets([source for source, _ in pairs], [target for _, target in pairs])
        fits = [max(map(len, ids)) <= longest for ids in zip(sources, targets, strict=True)]
        scored = score_translations(model, files, config.decode, device, list(compress(pairs, fits)))
        per_token = (one.log_prob / len(one.pieces) for one in scored)
        return [next(per_token) if fit else -math.inf for fit in fits]

    return scores


def _refuse_document_level(models: Sequence[ModelFile | Exported]) -> None:
    """Raise ConfigError for a model that reads the lines before a line: text is divided here, and lines left out."""
    if n_context := training_text(models).context_sentences:
        raise ConfigError(
            f"checkpoint: the model was trained with data.context_sentences={n_context}, and here each line stands"
            " alone. Choose a model of sentences, or translate documents with `tfm translate`"
        )


def _warn_of_few(result: Augmented) -> None:
    """Raises DataError for a corpus without a pair; a shard may have none."""
    report = result.report
    if not report.n_pairs and report.shard == "1/1":
        reasons = f" ({_dropped(report)})" if report.dropped else ""
        raise DataError(
            f"{result.name}: no pair is left of {report.n_lines:,} lines{reasons}, so there is nothing to train on."
            " Check the text and the model, or set other filters"
        )
    dropped = {reason: n for reason, n in report.dropped.items() if reason != REPEATED}
    if report.n_translations >= _FEW and sum(dropped.values()) > report.n_pairs:
        most = max(dropped, key=lambda reason: dropped[reason])
        LOGGER.warning(
            "%s: more than half is dropped, most as `%s`. Look at the text and at the model", result.name, most
        )


def _dropped(report: CorpusReport) -> str:
    return ", ".join(f"{n:,} {reason}" for reason, n in sorted(report.dropped.items(), key=lambda one: -one[1]))


def count_line(result: Augmented) -> str:
    """The counts of a corpus, in a line."""
    report = result.report
    dropped = _dropped(report)
    of = f"{report.n_lines:,} lines"
    if report.n_translations != report.n_lines:
        of += f", {report.n_translations:,} translations"
    return f"{result.name}: {report.n_pairs:,} pairs of {of}" + (f"; dropped: {dropped}" if dropped else "")


def _next(result: Augmented, config: AugmentConfig) -> list[str]:
    """How to train on the corpus."""
    shard = Shard.parse(result.report.shard)
    if shard.n > 1:
        todo = f"when all shards are there: tfm augment merge --output {shlex.quote(str(config.output))}"
        return [todo] if shard.number == shard.n else []  # once in a sweep
    if not result.report.n_pairs:
        return []
    return ["next, with your own pairs as train, dev and test:", f"  {train_command(result)}"]


def train_command(result: Augmented) -> str:
    """A command line of `tfm train` that uses the corpus: a back-translation beside real pairs, and with a tag."""
    source, target = result.report.languages
    settings = result.report.settings
    made = [str(file) for file in files_of(result.name, (source, target))]
    splits = "train", "dev", "test"
    train, dev, test = ([str(file) for file in files_of(Path(split), (source, target))] for split in splits)
    tag, of_lines = str(settings["tag"] or ""), list[str]()
    if settings["method"] == AugmentMethod.back_translate.value:
        files, tags, of_text = [*train, *made], ["", BACK_TRANSLATION_TAG], ""
    else:
        files, tags, of_text = made, [tag], tag
        of_lines = tags_of_lines(Path(made[0]), settings["tags_of_model"])
    overrides = [f"data.train={as_list(files)}", f"data.dev={as_list(dev)}", f"data.test={as_list(test)}"]
    if any(tags):
        overrides += [
            f"data.tags={as_list(tags)}",
            *(f"data.{split}_tags={as_list([of_text])}" for split in splits[1:]),
        ]
    if of_lines:
        overrides.append(f"data.line_tags={as_list(of_lines)}")
    words = ["tfm", "train", "data=files", f"data.source_lang={source}", f"data.target_lang={target}", *overrides]
    return shlex.join(words)


def tags_of_lines(file: Path, known: Sequence[str]) -> list[str]:
    """The tags of `known` that a line of the file begins with."""
    if not known:
        return []
    found = {tag for line in read_range(file) for tag in split_tags(line.decode(), known)[0]}
    return [tag for tag in known if tag in found]
