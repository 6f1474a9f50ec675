"""Augmentation of the training text: capitals, typos, placeholders and more, in a share of the pairs."""
