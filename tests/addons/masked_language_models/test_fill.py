"""`tfm fill`: its words and probabilities are those of the model, and the text around them is the user's own.

Shapes: V vocabulary.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.addons.masked_language_models.toy_masked import MODEL, content, masked_model, tokenizer
from tests.support.contract import refused
from tests.support.contract import run as tfm
from tests.toy.run import model_file as translator_file
from tests.toy.run import packed
from transformer_cli.addons.masked_language_models.filling import Filler, Filling
from transformer_cli.addons.masked_language_models.predictor import MaskPredictor

CPU = torch.device("cpu")
IDS = tokenizer()
MASK_ID = len(IDS)


def filled(text: str, *, top: int = 5, pieces: int = 1, longest: int = 40) -> list[Filling]:
    predictor = MaskPredictor(masked_model(MODEL), IDS, device=CPU, batch_tokens="auto")
    filler = Filler(predictor, longest=longest, top=top, most_pieces=pieces)
    return filler.fill(filler.read(text, "the text"))


@torch.no_grad()
def probabilities(ids: list[int], place: int) -> Tensor:
    """Softmax of the model's logits at a token of a sentence without BOS and EOS, [V]."""
    logits_BSV = masked_model(MODEL)(torch.tensor([[IDS.bos_id, *ids, IDS.eos_id]]))
    return logits_BSV[0, place + 1].double().softmax(-1)


def words_by_hand(p_V: Tensor, *, begins: bool = True) -> list[tuple[str, float]]:
    """The pieces that begin a word, or that go on within one, from the likeliest."""
    found = []
    for i, piece in enumerate(IDS.pieces(range(len(IDS)))):
        is_text = i not in IDS.unknown_ids and i not in (IDS.pad_id, IDS.bos_id, IDS.eos_id) and piece != "▁"
        if is_text and piece.startswith("▁") is begins:
            found.append((piece.removeprefix("▁"), float(p_V[i])))
    return sorted(found, key=lambda one: -one[1])


def test_the_probabilities_are_the_softmax_of_the_model_over_the_pieces_that_begin_a_word() -> None:
    before, after = (IDS.encode([part])[0] for part in ("the cat", "milk and sat down"))
    p_V = probabilities([*before, MASK_ID, *after], len(before))
    found = filled("the cat [mask] milk and sat down")
    expected = words_by_hand(p_V)[:5]
    assert [one.words for one in found] == [(word,) for word, _ in expected]
    assert [one.probability for one in found] == pytest.approx([p for _, p in expected], rel=1e-4)
    assert [one.text for one in found] == [f"the cat {word} milk and sat down" for word, _ in expected]


@pytest.mark.parametrize("mask", ["[MASK]", "<mask>", "[Mask]", "<MASK>"])
def test_a_mask_may_be_written_in_several_ways(mask: str) -> None:
    assert [one.words for one in filled(f"the {mask} sat")] == [one.words for one in filled("the [mask] sat")]


def test_the_text_around_a_mask_stays_as_it_is_written() -> None:
    for one in filled("  The  CAT [mask] , \t  ok€"):
        assert one.text == f"  The  CAT {one.words[0]} , \t  ok€"


def test_what_follows_a_mask_without_a_space_is_cut_as_behind_a_word() -> None:
    whole, begun = (IDS.encode([text])[0] for text in ("cat.", "cat"))
    assert whole[: len(begun)] == begun
    predictor = MaskPredictor(masked_model(MODEL), IDS, device=CPU, batch_tokens="auto")
    read = Filler(predictor, longest=40, top=1).read("[mask].", "the text")
    assert read.ids == [[], whole[len(begun) :]]


def test_a_mask_within_a_word_is_filled_by_its_pieces() -> None:
    (before,) = IDS.encode(["the c"])
    p_V = probabilities([*before, MASK_ID], len(before))
    expected = words_by_hand(p_V, begins=False)[:3]
    assert [one.text for one in filled("the c[mask]", top=3)] == [f"the c{word}" for word, _ in expected]


def test_several_masks_are_filled_from_left_to_right_each_with_the_words_before_it() -> None:
    """A beam as wide as the vocabulary finds the best of all pairs of words."""
    (middle,) = IDS.encode(["sat"])
    first_V = probabilities([MASK_ID, *middle, MASK_ID], 0)
    best: dict[tuple[str, str], float] = {}
    for word, p in words_by_hand(first_V):
        (ids,) = [[i] for i in range(len(IDS)) if IDS.pieces([i]) == [f"▁{word}"]]
        second_V = probabilities([*ids, *middle, MASK_ID], 1 + len(middle))
        best |= {(word, other): p * q for other, q in words_by_hand(second_V)}
    expected = sorted(best.items(), key=lambda one: -one[1])[:4]
    found = filled("[mask] sat [mask]", top=len(IDS))[:4]
    assert [one.words for one in found] == [words for words, _ in expected]
    assert [one.probability for one in found] == pytest.approx([p for _, p in expected], rel=1e-3)


def test_a_word_of_two_pieces_has_the_product_of_their_probabilities_and_the_share_of_its_length() -> None:
    (before,) = IDS.encode(["the"])
    found = filled("the [mask]", top=200, pieces=2)
    assert sum(one.probability for one in found) <= 1 + 1e-6
    (long,) = [one for one in found if len(IDS.encode([one.words[0]])[0]) == 2][:1]
    first, second = IDS.encode([long.words[0]])[0]
    p = probabilities([*before, MASK_ID, MASK_ID], len(before))[first]
    q = probabilities([*before, first, MASK_ID], len(before) + 1)[second]
    assert long.probability == pytest.approx(float(p * q) / 2, rel=1e-4)
    (short,) = [one for one in found if len(IDS.encode([one.words[0]])[0]) == 1][:1]
    (piece,) = IDS.encode([short.words[0]])[0]
    whole = float(probabilities([*before, MASK_ID], len(before))[piece])
    assert short.probability == pytest.approx(whole / 2, rel=1e-4)
    assert len({one.text for one in found}) == len(found)  # no word twice, in other pieces


# ---- The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fill")
    (place / "m").write_bytes(content())
    (place / "t").write_bytes(packed(translator_file()))
    (place / "lines").write_text("the [mask] sat\na <mask> woman [mask]\n", encoding="utf-8")
    return place


def fill(folder: Path, *arguments: str, stdin: bytes = b"") -> Any:
    ran = tfm(["fill", *arguments, "--checkpoint", "m", "--device", "cpu"], folder, stdin=stdin)
    assert ran.code == 0, ran.err
    return ran


def test_each_line_of_input_gets_its_likeliest_texts_and_a_blank_line_divides_them(folder: Path) -> None:
    ran = fill(folder, "--input", "lines", "--top", "3")
    groups = [group.split("\n") for group in ran.out.decode().strip("\n").split("\n\n")]
    assert [len(group) for group in groups] == [3, 3]
    found = [line.split("\t") for line in groups[0]]
    expected = filled("the [mask] sat", top=3)
    assert [text for _, text in found] == [one.text for one in expected]
    assert [float(p) for p, _ in found] == pytest.approx([one.probability for one in expected], abs=1e-6)
    assert fill(folder, "--top", "3", stdin=(folder / "lines").read_bytes()).out == ran.out
    assert fill(folder, "the [mask] sat", "--top", "3").out == ran.out.split(b"\n\n")[0] + b"\n"


def test_json_has_the_words_of_each_line(folder: Path) -> None:
    ran = fill(folder, "--input", "lines", "--output-format", "jsonl")
    records = [json.loads(line) for line in ran.out.decode().strip().split("\n")]
    assert [record["line"] for record in records] == [1, 2]
    assert records[1]["text"] == "a [mask] woman [mask]"
    for one in records[1]["fillings"]:
        assert one["text"] == "a {} woman {}".format(*one["words"])
        assert 0 < one["probability"] < 1


def test_the_page_shows_every_text_and_runs_nothing_that_stands_in_one(folder: Path) -> None:
    fill(folder, "--html", "page.html", stdin=b"the [mask] <script>alert(1)</script> & sat\n")
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; sat" in page
    assert len(re.findall("<tr><td>", page)) == 5
    best = filled("the [mask] <script>alert(1)</script> & sat")[0]
    assert f"<mark>{best.words[0]}</mark>" in page
    assert f"{100 * best.probability:.2f} %" in page


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "says"),
    [
        (["the cat sat"], b"", 3, ["the text: has no mask", "[mask]"]),
        ([""], b"", 3, ["the text: is empty"]),
        ([], b"the [mask] sat\nthe cat\n", 3, ["standard input:2: has no mask"]),
        ([], b"\n", 3, ["standard input:1: is empty"]),
        (["the [mask]" + " sat" * 50], b"", 3, ["the text: ", "tokens, and the model reads 40. Shorten it"]),
        (["the [mask]", "--input", "lines"], b"", 2, ["--input lines"]),
        (["the [mask]", "--output", "lines"], b"", 2, ["lines: exists already"]),
        (["the [mask]", "--html", "m"], b"", 2, ["m: exists already"]),
        (["the [mask]", "--html", "x", "--output", "x"], b"", 2, ["--html"]),
        (["the [mask]", "--output-format", "moses"], b"", 2, ["output_format=moses: unknown. Choose"]),
        (["the [mask]", "--top", "0"], b"", 2, ["top"]),
        (["--input", "nowhere"], b"", 3, ["nowhere: no such file"]),
    ],
)
def test_bad_input_is_refused_in_one_line(
    folder: Path, arguments: list[str], stdin: bytes, code: int, says: list[str]
) -> None:
    ran = tfm(["fill", *arguments, "--checkpoint", "m", "--device", "cpu"], folder, stdin=stdin)
    assert ran.code == code
    message = ran.err.decode().strip()
    assert message.count("\n") == 0
    assert all(word in message for word in says), message


def test_a_model_of_another_kind_is_refused(folder: Path) -> None:
    says = ["t: this is a translator; use `tfm translate`"]
    refused(["fill", "the [mask]", "--checkpoint", "t"], folder, code=4, says=says)


def test_the_probability_of_a_filling_does_not_underflow_to_an_error() -> None:
    assert Filling(("a",), "a", -800.0).probability == 0.0
    assert math.isclose(Filling(("a",), "a", math.log(0.25)).probability, 0.25)
