"""Stopping when the system asks, and going on as if nothing had been."""

import fcntl
import logging
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.conftest import slow
from tests.support.each import each
from tests.toy.run import CPU, MODEL, assert_same_run, config, metrics, prepared, run, sha256, train, tree
from transformer_cli.config.compose import load_config
from transformer_cli.config.fields import KeyInfo
from transformer_cli.config.train import Compile, TrainConfig
from transformer_cli.config.yaml_files import read_yaml
from transformer_cli.errors import CheckpointError, ConfigError, DataError, EnvironmentFault, LockedError, Stopped
from transformer_cli.files import locked
from transformer_cli.training import resuming, run_directory
from transformer_cli.training.checkpoints import CheckpointStore
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.run_directory import chosen_before, open_run, with_values
from transformer_cli.training.signals import StopRequest, stop_signals
from transformer_cli.training.trainer import Trainer
from transformer_cli.training.validation import Validator


def send(signum: int) -> None:
    os.kill(os.getpid(), signum)


def before(method: Callable[..., Any], happens: Callable[[Any, dict[str, Any]], None]) -> Callable[..., Any]:
    """`method`, but something happens first."""

    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        happens(self, {**kwargs, **dict(enumerate(args))})  # type: ignore[dict-item]
        return method(self, *args, **kwargs)

    return patched


def run_with_signals(folder: Path, settings: TrainConfig | None = None) -> None:
    with stop_signals(is_reporting=False) as request:
        run(folder, settings, Ranks(request))


def stop_at(step: int, signum: int, folder: Path, settings: TrainConfig | None = None) -> Stopped:
    """A run that gets a signal as it begins update `step`."""

    def happens(_: Trainer, arguments: dict[str, Any]) -> None:
        if arguments["step"] == step:
            send(signum)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "train_step", before(Trainer.train_step, happens))
        with pytest.raises(Stopped) as stopped:
            run_with_signals(folder, settings)
    return stopped.value


@pytest.mark.parametrize("step", [slow(3), slow(4), 6, 12])  # nothing is due; an evaluation and a save; a save; the end
def test_A5_sigterm_finishes_the_step_saves_it_and_loses_no_bit(tmp_path: Path, unbroken: Path, step: int) -> None:
    stopped = stop_at(step, signal.SIGTERM, tmp_path)
    assert stopped.exit_code == 143
    assert str(stopped) == f"stopped by SIGTERM: {tmp_path}: step {step} is the newest that is saved"
    assert CheckpointStore(tmp_path).steps()[-1] == step
    run(tmp_path)
    assert_same_run(tmp_path, unbroken)


def test_A6_one_sigint_saves_and_a_second_one_stops_at_once(tmp_path: Path, unbroken: Path) -> None:
    assert stop_at(3, signal.SIGINT, tmp_path).exit_code == 130

    def twice(_: Trainer, arguments: dict[str, Any]) -> None:
        if arguments["step"] == 6:
            send(signal.SIGINT)
            send(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "train_step", before(Trainer.train_step, twice))
        with pytest.raises(KeyboardInterrupt):
            run_with_signals(tmp_path)
    for thread in threading.enumerate():  # a process that ends takes it along
        if thread.name == "tfm-saver":
            thread.join()
    assert CheckpointStore(tmp_path).steps()[-1] < 6
    run(tmp_path)
    assert_same_run(tmp_path, unbroken)


def test_A7_a_signal_during_a_save_lets_it_end_and_starts_no_second_one(tmp_path: Path, unbroken: Path) -> None:
    saved: list[int] = []
    is_sent = threading.Event()

    def happens(_: CheckpointStore, arguments: dict[Any, Any]) -> None:
        saved.append(arguments[0].step)
        if saved == [2, 4]:
            send(signal.SIGTERM)
            is_sent.set()

    def waits(_: Trainer, arguments: dict[str, Any]) -> None:
        if arguments["step"] == 5:  # or it may be at its next save before the thread that saves is at this one
            assert is_sent.wait(60)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointStore, "save", before(CheckpointStore.save, happens))
        patch.setattr(Trainer, "train_step", before(Trainer.train_step, waits))
        with pytest.raises(Stopped):
            run_with_signals(tmp_path)
    assert saved == [2, 4, 5]  # the third is where it stopped
    assert CheckpointStore(tmp_path).steps() == saved
    run(tmp_path)
    assert_same_run(tmp_path, unbroken)


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGUSR1])
def test_A9_a_closed_terminal_and_slurms_warning_are_as_sigterm(
    tmp_path: Path, unbroken: Path, signum: signal.Signals
) -> None:
    stopped = stop_at(5, signum, tmp_path)
    assert stopped.exit_code == 128 + signum
    assert str(stopped).startswith(f"stopped by {signum.name}: ")
    run(tmp_path)
    assert_same_run(tmp_path, unbroken)


def test_A9_nohup_keeps_its_word() -> None:
    earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals(is_reporting=False) as request:
            send(signal.SIGHUP)
            assert request.signal == 0
    finally:
        signal.signal(signal.SIGHUP, earlier)


@pytest.mark.parametrize("at_evaluation", [1, slow(3), 4])  # in the middle, at the last step, of the average
def test_A5_a_signal_during_an_evaluation_does_not_wait_for_its_end(
    tmp_path: Path, unbroken: Path, at_evaluation: int
) -> None:
    evaluations = 0

    def happens(_: Validator, arguments: dict[str, Any]) -> None:
        nonlocal evaluations
        evaluations += 1
        if evaluations == at_evaluation:
            send(signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Validator, "score", before(Validator.score, happens))
        with pytest.raises(Stopped, match=f"step {min(4 * at_evaluation, 12)} is the newest that is saved"):
            run_with_signals(tmp_path)
    assert evaluations == at_evaluation
    dev = [entry["step"] for entry in metrics(tmp_path) if entry["kind"] == "dev"]
    assert dev == [4, 8, 12][: at_evaluation - 1]
    run(tmp_path)
    assert_same_run(tmp_path, unbroken)


def test_a_signal_before_training_stops_on_the_spot() -> None:
    with pytest.raises(Stopped, match="stopped by SIGTERM: nothing was being trained yet"), stop_signals():
        send(signal.SIGTERM)
        raise AssertionError("went on")


def test_a_signal_that_a_library_swallows_still_stops() -> None:
    """SentencePiece makes a RuntimeError of whatever its sentences raise, OmegaConf one of every exception."""
    with (
        pytest.raises(Stopped, match="stopped by SIGINT: nothing was being trained yet"),
        stop_signals(is_reporting=False),
    ):
        try:
            send(signal.SIGINT)
            raise AssertionError("went on")
        except BaseException as error:
            raise ConfigError("the vocabulary is too large") from error


def test_signals_are_given_back() -> None:
    earlier = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)]
    with stop_signals():
        assert signal.getsignal(signal.SIGTERM) not in earlier
    assert [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)] == earlier


def test_a_thread_of_another_program_leaves_its_signals_alone() -> None:
    earlier, failed = signal.getsignal(signal.SIGTERM), []

    def work() -> None:
        try:
            with stop_signals():
                assert signal.getsignal(signal.SIGTERM) == earlier
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failed == []


# What a run goes on from


@pytest.mark.parametrize("path", ["nothing", "nothing/checkpoints/step-00000004", "empty"])
def test_A15_a_checkpoint_that_is_not_there_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty" / "checkpoints").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"resume=.*: no checkpoint there\. Name a run directory, or a step"):
        run(tmp_path / "run", replace(config(), resume=str(tmp_path / path)))


@pytest.mark.parametrize("path", ["", "checkpoints/step-00000008"])
def test_a_run_can_start_from_another_runs_checkpoint(tmp_path: Path, unbroken: Path, path: str) -> None:
    untouched = tree(unbroken)
    run(tmp_path, replace(config(max_steps=14), resume=str(unbroken / path)))
    steps = [entry["step"] for entry in metrics(tmp_path) if entry["kind"] == "train"]
    assert steps == list(range(9 if path else 13, 15))
    assert tree(unbroken) == untouched


@each(
    "path, settings, message",
    [
        ("", {}, r"resume=.*: is at its last step, 12\. Raise train\.max_steps"),
        (
            "best",  # a link
            {"model": replace(MODEL, d_ff=64), "max_steps": 14},
            r"resume=.*best: does not fit this model and config .*size mismatch",
        ),
        ("damaged", {}, r"step-00000002: state\.json has 2 bytes, not"),
    ],
)
def test_a_run_that_is_finished_of_another_model_or_damaged_is_no_start(
    tmp_path: Path, unbroken: Path, path: str, settings: dict[str, Any], message: str
) -> None:
    source = unbroken / path
    if path == "damaged":
        source = tmp_path / path
        run(source, config(max_steps=2, eval_every=2))
        (source / "checkpoints/step-00000002/state.json").write_bytes(b"{}")
    with pytest.raises(CheckpointError, match=message):
        run(tmp_path / "run", replace(config(**settings), resume=str(source)))


def test_a_finished_model_that_is_damaged_is_shipped_again(tmp_path: Path, unbroken: Path) -> None:
    run(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    run(tmp_path)
    assert sha256(tmp_path / "model.safetensors") == sha256(unbroken / "model.safetensors")


def test_A20_a_run_without_its_config_is_not_mixed_with_another(tmp_path: Path) -> None:
    opened(tmp_path)
    (tmp_path / "toy/config.yaml").unlink()
    with pytest.raises(
        CheckpointError, match=r"config\.yaml: is missing\. Restore it, or go on all the same with force"
    ):
        opened(tmp_path, seed=2)
    opened(tmp_path, force=True)


def toy(runs: Path) -> TrainConfig:
    return replace(config(), runs=str(runs), name="toy")


def opened(runs: Path, **changes: Any) -> None:
    settings = toy(runs)
    for key, value in changes.items():
        setattr(settings, key, value)
    with open_run(settings) as folder:
        train(settings, prepared(), folder, device=CPU)


def test_keys_that_the_config_of_a_run_lacks_have_their_defaults(tmp_path: Path) -> None:
    opened(tmp_path)
    file = tmp_path / "toy/config.yaml"
    plain = read_yaml(file)
    del plain["decode"]["min_length"]
    file.write_text(yaml.safe_dump(plain), encoding="utf-8")
    opened(tmp_path)
    with pytest.raises(ConfigError, match=r"holds another run: decode\.min_length was 0, is 3\."):
        opened(tmp_path, decode=replace(config().decode, min_length=3))


def test_a_run_that_was_given_a_limit_of_sources_goes_on_with_it(tmp_path: Path) -> None:
    opened(tmp_path, decode=replace(config().decode, max_source_length=256))
    with open_run(toy(tmp_path)) as folder:
        assert chosen_before(toy(tmp_path), folder) == {"decode.max_source_length": 256}


def leave_open(monkeypatch: pytest.MonkeyPatch, *keys: str) -> None:
    monkeypatch.setattr(run_directory, "key_infos", lambda _: dict.fromkeys(keys, KeyInfo("", chosen_once=True)))


def test_what_is_left_open_is_taken_from_the_run_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_open(monkeypatch, "train.clip_norm", "data.tokenizer.vocab_size")
    left_open = toy(tmp_path)
    assert chosen_before(left_open, tmp_path / "toy") == {}  # there is no run yet
    opened(tmp_path, train=replace(config().train, clip_norm=0.5))
    assert chosen_before(left_open, tmp_path / "toy") == {"train.clip_norm": 0.5}
    going_on = with_values(left_open, {"train.clip_norm": 0.5, "data.tokenizer.vocab_size": 9})
    assert (going_on.train.clip_norm, going_on.data.tokenizer.vocab_size) == (0.5, 9)
    assert (left_open.train.clip_norm, left_open.data.tokenizer.vocab_size) == (None, "auto")
    with open_run(left_open):  # is the same run
        pass
    with (
        pytest.raises(ConfigError, match=r"holds another run: train\.clip_norm was 0\.5, is 0\.7\."),
        open_run(replace(left_open, train=replace(left_open.train, clip_norm=0.7))),
    ):
        pass


def test_a_run_that_was_begun_without_byte_fallback_goes_on_with_its_vocabulary(tmp_path: Path) -> None:
    data = config().data
    opened(tmp_path, data=replace(data, tokenizer=replace(data.tokenizer, byte_fallback=False)))
    with open_run(toy(tmp_path)) as folder:
        assert chosen_before(toy(tmp_path), folder) == {"data.tokenizer.byte_fallback": False}


@pytest.mark.parametrize("named", ["toy", slow("toy/checkpoints/step-00000012"), slow("toy/checkpoints/best")])
def test_a_run_that_begins_with_another_one_s_checkpoint_takes_what_is_left_open_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    leave_open(monkeypatch, "train.clip_norm")
    opened(tmp_path, train=replace(config().train, clip_norm=0.5))
    second = replace(toy(tmp_path), name="second", resume=str(tmp_path / named))
    assert chosen_before(second, tmp_path / "second") == {"train.clip_norm": 0.5}
    assert chosen_before(replace(second, resume="auto"), tmp_path / "second") == {}


def test_A20_another_config_is_refused_after_a_table_and_can_be_forced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened(tmp_path)
    untouched = tree(tmp_path)
    with pytest.raises(ConfigError) as refused:
        opened(tmp_path, seed=2, decode=config().decode.__class__(beam_size=2))
    assert str(refused.value) == (
        f"{tmp_path}/toy: holds another run: seed was 1, is 2 and 3 more."
        " Choose another name=, leave name out, or go on all the same with force=true"
    )
    table = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [line.split() for line in table][:3] == [
        ["key", "was", "is"],
        ["seed", "1", "2"],
        ["decode.search", '"greedy"', '"beam"'],
    ]
    third_column = {len(line) - len(line.split()[-1]) for line in table}
    assert third_column == {table[0].index("is")}  # it begins at one place
    assert tree(tmp_path) == {**untouched, "toy/.owner": (tmp_path / "toy/.owner").read_bytes()}
    opened(tmp_path, seed=2, force=True)
    assert "going on with another config than before, as force=true says" in caplog.text


def test_A21_other_data_are_refused_by_file_with_both_hashes_and_can_be_forced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = replace(prepared(), inputs={"data.train: a.en": "a" * 64, "source tokenizer": "c" * 64})
    new = replace(old, fingerprint="other", inputs={**old.inputs, "data.train: a.en": "b" * 64})
    train(config(max_steps=2, eval_every=2), old, tmp_path, device=CPU)
    untouched = {name: content for name, content in tree(tmp_path).items() if name != "tfm.log"}
    with pytest.raises(DataError) as refused:
        train(config(), new, tmp_path, device=CPU)
    assert str(refused.value) == (
        f"{tmp_path}: was trained on other data: data.train: a.en had SHA-256 aaaaaaaaaaaa, and now bbbbbbbbbbbb."
        " Restore it, choose another name=, or go on all the same with force=true"
    )
    assert "source tokenizer" not in caplog.text
    assert {name: content for name, content in tree(tmp_path).items() if name != "tfm.log"} == untouched
    train(replace(config(max_steps=4), force=True), new, tmp_path, device=CPU)
    assert CheckpointStore(tmp_path).steps()[-1] == 4


def test_A19_another_environment_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, config(max_steps=2, eval_every=2))
    monkeypatch.setattr("torch.__version__", "99.0.0")
    run(tmp_path, config(max_steps=4))
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    (warning,) = (text for text in warnings if "last bits may differ" in text)
    assert warning.startswith("torch was 2.")
    assert "is 99.0.0: " in warning


def last_bits(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if "last bits may differ" in message]


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_A19_other_products_and_other_kernels_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **kwargs: function)
    monkeypatch.setattr(resuming, "prefers_onednn", lambda: True)
    run(tmp_path, config(max_steps=2, eval_every=2))
    monkeypatch.setattr(resuming, "prefers_onednn", lambda: False)
    run(tmp_path, config(max_steps=4, compile=Compile.default))
    (logged,) = last_bits(caplog)
    assert logged.startswith("products was oneDNN, is MKL; compiled was False, is True: ")
    environment = CheckpointStore(tmp_path).load(4).state["environment"]
    assert (environment["products"], environment["compiled"]) == ("MKL", True)


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_A19_a_compiler_that_fails_on_the_way_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is one on a GPU, where train.compile is auto."""
    from torch._dynamo.exc import TorchDynamoException

    def failing(function: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
        def fail(*args: Any) -> Any:
            raise TorchDynamoException("no compiler")

        return fail

    monkeypatch.setattr(torch, "compile", failing)
    monkeypatch.setattr("transformer_cli.training.trainer.may_compile", lambda *args: True)
    monkeypatch.setattr("transformer_cli.training.compiled.FEWEST_UPDATES", 1)
    large = config(
        max_steps=2, eval_every=2, tokens_per_update=300, max_tokens_per_microbatch=300
    )  # enough to compile for
    run(tmp_path, large)
    assert CheckpointStore(tmp_path).load(2).state["environment"]["compiled"] is False


def test_A19_what_only_one_kind_of_device_has_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    now = resuming.environment(CPU, Ranks(StopRequest()))
    other = {key: value for key, value in now.items() if key != "products"}
    resuming.warn_of_other_environment({"environment": other}, {**now, "compiled": True})
    assert last_bits(caplog) == []


def test_A24_the_second_trainer_is_told_who_the_first_is(tmp_path: Path) -> None:
    settings = config()
    settings.runs, settings.name = str(tmp_path), "toy"
    with open_run(settings):
        process = os.fork()  # a lock does not keep a process from itself
        if process == 0:
            try:
                with open_run(settings):
                    os._exit(0)
            except LockedError as error:
                (tmp_path / "logged").write_text(str(error))
                os._exit(error.exit_code)
        _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    logged = (tmp_path / "logged").read_text()
    assert logged.startswith(f"{tmp_path}/toy: process {os.getpid()} on ")
    assert ", started 20" in logged
    assert "is training here. Wait for it, or choose another name=" in logged


def test_B2_a_disk_without_room_for_what_is_kept_is_refused_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    usage = shutil.disk_usage(tmp_path)._replace(free=100_000)
    monkeypatch.setattr(resuming.shutil, "disk_usage", lambda path: usage)  # type: ignore[attr-defined]
    with pytest.raises(EnvironmentFault) as refused:
        run(tmp_path)
    n_bytes = 3 * sum(weight.nbytes for weight in Trainer(config(), prepared().tokenizers, CPU).model.parameters())
    needed = f"{5 * n_bytes / 1e9:.3g}"
    assert str(refused.value).startswith(
        f"{tmp_path}/checkpoints: 5 checkpoints need {needed} GB, and 0.0001 GB are free"
    )
    assert not (tmp_path / "metrics.jsonl").exists()


@each(
    "overrides, name",
    [
        ([], "demo_en_fr-tiny-post-bab1dd"),
        (["decode.batch_invariant=true"], "demo_en_fr-tiny-post-da5d19"),
        (["init.from=x"], "demo_en_fr-tiny-post-51c855"),
        (["model=big", "data=wmt14_en_de"], "wmt14_en_de-big-post-edf74a"),
    ],
)
def test_a_command_finds_its_run_by_the_name_that_it_has_always_had(overrides: list[str], name: str) -> None:
    assert run_directory.run_name(load_config("train", overrides)) == name


def test_a_key_that_a_later_tfm_adds_leaves_the_names_of_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    name = run_directory.run_name(config())
    assert run_directory.run_name(config(seed=2)) != name
    to_plain = run_directory.to_plain
    monkeypatch.setattr(run_directory, "to_plain", lambda config: {**to_plain(config), "invented": {"later": 1}})
    assert run_directory.run_name(config()) == name


def test_languages_name_a_run_only_where_the_sides_are_swapped() -> None:
    def named(**data: Any) -> str:
        return run_directory.run_name(replace(config(), data=replace(config().data, **data)))

    assert named(languages=["en", "xx"]) == named()
    swapped, mislabelled = named(languages=["xx", "en"]), named()
    assert swapped != mislabelled
    assert "en-xx" in swapped


def log_of(folder: Path) -> str:
    return (folder / "tfm.log").read_text(encoding="utf-8")


def test_a_stop_that_was_asked_for_leaves_no_traceback_in_the_log(tmp_path: Path) -> None:
    stop_at(3, signal.SIGTERM, tmp_path)
    assert (
        log_of(tmp_path)
        .removesuffix("\n")
        .endswith(f"INFO stopped by SIGTERM: {tmp_path}: step 3 is the newest that is saved")
    )
    with pytest.raises(KeyboardInterrupt), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "train_step", before(Trainer.train_step, lambda *_: signal.raise_signal(signal.SIGINT)))
        run(tmp_path)
    assert "Traceback" not in log_of(tmp_path)
    with pytest.raises(ZeroDivisionError), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "train_step", before(Trainer.train_step, lambda *_: 1 // 0))
        run(tmp_path)
    assert "Traceback" in log_of(tmp_path)


@pytest.mark.parametrize("error", [DataError("x"), KeyboardInterrupt()])
def test_a_start_that_is_refused_leaves_no_directory(tmp_path: Path, error: BaseException) -> None:
    settings = replace(config(), runs=str(tmp_path / "new" / "runs"), name="x")
    with pytest.raises(type(error)), open_run(settings) as folder:
        assert {path.name for path in folder.iterdir()} == {".lock", ".owner"}
        raise error
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CheckpointError), open_run(replace(settings, resume="nowhere")) as folder:
        run(folder, replace(settings, resume="nowhere"))
    assert list(tmp_path.iterdir()) == []


def test_a_start_that_is_refused_leaves_what_it_has_not_made(tmp_path: Path) -> None:
    settings = replace(config(), runs=str(tmp_path / "runs"), name="x")
    (tmp_path / "runs" / "x").mkdir(parents=True)
    (tmp_path / "runs" / "y").mkdir()
    for name, kept in (("x", [".lock", ".owner"]), ("z", ["notes"])):
        with pytest.raises(DataError), open_run(replace(settings, name=name)) as folder:
            if name == "z":
                (folder / "notes").touch()
            raise DataError("x")
        assert set(kept) <= {path.name for path in folder.iterdir()}
    assert (tmp_path / "runs" / "y").is_dir()


def test_who_waited_for_a_lock_that_was_removed_takes_the_new_one(tmp_path: Path) -> None:
    file, lockf = tmp_path / ".lock", fcntl.lockf

    def slow(descriptor: Any, operation: int) -> None:  # meanwhile its holder removes it, and leaves
        if not hasattr(slow, "done"):
            slow.done = True  # type: ignore[attr-defined]
            file.unlink()
        lockf(descriptor, operation)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fcntl.lockf", slow)
        with locked(file, wait=False) as is_held:
            assert is_held
            assert file.exists()
