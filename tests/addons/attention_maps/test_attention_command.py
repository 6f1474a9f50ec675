"""`tfm attention` on the command line: its output for own and for given translations, and its errors."""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.addons.classification.toy_classifier import random_model as classifier_file
from tests.conftest import slow
from tests.support.contract import error_line, refused, run
from tests.support.each import each
from tests.support.forked import Ran
from tests.toy.models import written
from tests.toy.run import model_file, packed
from tests.toy.run import sentences as letters
from transformer_cli.config.model import Autoregression, Positions
from transformer_cli.models.file import ModelFile, read_model

ATTENTION = ["attention", "--checkpoint", "m", "--device", "cpu", "decode.max_extra_length=0"]
SCORE = ["score", "--checkpoint", "m", "--device", "cpu"]
SENTENCE = "a b c"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m").write_bytes(packed(model_file(n_encoder_layers=2, n_decoder_layers=3)))
    return tmp_path


def attention(folder: Path, *arguments: str) -> Ran:
    ran = run([*ATTENTION, *arguments], folder)
    assert ran.code == 0, ran.err
    return ran


def weights_of(folder: Path, *arguments: str, name: str = "a.json") -> dict[str, Any]:
    attention(folder, *arguments, "--output", name)
    held: dict[str, Any] = json.loads((folder / name).read_bytes())
    return held


def of_model(file: ModelFile, source: str, target: str) -> Mapping[str, np.ndarray]:
    """Attention weights of a pair, from the model itself."""
    ids_S, ids_T = file.tokenizers.source.encode([source, target])
    ids = file.tokenizers.source
    found = file.build(torch.device("cpu")).attention_weights(
        torch.tensor([[*ids_S, ids.eos_id]]), torch.tensor([[ids.bos_id, *ids_T]])
    )
    return {kind: torch.cat(layers).numpy() for kind, layers in found.items()}


# ---- Output


def test_a_given_translation_is_force_decoded(folder: Path) -> None:
    held = weights_of(folder, SENTENCE, "--translation", "d e")
    assert (held["source_text"], held["translation"]) == (SENTENCE, "d e")
    assert held["source"] == ["▁a", "▁b", "▁c", "</s>"]
    assert (held["read"], held["written"]) == (["<s>", "▁d", "▁e"], ["▁d", "▁e", "</s>"])
    assert held["model"] == "m, en → fr"
    assert held["notes"] == ["translation given"]
    expected = of_model(read_model(folder / "m"), SENTENCE, "d e")
    for kind, weights in expected.items():
        assert np.allclose(np.array(held[kind]["weights"]), weights, atol=1e-6)


@pytest.mark.parametrize("options", [["--beam", "3"], slow(["decode=greedy"])], ids=["beam", "greedy"])
def test_the_translation_is_that_of_tfm_translate(folder: Path, options: list[str]) -> None:
    for sentence in letters(3, seed=8):
        ran = run(
            ["translate", *ATTENTION[1:], *options, "--token-scores", "--output-format", "jsonl"],
            folder,
            stdin=f"{sentence}\n".encode(),
        )
        record = json.loads(ran.out)
        held = weights_of(folder, sentence, *options, "--overwrite")
        assert held["translation"] == record["translation"]
        assert held["written"] == [piece for piece, _ in record["tokens"]]
        stopped = held["notes"] == ["stopped at its longest length"]
        assert stopped == (held["written"][-1] != "</s>") == record["hit_length_limit"]


def test_it_prints_what_it_wrote_and_what_was_translated(folder: Path) -> None:
    ran = attention(folder, SENTENCE, "--translation", "d e", "--output", "a.json")
    assert (ran.out.decode(), ran.err) == ("a.json: a b c → d e\n", b"")


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF-")])
def test_the_ending_chooses_the_format(folder: Path, name: str, magic: bytes) -> None:
    attention(folder, SENTENCE, "--output", name, "--kind", "encoder", "--layer", "2", "--head", "1")
    assert (folder / name).read_bytes().startswith(magic)


def test_kind_layer_head_and_mean_choose_the_panels(folder: Path) -> None:
    def titles(*choice: str) -> list[str]:
        attention(folder, SENTENCE, "--translation", "d", "--output", "a.svg", "--overwrite", *choice)
        # Letters are outlines, but matplotlib adds the text as comments.
        return re.findall(r"<!-- (layer .*?) -->", (folder / "a.svg").read_text(encoding="utf-8"))

    assert len(titles("--kind", "encoder")) == 2 * 2
    assert titles("--kind", "decoder", "--layer", "3") == ["layer 3, head 1", "layer 3, head 2"]
    assert titles("--mean", "--layer", "1") == ["layer 1, mean of 2 heads"]


def test_subwords_are_merged_on_request(folder: Path) -> None:
    options = (SENTENCE, "--translation", "abc de")
    subwords, words = weights_of(folder, *options), weights_of(folder, *options, "--words", name="b.json")
    assert words["read"] == ["<s>", "▁abc", "▁de"]
    assert len(subwords["read"]) > len(words["read"])
    assert words["notes"] == ["translation given", "subwords merged into words"]
    rows = np.array(words["cross"]["weights"]).sum(-1)
    assert np.allclose(rows, 1, atol=1e-6)


def test_a_link_is_printed_with_its_head_and_its_weight(folder: Path) -> None:
    ran = attention(folder, SENTENCE, "--translation", "d e", "--output", "a.json", "--link", "c a")
    weights = np.array(json.loads((folder / "a.json").read_bytes())["encoder"]["weights"])[:, :, 2, 0]
    layer, head = np.unravel_index(weights.argmax(), weights.shape)
    assert ran.out.decode().split("\n")[1] == (
        f"c → a: encoder layer {layer + 1} head {head + 1}: {weights.max():.3f} of its attention,"
        f" {weights.max() * 4:.1f} times an even spread (0.250); the most of 4 heads"
    )


def test_a_file_has_a_picture_for_each_line_under_its_number(folder: Path) -> None:
    lines = ["a b", "", "c\td e", "  ", *["d"] * 6]
    (folder / "in").write_text("\n".join(lines), encoding="utf-8")
    ran = attention(folder, "--input", "in", "--output", "a.json")
    names = [f"a-{n:02}.json" for n in (1, 3, 5, 6, 7, 8, 9, 10)]
    assert sorted(path.name for path in folder.glob("*.json")) == names
    assert [line.split(":")[0] for line in ran.out.decode().split("\n")[:-1]] == names
    third = json.loads((folder / "a-03.json").read_bytes())
    assert (third["source_text"], third["translation"], third["notes"]) == ("c", "d e", ["translation given"])
    alone = weights_of(folder, "a b", name="alone.json")
    assert json.loads((folder / "a-01.json").read_bytes()) == alone


def test_a_long_sentence_is_split_as_in_translation_and_a_picture_shortened(folder: Path) -> None:
    sentence = " ".join("abc"[i % 3] for i in range(100))
    options = ["decode.max_source_length=80", "decode.max_length=3"]
    ran = attention(folder, sentence, *options, "--output", "a.svg", "--mean", "--layer", "1")
    split = "the first 80 of 100 tokens, as decode.max_source_length=80 splits such sentences"
    cut = "of 81 source tokens the first 58 and the last are shown, the others as one: …"
    warnings = "".join(f"tfm: warning: the sentence: {what}\n" for what in (split, cut))
    assert ran.err.decode() == warnings
    held = weights_of(folder, sentence, *options)
    assert len(held["source"]) == 81  # JSON is not cut
    assert held["notes"] == [split, "stopped at its longest length"]
    given = weights_of(folder, sentence, "--translation", sentence, *options, name="b.json")
    assert (len(given["source"]), len(given["written"])) == (101, 101)


def test_an_old_file_is_replaced_only_when_asked(folder: Path) -> None:
    (folder / "a.json").write_text("mine")
    refused([*ATTENTION, SENTENCE, "--output", "a.json"], folder, code=2, says=["a.json", "exists already"])
    assert weights_of(folder, SENTENCE, "--overwrite")["source_text"] == SENTENCE


# ---- The steps of the output, on the page


def explanation_of(folder: Path, *arguments: str) -> Any:
    attention(folder, SENTENCE, *arguments, "--output", "a.html", "--overwrite")
    page = (folder / "a.html").read_text(encoding="utf-8")
    (text,) = re.findall(r'<script type="application/json" id="explanation">(.*?)</script>', page)
    return json.loads(text)


@pytest.mark.parametrize("options", [["--beam", "3"], slow(["decode=greedy"])], ids=["beam", "greedy"])
def test_the_page_has_the_steps_that_tfm_translate_explains(folder: Path, options: list[str]) -> None:
    shown = explanation_of(folder, *options)
    explain = ["--explain", "likeliest=6", "--output-format", "jsonl", SENTENCE]
    record = json.loads(run(["translate", *ATTENTION[1:], *options, *explain], folder).out)
    (segment,) = record["explanation"]["segments"]
    for key in ("steps", "path", "hypotheses", "translation"):
        assert shown[key] == segment[key]
    assert shown["ranking"] == segment["ranking"][:12]
    assert shown["next"]["0"] == segment["steps"][0]["likeliest"]


def test_the_models_own_length_penalty_ranks_what_is_shown(folder: Path) -> None:
    plain = explanation_of(folder, "--beam", "3")["ranking"]
    (folder / "m").write_bytes(packed(replace(read_model(folder / "m"), length_penalty=3.0)))
    own = explanation_of(folder, "--beam", "3")["ranking"]
    assert own == explanation_of(folder, "--beam", "3", "decode.length_penalty=3")["ranking"] != plain
    assert plain == explanation_of(folder, "--beam", "3", "decode.length_penalty=0.6")["ranking"]


def test_the_page_of_a_given_translation_has_its_targets(folder: Path) -> None:
    shown = explanation_of(folder, "--translation", "d e")
    assert [step["token"] for step in shown["steps"]] == ["▁d", "▁e", "</s>"]
    scored = run(SCORE, folder, stdin=f"{SENTENCE}\td e\n".encode())
    assert shown["log_prob"] == pytest.approx(float(scored.out), abs=1e-4)
    assert shown["label_smoothing"] is None  # this model file does not say it


def test_a_search_without_steps_has_a_page_without_them(folder: Path) -> None:
    assert explanation_of(folder, "decode=mbr") is None


# ---- Errors


@each(
    "arguments, says",
    [
        ([], ["no sentence given"]),
        ([" "], ["the sentence is empty"]),
        ([SENTENCE, "--translation", " "], ["--translation is empty"]),
        (["a\nb\nc\n"], ["the sentence has 3 lines", "--input"]),
        ([SENTENCE, "--translation", "a\nb"], ["--translation has 2 lines"]),
        ([SENTENCE, "--output", "a.eps"], ["a.eps", ".html, .png, .svg, .pdf, .json"]),
        ([SENTENCE, "--output", "a"], ["--output a", "no format"]),
        ([SENTENCE, "--output", "a.json", "--layer", "1"], ["--layer", ".json has all", ".png, .svg or .pdf"]),
        ([SENTENCE, "--kind", "cross"], ["--kind", ".html has all"]),
        ([SENTENCE, "--output", "a.png", "--layer", "4"], ["--layer 4", "the decoder has 3 layers", "1 to 3"]),
        (
            [SENTENCE, "--output", "a.png", "--layer", "3", "--kind", "encoder"],
            ["--layer 3", "the encoder has 2 layers"],
        ),
        ([SENTENCE, "--output", "a.png", "--head", "3"], ["--head 3", "2 heads"]),
        ([SENTENCE, "--output", "a.png", "--head", "0"], ["head=0", "at least 1"]),
        ([SENTENCE, "--output", "a.png", "--head", "1", "--mean"], ["--head 1", "--mean"]),
        ([SENTENCE, "--output", "a.png", "--kind", "crosss"], ["kind", "crosss"]),
        ([SENTENCE, "--checkpoint", "m"], ["--checkpoint", "names several"]),
        ([SENTENCE, "--output", "a.json", "--link", "a"], ["--link 'a'", "1 words, not two"]),
        ([SENTENCE, "--output", "a.json", "--link", "a z"], ["--link 'a z'", "leads from", "a b c"]),
        ([SENTENCE, "--input", "in"], ["--input in", "the sentence is given, too"]),
        (["--translation", "a", "--input", "in"], ["--input in", "--translation is given, too"]),
        ([SENTENCE, "decode.quantize=int8"], ["decode.quantize=int8", "other ones would be shown"]),
    ],
)
def test_a_wrong_command_line_is_refused(folder: Path, arguments: list[str], says: list[str]) -> None:
    refused([*ATTENTION, *arguments], folder, code=2, says=says)


@each(
    "content, says",
    [
        (b"", ["in: is empty"]),
        (b"\n \n", ["in: has blank lines only"]),
        (b"a\nb\tc\td\n", ["in:2", "not a sentence, a tab and its translation"]),
        (b"a\nb\t\n", ["in:2", "not a sentence, a tab and its translation"]),
        (b"a\n\xff\n", ["in:2", "0xff"]),
        (b"a\n" + b"b " * 1001 + b"\tc\n", ["in:2", "its source has 1,001 tokens", "1,000"]),
        (b"a\nb\t" + b"c " * 1001, ["in:2", "its translation has 1,001 tokens", "1,000"]),
    ],
)
def test_a_wrong_input_is_refused_before_anything_is_written(folder: Path, content: bytes, says: list[str]) -> None:
    (folder / "in").write_bytes(content)
    refused([*ATTENTION, "--input", "in", "--output", "a.json"], folder, code=3, says=says)


def test_what_is_not_there_is_refused(folder: Path) -> None:
    refused([*ATTENTION, SENTENCE, "--output", "no/a.png"], folder, code=5, says=["no: no such folder"])
    refused([*ATTENTION, "--input", "in"], folder, code=3, says=["in: no such file"])
    (folder / "m").unlink()
    refused(["attention", SENTENCE, "--device", "cpu"], folder, code=4, says=["runs/latest", "tfm train"])


def test_one_output_of_several_that_exists_is_refused_before_anything_is_written(folder: Path) -> None:
    (folder / "in").write_text("a\nb\n")
    (folder / "a-2.json").write_text("mine")
    refused([*ATTENTION, "--input", "in", "--output", "a.json"], folder, code=2, says=["a-2.json: exists already"])


def test_a_table_of_positions_ends_somewhere(folder: Path) -> None:
    (folder / "m").write_bytes(packed(model_file(positions=Positions.learned, max_positions=6)))
    arguments = [*ATTENTION, "a b c d e f", "--translation", "a", "--output", "a.json"]
    refused(arguments, folder, code=3, says=["the sentence", "its source has 6 tokens", "the 5 that"])


def test_a_classifier_is_refused(tmp_path: Path) -> None:
    written(tmp_path, classifier_file(), "m")
    refused([*ATTENTION, SENTENCE], tmp_path, code=4, says=["m: this is a classifier; use `tfm classify`"])


def test_without_matplotlib_the_error_names_the_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib" or name.endswith(".heatmaps")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = run([*ATTENTION, SENTENCE, "--output", "a.png"], folder)
    error_line(ran, code=5, says=["--output a.png", "matplotlib", "pip install '.[plots]'"])
    assert not (folder / "a.png").exists()
    attention(folder, SENTENCE, "--output", "a.json")  # which needs none


def test_a_disk_that_is_full_leaves_no_half_a_picture(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **options: object) -> Any:
        yield '{"model":'
        raise OSError(28, "No space left on device", "a.json")

    monkeypatch.setattr("transformer_cli.addons.attention_maps.run_attention.to_json", full)
    refused([*ATTENTION, SENTENCE, "--output", "a.json"], folder, code=5, says=["a.json", "No space left"])


def test_a_sentence_may_have_an_equals_sign_and_needs_quotes(folder: Path) -> None:
    assert weights_of(folder, "a = b", "--translation", "d")["source_text"].replace(" ", "") == "a⁇b"
    refused([*ATTENTION, "a", "b", "c"], folder, code=2, says=["'b': a second sentence after 'a'", "in quotes"])


def test_by_default_it_writes_a_page(folder: Path) -> None:
    ran = attention(folder, SENTENCE, "--translation", "d e")
    page = (folder / "attention.html").read_text(encoding="utf-8")
    assert ran.out.decode() == "attention.html: a b c → d e\n"
    assert page.startswith("<!DOCTYPE html>")
    assert "translation given" in page


def test_a_recurrent_decoder_has_no_self_attention_to_show(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(packed(model_file(decoder=Autoregression.ssru)))
    for form in ("html", "json", "png"):
        attention(tmp_path, SENTENCE, "--output", f"a.{form}")
    assert json.loads((tmp_path / "a.json").read_bytes())["decoder"]["weights"] == []
    given = [SENTENCE, "--output", "b.png", "--kind", "decoder"]
    refused([*ATTENTION, *given], tmp_path, code=2, says=["--kind decoder", "recurrent", "Choose encoder or cross"])
