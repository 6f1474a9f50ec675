"""What counts as the same, and what is reported of lines that could not be compared."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from tests.addons.interop.test_export import model_file
from tests.support.each import each
from tests.toy.translator import sentences
from transformer_cli.addons.interop import verify
from transformer_cli.config.model import Norm, Tying
from transformer_cli.models.file import ModelFile

CPU = torch.device("cpu")
LINES = sentences(12, seed=7)
GOOD = verify.VerifyResult(
    lines=12,
    tokens=100,
    largest_difference=1e-6,
    mean_difference=1e-7,
    tolerance=1e-4,
    greedy_compared=9,
    greedy_identical=9,
    beam_compared=10,
    beam_identical=9,
    beam_ours_likelier=1,
    text_compared=9,
    text_identical=9,
    text_rewritten=0,
    is_float32=True,
)


class Ours:
    """Another program that is our own; it may say `instead` as the last token of what it finds."""

    def __init__(self, model: ModelFile, instead: int | None = None) -> None:
        self.model, self.tokenizers, self.instead = model.build(CPU), model.tokenizers, instead

    def translate(self, sources: Sequence[verify.Ids], *, beam_size: int, max_tokens: int) -> list[list[int]]:
        found = [h.ids for h in verify.search(self.model, sources, tokenizers=self.tokenizers, beam_size=beam_size)]
        return found if self.instead is None else [[*ids[:-1], self.instead] for ids in found]

    def log_probs(self, sources: Sequence[verify.Ids], targets: Sequence[verify.Ids]) -> list[list[float]]:
        return verify.log_probs(self.model, sources, targets, self.tokenizers)


class OursWithText(Ours):
    """Our program, which also puts `mark` at the end of each text."""

    mark = ""

    def translate_text(self, lines: Sequence[str], *, max_tokens: int) -> list[str]:
        sources = self.tokenizers.source.encode(lines)
        found = self.translate(sources, beam_size=1, max_tokens=max_tokens)
        return [self.tokenizers.target.decode(ids) + self.mark for ids in found]

    def shown(self, text: str) -> str:
        return text


def test_a_program_that_writes_other_text_is_not_the_same() -> None:
    model = unending(gain=1)
    program = OursWithText(model)
    verdict = verify.verify(model, program, LINES, is_float32=True)
    assert verdict.text_identical == verdict.text_compared == len(LINES)
    assert verdict.holds
    program.translate_text = lambda lines, max_tokens: ["?" for _ in lines]  # type: ignore[method-assign]
    wrong = verify.verify(model, program, LINES, is_float32=True)
    assert wrong.text_identical == 0
    assert not wrong.holds


def unending(gain: float) -> ModelFile:
    """The logit of EOS is 0; those of all others are times `gain`."""
    model = model_file(norm=Norm.pre, tie_embeddings=Tying.none)
    output_VD = gain * model.weights["own_output.weight"]
    output_VD[model.tokenizers.target.eos_id] = 0
    return replace(model, weights={**model.weights, "own_output.weight": output_VD})


def test_greedy_lines_that_are_cut_are_compared_as_far_as_they_go() -> None:
    model = unending(gain=1)
    verdict = verify.verify(model, Ours(model), LINES, is_float32=True)
    assert verdict.beam_compared == 0, "it ended by itself"
    assert verdict.greedy_identical == verdict.greedy_compared == len(LINES)
    assert verdict.holds
    wrong = verify.verify(model, Ours(model, instead=model.tokenizers.target.unk_id), LINES, is_float32=True)
    assert wrong.greedy_identical == 0
    assert not wrong.holds


def test_what_could_not_be_compared_is_reported() -> None:
    model = unending(gain=0)  # any token is as good as any other
    verdict = verify.verify(model, Ours(model), LINES, is_float32=True)
    assert verdict.greedy_compared == 0 < verdict.tokens
    assert verdict.holds, "the log-probabilities are the same"
    assert "greedy search: no line compared (12: rounding could choose another token)" in verdict.lines_of_text()
    assert GOOD.lines_of_text()[1:] == [
        "greedy search: 9 of 9 lines identical, 3 not compared (rounding could choose another token)",
        "beam 4: 9 of 10 lines identical, 2 not compared (no end within the limit); ours is the likelier one in 1 of 1",
        "text to text, greedy: 9 of 9 lines identical, 3 not compared (rounding could choose another token)",
    ]
    whole = replace(GOOD, lines=9, beam_compared=9, beam_ours_likelier=0)
    assert whole.lines_of_text()[1:] == [
        "greedy search: 9 of 9 lines identical",
        "beam 4: 9 of 9 lines identical",
        "text to text, greedy: 9 of 9 lines identical",
    ]
    rewritten = replace(whole, text_rewritten=2)
    assert rewritten.lines_of_text()[3].endswith("9 of 9 lines identical; 2 of them as this program rewrites them")
    assert "no line compared" in replace(whole, text_compared=0, text_identical=0).lines_of_text()[3]


@each(
    "changes",
    [
        {"tokens": 0, "largest_difference": 0.0},
        {"largest_difference": 2e-4},
        {"largest_difference": float("nan")},
        {"greedy_identical": 8},
        {"text_identical": 8},
        {"is_float32": False, "tolerance": 0.1, "mean_difference": 0.2},
        {"is_float32": False, "tolerance": 0.1, "mean_difference": float("nan")},
        {"is_float32": False, "tokens": 0},
    ],
)
def test_a_verdict_holds_only_by_what_was_compared(changes: dict[str, float]) -> None:
    assert GOOD.holds
    assert replace(GOOD, greedy_compared=0, greedy_identical=0).holds
    assert replace(GOOD, is_float32=False, greedy_identical=0).holds
    assert not replace(GOOD, **changes).holds


@each("rows, n_outputs, sizes", [(4, 8_000, [16, 16, 8]), (4, 256_000, [2] * 20), (100, 256_000, [1] * 40)])
def test_fewer_lines_of_a_large_vocabulary_are_asked_about_at_once(rows: int, n_outputs: int, sizes: list[int]) -> None:
    found: list[int] = []

    def ask(lines: Sequence[int]) -> list[int]:
        found.append(len(lines))
        return list(lines)

    assert verify.in_parts(ask, range(40), rows=rows, n_outputs=n_outputs) == list(range(40))
    assert found == sizes


def test_the_log_probabilities_of_targets_are_those_of_their_tokens_and_their_end() -> None:
    logits_BTV = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1))
    shares_BTV = logits_BTV.double().exp() / logits_BTV.double().exp().sum(dim=-1, keepdim=True)
    found = verify.of_targets(logits_BTV, [[4, 1], [3]], eos_id=2)
    wanted = [
        [shares_BTV[0, 0, 4], shares_BTV[0, 1, 1], shares_BTV[0, 2, 2]],
        [shares_BTV[1, 0, 3], shares_BTV[1, 1, 2]],
    ]
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.tensor(ours).double(), torch.stack(theirs).log(), rtol=0, atol=1e-6)


def test_log_probabilities_are_those_of_all_logits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are computed of a few tokens at a time, whose logits of a large vocabulary take memory."""
    model = model_file()
    sources, targets = [[5, 6, 7, 8], [9]], [[7, 5, 6], [8, 9, 5, 6, 7]]
    monkeypatch.setattr(verify, "_MOST_LOGITS", 2 * model.tokenizers.n_outputs)  # two tokens
    built, ids = model.build(verify.CPU), model.tokenizers
    found = verify.log_probs(built, sources, targets, ids)
    source_BS = verify.padded_ids([[*one, *ids.source.end_ids] for one in sources], ids.source.pad_id)
    target_in_BT = verify.padded_ids([[ids.target.bos_id, *one] for one in targets], ids.target.pad_id)
    with torch.no_grad():
        log_p_BTV = built(source_BS, target_in_BT).log_softmax(-1)
    for row, target in enumerate(targets):
        wanted = [float(log_p_BTV[row, i, one]) for i, one in enumerate([*target, ids.target.eos_id])]
        assert found[row] == pytest.approx(wanted, abs=1e-5)
