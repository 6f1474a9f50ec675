"""Tokenizers with tokens of languages, which tags put around a source and before its translation."""

from dataclasses import replace

import numpy as np
import pytest

from tests.data.test_packed_tokenizer import TEXT, packed
from tests.support.each import each
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.encoding import encoded
from transformer_cli.data.packed_tokenizer import PackedTokenizer
from transformer_cli.data.subwords import resegmented, sentence_seeds
from transformer_cli.data.tags import split_tags
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.decoding.directions import asked_tags, direction_of
from transformer_cli.decoding.plan import Planner
from transformer_cli.decoding.training_text import TrainingText
from transformer_cli.errors import ConfigError

EN_FR, DE_FR = "<en> <2fr>", "<de> <2fr>"


def languages(*, last: bool = False) -> PackedTokenizer:
    """`__de__`, `__en__` and `__fr__` are the last three pieces but for the padding."""
    plain = packed(whole=[])
    pieces = [*plain.pieces, "__de__", "__en__", "__fr__"]
    return replace(plain, pieces=pieces, languages=pieces[-3:], language_last=last)


def joint(*, last: bool = False) -> Tokenizers:
    tokenizer = Tokenizer(languages(last=last).to_bytes())
    return Tokenizers(tokenizer, tokenizer)


@each("last", [False, True])
def test_a_source_has_its_language_and_a_translation_begins_with_its_own(last: bool) -> None:
    tokenizers = joint(last=last)
    (plain,) = tokenizers.source.without_tags().encode([TEXT[0]])
    (source,) = tokenizers.source.encode([f"{EN_FR} {TEXT[0]}"])
    (target,) = tokenizers.encode_targets([f"{EN_FR} {TEXT[0]}"], [TEXT[1]])
    of_language = tokenizers.source.languages
    if last:
        assert [*source, *tokenizers.source.end_ids] == [*plain, 0, of_language["en"]]
    else:
        assert [*source, *tokenizers.source.end_ids] == [of_language["en"], *plain, 0]
    assert target[0] == of_language["fr"]
    assert tokenizers.target.end_ids == [0]
    assert tokenizers.target.decode(target) == TEXT[1]
    assert tokenizers.encode_targets([f"{EN_FR} a"], [""]) == [[]]


def test_the_bytes_of_a_tokenizer_without_languages_are_as_they_were() -> None:
    assert b"language" not in packed().to_bytes()
    written = languages(last=True).to_bytes()
    assert PackedTokenizer.from_bytes(written).to_bytes() == written


@each(
    "tags, flag",
    [("", "--to"), ("<2fr>", "--from"), ("<en>", "--to"), ("<en> <2fr> <2de>", "--to"), ("<en> <de> <2fr>", "--from")],
)
def test_a_line_without_a_direction_is_refused(tags: str, flag: str) -> None:
    with pytest.raises(ConfigError, match=f"^{flag}: (no|several) languages? to translate"):
        joint().encode_targets([f"{tags} {TEXT[0]}"], [TEXT[1]])


@each("last", [False, True])
def test_one_direction_has_the_same_ids_without_tags(last: bool) -> None:
    tokenizers = joint(last=last)
    one = tokenizers.in_direction("en", "fr")
    assert not one.source.tags
    for text in TEXT[:3]:
        assert one.source.encode([text]) == tokenizers.source.encode([f"{EN_FR} {text}"])
        assert one.encode_targets([text], [text]) == tokenizers.encode_targets([f"{EN_FR} {text}"], [text])
    assert one.source.end_ids == tokenizers.source.end_ids


@each("last", [False, True])
def test_a_side_without_text_keeps_its_language_where_the_pair_is_scored(last: bool) -> None:
    tokenizers = joint(last=last)
    of_language, (text,) = tokenizers.source.languages, tokenizers.source.without_tags().encode([TEXT[0]])
    pairs = [(TEXT[0], ""), ("", TEXT[0]), ("", " "), (f"{EN_FR} {TEXT[0]}", " ")]
    sources, targets = tokenizers.encode_scored(pairs, EN_FR.split())
    no_text = [0, of_language["en"]] if last else [of_language["en"]]
    assert [source == no_text for source in sources] == [False, True, False, False]
    assert targets == [[of_language["fr"]], [of_language["fr"], *text], [], [of_language["fr"]]]
    assert (sources[2], sources[3]) == ([], sources[0])
    one = tokenizers.in_direction("en", "fr")
    assert one.encode_scored(pairs[:3], []) == (sources[:3], targets[:3])


@each("last, single", [(False, False), (True, False), (False, True), (True, True)])
def test_sampled_pieces_leave_the_languages_where_they_are(last: bool, single: bool) -> None:
    tokenizers = joint(last=last)
    tokenizers = tokenizers.in_direction("en", "fr") if single else tokenizers
    lines = [text if single else f"{EN_FR} {text}" for text in TEXT[:3]]
    sources = [[*ids, *tokenizers.source.end_ids] for ids in tokenizers.source.encode(lines)]
    targets = [[*ids, 0] for ids in tokenizers.encode_targets(lines, TEXT[:3])]
    corpus = EncodedCorpus.of(sources, targets)
    ids = joint().source.languages
    changed = 0
    for epoch in range(4):
        seeds = sentence_seeds(np.arange(3), seed=1, epoch=epoch)
        new = resegmented(corpus, tokenizers, seeds, dropout=0.5, max_length=99)
        for n in range(3):
            source = new.source_ids[new.source_offsets[n] : new.source_offsets[n + 1]].tolist()
            target = new.target_ids[new.target_offsets[n] : new.target_offsets[n + 1]].tolist()
            assert (source[-2:] if last else [source[-1], source[0]]) == [0, ids["en"]]
            assert (target[0], target[-1]) == (ids["fr"], 0)
            assert sum(i in ids.values() for i in source) == sum(i in ids.values() for i in target) == 1
            assert tokenizers.target.decode(target) == TEXT[n]
            changed += source != sources[n]
    assert changed


def test_prepared_pairs_are_those_of_the_tokenizers() -> None:
    tokenizers = joint()
    pairs = [(f"{EN_FR} {TEXT[0]}", TEXT[1]), (f"{DE_FR} {TEXT[1]}", TEXT[2])]
    ((sources, targets),) = encoded(pairs, tokenizers, n_processes=1)
    expected = tokenizers.encode_targets([source for source, _ in pairs], [target for _, target in pairs])
    assert targets.ids.tolist() == [i for ids in expected for i in ids]
    assert sources.ids.tolist() == [i for ids in tokenizers.source.encode([source for source, _ in pairs]) for i in ids]


def test_segments_begin_with_the_language_and_then_with_the_prefix_of_the_user() -> None:
    tokenizers = joint()
    planner = Planner(tokenizers, TrainingText("de+en+fr", "de+en+fr"), DecodeConfig(), tags=["<en>", "<2fr>"])
    first, own = planner.plan([TEXT[0], f"<de> <2en> {TEXT[0]}"], [(5, 6), ()])
    ids = tokenizers.source.languages
    assert (first.segments[0].prefix, first.segments[0].n_first) == ((ids["fr"], 5, 6), 1)
    assert own.segments[0].prefix == (ids["en"],)
    assert own.segments[0].ids[0] == ids["de"]
    room, _ = planner.room([TEXT[0], TEXT[0]])
    plain = Planner(joint().in_direction("en", "fr"), TrainingText(), DecodeConfig()).room([TEXT[0]])
    assert room is not None
    assert [room + 1] == plain


class _Model:
    def __init__(self, source: str, target: str) -> None:
        self.tokenizers, self.source_lang, self.target_lang = joint(), source, target


def test_a_model_of_one_direction_is_asked_for_it_without_flags() -> None:
    one, many = _Model("en", "fr"), _Model("de+en+fr", "de+en+fr")
    assert asked_tags(one, None, None, None) == ("<en>", "<2fr>")
    assert asked_tags(one, None, None, "deu") == ("<en>", "<2de>")
    assert asked_tags(one, "<de>", None, None) == ("<2fr>", "<de>")
    assert asked_tags(many, None, None, None) == ()
    assert asked_tags(many, None, "eng_Latn", "fra") == ("<en>", "<2fr>")
    assert direction_of(many) == "de+en+fr → de+en+fr"


def test_of_hundreds_of_tags_the_longest_is_found() -> None:
    known = [f"<{code}>" for n in range(300) for code in (f"a{n}", f"2a{n}")]
    assert split_tags("<a12> <2a299>the cat", known) == (["<a12>", "<2a299>"], "the cat")
    assert split_tags("<a300> the cat", known) == ([], "<a300> the cat")
