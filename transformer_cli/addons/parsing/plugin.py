"""What this add-on brings: a metric and a file format, which register themselves."""

from transformer_cli.addons.parsing import bracket_f1, treebank  # noqa: F401
