"""The model file: whole and sound, or refused in one line that names it."""

import hashlib
import io
import json
import os
import pickle
import random
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from tests.support.each import each
from tests.toy.run import CPU, model_file, packed, tokenizer, written_model
from transformer_cli.errors import CheckpointError
from transformer_cli.models.file import ModelFile, read_model, serialise, unpack_model, write_model
from transformer_cli.models.locate import locate_model, locate_own_model

SOURCE_BS = torch.tensor([[5, 6, 7, 3], [8, 9, 3, 0]])
TARGET_BT = torch.tensor([[2, 5, 6], [2, 7, 0]])
NO_HASH = "0" * 64


def logits(model: ModelFile) -> torch.Tensor:
    with torch.no_grad():
        return model.build(CPU)(SOURCE_BS, TARGET_BT)


def sealed(header: dict[str, Any], data: bytes) -> bytes:
    """A file of this header, with the hash that a forger would put into it."""
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    content = len(text).to_bytes(8, "little") + text + data
    return content.replace(NO_HASH.encode(), hashlib.sha256(content).hexdigest().encode())


def forged(change: Callable[[dict[str, Any]], object]) -> bytes:
    """A well-formed file whose metadata was changed."""
    header, metadata, data = parts(packed(model_file()))
    change(metadata)
    header["__metadata__"]["tfm"] = json.dumps(metadata)
    return sealed(header, data)


def parts(content: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    metadata = json.loads(header["__metadata__"]["tfm"])
    return header, {**metadata, "sha256": NO_HASH}, content[end:]


@pytest.mark.parametrize("joint", [True, False])
def test_one_file_is_all_that_translating_needs(tmp_path: Path, joint: bool) -> None:
    model = model_file(joint=joint)
    write_model(tmp_path / "mailed.safetensors", model)
    read = read_model(tmp_path / "mailed.safetensors")
    assert torch.equal(logits(read), logits(model))
    assert read.tokenizers.joint == joint
    assert read.tokenizers.target.decode(read.tokenizers.target.encode(["A B" if not joint else "a b"])[0])
    assert (read.config, read.source_lang, read.target_lang) == (model.config, "en", "fr")
    assert (read.step, read.data, read.scores) == (7, {"name": "copy"}, {"dev_nll": 1.5})
    assert list(tmp_path.iterdir()) == [tmp_path / "mailed.safetensors"]


def test_the_same_model_gives_the_same_bytes() -> None:
    assert packed(model_file()) == packed(model_file())


def test_a_file_says_how_many_training_lines_held_several_sentences_if_anybody_looked() -> None:
    looked = unpack_model(packed(replace(model_file(), multi_sentence_share=0.03)), Path("m"))
    assert looked.multi_sentence_share == 0.03
    assert unpack_model(packed(model_file()), Path("m")).multi_sentence_share is None
    assert "multi_sentence_share" not in parts(packed(model_file()))[1]
    for share in (-0.1, 2, True, "few"):
        with pytest.raises(CheckpointError, match="multi_sentence_share"):
            unpack_model(forged(lambda metadata, share=share: metadata.update(multi_sentence_share=share)), Path("m"))  # type: ignore[misc]


def test_tied_weights_are_stored_once() -> None:
    tied, untied = (safetensors.torch.load(packed(model_file(joint=joint))) for joint in (True, False))
    assert sum("embedding" in name for name in tied) == 1
    assert sum("embedding" in name for name in untied) == 2
    assert ("tokenizer.target" in tied, "tokenizer.target" in untied) == (False, True)


def test_reading_a_model_draws_no_weights_and_leaves_it_in_evaluation_mode() -> None:
    content = packed(model_file())
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    model = unpack_model(content, Path("m")).build(CPU)
    assert torch.equal(torch.rand(1), expected)
    assert not model.training


def test_no_changed_byte_is_ever_loaded() -> None:
    content, draw = packed(model_file()), random.Random(1)
    places = [*range(16), *draw.sample(range(len(content)), 300)]
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << draw.randrange(8)
        with pytest.raises(CheckpointError, match=r"^m\.safetensors: "):
            unpack_model(bytes(changed), Path("m.safetensors"))


def test_a_file_cut_short_or_with_bytes_after_its_end_is_refused() -> None:
    content = packed(model_file())
    for changed in (content + b"x", *(content[:kept] for kept in (0, 7, 8, 100, -1))):
        with pytest.raises(CheckpointError, match="damaged" if len(changed) > len(content) else "cut short|damaged"):
            unpack_model(changed, Path("m"))


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("exploded"),)


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Bomb()))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (pickle.dumps(Bomb()), "a zip archive or pickle, as torch.save writes, which could run code"),
        (zipped(), "a zip archive or pickle"),
        (b"", "not a safetensors file"),
        (b"{}", "not a safetensors file"),
        (b"hello, this is no model at all", "not a safetensors file"),
        ((1 << 62).to_bytes(8, "little") + b"{}", "not a safetensors file"),
        ((2).to_bytes(8, "little") + b"[]", "not a safetensors file"),
        ((100_000).to_bytes(8, "little") + b'{"a":' + b"[" * 99_995, "damaged"),
        (safetensors.torch.save({"x": torch.zeros(1)}), "without what tfm writes"),
        (safetensors.torch.save({"x": torch.zeros(1)}, {"format": "pt"}), "without what tfm writes"),
        (safetensors.torch.save({"x": torch.zeros(1)}, {"tfm": "[]"}), "no format number"),
        (safetensors.torch.save({"x": torch.zeros(1)}, {"tfm": "{"}), "damaged"),
        (safetensors.torch.save({"x": torch.zeros(1)}, {"tfm": '{"format": 1, "format": 1}'}), "a key stands twice"),
        (safetensors.torch.save({"x": torch.zeros(1)}, {"tfm": '{"format": NaN}'}), "NaN is not a number"),
        (safetensors.torch.save({"x": torch.zeros(1)}, {"tfm": '{"format": 1}'}), "no SHA-256"),
    ],
)
def test_what_is_no_model_file_is_refused_and_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("foreign").write_bytes(content)
    with pytest.raises(CheckpointError) as refused:
        read_model(Path("foreign"))
    assert str(refused.value).startswith("foreign: ")
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not Path("exploded").exists()


@each(
    "change, reason",
    [
        (lambda m: m.update(format=2, needs="9.9"), r"written in format 2, needs tfm >= 9\.9; .* Install that"),
        (lambda m: m["config"].update(d_modle=3), "d_modle: unknown key"),
        (lambda m: m["config"].update(_target_="os.system"), "_target_: not supported"),
        (lambda m: m["config"].update(preset="${oc.env:HOME}"), "interpolation '.*' is not supported"),
        (lambda m: m["config"].update(n_encoder_layers=10**9), "n_encoder_layers=1000000000: out of range"),
        (lambda m: m["config"].update(name="os.system"), "no model called `os.system`"),
        (lambda m: m.update(config=[1]), "damaged or not written by tfm|cannot be used"),
        (lambda m: m.pop("config"), "damaged or not written by tfm"),
        *((lambda m, v=v: m.update(format=v), "no format number") for v in (-1, 0, True, "1", 1.0, None)),
        *(
            (lambda m, v=v: m.update(step=v), "damaged or not written by tfm")
            for v in (-1, True, "1", 1.0, 1.5, None, "x")
        ),
        (lambda m: m.update(labels=[1, 2]), "damaged or not written by tfm"),
        (lambda m: m.update(averaged="abc"), "damaged or not written by tfm"),
        (lambda m: m["config"].update(d_ff=48), r"is \[\d+, 16\], but its config asks for \[48, 16\]|\[32\].*\[48\]"),
        (lambda m: m["config"].update(n_decoder_layers=2), r"decoder\.layers\.1.* is nothing, but its config asks for"),
        (lambda m: m["config"].update(d_model=100_000, n_heads=1), "its config asks for"),
        (lambda m: m["tokenizers"].update({"tokenizer.source": "f" * 64}), "tokenizer.source has SHA-256 .*, not ffff"),
        (lambda m: m["tokenizers"].pop("tokenizer.source"), "damaged or not written by tfm"),
    ],
)
def test_metadata_that_lies_is_refused(change: Callable[[dict[str, Any]], object], reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason) as refused:
        unpack_model(forged(change), Path("m"))
    assert str(refused.value).startswith("m: ")


def test_a_key_that_stands_twice_is_refused() -> None:
    header, _, data = parts(packed(model_file()))
    name = next(key for key in header if key != "__metadata__")
    text = json.dumps(header).encode().replace(b"{", b'{"' + name.encode() + b'": 1, ', 1)
    with pytest.raises(CheckpointError, match="a key stands twice"):
        unpack_model(len(text).to_bytes(8, "little") + text + data, Path("m"))


def test_a_tensor_of_ten_terabytes_is_refused_before_memory_is_taken() -> None:
    header, metadata, data = parts(packed(model_file()))
    header["__metadata__"]["tfm"] = json.dumps(metadata)
    header["huge"] = {"dtype": "F32", "shape": [2_500_000_000_000], "data_offsets": [len(data), len(data) + 10**13]}
    with pytest.raises(CheckpointError, match="damaged or not written by tfm"):
        unpack_model(sealed(header, data), Path("m"))


def test_a_tokenizer_that_is_none_is_refused() -> None:
    header, metadata, data = parts(packed(model_file()))
    start, end = header["tokenizer.source"]["data_offsets"]
    data = data[:start] + bytes(end - start) + data[end:]
    metadata["tokenizers"]["tokenizer.source"] = hashlib.sha256(bytes(end - start)).hexdigest()
    header["__metadata__"]["tfm"] = json.dumps(metadata)
    with pytest.raises(CheckpointError, match=r"SentencePiece|no id for"):
        unpack_model(sealed(header, data), Path("m"))


def test_a_missing_file_or_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere: no such file\. Check --checkpoint"):
        read_model(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="not a file"):
        read_model(tmp_path)


def test_a_failed_write_leaves_the_old_model_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.safetensors"
    write_model(file, model_file(seed=1))
    before = file.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_model(file, model_file(seed=2))
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_bytes() == before


class TestLocateModel:
    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        run = tmp_path / "runs" / "copy"
        for step in (9, 10, 200):
            self.touch(run / f"checkpoints/step-{step:08d}/model.safetensors")
        (run.parent / "latest").symlink_to("copy")
        return run

    @staticmethod
    def touch(file: Path) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        return file

    def test_a_file_is_itself(self, tmp_path: Path) -> None:
        file = self.touch(tmp_path / "my.safetensors")
        assert locate_model(str(file), "runs") == file

    def test_a_run_means_its_newest_checkpoint_then_its_best_then_its_finished_model(self, run: Path) -> None:
        assert locate_model(str(run), "x") == run / "checkpoints/step-00000200/model.safetensors"
        (run / "best").symlink_to("checkpoints/step-00000009")
        assert locate_model(str(run), "x").resolve() == run / "checkpoints/step-00000009/model.safetensors"
        finished = self.touch(run / "model.safetensors")
        assert locate_model(str(run), "x") == finished

    def test_a_checkpoint_folder_means_its_model(self, run: Path) -> None:
        folder = run / "checkpoints/step-00000010"
        assert locate_model(str(folder), "x") == folder / "model.safetensors"

    def test_nothing_means_the_run_that_was_finished_last_and_not_one_that_trains(
        self, run: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        finished = run.with_name("finished")
        self.touch(finished / "model.safetensors")
        (finished / "result.json").write_text('{"step": 30}')
        os.utime(finished / "model.safetensors", (10, 10))  # long before the checkpoints of the other
        with caplog.at_level("INFO", "tfm"):
            for link in ("copy", "finished"):
                (run.parent / "latest").unlink()
                (run.parent / "latest").symlink_to(link)
                assert locate_model(None, str(run.parent)) == finished / "model.safetensors"
        assert caplog.messages == [f"using {finished}, finished at step 30"] * 2

    def test_a_run_that_has_not_ended_is_used_where_it_is_named_and_said_to_be_unfinished(
        self, run: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        newest = run / "checkpoints/step-00000200"
        (newest / "state.json").write_text('{"state": {"config": {"train": {"max_steps": 300}}}}')
        locate_model(str(run), "x")
        locate_model(str(newest), "x")
        self.touch(run / "model.safetensors")
        (run / "result.json").write_text('{"step": 200}')
        locate_model(str(run), "x")
        (run / "result.json").write_text('{"step": 10}')  # train.max_steps was raised, and it trains again
        locate_model(str(run), "x")
        locate_model(None, str(run.parent))
        assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
            f"{run}: unfinished, step 200 of 300. Using {newest}/model.safetensors",
            f"{run}: finished at step 10, and now goes on, step 200 of 300. Using {run}/model.safetensors",
        ]

    def test_runs_of_which_none_has_ended_are_not_used_without_their_name(self, run: Path) -> None:
        for name in (None, str(run.parent / "latest")):
            with pytest.raises(CheckpointError, match=r"copy is unfinished, step 200: .* with --checkpoint .*/copy$"):
                (run.parent / "latest").unlink(missing_ok=True)
                locate_model(name, str(run.parent))

    @pytest.mark.parametrize("what", ["dangling", "gone", "empty"])
    def test_without_the_newest_run_the_next_newest_with_a_model_is_used_and_named(
        self, run: Path, caplog: pytest.LogCaptureFixture, what: str
    ) -> None:
        runs = run.parent
        for name, time in (("older", 10), ("newer", 30), ("newer too", 30), ("m.hf", 50)):
            os.utime(self.touch(runs / name / "model.safetensors"), (time, time))
        self.touch(runs / "none" / "tfm.log")
        (runs / "m.hf" / "export.json").write_text('{"program": "huggingface"}')
        run.rename(runs.parent / "moved")
        if what == "gone":
            (runs / "latest").unlink()
        if what == "empty":
            run.mkdir()
        with caplog.at_level("INFO", "tfm"):
            assert locate_model(None, str(runs)) == runs / "newer too" / "model.safetensors"
        assert f"using {runs}/newer too," in caplog.text

    @pytest.mark.parametrize("name", ["", "model.bin"])
    @pytest.mark.parametrize("program", ["ctranslate2", "huggingface"])
    def test_an_export_is_named_as_one(self, tmp_path: Path, program: str, name: str) -> None:
        (tmp_path / "out").mkdir()
        self.touch(tmp_path / "out" / "model.bin")
        (tmp_path / "out" / "export.json").write_text(json.dumps({"program": program}))
        with pytest.raises(CheckpointError, match=rf"out: was exported for {program}, which .* Choose the run"):
            locate_own_model(str(tmp_path / "out" / name), "runs")

    def test_what_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match=r"runs/latest: no trained model\. Train one with `tfm train`"):
            locate_model(None, str(tmp_path / "runs"))
        with pytest.raises(CheckpointError, match="nowhere: no such file or folder"):
            locate_model(str(tmp_path / "nowhere"), "runs")
        with pytest.raises(CheckpointError, match="holds no model yet"):
            locate_model(str(tmp_path), "runs")


def test_the_tokenizer_of_a_model_is_byte_for_byte_the_trained_one() -> None:
    assert unpack_model(packed(model_file()), Path("m")).tokenizers.source.model_bytes == tokenizer().model_bytes


def test_the_bytes_are_those_that_the_safetensors_library_writes() -> None:
    drawn = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    tensors = {"b.x": drawn, "a": torch.tensor(3.0), "é": drawn.bfloat16(), "ids": torch.arange(3), "empty": drawn[:0]}
    tensors |= {"transposed": drawn.T, "raw": torch.arange(5, dtype=torch.uint8), "half": drawn.half()}
    metadata = {"tfm": '{"a": "é\n"}'}
    expected = safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata)
    assert b"".join(serialise(tensors, metadata)) == expected
    assert b"".join(serialise(tensors)) == safetensors.torch.save({k: t.contiguous() for k, t in tensors.items()})


def test_the_weights_of_a_read_model_lie_in_the_memory_of_its_file(tmp_path: Path) -> None:
    path = written_model(tmp_path)
    weights = read_model(path).weights.values()
    ends = [(x.data_ptr(), x.data_ptr() + x.numel() * x.element_size()) for x in weights]
    assert max(end for _, end in ends) - min(first for first, _ in ends) <= path.stat().st_size


@each("change", ["hole", "overlap", "beyond", "behind"])
def test_a_table_that_does_not_fit_its_data_is_refused(change: str, tmp_path: Path) -> None:
    """The hash of the file is right: a program has written it wrongly."""
    header, metadata, data = parts(packed(model_file()))
    names = sorted((name for name in header if name != "__metadata__"), key=lambda name: header[name]["data_offsets"])
    moved = {"hole": (names[1], 4), "overlap": (names[1], -4), "beyond": (names[-1], 4), "behind": (names[0], 0)}
    name, by = moved[change]
    header[name]["data_offsets"] = [at + by for at in header[name]["data_offsets"]]
    header["__metadata__"] = {"tfm": json.dumps(metadata | {"sha256": NO_HASH})}
    path = tmp_path / "wrong.safetensors"
    path.write_bytes(sealed(header, data + b"more" * (change == "behind")))
    with pytest.raises(CheckpointError, match="damaged or not written by tfm"):
        read_model(path)
