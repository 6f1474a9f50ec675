"""`tfm answer`, and `tfm train` and `tfm evaluate` of a question answering model: answers, windows, a resumed run."""

import contextlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.addons.classification.toy_classifier import SIZES as CLASSIFIER
from tests.addons.classification.toy_classifier import random_model as random_classifier
from tests.addons.question_answering.toy_questions import (
    OVERRIDES,
    one,
    random_model,
    squad,
    toy_tokenizer,
    write_files,
    written,
)
from tests.conftest import Run
from tests.support.contract import is_text
from tests.toy import run as toy_run
from transformer_cli.addons.embedding.pooling import source_layout
from transformer_cli.addons.question_answering.answerer import reading_of
from transformer_cli.addons.question_answering.extractor import IMPOSSIBLE, MatchEmbedding, SpanExtractor, in_question
from transformer_cli.addons.question_answering.keys import AnswerConfig
from transformer_cli.addons.question_answering.questions import ENDS, ENDS_OR_NONE, Question
from transformer_cli.addons.question_answering.run_answer import QuestionFilter
from transformer_cli.addons.question_answering.tokens import PassageEncoder, joined_ids
from transformer_cli.config.compose import load_config
from transformer_cli.config.filter import ResponseFormat
from transformer_cli.data.feed import Feed
from transformer_cli.data.prepare import prepare
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.models.file import read_model
from transformer_cli.models.kernel_choice import PackedKernel
from transformer_cli.models.layouts import PackedLayout
from transformer_cli.training.divergence_dump import read_divergence_dump, write_divergence_dump
from transformer_cli.training.dry_run import batch_of, worst_shapes
from transformer_cli.training.forward import predict_batch
from transformer_cli.training.trainer import Trainer
from transformer_cli.training.validation import make_validator

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with SQuAD files, and what `tfm train` made of them."""
    folder = tmp_path_factory.mktemp("trained")
    toy_run.train_command(folder, *OVERRIDES, *write_files(folder), max_steps=40, every=20)
    return folder


def config_for(folder: Path, *overrides: str) -> list[str]:
    return [*OVERRIDES, *write_files(folder), f"data.cache={folder / 'cache'}", *overrides]


def corpus_of(folder: Path, paragraphs: list[dict[str, Any]], *overrides: str) -> list[str]:
    """Overrides that train on these, and evaluate on the same."""
    file = folder / "own.json"
    file.write_text(squad(paragraphs), encoding="utf-8")
    return [*OVERRIDES, f"data.train={file}", f"data.dev={file}", f"data.cache={folder / 'cache'}", *overrides]


# ---- Training and evaluating


def test_training_reports_exact_match_and_f1(trained: Path) -> None:
    result = json.loads((trained / "runs/a/result.json").read_bytes())
    assert {"dev_exact_match", "dev_f1", "dev_nll"} <= set(result["best"])
    printed = (trained / "printed").read_text().split("\n")
    assert printed[0] == f"questions.test, 30 lines, {trained / 'runs/a/model.safetensors'}"
    assert printed[1].startswith("exact match")
    assert printed[2].startswith("F1 ")
    assert read_model(trained / "runs/a/model.safetensors").tokenizers.labels == ENDS


def test_evaluate_says_what_training_said_and_what_answer_answers(trained: Path, tfm: Run) -> None:
    model = ["--checkpoint", str(trained / "runs/a")]
    _, out, _ = tfm("evaluate", *model)
    assert out.split("\n")[1:] == (trained / "printed").read_text().split("\n")[1:]
    test = str(trained / "test.json")
    status, out, _ = tfm("evaluate", *model, "--json", "--source", test, "--save", "saved")
    assert status == 0
    found = json.loads(out)
    paragraphs = json.loads(Path(test).read_text())["data"][0]["paragraphs"]
    lines = "".join(f"{p['qas'][0]['question']}\t{p['context']}\n" for p in paragraphs)
    _, answers, _ = tfm("answer", *model, stdin=lines.encode())
    assert answers == Path("saved").read_text()
    n_right = sum(
        p["qas"][0]["answers"][0]["text"] == answer
        for p, answer in zip(paragraphs, answers.split("\n")[:-1], strict=True)
    )
    assert found["exact_match"]["score"] == pytest.approx(100 * n_right / len(paragraphs))
    assert found["questions"] == len(paragraphs)
    status, out, _ = tfm("evaluate", "--hypotheses", "saved", "--json", OVERRIDES[0], f"data.test={test}")
    assert (status, json.loads(out)["f1"]) == (0, found["f1"])


def test_the_nll_is_the_mean_of_both_ends(tmp_path: Path) -> None:
    config = load_config("train", config_for(tmp_path))
    corpus = prepare(config.data)
    model = Trainer(config, corpus.tokenizers, CPU).model.eval()
    encoder = PassageEncoder(corpus.tokenizers.source)
    losses = []
    for pair in corpus.dev.each():
        question = Question.of(*pair)
        [asked], [tokens] = encoder.questions([question.question]), encoder.passages([question.passage])
        [answer] = question.placed
        span = tokens.span(answer.start, answer.start + len(answer.text))
        assert span is not None
        ids = joined_ids(corpus.tokenizers.source, asked, tokens.ids)
        log_p_S2 = model(torch.tensor([ids]))[0].detach().log_softmax(dim=0)
        start, end = (position + len(asked) + 2 for position in span)
        losses.append(-float(log_p_S2[start, 0] + log_p_S2[end, 1]) / 2)
    nll = make_validator(config, corpus, CPU).nll(model, contextlib.nullcontext)
    assert nll == pytest.approx(sum(losses) / len(losses), rel=1e-4)


def test_no_token_of_the_question_or_of_padding_can_be_an_end() -> None:
    model = random_model().build_as(SpanExtractor, CPU)
    tokenizer = toy_tokenizer()
    [asked], [tokens] = PassageEncoder(tokenizer).questions(["a b"]), PassageEncoder(tokenizer).passages(["c d e"])
    ids = joined_ids(tokenizer, asked, tokens.ids)
    logits_S2 = model(torch.tensor([[*ids, *[tokenizer.pad_id] * 3]]))[0]
    possible = [0, *range(len(asked) + 2, len(asked) + 2 + len(tokens.ids))]
    assert [n for n, one in enumerate(logits_S2.tolist()) if one != [IMPOSSIBLE, IMPOSSIBLE]] == possible


def test_tokens_of_the_passage_that_the_question_has_are_marked() -> None:
    # Two pairs: BOS, question, EOS, passage, EOS; the second pair does not look into the first one.
    source_BS = torch.tensor([[2, 7, 8, 3, 8, 9, 7, 3], [2, 5, 3, 7, 5, 3, 0, 0]])
    wanted_BS = torch.tensor([[0, 0, 0, 0, 1, 0, 1, 0], [0, 0, 0, 0, 1, 0, 0, 0]]).bool()
    marks = MatchEmbedding(4, eos_id=3)
    padded = source_layout(source_BS, 0)
    segment_BS = marks.segments(source_BS, padded)
    assert torch.equal(in_question(source_BS, padded, segment_BS) & (source_BS != 3), wanted_BS)
    packed = PackedLayout.of_groups([(1, 8), (1, 6)], CPU)
    source_S, wanted_S = torch.cat([source_BS[0], source_BS[1, :6]]), torch.cat([wanted_BS[0], wanted_BS[1, :6]])
    found_S = in_question(source_S, packed, marks.segments(source_S, packed))
    assert torch.equal(found_S & (source_S != 3), wanted_S)
    added_SD = marks.embed(source_S, packed, marks.segments(source_S, packed))
    torch.testing.assert_close(
        added_SD - marks(marks.segments(source_S, packed)), wanted_S[:, None] * marks.weight_of_match
    )


@pytest.mark.parametrize("kernel", [PackedKernel.varlen, PackedKernel.buckets])
def test_batches_without_lengths_on_the_host_have_the_same_logits(tmp_path: Path, kernel: PackedKernel) -> None:
    config = load_config("train", config_for(tmp_path))
    corpus = prepare(config.data)
    model = Trainer(config, corpus.tokenizers, CPU).model.eval()
    [batch, *_] = Feed(config, corpus).batches(1)
    logits_TL, targets_T = predict_batch(model, batch, CPU)
    others_TL, padded_T = predict_batch(model, batch, CPU, kernel)
    real = padded_T >= 0
    assert torch.equal(padded_T[real], targets_T)
    n = logits_TL.size(1)
    torch.testing.assert_close(others_TL[real][:, :n], logits_TL, atol=1e-4, rtol=1e-4)
    assert bool((others_TL[real][:, n:] == IMPOSSIBLE).all())


def test_training_reads_long_passages_in_windows(tmp_path: Path) -> None:
    passage = " ".join("abcdefghij" * 3)
    where = 2 * 25  # the letter f of the third time
    config = load_config(
        "train",
        corpus_of(tmp_path, [one(passage, (where, "f"), question="h")], "data.max_length=16", "data.options.stride=4"),
    )
    corpus = prepare(config.data)
    tokenizer, found = corpus.tokenizers.source, []
    for n in range(len(corpus.train)):
        pair = corpus.train.pick(torch.tensor([n]).numpy())
        ids, (start, end) = pair.source_ids.tolist(), pair.target_ids.tolist()
        assert len(ids) <= 16
        found.append(tokenizer.decode(ids[start : end + 1]) if start else None)
    assert len(found) > 3
    assert {one for one in found if one is not None} == {"f"}
    assert None in found  # a window without the answer is trained on as one without any
    assert corpus.tokenizers.labels == ENDS  # but the model always answers


def test_a_model_of_questions_without_answers_may_find_none(tmp_path: Path, tfm: Run) -> None:
    paragraphs = [one("a b c", (2, "b")), one("c d e", question="h", is_impossible=True)] * 3
    names = corpus_of(tmp_path, paragraphs, "train.max_steps=2", "train.eval_every=2", "train.save_every=2", "name=a")
    status, _, err = tfm("train", *names, f"data.test={tmp_path / 'own.json'}")
    assert status == 0, err
    assert read_model(tmp_path / "runs/a/model.safetensors").tokenizers.labels == ENDS_OR_NONE
    arguments = ["answer", "--checkpoint", "runs/a", "--output-format", "jsonl"]
    _, out, _ = tfm(*arguments, "none_threshold=-1000", stdin=b"h\tc d e\n")
    found = json.loads(out)
    assert found["answer"] is None
    assert {"none_score", "none_probability"} <= set(found)
    _, out, _ = tfm(*arguments, "none_threshold=1000", stdin=b"h\tc d e\n")
    assert json.loads(out)["answer"] in "c d e"


def test_answers_of_dev_that_are_not_there_have_no_nll(tmp_path: Path) -> None:
    paragraphs = [one("a b c", (2, "b")), one("a b c d", (1, "b"))]
    config = load_config("train", corpus_of(tmp_path, paragraphs))
    corpus = prepare(config.data)
    model = Trainer(config, corpus.tokenizers, CPU).model
    scores = make_validator(config, corpus, CPU).score(model, contextlib.nullcontext)
    assert len(corpus.dev) == 2
    (tmp_path / "own.json").write_text(squad(paragraphs[:1]))
    alone = make_validator(config, prepare(config.data), CPU).nll(model, contextlib.nullcontext)
    assert scores.nll == pytest.approx(alone)
    (tmp_path / "wrong.json").write_text(squad(paragraphs[1:]))
    config.data.dev = str(tmp_path / "wrong.json")
    with pytest.raises(DataError, match=r"data\.dev: no answer stands at its answer_start\. Correct"):
        make_validator(config, prepare(config.data), CPU)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.subword_dropout=0.1", r"data\.subword_dropout=0\.1: moves the tokens of answers"),
        ("train.label_smoothing=0.1", r"train\.label_smoothing=0\.1: .* Set train\.label_smoothing=0"),
        ("data.max_length=6", r"data\.max_length=6: too short"),
    ],
)
def test_settings_that_spans_do_not_have_are_refused(tmp_path: Path, override: str, message: str) -> None:
    config = load_config("train", config_for(tmp_path, override))
    with pytest.raises(ConfigError, match=message):
        make_validator(config, prepare(config.data), CPU)


# ---- The same promises as other models


def test_a_resumed_run_is_the_run_that_was_never_stopped(tmp_path: Path) -> None:
    steps = ["train.max_steps=9", "train.save_every=3", "train.eval_every=6", "train.samples=0", "train.log_every=1"]
    config = load_config("train", config_for(tmp_path, *steps, "model.dropout=0.1", "train.ema=0.9"))
    toy_run.assert_resumes(tmp_path, config, stopped_before=5, corpus=prepare(config.data))


def test_how_an_update_is_split_does_not_change_the_gradient(tmp_path: Path) -> None:
    corpus = prepare(load_config("train", config_for(tmp_path)).data)

    def gradients(max_tokens: int) -> list[torch.Tensor]:
        own = load_config("train", config_for(tmp_path))
        own.train.max_tokens_per_microbatch = max_tokens
        trainer, batches = Trainer(own, corpus.tokenizers, CPU), Feed(own, corpus).batches(1)
        n_ends = sum(batch.n_target_tokens for batch in batches)
        for batch in batches:
            trainer.forward_backward(batch, seed=1, n_tokens=n_ends)
        return [p.grad for p in trainer.model.parameters() if p.grad is not None]

    for one_, other in zip(gradients(60), gradients(4000), strict=True):
        torch.testing.assert_close(one_, other, atol=1e-6, rtol=1e-4)


def test_an_update_that_was_kept_is_replayed_to_the_last_bit(tmp_path: Path) -> None:
    config = load_config("train", config_for(tmp_path))
    corpus = prepare(config.data)
    trainer = Trainer(config, corpus.tokenizers, CPU)
    model = replace(
        random_model(), config=config.model, tokenizers=corpus.tokenizers, weights=trainer.weights(), data={}
    )
    folder = write_divergence_dump(
        tmp_path, trainer, model, config, corpus.tokenizers, step=1, pairs=Feed(config, corpus).pairs(1)
    )
    dump = read_divergence_dump(folder)
    findings = dump.replay(CPU)
    assert [finding.state() for finding in findings] == dump.recorded
    shown = {answer for finding in findings for _, answer in finding.pairs}
    assert shown <= set("abcdefghij")


def test_the_largest_batch_can_be_tried_before_training(tmp_path: Path) -> None:
    config = load_config("train", config_for(tmp_path))
    corpus = prepare(config.data)
    model = Trainer(config, corpus.tokenizers, CPU).model
    for shape in worst_shapes(24, 300):
        logits_TL, targets_T = predict_batch(model, batch_of(shape, corpus.train, corpus.tokenizers), CPU)
        assert len(targets_T) == 2 * shape.rows
        assert int(targets_T.max()) < logits_TL.size(1)


@pytest.mark.slow
def test_training_learns_which_answer_is_asked_for(tmp_path: Path, tfm: Run) -> None:
    names = [*write_files(tmp_path, n_train=2000), "data.cache=cache", "train.max_steps=600", "train.eval_every=200"]
    status, _, err = tfm("train", *OVERRIDES, *names, "train.save_every=200", "model.n_encoder_layers=2", "name=a")
    assert status == 0, err
    assert json.loads((tmp_path / "runs/a/result.json").read_bytes())["best"]["dev_f1"] >= 90


@pytest.mark.slow
def test_an_encoder_is_taken_over(tfm: Run, tmp_path: Path) -> None:
    written(tmp_path, random_classifier(CLASSIFIER), "classifier.safetensors")
    names = [*OVERRIDES[:1], *write_files(tmp_path), "data.cache=cache", *OVERRIDES[3:], "data.max_length=24"]
    steps = ["train.max_steps=4", "train.eval_every=4", "train.save_every=4", "schedule=constant", "schedule.lr=0.01"]
    status, _, err = tfm("train", *names, *steps, "init.from=classifier.safetensors", "init.freeze=[encoder]", "name=b")
    assert status == 0, err
    before, after = read_model(tmp_path / "classifier.safetensors"), read_model(tmp_path / "runs/b/model.safetensors")
    frozen = [name for name in before.weights if name.startswith("encoder.")]
    assert frozen
    assert all(torch.equal(before.weights[name], after.weights[name]) for name in frozen)
    assert after.config.name == "span_extractor"


def test_a_run_can_begin_with_all_of_another_such_model(trained: Path, tfm: Run, tmp_path: Path) -> None:
    first = trained / "runs/a/model.safetensors"
    names = [f"data.{name}={trained / name}.json" for name in ("train", "dev", "test")]
    steps = ["train.max_steps=1", "train.eval_every=1", "train.save_every=1", "schedule.lr=1e-9", f"init.from={first}"]
    status, _, err = tfm("train", *OVERRIDES, *names, *steps, "data.cache=cache", "name=b")
    assert status == 0, err
    before, after = read_model(first), read_model(tmp_path / "runs/b/model.safetensors")
    assert set(before.weights) == set(after.weights)
    for name, weight in before.weights.items():
        torch.testing.assert_close(after.weights[name], weight, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "segments"])
def test_a_pooling_without_effect_is_refused(tmp_path: Path, tfm: Run, pooling: str) -> None:
    status, _, err = tfm("train", *config_for(tmp_path), f"model.pooling={pooling}", "name=a")
    assert status == 2
    assert f"model.pooling={pooling}: the ends of an answer are predicted from the states of all tokens" in err


# ---- Answers


@pytest.fixture
def model(tmp_path: Path) -> list[str]:
    return ["answer", "--checkpoint", str(written(tmp_path, random_model()))]


def test_the_place_of_an_answer_is_that_in_the_passage_file(model: list[str], tmp_path: Path, tfm: Run) -> None:
    text = "a 😀 b\r\n\tc cafe\u0301 d\n"
    (tmp_path / "passage.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
    status, out, _ = tfm(
        *model, "--passage", "passage.txt", "--question", "h", "--output-format", "jsonl", "--n-best", "5"
    )
    assert status == 0
    found = json.loads(out)
    assert (found["line"], found["question"], len(found["answers"])) == (1, "h", 5)
    for answer in [found, *found["answers"]]:
        assert text[answer["start"] : answer["end"]] == answer["answer"]
        assert answer["answer"].strip()
    scores = [answer["score"] for answer in found["answers"]]
    assert scores == sorted(scores, reverse=True)
    assert found["answer"] == found["answers"][0]["answer"]
    _, out, _ = tfm(*model, "--passage", "passage.txt", stdin=b"h\n\nh\n")
    lines = out.split("\n")
    assert (lines[0], lines[1], len(lines)) == (lines[2], "", 4)


def test_json_lines_are_read_with_their_line_ends(model: list[str], tfm: Run) -> None:
    asked = {"question": "h\nb", "passage": "a\nb\tc d"}
    _, out, _ = tfm(*model, "--format", "jsonl", "--output-format", "jsonl", stdin=json.dumps(asked).encode() + b"\n\n")
    first, second = map(json.loads, out.split("\n")[:-1])
    assert first["question"] == "h\nb"
    assert asked["passage"][first["start"] : first["end"]] == first["answer"]
    assert second == {"line": 2, "question": None, "answer": None}


def test_probabilities_follow_the_answer(model: list[str], tfm: Run) -> None:
    _, out, _ = tfm(*model, "--probabilities", stdin=b"h\ta b c\n\n")
    answer, probability = out.split("\n")[0].split("\t")
    assert answer in "a b c"
    assert 0 < float(probability) <= 1
    assert out.split("\n")[1] == ""


def test_a_long_passage_is_read_in_windows_and_said(model: list[str], tfm: Run) -> None:
    line = b"h\t" + b" ".join(b"abcdefghij" for _ in range(10)) + b"\n"
    status, out, err = tfm(*model, stdin=line)
    assert status == 0
    assert out.strip()
    assert "passages with more than the model's 12 tokens: 1, read in windows that overlap" in err
    _, out, err = tfm(*model, "max_answer=1", stdin=b"h b c d e f g h i j a b c d\ta b\n")
    assert out.strip() in ("a", "b")
    assert "questions that are longer than half of a window, and are cut: 1" in err


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        ([], b"a b\n", "standard input:1: no tab in it. Write question<TAB>passage, or name"),
        ([], b"h\ta\nh\t \n", "standard input:2: nothing after the tab. Write question<TAB>passage"),
        ([], b"\ta\n", "standard input:1: nothing before the tab."),
        (["--format", "jsonl"], b"{\n", 'standard input:1: not JSON: \'{\'. Write {"question": "\u2026"'),
        (["--format", "jsonl"], b'{"question": "a"}\n', "standard input:1: no text `passage`. Write"),
        (["--format", "jsonl"], b'{"question": "a", "passage": "\\ud800"}\n', "no text `passage`. Write"),
        (["--question", "h"], b"", "--question: needs its passage. Name a text file with --passage"),
        (["--passage", "no.txt"], b"h\n", "no.txt: no such file. Check --passage"),
        (["--passage", "blank.txt"], b"h\n", "blank.txt: is blank. Name a file"),
        (["--passage", "latin.txt"], b"h\n", "latin.txt: byte 0xe9 at 3 is not UTF-8. Convert the file"),
        (["--n-best", "2"], b"h\ta\n", "n_best=2: a line of text has one answer. Add --output-format jsonl"),
        (["--output", "latin.txt"], b"h\ta\n", "latin.txt: exists already. Add --overwrite"),
        (
            ["--output-format", "moses"],
            b"h\ta\n",
            "output_format=moses: unknown. Choose text, jsonl",
        ),
    ],
)
def test_what_cannot_be_answered_is_refused_in_one_line(
    model: list[str], tmp_path: Path, tfm: Run, arguments: list[str], stdin: bytes, message: str
) -> None:
    (tmp_path / "blank.txt").write_text(" \n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    status, _, err = tfm(*model, *arguments, stdin=stdin)
    assert status in (2, 3)
    assert message in err
    assert "Traceback" not in err


def test_other_models_and_other_commands_name_the_right_one(tmp_path: Path, tfm: Run) -> None:
    written(tmp_path, random_model())
    written(tmp_path, random_classifier(CLASSIFIER), "classifier.safetensors")
    status, _, err = tfm("answer", "--checkpoint", "classifier.safetensors", stdin=b"h\ta\n")
    assert (status, "this is a classifier; use `tfm classify`" in err) == (4, True)
    for command in ("translate", "classify", "tag", "generate"):
        status, _, err = tfm(command, "--checkpoint", "model.safetensors", stdin=b"a\n")
        assert (status, "this is a question answering model; use `tfm answer`" in err) == (4, True), command


def answered(data: bytes, config: AnswerConfig) -> bytes:
    """What `tfm answer` writes for `data`, with a random model and one passage."""
    reading = reading_of(random_model(), device=CPU, batch_tokens=100)
    source, sink = io.BufferedReader(io.BytesIO(data)), io.BytesIO()  # type: ignore[arg-type]
    QuestionFilter(reading, sink, config, "a b 😀 c").process_stream(source)
    return sink.getvalue()


@settings(max_examples=15, deadline=None, database=None)
@given(st.binary(max_size=60).filter(is_text))
def test_each_line_has_one_answer_for_any_bytes(data: bytes) -> None:
    given_lines = data.split(b"\n")
    if not given_lines[-1]:
        given_lines.pop()
    out = answered(data, AnswerConfig()).decode().split("\n")[:-1]
    records = answered(data, AnswerConfig(output_format=ResponseFormat.jsonl)).decode().split("\n")[:-1]
    assert len(out) == len(records) == len(given_lines)
    for line, record in zip(out, map(json.loads, records), strict=True):
        assert line == (record["answer"] or "")
