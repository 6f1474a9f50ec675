"""The word alignment of a prepared corpus: kept beside it, in step with its pairs, from the text or from a file."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.data.test_prepare import SOURCES, TARGETS, write
from tests.data.test_prepare import config as config
from transformer_cli.config.data import AugmentationConfig, DataConfig
from transformer_cli.config.train import ScheduleConfig, TrainConfig, TrainSettings
from transformer_cli.data.alignments import WORD_ALIGNMENT, with_alignment
from transformer_cli.data.cache import EncodedCorpus, same_ids
from transformer_cli.data.feed import Feed
from transformer_cli.data.prepare import Prepared, prepare
from transformer_cli.data.sentencepiece_model import SPACE
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.decoding.alignment import word_numbers
from transformer_cli.errors import DataError, TfmError

Words = set[tuple[int, int]]


def pharaoh(source: str, target: str) -> str:
    """Each word with that of the same number, and a red book with the two words in its reverse."""
    words = source.split(), target.split()
    links = [(i, i) for i in range(min(map(len, words)))]
    if "red book" in source:
        red, livre = words[0].index("red"), words[1].index("livre")
        links = [(i, i) for i in range(red)] + [(red, livre + 1), (red + 1, livre)]
    return " ".join(f"{i}-{j}" for i, j in links)


LINES = [pharaoh(*pair) for pair in zip(SOURCES, TARGETS, strict=True)]


@pytest.fixture
def with_file(config: DataConfig, tmp_path: Path) -> DataConfig:
    return replace(config, alignments=str(tmp_path / write(tmp_path, "links", LINES)))


def word_links(prepared: Prepared) -> dict[tuple[str, str], Words]:
    """The words that the tokens of each training pair link, by its text; all tokens of linked words are linked."""
    corpus, tokenizers, found = prepared.train, prepared.tokenizers, {}
    assert corpus.alignment is not None
    for i in range(len(corpus)):
        one = corpus.pick(np.array([i]))
        assert one.alignment is not None
        source, target = one.source_ids.tolist(), one.target_ids.tolist()
        words = word_numbers(source[:-1], tokenizers.source), word_numbers(target[:-1], tokenizers.target)
        links = list(zip(one.alignment.sources.tolist(), one.alignment.targets.tolist(), strict=True))
        of_words = {(words[0][s], words[1][t]) for s, t in links}
        every = [(s, t) for s, i in enumerate(words[0]) for t, j in enumerate(words[1]) if (i, j) in of_words]
        assert sorted(links, key=lambda link: link[::-1]) == links
        assert set(links) == set(every)
        found[tokenizers.source.decode(source), tokenizers.target.decode(target)] = of_words
    return found


def as_words(line: str) -> Words:
    return {(int(i), int(j)) for i, _, j in (link.partition("-") for link in line.split())}


def test_the_links_of_a_file_are_those_of_the_pieces_of_its_words(with_file: DataConfig) -> None:
    config = replace(with_file, dev=None, test=None)
    prepared = prepare(config)
    found = word_links(with_alignment(prepared, config))
    assert len(found) == len(prepared.train) < len(SOURCES)  # the others are held out
    assert found == {pair: as_words(pharaoh(*pair)) for pair in found}
    assert any((4, 6) in links and (5, 5) in links for links in found.values())  # old red book, vieux livre rouge


@pytest.mark.parametrize(
    ("ends", "line", "expected"),
    [
        (("milk?", "lait ?"), "4-4 4-5", {"milk~lait", "?~?"}),
        (("milk.", "lait."), "4-4", {"milk~lait", ".~."}),
        (("(milk)", "lait"), "4-4", {"milk~lait"}),
        (("milk", "lait ."), "4-4 4-5", {"milk~lait", "milk~."}),
        (("milk -", "lait - ."), "4-4 5-5 5-6", {"milk~lait", "-~-", "-~."}),
        (("his-milk!", "lait"), "4-4", {"his~lait", "-~lait", "milk~lait"}),
    ],
)
def test_punctuation_beside_a_word_has_no_links_of_the_word(
    config: DataConfig, tmp_path: Path, ends: tuple[str, str], line: str, expected: set[str]
) -> None:
    nouns = [source.split()[1] for source in SOURCES]
    for name, start, end in zip(("train.en", "train.fr"), ("the {} saw the ", "le {} voit le "), ends, strict=True):
        write(tmp_path, name, [start.format(noun) + end for noun in nouns])
    write(tmp_path, "links", [line] * len(nouns))
    config = replace(config, alignments=str(tmp_path / "links"), clean=[], drop_duplicates=False)
    prepared = with_alignment(prepare(config), config)
    assert prepared.train.alignment is not None
    found = set()
    for i in range(len(prepared.train)):
        one = prepared.train.pick(np.array([i]))
        assert one.alignment is not None
        pieces = [
            spelt(tokenizer, ids.tolist())
            for tokenizer, ids in (
                (prepared.tokenizers.source, one.source_ids),
                (prepared.tokenizers.target, one.target_ids),
            )
        ]
        links = zip(one.alignment.sources.tolist(), one.alignment.targets.tolist(), strict=True)
        found |= {f"{pieces[0][s]}~{pieces[1][t]}" for s, t in links}
    assert found == expected


def spelt(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """The word or the punctuation that each token is in."""
    text = "".join(tokenizer.pieces(ids)[:-1]).replace(SPACE, " ")
    parts = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
    ends = np.cumsum([len(piece) for piece in tokenizer.pieces(ids)])
    return [next((text[start:stop] for start, stop in parts if start < end <= stop), "") for end in ends]


def test_pairs_that_are_dropped_repeated_or_seen_twice_keep_their_links(with_file: DataConfig, tmp_path: Path) -> None:
    for name, lines in (("train.en", SOURCES), ("train.fr", TARGETS), ("links", LINES)):
        write(tmp_path, name, ["", *lines[:7], *lines[3:9], "", *lines[9:]])
    for twice in (False, True):
        config = replace(with_file, drop_duplicates=not twice)
        found = with_alignment(prepare(config), config)
        assert all(links == as_words(pharaoh(*pair)) for pair, links in word_links(found).items())
        assert found.train.alignment is not None
        assert (np.diff(found.train.alignment.offsets) > 0).all()


def test_both_directions_of_a_pair_have_its_links(with_file: DataConfig) -> None:
    config = replace(with_file, bidirectional=True)
    found = word_links(with_alignment(prepare(config), config))
    exchanged = {pair: {link[::-1] for link in found[pair[::-1]]} for pair in found}
    assert exchanged == found
    assert any("livre rouge" in source for source, _ in found)


def test_a_truncated_source_keeps_the_links_of_the_words_that_are_left(with_file: DataConfig) -> None:
    config = replace(with_file, max_length=12, truncate_source=True, max_ratio=100)
    prepared = with_alignment(prepare(config), config)
    assert prepared.report.n_truncated > 0
    assert prepared.train.alignment is not None
    assert (prepared.train.alignment.sources < 11).all()
    assert (np.diff(prepared.train.alignment.offsets) > 0).all()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0-0 1:1", r"links:2: '1:1' is no link. Write i-j for each, from 0, as 0-0 1-2"),
        ("0-0 -1-1", r"links:2: '-1-1' is no link"),
        (
            "9-0",
            r"links:2: the link 9-0 is beyond the 6 words of the source. Write i-j for each, from 0, i of",
        ),
        ("0-77", r"links:2: the link 0-77 is beyond the 7 words of the target"),
    ],
)
def test_a_line_that_is_no_alignment_of_its_pair_is_named(
    with_file: DataConfig, tmp_path: Path, line: str, message: str
) -> None:
    write(tmp_path, "links", [LINES[0], line, *LINES[2:]])
    with pytest.raises(DataError, match=message) as error:
        with_alignment(prepare(with_file), with_file)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (LINES[:-1], r"links: has 39 lines, and data.train 40 pairs. Align the text of data.train"),
        ([*LINES, "0-0"], r"links: has more than 40 lines, and data.train 40 pairs"),
        ([" "] * 40, r"no word of the training pairs has a link. Set train.guided_alignment=0"),
        (None, r"links: no such file. Check the name"),
    ],
)
def test_a_file_that_is_not_of_the_text_is_refused(
    with_file: DataConfig, tmp_path: Path, lines: list[str] | None, message: str
) -> None:
    (tmp_path / "links").unlink()
    if lines is not None:
        write(tmp_path, "links", lines)
    with pytest.raises(TfmError, match=message):
        with_alignment(prepare(with_file), with_file)
    assert not list(Path(with_file.cache).glob("*/aligned-*"))


def test_an_alignment_is_made_once_beside_a_corpus_that_does_not_change(
    with_file: DataConfig, config: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = prepare(config)
    made = [with_alignment(prepare(one), one) for one in (config, with_file, config, with_file)]
    assert {one.fingerprint for one in made} == {plain.fingerprint}
    assert [one.inputs[WORD_ALIGNMENT] for one in made[:2]] == [one.inputs[WORD_ALIGNMENT] for one in made[2:]]
    assert made[0].inputs[WORD_ALIGNMENT] != made[1].inputs[WORD_ALIGNMENT]
    folders = {path.name for path in Path(config.cache).glob("*/aligned-*")}
    assert len(folders) == 2
    monkeypatch.setattr("transformer_cli.data.alignments.Aligner", None)
    with_alignment(plain, config)
    write(tmp_path, "links", [LINES[0], "0-0", *LINES[2:]])
    with_alignment(plain, with_file)
    assert len(list(Path(config.cache).glob("*/aligned-*"))) == 3


def test_the_same_text_is_aligned_to_the_same_bytes(config: DataConfig, tmp_path: Path) -> None:
    made = []
    for cache in ("one", "other"):
        own = replace(config, cache=str(tmp_path / cache))
        made.append(with_alignment(prepare(own), own).inputs[WORD_ALIGNMENT])
    assert made[0] == made[1]


def test_a_pair_that_augmentation_changes_has_no_links_then(config: DataConfig) -> None:
    data = replace(config, augment=AugmentationConfig(no_final_stop=0.5))
    training = TrainConfig(
        data=data,
        schedule=ScheduleConfig(name="constant", lr=0.01, warmup_steps=1),
        train=TrainSettings(tokens_per_update=300, guided_alignment=1.0),
    )
    prepared = with_alignment(prepare(data), data)
    feed, whole = Feed(training, prepared), prepared.train
    pairs = feed.pairs(1)
    stored = whole.pick(feed.plan.update(0))
    same = same_ids(pairs, stored)
    assert 0 < same.sum() < len(same)
    assert pairs.alignment is not None
    assert stored.alignment is not None
    expected = np.diff(stored.alignment.offsets) * same
    assert np.diff(pairs.alignment.offsets).tolist() == expected.tolist()


def test_pairs_are_the_same_if_both_sides_are() -> None:
    one = EncodedCorpus.of([[1, 2], [3], [4, 5], [6]], [[1], [2], [3], [4]])
    other = EncodedCorpus.of([[1, 2], [3, 3], [4, 6], [6]], [[1], [2], [3], [5]])
    assert same_ids(one, other).tolist() == [True, False, False, False]
