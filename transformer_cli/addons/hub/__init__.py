"""Models by their names on the Hugging Face Hub: downloaded, imported once and kept; and models uploaded to it."""

NEEDS = ("interop",)
