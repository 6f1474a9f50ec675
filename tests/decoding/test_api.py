"""The Python API gives what the commands print."""

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import transformer_cli as tfm
from tests.support.contract import run
from tests.toy.run import model_file, packed, sentences
from transformer_cli.decoding.shared_translator import SharedTranslator
from transformer_cli.errors import ConfigError, EnvironmentFault, TfmError

MODEL = ["--checkpoint", "m", "--device", "cpu"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "m").write_bytes(packed(model_file()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_importing_the_package_imports_no_torch() -> None:
    program = "import sys, transformer_cli as tfm; assert 'load' in dir(tfm); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'lode'"):
        tfm.lode  # noqa: B018


def test_a_loaded_model_translates_as_the_command_does(folder: Path) -> None:
    lines = sentences(4, seed=3)
    printed = run(["translate", *MODEL, "--beam", "3"], folder, stdin="".join(f"{line}\n" for line in lines).encode())
    results = tfm.load("m", device="cpu", beam_size=3).translate(lines)
    assert [result.text for result in results] == printed.out.decode().split("\n")[:-1]


def test_threads_and_coroutines_get_what_a_call_of_their_own_would_get(folder: Path) -> None:
    lines = sentences(24, seed=5)

    async def ask(translator: SharedTranslator) -> list[str]:
        results = await asyncio.gather(*(translator.translate_async([line]) for line in lines))
        return [result.text for (result,) in results]

    with tfm.load("m", device="cpu", beam_size=2) as translator:
        alone = [result.text for result in translator.translate(lines)]
        assert asyncio.run(ask(translator)) == alone
        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(lambda line: translator.translate([line])[0].text, lines)) == alone


def test_a_cancelled_coroutine_leaves_the_translator_usable(folder: Path) -> None:
    async def ask(translator: SharedTranslator) -> str:
        task = asyncio.create_task(translator.translate_async(sentences(400, seed=6)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ((result,),) = await asyncio.gather(translator.translate_async(["a b c"]))
        return result.text

    with tfm.load("m", device="cpu", parallel=False) as translator:
        assert asyncio.run(ask(translator)) == translator.translate(["a b c"])[0].text


def test_a_text_that_is_no_list_is_refused_and_anything_that_gives_texts_is_taken(folder: Path) -> None:
    with tfm.load("m", device="cpu", beam_size=2) as translator:
        with pytest.raises(TypeError, match="is one text"):
            translator.translate("a b c")
        with pytest.raises(TypeError, match="is one text"):
            asyncio.run(translator.translate_async("a b c"))
        expected = translator.translate(["a b", "c"])
        assert translator.translate(text for text in ("a b", "c")) == expected
        assert asyncio.run(translator.translate_async(text for text in ("a b", "c"))) == expected


@pytest.mark.parametrize("wrong", [None, b"a", 3, float("nan")])
def test_what_is_no_text_in_a_list_is_named_with_its_place(folder: Path, wrong: Any) -> None:
    translator = tfm.load("m", device="cpu")
    with pytest.raises(TypeError, match=r"^lines: .*, number 1 from 0, is no text\. Give a str for each"):
        translator.translate(["a", wrong])
    with pytest.raises(TypeError, match=r"^hypotheses: .*, number 1 from 0, is no text"):
        tfm.bleu(["a", wrong], [["a", "b"]])
    if wrong is None:
        with pytest.raises(TypeError, match=r"^lines: None is no list of texts"):
            translator.translate(wrong)


def test_a_forked_process_is_told_to_open_the_model_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ctranslate2")
    with tfm.load("m", device="cpu", engine="ctranslate2") as translator:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(EnvironmentFault, match="Open the model in this one"):
            translator.translate(["a b c"])


def test_scores_are_those_that_the_command_prints(folder: Path) -> None:
    pairs = list(zip(sentences(4, seed=3), sentences(4, seed=4), strict=True))
    printed = run(["score", *MODEL], folder, stdin="".join(f"{s}\t{t}\n" for s, t in pairs).encode())
    scored = tfm.score(pairs, "m", device="cpu")
    assert [f"{one.log_prob:.4f}" for one in scored] == printed.out.decode().split()
    assert all(len(one.pieces) == len(one.log_probs) for one in scored)


def test_bleu_refuses_a_text_in_the_place_of_a_list() -> None:
    for hypotheses, references, name in (("ab", [["a", "b"]], "hypotheses"), (["a", "b"], ["ab"], "reference 1")):
        with pytest.raises(TypeError, match=f"{name}: 'ab' is one text"):
            tfm.bleu(hypotheses, references)
    with pytest.raises(TypeError, match="references: 'ab' is one text"):
        tfm.bleu(["a"], "ab")


def test_bleu_has_its_signature_and_the_tokenizer_of_the_language() -> None:
    score = tfm.bleu(["我 喜欢 你们"], [["我 喜欢 你们"]], language="zh")
    assert "tok:zh" in score.signature
    assert score.value == pytest.approx(100)


def test_a_training_is_that_of_the_command_and_resumes(folder: Path) -> None:
    for name in ("text.en", "text.fr"):
        Path(name).write_text("".join(f"{line}\n" for line in sentences(60, seed=1)), encoding="utf-8")
    data = ["data=files", "data.train=[text.en,text.fr]", "data.source_lang=en", "data.target_lang=fr"]
    settings = [*data, "data.tokenizer.vocab_size=25", "model=tiny", "train.max_steps=2", "device=cpu"]
    result = tfm.train([*settings, "name=api"])
    assert (result.step, result.is_new) == (2, True)
    assert tfm.train([*settings, "name=api"]).is_new is False
    assert run(["train", *settings, "name=command"], folder).code == 0
    assert result.model_path.read_bytes() == Path("runs/command/model.safetensors").read_bytes()


def test_faults_are_those_of_the_commands() -> None:
    with pytest.raises(ConfigError, match=r"beam_sise"):
        tfm.load("m", beam_sise=3)
    for wrong in ("", ["m", ""]):
        with pytest.raises(ConfigError, match=r"^path: an empty name\. Name a file or folder"):
            tfm.load(wrong)
    with pytest.raises(ConfigError, match=r"^path: an empty name"):
        tfm.load_classifier("")
    with pytest.raises(ConfigError, match=r"^device=gpu: unknown.* Choose auto, cpu, cuda, mps"):
        tfm.load("m", device="gpu")
    with pytest.raises(TypeError, match=r"^overrides: 'seed=1' is one text\. Give a list"):
        tfm.train("seed=1")
    with pytest.raises(TfmError, match="nowhere"):
        tfm.score([("a", "b")], "nowhere", device="cpu")
