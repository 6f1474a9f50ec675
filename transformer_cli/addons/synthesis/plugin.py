"""What this add-on brings."""

import time
from dataclasses import replace

from transformer_cli.addons.synthesis.keys import AugmentConfig
from transformer_cli.addons.synthesis.loop_keys import LoopConfig
from transformer_cli.command import TRAINING_GROUPS, Command, SweepRun, register
from transformer_cli.commands.languages import missing_languages


def _run(config: AugmentConfig) -> None:
    from transformer_cli.addons.synthesis.run_augment import run

    run(config)


def _sweep(config: AugmentConfig, run: SweepRun) -> tuple[SweepRun, float | None]:
    """`run` with the counts of its shard; there is no score."""
    from transformer_cli.addons.synthesis.run_augment import augment_and_report

    start = time.perf_counter()
    made = augment_and_report(config)
    minutes = (time.perf_counter() - start) / 60 if made.is_new else None
    n_dropped = made.report.n_translations - made.report.n_pairs
    counts = {"lines": made.report.n_lines, "pairs": made.report.n_pairs, "dropped": n_dropped}
    return replace(run, corpus=str(made.name), counts=counts, minutes=minutes), None


register(
    Command(
        "augment",
        help="make synthetic pairs: back-translate target text, distill a teacher; merge the shards of either",
        example="tfm augment back-translate --checkpoint runs/de-en --input news.de --output bt",
        schema=AugmentConfig,
        run=_run,
        sweep=_sweep,
        goes_on_from="block",
        groups={"decode": "beam"},
        group_flags={"--beam": "decode.beam_size", "--n-best": "decode.n_best"},
        needs_word="Name back-translate, distill, merge or loop",
    )
)


def _loop(config: LoopConfig) -> None:
    from transformer_cli.addons.synthesis.run_loop import run

    run(config)


register(
    Command(
        "augment loop",
        help="train both directions in rounds, each model on what the other has back-translated",
        example="tfm augment loop data=files data.train=[train.en,train.fr] --source news.en --target news.fr",
        schema=LoopConfig,
        run=_loop,
        goes_on_from="step",
        groups=TRAINING_GROUPS,
        recipe_by_task=True,
        missing=missing_languages,
    )
)
