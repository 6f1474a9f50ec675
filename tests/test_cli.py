"""The command line's surface: help, version, flags, streams and exit codes."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from transformer_cli import __version__, cli
from transformer_cli.cli import COMMANDS, main
from transformer_cli.completion import complete
from transformer_cli.errors import DataError, TfmError


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


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["train", "--help"], ["translate", "-h"], ["--version"]])
def test_E9_help_and_version_answer_without_torch_or_hydra(arguments: list[str]) -> None:
    program = (
        "import sys; from transformer_cli.cli import main; status = main(sys.argv[1:]);"
        "sys.exit(status or any(m in sys.modules for m in ('torch', 'hydra', 'omegaconf', 'sacrebleu')))"
    )
    result = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"tfm {__version__}" if "--version" in arguments else "usage: tfm")


def test_E9_a_wrong_command_is_named_with_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert "no command called `trian`; did you mean `train`?" in error_line(capsys)


def test_a_wrong_flag_is_named_with_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "--bem", "4"]) == 2
    assert "--bem; did you mean `--beam`?" in error_line(capsys)


def test_flags_are_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "--check", "x"]) == 2
    assert "--check" in error_line(capsys)


def test_a_flag_with_a_wrong_value_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "--beam", "four"]) == 2
    assert "--beam" in error_line(capsys)


def test_a_misspelt_key_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "model.d_modle=256"]) == 2
    assert "did you mean `model.d_model`?" in error_line(capsys)


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


@pytest.mark.parametrize("command", COMMANDS)
def test_cfg_prints_the_config_and_stops(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--cfg"]) == 0
    captured = capsys.readouterr()
    assert "seed: 1\n" in captured.out
    assert captured.err == ""


def test_every_flag_is_a_key_of_its_command() -> None:
    from transformer_cli.config import SCHEMAS, all_keys

    for name, command in COMMANDS.items():
        assert {flag.key for flag in command.flags.values()} <= set(all_keys(SCHEMAS[name]))


def test_multirun_refuses_flags_and_wrong_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "-m", "--name", "x", "seed=1,2"]) == 2
    assert "name=VALUE" in error_line(capsys)
    assert main(["train", "-m", "--cfg", "seed=1,2"]) == 2
    assert "--cfg" in error_line(capsys)
    assert main(["train", "-m", "model=tiny,bgi"]) == 2
    assert "no model called `bgi`" in error_line(capsys)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tr"], ["train", "translate"]),
        (["train", "model="], ["model=base", "model=big", "model=small", "model=tiny"]),
        (["train", "model=b"], ["model=base", "model=big"]),
        (["train", "model.d_m"], ["model.d_model="]),
        (["translate", "--b"], ["--beam"]),
        (["evaluate", "decode=g"], ["decode=greedy"]),
        (["completion", "z"], ["zsh"]),
        (["nonsense", "x"], []),
    ],
)
def test_completion_knows_commands_flags_groups_and_keys(words: list[str], expected: list[str]) -> None:
    assert complete(words) == expected


def test_completion_does_not_import_torch() -> None:
    program = "import sys; from transformer_cli.cli import main; main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program, "--complete", "train", "mod"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0
    assert "model=\n" in result.stdout


def test_bash_completes_a_choice_from_the_script_that_we_print() -> None:
    script = tfm("completion", "bash").stdout.decode()
    program = "from transformer_cli.cli import entry_point; entry_point()"
    stub = f"tfm() {{ {shlex.quote(sys.executable)} -c '{program}' \"$@\"; }}"
    ask = "COMP_LINE='tfm train model=b'; COMP_POINT=${#COMP_LINE}; _tfm; printf '%s\\n' \"${COMPREPLY[@]}\""
    result = subprocess.run(["bash", "-c", f"{stub}\n{script}\n{ask}"], capture_output=True, text=True, check=False)
    assert result.stdout.split() == ["base", "big"], result.stderr


@pytest.mark.parametrize("error", [TfmError, *TfmError.__subclasses__()])
def test_each_kind_of_error_has_its_status(
    error: type[TfmError], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: list[str]) -> int:
        raise error("corpus.de:3: two\nlines")

    monkeypatch.setattr(cli, "_run", fail)
    assert main(["train"]) == error.exit_code
    assert error_line(capsys) == "tfm: error: corpus.de:3: two lines\n"


def test_the_traceback_is_shown_on_request(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: list[str]) -> int:
        raise DataError("x")

    monkeypatch.setattr(cli, "_run", fail)
    monkeypatch.setenv("TFM_DEBUG", "1")
    assert main(["train"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_E10_a_bug_of_ours_is_one_line_that_names_a_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(_: list[str]) -> int:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(cli, "_run", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["train", "seed=3"]) == 70
    line = error_line(capsys)
    assert "internal error (ZeroDivisionError), please report: " in line
    report = Path(line.rsplit(": ", 1)[1].strip())
    assert "secret detail" in report.read_text()
    assert "tfm train seed=3" in report.read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_status_5() -> None:
    program = "from transformer_cli.cli import entry_point; entry_point()"
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [sys.executable, "-c", program, "train", "--cfg"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert result.returncode == 5
    assert result.stderr.startswith(b"tfm: error: ")
    assert result.stderr.count(b"\n") == 1
