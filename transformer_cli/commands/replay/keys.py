"""Keys of `tfm replay`."""

from dataclasses import dataclass

from transformer_cli.config.checks import REQUIRED
from transformer_cli.config.fields import DEVICE, PLUGINS, key
from transformer_cli.config.train import Device


@dataclass
class ReplayConfig:
    """`tfm replay`."""

    incident: str = key(
        REQUIRED, "Folder that a diverged run has left, as runs/NAME/incidents/step-00001204.", path=True, word=True
    )
    device: Device = key(Device.auto, DEVICE, flag="--device")
    plugins: list[str] = key([], PLUGINS)
