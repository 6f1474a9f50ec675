"""The metrics of dev scores, their tokenizer, and all else that the rank of a checkpoint depends on."""

from collections.abc import Mapping
from typing import Any

from transformer_cli.config.compose import to_plain
from transformer_cli.config.data import DataConfig
from transformer_cli.config.decode import LENGTH_PENALTY, DecodeConfig
from transformer_cli.config.fields import keys_that_affect
from transformer_cli.config.options import options_that_affect
from transformer_cli.config.tags import languages_of
from transformer_cli.config.tasks import ACCURACY, BLEU, NLL
from transformer_cli.config.train import TrainConfig, ranking_metric
from transformer_cli.decoding.search import SEARCHES
from transformer_cli.evaluation.tokenization import WESTERN, Tokenization, tokenization, tokenizer_of

CHRF = "chrf"  # the metric in place of BLEU where that cannot be computed
DEV_TEXT, METRIC, EVAL_LINES = "data.dev", "train.best_metric", "train.eval_lines"
_NOT_OF_THE_SCORE = frozenset(keys_that_affect(DecodeConfig, "rounding", "speed"))


def ranked_by(config: Mapping[str, Any], *, metric: str, dev_sha256: str, n_dev: int) -> dict[str, Any]:
    """All that a rank depends on beside the model, by config key, as JSON: ranks compare only where this is equal.

    `config` is plain. Of the search it has only what is not by default: a later tfm has more options.
    """
    train, decode = config["train"], dict(config["decode"])
    found = {METRIC: metric, DEV_TEXT: dev_sha256, "data.max_length": config["data"]["max_length"]}
    if train["best_metric"] == NLL:
        return found
    default = to_plain(DecodeConfig())
    decode["options"] = options_that_affect("scores", SEARCHES, decode["search"], decode["options"])
    search = {k: v for k, v in decode.items() if k not in _NOT_OF_THE_SCORE and v != default.get(k)}
    if search.get("length_penalty") == LENGTH_PENALTY:  # as unset
        del search["length_penalty"]
    return {**found, EVAL_LINES: min(train["eval_lines"], n_dev), "decode": search}


def dev_metrics(config: TrainConfig) -> list[str]:
    """The metrics of dev translations by name: `train.metrics`, and that of `train.best_metric` or of the task."""
    best = ranking_metric(config.train, config.data.trained)
    also = [] if best in (NLL, ACCURACY) else [best]
    return list(dict.fromkeys([*config.train.metrics, *also]))


def dev_tokens(data: DataConfig, language: str = "") -> Tokenization:
    """The tokenization of dev BLEU, or of that of a part in one language.

    Raises EnvironmentFault if data.bleu_tokenize asks for what is not installed.
    """
    name = data.bleu_tokenize
    language = language or data.target_lang
    usual = dict.fromkeys(map(tokenizer_of, languages_of(language)))
    if name is None and len(usual) > 1:
        missing = f"BLEU of {language}: its languages take the tokenizers {' and '.join(usual)}, so there is no"
        return Tokenization(WESTERN, missing=f"{missing} BLEU of all of them together")
    return tokenization(language, name, asked_by=None if name is None else f"data.bleu_tokenize={name}")


def chrf_decides(config: TrainConfig) -> str:
    """The clause on what chrF is used for where BLEU cannot be computed."""
    ranked = ranking_metric(config.train, config.data.trained) == BLEU
    more = ", which also decides on the best checkpoint, patience and the average" if ranked else ""
    return f"Dev scores are chrF until then{more}"
