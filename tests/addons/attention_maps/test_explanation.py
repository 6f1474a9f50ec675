"""What the page of `tfm attention` shows of a search."""

from tests.decoding.test_explain import EXPLAIN
from tests.toy.translator import toy_tokenizer, translator_of
from transformer_cli.addons.attention_maps.explanation import MOST_HYPOTHESES, explain_for_page
from transformer_cli.decoding.explain import explain_search


def test_a_page_gets_no_more_hypotheses_than_it_can_show() -> None:
    translator = translator_of(toy_tokenizer(), options=EXPLAIN, beam_size=80, min_length=12, max_extra_length=30)
    (result,) = translator.translate(["the pretty woman sat down in her chair ."])
    assert result.searched is not None
    whole = explain_search(result.searched[0], translator.tokenizers)
    record = explain_for_page(result.searched[0], translator.tokenizers)
    assert len(record["hypotheses"]) <= MOST_HYPOTHESES < len(whole["hypotheses"])
    numbers = {0, *(one["id"] for one in record["hypotheses"])}
    assert numbers >= {one["parent"] for one in record["hypotheses"]}
    assert numbers >= set(record["path"])
    assert record["notes"][0].startswith(f"of {len(whole['hypotheses']):,} hypotheses those are shown")
