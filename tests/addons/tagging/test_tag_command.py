"""`tfm tag`, `tfm train` and `tfm evaluate` of a tagger: lines, columns, what is refused, and a resumed run."""

import contextlib
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.addons.classification.toy_classifier import SIZES as CLASSIFIER
from tests.addons.classification.toy_classifier import random_model as random_classifier
from tests.addons.tagging.toy_tagger import LABELS, OVERRIDES, conll, random_model, write_files, written
from tests.conftest import Run
from tests.support.contract import is_text
from tests.support.each import each
from tests.toy import run as toy_run
from transformer_cli.addons.tagging.conll import Dialect
from transformer_cli.addons.tagging.keys import TagConfig, TagFormat
from transformer_cli.addons.tagging.run_tag import RowFilter, SentenceFilter, with_tag
from transformer_cli.addons.tagging.word_tagger import WordTagger
from transformer_cli.addons.tagging.words import words_of_line
from transformer_cli.cli import main
from transformer_cli.config.compose import load_config
from transformer_cli.data.batching import Batch
from transformer_cli.data.feed import Epoch, Feed
from transformer_cli.data.prepare import prepare
from transformer_cli.errors import DataError
from transformer_cli.models.file import read_model
from transformer_cli.text_io import decode_line
from transformer_cli.training.divergence_dump import read_divergence_dump, write_divergence_dump
from transformer_cli.training.plan import plan_warnings
from transformer_cli.training.trainer import Trainer
from transformer_cli.training.validation import make_validator

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with CoNLL files, and what `tfm train` made of them."""
    folder = tmp_path_factory.mktemp("trained")
    toy_run.train_command(folder, *OVERRIDES, *write_files(folder), max_steps=40, every=20)
    return folder


def words_and_labels(file: Path) -> list[list[list[str]]]:
    return [[row.split() for row in part.split("\n") if row] for part in file.read_text().split("\n\n") if part.strip()]


# ---- Training and evaluating


def test_training_learns_the_labels_and_reports_the_test_set(trained: Path) -> None:
    result = json.loads((trained / "runs/a/result.json").read_bytes())
    assert result["best"]["dev_accuracy"] >= 95
    assert result["best"]["dev_entity_f1"] >= 90
    printed = (trained / "printed").read_text().split("\n")
    assert printed[0] == f"tags.test, 30 lines, {trained / 'runs/a/model.safetensors'}"
    assert printed[1].startswith("accuracy")
    assert any(line.startswith("baseline") for line in printed)
    log = (trained / "runs/a/tfm.log").read_text()
    assert "words/s" in log
    assert "40 updates of 150 words, " in log


def test_the_plan_of_a_tagger_counts_words(tmp_path: Path) -> None:
    config = load_config("train", config_for(tmp_path, "train.max_steps=20", "train.eval_every=10"))
    assert [warning.what for warning in plan_warnings(config, Epoch(20, 100, 9))] == [
        "train.tokens_per_update=150: the corpus has 100 words in all"
    ]


def test_evaluate_says_what_training_said_and_counts_what_tag_answers(trained: Path, tfm: Run) -> None:
    model = ["--checkpoint", str(trained / "runs/a")]
    _, out, _ = tfm("evaluate", *model)
    assert out.split("\n")[1:] == (trained / "printed").read_text().split("\n")[1:]
    _, out, _ = tfm("evaluate", *model, "--json", "--source", str(trained / "test.conll"), "--save", "saved")
    found = json.loads(out)
    sentences = words_and_labels(trained / "test.conll")
    lines = "".join(" ".join(word for word, _, _ in rows) + "\n" for rows in sentences)
    _, answers, _ = tfm("tag", *model, stdin=lines.encode())
    assert answers == Path("saved").read_text()
    wanted = [label for rows in sentences for _, _, label in rows]
    n_right = sum(a == b for a, b in zip(answers.split(), wanted, strict=True))
    assert found["accuracy"]["score"] == pytest.approx(100 * n_right / len(wanted))
    assert found["words"] == sum(map(sum, found["confusion"])) == len(wanted)
    # The baseline by hand: capitals have one label each, all others are most often O.
    seen: dict[str, list[str]] = {}
    for word, _, label in (row for rows in words_and_labels(trained / "train.conll") for row in rows):
        seen.setdefault(word, []).append(label)
    most = {word: min(set(its), key=lambda one: (-its.count(one), one)) for word, its in seen.items()}
    guessed = [most.get(word, "O") for rows in sentences for word, _, _ in rows]
    n_guessed = sum(a == b for a, b in zip(guessed, wanted, strict=True))
    # `drop_duplicates` may turn a tie.
    assert found["baseline_accuracy"] == pytest.approx(100 * n_guessed / len(wanted), abs=3)


def test_the_text_is_never_the_output(trained: Path, tfm: Run, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("a b\n")
    arguments = ["--checkpoint", str(trained / "runs/a"), "--input", str(text), "--output", str(text), "--overwrite"]
    status, _, err = tfm("tag", *arguments)
    assert status == 2
    assert f"{text}: both --input and --output" in err
    assert text.read_text() == "a b\n"


def test_a_file_of_labels_is_scored_without_a_model(trained: Path, tfm: Run, tmp_path: Path) -> None:
    sentences = words_and_labels(trained / "test.conll")
    (tmp_path / "own").write_text("".join(" ".join(label for _, _, label in rows) + "\n" for rows in sentences))
    data = [*OVERRIDES[:1], f"data.test={trained / 'test.conll'}"]
    status, out, _ = tfm("evaluate", "--hypotheses", "own", "--json", *data)
    assert (status, json.loads(out)["entities"]["f1"]["score"]) == (0, 100)
    (tmp_path / "own").write_text("O\n")
    _, _, err = tfm("evaluate", "--hypotheses", "own", *data)
    assert "own: has 1 lines, data=tags: its test set 30, so nothing is scored. Make line n of one the labels of" in err
    (tmp_path / "own").write_text(" ".join("O" * 17) + 30 * "\n")
    status, _, err = tfm("evaluate", "--hypotheses", "own", *data)
    assert status == 3
    assert "own:1: 17 labels, but sentence 1 of tags.test has" in err


def test_a_label_that_training_has_not_seen_counts_as_wrong(trained: Path, tfm: Run, tmp_path: Path) -> None:
    (tmp_path / "own.conll").write_text("abc x O\nH x B-NEW\n")
    status, out, err = tfm("evaluate", "--checkpoint", str(trained / "runs/a"), "--source", "own.conll", "--json")
    assert status == 0
    assert "the model does not have the labels B-NEW; their words count as wrong" in err
    assert json.loads(out)["accuracy"]["score"] == 50


def test_a_label_that_is_not_bio_is_named_and_entity_f1_stays(trained: Path, tfm: Run, tmp_path: Path) -> None:
    (tmp_path / "own.conll").write_text("abc x O\nH x B-PER\np x I-PER\n\na x PERSN\n")
    model = ["--checkpoint", str(trained / "runs/a")]
    status, out, err = tfm("evaluate", *model, "--source", "own.conll", "--json")
    assert (status, json.loads(out)["entities"]["f1"]["score"]) == (0, 100)
    assert err.count("own.conll: entity F1 counts labels that are not B-X, I-X or O as O: PERSN") == 1
    (tmp_path / "tags").write_text("O B-PER I-PER\nNOUN\n")
    data = [*OVERRIDES[:1], "data.test=own.conll"]
    status, out, err = tfm("evaluate", "--hypotheses", "tags", "--json", *data)
    assert (status, json.loads(out)["entities"]["f1"]["score"]) == (0, 100)
    assert "tags: entity F1 counts labels that are not B-X, I-X or O as O: NOUN, PERSN" in err


def test_labels_of_dev_that_are_no_bio_or_not_in_training_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    overrides = config_for(tmp_path)
    for name, label in {"train": "PERSN", "dev": "B-NEW"}.items():
        file = tmp_path / f"{name}.conll"
        file.write_text(f"{file.read_text()}\nabc x {label}\n")
    config = load_config("train", overrides)
    corpus = prepare(config.data)
    validator = make_validator(config, corpus, CPU)
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("data.dev")]
    assert said == [
        "data.dev: 1 word has labels that the training text does not have: B-NEW. They count as wrong in the accuracy,"
        " and are left out of the nll",
        "data.dev: entity F1 counts labels that are not B-X, I-X or O as O: PERSN",
    ]
    model = Trainer(config, corpus.tokenizers, CPU).model
    scores = validator.score(model, contextlib.nullcontext)
    assert "dev_entity_f1" in scores.as_dict()
    # The NLL is that of the other words alone: the sentence with the label that is left out has no other.
    (tmp_path / "dev.conll").write_text(conll(20, seed=1))
    known = make_validator(config, prepare(config.data), CPU)
    assert known.nll(model, contextlib.nullcontext) == pytest.approx(scores.nll)
    (tmp_path / "dev.conll").write_text("a x NOUN\nb x VERB\n")
    with pytest.raises(DataError, match=r"data\.dev: none of its labels is in the training text: NOUN, VERB\. Name"):
        make_validator(config, prepare(config.data), CPU)


# ---- The same promises as other models


def config_for(folder: Path, *overrides: str) -> "list[str]":
    return [*OVERRIDES, *write_files(folder), f"data.cache={folder / 'cache'}", *overrides]


def test_a_resumed_run_is_the_run_that_was_never_stopped(tmp_path: Path) -> None:
    steps = ["train.max_steps=9", "train.save_every=3", "train.eval_every=6", "train.samples=0", "train.log_every=1"]
    config = load_config("train", config_for(tmp_path, *steps, "data.subword_dropout=0.1", "train.ema=0.9"))
    toy_run.assert_resumes(tmp_path, config, stopped_before=5, corpus=prepare(config.data))


def test_how_an_update_is_split_does_not_change_the_gradient(tmp_path: Path) -> None:
    config = load_config("train", config_for(tmp_path, "model.dropout=0", "model.pooling=mean"))
    corpus = prepare(config.data)

    def gradients(max_tokens: int) -> list[torch.Tensor]:
        own = load_config("train", config_for(tmp_path, "model.dropout=0", "model.pooling=mean"))
        own.train.max_tokens_per_microbatch = max_tokens
        trainer, batches = Trainer(own, corpus.tokenizers, CPU), Feed(own, corpus).batches(1)
        n_words = sum(batch.n_target_tokens for batch in batches)
        assert n_words == sum(len(batch.target_out_T) for batch in batches)
        for batch in batches:
            trainer.forward_backward(batch, seed=1, n_tokens=n_words)
        return [p.grad for p in trainer.model.parameters() if p.grad is not None]

    for one, other in zip(gradients(40), gradients(4000), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def test_an_update_that_was_kept_is_replayed_to_the_last_bit(tmp_path: Path) -> None:
    config = load_config("train", config_for(tmp_path))
    corpus = prepare(config.data)
    trainer = Trainer(config, corpus.tokenizers, CPU)
    model = replace(
        random_model(), config=config.model, tokenizers=corpus.tokenizers, weights=trainer.weights(), data={}
    )
    pairs = Feed(config, corpus).pairs(1)
    folder = write_divergence_dump(tmp_path, trainer, model, config, corpus.tokenizers, step=1, pairs=pairs)
    dump = read_divergence_dump(folder)
    findings = dump.replay(CPU)
    assert [finding.state() for finding in findings] == dump.recorded
    shown = {label for finding in findings for _, labels in finding.pairs for label in labels.split()}
    assert shown == set(LABELS)


def test_halves_of_a_batch_have_its_words(tmp_path: Path) -> None:
    config = load_config("train", config_for(tmp_path))
    corpus = prepare(config.data)
    batch = max(Feed(config, corpus).batches(1), key=lambda one: one.n_pairs)

    def words(one: Batch) -> list[tuple[list[int], list[int]]]:
        return list(one.pairs())

    first, second = batch.halves()
    assert [*words(first), *words(second)] == words(batch)
    assert torch.equal(torch.cat([first.target_in_T, second.target_in_T]), batch.target_in_T)


@pytest.mark.slow
@pytest.mark.parametrize("chosen", ["init.freeze=[encoder]", "lora.rank=2"])
def test_an_encoder_is_taken_over_and_frozen(tfm: Run, tmp_path: Path, chosen: str) -> None:
    written(tmp_path, random_classifier(CLASSIFIER), "classifier.safetensors")
    names = [*OVERRIDES[:1], *write_files(tmp_path), "data.cache=cache", *OVERRIDES[9:], "train.max_steps=4"]
    more = ["train.save_every=4", "train.eval_every=4", "schedule=constant", "schedule.lr=0.01", "data.max_length=24"]
    status, _, err = tfm("train", *names, *more, "init.from=classifier.safetensors", chosen, "name=b", "train.ema=null")
    assert status == 0, err
    before, after = read_model(tmp_path / "classifier.safetensors"), read_model(tmp_path / "runs/b/model.safetensors")
    frozen = [name for name in before.weights if name.startswith("encoder.")]
    assert frozen
    is_equal = [torch.equal(before.weights[name], after.weights[name]) for name in frozen]
    assert all(is_equal) if "freeze" in chosen else not all(is_equal)  # LoRA is merged
    assert after.config.name == "tagger"
    assert after.tokenizers.labels == LABELS


# ---- Lines


def test_a_word_that_is_longer_than_the_model_reads_is_counted(tfm: Run, tmp_path: Path) -> None:
    written(tmp_path, random_model())
    (tmp_path / "long.conll").write_text("a O\n" + "b" * 500 + " O\n")
    says = "words of more than the model's 12 tokens: 1, of which the beginning alone is read"
    _, out, err = tfm("tag", "--checkpoint", "model.safetensors", stdin=b"b" * 500 + b"\n")
    assert (len(out.split()), says in err, "windows" in err) == (1, True, False)
    _, _, err = tfm("evaluate", "--checkpoint", "model.safetensors", "--source", "long.conll")
    assert f"long.conll: {says}" in err


def bytes_out(data: bytes, config: TagConfig) -> bytes:
    """What `tfm tag` writes for `data`, with a random tagger."""
    tagger = WordTagger(random_model(), device=CPU, batch_tokens=100)
    source, sink = io.BufferedReader(io.BytesIO(data)), io.BytesIO()  # type: ignore[arg-type]
    if config.format is TagFormat.text:
        SentenceFilter(tagger, sink, config).process_stream(source)
    else:
        dialect = Dialect.of(config.columns, is_conllu=config.format is TagFormat.conllu)
        RowFilter(tagger, sink, config, dialect).process_stream(source)
    return sink.getvalue()


PIECES = [
    b"a",
    b"H",
    b" ",
    b"\n",
    b"\r\n",
    b"\xe2\x80\xa8",
    b"\xc2\xa0",
    b"\x0b",
    b"\xff",
    b"\x00",
    b"\t",
    b"# ",
    b"1\t",
]
ANY_BYTES = (st.binary(max_size=60) | st.lists(st.sampled_from(PIECES)).map(b"".join)).filter(is_text)


@settings(max_examples=20, deadline=None, database=None)
@given(ANY_BYTES)
def test_each_line_has_as_many_tags_as_words_for_any_bytes(data: bytes) -> None:
    given_lines = data.split(b"\n")
    if not given_lines[-1]:
        given_lines.pop()
    out = bytes_out(data, TagConfig()).decode()
    lines = out.split("\n")[:-1]
    assert len(lines) == len(given_lines)
    for number, (raw, line) in enumerate(zip(given_lines, lines, strict=True), 1):
        words = words_of_line(decode_line(raw.removesuffix(b"\r"), number, name=None, strict=False).text)
        tags = line.split(" ") if line else []
        assert len(tags) == len(words)
        assert set(tags) <= set(LABELS)


@settings(max_examples=20, deadline=None, database=None)
@given(ANY_BYTES.map(lambda data: data + b"\nH\n").filter(is_text))  # without a word there is nothing to write
def test_columns_keep_every_byte_beside_the_tags(data: bytes) -> None:
    out = bytes_out(data, TagConfig(format=TagFormat.conll))
    assert out.count(b"\n") == data.count(b"\n")
    for before, after in zip(data.split(b"\n"), out.split(b"\n"), strict=True):
        if before != after:
            body, end = (before[:-1], b"\r") if before.endswith(b"\r") else (before, b"")
            tag = after.removeprefix(body).removesuffix(end)
            assert after.startswith(body)
            assert tag[:1] in (b" ", b"\t")
            assert tag[1:].decode() in LABELS


def test_columns_are_filled_and_everything_else_is_kept() -> None:
    tags = bytes_out(b"H a b\n", TagConfig()).split()
    rows = b"# note\r\n1\tH\t_\tX\tz\n1-2\tab\t_\t_\t_\n2\ta\t_\tX\tz\r\n3\tb\t_\tX\n\n"
    expected = b"# note\r\n1\tH\t_\t%s\tz\n1-2\tab\t_\t_\t_\n2\ta\t_\t%s\tz\r\n3\tb\t_\t%s\n\n" % tuple(tags)
    assert bytes_out(rows, TagConfig(format=TagFormat.conllu)) == expected
    rows = b"-DOCSTART- O\n\nH  N\na N\nb N"
    assert bytes_out(rows, TagConfig(format=TagFormat.conll)) == b"-DOCSTART- O\n\nH  N %s\na N %s\nb N %s" % tuple(
        tags
    )
    assert bytes_out(b"x H\nx a\nx b O\n", TagConfig(format=TagFormat.conll, columns=[1, 2])) == (
        b"x H %s\nx a %s\nx b %s\n" % tuple(tags)
    )


@each(
    "row, column, expected",
    [
        (b"a\t\tc\r\n", 1, b"a\tX\tc\r\n"),
        (b"\tb", 0, b"X\tb"),
        (b"a\tb\t", 2, b"a\tb\tX"),
        (b"a  b   c \n", 1, b"a  X   c \n"),  # spaces are kept
        (b"a b", 2, b"a b X"),
        (b"a\tb\n", None, b"a\tb\tX\n"),
    ],
)
def test_a_tag_is_put_into_its_column_alone(row: bytes, column: int | None, expected: bytes) -> None:
    assert with_tag(row, "X", column) == expected


def test_json_lines_have_the_words_and_the_probability_of_each_tag(trained: Path, tfm: Run) -> None:
    command = ["tag", "--checkpoint", str(trained / "runs/a"), "--output-format", "jsonl"]
    status, out, _ = tfm(*command, stdin=b"abc H p\n\n")
    first, blank = map(json.loads, out.split("\n")[:-1])
    assert status == 0
    assert (first["words"], first["tags"]) == (["abc", "H", "p"], ["O", "B-PER", "I-PER"])
    assert all(0.5 < p <= 1 for p in first["probabilities"])
    assert blank == {"line": 2, "words": [], "tags": [], "probabilities": []}


def test_columns_are_those_of_training_where_none_are_named(tfm: Run, tmp_path: Path) -> None:
    model = random_model()
    model.data.update({"columns": [1, 2], "train": "/there/train.conll"})
    written(tmp_path, model)
    command = ["tag", "--checkpoint", "model.safetensors", "--format", "conll"]
    _, out, err = tfm(*command, stdin=b"1 H ? x\nlost\n")
    [tag] = bytes_out(b"H\n", TagConfig()).decode().split()
    assert out == f"1 H {tag} x\nlost\n"
    assert "line 2: no word in column 1; kept as it is" in err
    status, _, err = tfm(*command, "--strict", stdin=b"lost\n")
    assert status == 3
    assert "standard input:1: no word in column 1. Repair the line" in err


def test_rows_that_cannot_be_tagged_are_named_with_the_reason(tfm: Run, tmp_path: Path) -> None:
    written(tmp_path, random_model())
    command = ["tag", "--checkpoint", "model.safetensors", "--format", "conll", "columns=[0,2]"]
    status, out, err = tfm(*command, stdin=b"H x\n\ta\tb\nH\nab\n")
    assert (status, out.split("\n")[1:]) == (0, ["\ta\tb", "H", "ab", ""])
    assert "line 2: no word in column 0; kept as it is" in err
    assert "lines 3, 4: 1 column, too few for a tag in column 2, counted from 0; kept as they are" in err


def test_where_no_row_can_be_tagged_nothing_is_written(tfm: Run, tmp_path: Path) -> None:
    written(tmp_path, random_model())
    command = ["tag", "--checkpoint", "model.safetensors", "--format", "conll", "--output", "out", "columns=[0,9]"]
    status, _, err = tfm(*command, stdin=b"-DOCSTART- O\n\nH O\na O\n")
    assert (status, Path("out").exists()) == (3, False)
    assert "standard input:3: 2 columns, too few for a tag in column 9, counted from 0, and no other row can be" in err
    status, out, _ = tfm(*command[:-3], stdin=b"-DOCSTART- O\n\n")  # there is nothing to tag
    assert (status, out) == (0, "-DOCSTART- O\n\n")
    status, out, _ = tfm(*command[:-3], "columns=[1,2]", stdin=b"H\n")
    assert (status, out) == (3, "")


CONLLU = b"# text = H a\n1\tH\th\tX\t_\n2\ta\ta\tX\t_\n"


@pytest.mark.parametrize(
    ("train", "columns", "of_conllu", "of_conll"),
    [
        (["train.conll"], [0, 1], (1, 3), (0, 1)),
        (["train.conll"], [0, 3], (1, 3), (0, 3)),
        (["train.conllu.gz"], [1, 4], (1, 4), (0, None)),
        (["train.conllu", "a.tgz::more.conll"], [1, 2], (1, 2), (1, 2)),
        (["train.conllu"], [], (1, 3), (0, None)),
        (["train.conll"], [0, -1], (1, 3), (0, None)),
        (None, [0, 1], (1, 3), (0, None)),
    ],
)
def test_columns_of_training_are_those_of_its_own_kind_of_file(
    tfm: Run,
    tmp_path: Path,
    train: list[str] | None,
    columns: list[int],
    of_conllu: tuple[int, int],
    of_conll: tuple[int, int | None],
) -> None:
    model = random_model()
    model.data.update({"columns": columns, "train": train})
    written(tmp_path, model)
    for name, (word_at, label_at) in {"conllu": of_conllu, "conll": of_conll}.items():
        rows = [["?"] * 6 for _ in "Ha"]
        for row, word in zip(rows, "Ha", strict=True):
            row[word_at] = word
        text = "".join("\t".join(row) + "\n" for row in rows)
        _, out, _ = tfm("tag", "--checkpoint", "model.safetensors", "--format", name, stdin=text.encode())
        _, tags, _ = tfm("tag", "--checkpoint", "model.safetensors", stdin=b"H a\n")
        for row, tag in zip(rows, tags.split(), strict=True):
            if label_at is None:
                row.append(tag)
            else:
                row[label_at] = tag
        assert out == "".join("\t".join(row) + "\n" for row in rows)


def test_evaluate_reads_a_source_of_another_kind_by_its_own_columns(tfm: Run, tmp_path: Path) -> None:
    model = random_model()
    model.data.update({"columns": [0, 1], "train": ["train.conll"]})
    written(tmp_path, model)
    (tmp_path / "te.conllu").write_bytes(CONLLU.replace(b"X", b"O"))
    (tmp_path / "te.conll").write_text("H O 1\na O 2\n")
    for name in ("te.conllu", "te.conll"):
        status, out, err = tfm("evaluate", "--checkpoint", "model.safetensors", "--source", name, "--json")
        assert status == 0, err
        assert "does not have the labels" not in err
        assert json.loads(out)["words"] == 2


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        (["translate"], "model.safetensors: this is a tagger; use `tfm tag`"),
        (["score"], "model.safetensors: this is a tagger; use `tfm tag`"),
        (["classify"], "model.safetensors: this is a tagger; use `tfm tag`"),
        (["generate"], "model.safetensors: this is a tagger; use `tfm tag`"),
        (
            ["evaluate", "--source", "t", "--reference", "t"],
            "--reference: for translations; of a tagger, --source is all",
        ),
        (["evaluate", "data=demo_en_fr"], "data=demo_en_fr: has no labels of words, but this is a tagger"),
        (["evaluate"], "was trained on `tags`, which is not here. Add data=NAME"),
        (["evaluate", "--tokenize", "13a", "--source", "t"], "--tokenize 13a: for BLEU of translations; this is a"),
        (["tag", "columns=[0,1]"], "columns=[0, 1]: a line of text has none. Add format=conll"),
        (["tag", "--format", "conll", "--output-format", "jsonl"], "output_format=jsonl: format=conll writes"),
        (["tag", "--output-format", "moses"], "output_format=moses: unknown. Choose text, jsonl"),
    ],
)
def test_a_command_that_does_not_suit_the_model_says_so_in_a_line(
    tfm: Run, tmp_path: Path, command: list[str], printed: str
) -> None:
    written(tmp_path, random_model())
    status, out, err = tfm(command[0], "--checkpoint", "model.safetensors", *command[1:], stdin=b"a\n")
    assert status in (2, 3, 4)
    assert out == ""
    assert printed in err
    assert err.count("\n") == 1


def test_a_tagger_has_vectors_and_an_average(tfm: Run, tmp_path: Path) -> None:
    for seed in (1, 2):
        written(tmp_path, random_model("mean", seed=seed), f"{seed}.safetensors")
    status, out, _ = tfm("embed", "--checkpoint", "1.safetensors", stdin=b"a b\n")
    assert (status, len(json.loads(out)["vector"])) == (0, 16)
    models = ["--checkpoint", "1.safetensors", "--checkpoint", "2.safetensors"]
    assert main(["average", *models, "--output", "mean.safetensors"]) == 0
    status, out, _ = tfm("tag", "--checkpoint", "mean.safetensors", stdin=b"a b\n")
    assert (status, len(out.split())) == (0, 2)
