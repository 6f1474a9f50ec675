"""argv → command, flags and overrides → exit status. Neither torch nor Hydra is imported before they are needed."""

import argparse
import contextlib
import errno
import importlib
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from transformer_cli import __version__
from transformer_cli.environment import concealed
from transformer_cli.errors import ConfigError, EnvironmentFault, Stopped, TfmError, printable, quoted
from transformer_cli.registry import did_you_mean
from transformer_cli.standard_streams import replace_standard_streams

SPEAKING_S = 3.0


@dataclass(frozen=True)
class Flag:
    """A synonym of one config key. `kind` is the type of its value; bool takes none."""

    key: str
    help: str
    kind: type = str
    repeated: bool = False


@dataclass(frozen=True)
class Command:
    help: str
    example: str
    run: str  # module:function, imported only when the command runs
    flags: dict[str, Flag] = field(default_factory=dict)
    argument: Flag | None = None  # a value that needs no --name
    needs_argument: str = ""  # what to give where there is no way without; empty: it may be left out
    input_hint: str = ""  # where text comes from, for who writes a word on its own
    reads: tuple[str, ...] = ()  # the groups of keys that it uses, of those that it takes; empty: all
    multirun: bool = False

    def load(self) -> Callable[[Any], object]:
        module, function = self.run.split(":")
        loaded: Callable[[Any], object] = getattr(importlib.import_module(module), function)
        return loaded


_CHECKPOINT = Flag(
    "checkpoint",
    "model file, checkpoint or run directory (default: the newest run); repeat for an ensemble",
    repeated=True,
)
_ONE_MODEL = Flag(
    "checkpoint",
    "model file, checkpoint or run directory (default: the newest run)",
    repeated=True,  # to be refused: the last would win in silence
)
_BEAM = Flag("decode.beam_size", "hypotheses kept by beam search (default: 4)", int)
_NAME = Flag("name", "name of the run directory (default: made from the config)")
_TEXT_COMES = "Give the text on standard input, or a file with --input"
_DEVICE = Flag("device", "auto, cpu or cuda")

COMMANDS = {
    "train": Command(
        "prepare the data, train, report BLEU; the same command resumes",
        "tfm train model=base data=wmt14_en_de",
        "transformer_cli.commands.train:run",
        {"--name": _NAME, "--device": _DEVICE},
        multirun=True,
    ),
    "translate": Command(
        "translate lines from standard input, or --input, in order",
        "tfm translate --beam 4 < news.en > news.de",
        "transformer_cli.commands.translate:run",
        {
            "--checkpoint": _CHECKPOINT,
            "--beam": _BEAM,
            "--input": Flag("input", "file to translate (default: standard input)"),
            "--output": Flag("output", "file for the translation, written whole or not at all"),
            "--overwrite": Flag("overwrite", "replace --output if it exists", bool),
            "--n-best": Flag("decode.n_best", "translations a line, as `line ||| text ||| score`, lines from 1", int),
            "--output-format": Flag(
                "output_format",
                "text; jsonl: an object a line with scores, n-best and flags; or moses: its n-best lists",
            ),
            "--prefix": Flag("prefix", "file: line n begins the translation of line n"),
            "--terms": Flag("terms", "terminology: source phrase, tab, target phrase on each line"),
            "--alignments": Flag("alignments", "file for word alignments, as `i-j`"),
            "--token-scores": Flag("token_scores", "log-probability of each token, in jsonl", bool),
            "--on-issue": Flag("on_issue", "keep, or retry: translate suspicious lines again"),
            "--strict": Flag("strict", "stop at a line that is not UTF-8", bool),
            "--device": _DEVICE,
        },
        argument=Flag("text", "the text to translate (default: standard input)"),
    ),
    "classify": Command(
        "say the class of each line from standard input, or --input, in order",
        "tfm classify --probabilities < questions.txt",
        "transformer_cli.commands.classify:run",
        {
            "--checkpoint": _ONE_MODEL,
            "--input": Flag("input", "file to classify (default: standard input)"),
            "--output": Flag("output", "file for the classes, written whole or not at all"),
            "--overwrite": Flag("overwrite", "replace --output if it exists", bool),
            "--probabilities": Flag("probabilities", "add the probability of every class", bool),
            "--output-format": Flag("output_format", "text, or jsonl: an object a line with all probabilities"),
            "--strict": Flag("strict", "stop at a line that is not UTF-8", bool),
            "--device": _DEVICE,
        },
        input_hint=_TEXT_COMES,
    ),
    "embed": Command(
        "make a vector of each line with a model's encoder, or find the nearest lines of a file",
        "tfm embed --input lines.txt --output lines.npy",
        "transformer_cli.commands.embed:run",
        {
            "--checkpoint": _ONE_MODEL,
            "--input": Flag("input", "file to read (default: standard input)"),
            "--output": Flag("output", "NAME.npy or NAME.jsonl (default: JSONL on standard output)"),
            "--overwrite": Flag("overwrite", "replace --output if it exists", bool),
            "--pooling": Flag("pooling", "mean of all tokens (default), or first"),
            "--nearest": Flag("nearest", "print the N nearest lines of --among instead, by cosine", int),
            "--among": Flag("among", "file whose lines are looked through"),
            "--strict": Flag("strict", "stop at a line that is not UTF-8", bool),
            "--device": _DEVICE,
        },
        input_hint=_TEXT_COMES,
    ),
    "evaluate": Command(
        "report BLEU, chrF and TER on the test set; accuracy and F1; or perplexity",
        "tfm evaluate --beam 4",
        "transformer_cli.commands.evaluate_file:run",
        {
            "--checkpoint": _CHECKPOINT,
            "--beam": _BEAM,
            "--source": Flag("source", "own test set: file to translate, a table of label<TAB>text, or text"),
            "--reference": Flag("reference", "own test set: its translation; repeat for several", repeated=True),
            "--hypotheses": Flag(
                "hypotheses",
                "score this file of translations or labels, made by anything, without a model",
                repeated=True,
            ),
            "--save": Flag("save", "file for the model's translations or labels (default: beside the model)"),
            "--overwrite": Flag("overwrite", "replace --save if it exists", bool),
            "--tokenize": Flag("tokenize", "sacrebleu's tokenizer for BLEU (default: by the target language)"),
            "--json": Flag("json", "print JSON", bool),
            "--device": _DEVICE,
        },
        input_hint="Name files with --source and --reference",
    ),
    "score": Command(
        "say how likely a model finds translations that are given, or lines of text",
        "tfm score --source news.en --translation news.de",
        "transformer_cli.commands.score:run",
        {
            "--checkpoint": _CHECKPOINT,
            "--source": Flag("source", "file (default: standard input, with source, tab, translation; or with text)"),
            "--translation": Flag("translation", "file whose line n translates line n of --source"),
            "--json": Flag("json", "print an object a line, with the score of each token", bool),
            "--strict": Flag("strict", "stop at a line that is not UTF-8", bool),
            "--device": _DEVICE,
        },
        input_hint="Name files with --source and --translation, or give source<TAB>translation on standard input",
    ),
    "attention": Command(
        "draw where a model looks while it translates a sentence",
        'tfm attention "She sat down in the chair, it was very comfortable."',
        "transformer_cli.commands.attention:run",
        {
            "--checkpoint": _ONE_MODEL,
            "--beam": _BEAM,
            "--input": Flag("input", "file with a sentence a line, or a sentence, a tab and a translation"),
            "--translation": Flag("translation", "look at this one instead of the model's own"),
            "--output": Flag("output", "file: .html (default: attention.html), .png, .svg or .json"),
            "--overwrite": Flag("overwrite", "replace --output if it exists", bool),
            "--words": Flag("words", "join the pieces of a word", bool),
            "--link": Flag("link", 'two words, as "it chair": tell which head looks most from the first to the second'),
            "--kind": Flag("kind", "of .png and .svg: cross (default), encoder or decoder"),
            "--layer": Flag("layer", "of .png and .svg: this layer, from 1 (default: all)", int),
            "--head": Flag("head", "of .png and .svg: this head, from 1 (default: all)", int),
            "--mean": Flag("mean", "of .png and .svg: the mean of the heads of each layer", bool),
            "--device": _DEVICE,
        },
        argument=Flag("sentence", "the sentence to translate"),
    ),
    "generate": Command(
        "go on from a prompt, or from each line of standard input, with a language model",
        'tfm generate "The weather" --temperature 0.8 --n 3',
        "transformer_cli.commands.generate:run",
        {
            "--checkpoint": _ONE_MODEL,
            "--prompt": Flag("prompt", "the beginning, where it holds a = (default: standard input, one a line)"),
            "--temperature": Flag("decode.temperature", "below 1: more of what is likely (default: 1)", float),
            "--top-k": Flag("decode.top_k", "choose from the N likeliest tokens", int),
            "--top-p": Flag("decode.top_p", "choose from the likeliest tokens that hold this share (0.9)", float),
            "--max-length": Flag("decode.max_length", "tokens that follow on the prompt at most (default: 256)", int),
            "--n": Flag("decode.n_best", "texts for each prompt (default: 1)", int),
            "--seed": Flag("seed", "the same seed gives the same text (default: 1)", int),
            "--strict": Flag("strict", "stop at a line that is not UTF-8", bool),
            "--device": _DEVICE,
        },
        argument=Flag("prompt", "the beginning of a line"),
    ),
    "average": Command(
        "average the weights of several models, or of a run's last checkpoints",
        "tfm average --last 5 --output average.safetensors",
        "transformer_cli.commands.average:run",
        {
            "--checkpoint": Flag("checkpoint", "model to average; repeat for several", repeated=True),
            "--last": Flag("last", "average the last N checkpoints of a run (default: the newest run)", int),
            "--output": Flag("output", "file for the model, written whole or not at all"),
            "--overwrite": Flag("overwrite", "replace --output if it exists", bool),
        },
        input_hint="Name models with --checkpoint",
    ),
    "prepare": Command(
        "download, verify, clean, train the tokenizer and encode, without training",
        "tfm prepare data=multi30k_en_de",
        "transformer_cli.commands.prepare:run",
        {"--name": Flag("name", "of `tfm train`; not used"), "--device": Flag("device", "of `tfm train`; not used")},
        reads=("data", "encoder", "experiment"),
    ),
    "doctor": Command(
        "check the text, memory, time and disk of a training run before it starts",
        "tfm doctor model=base data=wmt14_en_de",
        "transformer_cli.commands.doctor:run",
        {"--json": Flag("json", "print JSON", bool), "--name": _NAME, "--device": _DEVICE},
    ),
    "bench": Command(
        "measure speed on this machine, beside rivals",
        "tfm bench train model=base data=multi30k_en_de",
        "transformer_cli.commands.bench:run",
        {
            "--checkpoint": Flag("checkpoint", "of decode and start: the model that translates"),
            "--json": Flag("json", "print JSON", bool),
            "--device": _DEVICE,
        },
        argument=Flag("subject", "machine, train, loss, attention, data, start, decode or layers"),
        needs_argument="Name one: machine, train, loss, attention, data, start, decode or layers",
    ),
    "export": Command(
        "write a model for CTranslate2 or Hugging Face transformers, and compare what they say",
        "tfm export ctranslate2 --output model.ct2 --quantization int8",
        "transformer_cli.commands.export:run",
        {
            "--checkpoint": _ONE_MODEL,
            "--output": Flag("output", "folder for the model, written whole or not at all"),
            "--overwrite": Flag("overwrite", "replace an earlier export", bool),
            "--quantization": Flag("quantization", "of CTranslate2: float32 (default), int8, int8_float32, int16, …"),
        },
        argument=Flag("format", "ctranslate2 or huggingface"),
    ),
    "replay": Command(
        "run the update again that ended a diverged run",
        "tfm replay runs/NAME/incidents/step-00001204",
        "transformer_cli.commands.replay:run",
        {"--device": _DEVICE},
        argument=Flag("incident", "folder that a diverged run has left"),
        needs_argument="Name the folder that a diverged run has left, as runs/NAME/incidents/step-00001204",
    ),
}


class _Once(argparse.Action):
    """Keeps a value, and refuses another one for the same flag: the last would win in silence."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        before = getattr(namespace, self.dest)
        if before is not None and before != values:
            raise ConfigError(
                f"{option}: given twice, as {quoted(str(before))} and {quoted(str(values))}. Leave one out"
            )
        setattr(namespace, self.dest, values)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        command = self.prog.removeprefix("tfm").strip()
        words = message.split("unrecognized arguments: ")[-1].split()
        flags = [name for action in self._actions for name in action.option_strings]
        near = did_you_mean(words[0], flags) if words and words[0].startswith("-") else ""
        raise ConfigError(f"{message}{near or f'. `tfm {command} --help` lists the flags'}")


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
            stream.reconfigure(encoding="utf-8", errors=errors)


def _occupy_closed_streams() -> None:
    """Give the numbers of closed standard streams to nothing: the next file opened would be one of the streams.

    Standard input and output stay None, for commands to refuse; messages for a closed stderr go nowhere.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (for as long as we live)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `tfm <command> [flags] [key=value ...]`; return its exit status (see `errors.py`)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    status = _status_of(lambda: _run(arguments), arguments)
    # A full disk must show as an exit status, not in the interpreter's last breath. Only the first fault is told.
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
    """The exit status of what is done, and one line about what ends it early."""
    try:
        return work()
    except Stopped as stopped:
        return _fail(f"{stopped}. Go on with `{shlex.join(['tfm', *arguments])}`", stopped.exit_code, mark="tfm: ")
    except TfmError as error:
        return _fail(str(error), error.exit_code, speaks=error.speaks)
    except BrokenPipeError:
        return 141
    except KeyboardInterrupt:
        goes_on = "; the same command goes on from the last checkpoint" if arguments[:1] == ["train"] else ""
        return _fail(f"interrupted{goes_on}", 130)
    except OSError as error:
        return _fail(_describe(error), EnvironmentFault.exit_code)
    except Exception as error:
        fault = as_fault(error, arguments)
        return _fail(str(fault), fault.exit_code)


def as_fault(error: Exception, arguments: Sequence[str]) -> TfmError:
    """`error` as the one line that a user reads, and its exit status; a bug of ours is kept in a file."""
    if isinstance(error, TfmError):
        return error
    if isinstance(error, OSError):
        return EnvironmentFault(_describe(error))
    if _is_out_of_memory(error):
        return EnvironmentFault(f"out of memory ({type(error).__name__}). {_FOR_LESS_MEMORY}")
    return TfmError(f"internal error ({type(error).__name__}), please report: {_crash_report(arguments)}")


_FOR_LESS_MEMORY = "Free some, choose another device=, or lower decode.batch_tokens or train.tokens_per_batch"


def _is_out_of_memory(error: Exception) -> bool:
    if "torch" not in sys.modules:
        return isinstance(error, MemoryError)
    from transformer_cli.models.memory import is_out_of_memory

    return is_out_of_memory(error)


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        _print(_overview() + "\n")
        return 0
    if arguments[0] == "--version":
        _print(f"tfm {__version__}\n")
        return 0
    if arguments[0] in ("completion", "--complete"):
        from transformer_cli import completion

        _print(f"{completion.answer(arguments)}\n")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        near = did_you_mean(name, COMMANDS)
        raise ConfigError(f"no command called `{name}`{near or ' (choices: ' + ', '.join(COMMANDS) + ')'}")
    return _run_command(name, arguments[1:])


def _run_command(name: str, arguments: list[str]) -> int:
    command = COMMANDS[name]
    parser = _parser(name)
    if {"-h", "--help"} & set(arguments):
        _print(parser.format_help())
        return 0
    parsed = parser.parse_intermixed_args(arguments)
    flags = {flag.key: value for option, flag in command.flags.items() if (value := _value(parsed, option)) is not None}
    bare = _bare_words(parsed.overrides)
    if bare and command.argument:
        if len(bare) > 1:
            raise ConfigError(
                f"{quoted(bare[1])}: a second {command.argument.key} after {quoted(bare[0])}."
                " Give one, in quotes if it has blanks, or write key=value"
            )
        flags[command.argument.key] = bare[0]
        parsed.overrides.remove(bare[0])
    elif bare and command.input_hint:
        raise ConfigError(f"{quoted(bare[0])}: `tfm {name}` takes no word on its own. {command.input_hint}")

    # Read when torch is loaded. Threads that spin for long while they wait are slow as soon as another program wants
    # their core; threads that sleep at once are slow on a quiet machine: spin for a little (benchmarks/threads.md).
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "2000")

    from transformer_cli import logs
    from transformer_cli.config import compose as configs

    user_dir = Path(parsed.config_dir) if parsed.config_dir else None
    given = configs.values_of(parsed.overrides)
    _refuse_contradictions(command, flags, given)
    if command.argument and command.needs_argument and command.argument.key not in {**flags, **given}:
        raise ConfigError(f"`tfm {name}`: no {command.argument.key} given. {command.needs_argument}")
    if command.multirun and parsed.multirun:
        if parsed.cfg:
            raise ConfigError("--cfg: prints one config, and --multirun makes several. Leave one of them out")
        from transformer_cli import multirun

        logs.start()
        _tell_unused(name, flags, given)
        multirun.launch(name, parsed.overrides, user_dir, flags)
        return 0
    config = configs.load_config(name, parsed.overrides, flags=flags, user_dir=user_dir)
    if parsed.cfg:
        _print(configs.to_yaml(config))
        return 0
    logs.start()
    _tell_unused(name, flags, given)
    command.load()(config)
    return 0


def _bare_words(words: Sequence[str]) -> list[str]:
    """Those that are no override: no key has a blank or a slash in it, but a sentence or a path may have a = sign."""
    return [word for word in words if not word.startswith("hydra/") and not re.match(r"[^\s/]*=", word)]


def _refuse_contradictions(command: Command, flags: Mapping[str, Any], given: Mapping[str, Sequence[Any]]) -> None:
    """Raise ConfigError for a key that a flag and an override give different values: one would win in silence."""
    for key in given.keys() & flags.keys():
        by_flag = _alone(flags[key])
        for override in map(_alone, given[key]):
            if by_flag != override and str(by_flag) != str(override):
                names = [option for option, one in command.flags.items() if one.key == key] or [f"the {key}"]
                raise ConfigError(
                    f"{key}={override}: contradicts {names[0]} {quoted(str(by_flag))}. Leave one of them out"
                )


def _alone(value: Any) -> Any:
    """The element of a list of one."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _tell_unused(name: str, flags: Mapping[str, Any], given: Mapping[str, Sequence[Any]]) -> None:
    """A line on each override that a later one replaces, and one on what is for other commands."""
    from transformer_cli.logs import LOGGER

    for key, values in given.items():
        if len(values) > 1:
            told = ", ".join(f"{key}={value}" for value in values)
            LOGGER.warning("%s: given more than once; the last one holds", told)
    reads = COMMANDS[name].reads
    if unused := [key for key in {**given, **flags} if reads and key.partition(".")[0] not in reads]:
        LOGGER.info("not used by `tfm %s`: %s", name, ", ".join(unused))


def _print(text: str) -> None:
    if sys.stdout is None:
        raise EnvironmentFault("standard output: closed. Open it, for the answer to be printed")
    sys.stdout.write(text)


def _parser(name: str) -> _Parser:
    command = COMMANDS[name]
    parser = _Parser(
        prog=f"tfm {name}",
        description=command.help[0].upper() + command.help[1:] + ".",
        epilog=f"example: {command.example}",
        allow_abbrev=False,
        add_help=False,
    )
    if command.argument:
        word = command.argument.key.upper()
        parser.usage = f"tfm {name} {word if command.needs_argument else f'[{word}]'} [flags] [key=value ...]"
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="config overrides, as model=big or seed=7")
    for option, flag in command.flags.items():
        if flag.kind is bool:
            parser.add_argument(option, action="store_true", default=None, help=flag.help)
        else:
            action: Any = "append" if flag.repeated else _Once
            metavar = "N" if flag.kind is int else option.strip("-").upper()
            parser.add_argument(option, action=action, type=flag.kind, metavar=metavar, help=flag.help)
    parser.add_argument("--cfg", action="store_true", help="print the resolved config and stop")
    parser.add_argument(
        "--config-dir", action=_Once, metavar="DIR", help="folder with your own YAML files, laid out as ours"
    )
    if command.multirun:
        parser.add_argument("-m", "--multirun", action="store_true", help="one run for each combination of a,b values")
    parser.add_argument("-h", "--help", action="store_true", help="print this and stop")
    return parser


def _value(parsed: argparse.Namespace, option: str) -> Any:
    return getattr(parsed, option.strip("-").replace("-", "_"))


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.help}" for name, command in COMMANDS.items()]
    examples = [f"  {command.example}" for command in COMMANDS.values()]
    return "\n".join(
        [
            "usage: tfm <command> [flags] [key=value ...]",
            "",
            *lines,
            "",
            "  tfm <command> --help   its flags        tfm <command> --cfg   its config",
            "  tfm --version          the version      tfm completion bash   tab completion (or zsh, fish)",
            "",
            "examples:",
            *examples,
        ]
    )


def _fail(message: str, status: int, *, mark: str = "tfm: error: ", speaks: bool | None = None) -> int:
    """One line on stderr, unless it is for another rank to say; the traceback too with TFM_DEBUG=1."""
    from transformer_cli.logs import is_first_rank

    if not (is_first_rank() if speaks is None else speaks):
        # torchrun ends all ranks as soon as one has ended: the one that speaks may need a moment.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(SPEAKING_S)
        return status
    try:
        print(f"{mark}{printable(concealed(message))}", file=sys.stderr)
        if os.environ.get("TFM_DEBUG") == "1":
            print(concealed(traceback.format_exc()), end="", file=sys.stderr)
    except OSError:
        pass  # stderr itself is gone; the exit status still tells
    return status


def _describe(error: OSError) -> str:
    where = error.filename if error.filename is not None else "input or output"  # who writes, names it
    advice = {
        errno.ENOSPC: "Free some space and run the same command again",
        errno.EDQUOT: "Free some space and run the same command again",
        errno.EACCES: "Check its permissions",
        errno.EROFS: "Choose a folder that can be written",
    }.get(error.errno or 0, "Check the path and the disk")
    return f"{where}: {error.strerror or error}. {advice}"


def _abandon_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's own flush at exit cannot fail a second time."""
    with contextlib.suppress(OSError, ValueError):  # a test's captured stdout is no real file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _crash_report(arguments: Sequence[str]) -> str:
    with tempfile.NamedTemporaryFile(
        "w", prefix="tfm-crash-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as file:
        file.write(
            f"tfm {__version__}, Python {sys.version}\ntfm {' '.join(arguments)}\n\n{concealed(traceback.format_exc())}"
        )
    return file.name
