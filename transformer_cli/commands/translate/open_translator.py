"""What translating lines and translating a document have in common."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from transformer_cli.commands.translate.formats import LINES
from transformer_cli.commands.translate.keys import OnIssue, TranslateConfig
from transformer_cli.config.shared import AUTO_ENGINE, TORCH, OutputFormat
from transformer_cli.decoding.directions import asked_tags
from transformer_cli.decoding.opening import Opened, open_models
from transformer_cli.decoding.records import quality_flags
from transformer_cli.decoding.results import Translated, TranslateOptions
from transformer_cli.decoding.terminology import read_terms
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import CheckpointError, EnvironmentFault
from transformer_cli.logs import LOGGER
from transformer_cli.models.exported import Exported

_WIDE = 512  # of models of this width torch translates files as fast as CTranslate2 (benchmarks/decoding.md)


def open_translator(
    config: TranslateConfig, device: torch.device, *, is_typed: bool = False
) -> tuple[Opened, Translator]:
    """The model and its translator. Unless the engine is set, lines take a faster one than torch, see `_is_faster`.

    Of a document, the alignment places the tags; a folder of an export has no attention weights, and gives none.
    """
    options = TranslateOptions(
        terminology=None if config.terms is None else read_terms(Path(config.terms)),
        prefixes=config.prefix is not None,
        retry=config.on_issue is OnIssue.retry,
        alignments=config.alignments is not None,
        token_scores=config.token_scores,
        n_likeliest=config.likeliest if config.explain else 0,
        lists_scores=config.output_format is OutputFormat.moses,
    )
    may_choose = config.engine is None and config.format == LINES and (is_typed or device.type == "cpu")
    engine = AUTO_ENGINE if may_choose else config.engine
    opened = open_models(config.checkpoint, runs=config.runs, engine=engine, decode=config.decode, options=options)
    if may_choose and not _is_faster(opened, is_typed=is_typed):
        opened = replace(opened, engine=TORCH)
    tags = asked_tags(opened.models[0], config.tag, config.source_lang, config.target_lang)
    options = replace(options, tags=tags)
    if config.format != LINES:
        options = replace(options, alignments=not any(isinstance(model, Exported) for model in opened.models))
    open_it = partial(Opened.translator, config=config.decode, device=device, seed=config.seed, options=options)
    try:
        translator = open_it(opened, parallel=True)
        if engine == AUTO_ENGINE and opened.engine != TORCH and not isinstance(opened.models[0], Exported):
            LOGGER.info("engine=%s, as nothing here needs torch; engine=torch chooses the other", opened.engine)
        return opened, translator
    except (CheckpointError, EnvironmentFault) as error:
        if not may_choose or opened.engine == TORCH or isinstance(opened.models[0], Exported):
            raise
        why = str(error)
    opened = replace(opened, engine=TORCH)
    translator = open_it(opened, parallel=True)  # which may refuse for the same reason, that is then said once
    LOGGER.warning("%s. So engine=torch", why)
    return opened, translator


def _is_faster(opened: Opened, *, is_typed: bool) -> bool:
    """Whether the other engine is faster than torch: for single sentences, and on a CPU for small models."""
    first = opened.models[0]
    return is_typed or isinstance(first, Exported) or first.config.d_model < _WIDE


def flags_set(result: Translated) -> list[str]:
    return [flag for flag, is_set in quality_flags(result).items() if is_set]
