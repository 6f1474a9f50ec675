"""Training sentences in other pieces each epoch: the same text, drawn by the seed, the epoch and the place alone."""

import json
import math
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

from tests.conftest import slow
from tests.toy import run as toy_run
from tests.toy.run import assert_resumes, metrics, prepared, run
from transformer_cli.config.data import DataConfig, TokenizerConfig, TokenizerKind
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.cache_key import cache_key
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.feed import Feed
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.readers.builtin import read_builtin
from transformer_cli.data.subwords import sentence_seeds
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.errors import ConfigError
from transformer_cli.training.run_directory import open_run, write_config
from transformer_cli.training.validation import encode_pairs

KINDS = [TokenizerKind.bpe, TokenizerKind.unigram]


@cache
def text() -> ParallelText:
    pairs = read_builtin("demo_en_fr", "train")[:600]
    return ParallelText([source for source, _ in pairs], [target for _, target in pairs])


def config(dropout: float = 0.3, *, max_length: int = 20, **train: object) -> TrainConfig:
    plain = toy_run.config(**train)
    return replace(plain, data=replace(plain.data, subword_dropout=dropout, max_length=max_length))


@cache
def tokenizer(kind: TokenizerKind = TokenizerKind.bpe) -> Tokenizer:
    return train_tokenizer([*text().sources, *text().targets], TokenizerConfig(kind=kind, vocab_size=300), seed=1)


@cache
def demo(*, joint: bool = True) -> Prepared:
    other = train_tokenizer(text().targets, TokenizerConfig(vocab_size=200), seed=1)
    tokenizers = Tokenizers(tokenizer(), tokenizer() if joint else other)
    return replace(prepared(), tokenizers=tokenizers, train=encode_pairs(text(), tokenizers, max_length=256))


def by_hand(pieces: dict[str, float], *, kind: TokenizerKind = TokenizerKind.bpe) -> Tokenizer:
    """A model of these pieces and scores."""
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(tokenizer(kind).model_bytes)
    del model.pieces[4:]
    for piece, score in pieces.items():
        model.pieces.add(piece=piece, score=score)
    model.trainer_spec.vocab_size = len(model.pieces)
    return Tokenizer(model.SerializeToString())


def test_merges_are_left_out_as_computed_by_hand() -> None:
    """`ab` comes first. If it is merged, so may be `▁ab`; else `bc` comes up. Each is left out with probability 0.3."""
    model = by_hand({"ab": 0.0, "bc": -1.0, "▁ab": -2.0, "▁": -3.0, "a": -4.0, "b": -5.0, "c": -6.0})
    (whole,) = model.encode(["abc"])
    drawn = Counter(" ".join(model.pieces(ids)) for ids in model.sample([whole] * 10_000, range(10_000), alpha=0.3))
    expected = {"▁ab c": 0.7 * 0.7, "▁ ab c": 0.7 * 0.3, "▁ a bc": 0.3 * 0.7, "▁ a b c": 0.3 * 0.3}
    assert {pieces: n / 10_000 for pieces, n in drawn.items()} == pytest.approx(expected, abs=0.02)  # 4 σ


def test_segmentations_of_unigram_are_drawn_as_computed_by_hand() -> None:
    """`▁ab` has three of `ab`, `a` `b`; `▁` stands alone. With alpha ½ each has the root of its probability."""
    scores = {"▁": -1.0, "ab": -2.0, "a": -1.5, "b": -1.5, "▁a": -2.0}
    model = by_hand(scores, kind=TokenizerKind.unigram)
    (whole,) = model.encode(["ab"])
    drawn = Counter(" ".join(model.pieces(ids)) for ids in model.sample([whole] * 10_000, range(10_000), alpha=0.5))
    roots = {"▁ ab": math.exp(-3.0 / 2), "▁ a b": math.exp(-4.0 / 2), "▁a b": math.exp(-3.5 / 2)}
    expected = {pieces: root / sum(roots.values()) for pieces, root in roots.items()}
    assert {pieces: n / 10_000 for pieces, n in drawn.items()} == pytest.approx(expected, abs=0.02)  # 4 σ


def test_the_likeliest_segmentation_of_unigram_is_the_usual_one() -> None:
    """A high alpha draws nothing else, except at ties."""
    lines = text().sources
    usual = tokenizer(TokenizerKind.unigram).encode(lines)
    drawn = tokenizer(TokenizerKind.unigram).sample(usual, range(len(lines)), alpha=10_000.0)
    assert sum(one != other for one, other in zip(drawn, usual, strict=True)) <= len(lines) / 100


OTHER_PROCESS = """
import json, sys
from pathlib import Path
from transformer_cli.data.tokenizer import Tokenizer

tokenizer = Tokenizer(Path(sys.argv[1]).read_bytes())
lines = json.loads(sys.stdin.read())
print(json.dumps(tokenizer.sample(tokenizer.encode(lines), range(len(lines)), alpha=0.3)))
"""


@pytest.mark.parametrize("kind", KINDS)
def test_another_process_draws_the_same_pieces(kind: TokenizerKind, tmp_path: Path) -> None:
    """The process may resume the run, or be another rank of it."""
    lines = text().sources[:50]
    ours = tokenizer(kind).sample(tokenizer(kind).encode(lines), range(50), alpha=0.3)
    (tmp_path / "model").write_bytes(tokenizer(kind).model_bytes)
    command = [sys.executable, "-c", OTHER_PROCESS, str(tmp_path / "model")]
    done = subprocess.run(command, input=json.dumps(lines), stdout=subprocess.PIPE, text=True, check=True)
    assert json.loads(done.stdout) == ours


def test_symbols_of_the_user_stay_whole_and_unknown_characters_are_bytes() -> None:
    config = TokenizerConfig(vocab_size=600, byte_fallback=True, user_symbols=["<x>", "<x>y"])
    model = train_tokenizer(text().sources, config, seed=1)
    (usual,) = model.encode(["the <x>y 中 dog"])
    for drawn in model.sample([usual] * 20, range(20), alpha=0.7):
        pieces = model.pieces(drawn)
        assert pieces.count("<x>y") == 1
        assert [piece for piece in pieces if piece.startswith("<0x")] == ["<0xE4>", "<0xB8>", "<0xAD>"]


def test_nothing_left_out_is_the_usual_segmentation_and_everything_single_characters() -> None:
    lines = [*text().sources, *text().targets]
    usual = tokenizer().encode(lines)
    assert tokenizer().sample(usual, range(len(lines)), alpha=0.0) == usual
    for line, ids in zip(lines, tokenizer().sample(usual, range(len(lines)), alpha=1.0), strict=True):
        assert "".join(tokenizer().pieces(ids)) == "▁" + line.replace(" ", "▁")
        assert len(ids) == len(line) + 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_stays_the_same_and_its_pieces_do_not(kind: TokenizerKind) -> None:
    usual = tokenizer(kind).encode(text().sources)
    drawn = tokenizer(kind).sample(usual, range(len(usual)), alpha=0.1)
    assert [tokenizer(kind).decode(ids) for ids in drawn] == text().sources
    assert sum(new != old for new, old in zip(drawn, usual, strict=True)) > len(usual) / 2


@settings(deadline=None, max_examples=50)
@given(st.text(min_size=1).filter(str.strip), st.integers(0, 2**31 - 1), st.sampled_from(KINDS))
def test_of_any_text_nothing_is_lost(line: str, seed: int, kind: TokenizerKind) -> None:
    (usual,) = tokenizer(kind).encode([line])
    if usual:
        (drawn,) = tokenizer(kind).sample([usual], [seed], alpha=0.5)
        assert tokenizer(kind).decode(drawn) == tokenizer(kind).decode(usual)
        assert drawn == usual or tokenizer(kind).unk_id not in usual


def epoch(feed: Feed, number: int = 0) -> dict[int, tuple[tuple[int, ...], ...]]:
    """Source and target ids of every pair, by its place in the corpus."""
    found = {}
    first = number * feed.plan.updates_per_epoch
    for step in range(first + 1, first + feed.plan.updates_per_epoch + 1):
        pairs = feed.pairs(step)
        for at, place in enumerate(feed.plan.update(step - 1).tolist()):
            source = pairs.source_ids[pairs.source_offsets[at] : pairs.source_offsets[at + 1]]
            target = pairs.target_ids[pairs.target_offsets[at] : pairs.target_offsets[at + 1]]
            found[place] = (tuple(source.tolist()), tuple(target.tolist()))
    return found


@pytest.mark.parametrize("joint", [True, False])
def test_the_pieces_of_a_pair_depend_on_seed_and_epoch_alone(joint: bool) -> None:
    feed = Feed(config(max_length=256, tokens_per_update=1000), demo(joint=joint))
    first = epoch(feed)
    assert first == epoch(Feed(config(max_length=256, tokens_per_update=3000), demo(joint=joint)))
    assert first != epoch(feed, 1)
    assert first != epoch(Feed(replace(config(max_length=256, tokens_per_update=1000), seed=2), demo(joint=joint)))
    tokenizers = demo(joint=joint).tokenizers
    for place, (source, target) in first.items():
        assert tokenizers.source.decode(source) == text().sources[place]
        assert tokenizers.target.decode(target) == text().targets[place]
        assert (source[-1], target[-1]) == (tokenizers.source.eos_id, tokenizers.target.eos_id)


def test_batches_are_cut_by_the_real_lengths_and_sentences_too_long_stay_as_they_are() -> None:
    stored = demo().train
    longest = int(max(stored.source_lengths.max(), stored.target_lengths.max()))
    feed = Feed(config(1.0, max_length=longest, tokens_per_update=1000, max_tokens_per_microbatch=300), demo())
    n_other = 0
    for step in range(1, feed.plan.updates_per_epoch + 1):
        pairs, indices = feed.pairs(step), feed.plan.update(step - 1)
        for new, old in ((pairs.source_lengths, stored.source_lengths), (pairs.target_lengths, stored.target_lengths)):
            assert new.max() <= longest == feed.longest
            n_other += int((new != old[indices]).sum())
        batches = feed.batches(step)
        assert max(max(len(one.source_S), len(one.target_out_T)) for one in batches) <= 300
        assert sum(one.n_tokens for one in batches) == len(pairs.source_ids) + len(pairs.target_ids)
    assert 0 < n_other < 2 * len(stored)


@pytest.mark.slow
@pytest.mark.parametrize("step", [slow(3), 9])
def test_a_resumed_run_equals_one_without_a_break(tmp_path: Path, step: int) -> None:
    assert_resumes(tmp_path, config(), stopped_before=step)
    run(tmp_path / "without", config(0.0))
    assert metrics(tmp_path / "without") != metrics(tmp_path / "whole")


def test_another_value_is_another_run_of_the_same_prepared_data(tmp_path: Path) -> None:
    settings = config(0.1)
    settings.runs, settings.name = str(tmp_path), "toy"
    with open_run(settings) as folder:
        run(folder, settings)
        write_config(settings, folder)
    changed = replace(settings, data=replace(settings.data, subword_dropout=0.2))
    with pytest.raises(ConfigError, match=r"data\.subword_dropout was 0\.1, is 0\.2"), open_run(changed):
        pass
    assert cache_key(settings.data, {}) == cache_key(changed.data, {})


@pytest.mark.parametrize("value", [-0.1, 1.5])
def test_a_value_out_of_range_is_refused(value: float) -> None:
    with pytest.raises(ConfigError, match=r"data\.subword_dropout"):
        DataConfig(source_lang="en", target_lang="fr", subword_dropout=value)


def test_seeds_of_neighbours_have_nothing_in_common() -> None:
    drawn = np.concatenate(
        [sentence_seeds(np.arange(1000), seed=s, epoch=e) for s in (1, 2) for e in (0, 1)], axis=None
    )
    assert len(np.unique(drawn)) > len(drawn) - 5  # of 8,000 out of 2**31, about 0.015 are alike
    assert drawn.max() < 2**31
    assert abs(drawn.mean() / 2**31 - 0.5) < 0.02
