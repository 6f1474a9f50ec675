"""`tfm evaluate`: translate a test set and score it, with the signatures that make the scores comparable.

Models that do not translate have modules of their own.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import torch
from tqdm import tqdm

from transformer_cli.config import choices_of, load_config
from transformer_cli.data.corpus import ParallelText, load_text
from transformer_cli.data.download import fetch
from transformer_cli.data.lines import read_lines
from transformer_cli.data.prepare import prepare
from transformer_cli.data.unknown import UnknownCounter
from transformer_cli.decoding.ctranslate2 import CTranslate2Translator
from transformer_cli.decoding.exported import Exported, chosen_engine, locate_export
from transformer_cli.decoding.training_text import training_text
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault
from transformer_cli.evaluation.metrics import Score, check_line_counts, score
from transformer_cli.evaluation.paper_bleu import compound_split_bleu, tokenised_bleu
from transformer_cli.evaluation.report import as_dict, text_lines
from transformer_cli.files import faults, meant, write_whole
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.ensemble import build_all, read_models
from transformer_cli.models.file import ModelFile, locate_models, read_model
from transformer_cli.schema import DataConfig, DecodeConfig, Engine, EvaluateConfig
from transformer_cli.training.run_directory import read_config, run_of

# Those that Moses has rules for; for others its tokens would be nobody's.
MOSES_LANGUAGES = ("cs", "de", "en", "es", "fi", "fr", "hu", "it", "lv", "nl", "pl", "pt", "ro", "ru", "sv")


# What reports on models that do not translate: `run` for `tfm evaluate`, `report_training` for the end of `tfm train`.
OTHER_KINDS = {
    "classifier": "transformer_cli.commands.evaluate_classes",
    "decoder": "transformer_cli.commands.evaluate_text",
}

Scored = ModelFile | Exported


@dataclass(frozen=True)
class TestSet:
    """Lines to translate, and one or more reference translations of each."""

    name: str
    sources: Sequence[str]
    references: Sequence[Sequence[str]]


def run(config: EvaluateConfig) -> None:
    """Print the scores of a model on its test set, on another corpus's, or on the user's own files."""
    if sys.stdout is None:
        raise EnvironmentFault("standard output: closed. Open it, for the scores to be printed")
    device = choose_device(config.device)
    models: Sequence[Scored]
    if chosen_engine(config.engine, config.checkpoint) is Engine.ctranslate2:
        exported = locate_export(config.checkpoint, program=Engine.ctranslate2.name)
        paths, models = [exported.directory], [exported]
    else:
        paths = locate_models(config.checkpoint, config.runs)
        models = files = read_models(paths, ("transformer", *OTHER_KINDS))
        if (kind := files[0].config.name) in OTHER_KINDS:
            import_module(OTHER_KINDS[kind]).run(config, files, paths, device)
            return
    if config.source is not None and config.reference is None:
        raise ConfigError("--reference: not given, but --source is. A score needs a text and its translation")
    test = own_files(config) if config.source is not None else corpus_test_set(config, models, paths[0])
    saved_as = output_file(config) or default_file(paths[0], models, test)
    report(
        paths,
        models,
        test,
        config.decode,
        device,
        seed=config.seed,
        saved_as=saved_as,
        as_json=config.json,
        whole_machine=True,
    )


def report_test_set(
    path: Path, test: ParallelText, decode: DecodeConfig, *, name: str, device: torch.device, seed: int
) -> list[Score]:
    """What `tfm train` does at its end: the same scores, of the model file that it shipped."""
    models, test_set = [read_model(path)], TestSet(name, test.sources, [test.targets])
    return report([path], models, test_set, decode, device, seed=seed, saved_as=default_file(path, models, test_set))


def report(
    paths: Sequence[Path],
    models: Sequence[Scored],
    test: TestSet,
    decode: DecodeConfig,
    device: torch.device,
    *,
    seed: int,
    saved_as: Path | None,
    as_json: bool = False,
    whole_machine: bool = False,
) -> list[Score]:
    """Translate, save the translations, and print the scores to stdout."""
    check_line_counts(test.sources, test.references)
    hypotheses = translate(models, test, decode, device, seed=seed, whole_machine=whole_machine)
    if saved_as is not None:
        with faults(saved_as, "save the translations"):
            write_whole(meant(saved_as), "".join(f"{line}\n" for line in hypotheses).encode())
    scores, names = all_scores(hypotheses, test.references, models[0]), ", ".join(map(str, paths))
    if as_json:
        facts = {"model": names, "test_set": test.name, "lines": len(hypotheses), "hypotheses": str(saved_as)}
        print(json.dumps(as_dict(scores, **facts), indent=2))
        return scores
    print(f"{test.name}, {len(hypotheses):,} lines, {names}")
    print("\n".join(text_lines(scores)), flush=True)  # before we speak as if they had arrived
    if saved_as is not None:
        LOGGER.info("translations: %s", saved_as)
    return scores


def translate(
    models: Sequence[Scored],
    test: TestSet,
    decode: DecodeConfig,
    device: torch.device,
    *,
    seed: int,
    whole_machine: bool,
) -> list[str]:
    if isinstance(models[0], Exported):
        translator: Translator = CTranslate2Translator(models[0], decode, device=device, seed=seed)
    else:
        files = [model for model in models if isinstance(model, ModelFile)]
        translator = Translator(
            build_all(files, device),
            files[0].tokenizers,
            decode,
            device=device,
            seed=seed,
            text=training_text(files),
            whole_machine=whole_machine,
        )
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


def all_scores(hypotheses: Sequence[str], references: Sequence[Sequence[str]], model: Scored) -> list[Score]:
    """sacrebleu's three, then the tokenised BLEU of papers; that of the paper itself for English-German."""
    scores = score(hypotheses, references)
    if model.target_lang in MOSES_LANGUAGES:
        scores.append(tokenised_bleu(hypotheses, references, language=model.target_lang))
    if (model.source_lang, model.target_lang) == ("en", "de"):
        scores.append(compound_split_bleu(hypotheses, references))
    return scores


def output_file(config: EvaluateConfig) -> Path | None:
    """--hypotheses, looked at before anything is translated."""
    if config.hypotheses is None:
        return None
    file = Path(config.hypotheses)
    inputs = [config.source, *reference_files(config)] if config.source is not None else []
    if any(name is not None and file.exists() and file.samefile(name) for name in inputs):
        raise ConfigError(f"{file}: both an input and --hypotheses. Choose another --hypotheses")
    if file.exists() and not file.is_file():
        raise ConfigError(f"{file}: not a plain file. Choose another --hypotheses")
    folder = meant(file).parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise EnvironmentFault(f"{folder}: no such folder, or not one that can be written. Choose another place")
    return file


def default_file(path: Path, models: Sequence[Scored], test: TestSet) -> Path | None:
    """In the run directory of the (first) model, else beside it; nowhere, with a warning, if that cannot be written.

    Those of an ensemble, and of an export, have its name: they do not replace the run's own.
    """
    made_by = f"ensemble-of-{len(models)}." if len(models) > 1 else ""
    if isinstance(models[0], Exported):
        path = path.resolve()  # it may be called `.`
        made_by = f"{path.name}."
    folder = run_of(path) or path.parent
    file = folder / f"hypotheses.{test.name}.{made_by}{models[0].target_lang}"
    if os.access(folder, os.W_OK | os.X_OK):
        return file
    LOGGER.warning("%s cannot be written, so the translations are not saved; --hypotheses names another place", file)
    return None


def own_files(config: EvaluateConfig) -> TestSet:
    """--source and --reference."""
    source = Path(str(config.source))
    sources = read_lines(source)
    references = [read_lines(Path(file)) for file in reference_files(config)]
    for reference in references:
        if len(reference) != len(sources):
            raise DataError(
                f"{reference.name}: has {len(reference):,} lines, {sources.name} {len(sources):,}, so nothing is"
                " scored. Make line n of one the translation of line n of the other"
            )
    return TestSet(source.name, sources.texts, [reference.texts for reference in references])


def reference_files(config: EvaluateConfig) -> list[str]:
    return [config.reference] if isinstance(config.reference, str) else [str(file) for file in config.reference or []]


def corpus_test_set(config: EvaluateConfig, models: Sequence[Scored], path: Path) -> TestSet:
    """The test set of `data=`, or of the corpus that the (first) model was trained on."""
    if config.data is not None:
        return named_test_set(config.data, models)
    try:
        return named_test_set(own_corpus(models[0], path), models)
    except DataError as error:
        raise DataError(f"{error}, or give --source and --reference (this is the corpus of the model's run)") from error


def named_test_set(data: DataConfig, models: Sequence[Scored]) -> TestSet:
    model = models[0]
    data = data.in_direction(model.source_lang, model.target_lang)
    if (data.source_lang, data.target_lang) != (model.source_lang, model.target_lang):
        raise ConfigError(
            f"data={data.name}: {data.source_lang} → {data.target_lang}, but the model translates"
            f" {model.source_lang} → {model.target_lang}. Choose another corpus or another --checkpoint"
        )
    text = load_test(data, models)
    return TestSet(f"{data.title}.test", text.sources, [text.targets])


def own_corpus(model: Scored, path: Path) -> DataConfig:
    """What the model's run directory says of its corpus; for a model that has left it, our corpus of that name.

    A model file can come from anybody, so nothing is read or downloaded from where it says.
    """
    run_dir, name = run_of(path), str(model.data.get("name"))
    if run_dir is not None:
        return read_config(run_dir).data
    if name in choices_of("data") and name not in ("files", "labels", "text"):
        data: DataConfig = load_config("evaluate", [f"data={name}"]).data
        return data
    raise ConfigError(f"{path}: was trained on `{name}`, which is not here. Add data=NAME, or --source and --reference")


def load_test(data: DataConfig, models: Sequence[Scored]) -> ParallelText:
    """The test set as raw text; from the prepared corpus where it was held out of the training text."""
    if data.test is not None or data.builtin is not None:
        fetch(data, progress=True)
        text = load_text(data, "test")
    else:
        prepared = prepare(data, progress=True)
        if any(prepared.fingerprint != model.fingerprint for model in models):
            raise DataError(
                f"data={data.name}: is not the text that the model was trained on, so that what is held out of it may"
                " have been learnt. Restore it"
            )
        text = prepared.test
    if text is None:
        raise ConfigError(f"data.test: {data.name} has no test set. Name one, or give --source and --reference")
    return text
