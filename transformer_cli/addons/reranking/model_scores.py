"""Log-probabilities that models give to candidates, as features: forward, reverse, and of language models."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from transformer_cli.addons.reranking.keys import RerankConfig
from transformer_cli.config.tasks import all_tasks
from transformer_cli.decoding.training_text import training_text
from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.scoring import score_translations
from transformer_cli.inference.precision import choose_precision, in_precision
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.ensemble import AnyTokenModel, read_models
from transformer_cli.models.locate import locate_models
from transformer_cli.models.transformer import TokenModel

_PAIRS = 4096  # scored together


def each_score(texts: Sequence[str], sources: Sequence[str], config: RerankConfig) -> Iterator[tuple[str, list[float]]]:
    """The feature of each model, by its name: `forward`, and of several `forward_2`. Raises TfmError."""
    nothing = [""] * len(texts)
    for kind, models, pairs in (
        ("forward", config.forward, (sources, texts)),
        ("reverse", config.reverse, (texts, sources)),
        ("language_model", config.language_model, (nothing, texts)),
    ):
        for number, model in enumerate(models, 1):
            name = kind if number == 1 else f"{kind}_{number}"
            yield name, _scores(name, model, list(zip(*pairs, strict=True)), config)


def _scores(name: str, checkpoint: str, pairs: Sequence[tuple[str, str]], config: RerankConfig) -> list[float]:
    """The log-probability of each pair; equal ones are scored once."""
    (path,) = locate_models([checkpoint], config.runs)
    (file,) = read_models([path], [task.model for task in all_tasks() if not task.has_labels])
    _check(name, path, file.task.has_source, training_text([file]).context_sentences)
    LOGGER.info("%s: %s → %s with %s", name, file.source_lang, file.target_lang, path)
    device = choose_device(config.device)
    built: AnyTokenModel = file.build_as(TokenModel, device)
    model = in_precision(built, choose_precision(config.decode.precision, device), device)
    different = list(dict.fromkeys(pairs))
    found: dict[tuple[str, str], float] = {}
    for start in range(0, len(different), _PAIRS):
        some = different[start : start + _PAIRS]
        scored = score_translations(model, [file], config.decode, device, some, first_line=start + 1)
        found |= {pair: one.log_prob for pair, one in zip(some, scored, strict=True)}
    return [found[pair] for pair in pairs]


def _check(name: str, path: Path, has_source: bool, n_context: int) -> None:
    """Raise ConfigError for a model of another kind, and for one that reads the sentences before a line."""
    if has_source != (not name.startswith("language_model")):
        kind = "a translator" if has_source else "a language model"
        raise ConfigError(
            f"{path}: is {kind}. Name it with {'--reverse or --forward' if has_source else '--language-model'}"
        )
    if n_context:
        raise ConfigError(
            f"{path}: was trained with data.context_sentences={n_context}, and the candidates of a list are no"
            " document. Choose a model of sentences"
        )
