"""Checks of a corpus: warnings of `tfm prepare` and `tfm train`, and the findings of `tfm doctor`."""
