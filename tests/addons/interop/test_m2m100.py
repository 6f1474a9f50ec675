"""M2M-100 says here what it says in transformers, for the pair of languages that is chosen."""

import json
from pathlib import Path

import pytest
import torch

from tests.addons.interop.toy_huggingface import change_json, write_json
from tests.addons.interop.toy_languages import m2m100
from tests.support.contract import run
from tests.toy.translator import sentences
from transformer_cli.addons.interop.foreign import ReadOptions
from transformer_cli.addons.interop.importing import import_model, read
from transformer_cli.config.model import Norm, Positions
from transformer_cli.errors import CheckpointError
from transformer_cli.models.file import read_model

DE_EN = ReadOptions(source_lang="de", target_lang="en")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "m2m"
    m2m100(folder)
    return folder


def test_the_import_gives_the_logits_that_transformers_gives(tmp_path: Path) -> None:
    theirs = m2m100(tmp_path / "m2m")
    imported = read(tmp_path / "m2m", "hf", DE_EN)
    assert imported.config.positions is Positions.sinusoidal_tensor2tensor
    assert (imported.config.first_position, imported.config.norm) == (2, Norm.pre)
    outcome = import_model(imported, tmp_path / "m.safetensors", origin=tmp_path / "m2m", n_made_up=6)
    assert outcome.comparison is not None
    assert outcome.comparison.holds
    assert outcome.comparison.encoded_identical == outcome.comparison.verdict.lines
    ours = read_model(tmp_path / "m.safetensors")
    source_BS, target_BT = torch.tensor([[80, 7, 12, 2], [80, 9, 2, 1]]), torch.tensor([[2, 81, 5], [2, 81, 30]])
    with torch.inference_mode():
        found_BTV = ours.build(torch.device("cpu"))(source_BS, target_BT)
        expected_BTV = theirs(input_ids=source_BS, attention_mask=source_BS != 1, decoder_input_ids=target_BT).logits
    torch.testing.assert_close(found_BTV, expected_BTV, rtol=1e-4, atol=1e-4)


def test_translations_are_those_of_transformers_with_the_forced_language(good: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    lines = sentences(5, seed=3)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in ["", *lines]), encoding="utf-8")
    command = ["import", "hf", str(good), "--output", "m.safetensors", "--source-lang", "de", "--target-lang", "en"]
    assert run([*command, "--lines", "text"], tmp_path).code == 0
    ours = run(["translate", "--checkpoint", "m.safetensors", "--input", "text", "--beam", "1"], tmp_path)
    found = ours.out.decode().split("\n")
    tokenizer = transformers.M2M100Tokenizer.from_pretrained(good, src_lang="de")
    model = transformers.M2M100ForConditionalGeneration.from_pretrained(good)
    expected = []
    for line in lines:
        inputs = tokenizer(line, return_tensors="pt")
        ids = model.generate(
            **inputs,
            forced_bos_token_id=tokenizer.get_lang_id("en"),
            max_new_tokens=inputs.input_ids.shape[1] + 51,
            suppress_tokens=[1, 3],
            num_beams=1,
        )
        expected.append(tokenizer.decode(ids[0], skip_special_tokens=True))
    assert found[0] == "", "a blank line has nothing but the language"
    prefixes = [text[: len(theirs)] for text, theirs in zip(found[1:], expected, strict=False)]
    assert [theirs.startswith(text) or text == theirs for text, theirs in zip(prefixes, expected, strict=True)] == [
        True
    ] * len(lines)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (ReadOptions(source_lang="de", target_lang="tlh"), "--target-lang tlh: not a language of the model"),
        (ReadOptions(source_lang="tlh"), "--source-lang tlh: not a language of the model"),
    ],
)
def test_a_language_that_is_missing_is_refused_with_those_there_are(
    options: ReadOptions, says: str, good: Path
) -> None:
    with pytest.raises(CheckpointError, match=f"{says}.*af, am, ar"):
        read(good, "hf", options)


def test_what_is_not_m2m100_is_refused(good: Path, tmp_path: Path) -> None:
    m2m100(tmp_path / "m2m")
    change_json(tmp_path / "m2m" / "tokenizer_config.json", language_codes="x")
    with pytest.raises(CheckpointError, match="language_codes=x: unknown"):
        read(tmp_path / "m2m", "hf", DE_EN)
    pieces = json.loads((good / "vocab.json").read_bytes())
    change_json(tmp_path / "m2m" / "tokenizer_config.json", language_codes=None)
    write_json(tmp_path / "m2m" / "vocab.json", pieces | {f"piece{i}": len(pieces) + i for i in range(20)})
    with pytest.raises(CheckpointError, match="pieces and 100 added tokens, but the model has"):
        read(tmp_path / "m2m", "hf", DE_EN)
