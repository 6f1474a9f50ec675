"""Small, fast models: lexical shortlists, and students of larger models."""

NEEDS = ("benchmarks", "interop", "synthesis")
