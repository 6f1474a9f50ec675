"""Runs the blocks of measurements on a GPU, each in a process of its own: see scripts/bench_gpu."""

import argparse
import importlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
ROOT = SCRIPTS.parent
sys.path[:0] = [str(SCRIPTS), str(ROOT)]  # before any import of ours: nothing need be installed

from gpu_blocks import BLOCKS  # noqa: E402

LEAST_S = 30  # a block is not started with less time left
OVERHEAD_S = 20  # of --minutes, for starting a block and for killing one that hangs


def main() -> int:
    options = parsed()
    if options.child:
        return child(options)
    if options.report is not None:
        return report(options.report, options.page)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    if options.wheels is not None:
        site = installed(options.wheels)
        environment["PYTHONPATH"] += os.pathsep + site
        sys.path.append(site)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the block that runs is ended, too
    if not options.toy and not has_gpu():
        note("no GPU is visible. Check the driver with nvidia-smi, or rehearse on a CPU with --toy")
        return 5
    options.output.mkdir(parents=True, exist_ok=True)
    n_failed = run_blocks(options, environment)
    status = report(options.output, options.page)
    return status or int(n_failed > 0)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench_gpu", description="Measurements on a GPU, in blocks.")
    named = "; ".join(f"{name}: {kind.title} ({kind.limit_s} s)" for name, kind in BLOCKS.items())
    parser.add_argument("blocks", nargs="*", metavar="BLOCK", help=f"in the order of their worth: {named}")
    parser.add_argument("--output", type=Path, default=Path("runs/bench_gpu"), help="folder of the records")
    parser.add_argument(
        "--page", type=Path, help="the page (benchmarks/gpu.md; of toy records, gpu.md in their folder)"
    )
    parser.add_argument("--report", type=Path, metavar="DIR", help="only write the page, from the records in DIR")
    parser.add_argument("--minutes", type=float, default=30.0, help="of all blocks together (30)")
    parser.add_argument("--limit", type=float, help="seconds of each block, instead of its own limit")
    parser.add_argument("--resume", action="store_true", help="leave out blocks whose record says finished")
    parser.add_argument("--toy", action="store_true", help="toy size, for a CPU; the figures mean nothing")
    parser.add_argument(
        "--wheels", type=Path, metavar="DIR", help="install these wheels, without network, for this run"
    )
    parser.add_argument("--multi30k", type=Path, metavar="DIR", help="the corpus of block f: data.root, or its files")
    parser.add_argument("--text", type=Path, metavar="DIR", help="parallel text of block g: files NAME.en and NAME.de")
    parser.add_argument("--commit", help="the commit that is measured, where the checkout has no .git")
    parser.add_argument("--child", type=Path, metavar="RECORD", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.blocks if name not in BLOCKS]
    if unknown:
        parser.error(f"no block {unknown[0]!r}; choose from {' '.join(sorted(BLOCKS))}")
    return options


def child(options: argparse.Namespace) -> int:
    """The block itself, in the process that `run_blocks` has started for it."""
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    from gpu_blocks.block import Block

    name, *_ = options.blocks
    block = Block(
        options.child, seconds=options.seconds, is_toy=options.toy, multi30k=options.multi30k, text=options.text
    )
    importlib.import_module(f"gpu_blocks.{BLOCKS[name].module}").run(block)
    block.finish()
    return 0


def end_with_parent(parent: int) -> None:
    """End this process group once `parent` has been killed: what goes on would disturb the next command."""
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


def run_blocks(options: argparse.Namespace, environment: dict[str, str]) -> int:
    """Run what the command line names, as far as the time goes; return how many blocks failed."""
    from gpu_blocks.page import state_of
    from gpu_blocks.record import FINISHED, path_of, read_record, run_in_process

    until, n_failed = time.monotonic() + 60 * options.minutes, 0
    common = [*(["--toy"] if options.toy else [])]
    for flag, folder in (("--multi30k", options.multi30k), ("--text", options.text)):
        common += [flag, str(folder)] if folder is not None else []
    for name in dict.fromkeys(options.blocks or BLOCKS):
        file = path_of(options.output, name)
        before = read_record(file)
        if options.resume and before is not None and before["state"] == FINISHED:
            note(f"({name}) {BLOCKS[name].title}: finished before")
            continue
        limit_s = min(options.limit or BLOCKS[name].limit_s, until - time.monotonic() - OVERHEAD_S)
        if limit_s < LEAST_S and not (options.toy and limit_s > 0):
            note(f"({name}) {BLOCKS[name].title}: left out, {max(0, limit_s):.0f} s left")
            continue
        note(f"({name}) {BLOCKS[name].title}: at most {limit_s:.0f} s")
        head = {
            "block": name,
            "toy": options.toy,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": shlex.join(["scripts/bench_gpu", name, *common]),
            "commit": options.commit or commit(),
        }
        words = [sys.executable, __file__, name, "--child", str(file), "--seconds", f"{limit_s:.0f}", *common]
        record = run_in_process(words, file, head, limit_s=limit_s, environment=environment)
        n_failed += record["state"] != FINISHED or any("failed" in one for one in record["measurements"])
        note(f"({name}) {BLOCKS[name].title}: {state_of(record)}, {record['seconds']:.0f} s {record.get('failed', '')}")
        report(options.output, options.page)  # now, as the machine may vanish
    return n_failed


def report(output: Path, wanted: Path | None) -> int:
    """Write the page from all records in `output`."""
    from gpu_blocks.page import page
    from gpu_blocks.record import read_records

    from transformer_cli.files import write_whole

    records = read_records(output, list(BLOCKS))
    try:
        text = page(records)
    except ValueError as error:
        note(f"{output}: {error}. Nothing is written")
        return 1
    file = wanted or (output / "gpu.md" if records[0]["toy"] else ROOT / "benchmarks" / "gpu.md")
    write_whole(file, text.encode())
    note(f"written: {file}")
    return 0


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def installed(wheels: Path) -> str:
    """A folder with what the wheels in `wheels` hold, apart from the packages of this Python."""
    site = tempfile.mkdtemp(prefix="bench_gpu_")
    files = sorted(map(str, wheels.glob("*.whl")))
    if not files:
        sys.exit(f"--wheels {wheels}: no wheel in this folder. Put the dependencies there that this Python lacks")
    usual = ["--quiet", "--no-index", "--find-links", str(wheels), "--no-deps", "--no-compile", "--target", site]
    subprocess.run([sys.executable, "-m", "pip", "install", *usual, *files], check=True)
    return site


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
