"""The commands of docs/tutorials.md, and what the pages show of the model of `tfm train`.

test_docs_code.py runs their Python."""

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


def shown_translations() -> dict[str, str]:
    """The sentences of the built-in corpus that a page translates: behind a command, or behind an arrow."""
    found = {}
    for page in (ROOT / "README.md", PAGE, ROOT / "docs" / "pictures.md"):
        for block in blocks_of(page):
            text = block.text
            found |= dict(re.findall(r'^\$ tfm translate "(.+)"\n(.+)$', text, re.MULTILINE))
            found |= dict(re.findall(r"^(?:[\w.-]+: )?([A-Z].+?)(?:\n +| )→ (.+)$", text, re.MULTILINE))
    return found


@pytest.mark.slow  # the whole training of `tfm train`: two minutes of two cores
def test_the_model_of_tfm_train_translates_what_the_pages_show(tmp_path: Path) -> None:
    shown = shown_translations()
    assert len(shown) >= 6
    trained = run(["train", "device=cpu"], tmp_path)
    assert trained.code == 0, trained.err.decode()
    translated = run(["translate", "device=cpu"], tmp_path, stdin="".join(f"{line}\n" for line in shown).encode())
    assert dict(zip(shown, translated.out.decode().split("\n"), strict=False)) == shown
