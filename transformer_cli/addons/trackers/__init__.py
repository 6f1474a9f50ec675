"""Loggers of experiment trackers: Weights & Biases, MLflow and Trackio."""

NEEDS = ()
