"""`tfm evaluate` of a model: translate a test set and score it, with the signatures that make the scores comparable.

Models that do not translate have modules of their own, and so have translations that are given in a file.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from transformer_cli.api import Opened, open_models
from transformer_cli.commands.evaluate.keys import EvaluateConfig
from transformer_cli.commands.evaluate_file import (
    TestSet,
    named_test_sets,
    own_files,
    reference_files,
    save_sentence_scores,
    tokens_for,
)
from transformer_cli.commands.saved_outputs import Place, Scored, default_place, language_of_lines, place_to_save, save
from transformer_cli.config.compose import load_config
from transformer_cli.config.data import DataConfig
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.tags import distinct, language_of, languages_named, languages_of, tags_in
from transformer_cli.config.yaml_files import choices_of
from transformer_cli.data.checks.languages import reads_like
from transformer_cli.data.checks.overlap import warn_of_overlap
from transformer_cli.data.corpus import ParallelText, input_files, load_text
from transformer_cli.data.download import fetch
from transformer_cli.data.lines import shown
from transformer_cli.data.named_sets import check_languages
from transformer_cli.data.prepare import prepare, prepared_of
from transformer_cli.data.tags import split_tags, with_tags
from transformer_cli.data.unknown import UnknownCounter
from transformer_cli.decoding.engines import TORCH
from transformer_cli.decoding.plan import listed_tags
from transformer_cli.decoding.results import TranslateOptions
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault, TfmError
from transformer_cli.evaluation.extra_reports import EXTRA_REPORTS, ExtraReport
from transformer_cli.evaluation.held_out import HELD_OUT_FILE, read_held_out
from transformer_cli.evaluation.metrics import CometSettings, MetricSettings, Score, Translations, check_line_counts
from transformer_cli.evaluation.report import Provenance, Report, print_reports
from transformer_cli.evaluation.search_signature import search_name, search_signature
from transformer_cli.evaluation.tokenization import tokenization, tokenizer_in
from transformer_cli.evaluation.translation import evaluate_parts, prepare_metrics
from transformer_cli.evaluation.usable import chance_score, unusable_outputs
from transformer_cli.languages import iso_639_1
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.file import MODEL_FILE, ModelFile, read_model
from transformer_cli.models.runs import read_config, run_of
from transformer_cli.text_io import check_output

# What reports on models that do not translate: `run` for `tfm evaluate`, `report_training` for the end of `tfm train`.
OTHER_KINDS = {
    "classifier": "transformer_cli.addons.classification.evaluate_classes",
    "tagger": "transformer_cli.addons.tagging.evaluate_words",
    "decoder": "transformer_cli.addons.language_models.evaluate_text",
}


def run(config: EvaluateConfig) -> None:
    """Print the scores of a model on its test set, on another corpus's, or on the user's own files."""
    device = choose_device(config.device)
    check_save(config, named_files(config.checkpoint))
    opened = open_models(
        config.checkpoint,
        runs=config.runs,
        engine=config.engine and config.engine.name,
        decode=config.decode,
        kinds=("transformer", *OTHER_KINDS),
    )
    paths, models = opened.paths, opened.models
    check_save(config, paths)
    files = [model for model in models if isinstance(model, ModelFile)]
    if files and (kind := files[0].kind) in OTHER_KINDS:
        import_module(OTHER_KINDS[kind]).run(config, files, paths, device)
        return
    if config.source is not None and config.reference is None:
        raise ConfigError("--reference: not given, but --source is. A score needs a text and its translation")
    tags = tuple(tags_in(config.tag or ""))
    tests = test_sets(config, models, paths[0], tags)
    of_model = tokenizer_in(models[0].data, paths[0])

    def settings_for(test: TestSet) -> Callable[[str], MetricSettings]:
        own = test.languages or (models[0].source_lang, language_of_lines(test.sources, models[0], tags))
        return lambda language: MetricSettings(
            tokens_for(config, language or own[1], of_model=of_model),
            own[0],
            language or own[1],
            CometSettings.of(config.comet, config.device),
        )

    for test in tests:
        prepare_metrics(config.metrics, settings_for(test)(""))  # refuses before anything is translated
    if config.source is not None:
        languages = models[0].source_lang, language_of_lines(tests[0].sources, models[0], tags)
        warn_of_other_language(config.source, tests[0].sources, languages[0], "from")
        warn_of_other_language(reference_files(config)[0], tests[0].references[0], languages[1], "into")
    warn_of_training_text(tests, models, paths)
    decode = opened.decode_config(config.decode, device)
    name = search_name(decode, seed=config.seed, engine=opened.engine)
    evaluated = [
        evaluate_set(
            opened,
            test,
            settings_for(test),
            decode,
            device,
            config=config,
            saved_as=place_to_save(config, paths, models, test, name, tags),
            parallel=True,
            tags=tags,
        )
        for test in tests
    ]
    show(evaluated, config)


def report_test_set(
    path: Path,
    test: ParallelText,
    decode: DecodeConfig,
    *,
    name: str,
    device: torch.device,
    seed: int,
    robustness_lines: int,
) -> "TestOutcome":
    """What `tfm train` does at its end: the same scores, of the model file that it shipped.

    The robustness of the model is logged in a few lines, and its table is written to robustness.json beside it.
    """
    models, test_set = [read_model(path)], TestSet(name, test.sources, [test.targets], test.parts)
    opened = Opened([path], models, TORCH)
    decode = opened.decode_config(decode, device)
    saved_as = default_place([path], models, test_set, search_name(decode, seed=seed))
    of_model = tokenizer_in(models[0].data, path)

    def settings_of(language: str) -> MetricSettings:
        language = language or language_of_lines(test.sources, models[0])
        return MetricSettings(tokenization(language, of_model), models[0].source_lang, language)

    config = EvaluateConfig(seed=seed)
    if robustness_lines:
        config = replace(config, robustness=True, robustness_lines=robustness_lines)
    evaluated = evaluate_set(opened, test_set, settings_of, decode, device, config=config, saved_as=saved_as)
    show([evaluated], config, trained_in=path.parent)
    scores = evaluated.report.results[-1].results.scores
    known = models[0].tokenizers.source.tags
    sources = [split_tags(line, known)[1] for line in test.sources]
    return TestOutcome(scores, unusable_outputs(sources, evaluated.hypotheses) or chance_score(scores))


@dataclass(frozen=True)
class TestOutcome:
    """The scores of the test set at the end of a run, and why the model is not usable yet; empty where it is."""

    scores: list[Score]
    unusable: str


@dataclass(frozen=True)
class Evaluated:
    """The scores of a test set, and what measures the other reports on it, which takes long."""

    report: Report
    hypotheses: list[str]
    extra: Mapping[str, Callable[[], ExtraReport | None]]


def evaluate_set(
    opened: Opened,
    test: TestSet,
    settings_of: Callable[[str], MetricSettings],
    decode: DecodeConfig,
    device: torch.device,
    *,
    config: EvaluateConfig,
    saved_as: Place | None,
    parallel: bool = False,
    tags: tuple[str, ...] = (),
) -> Evaluated:
    """Translate a test set, save the translations, and score them.

    `settings_of` gives the settings for a target language, by its code, or with "" those for the whole.
    """
    check_line_counts(test.sources, test.references)
    options = TranslateOptions(tags=tags)
    translator = opened.translator(decode, device, seed=config.seed, options=options, parallel=parallel)
    hypotheses = translate(translator, test)
    may_replace = config.save is None or config.overwrite
    save(hypotheses, saved_as, "save the translations", may_replace=may_replace)
    known = opened.models[0].tokenizers.source.tags
    translations = Translations(hypotheses, test.references, [split_tags(line, known)[1] for line in test.sources])
    results = evaluate_parts(translations, test.parts, settings_of, config.metrics, test=test.name)
    sentences = save_sentence_scores(config, translations, test, settings_of)
    names, hashes = ", ".join(map(str, opened.paths)), opened.sha256()
    search = search_signature(decode, seed=config.seed, engine=opened.engine, models=hashes)
    provenance = Provenance(
        test.name, len(hypotheses), saved_as.file if saved_as else None, names, search, hashes, sentences
    )
    languages = settings_of("").source_lang, settings_of("").target_lang
    settings = {"languages": languages, "n_lines": config.robustness_lines, "seed": config.seed}
    extra = {
        name: partial(EXTRA_REPORTS[name], translator, test, hypotheses, **settings) for name in extra_reports(config)
    }
    return Evaluated(Report(results, provenance), hypotheses, extra)


def extra_reports(config: EvaluateConfig) -> list[str]:
    """The other reports that are asked for."""
    return ["robustness"] if config.robustness else []


def show(evaluated: Sequence[Evaluated], config: EvaluateConfig, *, trained_in: Path | None = None) -> None:
    """Print scores, and the other reports; those of a run that was just trained are kept in it."""
    reports = [one.report for one in evaluated]
    if config.json:
        reports = [
            replace(one.report, provenance=replace(one.report.provenance, extra=measured(one))) for one in evaluated
        ]
    print_reports(reports, as_json=config.json)
    if config.json:
        return
    for report in reports:
        if report.provenance.hypotheses is not None:
            LOGGER.info("translations: %s", report.provenance.hypotheses)
    for one in evaluated:  # after the scores
        for extra in measured(one).values():
            if trained_in is not None:
                extra.keep(trained_in, one.report.provenance.facts())
            else:
                where = [f"{one.report.provenance.test_set}:"] if len(evaluated) > 1 else []
                print("\n".join([*where, *extra.lines()]), flush=True)


def measured(evaluated: Evaluated) -> dict[str, ExtraReport]:
    """The other reports of a test set, but for those that have nothing to say."""
    found = {name: measure() for name, measure in evaluated.extra.items()}
    return {name: report for name, report in found.items() if report is not None}


def translate(translator: Translator, test: TestSet) -> list[str]:
    with tqdm(
        total=len(test.sources), unit="line", desc="translate", disable=None, leave=False, file=sys.stderr
    ) as bar:
        results = translator.translate(test.sources, on_progress=bar.update)
    if n_split := sum(result.n_parts > 1 and not result.split for result in results):
        LOGGER.info("%s: %d lines were translated sentence by sentence", test.name, n_split)
    unknown = UnknownCounter()
    for line, result in enumerate(results, start=1):
        unknown.add(line, result.unknown)
    unknown.warn(where=f"{test.name}: ")
    return [result.text for result in results]


# ---- What --save may name


def check_save(config: EvaluateConfig, models: Sequence[Path] = ()) -> None:
    """Refuse a --save that would fail, or destroy a file, before a model is read."""
    if config.save is None:
        return
    inputs: dict[str, str | None] = {"--source": config.source}
    inputs |= {f"--reference {name}": name for name in reference_files(config)}
    inputs |= {f"--checkpoint {path}": str(path) for path in models}
    there = {flag: name for flag, name in inputs.items() if name is not None and Path(name).exists()}
    check_output(Path(config.save), "--save", there, overwrite=config.overwrite)


def named_files(checkpoint: Any) -> list[Path]:
    """Those of --checkpoint that are model files, or folders with one."""
    names = [checkpoint] if isinstance(checkpoint, str) else checkpoint or []
    return [path for name in names for path in (Path(name), Path(name) / MODEL_FILE) if path.is_file()]


def check_corpus(config: EvaluateConfig, data: DataConfig) -> DataConfig:
    """`data`, if none of its files is --save. Raises ConfigError."""
    if config.save is not None and Path(config.save).exists():
        files: list[Path] = []
        with suppress(DataError):  # what is not there yet cannot be --save, and whoever reads it says what is wrong
            files = input_files(data, "test" if data.test is not None else "train")
        if any(Path(config.save).samefile(file) for file in files):
            raise ConfigError(f"{config.save}: both a file of data={data.name} and --save. Choose another --save")
    return data


# ---- Test sets


def test_sets(config: EvaluateConfig, models: Sequence[Scored], path: Path, tags: Sequence[str]) -> list[TestSet]:
    """Those that are named, the files that are given, or the test set of a corpus."""
    if config.test_set:
        return sets_for(config.test_set, config.languages, models[0], tags)
    return [own_files(config) if config.source is not None else corpus_test_set(config, models, path)]


def sets_for(names: Sequence[str], languages: str | None, model: Scored, tags: Sequence[str]) -> list[TestSet]:
    """The sets of --test-set; for a model of several target languages, their lines with its tag for theirs.

    Raises ConfigError for a direction that the model does not have.
    """
    flag = f"--test-set {','.join(names)}"
    sides = [languages_of(model.source_lang), languages_of(model.target_lang)]
    if languages is None and max(map(len, sides)) > 1:
        example = f"{iso_639_1(sides[0][0])}-{iso_639_1(sides[1][0])}"
        raise ConfigError(
            f"--languages: not given, and the model translates {model.source_lang} → {model.target_lang}. Say the"
            f" direction of {flag}, as {example}"
        )
    languages = languages or "-".join(iso_639_1(side[0]) for side in sides)
    asked = check_languages(languages)
    own = [[code for code in side if iso_639_1(code) == iso_639_1(one)] for side, one in zip(sides, asked, strict=True)]
    if not all(own):
        raise ConfigError(
            f"--languages {languages}: the model translates {model.source_lang} → {model.target_lang}. Choose another"
            " direction or another --checkpoint"
        )
    [target_lang, *_] = own[1]
    if language_of(tags, model.target_lang) not in ("", target_lang):
        raise ConfigError(f"--tag {' '.join(tags)}: not of {languages}, the direction of {flag}. Leave one of them out")
    if len(sides[1]) == 1 or tags:
        return named_test_sets(names, languages)
    if len([tag for tag in model.tokenizers.source.tags if languages_named([tag], [target_lang])]) != 1:
        raise ConfigError(f"{flag}: the model has several tags for {target_lang}, or none. Say which with --tag")
    tests = named_test_sets(names, languages)
    return [replace(test, sources=tagged_for(test.sources, target_lang, model, test.name)) for test in tests]


def warn_of_other_language(file: str, lines: Sequence[str], language: str, way: str) -> None:
    """Say if the text of --source or --reference is clearly in another language than the model's, as if exchanged."""
    if (found := reads_like(lines, language)) is not None:
        LOGGER.warning("%s: reads like %s, but the model translates %s %s", shown(file), found, way, language)


def warn_of_training_text(tests: Sequence[TestSet], models: Sequence[Scored], paths: Sequence[Path]) -> None:
    """Say how much of each test set the models were trained on, as far as their prepared text is in the cache."""
    for fingerprint, (model, path) in {m.fingerprint: (m, path) for m, path in zip(models, paths, strict=True)}.items():
        prepared = None
        if (run_dir := run_of(path)) is not None:
            with suppress(TfmError):  # a config of another version
                prepared = prepared_of(read_config(run_dir).data, fingerprint)
        if prepared is None:
            continue
        known = model.tokenizers.source.tags
        for test in tests:
            sources = [split_tags(line, known)[1] for line in test.sources]
            warn_of_overlap(test.name, sources, test.references, prepared)


def corpus_test_set(config: EvaluateConfig, models: Sequence[Scored], path: Path) -> TestSet:
    """The test set of `data=`, or of the corpus that the (first) model was trained on."""
    if config.data is not None:
        return named_test_set(check_corpus(config, config.data), models, is_tagged=bool(config.tag))
    try:
        kept = kept_test(models, path)
        return named_test_set(check_corpus(config, own_corpus(models[0], path)), models, kept=kept)
    except DataError as error:
        raise DataError(f"{error}, or give --source and --reference (this is the corpus of the model's run)") from error


def kept_test(models: Sequence[Scored], path: Path) -> ParallelText | None:
    """The test text that the run of a model has kept, if all `models` are of that text."""
    held_out = read_held_out(run_of(path.resolve()), [model.fingerprint for model in models])
    return None if held_out is None else held_out.test


def named_test_set(
    data: DataConfig, models: Sequence[Scored], *, is_tagged: bool = False, kept: ParallelText | None = None
) -> TestSet:
    """The test set of a corpus; unless the user tags its lines, those of one language get the tag for it."""
    model = models[0]
    data = data.in_direction(model.source_lang, model.target_lang)
    sides = ((data.source_lang, model.source_lang), (data.target_lang, model.target_lang))
    if not all(set(languages_of(ours)) <= set(languages_of(theirs)) for ours, theirs in sides):
        raise ConfigError(
            f"data={data.name}: {data.source_lang} → {data.target_lang}, but the model translates"
            f" {model.source_lang} → {model.target_lang}. Choose another corpus or another --checkpoint"
        )
    if data.all_tags:
        check_model_tags(data, model)
    text = load_test(data, models, kept)
    sources = text.sources
    if data.target_lang != model.target_lang and not data.all_tags and not is_tagged:
        sources = tagged_for(sources, data.target_lang, model, f"data={data.name}")
    return TestSet(f"{data.title}.test", sources, [text.targets], text.parts)


def check_model_tags(data: DataConfig, model: Scored) -> None:
    """Raise ConfigError for a corpus with tags that the model does not have: it would read them as text."""
    known = model.tokenizers.source.tags
    used = data.test_tags if data.test is not None else data.tags
    if unknown := [tag for tag in distinct([*used, *data.line_tags]) if tag not in known]:
        has = listed_tags(known) if known else "it has none"
        raise ConfigError(f"data={data.name}: its lines have the tag {unknown[0]}, but not the model ({has})")


def tagged_for(sources: Sequence[str], target_lang: str, model: Scored, where: str) -> list[str]:
    """The lines of a corpus of one language for a model of several: with its tag for that language."""
    known = model.tokenizers.source.tags
    tags = [tag for tag in known if languages_named([tag], [target_lang])]
    if len(tags) != 1:
        return list(sources)
    LOGGER.info("%s: its lines get the tag %s", where, tags[0])
    return [with_tags(line, tags[0], known) for line in sources]


def labelled_text(
    config: EvaluateConfig, model: ModelFile, path: Path, check: Callable[[DataConfig], None]
) -> tuple[DataConfig, ParallelText]:
    """The test text of `data=`, or of the corpus that a model which predicts labels was trained on.

    Where the corpus names none it is what was held out of the training text. `check` raises ConfigError for a corpus
    that such a model is not for.
    """
    try:
        data = check_corpus(config, config.data if config.data is not None else own_corpus(model, path))
        check(data)
        return data, _named_or_held_out(data, model, kept_test([model], path) if config.data is None else None)
    except DataError as error:
        if config.data is not None:
            raise
        raise DataError(f"{error}, or give --source (this is the corpus of the model's run)") from error


def _named_or_held_out(data: DataConfig, model: ModelFile, kept: ParallelText | None) -> ParallelText:
    if kept is not None:
        return now_or_kept(data, kept)
    if data.test is not None:
        text = load_text(data, "test")
        assert text is not None
        return text
    # Encoded by the model's own tokenizer, which may not have been trained on this text: else equal in every byte.
    prepared = prepare(data, progress=True, tokenizers=model.tokenizers)
    if prepared.fingerprint != model.fingerprint:
        raise DataError(
            f"data={data.name}: is not the text that the model was trained on, so what is held out of it may"
            " have been trained on. Restore it"
        )
    if prepared.test is None:
        raise ConfigError(f"data.test: {data.name} has no test set. Name one, or give --source")
    return prepared.test


def own_corpus(model: Scored, path: Path) -> DataConfig:
    """What the model's run directory says of its corpus; for a model that has left it, our corpus of that name.

    A model file can come from anybody, so nothing is read or downloaded from where it says.
    """
    run_dir, name = run_of(path), str(model.data.get("name"))
    if run_dir is not None:
        return read_config(run_dir).data
    if name in choices_of("data") and name not in ("files", "labels", "pairs", "tags", "text"):
        data: DataConfig = load_config("evaluate", [f"data={name}"]).data
        return data
    raise ConfigError(f"{path}: was trained on `{name}`, which is not here. Add data=NAME, or --source and --reference")


def now_or_kept(data: DataConfig, kept: ParallelText) -> ParallelText:
    """The test set of a run as its files have it now; as the run has kept it where it was held out, or they are gone.

    One line says so where they are gone, or have changed since.
    """
    if data.test is None and data.builtin is None:
        return kept
    try:
        text = load_text(data, "test")
    except (DataError, EnvironmentFault) as error:
        LOGGER.info("data.test: cannot be read (%s), so the text that the run has kept is used", error)
        return kept
    if text is not None and _pairs(text) != _pairs(kept):
        LOGGER.warning(
            "data.test: has changed since the run was trained. The scores are those of the text as it is now;"
            " %s in the run has what it was",
            HELD_OUT_FILE,
        )
    return kept if text is None else text


def _pairs(text: ParallelText) -> list[tuple[str, str]]:
    """Without blank lines, which some readers leave out."""
    return [(source, target) for source, target in text.each() if source.strip() or target.strip()]


def load_test(data: DataConfig, models: Sequence[Scored], kept: ParallelText | None = None) -> ParallelText:
    """The test set as raw text; from the prepared corpus where it was held out of the training text.

    `kept` is what the run of the models has of it.
    """
    if kept is not None:
        return now_or_kept(data, kept)
    if data.test is not None or data.builtin is not None:
        fetch(data, progress=True)
        text = load_text(data, "test")
    else:
        prepared = prepare(data, progress=True)
        if any(prepared.fingerprint != model.fingerprint for model in models):
            raise DataError(
                f"data={data.name}: is not the text that the model was trained on, so what is held out of it may"
                " have been trained on. Restore it"
            )
        text = prepared.test
    if text is None:
        raise ConfigError(f"data.test: {data.name} has no test set. Name one, or give --source and --reference")
    return text
