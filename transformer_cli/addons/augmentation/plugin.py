"""What this add-on registers."""

from typing import TYPE_CHECKING

from transformer_cli.data.pair_changes import AUGMENT, PAIR_CHANGES, PairChange

if TYPE_CHECKING:
    from transformer_cli.config.train import TrainConfig
    from transformer_cli.data.prepare import Prepared


@PAIR_CHANGES.register(AUGMENT)
def augment(config: "TrainConfig", prepared: "Prepared") -> PairChange:
    from transformer_cli.addons.augmentation.augment import Augmenter

    augmenter = Augmenter(
        prepared.train, prepared.tokenizers, config.data, config.seed, prepared.parts, prepared.chunks
    )
    augmenter.warn_of_kept()
    return augmenter.augmented
