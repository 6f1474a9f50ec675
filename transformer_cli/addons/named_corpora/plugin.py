"""What this add-on brings: the reader of data.mtdata."""

from typing import Any

from transformer_cli.config.data import DataConfig
from transformer_cli.data.registry import READERS


@READERS.register("mtdata")
def _mtdata(config: DataConfig) -> Any:
    from transformer_cli.addons.named_corpora.reader import Mtdata

    return Mtdata(config)
