"""`tfm evaluate`."""

from transformer_cli.command import Command, register
from transformer_cli.config import comet
from transformer_cli.config.evaluate import EvaluateConfig


def _run(config: EvaluateConfig) -> None:
    from transformer_cli.commands.evaluate.run import run

    run(config)


register(
    Command(
        "evaluate",
        help="report BLEU, chrF and TER on the test set; accuracy and F1; or perplexity",
        example="tfm evaluate --beam 4",
        schema=EvaluateConfig,
        run=_run,
        group_flags={"--beam": "decode.beam_size", **comet.FLAGS},
        input_hint="Name files with --source and --reference, or a test set with --test-set",
    )
)
