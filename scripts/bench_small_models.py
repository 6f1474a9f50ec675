"""Scores of models trained on little text; benchmarks/small_models.md holds what it printed.

python scripts/bench_small_models.py FOLDER ROW [ROW …] [--seeds 1,2,3] [--runs RUNS] [--test] [key=value …]

FOLDER holds multi30k/, iwslt14_de_en_small/, tatoeba_en_de/ and tatoeba_en_fr/ (train, dev and test files as ROWS and
TEXTS below name them). Trains what a row needs and is not there yet, one run for each seed, and prints the row as a
line of a Markdown table: the dev score, with --test the test score, both with the length penalty that was chosen on
dev, and processor hours. An interrupted run goes on when this is started again; its hours are those of all starts, or
nan after a kill that left no time to note them. Overrides are for every training, as train.precision=bf16; a run that
was trained with other ones is refused.
"""

import argparse
import gzip
import json
import math
import os
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from transformer_cli.addons.metrics.paper_bleu import lowercased_tokens
from transformer_cli.files import write_whole

TFM = [sys.executable, "-c", "from transformer_cli.cli import entry_point; entry_point()"]
RECORD = "bench.json"  # in each run directory


@dataclass(frozen=True)
class Text:
    """Files of FOLDER/`folder`, of which the first `n_pairs` pairs train, prepared for training and scoring alike."""

    folder: str
    source: str
    target: str
    train: str = "train"
    dev: str = "val"
    test: str = "test_2016_flickr"
    lower_cased: bool = False  # and tokenised by Moses
    n_pairs: int | None = None

    @property
    def tokenize(self) -> str:
        """sacrebleu's tokenizer: tokens stay as they are, and Japanese is scored by characters."""
        if self.target == "ja":
            return "char"
        return "none" if self.lower_cased or "iwslt14" in self.folder else "13a"


@dataclass(frozen=True)
class Row:
    """Runs of one config with several seeds."""

    text: str
    overrides: str = ""
    begins_with: str | None = None  # the row whose run with the same seed is trained on
    teachers: tuple[str, ...] = ()  # runs that translate the training text for this one; those of one string together
    members: str | None = None  # the row whose runs are an ensemble: nothing is trained


TEXTS = {
    "cased": Text("multi30k", "en", "de"),
    "lower_cased": Text("multi30k", "en", "de", lower_cased=True),
    "fr_lower_cased": Text("multi30k", "en", "fr", lower_cased=True),
    "10k": Text("multi30k", "en", "de", n_pairs=10_000),
    "1k": Text("multi30k", "en", "de", n_pairs=1_000),
    "iwslt14": Text("iwslt14_de_en_small", "de", "en", train="train_small", dev="valid", test="test"),
    "multi30k_fr": Text("multi30k", "en", "fr"),
    "europarl": Text("europarl_de_en_20k", "de", "en", dev="valid", test="test"),
    "tatoeba_en_de": Text("tatoeba_en_de", "en", "de", dev="valid", test="test"),
    "tatoeba_en_fr": Text("tatoeba_en_fr", "en", "fr", dev="valid", test="test"),
    "ja": Text("small_parallel_enja", "en", "ja", dev="dev", test="test"),
    **{
        f"{target}_{n}k": Text(folder, "en", target, dev=dev, test="test", n_pairs=1000 * n)
        for target, folder, dev, sizes in (
            ("fr", "tatoeba_en_fr", "valid", (1, 5, 20, 80)),
            ("de", "tatoeba_en_de", "valid", (1, 5, 20, 80)),
            ("ja", "small_parallel_enja", "dev", (5, 20)),
        )
        for n in sizes
    },
}
MULTI30K = "experiment=multi30k data.tokenizer.vocab_size=6000"
SHORT = f"{MULTI30K} train.max_steps=600 schedule.warmup_steps=60 train.save_every=30"
TED = f"{MULTI30K} train.rdrop=0 train.max_steps=2000 schedule.warmup_steps=200 train.eval_lines=500"
TED_TWICE = f"{TED} train.max_steps=4000 schedule.warmup_steps=400"
TED_HALF = f"{TED} train.max_steps=1000 schedule.warmup_steps=100"
MORE = f"{MULTI30K} train.max_steps=1000 schedule.warmup_steps=100 schedule.lr=2e-3"  # updates of a trained model
AUGMENTED = (
    "data.augment.upper_case=0.15 data.augment.title_case=0.1 data.augment.no_final_stop=0.2 data.augment.typos=0.05"
    " data.augment.placeholders=0.4"
)
ROWS = {
    "lower_cased": Row("lower_cased", MULTI30K),
    "lower_cased_twice": Row("lower_cased", f"{MULTI30K} train.max_steps=10000 schedule.warmup_steps=1000"),
    "lower_cased_vocab_10000": Row("lower_cased", "experiment=multi30k"),
    "lower_cased_ensemble": Row("lower_cased", members="lower_cased"),
    "lower_cased_twice_ensemble": Row("lower_cased", members="lower_cased_twice"),
    "lower_cased_distilled": Row("lower_cased", MULTI30K, teachers=("lower_cased-1 lower_cased-2 lower_cased-3",)),
    "lower_cased_diversified": Row(
        "lower_cased",
        "experiment=multi30k",
        teachers=("lower_cased_twice-1", "lower_cased_vocab_10000-1"),
    ),
    "cased": Row("cased", MULTI30K),
    "cased_vocab_10000": Row("cased", "experiment=multi30k"),
    "cased_ensemble": Row("cased", members="cased"),
    "cased_longer": Row("cased", MORE, begins_with="cased"),
    "cased_augmented": Row("cased", f"{MORE} {AUGMENTED}", begins_with="cased"),
    "fr_lower_cased": Row("fr_lower_cased", "experiment=multi30k_fr"),
    "10k": Row("10k", SHORT),
    "10k_adam": Row("10k", f"{SHORT} optimizer=adam schedule.lr=3e-3"),
    "10k_sinusoidal": Row("10k", f"{SHORT} model.positions=sinusoidal"),
    "10k_plain": Row("10k", f"{SHORT} train.rdrop=0"),
    "10k_plain_twice": Row("10k", f"{SHORT} train.rdrop=0 train.max_steps=1200 schedule.warmup_steps=120"),
    "10k_simcut": Row("10k", f"{SHORT} train.rdrop=0 train.simcut=3"),
    "10k_simcut_1": Row("10k", f"{SHORT} train.rdrop=0 train.simcut=1"),
    "10k_vocab_2000": Row("10k", f"{SHORT} data.tokenizer.vocab_size=2000"),
    "10k_vocab_12000": Row("10k", f"{SHORT} data.tokenizer.vocab_size=12000"),
    "10k_layers_2": Row("10k", f"{SHORT} model.n_encoder_layers=2 model.n_decoder_layers=2"),
    "10k_layers_6": Row("10k", f"{SHORT} model.n_encoder_layers=6 model.n_decoder_layers=6"),
    "10k_ensemble": Row("10k", members="10k"),
    "10k_distilled": Row("10k", SHORT, teachers=("10k-1 10k-2 10k-3",)),
    "10k_longer": Row("10k", f"{MORE} train.rdrop=0", begins_with="10k"),
    "10k_augmented": Row("10k", f"{MORE} train.rdrop=0 {AUGMENTED}", begins_with="10k"),
    "10k_recipe_small": Row("10k", "data=files recipe=small"),
    "10k_recipe_small_plain_twice": Row(
        "10k", "data=files recipe=small train.rdrop=0 train.max_steps=4440 schedule.warmup_steps=444"
    ),
    "10k_recipe_files": Row("10k", "data=files recipe=files"),
    "1k_recipe_small": Row("1k", "data=files recipe=small data.tokenizer.vocab_size=2000"),
    "1k_recipe_files": Row("1k", "data=files recipe=files data.tokenizer.vocab_size=2000"),
    "iwslt14": Row("iwslt14", TED),
    "iwslt14_twice": Row("iwslt14", TED_TWICE),
    "iwslt14_rdrop": Row("iwslt14", f"{TED} train.rdrop=3"),
    "iwslt14_simcut": Row("iwslt14", f"{TED} train.simcut=3"),
    "iwslt14_simcut_1": Row("iwslt14", f"{TED} train.simcut=1"),
    "iwslt14_both": Row("iwslt14", f"{TED_HALF} data.bidirectional=true"),
    "iwslt14_after_both": Row("iwslt14", TED_HALF, begins_with="iwslt14_both"),
    "iwslt14_both_twice": Row("iwslt14", f"{TED} data.bidirectional=true"),
    "iwslt14_after_both_twice": Row("iwslt14", TED, begins_with="iwslt14_both_twice"),
    "tatoeba_en_de": Row("tatoeba_en_de", "experiment=tatoeba_en_de"),
    "tatoeba_en_fr": Row("tatoeba_en_fr", "experiment=tatoeba_en_fr"),
    **{
        f"{text}_recipe_{recipe}": Row(text, f"data=files recipe={recipe}")
        for text in ("fr_1k", "fr_5k", "fr_20k", "de_5k")
        for recipe in ("auto", "small", "files")
    },
}


class Bench:
    """Trains and scores runs in one folder."""

    def __init__(self, folder: Path, runs: Path, overrides: list[str]) -> None:
        self.folder, self.runs, self.overrides = folder, runs, overrides

    # ---- Texts

    def files(self, name: str, part: str) -> tuple[Path, Path]:
        """The source and the target file of a part (train, dev or test), made where FOLDER has another form."""
        text = TEXTS[name]
        stem: str = getattr(text, part)
        paths = []
        for language in (text.source, text.target):
            given = self.folder / text.folder / f"{stem}.{language}"
            given = given if given.exists() else given.with_name(f"{given.name}.gz")
            n_lines = text.n_pairs if part == "train" else None
            if text.lower_cased or n_lines is not None:
                made = self.runs / "text" / name / f"{stem}.{language}"
                if not made.exists():
                    make = lowercased_tokens(language, escape=False) if text.lower_cased else str
                    write_lines(made, map(make, read_lines(given)[:n_lines]))
                given = made
            paths.append(given.resolve())
        return paths[0], paths[1]

    def data_of(self, name: str, training: list[Path]) -> list[str]:
        text = TEXTS[name]
        files = {"train": training, "dev": self.files(name, "dev")}
        return [
            *(f"data.{part}=[{','.join(map(str, paths))}]" for part, paths in files.items()),
            # `tfm train` would score the test set at the end of every run. Without one it holds out a part of the text.
            *("data.test=null", "data.holdout=1", "train.robustness_lines=0"),
            *("data.downloads=[]", "data.languages=[]", "data.columns=[]", f"data.bleu_tokenize={text.tokenize}"),
            *(f"data.source_lang={text.source}", f"data.target_lang={text.target}", "data.reader=null"),
        ]

    # ---- Runs

    def run(self, name: str, seed: int) -> Path:
        """The directory of a finished run, trained where it is not there yet."""
        row, run_dir = ROWS[name], self.runs / f"{name}-{seed}"
        record, settings = run_dir / RECORD, [*row.overrides.split(), *self.overrides]
        before = {"seconds": math.nan if run_dir.is_dir() else 0.0, "settings": settings}
        if record.exists():
            before = json.loads(record.read_bytes())
        if before["settings"] != settings:
            sys.exit(f"{run_dir}: was trained with {shlex.join(before['settings'])}. Name another folder by --runs")
        if (run_dir / "result.json").exists():
            return run_dir
        record.unlink(missing_ok=True)  # until it holds all hours again
        text = list(self.files(row.text, "train"))
        for teachers in row.teachers:
            text += self.distilled(teachers.split(), row.text)
        start = [] if row.begins_with is None else [f"init.from={self.run(row.begins_with, seed)}"]
        data = self.data_of(row.text, text)
        given = [f"runs={self.runs}", f"name={run_dir.name}", f"seed={seed}", f"data.cache={self.runs / 'cache'}"]
        spent = before["seconds"] - seconds_of_children()  # those of scoring are not of this run
        log = self.runs / f"{run_dir.name}.log"
        try:
            with log.open("a", encoding="utf-8") as file:
                tfm(["train", *settings, *data, *start, *given], stdout=file, stderr=file)
        finally:
            if run_dir.is_dir():
                seconds = spent + seconds_of_children()
                write_whole(record, json.dumps({"seconds": seconds, "settings": settings}).encode())
        return run_dir

    def distilled(self, teachers: list[str], text: str) -> tuple[Path, Path]:
        """The training source and its translation by all teachers together."""
        source, target = TEXTS[text].source, TEXTS[text].target
        corpus = self.runs / "text" / f"{text}-by-{'-'.join(teachers)}"
        names = [teacher.rpartition("-") for teacher in teachers]
        of_teachers = [f"--checkpoint={self.run(name, int(seed))}" for name, _, seed in names]
        if not corpus.with_name(f"{corpus.name}.{target}").exists():
            given = [f"--input={self.files(text, 'train')[0]}", f"--output={corpus}"]
            tfm(["augment", "distill", *of_teachers, *given])
        return corpus.with_name(f"{corpus.name}.{source}"), corpus.with_name(f"{corpus.name}.{target}")

    # ---- Scores

    def scores(self, name: str, runs: list[Path], part: str) -> dict[str, float]:
        """The scores of `tfm evaluate` for translations of a part by all `runs` together; kept beside the first."""
        text = TEXTS[name]
        seeds = "-".join(run.name.rpartition("-")[2] for run in runs)
        kept = runs[0] / f"bench-{part}-of-{seeds}.json"
        if not kept.exists():
            source, target = self.files(name, part)
            metrics = "bleu" if text.tokenize == "none" else "bleu,tokenised_bleu,chrf"
            given = [f"--checkpoint={run}" for run in runs]
            given += [f"--source={source}", f"--reference={target}", f"--tokenize={text.tokenize}", "--json"]
            given += [f"--save={kept.with_suffix('.txt')}", "--overwrite", f"metrics=[{metrics}]"]
            found = json.loads(tfm(["evaluate", *given], stdout=subprocess.PIPE))
            write_whole(kept, json.dumps(found, indent=1).encode())
        return {one["name"]: one["score"] for one in json.loads(kept.read_bytes())["scores"]}

    def line(self, name: str, seeds: list[int], *, with_test: bool) -> str:
        """The row of the table."""
        row = ROWS[name]
        runs = [self.run(row.members or name, seed) for seed in seeds]
        groups = [runs] if row.members else [[run] for run in runs]
        cells = [name, ", ".join(map(str, seeds))]
        for part in ("dev", "test"):
            found = [self.scores(row.text, group, part) for group in groups] if part == "dev" or with_test else []
            cells += [spread([one["BLEU"] for one in found]), spread([one.get("tokenised BLEU") for one in found])]
        results = [json.loads((run / "result.json").read_bytes()) for run in runs]
        cells.append(", ".join(f"{result['length_penalty']:g}" for result in results if "length_penalty" in result))
        records = [run / RECORD for run in runs]
        hours = [json.loads(one.read_bytes())["seconds"] / 3600 if one.exists() else math.nan for one in records]
        cells.append(f"{sum(hours) if row.members else mean(hours):.2f}")
        return f"| {' | '.join(cells)} |"


HEAD = """\
| row | seeds | dev BLEU | tokenised | test BLEU | tokenised | length penalty | processor hours of a run |
|---|---|---:|---:|---:|---:|---|---:|"""


def spread(scores: list[float | None]) -> str:
    """Mean ± standard deviation, and the scores."""
    numbers = [score for score in scores if score is not None]
    if len(numbers) < 2:
        return "".join(f"{number:.2f}" for number in numbers)
    each = ", ".join(f"{number:.2f}" for number in numbers)
    return f"{mean(numbers):.2f} ± {stdev(numbers):.2f} ({each})"


def read_lines(path: Path) -> list[str]:
    content = path.read_bytes()
    lines = (gzip.decompress(content) if path.suffix == ".gz" else content).decode().split("\n")
    return lines if lines[-1] else lines[:-1]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(f"{line}\n" for line in lines).encode())


def seconds_of_children() -> float:
    """Processor time of all commands that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def tfm(arguments: list[str], **streams: object) -> bytes:
    """Run a command, and end with its exit code if it fails."""
    with subprocess.Popen([*TFM, *arguments], env={**os.environ, "OMP_NUM_THREADS": "1"}, **streams) as process:
        try:
            output, _ = process.communicate()
        except BaseException as error:
            if isinstance(error, SystemExit):  # by SIGTERM; Ctrl-C reaches the command, too
                process.terminate()
            process.wait()  # a training saves what it has before it ends
            raise
    if process.returncode:
        print(f"tfm {shlex.join(arguments)}: exit code {process.returncode}", file=sys.stderr)
        sys.exit(process.returncode)
    return output or b""


def main() -> None:
    parser = argparse.ArgumentParser("scripts/bench_small_models.py", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("rows", nargs="+", help=", ".join(ROWS))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--runs", type=Path, default=Path("runs/bench_small_models"))
    parser.add_argument("--test", action="store_true", help="score the test set, too: once for each finished row")
    options = parser.parse_intermixed_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # notes the hours, and ends the training
    rows = [word for word in options.rows if "=" not in word]
    if unknown := [row for row in rows if row not in ROWS]:
        parser.error(f"{unknown[0]}: no row. Rows: {', '.join(ROWS)}")
    bench = Bench(options.folder, options.runs.resolve(), [word for word in options.rows if "=" in word])
    bench.runs.mkdir(parents=True, exist_ok=True)
    print(HEAD, flush=True)
    for row in rows:
        print(bench.line(row, [int(seed) for seed in options.seeds.split(",")], with_test=options.test), flush=True)


if __name__ == "__main__":
    main()
