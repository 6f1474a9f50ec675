"""Models for Firefox's engine: what fxtranslate makes of them is what our search makes of the same 8-bit numbers."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from tests.addons.interop.test_export import model_file
from tests.support.contract import refused, run
from tests.support.each import each
from tests.toy.translator import MARKS, sentences
from transformer_cli.addons.interop import firefox, intgemm
from transformer_cli.addons.interop.firefox_search import FirefoxSearch
from transformer_cli.addons.interop.marian_names import OPTIONS
from transformer_cli.config.data import TokenizerConfig, TokenizerKind
from transformer_cli.config.model import Activation, Autoregression, DecoderStart, Norm, Positions, Tying
from transformer_cli.data.tokenizer import Tokenizer, train_tokenizer
from transformer_cli.decoding.shortlist import Shortlist
from transformer_cli.errors import ConfigError
from transformer_cli.models.file import ModelFile, write_model

fxtranslate = pytest.importorskip("fxtranslate")

STUDENT: dict[str, Any] = {
    "d_model": 64,
    "d_ff": 128,
    "n_encoder_layers": 2,
    "n_decoder_layers": 2,
    "decoder": Autoregression.ssru,
    "positions": Positions.sinusoidal_tensor2tensor,
    "norm_eps": 1e-6,
    "decoder_start": DecoderStart.zero,
    "output_bias": True,
}
LINES = sentences(5, seed=7)


def unigram(size: int = 36) -> Tokenizer:
    return train_tokenizer(
        [*sentences(200, seed=0), MARKS], TokenizerConfig(kind=TokenizerKind.unigram, vocab_size=size), seed=1
    )


def student(**changes: Any) -> ModelFile:
    tokenizer = changes.pop("tokenizer", None) or unigram()
    return model_file(tokenizer, source=tokenizer, **STUDENT | changes)


def exported(tmp_path: Path, model: ModelFile, shortlist: Any = None) -> firefox.Firefox:
    return firefox.write(model, tmp_path, LINES, shortlist)


def says_the_same(program: firefox.Firefox) -> bool:
    """A line may differ with random weights, whose choices are near: the engine rounds exp and sums otherwise."""
    return program.verified(LINES).identical >= len(LINES) - 1


@pytest.mark.parametrize("size", [32, 36])
def test_the_engine_says_what_a_search_over_the_same_numbers_says(size: int, tmp_path: Path) -> None:
    """The second vocabulary is filled up to a multiple of 8."""
    model = student(tokenizer=unigram(size))
    assert says_the_same(exported(tmp_path, model))
    content = (tmp_path / "model.enen.intgemm.alphas.bin").read_bytes()
    items = {item.name: item for item in intgemm.read_binary(content)}
    assert items["Wemb"].shape == (-(-len(model.tokenizers.target) // 8) * 8, 64)
    options = yaml.safe_load(items[OPTIONS].data.partition(b"\0")[0])
    assert (options["dec-cell"], options["transformer-decoder-autoreg"]) == ("ssru", "rnn")
    assert options["dim-vocabs"] == [items["Wemb"].shape[0]] * 2
    settings = yaml.safe_load((tmp_path / firefox.CONFIG).read_text(encoding="utf-8"))
    assert all((tmp_path / name).is_file() for name in settings["models"] + settings["vocabs"])


def test_a_line_with_a_near_tie_may_differ_and_any_other_line_must_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = exported(tmp_path, student())
    expected = {line: program.expected(line)[0] for line in LINES}
    monkeypatch.setattr(program, "translate", lambda lines: ["?", *map(expected.__getitem__, lines[1:])])
    monkeypatch.setattr(firefox, "NEAR_LOGITS", 1e9)
    verdict = program.verified(LINES)
    assert (verdict.identical, verdict.near_ties, verdict.holds) == (4, 1, True)
    assert verdict.lines_of_text()[0].startswith("text to text, greedy: 4 of 5 lines as a search")
    assert verdict.lines_of_text()[0].endswith(", 1 others with a near tie")
    monkeypatch.setattr(firefox, "NEAR_LOGITS", 0.0)
    assert not program.verified(LINES).holds
    monkeypatch.setattr(firefox, "NEAR_LOGITS", 1e9)
    monkeypatch.setattr(program, "translate", lambda lines: ["?"] * len(lines))
    assert not program.verified(LINES).holds  # near ties alone say nothing


def test_what_is_no_text_is_never_written(tmp_path: Path) -> None:
    """The engine would write a byte as <0xC3>, and leave an unknown piece out."""
    model = student()
    program = exported(tmp_path, model)
    items = intgemm.read_binary((tmp_path / "model.enen.intgemm.alphas.bin").read_bytes())
    (bias,) = (np.frombuffer(item.data, "<f4") for item in items if item.name == "decoder_ff_logit_out_b")
    order = firefox.marian.vocabularies_of(model)[1].order
    target = model.tokenizers.target
    banned = {target.pad_id, target.bos_id, *target.unknown_ids}
    assert [bias[place] < -1000 for place in range(len(order))] == [i in banned for i in order]
    assert not any("<0x" in line for line in program.translate(LINES))


def test_two_vocabularies(tmp_path: Path) -> None:
    model = model_file(unigram(36), source=unigram(32), **STUDENT, tie_embeddings=Tying.decoder)
    program = exported(tmp_path, model)
    assert says_the_same(program)
    assert not program.is_joint


def test_a_shortlist_is_kept_to(tmp_path: Path) -> None:
    """The lists lack what the model says most; the engine adds the first ids of the file, EOS among them."""
    model = model_file(unigram(36), source=unigram(32), **STUDENT, tie_embeddings=Tying.decoder)
    without = exported_elsewhere(tmp_path / "a", model)
    order = firefox.marian.vocabularies_of(model)[1].order
    said = {i for line in LINES for i in without.search.translate([*without.source.encode(line), 0])[0]}
    allowed = [i for place, i in enumerate(order) if place >= 8 and place not in said][:6]
    n = len(model.tokenizers.source)
    shortlist = Shortlist(np.array(sorted(allowed)), np.zeros(n + 1, np.int64), np.empty(0, np.int64))
    program = exported_elsewhere(tmp_path / "b", model, shortlist)
    assert says_the_same(program)
    assert [program.expected(line) for line in LINES] != [without.expected(line) for line in LINES]


def exported_elsewhere(folder: Path, model: ModelFile, shortlist: Any = None) -> firefox.Firefox:
    folder.mkdir()
    return exported(folder, model, shortlist)


def test_numbers_of_8_bits_are_near_those_of_the_model(tmp_path: Path) -> None:
    """Logits of the first step, by the numpy search with int8 and by torch in float32."""
    model = student(gain=1)
    exported(tmp_path, model)
    search = FirefoxSearch((tmp_path / "model.enen.intgemm.alphas.bin").read_bytes(), model.config)
    ids = model.tokenizers.source.encode(LINES[:1])[0]
    order = firefox.marian.vocabularies_of(model)[0].order
    seen: list[np.ndarray] = []
    logits = search._logits
    search._logits = lambda x, candidates: (seen.append(logits(x, candidates)), seen[-1])[1]  # type: ignore[method-assign]
    search.translate([order.index(i) for i in [*ids, model.tokenizers.source.eos_id]])
    bos = torch.tensor([[model.tokenizers.target.bos_id]])
    with torch.inference_mode():
        expected = model.build(torch.device("cpu"))(torch.tensor([[*ids, model.tokenizers.source.eos_id]]), bos)[0, 0]
    is_text = seen[0][: len(order)] > -1000
    ours, theirs = expected[order].numpy()[is_text], seen[0][: len(order)][is_text]
    assert np.corrcoef(ours, theirs)[0, 1] > 0.99
    assert np.abs(ours - theirs).max() < 0.2 * ours.std()


def test_no_pair_of_weights_overflows_16_bits() -> None:
    """Two weights of one sign, 127 each, would: 254 · 254 > 32,767."""
    weight = np.array([[1.0, 1.0, -1.0, 0.5], [-1.0, 1.0, 0.1, 0.1]])
    values, multiplier = intgemm.quantised(weight, inner=1)
    assert intgemm.pair_sums(values, inner=1).max() <= intgemm.PAIR
    assert np.abs(values / multiplier - weight).max() <= 0.5 / multiplier + 1e-6
    zeros, one = intgemm.quantised(np.zeros((2, 4)), inner=1)
    assert not zeros.any()
    assert one == 1


def test_a_container_is_read_as_it_was_written() -> None:
    items = [
        intgemm.float_item("b", np.arange(3.0)),
        intgemm.int8_item("a_W", np.eye(4, 8), transpose=True),
        intgemm.options_item("special:model.yml", b"a: 1\n"),
    ]
    content = intgemm.binary(items)
    assert struct.unpack_from("<QQ", content) == (1, 3)
    read = intgemm.read_binary(content)
    assert [(item.name, item.kind, item.shape) for item in read] == [(i.name, i.kind, i.shape) for i in items]
    for item, again in zip(items, read, strict=True):
        assert again.data.startswith(item.data)
        assert len(again.data) % 256 == 0


@each(
    "changes, says",
    [
        ({"decoder": Autoregression.self_attention}, r"model\.decoder=self_attention: .*recurrent.*ssru|student_tiny"),
        ({"d_model": 96}, r"model\.d_model=96: no multiple of 64"),
        ({"d_ff": 100}, r"model\.d_ff=100: no multiple of 64"),
        ({"activation": Activation.gelu}, r"model\.activation=gelu"),
        ({"norm": Norm.pre}, r"model\.norm=pre"),
        ({"norm_eps": None}, r"model\.norm_eps=1e-05"),
        ({"positions": Positions.sinusoidal}, r"model\.positions=sinusoidal"),
        ({"decoder_start": DecoderStart.bos}, r"model\.decoder_start=bos"),
        ({"tie_embeddings": Tying.none}, r"model\.tie_embeddings=none"),
        ({"d_k": 8}, r"model\.d_k=8"),
    ],
)
def test_what_the_engine_does_not_have_is_refused_by_name(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        firefox.check(student(**changes).config)


def test_bpe_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.tokenizer\.kind=bpe: .*unigram"):
        exported(tmp_path, model_file(**STUDENT))


def test_the_command_exports_and_its_card_names_the_program(tmp_path: Path) -> None:
    write_model(tmp_path / "m.safetensors", student())
    command = ["export", "firefox", "--checkpoint", "m.safetensors", "--output", "out"]
    made = run(command, tmp_path)
    assert made.code == 0, made.err
    assert b"lines as a search over the same 8-bit numbers has them" in made.out
    card = (tmp_path / "out/README.md").read_text(encoding="utf-8")
    assert "fxtranslate" in card
    code = card.partition("```python\n")[2].partition("```")[0].replace("FOLDER", str(tmp_path / "out"))
    found: dict[str, Any] = {}
    exec(code.replace("print(", "found.append(").replace("import fxtranslate", "import fxtranslate\nfound = []"), found)
    assert len(found["found"]) == 1
    refused(command, tmp_path, code=2, says=["out", "--overwrite"])
    refused(
        [*command, "--overwrite", "options.shortlist=auto"], tmp_path, code=4, says=["no such file", "tfm shortlist"]
    )
    refused([*command, "--overwrite", "--quantization", "int8"], tmp_path, code=2, says=["--quantization int8"])
