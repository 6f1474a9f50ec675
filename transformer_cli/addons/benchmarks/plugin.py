"""What this add-on brings."""

from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.command import TRAINING_GROUPS, Command, register


def _run(config: BenchConfig) -> None:
    from transformer_cli.addons.benchmarks.run_bench import run

    run(config)


register(
    Command(
        "bench",
        help="measure speed on this machine, beside other programs",
        example="tfm bench train model=base data=multi30k_en_de",
        schema=BenchConfig,
        run=_run,
        groups=TRAINING_GROUPS,
        needs_word="Name one: machine, train, loss, attention, data, start, decode or students",
    )
)
