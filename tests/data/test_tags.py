"""Tags: in the files of a corpus, in its vocabulary, before the lines that are translated, and in scores."""

import json
import logging
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu

from tests.data.test_prepare import SOURCES, TARGETS, ids_of, prepared_folders, texts, write
from tests.support.contract import run
from tests.support.each import each
from tests.toy.translator import PLAIN, random_model, sentences, toy_tokenizer, translator_of
from tests.toy.translator import texts as translations
from transformer_cli.config.compose import load_config, to_plain
from transformer_cli.config.data import DataConfig, TokenizerConfig
from transformer_cli.config.tags import language_of, languages_named
from transformer_cli.data.clean import clean, keep_mask
from transformer_cli.data.corpus import ParallelText, TextPart, load_text
from transformer_cli.data.prepare import prepare
from transformer_cli.data.splits import hold_out
from transformer_cli.data.subwords import resegmented
from transformer_cli.data.tags import split_tags, with_tags
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.data.unknown import unknown_characters
from transformer_cli.decoding.results import TranslateOptions
from transformer_cli.decoding.terminology import Term, Terminology
from transformer_cli.decoding.training_text import TrainingText
from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.saved import language_of_lines
from transformer_cli.models.file import ModelFile, model_pieces, unpack_model

TAGS = ["<2fr>", "<2de>", "<bt>"]
GERMAN = [line.replace("the", "das").replace("saw", "sah").replace("red book", "rote Buch") for line in SOURCES]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([*sentences(200, seed=0), ". ! ?"], TokenizerConfig(vocab_size=90), seed=1, tags=TAGS)


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    """English into French and German, 40 pairs each."""
    for split, rows in {"train": slice(None), "dev": slice(0, 3), "test": slice(3, 5)}.items():
        for language, lines in {"en": SOURCES, "fr": TARGETS, "de": GERMAN}.items():
            write(tmp_path, f"{split}.{language}", lines[rows])
    return DataConfig(
        source_lang="en",
        target_lang="fr+de",
        root=str(tmp_path),
        train=["train.en", "train.fr", "train.en", "train.de"],
        dev=["dev.en", "dev.fr", "dev.en", "dev.de"],
        test=["test.en", "test.fr", "test.en", "test.de"],
        tags=["<2fr>", "<2de>"],
        dev_tags=["<2fr>", "<2de>"],
        test_tags=["<2fr>", "<2de>"],
        cache=str(tmp_path / "cache"),
        tokenizer=TokenizerConfig(vocab_size=70),
    )


# ---- Lines


@each(
    "line, tags, rest",
    [
        ("<2de> A dog", ["<2de>"], "A dog"),
        ("<2de><bt>A dog", ["<2de>", "<bt>"], "A dog"),
        ("  <2de>\t<2de> A dog ", ["<2de>", "<2de>"], "A dog "),
        ("\ufeff<2de>\u200b A dog", ["<2de>"], "A dog"),
        ("\ufeffA dog", [], "\ufeffA dog"),
        ("A <2de> dog", [], "A <2de> dog"),
        ("  A dog", [], "  A dog"),
        ("<2de>", ["<2de>"], ""),
        ("<2d> A dog", [], "<2d> A dog"),
        ("<2de>x> A dog", ["<2de>x>"], "A dog"),
    ],
)
def test_tags_are_those_that_a_line_begins_with(line: str, tags: list[str], rest: str) -> None:
    assert split_tags(line, ["<2de>", "<bt>", "<2de>x>"]) == (tags, rest)


def test_a_tag_that_ends_as_a_word_does_stands_alone() -> None:
    assert split_tags("fra_Latn Bonjour", ["fra_Latn"]) == (["fra_Latn"], "Bonjour")
    assert split_tags("fra_Latns", ["fra_Latn"]) == ([], "fra_Latns")


def test_a_line_with_tags_of_its_own_keeps_these() -> None:
    assert with_tags("A dog", "<2de> <bt>", TAGS) == "<2de> <bt> A dog"
    assert with_tags("<2fr> A dog", "<2de>", TAGS) == "<2fr> A dog"
    assert with_tags(" ", "<2de>", TAGS) == " "


@each(
    "tag, language",
    [
        ("<2de>", "de"),
        ("<de>", "de"),
        (">>de<<", "de"),
        ("__de__", "de"),
        ("<to:de>", "de"),
        ("<2pt_BR>", "pt_BR"),
        ("<2pt>", ""),
        ("<bt>", ""),
        ("<domain:de>", ""),
        ("<deutsch>", ""),
    ],
)
def test_a_tag_names_a_language_as_people_write_it(tag: str, language: str) -> None:
    assert "".join(languages_named([tag], ["de", "pt_BR"])) == language


def test_the_tag_of_the_target_is_told_from_that_of_the_source() -> None:
    assert language_of(["<en>", "<2de>"], "de+en") == "de"
    assert language_of(["<en>", "<de>"], "de+en") == ""
    assert language_of([], "de") == "de"


# ---- The config

NO_TAGS: dict[str, Any] = {"dev_tags": [], "test_tags": []}


@each(
    "changes, message",
    [
        ({"tags": ["2de"]}, "'2de' could be a part of a text. Put it in marks, as <2de>"),
        ({"tags": ["</s>"]}, "</s> is a control token"),
        ({"tags": ["<2fr>", "<bt>"], **NO_TAGS}, "data.tags: '<bt>', of corpus 2, names none of the languages"),
        (
            {"tags": ["<2fr>", "<2de> <2fr>"], **NO_TAGS},
            "data.tags: '<2de> <2fr>', of corpus 2, names de and fr of the languages",
        ),
        ({"dev_tags": ["<2fr>", "<2it>"]}, "no corpus of data.tags has <2it>"),
        ({"target_lang": "fr+de+it"}, "data.target_lang=fr+de+it: no corpus has a tag for it"),
        ({"target_lang": "fr+fr"}, "must be different languages"),
        ({"languages": ["en", "fr"]}, "data.source_lang=en data.target_lang=fr+de: data=files has en and fr"),
        ({"languages": ["en", "fr+de"], "target_lang": "de"}, "data=files has en and fr+de"),
        ({"tokenizer": TokenizerConfig(user_symbols=["<2de>"])}, "<2de> is a tag already"),
        ({"dev": None}, "data.dev names no files"),
        ({"dev_tags": []}, "data.dev_tags: not set, although data.tags is, but data.dev names 2 corpora"),
        ({"test_tags": ["<2fr>"]}, "data.test_tags=['<2fr>']: 1 entries, but data.test names 2 corpora"),
        ({"tags": ["<2de>", "<2fr>"]}, "corpus 1 of data.train has <2de>, but its translations are in train.fr"),
        ({"tags": [], "dev_tags": [], "test_tags": []}, "data.target_lang=fr+de: several languages, and no tags"),
    ],
)
def test_tags_that_cannot_be_meant_are_refused(config: DataConfig, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        prepare(replace(config, **changes))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_tags_are_for_translation() -> None:
    with pytest.raises(ConfigError, match=r"data.tags=\['<a>'\]: data.task=classification has none"):
        load_config("train", ["data=labels", "data.train=x.tsv", "data.tags=['<a>']"])


# ---- A prepared corpus


def test_each_corpus_is_trained_on_with_its_tags(config: DataConfig) -> None:
    prepared = prepare(config)
    expected = [f"<2fr> {line}" for line in SOURCES] + [f"<2de> {line}" for line in SOURCES]
    held = {f"{tag} {line}" for tag in ("<2fr>", "<2de>") for line in SOURCES[:5]}
    assert [source for source, _ in texts(prepared)] == expected
    assert [target for _, target in texts(prepared)] == TARGETS + GERMAN
    assert held <= set(expected)
    tokenizer = prepared.tokenizers.source
    ids = {tag: tokenizer.encode([tag])[0] for tag in config.tags}
    assert all(len(found) == 1 for found in ids.values())
    plain = tokenizer.without_tags().encode(SOURCES)
    sources = ids_of(prepared.train)[0]
    assert sources[:40] == [[*ids["<2fr>"], *line, tokenizer.eos_id] for line in plain]
    assert sources[40:] == [[*ids["<2de>"], *line, tokenizer.eos_id] for line in plain]


def by_part(text: ParallelText) -> dict[str, ParallelText]:
    ends = accumulate(part.n for part in text.parts)
    return {part.name: text.pick(range(end - part.n, end)) for part, end in zip(text.parts, ends, strict=True)}


def test_dev_and_test_know_their_parts(config: DataConfig) -> None:
    prepared = prepare(config)
    assert prepared.test is not None
    assert prepared.dev.parts == [TextPart("<2fr>", 3, "fr"), TextPart("<2de>", 3, "de")]
    assert list(by_part(prepared.test)) == ["<2fr>", "<2de>"]
    assert by_part(prepared.test)["<2de>"].sources == [f"<2de> {line}" for line in SOURCES[3:5]]
    assert by_part(prepared.test)["<2de>"].targets == GERMAN[3:5]
    assert prepare(config).dev == prepared.dev  # from the cache
    first = prepared.dev.first(4)
    assert first.sources == [f"{tag} {line}" for tag in config.tags for line in SOURCES[:2]]
    assert [part.n for part in first.parts] == [2, 2]


def test_parts_with_the_same_tags_are_told_apart_by_their_files(config: DataConfig) -> None:
    same = replace(config, target_lang="de", tags=["<bt>", "<bt>"], dev_tags=["", "<bt>"], test_tags=["<bt>", "<bt>"])
    dev, test = load_text(same, "dev"), load_text(same, "test")
    assert dev is not None
    assert test is not None
    assert [part.name for part in dev.parts] == ["dev.fr", "<bt>"]
    assert [part.name for part in test.parts] == ["<bt> test.fr", "<bt> test.de"]


def test_a_corpus_without_tags_beside_one_with(config: DataConfig) -> None:
    mixed = replace(
        config,
        target_lang="fr",
        train=["train.en", "train.fr"] * 2,
        tags=["", "<bt>"],
        dev=None,
        test=None,
        holdout=1,
        **NO_TAGS,
    )
    prepared = prepare(mixed)
    sources = [source for source, _ in texts(prepared)]
    assert len(sources) == len(set(sources))  # with its tag a pair is another pair
    assert sum(source.startswith("<bt> ") for source in sources) == len(sources) // 2


def test_lines_that_have_tags_already_keep_them(config: DataConfig, caplog: pytest.LogCaptureFixture) -> None:
    write(Path(str(config.root)), "train.en", ["<2de> der Hund", *SOURCES[1:]])
    with caplog.at_level(logging.WARNING):
        prepared = prepare(config)
    assert texts(prepared)[0][0] == "<2de> der Hund"
    assert sum("2 source lines begin with a tag already" in message for message in caplog.messages) == 1
    caplog.clear()
    prepare(replace(config, line_tags=["<2de>"]))
    assert len(prepared_folders(config)) == 2
    assert not any("begin with a tag" in message for message in caplog.messages)


def test_tags_in_the_lines_alone_are_known(config: DataConfig) -> None:
    lines = [f"{TAGS[i % 2]} {line}" for i, line in enumerate(SOURCES)]
    for split in ("train", "dev"):
        write(Path(str(config.root)), f"{split}.en", lines[: 40 if split == "train" else 3])
    alone = replace(
        config, target_lang="fr", train="train", dev="dev", test=None, tags=[], dev_tags=[], test_tags=[],
        line_tags=["<2fr>", "<2de>"],
    )  # fmt: skip
    prepared = prepare(alone)
    assert {source.split()[0] for source, _ in texts(prepared)} == {"<2fr>", "<2de>"}
    assert prepared.tokenizers.source.tags == ("<2fr>", "<2de>")


def test_a_tag_in_the_middle_of_a_line_or_on_the_target_side_is_text(config: DataConfig) -> None:
    write(Path(str(config.root)), "train.en", ["say <2de> now", *SOURCES[1:]])
    write(Path(str(config.root)), "train.de", ["<2de> jetzt", *GERMAN[1:]])
    prepared = prepare(config)
    assert ("<2de> say <2de> now", "<2de> jetzt") in texts(prepared)
    (tag,) = prepared.tokenizers.source.encode(["<2de>"])[0]
    sources, targets = ids_of(prepared.train)
    assert [ids.count(tag) for ids in sources] == [0] * 40 + [1] * 40
    assert not any(tag in ids for ids in targets)


def test_other_tags_are_another_cache_and_no_tags_the_one_of_before(config: DataConfig) -> None:
    prepare(config)
    prepare(replace(config, dev_tags=["<2fr>", "<2de>"]))
    assert len(prepared_folders(config)) == 1
    renamed = replace(config, tags=["<fr>", "<de>"], dev_tags=["<fr>", "<de>"], test_tags=["<fr>", "<de>"])
    prepare(renamed)
    assert len(prepared_folders(config)) == 2


# ---- Filters


def test_the_length_ratio_counts_no_tags() -> None:
    # 3 tokens of which 2 are tags, against 1: 1 to 1; and without tags 3 to 1.
    source, target = np.array([3, 3, 2]), np.array([1, 1, 1])
    assert keep_mask(source, target, 9, 2.0, n_tags=np.array([2, 0, 2])).tolist() == [True, False, False]
    assert keep_mask(np.array([3]), np.array([3]), 2, 9.0, n_tags=np.array([2])).tolist() == [False]  # too long


def test_a_tag_without_text_is_a_blank_line() -> None:
    text = ParallelText(["<bt> a", "<bt>", "a", "<bt> a"], ["b", "b", "b", "b"])
    kept, report = clean(text, drop_duplicates=True, tags=TAGS)
    assert list(kept.each()) == [("<bt> a", "b"), ("a", "b")]
    assert (report.n_blank, report.n_duplicate) == (1, 1)


def test_what_is_held_out_with_one_tag_is_not_trained_on_with_another() -> None:
    sources = [f"{tag} {line}" for tag in ("<2fr>", "<2de>") for line in "abcdefgh"]
    text = ParallelText(sources, list("ABCDEFGHijklmnop"))
    held = hold_out(text, 1, 1, tags=TAGS)
    assert len(held.text) == 2  # one with each
    assert {split_tags(source, TAGS)[1] for source in held.text.sources} == held.sources
    kept, _ = clean(text, drop_duplicates=True, held_out=held.sources, tags=TAGS)
    assert len(kept) == 14
    assert not held.sources & {split_tags(source, TAGS)[1] for source, _ in kept.each()}


def test_a_leak_is_found_whatever_the_tags(config: DataConfig) -> None:
    de_only = replace(
        config, train=["train.en", "train.de"], target_lang="de", tags=["<bt>"], dev_tags=["", ""], test_tags=["", ""]
    )
    assert any("data.dev: 3 training pairs" in warning for warning in prepare(de_only).warnings)


# ---- The tokenizer


def test_a_tag_is_one_id_before_the_pieces_of_the_text(tokenizer: Tokenizer) -> None:
    plain, tagged, glued, twice, inside = tokenizer.encode(
        ["the cat .", "<2de> the cat .", "<2de>the cat .", "<2de> <bt> the cat .", "the <2de> cat ."]
    )
    assert tokenizer.tags == tuple(TAGS)
    tags = [tokenizer.encode([tag])[0][0] for tag in TAGS]
    assert tokenizer.pieces(tags) == TAGS
    assert tagged == glued == [tags[1], *plain]
    assert twice == [tags[1], tags[2], *plain]
    assert not set(inside) & set(tags)
    assert tokenizer.decode(tagged) == "<2de> the cat ."
    assert tokenizer.decode([*plain, *tags]) == "the cat ."  # nowhere else are they shown


def test_a_target_has_no_tags(tokenizer: Tokenizer) -> None:
    tokenizers = Tokenizers(tokenizer, tokenizer)
    assert tokenizers.joint
    (ids,) = tokenizers.target.encode(["<2de> the cat ."])
    assert tokenizer.unk_id in ids or len(ids) > 4
    assert tokenizers.target.decode([4, *tokenizer.encode(["the cat ."])[0]]) == "the cat ."


def test_subword_dropout_leaves_tags_alone(tokenizer: Tokenizer) -> None:
    text = ["<2de> <bt> the pretty woman drank milk .", "the cat sat down ."] * 20
    ids = tokenizer.encode(text)
    drawn = tokenizer.sample(ids, range(len(text)), alpha=0.5)
    assert [tokenizer.decode(one) for one in drawn] == text
    assert all(one[:2] == ids[0][:2] for one in drawn[::2])
    assert len({tuple(one) for one in drawn[::2]}) > 1


def test_case_folding_leaves_tags_alone() -> None:
    config = TokenizerConfig(vocab_size=60, fold_case=True)
    folding = train_tokenizer(sentences(50, seed=0), config, seed=1, tags=["<2DE>"])
    tagged, plain = folding.encode(["<2DE> The Cat .", "the cat ."])
    assert folding.pieces(tagged) == ["<2DE>", *folding.pieces(plain)]


def test_no_text_is_lost_that_looks_like_a_tag() -> None:
    lines = ["<2de> xyz", "a <2de> xyz"] * 20
    pieces = train_tokenizer(lines, TokenizerConfig(vocab_size=20), seed=1, tags=["<2de>"])
    assert not pieces.unknown_ids & set(pieces.encode(["a <2de> xyz 2de"])[0])


def test_characters_of_a_tag_are_never_unknown(tokenizer: Tokenizer) -> None:
    (ids,) = tokenizer.encode(["<2de> the ☃"])
    assert unknown_characters("<2de> the ☃", ids, tokenizer) == ("☃",)


def test_resegmented_pairs_keep_their_tags(config: DataConfig) -> None:
    prepared = prepare(config)
    seeds = np.arange(2 * len(prepared.train)).reshape(2, -1)
    drawn = resegmented(prepared.train, prepared.tokenizers, seeds, dropout=0.5, max_length=50)
    assert texts(replace(prepared, train=drawn)) == texts(prepared)
    firsts = [ids[0] for ids in ids_of(drawn)[0]]
    assert firsts == [ids[0] for ids in ids_of(prepared.train)[0]]


# ---- Translation

LINES = ["the cat drank milk .", "a pretty woman sat down in her chair and it was milk .", "", "it was ."]


def given_tag(tokenizer: Tokenizer, tag: str, **settings: Any) -> Any:
    options = TranslateOptions(tags=tuple(tag.split()), **settings.pop("options", {}))
    return translator_of(tokenizer, model=random_model(tokenizer), options=options, **settings)


def test_a_tag_for_all_lines_is_a_tag_on_every_line(tokenizer: Tokenizer) -> None:
    tagged = translator_of(tokenizer, model=random_model(tokenizer)).translate([f"<2de> {line}" for line in LINES])
    assert translations(given_tag(tokenizer, "<2de>").translate(LINES)) == translations(tagged)
    untagged = translator_of(tokenizer, model=random_model(tokenizer)).translate(LINES)
    assert translations(tagged) != translations(untagged)


def test_the_tag_of_a_line_wins(tokenizer: Tokenizer) -> None:
    lines = [f"<2fr> {line}" for line in LINES]
    plain = translator_of(tokenizer, model=random_model(tokenizer))
    assert translations(given_tag(tokenizer, "<2de>").translate(lines)) == translations(plain.translate(lines))


def test_every_part_of_a_long_line_has_the_tags(tokenizer: Tokenizer) -> None:
    line = " ".join(sentences(8, seed=3, longest=9))
    translator = given_tag(tokenizer, "<2de> <bt>", max_source_length=12)
    (planned,) = translator.planner.plan([line])
    tags = tokenizer.encode(["<2de> <bt>"])[0]
    assert len(planned.segments) > 3
    assert all(segment.ids[:2] == tags for segment in planned.segments)
    assert all(segment.n_tags == 2 and len(segment.ids) <= 12 for segment in planned.segments)
    assert not any(set(tags) & set(segment.ids[2:]) for segment in planned.segments)
    assert " ".join(segment.text for segment in planned.segments) == line
    (cut,) = given_tag(tokenizer, "<2de>", max_source_length=5, long_lines="cut").planner.plan([line])
    assert cut.segments[0].ids == [tags[0], *tokenizer.encode([line])[0][:4]]


def test_a_line_of_tags_alone_is_blank(tokenizer: Tokenizer) -> None:
    assert translations(translator_of(tokenizer, model=random_model(tokenizer)).translate(["<2de> "])) == [""]
    assert given_tag(tokenizer, "<2de>").room(["<2fr>", "the cat ."])[0] is None


def test_a_tag_is_no_word_of_the_source(tokenizer: Tokenizer) -> None:
    options = {"alignments": True, "token_scores": True}
    plain = translator_of(tokenizer, model=random_model(tokenizer), options=TranslateOptions(**options))
    for line in ("the cat drank milk .", "milk"):
        (found,) = plain.translate([f"<2de> <bt> {line}"])
        assert found.alignment is not None
        assert max(i for i, _ in found.alignment) < len(line.split())
    # A term of the source is looked for behind the tag, which is not one of its words.
    terms = Terminology([Term("2de", ("cat",), 1), Term("the", ("milk",), 2)], name="terms")
    (line,) = given_tag(tokenizer, "<2de>", options={"terminology": terms}).planner.plan(["the cat ."])
    assert [term.source for term in line.segments[0].terms] == ["the"]


def test_a_copy_is_one_whatever_the_tags(tokenizer: Tokenizer) -> None:
    planner = given_tag(tokenizer, "<2de>").planner
    (line,) = planner.plan(["<2de> <bt> the cat drank milk"])
    assert line.text == "the cat drank milk"


def test_a_tag_that_the_model_does_not_have_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(
        ConfigError, match=r"--tag <2d>: the model has no such tag; did you mean `<2de>`\? \(tags: <2fr"
    ):
        given_tag(tokenizer, "<2d>")
    with pytest.raises(ConfigError, match="--tag <2de>: the model has no tags"):
        given_tag(toy_tokenizer(), "<2de>")


def test_a_line_without_the_tag_that_it_needs_is_said_once(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    several = TrainingText(target_lang="fr+de", always_tagged=True)
    translator = translator_of(tokenizer, model=random_model(tokenizer), text=several)
    for _ in range(2):
        translator.translate(["", "<bt> the cat .", "the cat ."], first_line=11)
    assert [message for message in caplog.messages if "tag" in message] == [
        "line 12: has no tag, or several, for one of the target languages fr+de. Give it one, or --tag"
        " (tags: <2fr>, <2de>, <bt>)"
    ]
    caplog.clear()
    translator_of(tokenizer, model=random_model(tokenizer), text=several).translate(["<2de> the cat ."])
    translator_of(tokenizer, model=random_model(tokenizer), text=TrainingText()).translate(["the cat ."])
    assert not [message for message in caplog.messages if "tag" in message]


def test_a_tag_of_another_model_is_said(tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture) -> None:
    translator_of(tokenizer, model=random_model(tokenizer)).translate(["<2es> the cat .", "<b> the cat ."])
    (message,) = [message for message in caplog.messages if "no tag" in message]
    assert message.startswith("line 1: <2es> is no tag of the model, and read as text; did you mean")


def test_japanese_parts_are_joined_without_a_space(tokenizer: Tokenizer) -> None:
    text = TrainingText(target_lang="ja+de")
    tokenizer = train_tokenizer(sentences(50, seed=0), TokenizerConfig(vocab_size=60), seed=1, tags=["<2ja>", "<2de>"])
    planner = translator_of(tokenizer, model=random_model(tokenizer), text=text).planner
    assert [planner.separator(line) for line in planner.plan(["<2ja> the cat .", "<2de> the cat ."])] == ["", " "]


# ---- The commands


def model_bytes(tokenizer: Tokenizer, **data: Any) -> bytes:
    model = random_model(tokenizer)
    entry = to_plain(DataConfig(source_lang="en", target_lang="fr+de", tags=["<2fr>", "<2de> <bt>"], **data))
    file = ModelFile(
        PLAIN,
        Tokenizers(tokenizer, tokenizer),
        model.state_dict(),
        source_lang="en",
        target_lang="fr+de",
        step=1,
        data=entry,
    )
    return b"".join(model_pieces(file))


@pytest.fixture
def folder(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    (tmp_path / "m.safetensors").write_bytes(model_bytes(tokenizer))
    write(tmp_path, "t.en", LINES)
    write(tmp_path, "tagged.en", [f"<2de> {line}" if line else "" for line in LINES])
    write(tmp_path, "t.de", ["the milk drank ."] * 4)
    return tmp_path


MODEL = ["--checkpoint", "m.safetensors", "--device", "cpu"]
MODEL_FILES = ["evaluate", *MODEL, "metrics=[chrf]", "--source", "t.en", "--reference", "t.en"]


def test_translate_and_score_with_a_tag_are_those_of_tagged_lines(folder: Path) -> None:
    """A blank line stays blank in translation; a translation of nothing is scored as one in its language."""
    write(folder, "all_tagged.en", [f"<2de> {line}".rstrip() for line in LINES])
    for command, of_tags in (
        (["translate", "--input"], "tagged.en"),
        (["score", "--translation", "t.de", "--source"], "all_tagged.en"),
    ):
        tagged = run([*command, of_tags, *MODEL], folder)
        given = run([*command, "t.en", "--tag", "<2de>", *MODEL], folder)
        plain = run([*command, "t.en", *MODEL], folder)
        assert (tagged.code, given.code, plain.code) == (0, 0, 0)
        assert given.out == tagged.out
        assert tagged.out != plain.out
        assert b"has no tag" not in given.err + tagged.err
        assert plain.err.count(b"has no tag, or several, for one of the target languages fr+de") == 1


def test_an_unknown_tag_ends_each_command_with_one_line(folder: Path) -> None:
    for command in (
        ["translate", "--input", "t.en"],
        ["score", "--source", "t.en", "--translation", "t.de"],
        ["evaluate", "--source", "t.en", "--reference", "t.de"],
    ):
        refused = run([*command, "--tag", "<2d>", *MODEL], folder)
        assert refused.code == 2
        assert refused.err.count(b"\n") == 1
        assert b"--tag <2d>: the model has no such tag; did you mean `<2de>`?" in refused.err


def test_what_a_model_translates_is_scored_as_its_language(folder: Path) -> None:
    model = unpack_model((folder / "m.safetensors").read_bytes(), folder / "m.safetensors")
    assert language_of_lines(["<2de> a", "<2de> b", ""], model) == "de"
    assert language_of_lines(["a", "b"], model, ["<2fr>"]) == "fr"
    assert language_of_lines(["<2fr> a", "<2de> b"], model) == "fr+de"


def data_of(folder: Path) -> list[str]:
    """A corpus of two parts that the model can be asked for."""
    return [
        *("data=files", "data.source_lang=en", "data.target_lang=fr+de", f"data.root={folder}"),
        *("data.train=[t.en,t.fr,t.en,t.de]", "data.test=[t.en,t.fr,t.en,t.de]"),
        *("data.tags=['<2fr>','<2de>']", "data.test_tags=['<2fr>','<2de>']"),
    ]


def test_the_scores_of_each_direction_are_those_of_sacrebleu_on_its_lines(folder: Path) -> None:
    references = {"fr": sentences(4, seed=8), "de": sentences(4, seed=9)}
    for language, lines in references.items():
        write(folder, f"t.{language}", lines)
    ran = run(["evaluate", *MODEL, *data_of(folder), "--json", "--save", "out", "metrics=[bleu,chrf]"], folder)
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    lines = (folder / "out").read_text().split("\n")[:-1]
    parts = {"fr": lines[:4], "de": lines[4:]}
    assert [(part["test_set"], part["lines"]) for part in found["parts"]] == [
        ("files.test <2fr>", 4),
        ("files.test <2de>", 4),
    ]
    for part, language in zip(found["parts"], ("fr", "de"), strict=True):
        expected = sacrebleu.corpus_bleu(parts[language], [references[language]])
        assert part["scores"][0]["score"] == pytest.approx(expected.score)
        assert part["scores"][1]["score"] == pytest.approx(
            sacrebleu.corpus_chrf(parts[language], [references[language]]).score
        )
    whole = sacrebleu.corpus_bleu(lines, [[*references["fr"], *references["de"]]])
    assert found["scores"][0]["score"] == pytest.approx(whole.score)
    assert found["test_set"] == "files.test"
    given = run(["evaluate", *data_of(folder), "--hypotheses", "out", "--json", "metrics=[bleu,chrf]"], folder)
    assert json.loads(given.out)["parts"] == found["parts"]


def test_languages_with_other_tokenizers_have_no_bleu_together(folder: Path) -> None:
    for language, line in {"zh": "猫喝了牛奶。", "de": "Die Katze trank Milch."}.items():
        write(folder, f"t.{language}", [line] * 4)
    write(folder, "out", ["猫喝了牛奶。"] * 4 + ["Die Katze trank Milch."] * 4)
    data = [word.replace("fr", "zh") for word in data_of(folder)]
    ran = run(["evaluate", *data, "--hypotheses", "out", "--json", "metrics=[bleu,chrf]"], folder)
    found = json.loads(ran.out)
    signatures = [part["scores"][0]["signature"] for part in found["parts"]]
    assert ["tok:zh" in signatures[0], "tok:13a" in signatures[1]] == [True, True]
    assert [score["name"] for score in found["scores"]] == ["chrF2"]
    assert "tokenizers zh and 13a" in found["missing"]["BLEU"]


def test_a_corpus_of_one_language_gets_its_tag(folder: Path) -> None:
    data = ["data=files", "data.source_lang=en", "data.target_lang=de", f"data.root={folder}", "data.test=[t.en,t.de]"]
    command = ["evaluate", *MODEL, "data.train=[t.en,t.de]", "metrics=[chrf]"]
    one = run([*command, *data, "--save", "one"], folder)
    assert b"data=files: its lines get the tag <2de>\n" in one.err
    run(["evaluate", *MODEL, *data_of(folder), "--save", "both", "metrics=[chrf]"], folder)
    write(folder, "t.fr", ["x"] * 4)
    two = run(["evaluate", *MODEL, *data_of(folder), "--save", "both", "metrics=[chrf]"], folder)
    assert two.code == 0, two.err
    assert (folder / "both").read_text().split("\n")[4:] == (folder / "one").read_text().split("\n")


def test_a_named_set_gets_the_tag_of_its_language(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU", str(folder / "cache"))
    (folder / "cache/wmt14").mkdir(parents=True)
    for field in ("src", "ref", "docid", "genre", "origlang"):
        write(folder / "cache/wmt14", f"wmt14.en-de.{field}", LINES)
    command = ["evaluate", *MODEL, "metrics=[chrf]", "--test-set", "wmt14"]
    ran = run([*command, "--languages", "en-de", "--save", "named"], folder)
    assert b"wmt14.en-de: its lines get the tag <2de>\n" in ran.err
    own = run([*MODEL_FILES, "--tag", "<2de>", "--save", "own"], folder)
    assert (ran.code, own.code) == (0, 0)
    assert (folder / "named").read_bytes() == (folder / "own").read_bytes()
    for given, says in (
        ([], b"--languages: not given, and the model translates en \xe2\x86\x92 fr+de. Say the direction of"),
        (["--languages", "en-cs"], b"--languages en-cs: the model translates en \xe2\x86\x92 fr+de. Choose another"),
        (["--languages", "en-de", "--tag", "<2fr>"], b"--tag <2fr>: not of en-de, the direction of --test-set wmt14"),
    ):
        refused = run([*command, *given], folder)
        assert refused.code == 2
        assert refused.err.count(b"\n") == 1
        assert says in refused.err


def test_a_corpus_with_tags_that_the_model_lacks_is_refused(folder: Path) -> None:
    data = [word.replace("<2fr>", "<fr>") for word in data_of(folder)]
    write(folder, "t.fr", ["x"] * 4)
    refused = run(["evaluate", *MODEL, *data], folder)
    assert refused.code == 2
    assert b"its lines have the tag <fr>, but not the model (tags: <2fr>, <2de>, <bt>)" in refused.err


# ---- One run, two languages


def test_one_config_trains_both_directions_and_scores_each(folder: Path) -> None:
    for split, rows in {"train": slice(None), "dev": slice(0, 4)}.items():
        for language, lines in {"en": SOURCES, "fr": TARGETS, "de": GERMAN}.items():
            write(folder, f"{split}.{language}", lines[rows])
    files = {split: f"[{split}.en,{split}.fr,{split}.en,{split}.de]" for split in ("train", "dev")}
    ran = run(
        [
            *("train", "data=files", "data.source_lang=en", "data.target_lang=fr+de", f"data.root={folder}"),
            *(f"data.train={files['train']}", f"data.dev={files['dev']}", f"data.test={files['dev']}"),
            *(f"data.{key}=['<2fr>','<2de>']" for key in ("tags", "dev_tags", "test_tags")),
            *("data.tokenizer.vocab_size=64", "model=tiny", "model.d_model=16", "model.d_ff=16", "model.n_heads=2"),
            *("train.max_steps=2", "train.eval_every=2", "train.eval_lines=4", "train.samples=0", "name=both"),
            *("decode.search=greedy", "decode.beam_size=1", "decode.max_length=4", "--device", "cpu"),
        ],
        folder,
    )
    assert ran.code == 0, ran.err
    rows = [line.split("  ")[0] for line in ran.out.decode().split("\n")]
    assert rows[1:5] == ["test set", "files.test <2fr>", "files.test <2de>", "files.test"]
    entries = [json.loads(line) for line in (folder / "runs/both/metrics.jsonl").read_text().split("\n")[:-1]]
    dev = next(entry for entry in entries if "dev_bleu" in entry)
    assert {"dev_bleu <2fr>", "dev_bleu <2de>"} <= dev.keys()
    assert b"not usable yet: " in ran.err, "after two updates"


@pytest.mark.slow
def test_our_config_of_two_languages_is_made_of_those_of_one(shared_data: Path) -> None:
    def texts_of(name: str) -> tuple[DataConfig, ParallelText]:
        data = load_config("train", [f"data={name}", f"data.root={shared_data / 'multi30k'}"]).data
        text = load_text(data, "test")
        assert text is not None
        return data, text

    (both, text), (de, of_de), (fr, of_fr) = map(texts_of, ("multi30k_en_de_fr", "multi30k_en_de", "multi30k_en_fr"))
    assert {file.url for file in both.downloads} == {file.url for file in [*de.downloads, *fr.downloads]}
    assert by_part(text)["<2de>"].targets == of_de.targets
    assert by_part(text)["<2fr>"].targets == of_fr.targets
    assert text.sources == [f"<2de> {line}" for line in of_de.sources] + [f"<2fr> {line}" for line in of_fr.sources]
