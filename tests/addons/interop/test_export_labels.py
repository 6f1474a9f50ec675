"""Classifiers and taggers in ONNX and as EuroBERT: the logits of the model in these programs, and the code of cards."""

import io
import json
import re
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.addons.classification import toy_classifier
from tests.addons.classification.toy_pairs import PAIR_SIZES, pair_table
from tests.addons.tagging import toy_tagger
from tests.conftest import slow, slow_but
from tests.support.contract import run
from tests.toy.models import random_file
from transformer_cli.addons.interop import eurobert, onnx_labels
from transformer_cli.addons.interop import onnx as to_onnx
from transformer_cli.addons.interop.exporters.huggingface import HuggingFaceExporter
from transformer_cli.addons.interop.exporters.onnx import ONNX
from transformer_cli.addons.interop.verify_labels import LabelVerdict, verify_labels
from transformer_cli.addons.tagging.words import join_words
from transformer_cli.config.model import Activation, Norm, Positions
from transformer_cli.errors import ConfigError
from transformer_cli.models.file import ModelFile, write_model

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

SIZES = toy_classifier.SIZES
MODERN = {
    "norm": Norm.pre,
    "norm_kind": "rms",
    "activation": Activation.swiglu,
    "positions": Positions.rotary,
    "bias": False,
}
MODELS: dict[str, dict[str, Any]] = {
    "mean": {},
    "first, learned": {"pooling": "first", "positions": Positions.learned, "norm": Norm.pre},
    "max, convolution": {"pooling": "max", "convolution": 5, "attention_window": 4},
    "self-attentive, modern": {**MODERN, "pooling": "self_attentive", "pooling_options": {"hops": 2, "width": 6}},
    "pairs": {"n_segments": 2},
    "pairs, segments": {"n_segments": 2, "pooling": "segments", "d_embedding": 8},
}
LINES = [line.split("\t")[1] for line in toy_classifier.table(20, seed=5).split("\n")[:-1]]
PAIRS = [line.split("\t", 1)[1] for line in pair_table(20, seed=5).split("\n")[:-1]]
SENTENCES = [join_words(words) for words in (["a", "bcd", "H"], ["H"], ["ef", "g", "a", "b"])]


def classifier(**changes: Any) -> ModelFile:
    return toy_classifier.random_model(replace(SIZES, **changes), max_length=20)


def exported(model: ModelFile, folder: Path) -> onnx_labels.LabelGraph:
    onnx_labels.write(model, folder)
    return onnx_labels.LabelGraph(folder)


@pytest.mark.parametrize(
    "name", slow_but(MODELS, "mean", "max, convolution", "self-attentive, modern", "pairs, segments")
)
def test_onnxruntime_classifies_as_the_model(name: str, tmp_path: Path) -> None:
    model = classifier(**MODELS[name])
    verdict = verify_labels(model, exported(model, tmp_path), PAIRS if model.config.n_segments == 2 else LINES)
    assert verdict.holds, verdict
    assert verdict.largest_difference < 1e-5
    assert verdict.ids_identical == verdict.lines == verdict.labels_identical == 20


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_onnxruntime_tags_as_the_model(pooling: str, tmp_path: Path) -> None:
    model = toy_tagger.random_model(pooling)
    verdict = verify_labels(model, exported(model, tmp_path), SENTENCES)
    assert verdict.holds, verdict
    assert verdict.largest_difference < 1e-5
    assert verdict.labels == 8


def test_padding_changes_no_class(tmp_path: Path) -> None:
    program = exported(classifier(pooling="self_attentive"), tmp_path)
    ids = program.encode([[line] for line in LINES])
    alone = torch.cat([torch.stack(program.logits([one])) for one in ids])
    torch.testing.assert_close(torch.stack(program.logits(ids)), alone, atol=1e-5, rtol=0)


def test_a_changed_weight_is_seen(tmp_path: Path) -> None:
    model = classifier()
    exported(model, tmp_path)
    weights = np.fromfile(tmp_path / to_onnx.WEIGHTS, np.float32)
    weights[:: len(weights) // 50] += 0.5
    weights.tofile(tmp_path / to_onnx.WEIGHTS)
    assert not verify_labels(model, onnx_labels.LabelGraph(tmp_path), LINES).holds


def test_other_ids_another_class_and_no_number_are_no_agreement() -> None:
    good = LabelVerdict(2, 2, 2, 2, 2, 1e-6)
    assert good.holds
    for change in ({"ids_identical": 1}, {"labels_identical": 1}, {"largest_difference": float("inf")}):
        assert not replace(good, **change).holds
    assert good.lines_of_text()[2] == "labels: 2 of 2 identical"


# ---- transformers


@pytest.mark.parametrize("changes", [{"pooling": "mean"}, slow({"pooling": "first"}), {"bias": True, "d_embedding": 8}])
def test_transformers_classifies_as_the_model(changes: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    model = classifier(**{**MODERN, **changes})
    eurobert.write(model, tmp_path)
    verdict = verify_labels(model, eurobert.LoadedEuroBert(tmp_path), LINES)
    assert verdict.holds, verdict
    assert verdict.largest_difference < 1e-5
    assert verdict.labels_identical == 20


@pytest.mark.parametrize("pooling", [slow("first"), "mean"])
def test_transformers_tags_as_the_model(pooling: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    model = modern(toy_tagger.random_model(pooling))
    eurobert.write(model, tmp_path)
    verdict = verify_labels(model, eurobert.LoadedEuroBert(tmp_path), SENTENCES)
    assert verdict.holds, verdict
    assert verdict.largest_difference < 1e-5


def test_the_pipeline_of_transformers_gives_the_labels(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = classifier(**MODERN)
    assert export(tmp_path, model, "huggingface").code == 0
    found = transformers.pipeline("text-classification", model=str(tmp_path / "out"))(LINES, batch_size=4)
    text = "".join(f"{line}\n" for line in LINES).encode()
    own = run(["classify", "--checkpoint", "model.safetensors", "device=cpu"], tmp_path, stdin=text)
    assert [one["label"] for one in found] == own.out.decode().splitlines()


def modern(model: ModelFile, **more: Any) -> ModelFile:
    """Another model of these options, with fresh weights."""
    config = replace(model.config, **{**MODERN, "bias": True, **more})
    return random_file(config, model.tokenizers, model.source_lang + "-" + model.target_lang, seed=3, data=model.data)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"norm": Norm.post}, "model.norm=post: EuroBERT, the one encoder of transformers that can be ours, has pre"),
        ({"activation": Activation.gelu}, "model.activation=gelu"),
        ({"norm_kind": "layer"}, "model.norm_kind=layer"),
        ({"positions": Positions.sinusoidal}, "model.positions=sinusoidal"),
        ({"attention_window": 4}, "model.attention_window=4"),
        ({"convolution": 3}, "model.convolution=3"),
        ({"n_segments": 2}, "model.n_segments=2"),
        ({"pooling": "max"}, "model.pooling=max: EuroBERT, the one encoder of transformers that can be ours, pools by"),
        ({"d_v": 2}, "model.d_v=2"),
    ],
)
def test_an_option_that_transformers_lacks_is_refused_with_what_has_it(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        HuggingFaceExporter().max_positions(replace(SIZES, **{**MODERN, **changes}))
    assert str(refused.value).startswith(says)
    assert str(refused.value).endswith(". Use `tfm export onnx`")


def test_the_head_needs_two_columns_for_each_class(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    model = classifier(**MODERN, d_model=4, n_heads=2)
    with pytest.raises(ConfigError, match=r"model\.d_model=4: EuroBERT's head needs two columns for each of 3 classes"):
        eurobert.write(model, tmp_path)


# ---- The command


def export(folder: Path, model: ModelFile, form: str = "onnx") -> Any:
    write_model(folder / "model.safetensors", model)
    return run(["export", form, "--checkpoint", "model.safetensors", "--output", "out"], folder)


ON_CARDS: dict[str, tuple[str, ModelFile, str]] = {
    "onnx, classifier": ("onnx", classifier(), "a HI b"),
    "onnx, pairs": (
        "onnx",
        toy_classifier.random_model(replace(PAIR_SIZES, pooling="segments"), max_length=20),
        "a b\tH c",
    ),
    "onnx, tagger": ("onnx", toy_tagger.random_model("mean"), "a bcd H"),
    "transformers, classifier": ("huggingface", classifier(**MODERN), "a HI b"),
    "transformers, tagger": ("huggingface", modern(toy_tagger.random_model("mean")), "a bcd H"),
}


@pytest.mark.parametrize("name", slow_but(ON_CARDS, "onnx, pairs", "onnx, tagger", "transformers, classifier"))
def test_the_code_of_the_card_labels_as_tfm_does(name: str, tmp_path: Path) -> None:
    form, model, text = ON_CARDS[name]
    if form == "huggingface":
        pytest.importorskip("transformers")
    ran = export(tmp_path, model, form)
    assert ran.code == 0, ran.err.decode()
    assert b"lines identical\nlogits of " in ran.out
    card = (tmp_path / "out/README.md").read_text(encoding="utf-8")
    assert "TEXT stands for what is labelled" in card
    kind = "token" if model.task.has_words else "text"
    assert card.startswith("---\n") == (form == "huggingface") == (f"pipeline_tag: {kind}-classification" in card)
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    first, _, second = text.partition("\t")
    program = code.replace("FOLDER", str(tmp_path / "out")).replace("TEXT", first).replace("second text", second)
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(program, {})
    own = run([model.task.command, "--checkpoint", "model.safetensors", "device=cpu"], tmp_path, stdin=text.encode())
    found = printed.getvalue().strip()
    assert (" ".join(re.findall(r"'(.*?)'", found)) or found) == own.out.decode().strip()
    settings = json.loads((tmp_path / "out" / ("config.json" if form == "onnx" else "labels.json")).read_bytes())
    assert settings["labels"] == list(model.tokenizers.labels)
    facts = run(["inspect", "out"], tmp_path)
    assert b"exported for" in facts.out


def test_a_format_without_such_models_names_those_that_have_them(tmp_path: Path) -> None:
    for form in ("ctranslate2", "marian", "firefox", "argos"):
        ran = export(tmp_path, classifier(), form)
        assert ran.code == 4, ran.err
        assert b"this is a classifier, and " in ran.err
        assert b"gets none from tfm. Use `tfm export huggingface` or `tfm export onnx`" in ran.err
        assert not (tmp_path / "out").exists()


def test_the_card_has_no_code_of_another_kind() -> None:
    for config, says in (({"name": "classifier"}, "The class"), ({"name": "tagger"}, "The tags")):
        usage = ONNX().usage({"config": config, "files": []}, is_packed=True)
        assert usage.startswith(says)
        assert HuggingFaceExporter().usage({"config": config, "files": []}, is_packed=True).startswith(says)
        assert "source.tokenizer" in usage
        compile(usage.partition("```python\n")[2].removesuffix("```"), "card", "exec")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classifier", "tagger"])
def test_merged_adapters_and_averages_are_exported_as_they_label(kind: str, tmp_path: Path) -> None:
    """An export whose program labels otherwise is not written."""
    pytest.importorskip("transformers")
    toy: Any = toy_classifier if kind == "classifier" else toy_tagger
    files = toy.write_tables(tmp_path) if kind == "classifier" else toy.write_files(tmp_path)
    modern = ["model.norm_kind=rms", "model.activation=swiglu", "model.positions=rotary", "train.ema=null"]
    steps = ["train.max_steps=4", "train.save_every=1", "train.eval_every=2", "train.keep_last=4"]
    train = ["train", *toy.OVERRIDES[:1], *files, "data.cache=cache", *toy.OVERRIDES[1:], *modern, *steps]
    adapters = ["init.from=runs/a/model.safetensors", "lora.rank=2", "lora.also=[embeddings]"]
    for words in (["name=a"], ["name=b", *adapters], ["name=c", *adapters, "train.average_last=2"]):
        ran = run([*train, *words], tmp_path)
        assert ran.code == 0, ran.err
    two = [word for n in (3, 4) for word in ("--checkpoint", f"runs/b/checkpoints/step-0000000{n}")]
    assert run(["average", *two, "--output", "mean"], tmp_path).code == 0
    for model in ("runs/b", "runs/c", "mean"):
        for name in ("onnx", "huggingface"):
            ran = run(["export", name, "--checkpoint", model, "--output", f"{name}-{Path(model).name}"], tmp_path)
            assert ran.code == 0, ran.err
            assert re.search(r"labels: (\d+) of \1 identical", ran.out.decode())
