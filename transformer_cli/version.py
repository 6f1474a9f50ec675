"""The version of tfm."""

__version__ = "0.1.0"
