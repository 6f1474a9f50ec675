"""The commands of docs/tutorials.md, as they stand there; test_docs_code.py runs its Python."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.docs_code import blocks_of
from tests.support.forked import run

PAGE = ROOT / "docs" / "tutorials.md"
WORDS = {"▁a", "▁am", "▁i", "▁thanks", "▁student", "</s>"}


@pytest.mark.slow  # 150 updates
def test_a_model_of_six_words_says_how_probable_each_of_them_is(tmp_path: Path) -> None:
    (block,) = [block.text for block in blocks_of(PAGE) if block.text.startswith("printf")]
    text, train, translate = block.replace("\\\n", " ").strip().split("\n")
    subprocess.run(["bash", "-c", text], cwd=tmp_path, check=True)
    trained = run([*shlex.split(train)[1:], "device=cpu"], tmp_path)
    assert trained.code == 0, trained.err.decode()
    shown = run(shlex.split(translate)[1:], tmp_path)
    assert shown.code == 0, shown.err.decode()
    lines = shown.out.decode().split("\n")
    assert lines[1] == "translation: i am a student"
    steps = [line.split() for line in lines if re.match(r" +\d+  ", line)]
    assert [step[1] for step in steps] == ["▁i", "▁am", "▁a", "▁student", "</s>"]
    assert all(float(step[2]) > 0.5 for step in steps)
    assert {word for step in steps for word in step if word in WORDS} == WORDS
