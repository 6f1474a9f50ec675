"""Search over `step(ids, cache) -> logits, cache`, and the Translator from lines to lines."""
