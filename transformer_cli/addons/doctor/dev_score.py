"""The metric that dev translations are scored by."""

from transformer_cli.addons.doctor.findings import Section
from transformer_cli.config.tasks import BLEU
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.prepare import Prepared
from transformer_cli.evaluation.tokenization import suited_tokenizer
from transformer_cli.training.dev_metrics import chrf_decides, dev_metrics, dev_tokens


def check_dev_score(config: TrainConfig, prepared: Prepared, section: Section) -> None:
    """Findings on the metric of the dev set."""
    tokens = dev_tokens(config.data)
    if tokens.missing and BLEU in dev_metrics(config):
        section.warn("dev scores", tokens.missing, chrf_decides(config))
    elif (suited := suited_tokenizer([prepared.dev.targets], tokens)) is not None:
        what = f"data.dev is in a script that BLEU's tokenizer {tokens.bleu} does not cut into words"
        section.warn("dev scores", what, f"Set data.bleu_tokenize={suited}")
