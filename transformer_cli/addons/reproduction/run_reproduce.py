"""`tfm reproduce`: list the recipes whose scores are known, without torch, or train one of them."""

from collections.abc import Iterator, Sequence

from transformer_cli.addons.reproduction.keys import ReproduceConfig
from transformer_cli.addons.reproduction.records import Reproduction, names, read_reproduction
from transformer_cli.standard_streams import require_stdout


def run(config: ReproduceConfig) -> None:
    """Train and compare, or print the list to stdout."""
    require_stdout("the scores")
    if config.reproduction is None:
        print("\n".join(_listed([read_reproduction(name) for name in names()])), flush=True)
        return
    from transformer_cli.addons.reproduction.reproduce_run import reproduce  # imports torch

    reproduce(config, read_reproduction(config.reproduction))


def _listed(reproductions: Sequence[Reproduction]) -> Iterator[str]:
    """The list of reproductions for people, a few lines each."""
    width = max(len(one.name) for one in reproductions) + 2
    for one in reproductions:
        yield f"{one.name:<{width}}{one.title}"
        yield from (" " * width + line for line in (*one.published_lines(), f"ours        {one.our_line()}"))
    yield "\n`tfm reproduce NAME` trains one, and says at each evaluation whether it is on track, behind or ahead"
