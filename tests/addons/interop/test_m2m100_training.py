"""NLLB fine-tuned in several directions: a run that was stopped is the same run, and what it exports says the same."""

import json
import re
from pathlib import Path

import pytest
import torch

from tests.addons.interop.test_m2m100_extended import new_sentences
from tests.addons.interop.toy_languages import nllb
from tests.support.contract import run
from tests.toy.run import assert_same_run, dying_at
from tests.toy.translator import sentences
from transformer_cli.addons.interop import verify
from transformer_cli.addons.interop.importing import import_model, read
from transformer_cli.cli import main
from transformer_cli.models.file import read_model

FULL = ["init.extend_languages=[tyv_Cyrl]", "init.like=kas_Arab", "init.extend_vocab=20"]
PRUNED = ["init.keep_languages=[eng_Latn,fra_Latn,tyv_Cyrl]"]
LORA = ["lora.rank=3", "lora.dropout=0.1"]
SIZED = {"source_embedding.weight"}  # by the vocabulary
EMBEDDINGS = ["lora.also=[embeddings,*.norm]"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model of seven languages, and text in three."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(verify, "N_LINES", 6)
    nllb(tmp_path / "nllb")
    import_model(read(tmp_path / "nllb", "hf"), tmp_path / "base.safetensors", origin=tmp_path / "nllb", compares=False)
    for name, n in (("train", 40), ("dev", 4)):
        for seed, code in enumerate(("eng_Latn", "fra_Latn", "tyv_Cyrl")):
            lines = (new_sentences if code == "tyv_Cyrl" else sentences)(n, seed=10 * n + seed)
            (tmp_path / f"{name}.{code}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


def words(*more: str, third: str) -> list[str]:
    directions = [("eng_Latn", "fra_Latn"), ("fra_Latn", "eng_Latn"), ("eng_Latn", third)]
    files = {one: ",".join(f"{one}.{a},{one}.{b}" for a, b in directions) for one in ("train", "dev")}
    tags = json.dumps([f"<{source}> <2{target}>" for source, target in directions])
    sides = "+".join(dict.fromkeys(code for pair in directions for code in pair))
    return [
        *("train", "init.from=base.safetensors", "data=files", "name=x", "device=cpu", "decode=greedy"),
        *(
            f"data.source_lang={sides}",
            f"data.target_lang={sides}",
            "data.clean=[]",
            "data.max_length=60",
            "train.robustness_lines=0",
        ),
        *(f"data.train=[{files['train']}]", f"data.dev=[{files['dev']}]", f"data.test=[{files['dev']}]"),
        *(f"data.tags={tags}", f"data.dev_tags={tags}", f"data.test_tags={tags}", "data.weights=[1,1,2]"),
        *("train.max_steps=6", "train.eval_every=3", "train.save_every=2", "train.average_last=2"),
        *("train.tokens_per_update=150", "train.max_tokens_per_microbatch=60", "decode.max_extra_length=5"),
        *("schedule=constant", "schedule.lr=0.01", *more),
    ]


@pytest.mark.parametrize(
    "more",
    [
        [*FULL, *PRUNED, *LORA, *EMBEDDINGS],
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ([], FULL, LORA, [*FULL, *LORA, "init.freeze=[encoder]"])
        ),
    ],
    ids=lambda more: " ".join(word.split("=")[0].split(".")[1] for word in more) or "plain",
)
def test_a_stopped_run_is_the_same_run_and_its_export_says_the_same(more: list[str], place: Path) -> None:
    third = "tyv_Cyrl" if more[: len(FULL)] == FULL else "kas_Arab"
    for name in ("train", "dev"):
        (place / f"{name}.kas_Arab").write_bytes((place / f"{name}.tyv_Cyrl").read_bytes())
    given = words(*more, third=third)
    assert main(given) == 0
    (place / "runs").rename(place / "whole")
    with dying_at(4):
        main(given)
    assert not (place / "runs/x/model.safetensors").exists()
    assert main(given) == 0
    assert_same_run(place / "runs/x", place / "whole/x")
    for form in ("huggingface", "ctranslate2"):
        pytest.importorskip({"huggingface": "transformers"}.get(form, form))
        done = run(["export", form, "--checkpoint", "runs/x", "--output", form], place)
        assert done.code == 0, done.err
    outcome = import_model(
        read(place / "huggingface", "hf"), place / "back.safetensors", origin=place / "huggingface", n_made_up=6
    )
    assert outcome.comparison is not None
    assert outcome.comparison.holds
    model, base = (read_model(place / name) for name in ("runs/x/model.safetensors", "base.safetensors"))
    changed = {name for name, weight in base.weights.items() if not torch.equal(model.weights[name], weight)} - SIZED
    projections = {name for name in base.weights if re.fullmatch(r"(encoder|decoder)\.(?!.*norm).*weight", name)}
    of_encoder = {name for name in base.weights if name.startswith("encoder.")}
    assert projections - changed == (projections & of_encoder if "init.freeze=[encoder]" in more else set())
