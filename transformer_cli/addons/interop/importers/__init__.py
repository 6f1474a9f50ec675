"""Importers, one module each, which registers itself and imports what reads when it is asked for."""

from transformer_cli.addons.interop.importers import ctranslate2, fairseq, hf, marian, opennmt

__all__ = ["ctranslate2", "fairseq", "hf", "marian", "opennmt"]
