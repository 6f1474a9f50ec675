"""Word alignments of two texts, by an aligner that is estimated on them, or by a model's attention."""
