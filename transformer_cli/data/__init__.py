"""Turns bytes into batches: lines, corpora, tokenizer, cache, batching."""
