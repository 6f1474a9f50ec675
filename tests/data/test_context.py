"""Document-level translation: which sentences a line is read with, in training, translating and scoring."""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from tests.toy.run import assert_resumes, config
from tests.toy.translator import GREEDY, translator_of
from transformer_cli.config.compose import load_config
from transformer_cli.config.data import DataConfig, TokenizerConfig, TokenizerKind
from transformer_cli.config.tasks import TASKS
from transformer_cli.data.checks.overlap import leaks
from transformer_cli.data.clean import clean
from transformer_cli.data.context import END_OF_CONTEXT, ContextEncoder, History, break_id, contexts_of
from transformer_cli.data.corpus import ParallelText, load_text
from transformer_cli.data.prepare import Prepared, _open, prepare
from transformer_cli.data.sentences import share_of_several
from transformer_cli.data.splits import load_splits
from transformer_cli.data.tokenizer import Tokenizer, train_tokenizer
from transformer_cli.decoding.training_text import TrainingText, training_text
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.held_out import plain_text, text_of
from transformer_cli.models.file import read_model

DEV = ["dev.en", "dev.xx"]
LINES = ["the cat sat", "it drank milk", "a woman sat down", "", "her chair", "it was pretty", " ", "the end"]
CONTEXTS = [
    (),
    ("the cat sat",),
    ("the cat sat", "it drank milk"),
    (),
    (),
    ("her chair",),
    (),
    (),
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(
        LINES * 3, TokenizerConfig(vocab_size=60, user_symbols=[END_OF_CONTEXT]), seed=1, tags=["<2xx>"]
    )


def written(root: Path, name: str, pairs: Sequence[tuple[str, str]]) -> None:
    for side, language in enumerate(("en", "xx")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (root / f"{name}.{language}").write_text(text, encoding="utf-8")


def config_of(root: Path, **settings: Any) -> DataConfig:
    asked: dict[str, Any] = {"source_lang": "en", "target_lang": "xx", "root": str(root), "cache": str(root / "cache")}
    asked |= {"train": ["train.en", "train.xx"], "tokenizer": TokenizerConfig(vocab_size=90), "context_sentences": 2}
    return DataConfig(**{**asked, **settings})


def documents(n: int, length: int = 4) -> list[tuple[str, str]]:
    """Documents of lines that name their place, so that a context shows where it is from; a blank line behind each."""
    pairs = []
    for number in range(n):
        lines = [f"document {number} line {place}" for place in range(length)]
        pairs += [*((line, line.upper()) for line in lines), ("", "")]
    return pairs


def sources_of(prepared: Prepared) -> list[str]:
    """The training sources with their contexts, as text."""
    train, tokenizer = prepared.train, prepared.tokenizers.source
    ends = np.cumsum(train.source_lengths)[:-1]
    rows = np.split(train.source_ids[: train.source_offsets[-1]], ends)
    return [tokenizer.decode(row.tolist()) for row in rows]


def with_context(context: Sequence[str], line: str) -> str:
    return "".join(f"{sentence}{END_OF_CONTEXT} " for sentence in context) + line


# ---- Which sentences


def test_a_context_is_the_last_lines_of_the_document_and_a_blank_line_ends_one() -> None:
    assert list(contexts_of(LINES, 2)) == CONTEXTS
    assert [context[-1:] for context in CONTEXTS] == list(contexts_of(LINES, 1))


def test_a_file_ends_a_document() -> None:
    assert list(contexts_of("abcd", 3, sizes=[1, 3])) == [(), (), ("b",), ("b", "c")]


def test_a_context_has_no_tags() -> None:
    assert list(contexts_of(["<2xx> one", "<2xx> two"], 1, ["<2xx>"])) == [(), ("one",)]


def test_a_history_counts_documents() -> None:
    history = History(1)
    assert [history.before(line) for line in ("a", "b", "\u200b", "c")] == [(), ("a",), (), ()]
    assert history.n_documents == 2


# ---- As tokens


def test_the_tokens_are_those_of_the_text_with_breaks(tokenizer: Tokenizer) -> None:
    encoder = ContextEncoder(tokenizer, 2)
    plain = tokenizer.encode(LINES)
    found = encoder.put_before(plain, CONTEXTS, 100)
    assert found == tokenizer.encode([with_context(*pair) for pair in zip(CONTEXTS, LINES, strict=True)])


def test_a_tag_stays_in_front(tokenizer: Tokenizer) -> None:
    encoder = ContextEncoder(tokenizer, 2)
    (found,) = encoder.put_before(tokenizer.encode(["<2xx> it drank"]), [("the cat",)], 100)
    assert found == tokenizer.encode([f"<2xx> the cat{END_OF_CONTEXT} it drank"])[0]
    assert tokenizer.pieces(found)[0] == "<2xx>"


def test_the_oldest_sentence_is_left_out_first_and_never_the_line(tokenizer: Tokenizer) -> None:
    encoder = ContextEncoder(tokenizer, 3)
    context, (line,) = ("the cat sat down", "it drank", "milk"), tokenizer.encode(["a woman"])
    whole = tokenizer.encode([with_context(context[n:], "a woman") for n in range(4)])
    for longest in range(len(line) - 1, len(whole[0]) + 1):
        (found,) = encoder.put_before([line], [context], longest)
        fits = [ids for ids in whole if len(ids) <= longest]
        assert found == (fits[0] if fits else line), longest


def test_a_written_break_divides_nothing(tokenizer: Tokenizer) -> None:
    encoder = ContextEncoder(tokenizer, 1)
    (found,) = encoder.before([(f"the{END_OF_CONTEXT} cat",)], [100])
    assert found.count(encoder.break_id) == 1
    assert break_id(tokenizer) == encoder.break_id
    source = translator(tokenizer, 1).planner.plan([f"the{END_OF_CONTEXT} cat"])[0].segments[0].ids
    assert encoder.break_id not in source


def test_a_vocabulary_without_breaks_is_refused(tmp_path: Path) -> None:
    plain = train_tokenizer(LINES * 3, TokenizerConfig(vocab_size=60), seed=1)
    with pytest.raises(ConfigError, match=r"data.context_sentences=2: the given vocabulary has no piece <brk>.*Train"):
        ContextEncoder(plain, 2)
    (tmp_path / "own.model").write_bytes(plain.model_bytes)
    written(tmp_path, "train", documents(20))
    own = TokenizerConfig(model=str(tmp_path / "own.model"))
    with pytest.raises(ConfigError, match="the given vocabulary has no piece <brk>"):
        prepare(config_of(tmp_path, tokenizer=own))


# ---- Training text


def test_training_sources_have_their_context_before_them(tmp_path: Path) -> None:
    written(tmp_path, "train", documents(12))
    written(tmp_path, "dev", documents(2, 3))
    prepared = prepare(config_of(tmp_path, dev=DEV, test=DEV))
    found = sources_of(prepared)
    lines = [source for source, _ in documents(12)]
    expected = [with_context(*pair) for pair in zip(contexts_of(lines, 2), lines, strict=True) if pair[1]]
    assert found == expected
    assert prepared.dev.sources == [source for source, _ in documents(2, 3)]
    assert prepared.dev.contexts == list(contexts_of(prepared.dev.sources, 2))


@pytest.mark.parametrize("filters", [[], ["copies"], ["copies", "near_duplicates"]], ids=["none", "one", "whole text"])
def test_what_is_dropped_is_still_the_context_of_the_next_line(tmp_path: Path, filters: list[str]) -> None:
    pairs = documents(12)
    pairs[5] = ("lone line", "")  # blank on one side: dropped, but no document ends there
    pairs[10] = ("nice melon on old melon", "nice melon on old melon")  # a copy
    pairs[16] = pairs[11]  # a duplicate
    written(tmp_path, "train", pairs)
    written(tmp_path, "dev", documents(2, 3))
    prepared = prepare(config_of(tmp_path, dev=DEV, test=DEV, clean=filters))
    lines = [source for source, _ in pairs]
    context_of = dict(reversed([*zip(lines, contexts_of(lines, 2), strict=True)]))  # of the first of the two
    found = {source.rpartition(f"{END_OF_CONTEXT} ")[2]: source for source in sources_of(prepared)}
    assert list(found.values()) == [with_context(context_of[line], line) for line in found]
    dropped = {"", pairs[5][0], *(["nice melon on old melon"] if filters else [])}
    assert set(found) <= set(lines) - dropped
    if "near_duplicates" in filters:
        assert 10 < len(found) < 45
    else:
        assert set(found) == set(lines) - dropped
        assert found["document 1 line 1"] == f"lone line{END_OF_CONTEXT} document 1 line 1"
        assert found["document 2 line 1"] == f"nice melon on old melon{END_OF_CONTEXT} document 2 line 1"


def test_the_same_pairs_are_kept_and_held_out_with_a_context_and_without(tmp_path: Path) -> None:
    written(tmp_path, "train", [*documents(60), *documents(20)])
    kept = {}
    for n_context in (0, 2):
        data = config_of(tmp_path, context_sentences=n_context, holdout=5)
        with TemporaryDirectory(dir=tmp_path) as spool:
            splits = load_splits(data, Path(spool))
            text, report = clean(splits.train, drop_duplicates=True, held_out=splits.held_out)
            kept[n_context] = list(text.each()), report, [*splits.dev.each()], splits.held_out
    assert kept[0] == kept[2]


@pytest.mark.parametrize("fold", [None, "2/3"])
def test_held_out_pairs_keep_the_context_that_they_had(tmp_path: Path, fold: str | None) -> None:
    pairs = documents(60)
    written(tmp_path, "train", pairs)
    lines = [source for source, _ in pairs]
    context_of = dict(zip(lines, contexts_of(lines, 2), strict=True))
    prepared = prepare(config_of(tmp_path, fold=fold, holdout=5))
    assert prepared.test is not None
    for text in (prepared.dev, prepared.test):
        assert text.contexts == [context_of[line] for line in text.sources]
        assert text_of(json.loads(json.dumps(plain_text(text)))) == text
        assert text.pick([1]).contexts == text.contexts[1:2]
    if fold is None:
        again = _open(next((tmp_path / "cache").glob("*/prepared-*")), TASKS["translation"])
        assert again.dev == prepared.dev


def test_no_length_ratio_counts_the_context(tmp_path: Path) -> None:
    written(tmp_path, "train", documents(12))
    written(tmp_path, "dev", documents(2, 3))
    found = prepare(config_of(tmp_path, dev=DEV, test=DEV, max_ratio=2.5))
    assert found.report.n_uneven == 0
    assert found.report.n_kept == 48


def test_long_sources_lose_the_oldest_sentences_and_no_pair_is_dropped_for_its_context(tmp_path: Path) -> None:
    written(tmp_path, "train", documents(12))
    written(tmp_path, "dev", documents(2, 3))
    longest = max(prepare(config_of(tmp_path, dev=DEV, test=DEV)).train.source_lengths) - 2
    cut = prepare(config_of(tmp_path, dev=DEV, test=DEV, max_length=int(longest)))
    assert cut.report.n_long == 0
    assert max(cut.train.source_lengths) <= longest
    assert any(source.count(END_OF_CONTEXT) == 1 and "line 3" in source for source in sources_of(cut))


@pytest.mark.parametrize(
    ("settings", "other"),
    [
        ({"bidirectional": True}, "data.bidirectional=true"),
        ({"truncate_source": True}, "data.truncate_source=true"),
        ({"task": "language_model"}, "data.task=language_model"),
        ({"tokenizer": TokenizerConfig(kind=TokenizerKind.word)}, "data.tokenizer.kind=word"),
    ],
)
def test_what_does_not_go_with_a_context_is_refused(settings: dict[str, Any], other: str) -> None:
    with pytest.raises(ConfigError, match=f"data.context_sentences=2: does not go with {other}. Leave one of them out"):
        config_of(Path(), **settings)


def test_augmentation_and_guided_alignment_are_refused_with_a_context() -> None:
    base = ["data=files", "data.source_lang=en", "data.target_lang=fr", "data.train=corpus", "data.context_sentences=1"]
    with pytest.raises(ConfigError, match=r"does not go with data\.augment\.typos"):
        load_config("train", [*base, "data.augment.typos=0.1"])
    with pytest.raises(ConfigError, match=r"puts sentences before the words that train\.guided_alignment=0\.1"):
        load_config("train", [*base, "train.guided_alignment=0.1"])


# ---- Translating


def translator(tokenizer: Tokenizer, n_context: int, **text: Any) -> Translator:
    described = TrainingText(source_lang="en", target_lang="xx", context_sentences=n_context, **text)
    return translator_of(tokenizer, text=described, **GREEDY)


def planned(translator: Translator, lines: Sequence[str], **how: Any) -> list[list[str]]:
    tokenizer = translator.tokenizers.source
    return [[tokenizer.decode(one.ids) for one in line.segments] for line in translator.planner.plan(lines, **how)]


def test_the_lines_of_a_call_are_documents(tokenizer: Tokenizer) -> None:
    expected = [[with_context(*pair)] if pair[1].strip() else [] for pair in zip(CONTEXTS, LINES, strict=True)]
    assert planned(translator(tokenizer, 2), LINES) == expected
    assert planned(translator(tokenizer, 0), LINES) == [[line] if line.strip() else [] for line in LINES]


def test_given_contexts_take_the_place_of_the_lines_before(tokenizer: Tokenizer) -> None:
    found = planned(translator(tokenizer, 2), ["it was", "milk"], contexts=[("the cat",), ()])
    assert found == [[f"the cat{END_OF_CONTEXT} it was"], ["milk"]]


def test_a_translation_depends_on_the_line_and_its_context_alone(tokenizer: Tokenizer) -> None:
    one = translator(tokenizer, 2)
    together = [result.text for result in one.translate(LINES)]
    apart = [one.translate([line], contexts=[context])[0].text for line, context in zip(LINES, CONTEXTS, strict=True)]
    assert together == apart
    assert together[3] == together[6] == ""


def test_the_parts_of_a_long_line_are_the_context_of_those_behind(tokenizer: Tokenizer) -> None:
    one = translator(tokenizer, 1, max_length=12)
    (parts,) = planned(one, ["the cat sat down in her chair it drank milk and it was a pretty chair"])
    plain = [part.rpartition(f"{END_OF_CONTEXT} ")[2] for part in parts]
    assert len(parts) > 1
    assert parts[0] == plain[0]
    tokens = [len(segment.ids) for segment in one.planner.plan(["the cat sat down in her chair"])[0].segments]
    assert max(tokens) <= 11


def test_positions_of_the_context_are_no_words_of_the_line(tokenizer: Tokenizer) -> None:
    one = translator(tokenizer, 2)
    for line, context in zip(one.planner.plan(LINES), CONTEXTS, strict=True):
        for segment in line.segments:
            assert tokenizer.decode(segment.ids[segment.n_tags :]) == segment.text
            assert (segment.n_tags > 0) == bool(context)


def test_an_engine_that_reads_lines_as_text_is_refused(tokenizer: Tokenizer) -> None:
    from transformer_cli.addons.interop.firefox_engine import FIREFOX_ALONE
    from transformer_cli.config.decode import DecodeConfig
    from transformer_cli.decoding.engine import check_supported

    with pytest.raises(ConfigError, match=r"data\.context_sentences=2: the model reads .* engine=firefox cannot"):
        check_supported(FIREFOX_ALONE, DecodeConfig(**GREEDY), n_context=2)


def test_dev_text_of_a_file_has_the_contexts_of_its_order(tmp_path: Path) -> None:
    written(tmp_path, "train", documents(3))
    written(tmp_path, "dev", documents(2, 3))
    text = load_text(config_of(tmp_path, dev=DEV), "dev")
    assert text is not None
    assert text.contexts == list(contexts_of([source for source, _ in documents(2, 3)], 2))
    assert load_text(config_of(tmp_path, dev=DEV, context_sentences=0), "dev").contexts == []  # type: ignore[union-attr]


def test_facts_about_the_training_text_are_those_of_the_lines_alone(tmp_path: Path) -> None:
    """Two sentences of a document are no line of two sentences, and a test line is found behind its context."""
    pairs = [(source and f"{source}.", target and f"{target}.") for source, target in documents(12)]
    written(tmp_path, "train", pairs)
    written(tmp_path, "dev", documents(2, 3))
    prepared = prepare(config_of(tmp_path, dev=DEV, test=DEV))
    assert any("." in source[:-1] for source in sources_of(prepared))
    assert share_of_several(prepared.train, prepared.tokenizers.source, "en") == 0
    sources = ["document 1 line 2.", "document 1 line 9."]
    ((pair_numbers, source_numbers),) = leaks([ParallelText(sources, [sources[0].upper(), "x"])], prepared)
    assert pair_numbers.tolist() == source_numbers.tolist() == [0]


def test_other_subwords_of_a_source_keep_its_breaks(tokenizer: Tokenizer) -> None:
    (ids,) = tokenizer.encode([f"<2xx> the cat sat{END_OF_CONTEXT} it drank milk"])
    for drawn in tokenizer.sample([ids] * 5, range(5), alpha=0.5):
        assert tokenizer.decode(drawn) == tokenizer.decode(ids)
        assert drawn.count(ContextEncoder(tokenizer, 1).break_id) == 1


@pytest.mark.slow
def test_a_stopped_run_resumes_as_one_that_was_not(tmp_path: Path) -> None:
    written(tmp_path, "train", documents(12))
    written(tmp_path, "dev", documents(2, 3))
    data = config_of(tmp_path, dev=DEV, test=DEV)
    settings = config(data=data, tokens_per_update=300, max_tokens_per_microbatch=300, max_steps=4, eval_every=2)
    assert_resumes(tmp_path / "runs", settings, stopped_before=4, corpus=prepare(data))
    file = read_model(tmp_path / "runs/whole/model.safetensors")
    assert file.data["context_sentences"] == 2
    assert training_text([file]).context_sentences == 2
