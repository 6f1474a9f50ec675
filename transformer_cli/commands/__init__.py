"""The commands of the translator, in the order of `tfm --help`, and its task. Each imports its work when it runs."""

# ruff: noqa: F401
from transformer_cli.tasks import translation

from transformer_cli.commands import train, translate, evaluate, prepare, score, average, inspect, config, replay  # isort: skip
