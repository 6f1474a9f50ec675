"""The models of `tfm compare`: opened, checked to be comparable, and asked for their translations."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformer_cli.addons.comparison.keys import CompareConfig
from transformer_cli.addons.comparison.measure import Background, TestText
from transformer_cli.addons.comparison.results import System
from transformer_cli.addons.comparison.runs import flat_text, read_curves
from transformer_cli.addons.comparison.test_set import check_n_lines, settings_for, test_set_of
from transformer_cli.config.compose import to_plain
from transformer_cli.config.tags import languages_of
from transformer_cli.data.lines import Lines
from transformer_cli.data.prepare import Prepared, prepared_of
from transformer_cli.data.tags import split_tags
from transformer_cli.decoding.directions import asked_tags
from transformer_cli.decoding.opening import Opened, open_models
from transformer_cli.decoding.results import TranslateOptions
from transformer_cli.errors import CheckpointError, ConfigError, DataError
from transformer_cli.evaluation.metrics import MetricSettings
from transformer_cli.evaluation.model_test_sets import Direction, kept_test, named_test_set, own_corpus, sets_for
from transformer_cli.evaluation.saved import Scored, directions_of_lines
from transformer_cli.evaluation.search_signature import search_signature
from transformer_cli.evaluation.test_sets import TestSet
from transformer_cli.evaluation.tokenization import tokenizer_in
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.exported import Exported
from transformer_cli.models.runs import CONFIG_FILE, read_config, run_of
from transformer_cli.tasks.evaluate_translations import translate

MOST_LINES = 500_000  # of a training text in which words are counted, spread over all of it


@dataclass(frozen=True)
class _Model:
    """A system that translates."""

    name: str
    path: str  # as the user named it
    opened: Opened
    run_dir: Path | None  # that it lies in

    @property
    def first(self) -> Scored:
        return self.opened.models[0]

    @property
    def is_run(self) -> bool:
        """Whether the user has named the run, rather than one of its checkpoints."""
        return self.run_dir is not None and (
            self.opened.paths[0].parent == self.run_dir or (Path(self.path) / CONFIG_FILE).is_file()
        )

    @property
    def kind(self) -> str:
        if isinstance(self.first, Exported):
            return "export"
        return "run" if self.is_run else "model"


def translated(
    config: CompareConfig, names: Sequence[str], files: Mapping[str, Lines]
) -> tuple[list[System], TestText, MetricSettings, Background]:
    """The systems with their translations, their common test set, and what is known of the runs among them.

    `files` are those of translations, by their paths; all other systems are models. Raises TfmError.
    """
    models: dict[str, _Model] = {}
    for name, path in zip(names, config.systems, strict=True):
        if path not in files and path not in models:
            models[path] = open_model(config, name, path)
    tests = {path: test_set_for(config, model) for path, model in models.items()}
    first, *others = models.values()
    language = check_directions(config, models, tests)
    text = _text_of(tests[first.path], first)
    for other in others:
        check_same(text, first, _text_of(tests[other.path], other), other)
    for lines in files.values():
        check_n_lines(lines, len(text.references[0]), text.name)
    of_model = tokenizer_in(first.first.data, first.opened.paths[0])
    settings = settings_for(config, tests[first.path], (first.first.source_lang, language), of_model=of_model)

    systems: dict[str, System] = {}
    for name, path in zip(names, config.systems, strict=True):
        if path in files:
            systems[name] = System(name, path, "translations", files[path].texts)
            continue
        same = [system for system in systems.values() if system.path == path]
        systems[name] = (
            System(**{**vars(same[0]), "name": name}) if same else _ask(config, models[path], name, tests[path])
        )
    background = background_of([models.get(path) for path in config.systems])
    notes = [note for path, model in models.items() for note in notes_on_tags(config, model, tests[path])]
    return list(systems.values()), text, settings, replace(background, notes=notes)


def open_model(config: CompareConfig, name: str, path: str) -> _Model:
    opened = open_models(path, engine=config.engine, decode=config.decode)
    return _Model(name, path, opened, run_of(opened.paths[0].resolve()))


def _ask(config: CompareConfig, model: _Model, name: str, test: TestSet) -> System:
    """Translate the test set."""
    device = choose_device(config.device)
    opened, decode = model.opened, model.opened.decode_config(config.decode, device)
    LOGGER.info("%s: translating %s lines", model.name, f"{len(test.sources):,}")
    tags = tags_for(config, model)
    options = TranslateOptions(tags=tags)
    translator = opened.translator(decode, device, seed=config.search_seed, options=options, parallel=True)
    lines = translate(translator, test)
    hashes = opened.sha256()
    search = search_signature(decode, seed=config.search_seed, engine=opened.engine, models=hashes)
    return System(name, model.path, model.kind, lines, search=search, model_hash=hashes[0])


def tags_for(config: CompareConfig, model: _Model) -> tuple[str, ...]:
    """The tags of --tag, --from and --to; none of --tag for a model without tags, which would read them as text."""
    tag = config.tag if model.first.tokenizers.source.tags else None
    return asked_tags(model.first, tag, config.source_lang, config.target_lang)


def notes_on_tags(config: CompareConfig, model: _Model, test: TestSet) -> list[str]:
    """What a comparison is to say of a model of several languages that was given lines without a tag for one."""
    if len(languages_of(model.first.target_lang)) == 1:
        return []  # its tags, as of back-translations, are not needed
    known = model.first.tokenizers.source.tags
    bare = [line for line in test.sources if line.strip() and not split_tags(line, known)[0]]
    if not known or tags_for(config, model) or not bare:
        return []
    return [
        f"{model.name} translates into several languages, and {len(bare):,} of {len(test.sources):,} lines have no tag,"
        f" so its score may be lower than it should be: add --tag, as --tag '{known[0]}'"
    ]


# ---- Test sets


def test_set_for(config: CompareConfig, model: _Model) -> TestSet:
    """The test set as this model is to read it: the one on the command line, or that of its own corpus.

    Raises ConfigError where there is nothing to translate.
    """
    if config.test_set is not None:
        return sets_for([config.test_set], config.languages, model.first, tags_for(config, model))[0]
    asked = Direction(config.tag, config.source_lang, config.target_lang)
    test = test_set_of(config)
    if test is not None:
        if not test.sources:
            raise ConfigError(
                f"--source: not given, but {model.name} is a model, which needs a text. Name the file to translate"
            )
        return test
    if config.data is not None:
        return named_test_set(config.data, [model.first], asked=asked)
    try:
        path = model.opened.paths[0]
        kept = kept_test([model.first], path)
        return named_test_set(own_corpus(model.first, path), [model.first], asked=asked, kept=kept)
    except DataError as error:
        raise DataError(f"{error}, or give --source and --reference (this is the corpus of {model.name})") from error


def _text_of(test: TestSet, model: _Model) -> TestText:
    known = model.first.tokenizers.source.tags
    return TestText(test.name, test.references, [split_tags(line, known)[1] for line in test.sources])


def check_same(ours: TestText, model: _Model, theirs: TestText, other: _Model) -> None:
    """Raise ConfigError for two models whose own test sets are not the same."""
    if (ours.sources, ours.references) != (theirs.sources, theirs.references):
        raise ConfigError(
            f"{model.name} and {other.name} have other test sets: {ours.name} with {len(ours.sources):,} lines, and"
            f" {theirs.name} with {len(theirs.sources):,}. Name one for both with --source and --reference, or"
            " data=NAME"
        )


def check_directions(config: CompareConfig, models: Mapping[str, _Model], tests: Mapping[str, TestSet]) -> str:
    """The language that all translate into. Raises ConfigError for models of other languages than the first one."""
    found: list[tuple[_Model, str, str]] = []
    for path, model in models.items():
        found.append((model, *directions_of_lines(tests[path].sources, model.first, tags_for(config, model))))
    first, *others = found
    for model, source, target in others:
        if _differ(first[1], source) or _differ(first[2], target):
            raise ConfigError(
                f"{first[0].name} translates {first[1]} → {first[2]}, {model.name} {source} → {target}."
                " Compare systems of one direction"
            )
    return first[2]


def _differ(one: str, other: str) -> bool:
    """Whether two language codes differ. Codes of different lengths, as en and eng, may name the same language."""
    codes = [_base(code) for code in (one, other)]
    return "und" not in codes and len(codes[0]) == len(codes[1]) and codes[0] != codes[1]


def _base(code: str) -> str:
    return code.replace("_", "-").partition("-")[0].lower()


# ---- What is known of runs


def background_of(models: Sequence[_Model | None]) -> Background:
    """Configs, curves and training text of the runs; `models` has None for a file."""
    configs = [None if model is None or not model.is_run else _config_of(model) for model in models]
    curves = [
        curve
        for system, model in enumerate(models)
        if model is not None and model.run_dir is not None
        for curve in read_curves(model.run_dir, system)
    ]
    found = next(((model, text) for model in models if model and (text := prepared_corpus(model)) is not None), None)
    if found is None:
        return Background(configs, curves)
    model, prepared = found
    every = -(-len(prepared.train) // MOST_LINES)
    part = f"{-(-len(prepared.train) // every):,} lines of " if every > 1 else ""
    name = f"{part}the training text of {model.name}"
    return Background(configs, curves, lambda: target_lines(prepared, every), name)


def _config_of(model: _Model) -> Mapping[str, str] | None:
    assert model.run_dir is not None
    try:
        return flat_text(to_plain(read_config(model.run_dir)))
    except CheckpointError as error:
        LOGGER.warning("%s", error)
        return None


def prepared_corpus(model: _Model) -> Prepared | None:
    """The prepared corpus that a run was trained on, if it is still in the cache."""
    if model.run_dir is None or not model.first.fingerprint:
        return None
    try:
        return prepared_of(read_config(model.run_dir).data, model.first.fingerprint)
    except CheckpointError:
        return None


def target_lines(prepared: Prepared, every: int) -> Iterator[str]:
    """The target side of the training text, every so many lines."""
    corpus, tokenizer = prepared.train, prepared.tokenizers.target
    for index in range(0, len(corpus), every):
        start = corpus.target_offsets[index]
        yield tokenizer.decode(corpus.target_ids[start : start + corpus.target_lengths[index]].tolist())
