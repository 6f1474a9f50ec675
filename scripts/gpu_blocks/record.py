"""The record of a block: one JSON file, which is whole at any time, whatever ends the block.

A record has `block`, `state` (running, finished or failed), `toy`, `date`, `command`, `commit`, `limit_s`, `seconds`,
`machine` and `measurements`. A measurement has a `title` and either `columns`, `rows`, `notes`, `figures` and `ratios`,
or `failed` with the last line of the error, or `left_out` with the reason.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer_cli.files import write_whole

RUNNING, FINISHED, FAILED = "running", "finished", "failed"
GRACE_S = 15  # for a block that has used its time to end by itself
LINES_KEPT = 20  # of what a failed block wrote last

Record = dict[str, Any]


def path_of(output: Path, name: str) -> Path:
    return output / f"gpu_{name}.json"


def write_record(file: Path, record: Mapping[str, Any]) -> None:
    write_whole(file, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())


def read_record(file: Path) -> Record | None:
    """None where there is no file, or one that is no record of a block."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "block" in found and "measurements" in found else None


def read_records(output: Path, names: Sequence[str]) -> list[Record]:
    found = (read_record(path_of(output, name)) for name in names)
    return [record for record in found if record is not None]


def last_line(text: str) -> str:
    """The last line that is not blank: of a traceback, the error."""
    lines = [line.strip() for line in text.strip().split("\n") if line.strip()]
    return lines[-1] if lines else ""


def run_in_process(
    command: Sequence[str], file: Path, head: Record, *, limit_s: float, environment: Mapping[str, str] | None = None
) -> Record:
    """Run a block in a process group of its own, and return its record, which names what has ended it.

    The process finds in `file` the `head` of its record, and replaces it after every measurement. A crash leaves what
    was measured until then; so does a hang, whose whole process group is killed after `limit_s` and GRACE_S.
    """
    write_record(file, {**head, "state": RUNNING, "limit_s": round(limit_s), "measurements": []})
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        env=None if environment is None else dict(environment),
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        process_group=0,  # not a session: whoever ends this command ends what it has started
    )
    lines: deque[str] = deque(maxlen=LINES_KEPT)
    echo = threading.Thread(target=_echo, args=(process, lines), daemon=True)
    echo.start()
    try:
        status = process.wait(timeout=limit_s + GRACE_S)
        why = f"ended with status {status}" if status >= 0 else f"ended by {signal.Signals(-status).name}"
    except subprocess.TimeoutExpired:
        status, why = None, f"killed after {time.monotonic() - start:.0f} s"
    finally:
        _kill_group(process)
    echo.join(timeout=5)
    record = read_record(file) or {**head, "measurements": []}
    record["seconds"] = round(time.monotonic() - start, 1)
    if status != 0 or record.get("state") == RUNNING:
        record["state"] = FAILED
        during = record.pop("now", None)
        error = last_line("\n".join(lines)) if status is not None else ""
        record["failed"] = why + (f" during: {during}" if during else "") + (f" ({error})" if error else "")
        record["log"] = list(lines)
    write_record(file, record)
    return record


def _echo(process: "subprocess.Popen[str]", lines: deque[str]) -> None:
    assert process.stderr is not None
    with process.stderr as written:
        for line in written:
            lines.append(line.rstrip("\n"))
            sys.stderr.write(line)
            sys.stderr.flush()


def _kill_group(process: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
