"""The model card says what is in the model file, and calls the rest unknown."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.addons.interop.test_export import model_file
from tests.golden.make import FOLDER
from tests.support.each import each
from transformer_cli import languages
from transformer_cli.addons.interop.exported import facts_of
from transformer_cli.addons.interop.model_card import card, read_scores
from transformer_cli.config.model import Tying
from transformer_cli.errors import ConfigError, EnvironmentFault
from transformer_cli.models.facts import as_text, described_language, model_facts, model_lines, score_rows
from transformer_cli.models.file import ModelFile, read_model, write_model

SCORES = {
    "test_set": "flickr.test",
    "lines": 1000,
    "search": "search:beam|beam_size:4",
    "scores": [{"name": "BLEU", "score": 41.234, "signature": "nrefs:1|version:2.6.0"}],
}
PROVENANCE = {
    "inputs": {"data.train: a.en": "b" * 64},
    "cleaning": {
        **{"n_read": 1000, "n_bad": 1, "n_blank": 20, "n_duplicate": 300, "n_long": 0, "n_uneven": 4, "n_control": 2},
        **{"max_length": 256, "max_ratio": 9.0},
    },
    "dev_search": "search:greedy",
    "dev_lines": 500,
}


def described(**changes: Any) -> ModelFile:
    model = model_file()
    data = {"name": "multi30k", "task": "translation", "tokenizer": {"kind": "bpe"}}
    scores = {"dev_nll": 1.5, "dev_bleu": 31.456, "bleu_signature": "nrefs:1|tok:13a"}
    return replace(model, target_lang="de", data=data, scores=scores, provenance=PROVENANCE, **changes)


def facts(model: ModelFile, program: str = "huggingface", **more: Any) -> dict[str, Any]:
    return facts_of(model, "f" * 64, program=program, max_positions=None) | {"library": "transformers 5"} | more


def test_a_model_file_says_the_same_as_the_model_in_it(tmp_path: Path) -> None:
    """The first is read without torch, from the header alone."""
    for model in (described(), model_file(tie_embeddings=Tying.none), model_file(output_bias=True)):
        write_model(tmp_path / "m", model)
        from_file, of_model = model_facts(tmp_path / "m"), facts(model)
        for key in ("parameters", "vocabularies", "provenance", "scores", "config", "averaged", "step", "data"):
            assert from_file[key] == of_model[key], key
        assert model_lines(from_file) == model_lines(of_model)


def test_the_number_of_parameters_is_that_of_the_built_model() -> None:
    import torch

    model = described()
    built = model.build(torch.device("cpu"))
    assert dict(model_lines(facts(model)))["parameters"] == f"{sum(p.numel() for p in built.parameters()):,}"


def test_the_cleaning_adds_up() -> None:
    text = card(facts(described()))
    assert "| pairs kept | 675 of 1,000 |" in text  # 1000 - 1 - 20 - 300 - 4
    assert "| dropped: duplicates | 300 |" in text
    assert "tokens |" not in text, "nothing was dropped for its length"
    assert "| data.train: a.en | `bbbb" in text


def test_corpora_by_name_are_listed_with_what_is_to_be_cited() -> None:
    article = "@article{someone,\n  title={Corpora}\n}\n"
    corpora = [
        {"id": "Made-a-1-deu-eng", "urls": ["http://a/1.zip"], "bytes": 12345, "citations": [article]},
        {"id": "Made-b-1-deu-eng", "urls": ["http://a/de", "http://a/en"], "bytes": 1, "citations": [article]},
    ]
    text = card(facts(replace(described(), provenance=PROVENANCE | {"corpora": corpora})))
    assert "| Made-a-1-deu-eng | 12,345 | not stated | http://a/1.zip |" in text
    assert "| Made-b-1-deu-eng | 1 | not stated | http://a/de http://a/en |" in text
    assert text.count("@article{someone,\n  title={Corpora}\n}\n```") == 1
    assert "corpus of mtdata" not in card(facts(described()))


def test_a_score_has_its_text_signature_and_search() -> None:
    rows = score_rows(facts(described(), test=SCORES))
    assert rows == [
        ("dev, 500 lines", "BLEU", "31.46", "nrefs:1|tok:13a", "search:greedy"),
        ("dev, 500 lines", "NLL, nats per target token", "1.5", "", ""),
        ("flickr.test, 1,000 lines", "BLEU", "41.23", "nrefs:1|version:2.6.0", "search:beam|beam_size:4"),
    ]


def test_a_fine_tuned_model_names_its_start_and_the_scores_of_the_old_text() -> None:
    old = {"dev_old_bleu": 20.0, "dev_old_bleu_signature": "old"}
    model = replace(described(), provenance=PROVENANCE | {"started_from": "m, a model of tatoeba"})
    given = facts(replace(model, scores=model.scores | old))
    assert ("dev of the old text", "BLEU", "20.00", "old", "search:greedy") in score_rows(given)
    text = card(given)
    assert "| started from | m, a model of tatoeba |" in text
    assert len(front(text)["model-index"][0]["results"]) == 1


def test_what_is_not_known_is_called_unknown() -> None:
    model = replace(model_file(), data={}, scores={}, provenance={})
    text = card(facts(model))
    assert "| corpus | unknown |" in text
    assert "| cleaning | unknown |" in text
    assert "| licence | not stated |" in text
    assert "Unknown: none are in the model file." in text
    older = {key: value for key, value in facts(model).items() if key not in ("parameters", "vocabularies")}
    assert dict(model_lines(older))["parameters"] == dict(model_lines(older))["vocabulary"] == "unknown"


def front(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text.split("---\n")[1])
    return found


def test_the_hub_reads_the_front_matter() -> None:
    found = front(card(facts(described(), license="Apache-2.0", test=SCORES)))
    assert found["language"] == ["en", "de"]
    assert (found["license"], found["pipeline_tag"], found["library_name"]) == (
        "apache-2.0",
        "translation",
        "transformers",
    )
    (entry,) = found["model-index"]
    for result, (dataset, split, value) in zip(
        entry["results"], [("multi30k", "dev", 31.46), ("flickr.test", "test", 41.23)], strict=True
    ):
        assert result["task"]["type"] == "translation"
        assert (result["dataset"]["name"], result["dataset"]["split"]) == (dataset, split)
        (metric,) = result["metrics"]
        assert (metric["type"], metric["value"]) == ("bleu", value)
        assert "search:" in metric["name"]


def test_the_hub_library_accepts_the_card() -> None:
    """The library's own reader and parser of results read it."""
    hub = pytest.importorskip("huggingface_hub")
    found = hub.ModelCard(card(facts(described(), license="mine", test=SCORES)))
    assert found.data.license == "other"
    assert [result.metric_value for result in found.data.eval_results] == [31.46, 41.23]


def test_front_matter_is_for_the_hub_alone_and_nothing_in_a_name_breaks_it() -> None:
    odd = replace(described(), target_lang="no: [x", data={"name": "a: #b\n---\n", "task": "translation"})
    assert not card(facts(odd, "onnx")).startswith("---")
    found = front(card(facts(odd, license="my: licence\n---\n")))
    assert (found["license"], found["license_name"]) == ("other", "my: licence\n---\n")
    assert found["language"] == ["en"]


def test_a_bar_in_a_name_stays_in_its_cell() -> None:
    odd = replace(described(), data={"name": "a|b", "task": "translation"})
    assert r"| corpus | a\|b |" in card(facts(odd))


@each("program", ["ctranslate2", "huggingface", "onnx", "argos", "marian", None])
def test_every_format_has_a_card(program: str | None) -> None:
    given = facts(described(), "x")
    del given["program"]
    text = card(given | ({"program": program} if program else {}), files={"model.bin": "a" * 64})
    assert "# English to German translation" in text
    assert ("## How to use it" in text) == (program is not None)
    assert f"| `model.bin` | `{'a' * 64}` |" in text
    assert "English (en) → German (de)" in as_text(given | {"program": "onnx"})


def test_scores_of_evaluate_are_read(tmp_path: Path) -> None:
    file = tmp_path / "scores"
    file.write_text(json.dumps({"model": "m", **SCORES}))
    assert read_scores(file) == SCORES
    for broken in ("", "[]", "{}", json.dumps({**SCORES, "scores": [{"name": "BLEU"}]}), '{"lines": 1, "lines": 2}'):
        file.write_text(broken)
        with pytest.raises(ConfigError, match=r"not what `tfm evaluate --json` prints"):
            read_scores(file)
    with pytest.raises(EnvironmentFault, match="No such file"):
        read_scores(tmp_path / "none")


def test_a_golden_model_file_has_a_card() -> None:
    for file in sorted(FOLDER.glob("*.safetensors")):
        found = model_facts(file)
        assert found["parameters"] == sum(weight.numel() for weight in read_model(file).weights.values())
        assert card(found).startswith("# ")


def test_names_of_languages() -> None:
    assert described_language("pt_BR") == "Portuguese (pt_BR)"
    assert described_language("xx") == "xx"
    assert all(len(code) == 2 and name[0].isupper() for code, name in languages.NAMES.items())


@each("tags", [None, 7, {}, [3]])
def test_tags_that_are_none_do_no_harm(tags: Any) -> None:
    text = card(facts(described(), "ctranslate2", tags=tags))
    assert ("begins with its tags" in text) == (tags == [3])


def test_a_card_says_how_a_tag_is_given() -> None:
    assert '[["<2de>", *source.encode("TEXT", out_type=str)]]' in card(
        facts(described(), "ctranslate2", tags=["<2de>"])
    )
