"""Exporters, one module each, which registers itself."""

from transformer_cli.addons.interop.exporters import argos, ctranslate2, firefox, huggingface, marian, onnx  # noqa: F401
