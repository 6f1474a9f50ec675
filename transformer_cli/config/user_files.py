"""The YAML files of --config-dir, as Hydra reads them."""

from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf

from transformer_cli.config.keywords import config_of_fields
from transformer_cli.config.text_values import text_as_written


class UserFiles(FileConfigSource):
    """The YAML files of --config-dir, for Hydra: with the names of fields, and with text as it is written."""

    @staticmethod
    def scheme() -> str:
        return "tfm"

    def load_config(self, config_path: str) -> ConfigResult:
        result = super().load_config(config_path)
        if isinstance(result.config, DictConfig):
            package = result.header.get("package") or config_path.rpartition("/")[0].replace("/", ".")
            package = "" if package == "_global_" else package
            plain: Any = OmegaConf.to_container(result.config)
            path = Path(self.path) / self._normalize_file_name(config_path)
            plain = text_as_written(plain, path.read_text(encoding="utf-8"), package)
            result.config = OmegaConf.create(config_of_fields(plain, package=package))
        return result


def register_user_files() -> None:
    """Let Hydra open `tfm://FOLDER`."""
    Plugins.instance().register(UserFiles)
