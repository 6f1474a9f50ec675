"""From bytes to batches: lines, corpora, tokenizer, cache, batching."""
