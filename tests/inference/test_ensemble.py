"""Several models as one: what their mean is, that every caller may have one, and what does not fit together."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import slow
from tests.golden.make import FOLDER
from tests.support.contract import refused, run
from tests.support.each import each
from tests.toy.run import model_file, packed
from tests.toy.run import sentences as letters
from tests.toy.run import tokenizers as letter_ids
from tests.toy.translator import (
    GREEDY,
    SAMPLE,
    VARIANTS,
    random_model,
    replace_search,
    sentences,
    toy_tokenizer,
    translator_of,
)
from transformer_cli.config.compose import load_config
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.search import Hypothesis, SearchRequest
from transformer_cli.errors import CheckpointError, ConfigError
from transformer_cli.inference.force_decode import force_decode
from transformer_cli.inference.incremental import incremental_decoder
from transformer_cli.models.ensemble import AnyModel, Ensemble, build_all, read_models
from transformer_cli.models.locate import locate_models
from transformer_cli.models.transformer import Transformer

IDS = toy_tokenizer()
CPU = torch.device("cpu")
KINDS = {"greedy": GREEDY, "beam": {"n_best": 4}, "sample": SAMPLE}


def several() -> list[Transformer]:
    """Several models of other sizes, norms, positions and tyings."""
    names = ["plain", "paper", "odd", "modern"]
    return [random_model(IDS, config=VARIANTS[name], dtype=torch.float64, seed=n) for n, name in enumerate(names)]


def batch(n: int, *, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = IDS.encode(sentences(n, seed=seed))
    longest = max(map(len, rows)) + 1
    source = [[*ids, IDS.eos_id] + [IDS.pad_id] * (longest - len(ids) - 1) for ids in rows]
    return torch.tensor(source), torch.randint(4, len(IDS), (n, 7), generator=torch.Generator().manual_seed(seed))


def translations(model: AnyModel, **options: object) -> list[list[tuple[str, float]]]:
    translator = translator_of(IDS, model=model, **options)
    return [result.hypotheses for result in translator.translate([*sentences(20, seed=3), ""])]


def test_its_probabilities_are_the_scaled_geometric_mean_of_its_members() -> None:
    members, (source_BS, target_BT) = several(), batch(5, seed=1)
    with torch.no_grad():
        each = [member(source_BS, target_BT).softmax(dim=-1) for member in members]
        found = Ensemble(members)(source_BS, target_BT).softmax(dim=-1)
    product = torch.stack(each).prod(dim=0) ** (1 / len(members))
    assert torch.allclose(found, product / product.sum(dim=-1, keepdim=True), atol=1e-12)
    assert max(float((found - one).abs().max()) for one in each) > 0.1, "members that agree prove nothing"


def test_step_by_step_it_says_what_it_says_at_once() -> None:
    ensemble, (source_BS, target_BT) = Ensemble(several()).eval(), batch(5, seed=2)
    with torch.no_grad():
        expected_BTV = ensemble(source_BS, target_BT)
    decoder = incremental_decoder(ensemble)
    cache = decoder.start(source_BS, beam_size=1, max_length=7)
    for t in range(7):
        assert torch.allclose(decoder.step(target_BT[:, t], cache), expected_BTV[:, t], atol=1e-9)
        if t == 3:  # others leave, and the rest change places
            which = torch.tensor([4, 0, 2])
            cache.reorder(which, which)
            target_BT, expected_BTV = target_BT[which], expected_BTV[which]


@pytest.mark.slow
@each("options", KINDS.values())
@each("n", [1, 2, 3])
def test_of_one_model_however_often_it_is_that_model(options: dict[str, object], n: int) -> None:
    model = several()[0]
    found, expected = (translations(one, **options) for one in (Ensemble([model] * n), model))
    assert [[text for text, _ in line] for line in found] == [[text for text, _ in line] for line in expected]
    for one, other in zip(found, expected, strict=True):
        assert [score for _, score in one] == pytest.approx([score for _, score in other], abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [slow(KINDS["greedy"]), KINDS["beam"], slow(KINDS["sample"])], ids=["greedy", "beam", "sample"]
)
def test_it_translates_in_any_batch_as_it_does_line_by_line(options: dict[str, object]) -> None:
    ensemble = Ensemble(several())
    found, alone = (translations(ensemble, batch_tokens=n, **options) for n in (4096, 1))
    assert [[text for text, _ in line] for line in found] == [[text for text, _ in line] for line in alone]
    assert found != translations(several()[0], **options)


@pytest.mark.parametrize("options", [{"n_best": 2}, {**SAMPLE, "n_best": 3}], ids=["beam", "sample"])
def test_what_it_has_found_reads_back_as_it_was_scored(options: dict[str, Any]) -> None:
    ensemble, lines = Ensemble(several()), sentences(40, seed=4)
    translator = translator_of(IDS, model=ensemble, **options)
    pairs, found = [], []

    def spy(request: SearchRequest[Any]) -> list[list[Hypothesis]]:
        results = search(request)
        for (_, line, _), hypotheses in zip(request.seeds, results, strict=True):
            pairs.extend((sources[line - 1], hypothesis.ids) for hypothesis in hypotheses)
            found.extend(hypotheses)
        return results

    search, sources = replace_search(translator, spy), IDS.encode(lines)
    translator.translate(lines)
    read = force_decode(ensemble, pairs, Tokenizers(IDS, IDS), device=CPU, batch_tokens=200, with_attention=True)
    for back, hypothesis in zip(read, found, strict=True):
        log_probs = back.log_probs if hypothesis.finished else back.log_probs[:-1]
        assert hypothesis.log_prob == pytest.approx(math.fsum(log_probs), abs=1e-9)
        assert back.attention_TS is not None
        assert back.attention_TS.sum(dim=1).tolist() == pytest.approx([1.0] * (len(hypothesis.ids) + 1))
    assert found


def test_it_comes_to_rest_and_goes_back_to_training_with_its_members() -> None:
    ensemble = Ensemble(several()).train()
    translations(ensemble, **GREEDY)
    assert ensemble.training
    assert all(member.training for member in ensemble.members)


@pytest.mark.slow
@pytest.mark.parametrize("n_threads", [slow(1), 2])
def test_D9_exact_scores_of_an_ensemble_do_not_depend_on_the_neighbours(n_threads: int) -> None:
    names = ["plain", "paper"]
    ensemble = Ensemble([random_model(IDS, config=VARIANTS[name], seed=n) for n, name in enumerate(names)])
    translator = translator_of(IDS, model=ensemble, batch_invariant=True, n_best=2)
    lines, before = sentences(12, seed=5), torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        together = translator.translate(lines)
        assert together == [translator.translate([line])[0] for line in lines]
    finally:
        torch.set_num_threads(before)


def test_exact_looks_at_every_member() -> None:
    good, narrow = random_model(IDS), random_model(IDS, config=replace(VARIANTS["plain"], d_k=5))
    translator_of(IDS, model=Ensemble([good, good]), batch_invariant=True)
    with pytest.raises(ConfigError, match=r"model\.d_k is 20, no multiple of 16"):
        translator_of(IDS, model=Ensemble([good, narrow]), batch_invariant=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two models that fit together, of other sizes, one of other languages, one of other vocabularies, and a text."""
    for name, model in {
        "a": model_file(seed=1),
        "b": model_file(seed=2, d_model=8, n_decoder_layers=2),
        "separate": model_file(seed=1, joint=False),
    }.items():
        (tmp_path / name).write_bytes(packed(model))
    (tmp_path / "xx").write_bytes((FOLDER / "joint-pre.safetensors").read_bytes())
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in letters(6, seed=5)), encoding="utf-8")
    return tmp_path


def test_files_of_several_models_become_an_ensemble_and_that_of_one_itself(folder: Path) -> None:
    paths = locate_models([str(folder / "a"), str(folder / "b")], "runs")
    ensemble = build_all(read_models(paths), CPU)
    assert isinstance(ensemble, Ensemble)
    assert not ensemble.training
    assert [len(member.decoder.layers) for member in ensemble.members] == [1, 2]
    assert isinstance(build_all(read_models(paths[:1]), CPU), Transformer)


def test_models_that_do_not_fit_together_are_named_with_the_fact(folder: Path) -> None:
    a, separate, xx = (folder / name for name in ("a", "separate", "xx"))
    with pytest.raises(CheckpointError, match=rf"^{xx}: translates en → xx, but {a} en → fr\. Choose"):
        read_models([a, xx])
    ours, theirs = (letter_ids(joint=joint).target.sha256[:12] for joint in (True, False))
    says = rf"^{separate}: its target vocabulary has SHA-256 {theirs}…, but that of {a} {ours}…\. Choose"
    with pytest.raises(CheckpointError, match=says):
        read_models([a, a, separate])


@pytest.mark.parametrize("command", [["translate"], ["evaluate", "--source", "text", "--reference", "text"]], ids="te")
def test_the_commands_refuse_them_and_change_nothing(folder: Path, command: list[str]) -> None:
    both = [*command, "--checkpoint", "a", "--checkpoint"]
    refused([*both, "separate"], folder, code=4, says=["separate: its target vocabulary", "a "], stdin=b"a\n")
    refused([*both, "xx"], folder, code=4, says=["xx: translates en → xx, but a en → fr"], stdin=b"a\n")
    refused([*both, "missing"], folder, code=4, says=["missing: no such file"], stdin=b"a\n")
    refused([*command, "checkpoint=true"], folder, code=4, says=["true: no such file"], stdin=b"a\n")  # a text
    for none in ("[]", "[a,null]", "{a: b}"):
        refused([*command, f"checkpoint={none}"], folder, code=2, says=["checkpoint=", "no name of a model"])


def test_flags_and_a_list_name_the_same_ensemble(folder: Path) -> None:
    stdin = (folder / "text").read_bytes()
    options = ["--device", "cpu", "--engine", "torch", "decode.max_extra_length=5", "--n-best", "2"]

    def said(*arguments: str) -> bytes:
        ran = run(["translate", *options, *arguments], folder, stdin=stdin)
        assert (ran.code, ran.err.count(b"warning")) == (0, ran.err.count(b"\n")), ran.err
        return ran.out

    by_flags = said("--checkpoint", "a", "--checkpoint", "b")
    assert by_flags == said("checkpoint=[a,b]")
    assert said("--checkpoint", "a") == said("checkpoint=a") == said("checkpoint=[a]") == said("checkpoint=[a,a]")
    assert by_flags not in (said("checkpoint=a"), said("checkpoint=b"))


@each("given, expected", [
    ("runs/a", "runs/a"), ("[runs/a]", "runs/a"), ("[runs/a,b.safetensors]", ["runs/a", "b.safetensors"]),
    ("null", None), ("2026", "2026"), ("'a=b'", "a=b"),
])  # fmt: skip
def test_a_checkpoint_is_a_name_or_several(given: str, expected: object) -> None:
    for command in ("translate", "evaluate"):
        assert load_config(command, [f"checkpoint={given}"]).checkpoint == expected


def test_evaluate_scores_the_ensemble_and_keeps_its_translations_apart(folder: Path) -> None:
    command = ["evaluate", "--device", "cpu", "--source", "text", "--reference", "text", "--json", "--checkpoint", "a"]
    for arguments, name in (
        ([], "hypotheses.text.beam4.a.fr"),
        (["--checkpoint", "b"], "hypotheses.text.beam4.ensemble-of-2.fr"),
    ):
        ran = run([*command, *arguments], folder)
        assert ran.code == 0, ran.err
        facts = json.loads(ran.out)
        assert facts["model"] == ("a, b" if arguments else "a")
        assert facts["hypotheses"] == name
        checkpoints = ["--checkpoint", "a", *arguments]
        lines = run(["translate", "--device", "cpu", *checkpoints], folder, stdin=(folder / "text").read_bytes())
        assert (folder / name).read_bytes() == lines.out
