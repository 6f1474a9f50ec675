"""Translations of perturbed lines: capitals, typos, emoji and more."""

NEEDS = ("augmentation",)
