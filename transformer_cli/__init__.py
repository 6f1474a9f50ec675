"""tfm: train and run Transformer translation models."""

__version__ = "0.1.0"
