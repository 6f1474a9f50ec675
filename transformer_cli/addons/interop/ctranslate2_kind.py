"""engine=ctranslate2: folders of `tfm export ctranslate2` as they are, and model files, which are converted once."""

from collections.abc import Sequence
from pathlib import Path

import torch

from transformer_cli.addons.interop.conversions import PROGRAM, conversion_of, is_convertible
from transformer_cli.addons.interop.ctranslate2_engine import CAPABILITIES, WITH_TORCH, CTranslate2Engine, check_lengths
from transformer_cli.addons.interop.exported import MODEL_BIN, read_export
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.decoding.engine import check_supported
from transformer_cli.decoding.engines import EngineKind
from transformer_cli.decoding.results import TranslateOptions
from transformer_cli.decoding.shortlist import Shortlist
from transformer_cli.decoding.torch_engine import check_shortlist, torch_engine
from transformer_cli.decoding.training_text import training_text
from transformer_cli.errors import ConfigError, EnvironmentFault
from transformer_cli.extras import imported
from transformer_cli.models.exported import Exported
from transformer_cli.models.file import ModelFile
from transformer_cli.models.locate import EXPORT_FILE, exported_for


class CTranslate2Kind(EngineKind):
    """One model, of a file or of an export."""

    own_format = "was exported for CTranslate2"

    def recognises(self, folder: Path, *, is_chosen: bool) -> bool:
        program = exported_for(folder)
        damaged = (folder / MODEL_BIN).exists() or ((folder / EXPORT_FILE).exists() and program != "huggingface")
        return program == PROGRAM or (is_chosen and damaged)

    def read(self, folder: Path, decode: DecodeConfig, options: TranslateOptions) -> Exported:
        check_supported(CAPABILITIES, decode, options)
        return read_export(folder, program=PROGRAM)

    def check(self, n_models: int, decode: DecodeConfig, options: TranslateOptions) -> None:
        if n_models > 1:
            raise ConfigError("--checkpoint: names several, and engine=ctranslate2 joins none. Name one")
        check_supported(WITH_TORCH, decode, options)
        _check_scored(decode)
        imported("ctranslate2", needs="engine=ctranslate2")

    def is_better(self, models: Sequence[ModelFile], decode: DecodeConfig, options: TranslateOptions) -> bool:
        try:
            imported("ctranslate2", needs="engine=ctranslate2")
            check_supported(WITH_TORCH, decode, options)
        except (ConfigError, EnvironmentFault):
            return False
        # With a shortlist its sentences are searched one by one.
        return len(models) == 1 and decode.shortlist is None and is_convertible(models[0])

    def open(
        self,
        paths: Sequence[Path],
        models: Sequence[ModelFile | Exported],
        decode: DecodeConfig,
        device: torch.device,
        *,
        options: TranslateOptions,
        parallel: bool,
    ) -> CTranslate2Engine:
        (model,) = models
        check_supported(CAPABILITIES if isinstance(model, Exported) else WITH_TORCH, decode, options)
        exported = model if isinstance(model, Exported) else conversion_of(paths[0], quantize=decode.quantize)
        check_lengths(decode, exported.directory, exported.max_positions)
        shortlist = None
        if decode.shortlist is not None:
            check_shortlist(device, batch_invariant=False)
            languages = model.source_lang, model.target_lang
            shortlist = Shortlist.read(Path(decode.shortlist), model.tokenizers, languages)
        return CTranslate2Engine(
            exported.directory,
            exported.tokenizers,
            text=training_text([exported], max_positions=exported.max_positions),
            device=device,
            quantize=decode.quantize,
            precision=decode.precision,
            with_torch=None if isinstance(model, Exported) else lambda: torch_engine([model], decode, device),
            shortlist=shortlist,
        )


def _check_scored(decode: DecodeConfig) -> None:
    """Raise ConfigError for settings whose translations are force-decoded, which knows no shortlist."""
    for key in ("min_length", "no_repeat_ngram"):
        if decode.shortlist is not None and getattr(decode, key):
            raise ConfigError(
                f"decode.{key}={getattr(decode, key)}: engine=ctranslate2 scores such translations without a shortlist."
                " Leave decode.shortlist out, or use engine=torch"
            )
