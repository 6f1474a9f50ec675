"""The command line's surface: help, version, flags, streams and exit codes."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.contract import WITHOUT_TORCH, process
from tests.support.each import each
from transformer_cli import cli
from transformer_cli.cli import main
from transformer_cli.command import COMMANDS, schema_of
from transformer_cli.completion import complete
from transformer_cli.config.yaml_files import choices_of
from transformer_cli.errors import DataError, ElsewhereError, Stopped, TfmError


def tfm(*arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """`tfm` in a process of its own."""
    program = "import sys; sys.argv[0] = 'tfm'; from transformer_cli.cli import entry_point; entry_point()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        input=stdin,
        capture_output=True,
        env=os.environ | (env or {}),
        check=False,
    )


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("tfm: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_flags_are_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "--check", "x"]) == 2
    assert "--check" in error_line(capsys)


def test_flags_and_overrides_mix_in_any_order(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for line in (
        "translate --beam 3 decode.length_penalty=1 --cfg --checkpoint a=b",
        "translate decode.length_penalty=1 --checkpoint a=b --cfg --beam 3",
        "translate --cfg --checkpoint=a=b --beam=3 decode.length_penalty=1",
    ):
        assert main(line.split()) == 0
        outputs.append(capsys.readouterr().out)
    assert len(set(outputs)) == 1
    assert "checkpoint: a=b\n" in outputs[0]
    assert "beam_size: 3\n" in outputs[0]


@pytest.mark.parametrize("command", list(COMMANDS))
def test_cfg_prints_the_config_and_stops(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    argument = COMMANDS[command].argument
    value = {"bench": "train", "export": "ctranslate2", "reproduce": "trec", "augment": "merge"}.get(
        command, "somewhere"
    )
    assert main([command, "--cfg", *([value] if argument else [])]) == 0
    captured = capsys.readouterr()
    seed = (
        "runs: runs\n"
        if command in ("score", "average", "classify", "answer", "tag", "embed", "shortlist", "align")
        else "seed: 1\n"
    )  # those draw nothing
    given = (
        ""
        if argument is None
        else f"{argument.key}:\n- {value}\n"
        if argument.repeated
        else f"{argument.key}: {value}\n"
    )
    assert (given or seed) in captured.out
    assert captured.err == ""


def test_every_flag_is_a_key_of_its_command() -> None:
    from transformer_cli.config.keys import all_keys

    for name, command in COMMANDS.items():
        assert {flag.key for flag in command.flags.values()} <= set(all_keys(schema_of(name)))


def test_keys_are_explained_without_torch_and_hydra() -> None:
    program = "import sys; from transformer_cli.cli import main; main(sys.argv[1:]); sys.exit(str(sorted(sys.modules)))"
    for arguments in (["train", "--help"], ["translate", "--keys", "beam"]):
        result = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
        )
        assert not {"'torch'", "'hydra'", "'omegaconf'", "'numpy'"} & set(result.stderr.strip("[]\n").split(", "))
    assert result.stdout.startswith("decode.beam_size: int, 1 to 1,000, default 4\n    ")


def test_multirun_refuses_to_print_a_config_and_wrong_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "-m", "--cfg", "seed=1,2"]) == 2
    assert "--cfg" in error_line(capsys)
    assert main(["train", "-m", "model=tiny,bgi"]) == 2
    assert "no model called `bgi`" in error_line(capsys)


@each(
    "words, expected",
    [
        (["tr"], ["train", "translate"]),
        (["train", "model="], [f"model={name}" for name in choices_of("model")]),
        (["train", "model=b"], ["model=base", "model=big"]),
        (["train", "model.d_m"], ["model.d_model="]),
        (["translate", "--b"], ["--beam"]),
        (["embed", "--pl"], ["--plugin"]),
        (["train", "--k"], ["--keys"]),
        (["evaluate", "decode=g"], ["decode=greedy"]),
        (["completion", "z"], ["zsh"]),
        (["augm"], ["augment"]),
        (["augment", "lo"], ["loop"]),
        (["augment", "loop", "--rev"], ["--reverse"]),
        (["augment", "loop", "lo"], ["lora.rank=", "lora.alpha=", "lora.dropout=", "lora.also="]),
        (["nonsense", "x"], []),
    ],
)
def test_completion_knows_commands_flags_groups_and_keys(words: list[str], expected: list[str]) -> None:
    assert complete(words) == expected


def test_completion_does_not_import_torch() -> None:
    ran = process(["--complete", "train", "mod"], Path(), program=WITHOUT_TORCH)
    assert ran.code == 0
    assert b"model=\n" in ran.out


NOT_FOR_TRANSLATING = {
    *("torch._dynamo", "torch._inductor", "torch.utils.tensorboard", "sympy", "sacrebleu", "tensorboard"),
    *("transformers", "ctranslate2", "transformer_cli.training", "transformer_cli.evaluation.translation"),
}


def test_translating_imports_nothing_that_it_does_not_need() -> None:
    """A second or two of waiting, each: torch's compiler and sympy came in with weights that were drawn for nothing."""
    model = ROOT / "tests" / "golden" / "format-1" / "joint-post.safetensors"
    program = f"""
import sys
from transformer_cli.cli import main
assert main(["translate", "--checkpoint", {str(model)!r}, "--engine", "torch", "device=cpu"]) == 0
sys.exit(", ".join({NOT_FOR_TRANSLATING!r} & set(sys.modules)) or None)
"""
    done = subprocess.run([sys.executable, "-c", program], input=b"a b\n", capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 1


def test_bash_completes_a_choice_from_the_script_that_we_print() -> None:
    script = tfm("completion", "bash").stdout.decode()
    program = "from transformer_cli.cli import entry_point; entry_point()"
    stub = f"tfm() {{ {shlex.quote(sys.executable)} -c '{program}' \"$@\"; }}"
    ask = "COMP_LINE='tfm train model=b'; COMP_POINT=${#COMP_LINE}; _tfm; printf '%s\\n' \"${COMPREPLY[@]}\""
    result = subprocess.run(["bash", "-c", f"{stub}\n{script}\n{ask}"], capture_output=True, text=True, check=False)
    assert result.stdout.split() == ["base", "big"], result.stderr


MESSAGE = "corpus.de:3: two\nlines"
ERRORS = [kind(MESSAGE) for kind in (TfmError, *TfmError.__subclasses__()) if kind not in (Stopped, ElsewhereError)]


@pytest.mark.parametrize(
    "error", [*ERRORS, ElsewhereError(MESSAGE, 6, is_reporting=True)], ids=lambda error: repr(error)
)
def test_each_kind_of_error_has_its_status(
    error: TfmError, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "_run", fail)
    assert main(["train"]) == error.exit_code
    assert error_line(capsys) == "tfm: error: corpus.de:3: two lines\n"


def test_who_was_stopped_is_told_the_command_that_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: list[str]) -> int:
        raise Stopped(15, "runs/x: step 7 is the newest that is saved")

    monkeypatch.setattr(cli, "_run", stop)
    assert main(["train", "name=a b"]) == 143
    assert capsys.readouterr().err == (
        "tfm: stopped by SIGTERM: runs/x: step 7 is the newest that is saved. Go on with `tfm train 'name=a b'`\n"
    )


def test_a_rank_that_does_not_speak_lets_the_first_one_speak(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier, waited = signal.getsignal(signal.SIGTERM), []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(cli.time, "sleep", waited.append)
    try:
        assert main(["train", "nam=x"]) == 2
    finally:
        signal.signal(signal.SIGTERM, earlier)
    assert waited == [cli.REPORT_WAIT_S]
    assert capsys.readouterr().err == ""


def test_the_traceback_is_shown_on_request(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: list[str]) -> int:
        raise DataError("x")

    monkeypatch.setattr(cli, "_run", fail)
    monkeypatch.setenv("TFM_DEBUG", "1")
    assert main(["train"]) == 3
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_B4_a_full_disk_behind_stdout_outlives_the_interpreter() -> None:
    program = "from transformer_cli.cli import entry_point; entry_point()"
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [sys.executable, "-c", program, "train", "--cfg"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert result.returncode == 5
    assert result.stderr.startswith(b"tfm: error: ")
    assert result.stderr.count(b"\n") == 1


def test_the_help_of_a_command_says_what_its_words_are() -> None:
    for command, words in {
        "export": ["FORMAT: Program that", "One of argos, ctranslate2, firefox, huggingface"],
        "import": ["FORMAT: Format of", "One of ctranslate2, fairseq, hf, marian", "PATH: "],
    }.items():
        shown = " ".join(tfm(command, "--help").stdout.decode().split())
        assert all(word in shown for word in words), shown
