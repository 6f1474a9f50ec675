"""Encoding gives the same ids in the same order whatever does it."""

import multiprocessing
import os
import signal

import numpy as np
import pytest

from transformer_cli.config.data import TokenizerConfig
from transformer_cli.data import encoding
from transformer_cli.data.encoding import Encoded, encoded
from transformer_cli.data.tokenizer import Tokenizers, train_tokenizer
from transformer_cli.errors import EnvironmentFault

PAIRS = [(f"the cat drank {i} times", f"le chat a bu {i} fois" if i % 7 else "") for i in range(95)]


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    source, target = (
        train_tokenizer([pair[side] for pair in PAIRS], TokenizerConfig(vocab_size=40), seed=1) for side in (0, 1)
    )
    return Tokenizers(source, target)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_CHUNK", 10)


def sentences(side: Encoded) -> list[list[int]]:
    return [part.tolist() for part in np.split(side.ids, np.cumsum(side.lengths)[:-1])]


@pytest.mark.parametrize("n_processes", [0, 1, 3])
def test_the_ids_are_the_same_whatever_the_number_of_processes(tokenizers: Tokenizers, n_processes: int) -> None:
    chunks = list(encoded(PAIRS, tokenizers, n_processes=n_processes))
    assert [len(source.lengths) for source, _ in chunks] == [10] * 9 + [5]
    expected = [tokenizers.source.encode([pair[0] for pair in PAIRS]), tokenizers.target.encode([p[1] for p in PAIRS])]
    assert [[ids for chunk in chunks for ids in sentences(chunk[side])] for side in (0, 1)] == expected
    assert not multiprocessing.active_children()


def test_no_pairs_are_no_chunks(tokenizers: Tokenizers) -> None:
    assert list(encoded([], tokenizers, n_processes=2)) == []


def test_only_a_few_chunks_are_read_ahead_of_what_comes_out(tokenizers: Tokenizers) -> None:
    n_read = 0

    def counted() -> object:
        nonlocal n_read
        for pair in PAIRS:
            n_read += 1
            yield pair

    chunks = encoded(counted(), tokenizers, n_processes=2)  # type: ignore[arg-type]
    next(chunks)
    assert n_read <= 30
    chunks.close()  # type: ignore[attr-defined]
    assert not multiprocessing.active_children()


def test_a_killed_process_is_one_line_and_the_others_end(tokenizers: Tokenizers) -> None:
    chunks = encoded(PAIRS, tokenizers, n_processes=2)
    next(chunks)
    pid = multiprocessing.active_children()[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EnvironmentFault, match=r"a process that encodes text was killed\. Free memory and run again"):
        list(chunks)
    assert not multiprocessing.active_children()


def test_sentences_are_picked_whole_and_end_with_eos() -> None:
    side = Encoded(np.array([5, 6, 7, 8, 9]), np.array([2, 0, 1, 2]))
    picked = side.pick(np.array([True, True, False, True]), [3])
    assert picked.ids.tolist() == [5, 6, 3, 3, 8, 9, 3]
    assert picked.lengths.tolist() == [3, 1, 3]
