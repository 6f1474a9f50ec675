"""`-m`: Hydra itself runs the sweep, so that its launchers and sweepers work unchanged."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from itertools import count, islice, product
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from transformer_cli import logs
from transformer_cli.command import COMMANDS, SweepRun, schema_of
from transformer_cli.config.compose import added_overrides, as_config_error, hydra_arguments, load_config, to_schema
from transformer_cli.config.keys import fields_of
from transformer_cli.config.overrides import check_overrides, parse_override, quoted_for_hydra
from transformer_cli.config.yaml_files import config_dir
from transformer_cli.environment import concealed, home_followed
from transformer_cli.errors import ConfigError, ElsewhereError, EnvironmentFault, Stopped, TfmError, printable, quoted
from transformer_cli.files import make_folder, wrap_os_errors, write_whole
from transformer_cli.plugins import RAISED, load_plugins
from transformer_cli.standard_streams import require_stdout
from transformer_cli.sweeps import (
    RECORD_FILE,
    RESULTS_FILE,
    as_json,
    read_records,
    spread_title,
    sweep_faults,
    sweep_run_name,
    sweep_tables,
    sweep_text,
    value_of,
)
from transformer_cli.tables import TableFormat, print_tables

SWEEP_DIR = "hydra.sweep.dir"
MOST_CHECKED = 100  # combinations, of a quarter of a second each


class _RunFailed(Exception):
    """A run has no score; its record has the reason."""


class _Abort(BaseException):
    """A run was stopped by a signal, and with it the sweep. After an Exception, Hydra would start the next run."""


def launch(
    command: str,
    overrides: Sequence[str],
    user_dir: Path | None,
    flags: Mapping[str, Any],
    *,
    as_fault: Callable[[BaseException, Sequence[str]], TfmError],
    table: TableFormat | None = None,
) -> None:
    """Start one job for each combination of the `a,b,c` values in `overrides`; print the table of their results.

    With a format `table`, the table alone is printed on standard output, and what the jobs print on standard error.

    The other jobs run on when one fails. `as_fault` turns an exception, and the command line that raised it, into a
    message and an exit status. Raises ElsewhereError with those of the first job that failed, Stopped if a signal has
    ended one.
    """
    check_overrides(command, overrides, user_dir)  # as they are written: below, each value stands alone
    # Of several for one key the last holds.
    parsed = list({one.key_or_group: one for one in map(parse_override, overrides)}.values())
    _check_combinations(command, parsed, user_dir, flags)  # which loads the plugins, on whose tasks recipes depend
    arguments = hydra_arguments(command, overrides, user_dir)
    own_dir = next((home_followed(value_of(one)) for one in parsed if one.key_or_group == SWEEP_DIR), None)
    added = map(parse_override, added_overrides(command, overrides, user_dir))
    fixed = tuple(one.key_or_group for one in (*parsed, *added) if not one.is_sweep_override())
    with _sweep_folder(own_dir) as folder:
        sweep = Sweep(command, dict(flags), fixed, folder, as_fault)
        is_followed = own_dir is None or "${" not in own_dir
        arguments += [f"{SWEEP_DIR}={quoted_for_hydra(str(folder))}"] if is_followed else []
        with nullcontext() if table is None else _output_as_messages():
            ended = _under_hydra(sweep, arguments)
        runs = read_records(folder)
        if runs:
            _report(runs, folder, table)
        if ended is not None and not isinstance(ended, _RunFailed | _Abort):
            raise ended
        _raise_failure(runs)
        if ended is not None:  # the record of what has ended it could not be written
            raise EnvironmentFault(f"{folder}: the sweep has ended early. Run the same command again")


@dataclass(frozen=True)
class Sweep:
    """What a job needs, in whatever process it runs."""

    command: str
    flags: dict[str, Any]
    fixed: tuple[str, ...]  # keys that have one value for all runs
    folder: Path  # for the records of the runs, and their table
    as_fault: Callable[[BaseException, Sequence[str]], TfmError]

    def run(self, config: DictConfig) -> float | None:
        """One run of the sweep; its dev score, if any. Raises _RunFailed, but not where it would end the other runs."""
        job = HydraConfig.get()
        changes = self._changes(job.overrides.task)
        command = COMMANDS[self.command]
        assert command.sweep is not None, "the command line refuses -m"
        try:
            record, dev_score = command.sweep(self._checked(config, changes), SweepRun(job.job.num, changes))
        except RAISED as error:
            fault = self.as_fault(error, ["tfm", self.command, "-m", *job.overrides.task])
            message = printable(concealed(str(fault)))
            record = SweepRun(job.job.num, changes, error=message, exit_code=fault.exit_code)
            self._write(record)
            if isinstance(error, Stopped | BrokenPipeError):
                raise _Abort from error
            logs.LOGGER.warning("%s: failed: %s", record.label, fault)
            if job.sweeper["_target_"].endswith(".BasicSweeper"):  # which would end the sweep with a message of its own
                return None
            raise _RunFailed(str(fault)) from None
        self._write(record)
        return dev_score

    def _changes(self, overrides: Sequence[str]) -> dict[str, str]:
        parsed = [parse_override(text) for text in overrides]
        return {one.key_or_group: value_of(one) for one in parsed if one.key_or_group not in self.fixed}

    def _checked(self, config: DictConfig, changes: Mapping[str, str]) -> Any:
        """The config of a run as an instance of its schema, with a name of its own and its plugins loaded."""
        logs.start()
        schema, flags = schema_of(self.command), dict(self.flags)
        # A name that is made from other keys, as run-${seed}, differs already.
        if "name" in fields_of(schema) and not OmegaConf.is_interpolation(config, "name"):
            base = flags.get("name") or config.name
            if base is not None:
                flags["name"] = sweep_run_name(
                    str(base), {key: value for key, value in changes.items() if key != "name"}
                )
        checked = to_schema(config, schema, flags=flags)
        load_plugins(checked.plugins)
        return checked

    def _write(self, record: SweepRun) -> None:
        file = self.folder / str(record.number) / RECORD_FILE
        try:
            make_folder(file.parent)
            write_whole(file, json.dumps(asdict(record)).encode())
        except OSError as error:
            logs.LOGGER.warning("%s: %s. The table will lack this run", file, error.strerror)


def _check_combinations(
    command: str, overrides: Sequence[Override], user_dir: Path | None, flags: Mapping[str, Any]
) -> None:
    """Compose the config of each run that Hydra's own sweeper will start, so that errors show before the first one.

    Raises ConfigError, also where two of them would write the same files.
    """
    keys = [one.key_or_group for one in overrides]
    if any(key == "hydra/sweeper" or key.startswith("hydra.sweeper") for key in keys):
        return  # another sweeper, which chooses values while it runs
    values = [_values(one) for one in overrides if not one.key_or_group.startswith("hydra")]
    written: set[str | None] = set()
    for texts in islice(product(*values), MOST_CHECKED):
        config = load_config(command, texts, flags=flags, user_dir=user_dir)
        corpus = getattr(config, "corpus", None)
        if corpus is not None and corpus in written:
            raise ConfigError(f"{corpus}: two runs would write it. Sweep over shard=, or give each run an output=")
        written.add(corpus)


def _values(override: Override) -> list[str]:
    """The override once for each value that a sweep gives its key."""
    if not override.is_sweep_override():
        return [str(override.input_line)]
    if not override.is_discrete_sweep():
        raise ConfigError(
            f"{quoted(str(override.input_line))}: no list of values. Write them as a,b, or add hydra/sweeper=NAME"
        )
    return [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]


@contextmanager
def _sweep_folder(chosen: str | None) -> Iterator[Path]:
    """The folder of this sweep, a new one unless it is `chosen`; gone again if no run has begun."""
    if chosen is not None and "${" not in chosen:
        folder = Path(chosen).absolute()
        for old in folder.glob(f"*/{RECORD_FILE}"):  # of an earlier sweep there
            old.unlink()
        yield folder
        return
    when = Path.cwd() / "multirun" / time.strftime("%Y-%m-%d_%H-%M-%S")
    with wrap_os_errors(when, "make the folder of the sweep"):
        make_folder(when.parent)
        for n in count(1):
            folder = when if n == 1 else when.with_name(f"{when.name}-{n}")
            try:
                folder.mkdir()
                break
            except FileExistsError:
                continue
    try:
        yield folder
    finally:
        if not any(path.is_dir() for path in folder.iterdir()):  # Hydra makes one for each job
            shutil.rmtree(folder, ignore_errors=True)
            if not any(folder.parent.iterdir()):
                folder.parent.rmdir()


def _under_hydra(sweep: Sweep, arguments: Sequence[str]) -> BaseException | None:
    """Let Hydra run all jobs. Returns the exception that ended the sweep early, if any."""

    def job(config: DictConfig) -> object:
        return sweep.run(config)

    main = hydra.main(version_base="1.3", config_path=str(config_dir()), config_name=sweep.command)(job)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors are raised, and reported here in one line
    ours, sys.argv = sys.argv, ["tfm", "-m", *arguments]
    try:
        main()
    except (_RunFailed, _Abort, KeyboardInterrupt) as error:
        return error
    except BrokenExecutor:
        return EnvironmentFault(
            "a process of the sweep was killed; there may be too little memory. Start fewer at once, with"
            " hydra.launcher.n_jobs=, and run the same command again"
        )
    except (HydraException, OmegaConfBaseException) as error:
        return as_config_error(error, schema_of(sweep.command))
    finally:
        sys.argv = ours
    return None


@contextmanager
def _output_as_messages() -> Iterator[None]:
    """What this process and those that it starts write to standard output meanwhile goes to standard error."""
    require_stdout("the table")
    sys.stdout.flush()
    output = sys.stdout.fileno()
    kept = os.dup(output)
    try:
        if sys.stderr is not None:
            os.dup2(sys.stderr.fileno(), output)
        else:
            with open(os.devnull, "wb") as nothing:
                os.dup2(nothing.fileno(), output)
        yield
    finally:
        try:
            sys.stdout.flush()
        finally:
            os.dup2(kept, output)
            os.close(kept)


def _report(runs: Sequence[SweepRun], folder: Path, table: TableFormat | None) -> None:
    file = folder / RESULTS_FILE
    if table is None:
        print(f"\n{sweep_text(runs)}", flush=True)
    else:
        tables = sweep_tables(runs)
        print_tables(tables, table, notes=[spread_title(runs)] if len(tables) > 1 else [], more=sweep_faults(runs))
    with wrap_os_errors(file, "save the table"):
        write_whole(file, (as_json(runs) + "\n").encode())
    is_near = file.drive == Path.cwd().drive  # of Windows, between which there is no relative path
    logs.LOGGER.info("the same as JSON: %s", os.path.relpath(file) if is_near else file)


def _raise_failure(runs: Sequence[SweepRun]) -> None:
    failed = [run for run in runs if run.error is not None]
    if not failed:
        return
    first = next((run for run in failed if run.exit_code > 128), failed[0])
    what = f"{len(failed)} of {len(runs)} runs failed, {first.label}: {first.error}"
    if first.exit_code > 128:
        raise Stopped(first.exit_code - 128, str(first.error).partition(": ")[2])
    raise ElsewhereError(what, first.exit_code, is_reporting=True)
