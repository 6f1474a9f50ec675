"""Second cases of a branch, and arguments that a stand-in could have had exchanged: found by mutation."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tests.addons.comparison.toy_comparison import toy_comparison
from tests.support.contract import run
from tests.support.each import each
from tests.toy.run import model_file, packed, sentences
from tests.toy.translator import engine_of, toy_tokenizer, translator_of
from transformer_cli.addons.comparison.page import render
from transformer_cli.addons.comparison.report import _conclusion, _group_conclusion
from transformer_cli.addons.comparison.results import Comparison
from transformer_cli.addons.comparison.run_compare import write_page
from transformer_cli.addons.interop.model_card import markdown_table
from transformer_cli.config.tasks import TASKS
from transformer_cli.config.train import LoraConfig
from transformer_cli.decoding.results import TranslateOptions
from transformer_cli.decoding.shared_engine import SharedEngine
from transformer_cli.decoding.terminology import Term, Terminology
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.report import print_sets
from transformer_cli.evaluation.significance import PairedResult
from transformer_cli.models.facts import UNKNOWN, architecture, options, vocabulary_line
from transformer_cli.models.linear import Linear
from transformer_cli.training.lora import LoraLinear
from transformer_cli.training.summary import _corpus

# ---- Comparing


def put(file: Path, lines: list[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.mark.parametrize(("metric", "label"), [("ter", "TER"), ("chrf", "chrF2")])
def test_lines_are_better_where_the_metric_says_so_also_if_lower_is_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: str, label: str
) -> None:
    put(tmp_path / "reference", ["a b c d e", "f g h i j", "k l m n o"])
    put(tmp_path / "first", ["a b c d x", "f g h i j", "k l m n o"])
    put(tmp_path / "second", ["a b c d e", "f g x x x", "k l m n o"])  # better in line 1, worse in line 2
    written: list[tuple[Comparison, str, bool]] = []

    def record(comparison: Comparison, name: str, *, replace: bool) -> None:
        written.append((comparison, name, replace))

    monkeypatch.setattr("transformer_cli.addons.comparison.run_compare.write_page", record)
    options = ["--metrics", "chrf", "samples=20", "trials=20", f"sentence_metric={metric}", "--output", "page.html"]
    ran = run(["compare", "first", "second", "--reference", "reference", *options], tmp_path)
    assert ran.code == 0, ran.err
    ((comparison, name, replace),) = written
    assert (name, replace, comparison.sentence_metric) == ("page.html", False, label)
    assert [one.line for one in comparison.better[1]] == [1]
    assert [one.line for one in comparison.worse[1]] == [2]
    (worse,) = comparison.worse[1]
    assert worse.translations == ["f g h i j", "f g x x x"]
    assert worse.references == ["f g h i j"]
    if metric == "ter":
        assert worse.scores == [0.0, pytest.approx(60.0)]  # three of five words


def test_the_page_of_a_comparison_is_written_and_not_over_another_unasked(tmp_path: Path) -> None:
    comparison, page = toy_comparison(), tmp_path / "page.html"
    write_page(comparison, str(page), replace=False)
    assert page.read_text(encoding="utf-8") == render(comparison)
    page.write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"page\.html"):
        write_page(comparison, str(page), replace=False)
    assert page.read_text(encoding="utf-8") == "mine"
    write_page(comparison, str(page), replace=True)
    assert page.read_text(encoding="utf-8") == render(comparison)


# ---- What is printed


def test_a_cell_of_a_markdown_table_may_hold_what_divides_cells() -> None:
    assert markdown_table(["a", "b"], [["bs:1000|seed:1", "two\nlines"]]).split("\n") == [
        "| a | b |",
        "| --- | --- |",
        r"| bs:1000\|seed:1 | two lines |",
    ]


def test_the_names_of_test_sets_are_printed_as_lines_or_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    sets = {"wmt9": ["en-de", "de-en"], "wmt10": ["en-cs"]}
    print_sets(sets, as_json=False)
    assert capsys.readouterr().out == "wmt9   en-de de-en\nwmt10  en-cs\n"
    print_sets(sets, as_json=True)
    assert json.loads(capsys.readouterr().out) == sets


# ---- LoRA


def adapted(dropout: float) -> LoraLinear:
    torch.manual_seed(1)
    module = LoraLinear(Linear(64, 8, bias=False, parts=(4, 4)), LoraConfig(rank=2, dropout=dropout))
    nn.init.normal_(module.lora_b)
    return module


def test_the_dropout_of_lora_is_on_the_input_of_what_is_added_and_in_training_alone() -> None:
    x_LK = torch.ones(1000, 64)
    without, module = adapted(0.0), adapted(0.75)
    expected = without.eval()(x_LK)
    torch.testing.assert_close(module.eval()(x_LK), expected)
    added = module.train()(x_LK) - x_LK @ module.weight.T
    torch.testing.assert_close(added.mean(dim=0), (expected - x_LK @ module.weight.T)[0], rtol=0.2, atol=0.1)
    # Rows differ, as each drops inputs of its own; inputs are kept with probability 1/4 and scaled by 4.
    products = module.scale * torch.cat(
        [b @ a for b, a in zip(module.lora_b.split(4), module.lora_a.split(2), strict=True)]
    )
    variance = (products**2).sum(dim=1) * (0.75 / 0.25)
    torch.testing.assert_close(added.var(dim=0), variance, rtol=0.25, atol=0)


# ---- A cache that several callers share


def test_a_translation_with_one_term_is_not_the_answer_to_the_same_line_with_another() -> None:
    """Terms of the same source phrase: all but what is required is the same."""
    plain = translator_of(toy_tokenizer())
    shared = SharedEngine(engine_of(plain), n_cached=100)
    translator = plain.using(shared)
    line = "the cat drank milk ."
    found = []
    try:
        for target in ("woman", "chair", "woman"):
            terms = Terminology([Term("cat", (target,), 1)], name="terms")
            options = TranslateOptions(terminology=terms)
            (result,) = Translator(shared, translator.config, seed=1, options=options).translate([line])
            assert target in result.text
            found.append(result.text)
        (bare,) = translator.translate([line])
    finally:
        shared.close()
    assert found[0] == found[2] != found[1]
    assert bare.text not in found


# ---- Where a test set comes from, and what a run says of its corpus


def test_models_are_compared_on_the_test_set_of_a_corpus_that_is_named(tmp_path: Path) -> None:
    lines = sentences(4, seed=5)
    put(tmp_path / "corpus.en", lines)
    put(tmp_path / "corpus.xx", [line.upper() for line in lines])
    for name in ("m", "m2"):
        (tmp_path / name).write_bytes(packed(model_file(seed=len(name))))
    corpus = ["data=files", "data.source_lang=en", "data.target_lang=fr", "data.test=[corpus.en,corpus.xx]"]
    options = ["device=cpu", "decode=greedy", "metrics=[chrf]", "samples=20", "trials=20", "--json"]
    ran = run(["compare", "m", "m2", *corpus, *options], tmp_path)
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert (found["n_lines"], [system["name"] for system in found["systems"]]) == (4, ["m", "m2"])


@each(
    "task, says",
    [
        ("translation", "corpus: 3 training pairs, 5 + 7 tokens, en → fr"),
        ("classification", "corpus: 3 training lines, 5 tokens"),
        ("token_classification", "corpus: 3 training sentences, 7 words, 5 tokens"),
        ("language_model", "corpus: 3 training lines, 7 tokens"),
    ],
)
def test_a_run_says_how_much_it_trains_on_in_the_units_of_its_task(task: str, says: str) -> None:
    class Corpus:
        source_ids, target_ids = range(5), range(7)

        def __len__(self) -> int:
            return 3

    data = SimpleNamespace(name="corpus", trained=TASKS[task], source_lang="en", target_lang="fr")
    config: Any = SimpleNamespace(data=data)
    prepared: Any = SimpleNamespace(train=Corpus())
    assert _corpus(config, prepared) == says


def toy_with(*results: tuple[str, bool, float, float], translations: list[str] | None = None) -> Comparison:
    """Two systems; of each metric its name, whether higher is better, the difference and its p-value."""
    made = toy_comparison(names=["old", "new"])
    systems = [replace(system, group=None) for system in made.systems]
    if translations is not None:
        systems = [replace(system, translations=translations) for system in systems]
    metrics = [
        replace(
            made.metrics[0],
            name=name,
            higher_is_better=higher_is_better,
            against_baseline=[None, PairedResult(difference, p, p)],
        )
        for name, higher_is_better, difference, p in results
    ]
    return replace(made, systems=systems, metrics=metrics)


@each(
    "results, says",
    [
        ([("BLEU", True, 1.5, 0.01)], "new is better than old by BLEU (+1.50)."),
        ([("BLEU", True, -1.5, 0.01)], "new is worse than old by BLEU (-1.50)."),
        ([("TER", False, -1.5, 0.01)], "new is better than old by TER (-1.50)."),
        ([("TER", False, 1.5, 0.01)], "new is worse than old by TER (+1.50)."),
        ([("COMET", True, 0.0041, 0.01)], "new is better than old by COMET (+0.0041)."),
        ([("BLEU", True, 1.5, 0.06)], "No difference between new and old is shown by BLEU: chance may explain it."),
        (
            [("BLEU", True, 1.5, 0.01), ("TER", False, 2.0, 0.01), ("chrF2", True, 0.2, 0.3)],
            "new is better than old by BLEU (+1.50) but is worse than old by TER (+2.00); no difference is shown by"
            " chrF2.",
        ),
        (
            [("BLEU", True, 1.5, 0.01), ("chrF2", True, 2.0, 0.01), ("TER", False, -2.0, 0.01)],
            "new is better than old by BLEU (+1.50), chrF2 (+2.00) and TER (-2.00).",
        ),
    ],
)
def test_a_conclusion_says_what_is_better_and_what_chance_may_explain(
    results: list[tuple[str, bool, float, float]], says: str
) -> None:
    assert _conclusion(toy_with(*results), 1) == says


def test_equal_translations_and_seeds_of_one_config_are_said() -> None:
    same = toy_with(("BLEU", True, 0.0, 1.0), translations=["a"])
    assert _conclusion(same, 1) == "new and old have the same translations, so there is no difference."
    seeds = toy_with(("BLEU", True, 1.5, 0.01))
    seeds = replace(seeds, systems=[replace(system, group="base") for system in seeds.systems])
    assert _conclusion(seeds, 1).endswith("(+1.50); both are runs of one config, so this is what a seed does.")


@each(
    "p, higher_is_better, says",
    [
        (None, True, "deep: +1.50 BLEU on average beside base; a test needs two runs or more of each."),
        (0.05, True, "No difference between the groups deep and base is shown: +1.50 BLEU on average, p = 0.0500"),
        (0.049, True, "Group deep is better than group base: +1.50 BLEU on average, p = 0.0490 of Welch's t-test."),
        (0.049, False, "Group deep is worse than group base: +1.50 BLEU"),
    ],
)
def test_groups_differ_where_their_test_says_so(p: float | None, higher_is_better: bool, says: str) -> None:
    metric = replace(toy_comparison().metrics[0], name="BLEU", higher_is_better=higher_is_better)
    found = replace(toy_comparison().group_comparisons[0], group="deep", baseline="base", difference=1.5, p_value=p)
    assert _group_conclusion(found, metric).startswith(says)


CARD = {
    **{"name": "transformer", "n_encoder_layers": 6, "n_decoder_layers": 2, "d_model": 256, "n_heads": 4, "d_ff": 512},
    **{"norm": "pre", "positions": "rotary"},
}


@each(
    "changes, says",
    [
        ({}, "Transformer: 6 encoder layers, 2 decoder layers, width 256, 4 heads, feed-forward 512"),
        ({"name": "tagger"}, "Transformer (tagger): 6 encoder layers, width 256, 4 heads, feed-forward 512"),
        ({"name": "decoder"}, "Transformer (decoder): 2 decoder layers, width 256, 4 heads, feed-forward 512"),
        ({"d_k": 32}, "width 256, 4 heads (d_k 32, d_v d_model / n_heads), feed-forward 512"),
        ({"d_v": 16}, "width 256, 4 heads (d_k d_model / n_heads, d_v 16), feed-forward 512"),
    ],
)
def test_a_card_says_what_a_model_is_made_of(changes: dict[str, Any], says: str) -> None:
    assert architecture({**CARD, **changes}).endswith(says)


@each(
    "changes, says",
    [
        ({}, ""),
        ({"bias": False, "scale_embeddings": False}, " bias=false scale_embeddings=false"),
        ({"output_bias": True, "decoder_start": "zeros"}, " output_bias=true decoder_start=zeros"),
        ({"bias": True, "norm_eps": 1e-6, "n_segments": 2}, " n_segments=2 norm_eps=1e-06"),
        ({"d_embedding": 64, "attention_window": 8}, " d_embedding=64 attention_window=8"),
    ],
)
def test_a_card_has_the_options_that_are_not_as_usual(changes: dict[str, Any], says: str) -> None:
    assert options({**CARD, **changes}) == f"norm=pre positions=rotary{says}"


@pytest.mark.parametrize(
    ("sizes", "kind", "says"),
    [
        ({"source": 8000, "target": 8000, "joint": True}, "bpe", "8,000 pieces, joint, bpe"),
        ({"source": 8000, "target": 4000, "joint": False}, None, "8,000 pieces and 4,000 pieces"),
        ({}, "bpe", UNKNOWN),
    ],
)
def test_a_card_says_how_large_a_vocabulary_is(sizes: dict[str, Any], kind: str | None, says: str) -> None:
    assert vocabulary_line({"vocabularies": sizes, "data": {"tokenizer": {"kind": kind}}}) == says
