"""Document-level models on the command line: the same as a model of sentences that is given the context in its line."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.contract import refused, run
from tests.support.forked import Ran
from tests.toy.models import random_file
from tests.toy.run import MODEL, packed, sentences
from transformer_cli import api
from transformer_cli.addons.serving.keys import ServeConfig
from transformer_cli.addons.serving.models import ModelTable
from transformer_cli.addons.serving.service import RequestOptions, Service
from transformer_cli.config.data import TokenizerConfig
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.train import Device
from transformer_cli.data.context import BREAK, contexts_of
from transformer_cli.data.tokenizer import Tokenizers, train_tokenizer

N_CONTEXT = 2
LINES = [*sentences(4, seed=1), "", *sentences(3, seed=2)]
IN_CONTEXT = [
    "".join(f"{sentence}{BREAK} " for sentence in context) + line
    for line, context in zip(LINES, contexts_of(LINES, N_CONTEXT), strict=True)
]
TARGETS = sentences(3, seed=3) + [""] * 2 + sentences(3, seed=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models with the same weights: `document` reads the lines before a line, `plain` what it is given."""
    place = tmp_path_factory.mktemp("documents")
    letters = " ".join("abcdefghij")
    one = train_tokenizer([letters] * 5, TokenizerConfig(vocab_size=26, user_symbols=[BREAK]), seed=1)
    for name, n_context in (("document", N_CONTEXT), ("plain", 0)):
        data = {"name": "copy", "context_sentences": n_context}
        meta: dict[str, Any] = {"step": 7, "data": data, "scores": {"dev_nll": 1.5}}
        (place / name).write_bytes(packed(random_file(MODEL, Tokenizers(one, one), seed=1, **meta)))
    for name, lines in (("en", LINES), ("en.context", IN_CONTEXT), ("fr", TARGETS)):
        (place / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return place


def told(folder: Path, command: str, model: str, *arguments: str, stdin: bytes = b"") -> Ran:
    ran = run([command, "--checkpoint", model, "--device", "cpu", *arguments], folder, stdin=stdin)
    assert ran.code == 0, ran.err
    return ran


PLAIN_SEARCH = ("--engine", "torch", "decode.max_length=12", "decode.split_sentences=false")


def test_translate_reads_its_input_as_documents_and_keeps_blank_lines(folder: Path) -> None:
    ours = told(folder, "translate", "document", "--input", "en", *PLAIN_SEARCH)
    theirs = told(folder, "translate", "plain", "--input", "en.context", *PLAIN_SEARCH)
    assert ours.out == theirs.out
    assert ours.out.split(b"\n")[4] == b""
    assert ours.out != told(folder, "translate", "plain", "--input", "en", *PLAIN_SEARCH).out


def test_translate_says_where_all_was_one_document(folder: Path) -> None:
    ran = told(folder, "translate", "document", *PLAIN_SEARCH, stdin=b"a b\nc d\n")
    assert b"all 2 lines were read as one document, each with up to 2 before it; a blank line begins" in ran.err
    assert b"document" not in told(folder, "translate", "document", *PLAIN_SEARCH, stdin=b"a b\n\nc d\n").err


def test_score_reads_its_pairs_as_documents(folder: Path) -> None:
    arguments = ("--translation", "fr", "decode.max_source_length=100")
    ours = told(folder, "score", "document", "--source", "en", *arguments).out
    theirs = told(folder, "score", "plain", "--source", "en.context", *arguments).out
    assert [float(line) for line in ours.split()] == pytest.approx([float(line) for line in theirs.split()], abs=2e-4)
    assert ours != told(folder, "score", "plain", "--source", "en", *arguments).out
    piped = "".join(f"{source}\t{target}\n" for source, target in zip(LINES, TARGETS, strict=True)).encode()
    assert told(folder, "score", "document", "decode.max_source_length=100", stdin=piped).out == ours


def test_the_api_reads_a_call_as_documents(folder: Path) -> None:
    settings: dict[str, Any] = {"device": "cpu", "max_length": 12, "split_sentences": False, "parallel": False}
    with api.load(folder / "document", **settings) as ours, api.load(folder / "plain", **settings) as theirs:
        found = [result.text for result in ours.translate(LINES)]
        assert found == [result.text for result in theirs.translate(IN_CONTEXT)]
    pairs = [list(zip(lines, TARGETS, strict=True)) for lines in (LINES, IN_CONTEXT)]
    score: dict[str, Any] = {"device": "cpu", "max_source_length": 100}
    scores = api.score(pairs[0], folder / "document", **score), api.score(pairs[1], folder / "plain", **score)
    assert [one.log_prob for one in scores[0]] == pytest.approx([one.log_prob for one in scores[1]], abs=1e-4)


def test_the_server_reads_a_request_as_a_document(folder: Path) -> None:
    found = []
    for model, texts in (("document", ["\n".join(LINES[:2])]), ("plain", IN_CONTEXT[:2])):
        decode = DecodeConfig(max_length=12, split_sentences=False)
        config = ServeConfig(checkpoint=[str(folder / model)], engine="torch", device=Device.cpu, decode=decode)
        service = Service(config, ModelTable(config))
        results = service.translate(texts, "en", "fr", RequestOptions(), service.call()).results
        found.append("\n".join(result.text for result in results))
    assert found[0] == found[1]


def test_a_document_with_mark_up_is_read_in_order(folder: Path) -> None:
    paragraphs = [line for line in LINES if line][:3]
    (folder / "page.html").write_text("".join(f"<p>{line}</p>" for line in paragraphs), encoding="utf-8")
    ran = told(folder, "translate", "document", "--input", "page.html", "--format", "html", *PLAIN_SEARCH)
    lines = "".join(f"{line}\n" for line in paragraphs).encode()
    expected = told(folder, "translate", "document", *PLAIN_SEARCH, stdin=lines).out.split(b"\n")[:-1]
    assert re.findall(rb"<p>(.*?)</p>", ran.out) == expected


def test_explain_shows_the_reference_in_its_context(folder: Path) -> None:
    (folder / "two").write_text(f"{LINES[0]}\n{LINES[1]}\n", encoding="utf-8")
    (folder / "two.context").write_text(f"{IN_CONTEXT[0]}\n{IN_CONTEXT[1]}\n", encoding="utf-8")
    (folder / "reference").write_text("a b\nc d\n", encoding="utf-8")
    found = []
    for model, file in (("document", "two"), ("plain", "two.context")):
        arguments = ("--explain", "--reference", "reference", "--output-format", "jsonl")
        ran = told(folder, "translate", model, "--input", file, *arguments, *PLAIN_SEARCH)
        records = [json.loads(line)["explanation"]["reference"] for line in ran.out.split(b"\n")[:-1]]
        found.append([record["log_prob"] for record in records])
    assert found[0] == pytest.approx(found[1], abs=1e-4)


def test_inspect_names_the_context(folder: Path) -> None:
    ran = run(["inspect", "document"], folder)
    assert b"document level" in ran.out
    assert b"reads 2 before each source line" in ran.out


def test_an_ensemble_of_other_contexts_is_refused(folder: Path) -> None:
    arguments = ["--checkpoint", "document", "--checkpoint", "plain", "--device", "cpu", "--engine", "torch"]
    refused(["translate", *arguments], folder, code=2, says=["data.context_sentences=[2, 0]"], stdin=b"a\n")


def test_augment_refuses_a_document_level_model(folder: Path) -> None:
    command = ["augment", "back-translate", "--checkpoint", "document", "--input", "fr", "--output", "bt"]
    says = ["trained with data.context_sentences=2, and here each line stands alone"]
    refused([*command, "--device", "cpu"], folder, code=2, says=says)
