"""Keys, flags and help of `tfm train`."""

import time
from dataclasses import replace

from transformer_cli.command import Command, SweepRun, register
from transformer_cli.commands.languages import missing_languages
from transformer_cli.config.train import TrainConfig


def _run(config: TrainConfig) -> None:
    from transformer_cli.commands.train.run import run

    run(config)


def _sweep(config: TrainConfig, run: SweepRun) -> tuple[SweepRun, float | None]:
    from transformer_cli.commands.train.run import train_and_report

    start = time.perf_counter()
    trained = train_and_report(config)
    assert trained is not None, "a rank of another process"
    minutes = (time.perf_counter() - start) / 60 if trained.is_new else None
    done = replace(run, run_dir=str(trained.run_dir), scores=trained.scores, step=trained.step, minutes=minutes)
    return done, trained.dev_score


register(
    Command(
        "train",
        help="prepare the data, train, report BLEU; the same command resumes",
        example="tfm train model=base data=wmt14_en_de",
        schema=TrainConfig,
        run=_run,
        sweep=_sweep,
        goes_on_from="checkpoint",
        recipe_by_task=True,
        missing=missing_languages,
    )
)
