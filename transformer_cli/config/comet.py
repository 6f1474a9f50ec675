"""Keys of the group `comet`: the metric COMET, a program of its own."""

from dataclasses import dataclass

from transformer_cli.config.fields import key

FLAGS = {"--comet-model": "comet.model", "--comet-python": "comet.python", "--trust-comet-model": "comet.trust"}


@dataclass
class CometConfig:
    """The COMET model that scores, and the Python that runs it."""

    model: str = key(
        "Unbabel/wmt22-comet-da",
        "COMET model: path of a checkpoint, as NAME/checkpoints/model.ckpt, of its folder, or a name to download.",
        path=True,
        affects="scores",
    )
    python: str | None = key(
        None,
        "Python that has the package unbabel-comet; unset: the one that runs tfm, with the extra `comet`.",
        path=True,
        affects="place",
    )
    trust: bool = key(False, "Load a checkpoint that can run code while it is read.", affects="place")
