"""What this add-on brings: the filter dual_cross_entropy."""

from typing import TYPE_CHECKING, Any

from transformer_cli.config.data import DataConfig
from transformer_cli.data.cleaning.registry import FILTERS, Filter

if TYPE_CHECKING:
    from transformer_cli.data.checks.profiles import Floats
    from transformer_cli.data.cleaning.texts import PairTexts, Verdict


@FILTERS.register("dual_cross_entropy")
class DualCrossEntropy(Filter):
    """Pairs with a low score of dual conditional cross-entropy (Junczys-Dowmunt 2018), by a model of each direction.

    The threshold is the share of unrelated lines that are found: of pairs of a source and the target of another pair,
    so many have a lower score than any pair that is kept.
    """

    what = "that models of both directions find as unlikely as unrelated lines"
    threshold, low, high = 0.5, 0.01, 0.999
    uses_models = True

    @classmethod
    def version(cls, config: DataConfig) -> Any:
        """The hashes of the models."""
        from transformer_cli.addons.dual_cross_entropy.scores import all_dual_models

        return [sorted((one.forward.sha256, one.backward.sha256)) for one in all_dual_models(config)]

    def configure(self, config: DataConfig) -> None:
        from transformer_cli.addons.dual_cross_entropy.scores import dual_models

        self._models = dual_models(config, self.languages)

    def learn(self, text: "PairTexts") -> None:
        """Find the lowest score of the pairs that are kept."""
        import numpy as np

        assert self.limit is not None
        scores = self._models.scores_of_unrelated(text)
        self._lowest = float(np.quantile(scores, self.limit)) if len(scores) else 0.0

    def apply(self, text: "PairTexts") -> "Verdict":
        from transformer_cli.data.cleaning.base import drop

        return drop(self._models.scores([*text.each()]) < self._lowest)

    def suspicion(self, text: "PairTexts") -> "Floats":
        """Certainty grows with the distance of the score from the lowest of those that are kept, in nats."""
        import numpy as np

        from transformer_cli.data.cleaning.base import certainty

        return certainty(np.log(self._lowest / self._models.scores([*text.each()])))
