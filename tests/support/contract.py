"""The contract of every fault: one line on stderr that says where, what and what to do; nothing else, nothing damaged.

`run` is the command line in this process, on file descriptors of its own: importing torch takes seconds. `process` is
a real one, for what only an interpreter's start or end shows: closed streams, locales, signals, a network that is off.
"""

import contextlib
import ctypes
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from unittest import mock

from tests.support.forked import PROGRAM, Ran, environment, text_streams
from transformer_cli.cli import main
from transformer_cli.data.lines import other_format
from transformer_cli.standard_streams import replace_standard_streams

TO_DO = re.compile(
    r"\b(add|allow|check|choices|choose|close|convert|copy|correct|create|delete|did you mean|fetch|fix|free|give"
    r"|indent|install|leave|loosen|lower|make|name|open|prepare|put|raise|read|remove|repair|report|restore|run|save|set"
    r"|shorten|train|try|unpack|upgrade|use|wait|write)\b|--cfg|--help|tfm-crash-",
    re.IGNORECASE,
)
# A command line that ends with status 1 if it has imported torch.
WITHOUT_TORCH = "import sys; from transformer_cli.cli import main; main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
CAPSET_VERSION, DAC_CAPABILITIES = 0x20080522, 0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


def run(
    arguments: Sequence[str],
    folder: Path,
    *,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    stdout: str = "",
) -> Ran:
    """`tfm` with these arguments, working in `folder`; its standard output may be a file, such as /dev/full."""
    with contextlib.ExitStack() as stack:
        given, out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write(stdin)
        given.seek(0)
        target = stack.enter_context(open(stdout, "wb")) if stdout else out
        stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(mock.patch.dict(os.environ, env or {}))
        stack.enter_context(_on_descriptors(given.fileno(), target.fileno(), err.fileno()))
        code = main(list(arguments))
        with contextlib.suppress(OSError):  # reported by the code; a real process would not report it twice either
            sys.stdout.flush()
        sys.stderr.flush()
        out.seek(0)
        err.seek(0)
        return Ran(code, out.read(), err.read())


@contextlib.contextmanager
def _on_descriptors(*descriptors: int) -> Iterator[None]:
    """Standard streams of a fresh interpreter, for this process and for the C code in it."""
    before = sys.stdin, sys.stdout, sys.stderr
    kept = [os.dup(number) for number in range(3)]
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    streams = text_streams()
    sys.stdin, sys.stdout, sys.stderr = streams
    replace_standard_streams()
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
        for number, descriptor in enumerate(kept):
            os.dup2(descriptor, number)
            os.close(descriptor)
        for stream in streams:
            with contextlib.suppress(OSError):
                stream.close()


def process(
    arguments: Sequence[str],
    folder: Path,
    *,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
    program: str = PROGRAM,
) -> Ran:
    """`tfm` in a process of its own, started by the command `before` (`unshare -rn`, `sh -c 'exec "$@" <&-' sh`)."""
    command = [*before, sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=folder, input=stdin, capture_output=True, env=environment(env), check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


def refused(
    arguments: Sequence[str],
    folder: Path,
    *,
    code: int,
    says: Sequence[str],
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    new: Sequence[str] = (),
    written: Sequence[str] = (),
    working: bool = False,
    as_root: bool = True,
) -> str:
    """The one line of a command that must be refused; nothing in `folder` changes but files `written`, such as a
    log, and only `new` names may appear.

    With `working`, what the command printed before it met the fault comes before that line.
    """
    before = tree(folder)
    with contextlib.nullcontext() if as_root else bound_by_permissions():
        ran = run(arguments, folder, stdin=stdin, env=env)
    line = error_line(ran, code=code, says=says, working=working)
    untouched({name: before[name] for name in before if name not in written}, folder, new=[*new, *written])
    return line


def error_line(ran: Ran, *, code: int, says: Sequence[str], working: bool = False) -> str:
    """The one line about an error in the output of a command, checked from all sides."""
    text = ran.err.decode("utf-8")
    assert (ran.code, ran.out) == (code, b""), text
    assert text.endswith("\n")
    *earlier, line = text.removesuffix("\n").split("\n")
    assert working or not earlier, text
    assert not [other for other in earlier if re.search("error|Traceback", other)], text
    assert line.isprintable(), ascii(line)
    message = line.removeprefix("tfm: error: ")
    what, *todo = re.split(r"[.?;] |[`?] \(|, please ", message, maxsplit=1)
    assert message != line and re.search(r".: .|`.+`|\(.+\)", what), f"says not where: {line}"  # noqa: PT018
    assert todo and TO_DO.search(todo[0]), f"says not what to do: {line}"  # noqa: PT018
    assert all(word in line for word in says), f"{line!r} says not {says}"
    return line


def untouched(before: Mapping[str, str], folder: Path, *, new: Sequence[str] = ()) -> None:
    """What was in `folder` is there as it was, and all else matches a pattern in `new`."""
    now = tree(folder)
    assert [name for name in before if now.get(name) != before[name]] == []
    assert [name for name in now if name not in before and not any(fnmatch(name, p) for p in new)] == []


def tree(folder: Path) -> dict[str, str]:
    """The kind of everything below `folder`, and the SHA-256 of files; but what Python compiles of a plugin there."""
    paths = (path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): _kind(path) for path in paths}


def _kind(path: Path) -> str:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return f"link to {os.readlink(path)}"
    return hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(mode) else stat.filemode(mode)


@contextlib.contextmanager
def bound_by_permissions() -> Iterator[None]:
    """Let the modes of files hold for root too, meanwhile: without the capabilities that set them aside.

    os.access would still ask for the real user, who could take them back.
    """
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(CAPSET_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice 32 bits
    assert libc.capget(header, sets) == 0
    before = sets[0]
    sets[0] = before & ~DAC_CAPABILITIES
    assert libc.capset(header, sets) == 0
    try:
        with mock.patch("os.access", partial(os.access, effective_ids=True)):
            yield
    finally:
        sets[0] = before
        assert libc.capset(header, sets) == 0


def is_text(data: bytes) -> bool:
    """Whether data is text: neither declared to be UTF-16, nor an archive, however much of it has arrived."""
    return all(other_format(data[:n]) is None for n in range(len(data) + 1))


def signed(content: bytes, **changes: object) -> bytes:
    """A model file whose metadata was changed by somebody who knows how to hash it."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    metadata = {**json.loads(header["__metadata__"]["tfm"]), **changes, "sha256": "0" * 64}
    header["__metadata__"]["tfm"] = json.dumps(metadata)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    unsigned = len(text).to_bytes(8, "little") + text + content[8 + size :]
    return unsigned.replace(b"0" * 64, hashlib.sha256(unsigned).hexdigest().encode(), 1)
