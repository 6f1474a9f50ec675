"""What translating lines and translating a document have in common."""

from dataclasses import replace
from pathlib import Path

import torch

from transformer_cli.commands.translate.formats import LINES
from transformer_cli.commands.translate.keys import OnIssue, TranslateConfig
from transformer_cli.config.shared import AUTO_ENGINE, TORCH
from transformer_cli.decoding.directions import asked_tags
from transformer_cli.decoding.opening import Opened, open_models
from transformer_cli.decoding.records import quality_flags
from transformer_cli.decoding.results import Translated, TranslateOptions
from transformer_cli.decoding.terminology import read_terms
from transformer_cli.decoding.translator import Translator
from transformer_cli.logs import LOGGER
from transformer_cli.models.exported import Exported


def open_translator(
    config: TranslateConfig, device: torch.device, *, is_typed: bool = False
) -> tuple[Opened, Translator]:
    """The model and its translator. At a terminal, where latency counts, the engine is chosen unless it is set.

    Of a document, the alignment places the tags; a folder of an export has no attention weights, and gives none.
    """
    options = TranslateOptions(
        terminology=None if config.terms is None else read_terms(Path(config.terms)),
        prefixes=config.prefix is not None,
        retry=config.on_issue is OnIssue.retry,
        alignments=config.alignments is not None,
        token_scores=config.token_scores,
        n_likeliest=config.likeliest if config.explain else 0,
    )
    engine = AUTO_ENGINE if is_typed and config.engine is None else config.engine
    opened = open_models(config.checkpoint, runs=config.runs, engine=engine, decode=config.decode, options=options)
    tags = asked_tags(opened.models[0], config.tag, config.source_lang, config.target_lang)
    options = replace(options, tags=tags)
    if config.format != LINES:
        options = replace(options, alignments=not any(isinstance(model, Exported) for model in opened.models))
    if engine == AUTO_ENGINE and opened.engine != TORCH:
        LOGGER.info("engine=%s, as nothing here needs torch; engine=torch chooses the other", opened.engine)
    translator = opened.translator(config.decode, device, seed=config.seed, options=options, parallel=True)
    return opened, translator


def flags_set(result: Translated) -> list[str]:
    return [flag for flag, is_set in quality_flags(result).items() if is_set]
