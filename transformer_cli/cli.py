"""argv → command, flags and overrides → exit status. torch and Hydra are imported only when a command needs them."""

import contextlib
import errno
import io
import os
import re
import shlex
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from transformer_cli.arguments import flags_of, parser_of, refuse_contradictions
from transformer_cli.command import COMMANDS, command_in
from transformer_cli.environment import concealed, home_followed
from transformer_cli.errors import ConfigError, EnvironmentFault, Stopped, TfmError, printable
from transformer_cli.plugins import RAISED, load_plugins, loaded_plugins, plugin_fault, plugin_place
from transformer_cli.registry import did_you_mean
from transformer_cli.standard_streams import replace_standard_streams, require_stdout
from transformer_cli.version import __version__

REPORT_WAIT_S = 3.0


def entry_point() -> NoReturn:
    _speak_utf8()
    _occupy_closed_streams()
    replace_standard_streams()
    sys.exit(main())


def _speak_utf8() -> None:
    """Read names and write text as UTF-8: the same command gives the same bytes whatever the locale."""
    if sys.getfilesystemencoding() != "utf-8" and sys.executable:  # only a new interpreter can change that
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors, newline="\n")


def _occupy_closed_streams() -> None:
    """Open /dev/null in place of closed standard streams, whose descriptors the next opened files would get otherwise.

    sys.stdin and sys.stdout stay None, which commands refuse; messages for a closed stderr are discarded.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (open until the process ends)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `tfm <command> [flags] [key=value ...]`; return its exit status (see `errors.py`)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    status = _status_of(lambda: _run(arguments), arguments)
    # Flushed here, not by the interpreter at exit: a full disk gives an exit status. Only the first error is reported.
    if status == 0:
        return _status_of(_flush, arguments)
    with contextlib.suppress(OSError, KeyboardInterrupt):
        _flush()
    return status


def _flush() -> int:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BaseException:
        _abandon_stdout()
        raise
    return 0


def _status_of(work: Callable[[], int], arguments: list[str]) -> int:
    """The exit status of `work`; an exception becomes one line on stderr."""
    try:
        return work()
    except Stopped as stopped:
        return _fail(f"{stopped}. Go on with `{shlex.join(['tfm', *arguments])}`", stopped.exit_code, mark="tfm: ")
    except TfmError as error:
        return _fail(str(error), error.exit_code, is_reporting=error.is_reporting)
    except BrokenPipeError:
        return 141
    except KeyboardInterrupt:
        name, _ = command_in(arguments or [""])
        kept = COMMANDS[name].goes_on_from if name in COMMANDS else ""
        goes_on = f"; the same command goes on from the last {kept}" if kept else ""
        return _fail(f"interrupted{goes_on}", 130)
    except OSError as error:
        return _fail(_describe(error), EnvironmentFault.exit_code)
    except RAISED as error:
        fault = as_fault(error, arguments)
        return _fail(str(fault), fault.exit_code)


def as_fault(error: BaseException, arguments: Sequence[str]) -> TfmError:
    """`error` as a TfmError, with a message of one line; the traceback of an unexpected one goes to a file."""
    if isinstance(error, TfmError):
        return error
    if isinstance(error, OSError):
        return EnvironmentFault(_describe(error))
    if _is_out_of_memory(error):
        return EnvironmentFault(f"out of memory ({type(error).__name__}). {_FOR_LESS_MEMORY}")
    if isinstance(error, NotImplementedError | TypeError) and (lacks := re.search(_LACKED_BY_MPS, str(error))):
        return EnvironmentFault(f"device=mps: has no {lacks[1] or lacks[2]}. Use device=cpu")
    if (path := _damaged_bytecode(error)) is not None:
        return EnvironmentFault(
            f"{path}: a file that Python has compiled is damaged ({error}), as a full disk leaves it. Remove it, and"
            " Python writes it again"
        )
    if fault := plugin_fault(error):
        return fault
    beside = f". It ran with the plugin {' and '.join(loaded_plugins())}: try without" if loaded_plugins() else ""
    return TfmError(f"internal error ({type(error).__name__}), please report: {_crash_report(arguments)}{beside}")


def _damaged_bytecode(error: BaseException) -> str | None:
    """The file in __pycache__ that an import has failed with: Python before 3.12.8 keeps one that is cut short."""
    if not isinstance(error, EOFError | ValueError | TypeError) or error.__traceback__ is None:
        return None
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    path = frame.f_locals.get("bytecode_path") if frame.f_code.co_name == "_compile_bytecode" else None
    return path if isinstance(path, str) else None


# As torch words it.
_LACKED_BY_MPS = r"operator '([^']+)' is not currently implemented for the MPS|MPS Tensor to (\w+) dtype"
_FOR_LESS_MEMORY = "Free some, choose another device=, or lower decode.batch_tokens or train.max_tokens_per_microbatch"


def _is_out_of_memory(error: BaseException) -> bool:
    if "torch" not in sys.modules:
        return isinstance(error, MemoryError)
    from transformer_cli.models.memory import is_out_of_memory

    return is_out_of_memory(error)


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        load_plugins(_plugins_named(arguments))
        _print(_overview() + "\n")
        return 0
    if arguments[0] == "--version":
        _print(f"tfm {__version__}\n")
        return 0
    if arguments[0] in ("completion", "--complete"):
        from transformer_cli import completion

        _print(f"{completion.answer(arguments)}\n")
        return 0
    if arguments[0] not in COMMANDS:  # a plugin may bring it
        load_plugins(_plugins_named(arguments))
    name, arguments = command_in(arguments)
    if name not in COMMANDS:
        near = did_you_mean(name, COMMANDS)
        raise ConfigError(f"no command called `{name}`{near or ' (choices: ' + ', '.join(COMMANDS) + ')'}")
    return _run_command(name, arguments)


def _plugins_named(arguments: Sequence[str]) -> list[str]:
    """The modules after --plugin, before it is known which command the words are for."""
    behind = [arguments[i + 1] for i, word in enumerate(arguments[:-1]) if word == "--plugin"]
    return behind + [word.partition("=")[2] for word in arguments if word.startswith("--plugin=")]


def _run_command(name: str, arguments: list[str]) -> int:
    command = COMMANDS[name]
    parser = parser_of(name)
    if {"-h", "--help"} & set(arguments):
        _print(parser.format_help())
        return 0
    parsed = parser.parse_intermixed_args(arguments)
    if parsed.keys is not None:
        from transformer_cli.config.key_help import keys_page

        load_plugins(parsed.plugin or [])
        _print(keys_page(name, parsed.keys))
        return 0
    flags = flags_of(name, command, parsed)

    # Read when torch is loaded. Threads that spin for long while they wait are slow as soon as another program wants
    # their core; threads that sleep at once are slow on a quiet machine: spin for a little (benchmarks/threads.md).
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "2000")

    from transformer_cli import logs
    from transformer_cli.config import compose as configs
    from transformer_cli.config.overrides import values_of
    from transformer_cli.config.text_values import override_as_written

    logs.start()
    parsed.overrides = [override_as_written(text, name) for text in parsed.overrides]
    user_dir = Path(home_followed(parsed.config_dir)) if parsed.config_dir else None
    given = values_of(parsed.overrides)
    refuse_contradictions(command, flags, given)
    if command.argument and command.needs_word and command.argument.key not in {**flags, **given}:
        raise ConfigError(f"`tfm {name}`: no {command.argument.key} given. {command.needs_word}")
    if command.sweep and parsed.multirun:
        if parsed.cfg:
            raise ConfigError("--cfg: prints one config, and --multirun makes several. Leave one of them out")
        from transformer_cli import multirun

        _report_unused(name, flags, given)
        multirun.launch(name, parsed.overrides, user_dir, flags, as_fault=as_fault, table=parsed.table)
        return 0
    if command.sweep and parsed.table is not None:
        raise ConfigError(f"--table {parsed.table.value}: of a sweep, and this is one run. Add -m, or leave it out")
    config = configs.load_config(name, parsed.overrides, flags=flags, user_dir=user_dir)
    if parsed.cfg:
        _print(configs.to_yaml(config))
        return 0
    _report_unused(name, flags, given)
    load_plugins(config.plugins)
    command.run(config)
    return 0


def _report_unused(name: str, flags: Mapping[str, Any], given: Mapping[str, Sequence[Any]]) -> None:
    """Warn of each override that a later one replaces, and list the keys that this command does not use."""
    from transformer_cli.config.fields import written_name
    from transformer_cli.logs import LOGGER

    for key, values in given.items():
        if len(values) > 1:
            shown = ", ".join(f"{written_name(key)}={value}" for value in values)
            LOGGER.warning("%s: given more than once; the last one holds", shown)
    command, keys = COMMANDS[name], {**given, **flags}
    reads = {*command.reads}.union(*(groups for key, groups in command.reads_with.items() if key in keys))
    if unused := [key for key in keys if reads and key.partition(".")[0] not in reads]:
        LOGGER.info("not used by `tfm %s`: %s", name, ", ".join(unused))


def _print(text: str) -> None:
    require_stdout("the answer")
    sys.stdout.write(text)


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.help}" for name, command in COMMANDS.items()]
    examples = [f"  {command.example}" for _, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: tfm <command> [flags] [key=value ...]",
            "",
            *lines,
            "",
            "  tfm <command> --help   its flags        tfm <command> --keys   its config keys, explained",
            "  tfm <command> --cfg    its config       tfm completion bash    tab completion (or zsh, fish)",
            "  tfm --version          the version",
            "",
            "examples:",
            *examples,
        ]
    )


def _fail(message: str, status: int, *, mark: str = "tfm: error: ", is_reporting: bool | None = None) -> int:
    """Print one line on stderr, unless another rank does; with TFM_DEBUG=1 the traceback too. Returns `status`."""
    from transformer_cli.logs import is_first_rank

    if not (is_first_rank() if is_reporting is None else is_reporting):
        # torchrun ends all ranks as soon as one has ended: the one that reports the error may need a moment.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(REPORT_WAIT_S)
        return status
    try:
        print(f"{mark}{printable(concealed(message))}", file=sys.stderr)
        if os.environ.get("TFM_DEBUG") == "1":
            print(concealed(traceback.format_exc()), end="", file=sys.stderr)
    except OSError:
        pass  # stderr itself is closed; the exit status remains
    return status


def _describe(error: OSError) -> str:
    where = error.filename if error.filename is not None else "input or output"  # code that writes files sets it
    advice = {
        errno.ENOSPC: "Free some space and run the same command again",
        errno.EDQUOT: "Free some space and run the same command again",
        errno.EACCES: "Check its permissions",
        errno.EROFS: "Choose a folder that can be written",
    }.get(error.errno or 0, "Check the path and the disk")
    asked_by = f" ({plugin})" if (plugin := plugin_place(error)) else ""
    return f"{where}: {error.strerror or error}{asked_by}. {advice}"


def _abandon_stdout() -> None:
    """Redirect stdout to /dev/null, so that the interpreter's own flush at exit cannot fail a second time."""
    with contextlib.suppress(OSError, ValueError):  # a captured stdout, in tests, has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _crash_report(arguments: Sequence[str]) -> str:
    with tempfile.NamedTemporaryFile(
        "w", prefix="tfm-crash-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as file:
        file.write(
            f"tfm {__version__}, Python {sys.version}\ntfm {' '.join(arguments)}\n\n{concealed(traceback.format_exc())}"
        )
    return file.name
