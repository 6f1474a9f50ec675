"""Sentence segmentation: where sentences end, in which languages, and that no text takes long."""

import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses.corpus import NonbreakingPrefixes

from tests.support.each import each
from transformer_cli.data.sentences import _prefixes, has_no_spaces, split_sentences


@settings(deadline=None)  # the first call reads the abbreviations
@given(
    text=st.text(max_size=60) | st.text(alphabet='aB1. !?。"(\n', max_size=60), language=st.sampled_from(["en", "de"])
)
def test_sentences_hold_all_of_a_line_but_the_white_space_between_them(text: str, language: str) -> None:
    sentences = split_sentences(text, language)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() != "" for sentence in sentences)


@each("language", ["de", "deu", "ger", "deu_Latn", "de-AT"])
def test_ordinals_and_abbreviations_are_those_of_the_language_whatever_its_code(language: str) -> None:
    line = "Er kam am 3. Mai nach Hause. Sie ging z. B. nach Rom."
    assert split_sentences(line, language) == ["Er kam am 3. Mai nach Hause.", "Sie ging z. B. nach Rom."]


def test_a_number_ends_a_sentence_where_it_is_no_ordinal_and_begins_an_item_of_a_list() -> None:
    assert split_sentences("We were 3. Then he left.", "en") == ["We were 3.", "Then he left."]
    assert split_sentences('"1. Open it. 2. Close it."', "en") == ['"1. Open it.', '2. Close it."']
    assert split_sentences("1. Punkt. (2. Punkt.)", "de") == ["1. Punkt.", "(2. Punkt.)"]


def test_the_abbreviations_are_those_of_sacremoses_which_is_not_imported_for_them() -> None:
    code = "import sys; from transformer_cli.data.sentences import split_sentences as split"
    code += "; print(split('I saw Mr. Smith. He left.', 'en'), 'sacremoses' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert printed == "['I saw Mr. Smith.', 'He left.'] False\n"
    known = NonbreakingPrefixes()
    for language in [*set(known.available_langs.values()), "xx"]:
        assert _prefixes(language)[0] == set(known.words(language))


@each("language", ["zh", "zho_Hans", "cmn", "chi", "yue", "ja", "jpn_Jpan", "th", "khm_Khmr", "lao_Laoo", "mya_Mymr"])
def test_scripts_without_spaces_are_known_by_every_code(language: str) -> None:
    assert has_no_spaces(language)


@each("language", ["en", "deu", "ko", "kor_Hang", "vi", ""])
def test_others_have_spaces(language: str) -> None:
    assert not has_no_spaces(language)


@pytest.mark.slow
@each("text", ["a " + "1. " * 200_000, "( " * 200_000 + "1. " * 100_000, "z. " * 200_000, ". " * 300_000])
def test_the_time_grows_with_the_length_of_a_line_whatever_is_in_it(text: str) -> None:
    """600,000 characters take about a second; where each mark looks at all before it, minutes."""
    started = time.process_time()
    split_sentences(text, "de")
    assert time.process_time() - started < 20
