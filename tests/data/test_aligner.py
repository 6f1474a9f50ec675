"""The word alignment of a text, against texts whose alignment is known and against the published algorithms."""

import math
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from transformer_cli.data import aligner
from transformer_cli.data.aligner import Aligner, Cells, symmetrised
from transformer_cli.data.cache import EncodedCorpus

EOS, TAG, FIRST = 3, 4, 10
Links = set[tuple[int, int]]  # source and target position


def text(n: int = 300, *, words: int = 60, seed: int = 1) -> tuple[EncodedCorpus, list[Links]]:
    """Sentences behind a tag; neighbours may change places, and every third source word has two target words."""
    draw = random.Random(seed)
    sources, targets, links = [], [], list[Links]()
    for _ in range(n):
        words_of = draw.sample(range(words), draw.randint(3, 9))
        order = list(range(len(words_of)))
        for i in range(0, len(order) - 1, 2):
            if draw.random() < 0.3:
                order[i], order[i + 1] = order[i + 1], order[i]
        target, linked = list[int](), Links()
        for place in order:
            word = words_of[place]
            for half in range(2 if word % 3 == 0 else 1):
                linked.add((place + 1, len(target)))
                target.append(FIRST + words + 2 * word + half)
        sources.append([TAG, *(FIRST + word for word in words_of), EOS])
        targets.append([*target, EOS])
        links.append(linked)
    return EncodedCorpus.of(sources, targets), links


def found(corpus: EncodedCorpus, scratch: Path) -> list[Links]:
    return as_sets(list(Aligner(corpus, ([EOS, TAG], [EOS]), scratch).links()))


def as_sets(parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> list[Links]:
    sources, targets, n = (np.concatenate(column) for column in zip(*parts, strict=True))
    ends = np.cumsum(n)
    assert ends[-1] == len(sources) == len(targets)
    pairs = list(zip(sources.tolist(), targets.tolist(), strict=True))
    return [set(pairs[end - count : end]) for end, count in zip(ends.tolist(), n.tolist(), strict=True)]


def f1(found: list[Links], expected: list[Links]) -> float:
    both = sum(len(one & other) for one, other in zip(found, expected, strict=True))
    return 2 * both / (sum(map(len, found)) + sum(map(len, expected)))


def test_known_links_are_found_and_none_of_tags_and_ends(tmp_path: Path) -> None:
    corpus, expected = text()
    links = found(corpus, tmp_path)
    assert f1(links, expected) > 0.97
    lengths = zip(corpus.source_lengths.tolist(), corpus.target_lengths.tolist(), strict=True)
    for pair, (n_source, n_target) in zip(links, lengths, strict=True):
        assert all(0 < s < n_source - 1 and t < n_target - 1 for s, t in pair)
    assert not list(tmp_path.iterdir())


def test_the_links_do_not_depend_on_how_many_pairs_are_held_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, _ = text(60)
    whole = found(corpus, tmp_path)
    monkeypatch.setattr(aligner, "_AT_A_TIME", 40)
    assert found(corpus, tmp_path) == whole


def test_a_sample_of_the_text_aligns_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, expected = text(600)
    monkeypatch.setattr(aligner, "_SAMPLE", 20_000)
    one = Aligner(corpus, ([EOS, TAG], [EOS]), tmp_path)
    n_cells = corpus.source_lengths.astype(np.int64) * corpus.target_lengths
    sample = one._sampled()
    assert n_cells[sample].sum() < 1.1 * 20_000 < n_cells.sum()
    assert f1(found(corpus, tmp_path), expected) > 0.95


def test_a_pair_that_would_take_too_much_memory_has_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, expected = text(200)
    monkeypatch.setattr(aligner, "_AT_A_TIME", 50)
    monkeypatch.setattr(aligner, "_MOST", 120)
    is_long = corpus.source_lengths.astype(np.int64) * corpus.target_lengths > 120
    links = found(corpus, tmp_path)
    assert 10 < is_long.sum() < 150
    assert [not pair for pair in links] == is_long.tolist()
    short = [(one, other) for one, other, skipped in zip(links, expected, is_long, strict=True) if not skipped]
    assert f1([one for one, _ in short], [other for _, other in short]) > 0.9


def test_a_space_by_itself_is_linked_as_the_token_behind_it(tmp_path: Path) -> None:
    corpus, _ = text(200)
    space = 5

    def spaced(ids: np.ndarray, offsets: np.ndarray) -> list[list[int]]:
        """A space before each second word that has an even number."""
        sentences = [ids[a:b].tolist() for a, b in pairwise(offsets)]
        return [[i for id in one for i in ([space, id] if id >= FIRST and id % 2 == 0 else [id])] for one in sentences]

    sides = (corpus.source_ids, corpus.source_offsets), (corpus.target_ids, corpus.target_offsets)
    sources, targets = (spaced(*side) for side in sides)
    with_spaces = EncodedCorpus.of(sources, targets)
    parts = Aligner(with_spaces, ([EOS, TAG], [EOS]), tmp_path, spaces=([space], [space])).links()
    linked = as_sets(list(parts))
    plain = found(corpus, tmp_path)
    for source, target, links, expected in zip(sources, targets, linked, plain, strict=True):
        words = [[i for i, id in enumerate(side) if id != space] for side in (source, target)]
        before = [
            {at: [at - 1, at] if side[at - 1] == space else [at] for at in of}
            for side, of in zip((source, target), words, strict=True)
        ]
        whole = {(s, t) for i, j in expected for s in before[0][words[0][i]] for t in before[1][words[1][j]]}
        assert len(links ^ whole) <= 0.1 * len(whole) + 4  # distances from the diagonal are others


def test_digamma_is_the_derivative_of_the_logarithm_of_gamma() -> None:
    for x in (0.01, 0.5, 1.0, 3.7, 1000.0):
        h = 1e-5 * x
        expected = (math.lgamma(x + h) - math.lgamma(x - h)) / (2 * h)
        assert aligner._digamma(np.array([x])).item() == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_links_are_symmetrised_as_by_hand() -> None:
    """A pair of 4 source and 4 target words, links as (source, target).

    Both directions have (0, 0). Beside it (1, 1) fits, and then (2, 1), whose source word has no link yet. (1, 0) is
    beside a link, but both of its words have one by then. (3, 3) is beside none; neither of its words has a link.
    """
    corpus = EncodedCorpus.of([[10, 11, 12, 13]], [[20, 21, 22, 23]])
    cells = Cells.of(corpus, (np.array([EOS]), np.array([EOS])))

    def mask(*links: tuple[int, int]) -> np.ndarray:
        wanted = set(links)
        return np.array([link in wanted for link in zip(cells.source.tolist(), cells.target.tolist(), strict=True)])

    forward, backward = mask((0, 0), (1, 1), (3, 3)), mask((0, 0), (2, 1))
    expected = mask((0, 0), (1, 1), (2, 1), (3, 3))
    assert (symmetrised(forward, backward, cells) == expected).all()
    assert (symmetrised(backward, forward, cells) == expected).all()
    late = mask((0, 0), (1, 1), (2, 2), (2, 1))  # (2, 1) fits in no round after (2, 2) and (1, 1) are in both
    assert (symmetrised(late, mask((0, 0), (1, 1), (2, 2)), cells) == mask((0, 0), (1, 1), (2, 2))).all()
