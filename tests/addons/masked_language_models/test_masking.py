"""The masks of the training text: how many there are, what stands in their place, and what they depend on."""

import numpy as np
import pytest

from tests.addons.masked_language_models.toy_masked import config, prepared, tokenizer
from transformer_cli.addons.masked_language_models.keys import Masking
from transformer_cli.addons.masked_language_models.masking import as_targets, mask_id, masked, special_ids
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.feed import Feed
from transformer_cli.data.subwords import sentence_seeds
from transformer_cli.errors import ConfigError

IDS = tokenizer()
PAPER = Masking()
TEXT_IDS = [i for i in range(len(IDS)) if i not in (*special_ids(IDS), IDS.unk_id)]


def sentences(n: int, length: int, *, seed: int = 1) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [[*draw.choice(TEXT_IDS, length).tolist(), IDS.eos_id] for _ in range(n)]


def mask(texts: list[list[int]], shares: Masking = PAPER, *, seed: int = 1, epoch: int = 0) -> EncodedCorpus:
    seeds = sentence_seeds(np.arange(len(texts)), seed=seed, epoch=epoch)[0]
    return masked(as_targets(texts), seeds, IDS, shares)


def read(pairs: EncodedCorpus, n: int) -> list[int]:
    return [int(i) for i in pairs.source_ids[pairs.source_offsets[n] : pairs.source_offsets[n + 1]]]


def restored(pairs: EncodedCorpus, n: int) -> list[int]:
    """A sentence with what was masked put back."""
    assert pairs.word_ends is not None
    ids, (start, end) = read(pairs, n), pairs.target_offsets[n : n + 2]
    for place, token in zip(pairs.word_ends[start:end], pairs.target_ids[start:end], strict=True):
        ids[int(place)] = int(token)
    return ids


def test_the_shares_are_those_of_the_paper() -> None:
    """15 % of the tokens; of these 80 % are the mask, 10 % a random token, 10 % as they were (section 3.1)."""
    texts = sentences(3000, 30)
    pairs = mask(texts)
    assert pairs.word_ends is not None
    wanted = pairs.target_ids
    starts = np.repeat(pairs.source_offsets[:-1], pairs.target_lengths)
    seen = pairs.source_ids[starts + pairs.word_ends]
    n = len(wanted)
    assert n / (3000 * 30) == pytest.approx(0.15, abs=0.002)
    assert (seen == mask_id(IDS)).mean() == pytest.approx(0.8, abs=4 * (0.8 * 0.2 / n) ** 0.5)
    assert (seen == wanted).mean() == pytest.approx(0.1 + 0.1 / len(TEXT_IDS), abs=4 * (0.09 / n) ** 0.5)
    random = seen[(seen != mask_id(IDS)) & (seen != wanted)]
    assert set(random.tolist()) <= set(TEXT_IDS)
    assert len(set(random.tolist())) == pytest.approx(len(TEXT_IDS) - 1, abs=5)  # each of them is drawn


@pytest.mark.parametrize("share", [0.05, 0.4])
def test_other_shares_can_be_chosen_and_no_sentence_is_without_a_mask(share: float) -> None:
    pairs = mask(sentences(500, 40), Masking(mask_share=share))
    assert pairs.target_lengths.sum() / (500 * 40) == pytest.approx(share, abs=0.005)
    assert mask(sentences(200, 2), Masking(mask_share=share)).target_lengths.min() == 1
    kept = mask(sentences(50, 20), Masking(mask_share=share, random_share=0.0, kept_share=1.0))
    assert mask_id(IDS) not in kept.source_ids
    assert [read(kept, n)[1:] for n in range(50)] == sentences(50, 20)


def test_shares_that_are_more_than_all_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"random_share=0\.6: with model\.options\.kept_share=0\.5 it is more than all"
    ):
        Masking(random_share=0.6, kept_share=0.5)


def test_a_sentence_is_read_from_bos_to_eos_and_only_text_is_masked() -> None:
    texts = sentences(200, 12)
    pairs = mask(texts)
    assert [restored(pairs, n) for n in range(200)] == [[IDS.bos_id, *text] for text in texts]
    assert not set(pairs.target_ids.tolist()) & set(special_ids(IDS))


def test_the_masks_follow_from_the_seed_the_epoch_and_the_sentence() -> None:
    texts = sentences(20, 15)
    first = mask(texts).source_ids
    assert np.array_equal(mask(texts).source_ids, first)
    assert not np.array_equal(mask(texts, epoch=1).source_ids, first)
    assert not np.array_equal(mask(texts, seed=2).source_ids, first)
    alone = masked(as_targets(texts[7:8]), sentence_seeds(np.array([7]), seed=1, epoch=0)[0], IDS, Masking())
    assert read(alone, 0) == read(mask(texts), 7)


def test_a_text_that_names_the_mask_stays_text() -> None:
    (ids,) = IDS.encode(["the [mask] drank <mask> [MASK]"])
    assert max(ids) < mask_id(IDS)


def test_the_updates_of_a_run_are_masked_anew_in_each_epoch() -> None:
    feed = Feed(config(), prepared())
    n = feed.plan.updates_per_epoch
    assert np.array_equal(feed.pairs(1).source_ids, Feed(config(), prepared()).pairs(1).source_ids)
    of_epochs = [
        sorted(
            tuple(restored(pairs, i))
            for step in range(1, n + 1)
            for pairs in [feed.pairs(step + epoch * n)]
            for i in range(len(pairs))
        )
        for epoch in (0, 1)
    ]
    assert of_epochs[0] == of_epochs[1]
    assert not np.array_equal(
        np.sort(np.concatenate([feed.pairs(step).target_ids for step in range(1, n + 1)])),
        np.sort(np.concatenate([feed.pairs(step).target_ids for step in range(n + 1, 2 * n + 1)])),
    )
