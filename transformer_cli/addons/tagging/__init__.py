"""Tags of the words of a sentence."""

NEEDS = ("classification", "embedding")
