"""The blocks of scripts/bench_gpu: what each measures, and the seconds that it may take."""

from typing import NamedTuple


class Kind(NamedTuple):
    title: str
    module: str  # of this package; its `run(block)` measures
    limit_s: int  # so many that all blocks fit into three commands of less than ten minutes


# In the order of their worth, in which they run unless the command line names some.
BLOCKS = {
    "c": Kind("Training", "training", 360),
    "e": Kind("Translating", "translating", 290),
    "b": Kind("Exactness, batch invariance and host syncs", "exactness", 190),
    "a": Kind("Tests marked gpu", "gpu_tests", 120),
    "d": Kind("Other paths of training", "other_paths", 150),
    "g": Kind("Loss curve of experiment=paper_base", "loss_curve", 100),
    "f": Kind("Multi30k to BLEU", "multi30k", 200),
    "q": Kind("Parts and limits of the machine", "parts", 80),
}
