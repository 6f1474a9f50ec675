"""Test sets for a model: of its languages and tags, and that of the corpus that it was trained on."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from transformer_cli.config.compose import load_config
from transformer_cli.config.data import DataConfig
from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.config.tags import distinct, language_of, languages_named, languages_of
from transformer_cli.config.yaml_files import choices_of
from transformer_cli.data.checks.languages import reads_like
from transformer_cli.data.checks.overlap import warn_of_overlap
from transformer_cli.data.corpus import ParallelText, input_files, load_text
from transformer_cli.data.download import fetch
from transformer_cli.data.lines import shown
from transformer_cli.data.named_sets import check_languages
from transformer_cli.data.prepare import prepare, prepared_of
from transformer_cli.data.tags import split_tags, with_tags
from transformer_cli.decoding.directions import direction_of, direction_tags
from transformer_cli.decoding.plan import listed_tags
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault, TfmError, quoted
from transformer_cli.evaluation.held_out import HELD_OUT_FILE, read_held_out
from transformer_cli.evaluation.saved import Scored
from transformer_cli.evaluation.test_sets import TestSet, named_test_sets, own_files
from transformer_cli.languages import codes_meant, iso_639_1, matched
from transformer_cli.logs import LOGGER
from transformer_cli.models.runs import read_config, run_of


def test_sets(config: EvaluateConfig, models: Sequence[Scored], path: Path, tags: Sequence[str]) -> list[TestSet]:
    """The named test sets, the given files, or the test set of a corpus."""
    if config.test_set:
        return sets_for(config.test_set, config.languages, models[0], tags)
    return [own_files(config) if config.source is not None else _corpus_test_set(config, models, path)]


def sets_for(names: Sequence[str], languages: str | None, model: Scored, tags: Sequence[str]) -> list[TestSet]:
    """The sets of --test-set; for a model of several target languages, their lines with its tag for theirs.

    Raises ConfigError for a direction that the model does not have.
    """
    flag = f"--test-set {','.join(names)}"
    sides = [languages_of(model.source_lang), languages_of(model.target_lang)]
    if languages is None and max(map(len, sides)) > 1:
        example = f"{iso_639_1(sides[0][0])}-{iso_639_1(sides[1][0])}"
        raise ConfigError(
            f"--languages: not given, and the model translates {direction_of(model)}. Say the"
            f" direction of {flag}, as {example}"
        )
    languages = languages or "-".join(iso_639_1(side[0]) for side in sides)
    asked = check_languages(languages)
    own = [codes_meant(one, side) for side, one in zip(sides, asked, strict=True)]
    if not all(own):
        raise ConfigError(
            f"--languages {languages}: the model translates {direction_of(model)}. Choose another"
            " direction or another --checkpoint"
        )
    [target_lang, *_] = own[1]
    is_from_other = model.tokenizers.source.direction_of(tags)[0] not in ("", own[0][0])
    if is_from_other or language_of(tags, model.target_lang) not in ("", target_lang):
        raise ConfigError(f"--tag {' '.join(tags)}: not of {languages}, the direction of {flag}. Leave one of them out")
    if len(sides[1]) == 1 or tags:
        return named_test_sets(names, languages)
    if not (found := tags_between(model, own[0][0], target_lang)):
        raise ConfigError(f"{flag}: the model has several tags for {target_lang}, or none. Say which with --tag")
    tests = named_test_sets(names, languages)
    return [replace(test, sources=tagged_for(test.sources, found, model, test.name)) for test in tests]


def _corpus_test_set(config: EvaluateConfig, models: Sequence[Scored], path: Path) -> TestSet:
    """The test set of `data=`, or of the corpus that the (first) model was trained on."""
    asked = Direction(config.tag, config.source_lang, config.target_lang)
    if config.data is not None:
        return named_test_set(check_corpus(config, config.data), models, asked=asked)
    try:
        kept = kept_test(models, path)
        return named_test_set(check_corpus(config, own_corpus(models[0], path)), models, asked=asked, kept=kept)
    except DataError as error:
        raise DataError(f"{error}, or give --source and --reference (this is the corpus of the model's run)") from error


def kept_test(models: Sequence[Scored], path: Path) -> ParallelText | None:
    """The test text that the run of a model has kept, if all `models` are of that text."""
    held_out = read_held_out(run_of(path.resolve()), [model.fingerprint for model in models])
    return None if held_out is None else held_out.test


@dataclass(frozen=True)
class Direction:
    """What --tag, --from and --to say, of a model of several languages; each is None where it says nothing."""

    tag: str | None = None
    source: str | None = None
    target: str | None = None


ANY = Direction()


def named_test_set(
    data: DataConfig,
    models: Sequence[Scored],
    *,
    asked: Direction = ANY,
    kept: ParallelText | None = None,
) -> TestSet:
    """The test set of a corpus; unless the user tags its lines, those of one language get the tag for it.

    Raises ConfigError for a direction of another corpus, or of another model.
    """
    model = models[0]
    data = data.in_direction(model.source_lang, model.target_lang)
    if asked.source and asked.target:
        source, target = (matched(code, data.languages) for code in (asked.source, asked.target))
        data = data.in_direction(source or "", target or "")
    sides = ((data.source_lang, model.source_lang), (data.target_lang, model.target_lang))
    known = [[_code_there(code, languages_of(theirs)) for code in languages_of(ours)] for ours, theirs in sides]
    if not all(all(side) for side in known):
        raise ConfigError(
            f"data={data.name}: {data.source_lang} → {data.target_lang}, but the model translates"
            f" {direction_of(model)}. Choose another corpus or another --checkpoint"
        )
    source, target = (
        _code_asked(flag, code, side, data) if code else (side[0] if len(side) == 1 else None)
        for flag, code, side in (("--from", asked.source, known[0]), ("--to", asked.target, known[1]))
    )
    if data.all_tags:
        check_model_tags(data, model)
    text = load_test(data, models, kept)
    sources = text.sources
    is_of_more = [*known[1]] != languages_of(model.target_lang) or bool(model.tokenizers.source.languages)
    if is_of_more and not data.all_tags and not asked.tag and target:
        sources = tagged_for(sources, tags_between(model, source, target), model, f"data={data.name}")
    elif (asked.source or asked.target) and data.all_tags:
        _refuse_for_tagged(asked, sources, model, data)
    return TestSet(data.test_name, sources, [text.targets], text.parts, contexts=text.contexts)


def _code_there(code: str, theirs: Sequence[str]) -> str:
    """The model's code for a language of a corpus; empty where it has none, or several."""
    return code if code in theirs else matched(code, theirs) or ""


def _code_asked(flag: str, code: str, known: Sequence[str], data: DataConfig) -> str:
    """The one of `known` that a flag names. Raises ConfigError for a language that the corpus does not have there."""
    if (found := matched(code, known)) is None:
        direction = f"{data.source_lang} → {data.target_lang}"
        raise ConfigError(f"{flag} {quoted(code)[1:-1]}: data={data.name} is {direction}. Leave one of them out")
    return found


def _refuse_for_tagged(asked: Direction, sources: Sequence[str], model: Scored, data: DataConfig) -> None:
    """Raise ConfigError for --from and --to where every line says by itself what its languages are."""
    if all(split_tags(line, model.tokenizers.source.tags)[0] for line in sources if line.strip()):
        flag = f"--to {asked.target}" if asked.target else f"--from {asked.source}"
        raise ConfigError(
            f"{flag}: the lines of data={data.name} begin with tags, which say their languages. Leave it out"
        )


def check_model_tags(data: DataConfig, model: Scored) -> None:
    """Raise ConfigError for a corpus with tags that the model does not have: it would read them as text."""
    known = model.tokenizers.source.tags
    used = data.test_tags if data.test is not None else data.tags
    if unknown := [tag for tag in distinct([*used, *data.line_tags]) if tag not in known]:
        has = listed_tags(known) if known else "it has none"
        raise ConfigError(f"data={data.name}: its lines have the tag {unknown[0]}, but not the model ({has})")


def tags_between(model: Scored, source_lang: str | None, target_lang: str) -> Sequence[str]:
    """The tags of a direction; none where several ask for its target language."""
    if model.tokenizers.source.languages:
        return direction_tags(model, source_lang, target_lang)
    tags = [tag for tag in model.tokenizers.source.tags if languages_named([tag], [target_lang])]
    return tags if len(tags) == 1 else ()


def tagged_for(sources: Sequence[str], tags: Sequence[str], model: Scored, where: str) -> list[str]:
    """The lines of a corpus of one direction for a model of several: with its tags for that."""
    if not tags:
        return list(sources)
    entry = " ".join(tags)
    LOGGER.info("%s: its lines get the %s %s", where, "tag" if len(tags) == 1 else "tags", entry)
    return [with_tags(line, entry, model.tokenizers.source.tags) for line in sources]


def own_corpus(model: Scored, path: Path) -> DataConfig:
    """What the model's run directory says of its corpus; for a model that has left it, our corpus of that name.

    A model file can come from anybody, so nothing is read or downloaded from where it says.
    """
    run_dir, name = run_of(path), str(model.data.get("name"))
    if run_dir is not None:
        return read_config(run_dir).data
    if name in choices_of("data") and name not in ("files", "labels", "pairs", "questions", "tags", "text"):
        data: DataConfig = load_config("evaluate", [f"data={name}"]).data
        return data
    raise ConfigError(f"{path}: was trained on `{name}`, which is not here. Add data=NAME, or --source and --reference")


def now_or_kept(data: DataConfig, kept: ParallelText) -> ParallelText:
    """The test set of a run as its files have it now; as the run has kept it where it was held out, or they are gone.

    One line says so where they are gone, or have changed since.
    """
    if not data.has_own_test:
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
    """The pairs of a text without blank lines, which some readers leave out."""
    return [(source, target) for source, target in text.each() if source.strip() or target.strip()]


def load_test(data: DataConfig, models: Sequence[Scored], kept: ParallelText | None = None) -> ParallelText:
    """The test set as raw text; from the prepared corpus where it was held out of the training text.

    `kept` is what the run of the models has of it.
    """
    if kept is not None:
        return now_or_kept(data, kept)
    if data.has_own_test:
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


def check_corpus(config: EvaluateConfig, data: DataConfig) -> DataConfig:
    """`data`, if none of its files is --save. Raises ConfigError."""
    if config.save is not None and Path(config.save).exists():
        files: list[Path] = []
        with suppress(DataError):  # what is not there yet cannot be --save, and reading it reports what is wrong
            files = input_files(data, "test" if data.test is not None else "train")
        if any(Path(config.save).samefile(file) for file in files):
            raise ConfigError(f"{config.save}: both a file of data={data.name} and --save. Choose another --save")
    return data


# ---- Warnings


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
