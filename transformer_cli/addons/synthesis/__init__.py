"""Synthetic parallel text, made with models: back-translation and distillation, in resumable blocks and shards."""
