"""Pictures of attention weights and of position encodings."""

NEEDS = (
    "interop",
    "pages",
)
