"""What this add-on brings."""

from transformer_cli.addons.reranking.keys import RerankConfig
from transformer_cli.command import Command, register


def _run(config: RerankConfig) -> None:
    from transformer_cli.addons.reranking.run_rerank import run

    run(config)


register(
    Command(
        "rerank",
        help="choose from n-best lists by a weighted sum of features, tuned on a dev set",
        example="tfm rerank --nbest news.nbest --weights weights.json > news.de",
        schema=RerankConfig,
        run=_run,
    )
)
