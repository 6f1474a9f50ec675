"""F1 of brackets beside EVALB's own program: `EVALB=FOLDER pytest -m "" tests/addons/parsing/test_evalb.py`.

FOLDER holds the program `evalb`, compiled (https://nlp.cs.nyu.edu/evalb/), and COLLINS.prm. With TREEBANK=FOLDER the
trees are those of its files *.mrg, else those of the built-in treebank.
"""

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from transformer_cli.addons.parsing.bracket_f1 import bracket_f1
from transformer_cli.addons.parsing.trees import Constituent, TaggedWord, linearize, read_linear, read_tree
from transformer_cli.data.readers.builtin import read_builtin
from transformer_cli.evaluation.metrics import MetricSettings, Translations

EVALB = os.environ.get("EVALB")


def trees() -> list[Constituent]:
    if folder := os.environ.get("TREEBANK"):
        texts = [file.read_text(encoding="utf-8") for file in sorted(Path(folder).glob("*.mrg"))]
        return [read_tree(f"({tree}") for text in texts for tree in re.split(r"^\(", text, flags=re.MULTILINE)[1:]]
    return [read_linear(tree, sentence.split())[0] for sentence, tree in read_builtin("demo_trees", "test")]


def changed(tree: Constituent, draw: random.Random) -> Constituent:
    """The tree with brackets left out, added, doubled and of other labels."""
    parts: list[Constituent | TaggedWord] = []
    for part in tree.parts:
        one = part if isinstance(part, TaggedWord) else changed(part, draw)
        parts += one.parts if isinstance(one, Constituent) and draw.random() < 0.1 else (one,)
    if len(parts) > 2 and draw.random() < 0.1:
        at = draw.randrange(len(parts) - 1)
        parts[at : at + 2] = [Constituent(draw.choice(["NP", "VP", "ADVP", "PRT"]), tuple(parts[at : at + 2]))]
    label = draw.choice(["NP", "VP", "S", "PRT", "ADVP"]) if draw.random() < 0.08 else tree.label
    made = Constituent(label, tuple(parts))
    return Constituent(draw.choice(["NP", label]), (made,)) if draw.random() < 0.04 else made


@pytest.mark.slow
@pytest.mark.skipif(EVALB is None, reason="needs EVALB, the folder of the program")
def test_scores_are_those_of_the_program(tmp_path: Path) -> None:
    draw, gold = random.Random(1), trees()
    hypotheses = [changed(tree, draw) for tree in gold]
    for name, written in (("gold", gold), ("test", hypotheses)):
        (tmp_path / name).write_text("".join(f"(TOP {tree})\n" for tree in written), encoding="utf-8")
    program = [f"{EVALB}/evalb", "-p", f"{EVALB}/COLLINS.prm", str(tmp_path / "gold"), str(tmp_path / "test")]
    summary = subprocess.run(program, capture_output=True, text=True, check=False).stdout.partition("-- All --")[2]
    names = ("Bracketing FMeasure", "Bracketing Precision", "Bracketing Recall", "Complete match")
    theirs = [float(re.search(rf"{name} += +([\d.]+)", summary)[1]) for name in names]  # type: ignore[index]
    ours = bracket_f1(Translations([*map(linearize, hypotheses)], [[*map(linearize, gold)]]), MetricSettings())
    assert [round(score.value, 2) for score in ours] == pytest.approx(theirs, abs=0.011)
    assert 50 < theirs[0] < 99
    print(len(gold), "trees:", dict(zip(names, theirs, strict=True)))
