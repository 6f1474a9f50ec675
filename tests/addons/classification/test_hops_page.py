"""The page of `tfm classify --html`: the weights on it, escaping, lines that it leaves out, and what is refused."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.addons.classification.toy_classifier import SIZES, random_model
from tests.addons.classification.toy_pairs import pair_file
from tests.addons.cleaning_report.test_page import HOSTILE, Page
from tests.support.contract import run
from transformer_cli.addons.classification.classifier import Classifier
from transformer_cli.addons.classification.hops import record
from transformer_cli.addons.classification.hops.page import ReadLine, render
from transformer_cli.addons.embedding.pooling import source_layout
from transformer_cli.models.file import ModelFile, write_model

CPU = torch.device("cpu")
SELF_ATTENTIVE = replace(SIZES, pooling="self_attentive", pooling_options={"hops": 2, "width": 6})
LINES = b"a HI b\n\nc\nd e LO f\n"


@pytest.fixture
def model(tmp_path: Path) -> ModelFile:
    found = random_model(SELF_ATTENTIVE)
    write_model(tmp_path / "m.safetensors", found)
    return found


def classify(folder: Path, *more: str, stdin: bytes = LINES) -> str:
    command = ["classify", "--checkpoint", "m.safetensors", "device=cpu", "--html", "page.html", *more]
    ran = run(command, folder, stdin=stdin)
    assert ran.code == 0, ran.err
    return ran.out.decode()


def test_the_page_has_the_classes_and_the_weights_of_every_hop(tmp_path: Path, model: ModelFile) -> None:
    out = classify(tmp_path)
    assert out == run(["classify", "--checkpoint", "m.safetensors", "device=cpu"], tmp_path, stdin=LINES).out.decode()
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    shown = re.findall(r"<h2>(\w+) <span class=\"quiet\">[\d.]+ · line (\d)", page)
    labels = out.split("\n")
    assert shown == [(labels[0], "1"), (labels[2], "3"), (labels[3], "4")]
    assert "self_attentive (hops 2, penalty 0.1, width 6)" in page  # one of them by default
    assert [row[0] for row in Page(page).cells] == ["mean", "hop 1", "hop 2"] * 3

    classifier, tokenizer = model.build_as(Classifier, CPU), model.tokenizers.source
    (ids,) = tokenizer.encode(["d e LO f"])
    source_1S = torch.tensor([[tokenizer.bos_id, *ids, tokenizer.eos_id]])
    with torch.inference_mode():
        states_1SD, _, _ = classifier.states(source_1S, source_layout(source_1S, tokenizer.pad_id))
        expected_RS = classifier.pooling.token_weights(states_1SD, torch.ones_like(source_1S, dtype=torch.bool))
    assert expected_RS is not None
    rows = re.findall(r'<tr class="hop">(.*?)</tr>', page)[-2:]
    found = torch.tensor([[float(weight) for weight in re.findall(r'title="([\d.]+)"', row)] for row in rows])
    torch.testing.assert_close(found, expected_RS[0], atol=6e-4, rtol=0)


def test_texts_are_escaped_and_spaces_stand_between_words() -> None:
    tokens = ["<s>", "▁one", "▁word", "s", HOSTILE, "</s>"]
    line = ReadLine(1, HOSTILE, 0.5, tokens, torch.tensor([[0.0, 0.25, 0.1, 0.1, 0.55, 0.0]]))
    page = render([line], facts={"Model": HOSTILE}, notes=[HOSTILE])
    parsed = Page(page)
    assert page.count("<script>") == 1  # the document's own, which is empty
    assert "img" not in parsed.tags
    assert f"<s> one words{HOSTILE} </s>" in parsed.text
    assert 'data-step="10" title="0.250">one<' in page
    assert "style=" not in page


def test_lines_after_the_most_of_a_page_are_counted(
    tmp_path: Path, model: ModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "MOST_SHOWN", 2)
    classify(tmp_path, stdin=b"a\n" * 5)
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "The first 2 lines are shown; 3 more were classified." in page.text
    assert len(page.cells) == 2 * 3


def test_pairs_and_a_text_without_lines_have_a_page_too(tmp_path: Path) -> None:
    options = {"hops": 2, "width": 6}
    found = pair_file()
    config = replace(found.config, pooling="self_attentive", pooling_options=options)
    write_model(tmp_path / "m.safetensors", replace(random_model(config, max_length=20), data=found.data))
    classify(tmp_path, stdin=b"a b\tH c\n")
    assert "</s> H c </s>" in Page((tmp_path / "page.html").read_text(encoding="utf-8")).text
    classify(tmp_path, "--overwrite", stdin=b"\n")
    assert "in 0 lines" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_what_has_no_weights_to_draw_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "m.safetensors", random_model())
    command = ["classify", "--checkpoint", "m.safetensors", "device=cpu", "--html"]
    ran = run([*command, "page.html"], tmp_path, stdin=LINES)
    assert (ran.code, ran.out) == (2, b"")
    assert b"--html: model.pooling=mean of m.safetensors has no weights of tokens to draw. Leave it out" in ran.err
    same = run([*command, "x", "--output", "./x"], tmp_path, stdin=LINES)
    assert (same.code, b"--html x: is --output, too. Name another file" in same.err) == (2, True)
    assert not (tmp_path / "x").exists()
