"""Augmentation: what each kind does to a pair, how often, and that a step has the same pairs whenever it comes."""

import re
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.support.each import each
from transformer_cli.addons.augmentation.augment import Augmenter, draw_bits, noise, placeholder
from transformer_cli.addons.augmentation.noise import (
    inserted_at,
    single_word,
    title_case,
    upper_case,
    with_typos,
    without_final_stop,
)
from transformer_cli.config.data import AUGMENTATIONS, AugmentationConfig, DataConfig, TokenizerConfig
from transformer_cli.config.train import TrainConfig
from transformer_cli.data import encoding
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.feed import Feed
from transformer_cli.data.numbered_tags import counted_tags
from transformer_cli.data.placeholders import placeholders_in, spans_to_keep
from transformer_cli.data.prepare import Prepared, prepare
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.errors import ConfigError

PAIRS = [
    ("A dog runs quickly. It barks.", "Ein Hund läuft schnell. Er bellt."),
    ("The children play in the garden.", "Die Kinder spielen im Garten."),
    ("Where is the station?", "Wo ist der Bahnhof?"),
    ("My brother reads newspapers", "Mein Bruder liest Zeitungen"),
]


def tokenizer(*, tags: list[str] | None = None, byte_fallback: bool = True) -> Tokenizer:
    text = [line for pair in PAIRS for line in pair]
    text += [line.upper() for line in text] + ["".join(sorted(set("".join(text))))]
    config = TokenizerConfig(vocab_size=400 if byte_fallback else 120, byte_fallback=byte_fallback)
    return train_tokenizer(text, config, seed=1, tags=tags or [])


TOKENIZER = tokenizer()
TOKENIZERS = Tokenizers(TOKENIZER, TOKENIZER)


def corpus_of(pairs: list[tuple[str, str]], tokenizers: Tokenizers = TOKENIZERS) -> EncodedCorpus:
    sides = [tokenizers.source, tokenizers.target]
    encoded = [side.encode([pair[i] for pair in pairs], as_written=True) for i, side in enumerate(sides)]
    ids = [[[*one, 3] for one in side] for side in encoded]
    return EncodedCorpus.of(*ids)


CORPUS = corpus_of(PAIRS)


def config(**augment: Any) -> DataConfig:
    return DataConfig(source_lang="en", target_lang="de", augment=AugmentationConfig(**augment))


def texts(corpus: EncodedCorpus, tokenizers: Tokenizers = TOKENIZERS) -> list[tuple[str, str]]:
    def lines(side: Tokenizer, ids: Any, offsets: Any) -> list[str]:
        return [side.decode(part.tolist()) for part in np.split(ids, offsets[1:-1])]

    return list(
        zip(
            lines(tokenizers.source, corpus.source_ids, corpus.source_offsets),
            lines(tokenizers.target, corpus.target_ids, corpus.target_offsets),
            strict=True,
        )
    )


def augmented(settings: DataConfig, *, epoch: int = 0, seed: int = 1) -> list[tuple[str, str]]:
    everything = np.arange(len(CORPUS))
    return texts(Augmenter(CORPUS, TOKENIZERS, settings, seed).augmented(CORPUS, everything, epoch=epoch))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("upper_case", ("WHERE IS THE STATION?", "WO IST DER BAHNHOF?")),
        ("title_case", ("Where Is The Station?", "Wo Ist Der Bahnhof?")),
        ("no_final_stop", ("Where is the station", "Wo ist der Bahnhof")),
    ],
)
def test_what_changes_a_line_changes_both_sides_or_the_source_alone(kind: str, expected: tuple[str, str]) -> None:
    assert augmented(config(**{kind: 1.0}))[2] == expected
    assert augmented(config(**{kind: 1.0, "source_only": [kind]}))[2] == (expected[0], PAIRS[2][1])


@each(
    "line, expected",
    [
        ('He said: "Go."', 'He said: "Go"'),
        ("Er sagte: „Geh.“", "Er sagte: „Geh“"),
        ("»Er kam.«", "»Er kam«"),
        ("« Il part.\u00a0»", "« Il part\u00a0»"),
        ("他说：【好。】", "他说：【好】"),
    ],
)
def test_a_final_stop_is_taken_from_before_closing_quotes(line: str, expected: str) -> None:
    assert without_final_stop(line) == expected


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"source_only": ["no_final_stop"], "no_final_stop": 1e-9},
        {"source_only": ["typos"]},  # as saved configs of some runs have it
    ],
)
def test_typos_are_in_the_source_alone(settings: dict[str, Any]) -> None:
    for before, (source, target) in zip(PAIRS, augmented(config(typos=1.0, **settings)), strict=True):
        assert source != before[0]
        assert target == before[1]


def test_a_pair_is_merged_with_another_on_both_sides_and_never_with_itself() -> None:
    partners = set()
    for epoch in range(10):
        for before, after in zip(PAIRS, augmented(config(merged=1.0), epoch=epoch), strict=True):
            merged = {
                (f"{before[0]} {source}", f"{before[1]} {target}"): source
                for source, target in PAIRS
                if source != before[0]
            }
            partners.add(merged[after])
    assert partners == {source for source, _ in PAIRS}


def test_a_pair_of_two_sentences_is_split_and_one_of_one_is_not() -> None:
    split = augmented(config(split=1.0))
    assert split[0] in [("A dog runs quickly.", "Ein Hund läuft schnell."), ("It barks.", "Er bellt.")]
    assert split[1:] == PAIRS[1:]


def test_a_placeholder_is_on_both_sides() -> None:
    for before, after in zip(PAIRS, augmented(config(placeholders=1.0)), strict=True):
        added = [set(new.split()) - set(old.split()) for old, new in zip(before, after, strict=True)]
        assert len(added[0]) == 1
        assert added[0] == added[1]
        (word,) = added[0]
        assert tuple(" ".join(w for w in new.split() if w != word) for new in after) == before


def test_noise_is_the_same_on_both_sides() -> None:
    for before, (source, target) in zip(PAIRS, augmented(config(noise=1.0)), strict=True):
        assert source == target != before[0]


VERBATIM = ("{name}", "%(n)s", "https://example.com/Path?id=ab", "first.last@example.com", "<item>", "&amp;", "qUx")


@pytest.mark.parametrize("kind", ["upper_case", "title_case", "typos"])
def test_what_must_be_copied_is_left_alone(kind: str) -> None:
    line = " ".join(["the garden", *VERBATIM, "stations"])
    user_symbol = TokenizerConfig(vocab_size=400, byte_fallback=True, user_symbols=["qUx"])
    one = train_tokenizer([line, line.upper()], user_symbol, seed=1)
    corpus = corpus_of([(line, line)], tokenizers := Tokenizers(one, one))
    ((source, target),) = texts(
        Augmenter(corpus, tokenizers, config(**{kind: 1.0}), 1).augmented(corpus, np.arange(1), epoch=0), tokenizers
    )
    words = source.split()
    assert words[2:-1] == list(VERBATIM)
    if kind == "typos":
        assert target == line != source
    else:
        assert target == source
        assert (
            words[:2] + words[-1:]
            == {
                "upper_case": ["THE", "GARDEN", "STATIONS"],
                "title_case": ["The", "Garden", "Stations"],
            }[kind]
        )


def test_what_is_put_in_to_be_copied_is_not_changed_by_other_kinds() -> None:
    kinds: dict[str, Any] = {"upper_case": 1.0, "typos": 1.0, "placeholders": 1.0}
    for epoch in range(20):
        for before, after in zip(PAIRS, augmented(config(**kinds), epoch=epoch), strict=True):
            (added,) = set(after[1].split()) - set(before[1].upper().split())
            assert added in after[0].split()
        assert all(source == target for source, target in augmented(config(noise=1.0, **kinds), epoch=epoch))


TAGGED = [
    ("A <1>dog</1> runs <2/>quickly.", "Ein <1>Hund</1> läuft <2/>schnell."),
    ("<1>The children play. They run.</1>", "<1>Die Kinder spielen. Sie laufen.</1>"),
]


@each("kind", ["upper_case", "title_case", "no_final_stop", "typos", "placeholders", "split"])
def test_numbered_tags_stay_as_they_are(kind: str) -> None:
    corpus = corpus_of(TAGGED)
    augmenter = Augmenter(corpus, TOKENIZERS, config(**{kind: 1.0}), 1)
    for epoch in range(10):
        found = texts(augmenter.augmented(corpus, np.arange(2), epoch=epoch))
        for before, after in zip(TAGGED, found, strict=True):
            assert [*map(counted_tags, after)] == [*map(counted_tags, before)]
        assert (found == TAGGED) is (kind == "split")


def test_numbers_of_tags_go_on_where_pairs_are_merged() -> None:
    corpus = corpus_of(TAGGED)
    merged = texts(Augmenter(corpus, TOKENIZERS, config(merged=1.0), 1).augmented(corpus, np.arange(2), epoch=0))
    assert merged == [
        (
            f"{TAGGED[0][0]} <3>The children play. They run.</3>",
            f"{TAGGED[0][1]} <3>Die Kinder spielen. Sie laufen.</3>",
        ),
        (f"{TAGGED[1][0]} A <2>dog</2> runs <3/>quickly.", f"{TAGGED[1][1]} Ein <2>Hund</2> läuft <3/>schnell."),
    ]


def test_capitals_are_refused_where_the_vocabulary_has_none() -> None:
    with pytest.raises(ConfigError, match=r"upper_case=0\.1: data\.tokenizer\.fold_case=true lowercases every line"):
        replace(config(upper_case=0.1), tokenizer=TokenizerConfig(fold_case=True))


def test_placeholders_and_noise_are_single_words_and_letters() -> None:
    for seed in range(300):
        assert re.fullmatch(r"\S+", placeholder(Random(seed), ["dog"]))
        words = noise(Random(seed)).split(" ")
        assert 2 <= len(words) <= 6
        assert all(word.isalpha() or not word.isascii() for word in words)


def test_placeholders_and_urls_have_the_form_of_one_and_hold_words_of_the_text() -> None:
    made = [placeholder(Random(seed), ["garden", "bahnhof"]) for seed in range(2000)]
    named = [thing for thing in made if re.search("[a-z]", thing) and not thing.startswith("<")]
    assert all([found.text for found in placeholders_in(thing)] == [thing] for thing in named)
    for word in ("garden", "bahnhof"):
        assert {"://" in thing for thing in named if word in thing} == {True, False}
    assert all(placeholder(Random(seed), []) for seed in range(100))


def test_words_in_placeholders_are_whole_words_of_the_corpus_and_pieces_that_it_need_not_have() -> None:
    augmenter = Augmenter(CORPUS, TOKENIZERS, config(placeholders=1.0), 1)
    found = [augmenter._words(Random(seed)) for seed in range(50)]
    spoken = {word for pair in PAIRS for line in pair for word in re.findall(r"\w+", line.lower())}
    assert {word for one in found for word in one[: len(one) // 4]} == {
        word for word in spoken if word.isascii() and len(word) > 1
    }
    pieces = {piece.strip("▁") for piece in TOKENIZERS.source.pieces(range(len(TOKENIZERS.source)))}
    pieces = {piece for piece in pieces if re.fullmatch("[a-z]{2,}", piece)}
    made = [word for one in found for word in one[len(one) // 4 :]]
    assert all(re.fullmatch(f"({'|'.join(pieces)}){{2,4}}", word) for word in made)
    assert pieces == {piece for piece in pieces if any(piece in word for word in made)}


def test_the_share_of_changed_pairs_is_the_rate_whatever_the_kind() -> None:
    drawn = draw_bits(np.arange(50_000), seed=1, epoch=3)
    assert drawn.shape == (len(AUGMENTATIONS) + 1, 50_000)
    shares = ((drawn >> np.uint64(11)) * 2.0**-53 < 0.07).mean(axis=1)
    assert np.allclose(shares, 0.07, atol=4 * (0.07 * 0.93 / 50_000) ** 0.5)  # four standard deviations


def test_what_is_drawn_follows_from_seed_epoch_and_place_alone() -> None:
    settings = config(upper_case=0.3, typos=0.3, merged=0.3, placeholders=0.3)
    assert augmented(settings) == augmented(settings)
    assert len({tuple(augmented(settings, epoch=epoch)) for epoch in range(5)}) > 1
    assert len({tuple(augmented(settings, seed=seed)) for seed in range(5)}) > 1
    few = np.array([2, 0])  # in another update, in another order
    one = Augmenter(CORPUS, TOKENIZERS, settings, 1).augmented(CORPUS.pick(few), few, epoch=0)
    assert texts(one) == [augmented(settings)[2], augmented(settings)[0]]


def test_tags_stay_before_the_text() -> None:
    tagged = tokenizer(tags=["<2de>"])
    tokenizers = Tokenizers(tagged, tagged)
    corpus = corpus_of([(f"<2de> {source}", target) for source, target in PAIRS], tokenizers)
    found = Augmenter(corpus, tokenizers, config(upper_case=1.0), 1).augmented(corpus, np.arange(4), epoch=0)
    assert [source for source, _ in texts(found, tokenizers)] == [f"<2de> {source.upper()}" for source, _ in PAIRS]


def test_a_sentence_that_begins_like_a_tag_gets_none() -> None:
    tagged = tokenizer(tags=["<2de>"])
    tokenizers = Tokenizers(tagged, tagged)
    corpus = corpus_of([("A dog runs. <2de> It barks.", "Ein Hund läuft. Er bellt.")], tokenizers)
    augmenter = Augmenter(corpus, tokenizers, config(split=1.0), 1)
    each = [augmenter.augmented(corpus, np.arange(1), epoch=epoch) for epoch in range(20)]
    assert {texts(one, tokenizers)[0][0] for one in each} == {"A dog runs.", "<2de> It barks."}
    assert not any(set(one.source_ids.tolist()) & tagged.tag_ids for one in each)


def test_a_pair_whose_text_is_lost_stays_as_it_is() -> None:
    plain = tokenizer(byte_fallback=False)
    tokenizers = Tokenizers(plain, plain)
    corpus = corpus_of([("A ж runs.", "Ein Hund läuft."), PAIRS[2]], tokenizers)
    found = Augmenter(corpus, tokenizers, config(upper_case=1.0, merged=1.0), 1).augmented(
        corpus, np.arange(2), epoch=0
    )
    before, after = texts(corpus, tokenizers), texts(found, tokenizers)
    assert plain.unk_id in corpus.source_ids.tolist()
    assert after == [before[0], (PAIRS[2][0].upper(), PAIRS[2][1].upper())]  # and it is not joined to another


# Every word of a corpus has its letter, so that a line shows where it is from.
ENGLISH, GERMAN, FRENCH = ([f"{letter}{n} {letter}." for n in range(40)] for letter in "egf")
SWAPPED_CHUNK = 16  # pairs that are encoded at a time, of which some are dropped


def of_files(folder: Path, **settings: Any) -> tuple[TrainConfig, Prepared]:
    """A corpus of en and de, and one of en and fr with one pair with a tag of its own, prepared."""
    lines = {"a.en": ENGLISH, "a.de": GERMAN, "b.en": ["<2it> e e.", *ENGLISH[1:]], "b.fr": FRENCH}
    for name, text in {**lines, "dev.en": ["e"], "dev.de": ["g"]}.items():
        (folder / name).write_text("\n".join(text) + "\n", encoding="utf-8")
    dev = [str(folder / name) for name in ("dev.en", "dev.de")]
    data = DataConfig(
        **{
            "source_lang": "en",
            "target_lang": "de",
            "train": [str(folder / name) for name in lines],
            "dev": dev,
            "test": dev,
            "cache": str(folder / "cache"),
            "tokenizer": TokenizerConfig(vocab_size=300, byte_fallback=True),
            **settings,
        }
    )
    return TrainConfig(data=data), prepare(data)


def changed_pairs(config: TrainConfig, prepared: Prepared) -> list[tuple[str, str]]:
    """The pairs that augmentation joins from two, in some epochs of the run."""
    feed = Feed(config, prepared)
    found: list[tuple[str, str]] = []
    for step in range(1, 3 * feed.plan.updates_per_epoch + 1):
        found += texts(feed.pairs(step), prepared.tokenizers)
    return [pair for pair in found if pair[1].count(".") == 2]


def letters(line: str) -> set[str]:
    return set(re.sub("<[^>]*>", "", line)) & set("egf")


@pytest.mark.parametrize("weights", [[], [1.0, 2.0]])
def test_a_pair_is_merged_with_one_of_its_tags_and_its_language(tmp_path: Path, weights: list[float]) -> None:
    of_dev = {"dev_tags": ["<2de>"], "test_tags": ["<2de>"], "weights": weights}
    tags = {"tags": ["<2de>", "<2fr>"], "line_tags": ["<2it>"], **of_dev}
    found = changed_pairs(*of_files(tmp_path, target_lang="de+fr", augment=AugmentationConfig(merged=1.0), **tags))
    assert {(source[:5], *letters(target)) for source, target in found} == {("<2de>", "g"), ("<2fr>", "f")}
    assert all(source.count("<") == 1 for source, _ in found)  # and <2it>, of which there is one pair, is not merged


def test_a_pair_is_merged_with_one_of_its_corpus_if_several_are_mixed(tmp_path: Path) -> None:
    found = changed_pairs(*of_files(tmp_path, augment=AugmentationConfig(merged=1.0), temperature=2.0))
    assert {frozenset(letters(target)) for _, target in found} == {frozenset("g"), frozenset("f")}


def test_a_pair_is_merged_with_one_of_its_direction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_CHUNK", SWAPPED_CHUNK)
    config, prepared = of_files(tmp_path, augment=AugmentationConfig(merged=0.5, upper_case=1e-9), bidirectional=True)
    assert len(prepared.chunks) > 2
    assert 2 * sum(prepared.chunks) == len(prepared.train)
    found = changed_pairs(config, prepared)
    assert {tuple(map(frozenset, map(letters, pair))) for pair in found} >= {
        (frozenset("e"), frozenset("g")),
        (frozenset("g"), frozenset("e")),
    }
    assert all((letters(source) == {"e"}) != (letters(target) == {"e"}) for source, target in found)


def test_exchanged_pairs_are_changed_as_their_own_languages_ask() -> None:
    pairs = [("miss", "kiss")]
    corpus = corpus_of([*pairs, *[(target, source) for source, target in pairs]])
    settings = replace(config(upper_case=1.0), source_lang="en", target_lang="tr")
    one = Augmenter(corpus, TOKENIZERS, settings, 1, chunks=[1]).augmented(corpus, np.arange(2), epoch=0)
    assert texts(one) == [("MISS", "KİSS"), ("KİSS", "MISS")]


def test_a_pair_that_would_be_too_long_stays_as_it_is() -> None:
    short = replace(config(merged=1.0), max_length=int(CORPUS.source_lengths.max()) + 1)
    assert augmented(short) == PAIRS


def test_a_pair_that_the_vocabulary_cannot_write_stays_as_it_is() -> None:
    plain = tokenizer(byte_fallback=False)
    tokenizers = Tokenizers(plain, plain)
    corpus = corpus_of(PAIRS, tokenizers)
    found = Augmenter(corpus, tokenizers, config(noise=1.0), 1).augmented(corpus, np.arange(4), epoch=0)
    assert plain.unk_id not in found.target_ids.tolist()
    unchanged = [pair for pair in texts(found, tokenizers) if pair in PAIRS]
    assert unchanged  # at least one drawn script is not in this vocabulary


def test_a_vocabulary_that_cannot_write_the_changes_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    few = tokenizer(byte_fallback=False)
    tokenizers = Tokenizers(few, few)
    corpus = corpus_of(PAIRS, tokenizers)
    for kinds, n_kept in (({"placeholders": 1.0}, 4), ({"upper_case": 1.0}, 0)):
        caplog.clear()
        Augmenter(corpus, tokenizers, config(**kinds), 1).warn_of_kept()
        named = f"data.augment: {n_kept} of 4 pairs that it would change stay as they are"
        assert (named in caplog.text) == bool(n_kept)


@each("kind", ["upper_case", "title_case"])
@each(
    "source, is_changed",
    [
        ("我今天去了学校。", False),
        ("هذا الكتاب جيد.", False),
        ("मैं आज स्कूल गया था।", False),
        ("12:30 …", False),
        ("我用iPhone看书。", False),  # its capitals do not tell those of the whole translation
        ("Я читаю книгу.", True),
    ],
)
def test_a_source_without_capitals_leaves_the_translation_as_it_is(kind: str, source: str, is_changed: bool) -> None:
    pair = (source, "i read a book today.")
    found = Augmenter(corpus_of([pair]), TOKENIZERS, config(**{kind: 1.0}), 1)
    changed = texts(found.augmented(found.corpus, np.arange(1), epoch=0))
    assert (changed != [pair]) == is_changed
    if is_changed:
        assert changed[0][1] == (pair[1].upper() if kind == "upper_case" else "I Read A Book Today.")


def test_a_kind_that_changes_nothing_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    one = PAIRS[1:2]
    Augmenter(corpus_of(one), TOKENIZERS, config(split=0.5, upper_case=0.5), 1).warn_of_kept()
    assert [record.getMessage() for record in caplog.records] == [
        "data.augment.split: changes none of the 1 pairs that were tried, which have nothing for it to change."
        " Leave it out"
    ]


def test_the_pairs_that_are_tried_are_of_the_whole_corpus(caplog: pytest.LogCaptureFixture) -> None:
    corpus = corpus_of([*PAIRS[1:2] * 3000, *PAIRS[:1] * 30])  # only the last 30 have two sentences
    Augmenter(corpus, TOKENIZERS, config(split=0.5), 1).warn_of_kept()
    assert not caplog.records


def test_pairs_that_have_unknown_words_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    few = tokenizer(byte_fallback=False)
    tokenizers = Tokenizers(few, few)
    corpus = corpus_of([*PAIRS[:1], *[("漢字", "漢字")] * 2], tokenizers)
    Augmenter(corpus, tokenizers, config(typos=0.5), 1).warn_of_kept()
    (record,) = caplog.records
    assert record.getMessage().startswith("data.augment: 2 of 3 pairs have <unk>, and stay as they are.")


@each(
    "line",
    [
        "सरकार ने नई योजना की घोषणा की।",
        "আমাদের দেশে অনেক ভাষা আছে।",
        "இந்தப் புத்தகம் மிகவும் நன்றாக இருக்கிறது.",
        "ខ្ញុំទៅសាលារៀននៅថ្ងៃនេះ។",
        "un cafe\u0301 glace\u0301",
    ],
)
def test_typos_keep_the_marks_of_letters(line: str) -> None:
    def with_marks(text: str) -> list[str]:  # each letter with what stands on it
        return re.findall(
            r"\S[\u0300-\u036f\u0900-\u0903\u093a-\u094f\u0981-\u0983\u09bc-\u09cd\u0bbe-\u0bcd\u17b4-\u17d3]*", text
        )

    changed = [with_typos(line, Random(seed)) for seed in range(60)]
    assert sum(one != line for one in changed) > 50  # a letter beside its like may be swapped with it
    for one in changed:
        assert {*with_marks(one)} <= {*with_marks(line)}
        assert one.split(" ")[0][0] == line[0]


def test_single_words_are_whole_where_letters_have_marks() -> None:
    line = "सरकार ने नई योजना की घोषणा की"
    assert {single_word(line, Random(seed)) for seed in range(200)} <= {*line.split()}


def test_capitals_of_turkish_and_azeri_keep_the_dot_of_their_i() -> None:
    assert [upper_case("kırmızı şişe", language) for language in ("tr", "az_AZ", "tur_Latn")] == ["KIRMIZI ŞİŞE"] * 3
    assert [upper_case("miss", language) for language in ("en", "trv", "")] == ["MISS"] * 3
    assert title_case("iyi ışık", "tr") == "İyi Işık"
    assert title_case("გამარჯობა ǆep", "ka") == "გამარჯობა ǅep"  # Georgian has capitals for whole words alone


@each(
    "line, kept",
    [
        ('press <a title="so or so"> it', (6, 26)),
        ("{first name} is here", (0, 12)),
        ("请看{用户 名}吧", (2, 8)),
        ('a <b c="{x}"> d', (2, 13)),
    ],
)
def test_nothing_is_inserted_within_what_is_kept(line: str, kept: tuple[int, int]) -> None:
    assert spans_to_keep(line) == [kept]
    has_spaces = line.isascii()
    found = {inserted_at(line, "{x}", place / 50, spans_to_keep(line), has_spaces=has_spaces) for place in range(51)}
    assert all(line[slice(*kept)] in one for one in found)
    assert f"{line}{' ' if has_spaces else ''}{{x}}" in found
    assert len(found) > 1


@each(
    "line, places",
    [
        ("我们去学校。", ["我{x}们去学校。", "我们去{x}学校。", "我们去学校。{x}"]),  # six ends: the third of them
        ("买iPhone吗", ["买{x} iPhone吗", "买iPhone {x}吗", "买iPhone吗{x}"]),
        ("น้ำดี", ["น้ำ{x}ดี", "น้ำ{x}ดี", "น้ำดี{x}"]),  # two syllables of five characters
        ("เขา", ["เข{x}า", "เข{x}า", "เขา{x}"]),
        ("我 们", ["我 {x} 们", "我 {x} 们", "我 们{x}"]),
        ("", ["{x}"] * 3),
    ],
)
def test_a_placeholder_stands_between_characters_where_no_spaces_are(line: str, places: list[str]) -> None:
    assert [inserted_at(line, "{x}", place, has_spaces=False) for place in (0.0, 0.4, 1.0)] == places


def test_a_placeholder_stands_at_the_same_relative_place_in_a_language_without_spaces() -> None:
    pairs = [("one two three four five six seven eight nine ten", "一二三四五六七八九十")]
    text = [*pairs[0], "".join(chr(i) for i in range(33, 127))]
    one = train_tokenizer(text, TokenizerConfig(vocab_size=400, byte_fallback=True), seed=1)
    corpus = corpus_of(pairs, tokenizers := Tokenizers(one, one))
    settings = replace(config(placeholders=1.0), target_lang="zh_CN")
    for epoch in range(20):
        ((source, target),) = texts(
            Augmenter(corpus, tokenizers, settings, 1).augmented(corpus, np.arange(1), epoch=epoch), tokenizers
        )
        before, after = re.split(r"[^一二三四五六七八九十]+", target)
        words = source.split()
        (at,) = [i for i, word in enumerate(words) if word not in pairs[0][0].split()]
        assert before + after == pairs[0][1]
        assert (at, words[at]) == (len(before), target[len(before) : len(target) - len(after)])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source_only": ["noise"]}, r"data\.augment\.source_only=\['noise'\]: noise changes both sides or is no kind"),
        (
            {"source_only": ["upper_case"], "typos": 0.1},
            r"source_only=\['upper_case'\]: data\.augment\.upper_case is 0",
        ),
        ({"typos": 1.5}, r"data\.augment\.typos=1\.5"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AugmentationConfig(**settings)


def test_other_tasks_are_not_augmented() -> None:
    with pytest.raises(ConfigError, match=r"data\.augment\.typos=0\.1: data\.task=language_model has no pairs"):
        DataConfig(task="language_model", source_lang="en", target_lang="en", augment=AugmentationConfig(typos=0.1))
