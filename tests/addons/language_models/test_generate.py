"""`tfm generate`: continuations are those of the model, with any search, cache and output."""

import io
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.addons.language_models.toy_text import content, language_model, tokenizer, without_bytes
from tests.support.contract import refused
from tests.support.contract import run as tfm
from tests.support.each import each
from tests.support.forked import Ran
from tests.toy.run import model_file as translator_file
from tests.toy.run import packed as packed_file
from transformer_cli.addons.language_models.generator import Generated, Generator, Streamed, read_prompt
from transformer_cli.addons.language_models.keys import GenerateConfig
from transformer_cli.addons.language_models.language_model import LanguageModel
from transformer_cli.addons.language_models.run_generate import PromptFilter
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.model import Positions
from transformer_cli.models.file import read_model

CPU = torch.device("cpu")
GREEDY: dict[str, Any] = {"search": "greedy", "beam_size": 1}
SAMPLE: dict[str, Any] = {"search": "sample", "beam_size": 1}
PROMPTS = ["the cat", "a pretty woman sat down in", "it", "the cat drank milk and"]


def going_on(prompt: str, *, number: int = 1, seed: int = 1, **options: Any) -> list[Generated]:
    config = DecodeConfig(**{"max_length": 12, **options})
    generator = Generator(language_model(), tokenizer(), config, device=CPU, seed=seed)
    return generator.generate(read_prompt(prompt, tokenizer()), number=number)


def uncached(model: LanguageModel, ids: list[int], n_tokens: int) -> list[int]:
    """The likeliest tokens, each time from the whole text."""
    ids_so_far: list[int] = []
    while len(ids_so_far) < n_tokens:
        logits_V = model(torch.tensor([[tokenizer().bos_id, *ids, *ids_so_far]]))[0, -1].detach()
        logits_V[[tokenizer().pad_id, tokenizer().bos_id]] = -math.inf
        best = int(logits_V.argmax())
        if best == tokenizer().eos_id:
            break
        ids_so_far.append(best)
    return ids_so_far


@each("prompt", PROMPTS)
def test_greedy_search_says_what_asking_for_the_whole_text_every_time_says(prompt: str) -> None:
    (found,) = going_on(prompt, **GREEDY)
    (ids,) = tokenizer().encode([prompt])
    assert found.ids == uncached(language_model(), ids, 12)
    assert found.text == tokenizer().decode([*ids, *found.ids])
    assert found.text.startswith(prompt)


@each("options", [{"top_k": 1}, {"temperature": 1e-3}, {"top_p": 1e-6}])
@each("prompt", PROMPTS)
def test_sampling_what_is_likeliest_alone_is_greedy_search(prompt: str, options: dict[str, Any]) -> None:
    assert going_on(prompt, **SAMPLE, **options)[0].ids == going_on(prompt, **GREEDY)[0].ids


def test_a_beam_scores_a_text_as_the_model_does_that_reads_it() -> None:
    options = {"length_penalty": 0.0, "max_length": 3}
    best = going_on("the cat", search="beam", beam_size=64, n_best=3, **options)
    assert len(best) == 3
    model, (ids,) = language_model(), tokenizer().encode(["the cat"])
    for one in best:
        end = [tokenizer().eos_id] * one.finished
        whole_T = torch.tensor([tokenizer().bos_id, *ids, *one.ids, *end])
        log_p_TV = model(whole_T[None, :-1])[0].detach().log_softmax(-1)
        by_hand = sum(float(log_p_TV[t - 1, whole_T[t]]) for t in range(1 + len(ids), len(whole_T)))
        assert one.log_prob == pytest.approx(by_hand, abs=1e-4)


def test_samples_depend_on_the_seed_and_the_number_and_on_nothing_else() -> None:
    texts = [one.text for one in going_on("the cat", n_best=3, **SAMPLE)]
    assert [one.text for one in going_on("the cat", n_best=3, **SAMPLE)] == texts
    assert [one.text for one in going_on("the cat", seed=2, n_best=3, **SAMPLE)] != texts
    assert [one.text for one in going_on("the cat", number=2, n_best=3, **SAMPLE)] != texts


def test_white_space_at_the_end_of_a_prompt_finishes_its_word() -> None:
    pieces = [one.pieces[0] for one in going_on("the cat drank mil ", n_best=50, **SAMPLE)]
    assert all(piece.startswith("▁") for piece in pieces)
    assert not all(one.pieces[0].startswith("▁") for one in going_on("the cat drank mil", n_best=50, **SAMPLE))


@given(
    ids=st.lists(st.integers(0, len(tokenizer()) - 1), max_size=30), text=st.sampled_from(["", "it", "a €", *PROMPTS])
)
@settings(max_examples=300, deadline=None)
def test_what_is_streamed_is_in_the_end_what_the_tokenizer_says_of_all_ids(ids: list[int], text: str) -> None:
    given_away: list[str] = []
    prompt = read_prompt(text, tokenizer())
    stream = Streamed(tokenizer(), prompt, given_away.append)
    for i in ids:
        stream(i)
        assert tokenizer().decode([*prompt.ids, *stream.ids]).startswith("".join(given_away))
    stream.end(tokenizer().decode([*prompt.ids, *ids]))
    assert "".join(given_away) == tokenizer().decode([*prompt.ids, *ids])


def test_a_character_of_several_bytes_is_shown_when_it_is_whole() -> None:
    (ids,) = tokenizer().encode(["a €"])
    assert len([piece for piece in tokenizer().pieces(ids) if piece.startswith("<0x")]) == 3
    given_away: list[str] = []
    stream = Streamed(tokenizer(), read_prompt("", tokenizer()), given_away.append)
    for i in ids:
        stream(i)
    assert "".join(given_away) == "a €"
    assert "€" in given_away


@pytest.mark.parametrize("options", [GREEDY, SAMPLE])
def test_a_stream_shows_what_comes_back(options: dict[str, Any]) -> None:
    config = DecodeConfig(max_length=20, **options)
    generator = Generator(language_model(), tokenizer(), config, device=CPU)
    for prompt in PROMPTS:
        shown: list[str] = []
        (found,) = generator.generate(read_prompt(prompt, tokenizer()), on_text=shown.append)
        assert "".join(shown) == found.text
        assert [found] == generator.generate(read_prompt(prompt, tokenizer()))


# ---- The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("generate")
    (place / "m").write_bytes(content())
    (place / "few").write_bytes(content(without_bytes()))
    (place / "learned").write_bytes(content(positions=Positions.learned, max_positions=8))
    (place / "t").write_bytes(packed_file(translator_file()))
    return place


def generate(folder: Path, *arguments: str, model: str = "m", stdin: bytes = b"") -> Ran:
    ran = tfm(["generate", "--checkpoint", model, "--device", "cpu", *arguments], folder, stdin=stdin)
    assert ran.code == 0, ran.err
    return ran


def lines(ran: Ran) -> list[str]:
    return ran.out.decode().split("\n")[:-1]


def test_the_command_prints_the_prompt_with_what_follows_a_line_for_each(folder: Path) -> None:
    expected = [going_on(prompt, number=n, **GREEDY)[0].text for n, prompt in enumerate(PROMPTS, start=1)]
    stdin = "".join(f"{prompt}\n" for prompt in PROMPTS).encode()
    assert lines(generate(folder, "decode=greedy", "--max-length", "12", stdin=stdin)) == expected
    assert lines(generate(folder, "decode=greedy", "--max-length", "12", PROMPTS[0])) == expected[:1]
    assert lines(generate(folder, "decode=greedy", "--max-length", "12", "--prompt", PROMPTS[0])) == expected[:1]


def test_the_same_seed_gives_the_same_text_whatever_comes_before_it(folder: Path) -> None:
    sampled = ["--n", "3", "--temperature", "1.5", "--top-k", "40", "--top-p", "1", "--max-length", "8"]
    first = lines(generate(folder, *sampled, stdin=b"it was\nthe cat\n"))
    assert len(first) == 6
    assert first[3:] == lines(generate(folder, *sampled, stdin=b"a woman sat down\nthe cat\n"))[3:]
    assert first != lines(generate(folder, *sampled, "--seed", "2", stdin=b"it was\nthe cat\n"))
    ran = generate(folder, *sampled, stdin=b"it was\n")
    assert lines(ran) == first[:3]


def test_what_is_cut_and_what_is_unknown_is_said(folder: Path) -> None:
    cut = generate(folder, "decode=greedy", "--max-length", "1", "the cat")
    assert b"1 of 1 texts did not come to their end" in cut.err
    odd = generate(folder, "--max-length", "2", "the Ž", model="few")
    assert (
        "1 prompt with characters that the model's vocabulary does not have, the first is prompt 1: Ž"
        in odd.err.decode()
    )
    assert lines(odd)[0].startswith("the Ž"), "what a user wrote stays as it is"


def test_learned_positions_end_a_text_where_there_are_no_more(folder: Path) -> None:
    ran = generate(folder, "decode=greedy", "decode.min_length=20", "the cat", model="learned")
    (ids,) = tokenizer().encode(["the cat"])
    assert len(tokenizer().encode(lines(ran))[0]) <= 8
    assert len(ids) < 8


def test_at_a_terminal_the_text_comes_piece_by_piece(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        written: list[str] = []  # noqa: RUF012

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            self.written.append(text)
            return super().write(text)

    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    config = GenerateConfig(decode=DecodeConfig(max_length=12, **GREEDY))
    PromptFilter(config, read_model(folder / "m"), CPU).process_prompt("the cat")
    assert terminal.getvalue() == going_on("the cat", **GREEDY)[0].text + "\n"
    assert len([text for text in terminal.written if text]) > 3


@each(
    "arguments, code, says",
    [
        ([""], 3, ["the prompt: is empty"]),
        (["--prompt", "  "], 3, ["the prompt: is empty"]),
        (["the cat", "--checkpoint", "t"], 4, ["this is a translator; use `tfm translate`"]),
        (["the cat", "--checkpoint", "m", "--checkpoint", "m"], 2, ["several models"]),
        (["the cat", "--checkpoint", "m", "--top-k", "0"], 2, ["decode.top_k=0"]),
        (["the cat", "--checkpoint", "m", "--temperature", "0"], 2, ["decode=greedy"]),
        (["the cat", "--checkpoint", "m", "decode=mbr"], 2, ["decode.search=mbr", "translations only"]),
        (["the cat drank milk and sat down in her chair", "--checkpoint", "learned"], 3, ["max_positions=8"]),
        (["the cat", "--checkpoint", "nothing"], 4, ["nothing"]),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(folder: Path, arguments: list[str], code: int, says: list[str]) -> None:
    refused(["generate", *arguments], folder, code=code, says=says)


def test_an_empty_line_among_the_prompts_is_named(folder: Path) -> None:
    ran = tfm(["generate", "--checkpoint", "m", "--max-length", "3"], folder, stdin=b"the cat\n\n")
    assert ran.code == 3
    assert ran.err.decode().split("\n")[-2].startswith("tfm: error: standard input:2: is empty. Give")
