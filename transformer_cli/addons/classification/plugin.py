"""What this add-on brings."""

from dataclasses import dataclass
from typing import Any

from transformer_cli.addons.classification.keys import ClassifyConfig
from transformer_cli.addons.classification.task import Classification
from transformer_cli.command import Command, register
from transformer_cli.config.fields import key
from transformer_cli.config.model import ModelConfig, Vocabulary
from transformer_cli.config.poolings import POOLINGS, PoolingKind
from transformer_cli.config.tasks import TASKS
from transformer_cli.models.registry import MODELS


def _run(config: ClassifyConfig) -> None:
    from transformer_cli.addons.classification.run_classify import run

    run(config)


register(
    Command(
        "classify",
        help="classify each line of standard input, or --input, in order",
        example="tfm classify --probabilities < questions.txt",
        schema=ClassifyConfig,
        run=_run,
        input_hint="Give the text on standard input, or a file with --input",
    )
)


@MODELS.register("classifier")
def _classifier(config: ModelConfig, source: Vocabulary, target: Vocabulary, options: Any) -> Any:
    from transformer_cli.addons.classification.classifier import Classifier

    return Classifier(config, source, target, options)


def _segments(config: ModelConfig) -> Any:
    from transformer_cli.addons.classification.classifier import SegmentPooling

    return SegmentPooling(config.d_model)


POOLINGS.register("segments")(PoolingKind(_segments, of_pairs=True))


@dataclass
class SelfAttentive:
    """The settings of model.pooling=self_attentive; how the penalty was chosen is in benchmarks/classification.md."""

    hops: int = key(4, "Weighted sums of the states, r: each has its own weights of the tokens.", low=1, high=1000)
    width: int = key(350, "Width of the hidden layer that the weights are computed by, d_a.", low=1, high=1_000_000)
    penalty: float = key(0.1, "Weight in the loss of the penalty on hops that have the same tokens.", low=0)


@POOLINGS.register("self_attentive", options=SelfAttentive)
def _self_attentive(config: ModelConfig) -> Any:
    from transformer_cli.addons.classification.self_attentive import SelfAttentivePooling

    return SelfAttentivePooling(config.d_model, **config.pooling_options)


TASKS.register("classification")(Classification())
