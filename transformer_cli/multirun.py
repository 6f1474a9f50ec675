"""`-m`: Hydra itself runs the sweep, so that its launchers and sweepers work unchanged."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import hydra
from omegaconf import DictConfig

from transformer_cli import config as configs
from transformer_cli import logs


def launch(command: str, overrides: Sequence[str], user_dir: Path | None) -> None:
    """Start one job for each combination of the `a,b,c` values in `overrides`."""
    arguments = configs.hydra_arguments(command, overrides, user_dir)

    def job(config: DictConfig) -> object:
        from transformer_cli.cli import COMMANDS  # imported in the job's own process

        logs.start()
        return COMMANDS[command].load()(configs.to_schema(config, configs.SCHEMAS[command]))

    main = hydra.main(version_base="1.3", config_path=str(configs.config_dir()), config_name=command)(job)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # an error of a job is ours to report, in one line
    ours, sys.argv = sys.argv, ["tfm", "-m", *arguments]
    try:
        main()
    finally:
        sys.argv = ours
