"""Benchmarks of tfm against baselines and against the limits of the machine."""

NEEDS = ("interop",)
