"""SQuAD's JSON: what is read, what is refused in one line, and answers that do not stand where they are said to."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.addons.question_answering.toy_questions import one, squad
from tests.conftest import Run
from transformer_cli.addons.question_answering.questions import GoldAnswer, Question
from transformer_cli.config.data import DataConfig, OnBad
from transformer_cli.data.corpus import ParallelText, load_text
from transformer_cli.data.readers import reader_of
from transformer_cli.errors import ConfigError, DataError


def config(**settings: Any) -> DataConfig:
    fixed = {"source_lang": "text", "target_lang": "text", "task": "question_answering", "reader": "squad"}
    return DataConfig(**{**fixed, **settings})


def read(folder: Path, content: str | bytes, split: str = "dev", **settings: Any) -> list[Question]:
    file = folder / "squad.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    text = load_text(config(**{split: str(file)}, **settings), split)  # type: ignore[arg-type]
    assert isinstance(text, ParallelText)
    return [Question.of(*pair) for pair in text.each()]


def test_questions_have_all_their_answers_or_none(tmp_path: Path) -> None:
    paragraphs = [
        one("Ann saw Bob.", (8, "Bob"), (8, "Bob."), question="Whom did Ann see?"),
        one("It rained.", question="Who?", is_impossible=True, plausible_answers=[{"text": "It", "answer_start": 0}]),
    ]
    first, second = read(tmp_path, squad(paragraphs))
    assert first == Question("Whom did Ann see?", "Ann saw Bob.", [GoldAnswer(8, "Bob"), GoldAnswer(8, "Bob.")])
    assert second == Question("Who?", "It rained.", [])


def test_a_byte_order_mark_line_ends_and_spaces_are_read(tmp_path: Path) -> None:
    content = json.dumps(json.loads(squad([one("a\tb\r\nc\n d", (5, "c"))])), indent=2).replace("\n", "\r\n")
    [found] = read(tmp_path, b"\xef\xbb\xbf" + content.encode())
    assert found.passage == "a b  c  d"  # as many characters as there were
    assert found.placed == [GoldAnswer(5, "c")]


def test_an_answer_may_have_a_line_end_in_it(tmp_path: Path) -> None:
    [found] = read(tmp_path, squad([one("a b\nc d", (2, "b\nc"))]))
    assert found.placed == [GoldAnswer(2, "b\nc")]


def test_offsets_count_code_points(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    passage = "😀 cafe\u0301 Bob"
    at = passage.index("Bob")
    [right, wrong] = read(tmp_path, squad([one(passage, (at, "Bob")), one(passage, (at + 1, "Bob"), question="Why?")]))
    assert (right.placed, wrong.placed) == ([GoldAnswer(at, "Bob")], [])
    [said] = [record.getMessage() for record in caplog.records]
    assert said == (
        f"{tmp_path}/squad.json: 1 of 2 answers do not stand at their answer_start, the first is 'Bob' at 9 of the"
        " passage of 'Why?'; 1 are right in UTF-16 code units, and code points are needed. They are scored by their"
        " text, and left out of the nll"
    )


def test_a_question_is_not_trained_on_where_its_answer_is_not_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paragraphs = [
        one("a b c", (2, "b"), question="right"),
        one("a b c", (1, "b"), question="wrong"),
        one("a b c", (-1, "c"), question="negative"),
        one("a b c", (0, ""), question="empty"),
        one("a b c", (9, "b"), (2, "b"), question="the second"),
        one("a b c", question="none", is_impossible=True),
    ]
    found = read(tmp_path, squad(paragraphs), "train")
    assert [one.question for one in found] == ["right", "the second", "none"]
    [said] = [record.getMessage() for record in caplog.records]
    assert "4 of 6 answers do not stand at their answer_start, the first is 'b' at 1" in said
    assert said.endswith("They are not trained on")


BAD = {
    "not JSON": ("{", r"squad\.json:1: not JSON \(.* at column 2\)\. Name a file of SQuAD's form"),
    "no data": ('{"a": 1}', r"squad\.json: no list `data`\. Name"),
    "a list": ("[1]", r"squad\.json: no list `data`\. Name"),
    "no question": ('{"data": []}', r"squad\.json: holds no question\. Name"),
    "not UTF-8": (b'{"data": "\xff"}', r"squad\.json: byte 0xff at 10 is not UTF-8\. Convert"),
    "deep": ("[" * 100_000, r"squad\.json.*not JSON"),
    "no paragraphs": ('{"data": [{}]}', r"squad\.json: data\[0\]: no list `paragraphs`\. Correct the file, or drop"),
    "no context": (squad([{"qas": []}]), r"data\[0\]\.paragraphs\[0\]: no text `context`"),
    "no qas": (squad([{"context": "a"}]), r"data\[0\]\.paragraphs\[0\]: no list `qas`"),
    "a number": (squad([{"context": "a", "qas": [7]}]), r"paragraphs\[0\]\.qas\[0\]: no text `question`"),
    "no answers": (squad([{"context": "a", "qas": [{"question": "b"}]}]), r"qas\[0\]: no list `answers`"),
    "no start": (
        squad([{"context": "a", "qas": [{"question": "b", "answers": [{"text": "a"}]}]}]),
        r"qas\[0\]: an answer without a text `text` and a whole number `answer_start`",
    ),
    "half a surrogate": (squad([one("a \ud83d b", (0, "a"))]), r"qas\[0\]: has half of a surrogate pair"),
    "a blank passage": (squad([one(" ", (0, "a"))]), r"the passage of the question 'Who\?' is blank\. Correct"),
    "a blank question": (squad([one("a b", (0, "a"), question=" ")]), r"the question of the passage 'a b' is blank"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path: Path, name: str) -> None:
    content, message = BAD[name]
    with pytest.raises(DataError, match=message) as raised:
        read(tmp_path, content)
    assert "\n" not in str(raised.value)


def test_bad_questions_are_dropped_and_counted_on_demand(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    paragraphs = [one(" ", (0, "a")), {"context": "a"}, one("a b", (0, "a"))]
    [found] = read(tmp_path, squad(paragraphs), on_bad=OnBad.skip)
    assert found.passage == "a b"
    assert "2 pairs dropped, their lines cannot be read" in caplog.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"columns": [0, 1]}, r"data\.columns=\[0, 1\]: data\.reader=squad has none\. Leave it out"),
        ({"options": {"stride": 0}}, r"data\.options\.stride=0"),
        ({"options": {"strid": 3}}, r"data\.options\.strid"),
        ({"task": "translation"}, r"data\.task=translation: data\.reader=squad is for question_answering"),
        ({"reader": "columns"}, r"columns is for .*"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reader_of(config(**settings)).check()


def test_the_built_in_corpus_is_for_this_task_alone() -> None:
    with pytest.raises(ConfigError, match="is for question_answering"):
        reader_of(DataConfig(source_lang="a", target_lang="b", builtin="demo_questions", name="demo_questions"))
    with pytest.raises(ConfigError, match="is for"):
        reader_of(config(reader=None, builtin="demo_en_fr"))
    text = load_text(config(reader=None, builtin="demo_questions"), "test")
    assert text is not None
    assert all(len(Question.of(*pair).placed) == 1 for pair in text.each())


def test_a_file_is_listed_with_the_command_that_trains_on_it(tmp_path: Path, tfm: Run) -> None:
    (tmp_path / "train.json").write_text(squad([one("a b", (0, "a")), one("c", question="h", is_impossible=True)]))
    status, out, _ = tfm("prepare", "--list", "train.json")
    assert status == 0
    assert out.startswith("train.json: a set of questions with passages (SQuAD's JSON), 2 rows\n")
    assert "questions without an answer: 1\n" in out
    assert out.endswith("Train on it with: tfm train data=questions data.train=train.json\n")


def test_generated_passages_are_in_one_split_and_their_questions_have_one_answer() -> None:
    texts = {
        split: load_text(config(reader=None, builtin="demo_questions"), split) for split in ("train", "dev", "test")
    }
    passages = {}
    for split, text in texts.items():
        assert text is not None
        found = [Question.of(*pair) for pair in text.each()]
        passages[split] = {each.passage for each in found}
        assert len(passages[split]) * 4 == len(found)
        for asked in found:
            if asked.question.startswith("Who "):
                assert asked.passage.count(f" {asked.question[4:-1]}") == 1
    assert not passages["train"] & (passages["dev"] | passages["test"])
    assert not passages["dev"] & passages["test"]
