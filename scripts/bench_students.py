"""Compares models and engines in speed and quality on the same lines: size, load time, tokens a second, latency, BLEU.

python scripts/bench_students.py SOURCE REFERENCE SYSTEM [SYSTEM …] [--rounds 3] [--lines 1000] [--json FILE]

A SYSTEM is NAME=ENGINE:PATH[,key=value …], as

    teacher=ctranslate2:runs/teacher,beam_size=4,quantize=int8
    small=torch:runs/student,search=greedy,beam_size=1,shortlist=auto
    browser=firefox:model.fx

ENGINE is torch, ctranslate2 or firefox, which is fxtranslate with a folder of `tfm export firefox`; keys are those of
the group decode. One process, one thread: pin it to a core. In each round every system translates all lines, one after
the other in turns, then the first 100 one at a time. Tokens are those of the source in the system's own vocabulary, its
EOS not counted; scores are sacrebleu's BLEU and chrF. Printed are medians over the rounds with the least and the most.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import sacrebleu
import sentencepiece
import torch
from bench_small_models import read_lines

import transformer_cli
from transformer_cli.models.file import read_model
from transformer_cli.models.locate import locate_model

N_SINGLE = 100  # lines that are translated one at a time
HEAD = (
    "| system | files, MB | load, s | source tokens/s | one line, ms: p50 | p99 | BLEU | chrF |",
    "|---|---:|---:|---:|---:|---:|---:|---:|",
)


@dataclass
class System:
    """What translates, and what was measured of it."""

    name: str
    megabytes: float
    load_s: float
    translate: Callable[[Sequence[str]], list[str]] = field(repr=False)
    n_tokens: int = 0
    seconds: list[float] = field(default_factory=list)  # of all lines, in each round
    single_ms: list[float] = field(default_factory=list)
    bleu: float = 0.0
    chrf: float = 0.0

    def row(self) -> str:
        rates = sorted(self.n_tokens / seconds for seconds in self.seconds)
        cuts = statistics.quantiles(self.single_ms, n=100)
        speed = f"{statistics.median(rates):,.0f} ({rates[0]:,.0f}-{rates[-1]:,.0f})"
        numbers = [f"{self.megabytes:.1f}", f"{self.load_s:.2f}", speed, f"{cuts[49]:.1f}", f"{cuts[98]:.1f}"]
        return f"| {' | '.join([self.name, *numbers, f'{self.bleu:.2f}', f'{self.chrf:.2f}'])} |"


def opened(text: str, lines: Sequence[str]) -> System:
    """The system that a word of the command line names."""
    name, _, rest = text.partition("=")
    engine, _, rest = rest.partition(":")
    path, *settings = rest.split(",")
    decode = {key: _value(value) for key, _, value in (setting.partition("=") for setting in settings)}
    start = time.monotonic()
    if engine == "firefox":
        import fxtranslate

        folder = Path(path)
        vocabularies = [file.read_bytes() for file in sorted(folder.glob("*vocab.spm"))]
        (model,) = folder.glob("model.*.bin")
        lexicon = folder / "lex.s2t.bin"
        translator = fxtranslate.Translator(
            model.read_bytes(), vocabularies[0], vocabularies[-1], lexicon.read_bytes() if lexicon.exists() else None
        )
        system = System(
            name, size_of(folder), time.monotonic() - start, lambda text: [*map(translator.translate, text)]
        )
        processor = sentencepiece.SentencePieceProcessor(model_proto=vocabularies[0])
        system.n_tokens = sum(map(len, processor.encode(list(lines))))
        return system
    shared = transformer_cli.load(path, engine=engine, device="cpu", parallel=False, **decode)
    shared.translate(lines[:1])
    file = locate_model(path, "runs")
    seconds = time.monotonic() - start
    system = System(name, size_of(file), seconds, lambda text: [one.text for one in shared.translate(text)])
    system.n_tokens = sum(map(len, read_model(file).tokenizers.source.encode(list(lines))))
    return system


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def size_of(path: Path) -> float:
    """MB of the files that are needed to translate."""
    files = [path] if path.is_file() else [*path.glob("*.bin"), *path.glob("*.spm")]
    return sum(file.stat().st_size for file in files) / 1e6


def measure(systems: Sequence[System], lines: Sequence[str], references: Sequence[str], rounds: int) -> None:
    for number in range(rounds):
        for system in systems:
            start = time.monotonic()
            found = system.translate(lines)
            system.seconds.append(time.monotonic() - start)
            if number == 0:
                system.bleu = sacrebleu.corpus_bleu(found, [references]).score
                system.chrf = sacrebleu.corpus_chrf(found, [references]).score
        for line in lines[:N_SINGLE]:
            for system in systems:
                start = time.monotonic()
                system.translate([line])
                system.single_ms.append(1000 * (time.monotonic() - start))


def main() -> None:
    parser = argparse.ArgumentParser("scripts/bench_students.py", description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("systems", nargs="+", metavar="SYSTEM")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines, references = (read_lines(path)[: options.lines] for path in (options.source, options.reference))
    systems = [opened(text, lines) for text in options.systems]
    measure(systems, lines, references, options.rounds)
    print("\n".join([*HEAD, *(system.row() for system in systems)]))
    if options.json is not None:
        records = [{key: value for key, value in asdict(one).items() if key != "translate"} for one in systems]
        options.json.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
