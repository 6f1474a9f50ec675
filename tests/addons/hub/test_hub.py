"""Names of the hub wherever a model is named, against a hub on this machine that serves small models."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import transformer_cli
from tests.addons.hub.conftest import UNUSED
from tests.addons.hub.hub_server import NAME, HubServer, files_of
from tests.addons.interop import test_import_opennmt
from tests.addons.interop.test_export import model_file
from tests.addons.interop.toy_huggingface import opus
from tests.addons.interop.toy_languages import nllb
from tests.conftest import slow
from tests.support.contract import run
from transformer_cli.addons.hub import opening
from transformer_cli.addons.hub.kept import find, hub_folder
from transformer_cli.addons.hub.names import read_name
from transformer_cli.addons.interop import huggingface
from transformer_cli.addons.interop.conversions import conversion_of
from transformer_cli.addons.interop.importing import files_of_format
from transformer_cli.errors import CheckpointError
from transformer_cli.models.file import model_pieces, read_model
from transformer_cli.models.header import read_header
from transformer_cli.models.locate import locate_model

ADDRESS = f"hf:{NAME}"


def commit_of(hub: HubServer) -> str:
    return hub.repositories[NAME].names["main"]


def test_a_name_translates_and_later_uses_need_no_network(hub: HubServer, work: Path) -> None:
    first = run(["translate", "--checkpoint", ADDRESS, "--input", "text"], work)
    assert first.code == 0, first.err
    assert b"imported once; says the same in transformers" in first.err
    hub.requests.clear()
    opening._said.clear()
    again = run(["translate", "--checkpoint", ADDRESS, "--input", "text"], work)
    assert (again.code, again.out) == (0, first.out)
    assert hub.requests == []
    assert f"{ADDRESS}: commit {commit_of(hub)[:12]}, kept since".encode() in again.err
    assert f"`tfm models update {ADDRESS}`".encode() in again.err


def test_only_the_files_that_are_read_are_downloaded(hub: HubServer, files: dict[str, bytes], work: Path) -> None:
    locate_model(ADDRESS, "runs")
    assert set(hub.received()) == set(files)
    assert not set(hub.received()) & set(UNUSED)


SHARD, PICKLED = "model-00001-of-00002.safetensors", "pytorch_model-00001-of-00002.bin"


@pytest.mark.parametrize(
    ("names", "needed"),
    [
        (
            ["config.json", "pytorch_model.bin", "model.safetensors", "flax_model.msgpack"],
            "config.json model.safetensors",
        ),
        (["config.json", "pytorch_model.bin", "tf_model.h5"], "config.json pytorch_model.bin"),
        (["config.json", "pytorch_model.bin", "model.safetensors.index.json", SHARD, PICKLED], ""),
        (["config.json", "tf_model.h5"], None),
        (["config.json", "model.bin", "shared_vocabulary.json", "source.spm", "README.md"], ""),
        (["model.npz", "decoder.yml", "vocab.yml", "source.spm", "README.md", "train.log"], ""),
        (["checkpoint_last.pt", "checkpoint_best.pt", "dict.en.txt", "dict.de.txt", "bpe.codes"], ""),
        (["model_step_9000.pt", "model_step_10000.pt", "bpe.model"], "model_step_10000.pt bpe.model"),
        (["averaged.pt", "averaged.safetensors", "src.spm", "tgt.spm", "README.md"], ""),
        (["one.pt", "two.pt"], None),
        (["a_step_1.pt", "b_step_2.pt"], None),
        (["a/config.json", "a/model.safetensors"], None),
    ],
)
def test_an_importer_says_which_files_it_needs(names: list[str], needed: str | None) -> None:
    """Empty: all but those that are named here."""
    left = {PICKLED, "pytorch_model.bin", "README.md", "train.log", "checkpoint_last.pt"}
    wanted = [] if needed is None else needed.split() or [name for name in names if name not in left]
    assert sorted(files_of_format(names)) == sorted(wanted)


def test_a_pickle_is_read_where_there_is_nothing_else(hub: HubServer, tmp_path: Path, work: Path) -> None:
    opus(tmp_path / "binary", binary=True)
    hub.publish("toy/binary", files_of(tmp_path / "binary"))
    read_model(locate_model("hf:toy/binary", "runs"))
    assert "pytorch_model.bin" in hub.received()


def test_shards_are_downloaded_whole(hub: HubServer, tmp_path: Path, work: Path) -> None:
    opus(tmp_path / "shards", shards=True)
    files = files_of(tmp_path / "shards")
    assert len([name for name in files if "-of-" in name]) > 1
    hub.publish("toy/shards", {**files, **UNUSED})
    read_model(locate_model("hf:toy/shards", "runs"))
    assert set(hub.received()) == set(files)


def test_the_languages_may_be_those_of_the_name(hub: HubServer, files: dict[str, bytes], work: Path) -> None:
    hub.publish("toy/opus-mt-fi-sv", {**files, "tokenizer_config.json": b"{}"})
    model = read_model(locate_model("hf:toy/opus-mt-fi-sv", "runs"))
    assert (model.source_lang, model.target_lang) == ("fi", "sv")


def test_the_card_names_commit_licence_and_languages(hub: HubServer, work: Path) -> None:
    provenance = read_header(locate_model(ADDRESS, "runs")).metadata["provenance"]
    assert provenance == {
        "origin": f"{ADDRESS}, commit {commit_of(hub)}",
        "base_model": NAME,
        "license": "cc-by-4.0",
        "languages": ["en", "de"],
    }
    card = run(["inspect", ADDRESS, "--card"], work).out.decode()
    assert f"| origin | {ADDRESS}, commit {commit_of(hub)} |" in card
    assert "| licence | cc-by-4.0 |" in card
    assert "| languages stated | en, de |" in card


def test_an_import_has_the_same_facts_and_is_a_file_of_its_own(hub: HubServer, work: Path) -> None:
    ran = run(["import", ADDRESS, "--output", "m.safetensors", "--lines", "text"], work)
    assert ran.code == 0, ran.err
    assert ran.out.decode().split("\n")[0] == f"m.safetensors: {ADDRESS}, eng → deu"
    assert read_header(work / "m.safetensors").metadata["provenance"]["origin"].endswith(commit_of(hub))
    assert find(read_name(NAME)) is None, "tfm import keeps nothing else"
    by_format = run(["import", "hf", ADDRESS, "--output", "n.safetensors", "compare=false"], work)
    assert by_format.code == 0, by_format.err
    assert run(["import", "marian", ADDRESS, "--output", "o.safetensors"], work).code == 4
    assert not (work / "o.safetensors").exists()


# ---- Where a model is named


@pytest.mark.parametrize(
    "arguments",
    [
        ["score", "--source", "text", "--translation", "text"],
        slow(["evaluate", "--source", "text", "--reference", "text"]),
        ["serve", "--check", "engine=torch", "device=cpu"],
        ["translate", "--input", "text", "--engine", "ctranslate2"],
        ["export", "huggingface", "--output", "out"],
        slow(["average", "--output", "mean.safetensors"]),
    ],
)
def test_every_command_takes_an_address(arguments: list[str], hub: HubServer, work: Path) -> None:
    if arguments[0] == "average":
        run(["import", ADDRESS, "--output", "m.safetensors", "compare=false"], work)
        arguments = [*arguments, "--checkpoint", "m.safetensors"]
    ran = run([*arguments, "--checkpoint", ADDRESS], work)
    assert ran.code == 0, ran.err
    if arguments[0] == "export":
        card = (work / "out" / "README.md").read_text(encoding="utf-8")
        assert "license: cc-by-4.0" in card
        assert f'base_model: "{NAME}"' in card


@pytest.mark.slow
def test_models_are_compared_by_address(hub: HubServer, work: Path) -> None:
    (work / "out.de").write_bytes((work / "text").read_bytes())
    arguments = ["compare", ADDRESS, "out.de", "--source", "text", "--reference", "text", "samples=100"]
    ran = run(arguments, work)
    assert ran.code == 0, ran.err
    assert "opus-mt-en-de" in ran.out.decode()


def test_python_takes_an_address(hub: HubServer, work: Path) -> None:
    with transformer_cli.load(ADDRESS, device="cpu") as translator:
        assert len(translator.translate(["a line", "another one"])) == 2


def test_a_model_is_fine_tuned_and_its_card_says_from_what(
    hub: HubServer, tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    text = (work / "text").read_text(encoding="utf-8")
    (work / "a.en").write_text(text * 8, encoding="utf-8")
    (work / "a.de").write_text(text.upper() * 8, encoding="utf-8")
    overrides = [
        *(f"init.from={ADDRESS}", "data=files", "data.train=[a.en,a.de]", "data.dev=[text,text]", "data.test=null"),
        *("data.source_lang=eng", "data.target_lang=deu", "train.max_steps=2", "device=cpu", "name=tuned"),
    ]
    ran = run(["train", *overrides], work)
    assert ran.code == 0, ran.err
    provenance = read_header(work / "runs/tuned/model.safetensors").metadata["provenance"]
    says = f"opus-mt-en-de, from {ADDRESS}, commit {commit_of(hub)}, licence cc-by-4.0"
    assert provenance["started_from"].startswith(says)
    assert provenance["base_model"] == NAME
    shutil.rmtree(hub_folder())
    hub.requests.clear()
    resumed = run(["train", *overrides, "train.max_steps=3"], work)
    assert resumed.code == 0, resumed.err
    assert hub.requests == [], "a run that goes on needs the model no more"
    assert read_header(work / "runs/tuned/model.safetensors").metadata["provenance"]["started_from"].startswith(says)


def test_a_name_without_scheme_is_told_from_a_path(work: Path) -> None:
    with pytest.raises(CheckpointError, match=r"a/b: no such file or folder. Check --checkpoint, or write hf:a/b$"):
        locate_model("a/b", "runs")
    (work / "runs").mkdir()
    with pytest.raises(CheckpointError, match=r"Check --checkpoint$"):
        locate_model(str(work / "runs" / "b"), "runs")


# ---- What a repository holds


def test_a_model_of_many_languages_is_downloaded_with_its_tokenizer(hub: HubServer, tmp_path: Path, work: Path) -> None:
    nllb(tmp_path / "nllb")
    files = files_of(tmp_path / "nllb")
    hub.publish("toy/nllb", {**files, **UNUSED})
    model = read_model(locate_model("hf:toy/nllb", "runs"))
    assert set(hub.received()) == set(files) - {"README.md"}
    assert "fra" in model.target_lang


def test_a_checkpoint_of_opennmt_is_imported(hub: HubServer, tmp_path: Path, work: Path) -> None:
    checkpoint = test_import_opennmt.saved(tmp_path)
    files = {path.name: path.read_bytes() for path in checkpoint.parent.iterdir() if path.is_file()}
    older = {"model_step_3.pt": b"", "README.md": b"---\nlicense: mit\n---\n"}
    hub.publish("toy/onmt", {**files, **older})
    done = run(["translate", "--checkpoint", "hf:toy/onmt", "--input", "text"], work)
    assert done.code == 0, done.err
    assert set(hub.received()) == set(files)


def test_a_pickle_of_something_else_is_refused_in_one_line(hub: HubServer, tmp_path: Path, work: Path) -> None:
    torch.save({"model": {"backbone.weight": torch.zeros(3)}}, tmp_path / "best.pt")
    hub.publish("toy/other", {"best.pt": (tmp_path / "best.pt").read_bytes()})
    done = run(["translate", "--checkpoint", "hf:toy/other", "--input", "text"], work)
    assert (done.code, done.out) == (4, b"")
    assert b"hf:toy/other: none of the formats that tfm reads" in done.err
    assert not list(hub_folder().glob("*.safetensors"))


def test_a_model_file_of_tfm_opens_as_it_is(hub: HubServer, work: Path) -> None:
    content = b"".join(model_pieces(model_file()))
    hub.publish("toy/ours", {"model.safetensors": content, "README.md": b"", "notes.txt": b""})
    path = locate_model("hf:toy/ours", "runs")
    assert path.read_bytes() == content
    assert hub.received() == ["model.safetensors"]
    assert path.is_relative_to(hub_folder())
    assert not path.is_symlink()


def test_an_export_for_an_engine_runs_as_it_is(hub: HubServer, work: Path) -> None:
    pytest.importorskip("ctranslate2")
    (work / "m.safetensors").write_bytes(b"".join(model_pieces(model_file())))
    export = conversion_of(work / "m.safetensors").directory
    hub.publish("toy/engine", files_of(export))
    ran = run(["translate", "--checkpoint", "hf:toy/engine", "--input", "text"], work)
    assert ran.code == 0, ran.err
    assert b"hf:toy/engine: was exported for CTranslate2, so engine=ctranslate2" in ran.err
    assert ran.out == run(["translate", "--checkpoint", str(export), "--input", "text"], work).out
    kept = find(read_name("toy/engine"))
    assert kept is not None
    assert files_of(kept.place) == files_of(export)


def test_an_export_for_huggingface_is_imported(hub: HubServer, work: Path) -> None:
    (work / "out").mkdir()
    huggingface.write(model_file(), work / "out")
    facts = {"program": "huggingface", "source_lang": "en", "target_lang": "fr", "step": 7, "scores": {}, "data": {}}
    (work / "out" / "export.json").write_text(json.dumps(facts | {"fingerprint": "f"}), encoding="utf-8")
    hub.publish("toy/export", files_of(work / "out"))
    model = read_model(locate_model("hf:toy/export", "runs"))
    assert (model.source_lang, model.target_lang, model.step) == ("en", "fr", 7)
