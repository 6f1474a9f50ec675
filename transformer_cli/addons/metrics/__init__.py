"""Metrics beside those of sacrebleu: COMET, ROUGE, and the BLEU of older papers."""
