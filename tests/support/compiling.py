"""What torch.compile makes of a function: graphs, breaks between them, and why it begins again."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

MANY = 10_000  # compilations: torch forgets those before the last 64, and stops at the 8th of one function


@dataclass(frozen=True)
class Compilations:
    """Counts compilations of all functions, also of what is left of one behind a graph break."""

    n_compiled: int  # how often in all
    recompilations: list[str]  # why one was compiled again: its size, a type, a number
    graph_breaks: list[str]  # reasons, and what is left of the functions


def graph_breaks_and_recompilations(run: Callable[[], object]) -> Compilations:
    """Call `run`, which compiles functions and calls them, with nothing compiled before."""
    from torch._dynamo import utils  # more than a second to import, also where no test is run
    from torch._dynamo.resume_execution import TORCH_DYNAMO_RESUME_IN_PREFIX

    torch._dynamo.reset()
    utils.counters.clear()
    utils.clear_compilation_metrics()
    utils.set_compilation_metrics_limit(MANY)
    with torch._dynamo.config.patch(recompile_limit=MANY, accumulated_recompile_limit=MANY):
        run()
    found = [one for one in utils.get_compilation_metrics() if one.co_name is not None]  # else of a backward pass
    breaks = {reason.split("\n\n")[0] for reason in utils.counters["graph_break"]}
    breaks |= {one.co_name for one in found if (one.co_name or "").startswith(TORCH_DYNAMO_RESUME_IN_PREFIX)}
    torch._dynamo.reset()
    return Compilations(
        len(found), [one.recompile_reason for one in found if one.recompile_reason is not None], sorted(breaks)
    )
