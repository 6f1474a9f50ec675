"""Pictures of attention weights and of position encodings."""

NEEDS = ("pages",)
