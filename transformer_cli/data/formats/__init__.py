"""File formats that hold rows of text: tables, records and bilingual files, one module a format.

FORMATS in data/registry.py has them by their names; each is recognised by the content of a file or by its ending.
"""

from transformer_cli.data.formats import csv, jsonl, parquet, qt_linguist, tmx, xliff  # noqa: F401  (registers them)
