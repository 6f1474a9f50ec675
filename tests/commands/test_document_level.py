"""Document-level models on the command line: the same as a model of sentences that is given the context in its line."""

import json
import random
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
from transformer_cli.data.context import END_OF_CONTEXT, contexts_of
from transformer_cli.data.tokenizer import Tokenizers, train_tokenizer

N_CONTEXT = 2
LINES = [*sentences(4, seed=1), "", *sentences(3, seed=2)]
IN_CONTEXT = [
    "".join(f"{sentence}{END_OF_CONTEXT} " for sentence in context) + line
    for line, context in zip(LINES, contexts_of(LINES, N_CONTEXT), strict=True)
]
TARGETS = sentences(3, seed=3) + [""] * 2 + sentences(3, seed=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models with the same weights: `document` reads the lines before a line, `plain` what it is given."""
    place = tmp_path_factory.mktemp("documents")
    letters = " ".join("abcdefghij")
    one = train_tokenizer([letters] * 5, TokenizerConfig(vocab_size=26, user_symbols=[END_OF_CONTEXT]), seed=1)
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


def test_the_server_reads_a_request_as_documents(folder: Path) -> None:
    found = []
    for model, texts in (("document", ["\n".join(LINES)]), ("document", LINES), ("plain", IN_CONTEXT)):
        decode = DecodeConfig(max_length=12, split_sentences=False)
        config = ServeConfig(checkpoint=[str(folder / model)], engine="torch", device=Device.cpu, decode=decode)
        service = Service(config, ModelTable(config))
        results = service.translate(texts, "en", "fr", RequestOptions(), service.call()).results
        found.append("\n".join(result.text for result in results))
    assert found[0] == found[2]
    assert found[1] == found[2]  # of which one text is empty


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


NOUNS = {"cat": ("le", "chat"), "book": ("le", "livre"), "table": ("la", "table"), "house": ("la", "maison")}
COLOURS = {"red": "rouge", "yellow": "jaune", "wide": "large", "young": "jeune", "calm": "calme", "clean": "propre"}
VERBS = {"see": "vois", "want": "veux", "seek": "cherche"}


def documents(n: int, *, seed: int) -> list[tuple[str, str]]:
    """`i see the table .` and `it is red .`, which is `il` or `elle` by the sentence before; a blank line behind."""
    draw, pairs = random.Random(seed), []
    for _ in range(n):
        noun, verb, colour = draw.choice([*NOUNS]), draw.choice([*VERBS]), draw.choice([*COLOURS])
        article, translation = NOUNS[noun]
        pronoun = {"le": "il", "la": "elle"}[article]
        pairs += [
            (f"i {verb} the {noun} .", f"je {VERBS[verb]} {article} {translation} ."),
            (f"it is {colour} .", f"{pronoun} est {COLOURS[colour]} ."),
            ("", ""),
        ]
    return pairs


@pytest.mark.slow
def test_a_model_learns_a_pronoun_from_the_sentence_before(tmp_path: Path) -> None:
    for name, n, seed in (("train", 1500, 1), ("dev", 50, 2)):
        for side, language in enumerate(("en", "fr")):
            text = "".join(f"{pair[side]}\n" for pair in documents(n, seed=seed))
            (tmp_path / f"{name}.{language}").write_text(text, encoding="utf-8")
    sizes = ["model=tiny", "model.d_model=64", "model.d_ff=128", "model.dropout=0", "data.tokenizer.vocab_size=60"]
    found = api.train(
        [
            *(*sizes, "data=files", f"data.root={tmp_path}", f"data.cache={tmp_path}/cache", f"runs={tmp_path}/runs"),
            *("data.source_lang=en", "data.target_lang=fr", "data.train=[train.en,train.fr]", "data.test=null"),
            *("data.dev=[dev.en,dev.fr]", "data.holdout=1", "data.drop_duplicates=false", "data.context_sentences=1"),
            *("train.max_steps=130", "train.tokens_per_update=1000", "train.max_tokens_per_microbatch=1000"),
            *("train.rdrop=0", "train.length_penalties=[]", "train.average_last=1", "train.eval_every=1000"),
            *("decode=greedy", "name=run", "device=cpu"),
        ]
    )
    test = documents(100, seed=3)
    sources, references = [source for source, _ in test], [target for _, target in test]
    with api.load(found.model_path, device="cpu", search="greedy", beam_size=1, parallel=False) as translator:
        in_order = [result.text for result in translator.translate(sources)]
        alone = [result.text for result in translator.translate(sources, contexts=[()] * len(sources))]
    pronouns = [n for n, source in enumerate(sources) if source.startswith("it ")]

    def accuracy(lines: list[str]) -> float:
        return sum(lines[n].split()[:1] == references[n].split()[:1] for n in pronouns) / len(pronouns)

    assert accuracy(in_order) > 0.95
    assert accuracy(alone) < 0.7  # of two genders that are as frequent
