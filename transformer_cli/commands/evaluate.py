"""`tfm evaluate`: translate a test set and score it, with the signatures that make the scores comparable."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

from transformer_cli.config import from_plain
from transformer_cli.data.corpus import ParallelText, fetch, load_text
from transformer_cli.data.lines import read_lines
from transformer_cli.data.prepare import prepare
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault
from transformer_cli.evaluation.metrics import Score, score
from transformer_cli.evaluation.paper_bleu import compound_split_bleu, tokenised_bleu
from transformer_cli.evaluation.report import as_dict, text_lines
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.file import ModelFile, locate_model, read_model
from transformer_cli.schema import DataConfig, DecodeConfig, EvaluateConfig

MOSES_LANGUAGES = ("cs", "de", "en", "es", "fi", "fr", "hu", "it", "lv", "nl", "pl", "pt", "ro", "ru", "sv")


@dataclass(frozen=True)
class TestSet:
    """Lines to translate, and one or more reference translations of each."""

    name: str
    sources: Sequence[str]
    references: Sequence[Sequence[str]]


def run(config: EvaluateConfig) -> None:
    """Print the scores of a model on its test set, on another corpus's, or on the user's own files."""
    device = choose_device(config.device)
    path = locate_model(config.checkpoint, config.runs)
    model = read_model(path)
    test = own_files(config) if config.source is not None else corpus_test_set(config, model)
    hypotheses_file = Path(config.hypotheses) if config.hypotheses else None
    report(
        path, model, test, config.decode, device, seed=config.seed, hypotheses_file=hypotheses_file, as_json=config.json
    )


def report_test_set(
    path: Path, test: ParallelText, decode: DecodeConfig, *, name: str, device: torch.device, seed: int
) -> None:
    """What `tfm train` does at its end: the same scores, of the model file that it shipped."""
    model = read_model(path)
    report(path, model, TestSet(name, test.sources, [test.targets]), decode, device, seed=seed)


def report(
    path: Path,
    model: ModelFile,
    test: TestSet,
    decode: DecodeConfig,
    device: torch.device,
    *,
    seed: int,
    hypotheses_file: Path | None = None,
    as_json: bool = False,
) -> None:
    """Translate, save the translations, and print the scores to stdout."""
    check_counts(test)
    hypotheses = translate(model, test, decode, device, seed=seed)
    saved = save_hypotheses(hypotheses, hypotheses_file or path.parent / f"hypotheses.{test.name}.{model.target_lang}")
    scores = all_scores(hypotheses, test.references, model)
    if as_json:
        facts = {"model": str(path), "test_set": test.name, "lines": len(hypotheses), "hypotheses": str(saved)}
        print(json.dumps(as_dict(scores, **facts), indent=2))
        return
    print(f"{test.name}, {len(hypotheses):,} lines, {path}")
    print("\n".join(text_lines(scores)))
    LOGGER.info("translations: %s", saved)


def check_counts(test: TestSet) -> None:
    for i, reference in enumerate(test.references):
        if len(reference) != len(test.sources):
            raise DataError(
                f"reference {i + 1} of {test.name} has {len(reference):,} lines, the source {len(test.sources):,}."
                " Line n of one must belong to line n of the other"
            )


def translate(model: ModelFile, test: TestSet, decode: DecodeConfig, device: torch.device, *, seed: int) -> list[str]:
    translator = Translator(model.build(device), model.tokenizers, decode, device=device, seed=seed)
    with tqdm(
        total=len(test.sources), unit="line", desc="translate", disable=not sys.stderr.isatty(), leave=False
    ) as bar:
        return [result.text for result in translator.translate(test.sources, on_progress=bar.update)]


def all_scores(hypotheses: Sequence[str], references: Sequence[Sequence[str]], model: ModelFile) -> list[Score]:
    """sacrebleu's three, then the tokenised BLEU of papers; that of the paper itself for English-German."""
    scores = score(hypotheses, references)
    if model.target_lang in MOSES_LANGUAGES:
        scores.append(tokenised_bleu(hypotheses, references, language=model.target_lang))
    if (model.source_lang, model.target_lang) == ("en", "de"):
        scores.append(compound_split_bleu(hypotheses, references))
    return scores


def save_hypotheses(hypotheses: Sequence[str], file: Path) -> Path:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes("".join(f"{line}\n" for line in hypotheses).encode())
    except OSError as error:
        raise EnvironmentFault(
            f"{file}: {error.strerror}. Choose a place that can be written with --hypotheses"
        ) from error
    return file


def own_files(config: EvaluateConfig) -> TestSet:
    """--source and --reference."""
    references = [config.reference] if isinstance(config.reference, str) else list(config.reference or [])
    if not references:
        raise ConfigError("--reference: not given. A score needs the translation of --source, in one file or several")
    source = Path(str(config.source))
    return TestSet(source.name, read_lines(source).texts, [read_lines(Path(file)).texts for file in references])


def corpus_test_set(config: EvaluateConfig, model: ModelFile) -> TestSet:
    """The test set of `data=`, or of the corpus that the model was trained on."""
    if config.reference is not None:
        raise ConfigError("--reference: given without --source. Name the file that it translates")
    data = config.data
    if data is None:
        try:
            data = from_plain(DataConfig, model.data)
        except ConfigError as error:
            raise ConfigError(
                f"the model names no usable corpus ({error}). Add data=NAME or --source and --reference"
            ) from error
    assert isinstance(data, DataConfig)
    if (data.source_lang, data.target_lang) != (model.source_lang, model.target_lang):
        raise ConfigError(
            f"data.name={data.name}: {data.source_lang} → {data.target_lang}, but the model translates"
            f" {model.source_lang} → {model.target_lang}. Choose another corpus or another --checkpoint"
        )
    text = load_test(data)
    return TestSet(f"{data.name}.test", text.sources, [text.targets])


def load_test(data: DataConfig) -> ParallelText:
    """The test set as raw text; from the prepared corpus where it was held out of the training text."""
    if data.test is not None or data.builtin is not None:
        fetch(data, progress=True)
        text = load_text(data, "test")
    else:
        text = prepare(data, progress=True).test
    if text is None:
        raise ConfigError(
            f"data.test: {data.name} has no test set. Name one with data.test, or --source and --reference"
        )
    return text
