"""The languages of commands that read a corpus, where the command line does not name them."""

from collections.abc import Mapping
from typing import Any


def missing_languages(config: Any) -> Mapping[str, str]:
    """The languages that the files of data.train name. Raises ConfigError, DataError."""
    from transformer_cli.data.readers.languages_found import languages_found

    return languages_found(config)
