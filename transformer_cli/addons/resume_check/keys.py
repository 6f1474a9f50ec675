"""Keys of `tfm verify-resume`."""

from dataclasses import dataclass

from transformer_cli.config.fields import PLUGINS, RUNS, check_ranges, key
from transformer_cli.config.train import Device


@dataclass
class VerifyResumeConfig:
    """`tfm verify-resume`."""

    run: str | None = key(
        None,
        "Run directory, or the YAML file of a run that is to be started, as `tfm train --cfg` prints it; unset: the"
        " newest finished run.",
        path=True,
        word=True,
    )
    runs: str = key("runs", RUNS, path=True)
    n_updates: int = key(
        20,
        "Updates that are made without a stop, and again with a stop after half of them.",
        low=2,
        high=100_000,
        flag="--updates",
    )
    device: Device = key(
        Device.auto, "Device that computes the updates; auto: that of the run's config.", flag="--device"
    )
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        check_ranges(self)
