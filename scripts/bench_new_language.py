"""Adds French to a model of English, German and Japanese that is trained here, and scores what it gains and forgets.

python scripts/bench_new_language.py FOLDER [WAY …] [--pairs 5000] [--updates 500] [--out DIR] [key=value …]
python scripts/bench_new_language.py table [--out DIR]

FOLDER holds tatoeba_en_de/, small_parallel_enja/ and tatoeba_en_fr/. The base model is trained with recipe=auto for
--base-minutes, in four directions: English to and from German and Japanese. Each WAY adds English to and from French,
of which there are --pairs, or trains a model of these alone for --minutes ("scratch"). All ways of fine-tuning have the
same number of updates of the same size. In those with old text a fifth of the lines is of the old directions, a quarter
of --pairs of each two. Lines whose English is in a dev or test set of any corpus are in no training text.

Every test set is translated by `tfm translate` in both directions and scored by the command of sacrebleu. A way appends
its record to results.jsonl in --out, and one that has a record is not run again; an interrupted one goes on. `table`
prints that file. Overrides are for every training, as train.precision=bf16. Pin the script to one core.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_small_models import read_lines, tfm, write_lines

Pair = tuple[str, str]
NEW = [("en", "fr"), ("fr", "en")]
OLD = [("en", "de"), ("de", "en"), ("en", "ja"), ("ja", "en")]
CORPORA = {"de": ("tatoeba_en_de", "valid"), "ja": ("small_parallel_enja", "dev"), "fr": ("tatoeba_en_fr", "valid")}
N_DEV, N_TEST = 100, 1000  # lines of each direction
METRICS = {"BLEU": "BLEU", "chrF": "chrF2"}  # and their names in sacrebleu

LIKE = ["init.like=en"]
RATE = ["schedule=inverse_sqrt", "schedule.lr=4e-3", "schedule.warmup_steps=50"]  # by default 1e-3 at width 128
LORA = ["lora.rank=16", "lora.also=[embeddings]"]
# What a way of fine-tuning has beside init.from and new pieces, and whether old text is mixed in.
WAYS: dict[str, tuple[list[str], bool]] = {
    "mean": ([], True),
    "like": (LIKE, True),
    "like, 4 times the rate": ([*LIKE, *RATE], True),
    "like and LoRA": ([*LIKE, *LORA], True),
    "like, no old text": (LIKE, False),
    "like and floor": ([*LIKE, "train.floor={old: -1.0}"], True),
}
BASE, SCRATCH = "base", "scratch"
ORDER = [BASE, SCRATCH, *WAYS]


@dataclass(frozen=True)
class Text:
    """The corpora of one folder, prepared in another."""

    folder: Path
    made: Path
    n_pairs: int  # of the new language

    def given(self, language: str, part: str) -> list[list[str]]:
        """The lines of a part of English and another language, as the corpus has them."""
        corpus, dev = CORPORA[language]
        stem = self.folder / corpus / (dev if part == "dev" else part)
        found = [stem.with_name(f"{stem.name}.{side}") for side in ("en", language)]
        return [read_lines(file if file.exists() else file.with_name(f"{file.name}.gz")) for file in found]

    def prepare(self) -> None:
        """Write the text of all ways: training text without English of a dev or test set, and its parts."""
        held = {key(line) for code in CORPORA for part in ("dev", "test") for line in self.given(code, part)[0]}
        for code in CORPORA:
            every: Iterable[Pair] = zip(*self.given(code, "train"), strict=True)
            pairs = [pair for pair in every if key(pair[0]) not in held]
            sets = {"train": pairs[: self.n_pairs] if code == "fr" else pairs, "old": pairs[: self.n_pairs // 4]}
            for part, n in (("dev", N_DEV), ("test", N_TEST)):
                sets[part] = list(zip(*self.given(code, part), strict=True))[:n]
            for part, chosen in sets.items():
                for side, lines in zip(("en", code), zip(*chosen, strict=True), strict=True):
                    write_lines(self.made / f"{part}.en-{code}.{side}", lines)

    def file(self, part: str, direction: Pair, side: int) -> Path:
        (other,) = {*direction} - {"en"}
        return self.made / f"{part}.en-{other}.{direction[side]}"

    def settings(self, directions: Sequence[Pair], *, with_old: bool = False) -> list[str]:
        """The options of `tfm train` for training in some directions, with a tag for each."""
        train = [("train", one, 2) for one in directions] + [("old", one, 1) for one in OLD if with_old]
        files = {"train": [(part, one) for part, one, _ in train], "dev": [("dev", one) for one in directions]}
        found = [f"data.weights={[weight for *_, weight in train]}"] if with_old else []
        for split, parts in files.items():
            names = [str(self.file(part, one, side)) for part, one in parts for side in (0, 1)]
            key_of_tags = "data.dev_tags" if split == "dev" else "data.tags"
            found += [
                f"data.{split}={json.dumps(names)}",
                f"{key_of_tags}={json.dumps([tags(one) for _, one in parts])}",
            ]
        languages = "+".join(dict.fromkeys(code for _, one in files["train"] for code in one))
        found += [f"data.source_lang={languages}", f"data.target_lang={languages}"]
        found += ["data=files", "data.clean=[]", "train.robustness_lines=0", "train.samples=0"]
        # `tfm train` would score the test set at the end of every run. Without one it holds out a part of the text.
        return [*found, "data.test=null", "data.holdout=1"]


def tags(direction: Pair) -> str:
    return "<{}> <2{}>".format(*direction)


def key(line: str) -> str:
    """The letters and digits of a sentence, which are the same in a corpus that is tokenised and in lower case."""
    return "".join(filter(str.isalnum, line.casefold()))


def settings_of(way: str, text: Text, options: argparse.Namespace) -> list[str]:
    """The options of `tfm train`."""
    if way in (BASE, SCRATCH):
        directions, minutes = (OLD, options.base_minutes) if way == BASE else (NEW, options.minutes)
        own = ["data.tokenizer.vocab_size=8000"] if way == BASE else []
        sizes = [*own, "train.tokens_per_update=2048", "train.length_penalties=[]"]
        return ["recipe=auto", f"train.budget={round(60 * minutes)}s", *sizes, *text.settings(directions)]
    more, with_old = WAYS[way]
    every = max(1, options.updates // 4)
    sizes = [f"train.max_steps={options.updates}", "train.tokens_per_update=2048", f"train.eval_every={every}"]
    sizes += ["train.max_tokens_per_microbatch=2304", f"train.save_every={every}"]
    start = [f"init.from={options.out / BASE}", f"init.extend_vocab={options.pieces}"]
    return [*start, *sizes, *more, *text.settings(NEW, with_old=with_old)]


def run(way: str, text: Text, options: argparse.Namespace, settings: list[str]) -> dict[str, object]:
    """Train a way and score it."""
    start = time.monotonic()
    given = [f"runs={options.out}", f"name={way.replace(',', '').replace(' ', '_')}"]
    given += [f"seed={options.seed}", f"data.cache={options.out / 'cache'}"]
    run_dir = options.out / given[1].removeprefix("name=")
    with run_dir.with_name(f"{run_dir.name}.log").open("a", encoding="utf-8") as log:
        tfm(["train", *settings, *given], stdout=log, stderr=log)
    minutes = (time.monotonic() - start) / 60
    known = {BASE: OLD, SCRATCH: NEW}.get(way, [*NEW, *OLD])
    scores = {"-".join(one): scored(run_dir, text, one) for one in known}
    result = json.loads((run_dir / "result.json").read_bytes())
    return {
        **{"way": way, "settings": settings, "minutes": minutes, "updates": result["step"]},
        **{"bytes": (run_dir / "model.safetensors").stat().st_size, "scores": scores},
    }


def scored(run_dir: Path, text: Text, direction: Pair) -> dict[str, float]:
    """The scores of a test set, as the command of sacrebleu prints them."""
    source, target = direction
    translations = run_dir / f"test.{source}-{target}"
    given = [f"--checkpoint={run_dir}", f"--input={text.file('test', direction, 0)}", f"--output={translations}"]
    # By tags: a model that is trained on French alone has them still, but names no other languages.
    tfm(["translate", *given, f"--tag={tags(direction)}", "--overwrite"])
    reference, tokenizer = text.file("test", direction, 1), "char" if target == "ja" else "13a"
    command = [sys.executable, "-m", "sacrebleu", str(reference), "-i", str(translations), "-tok", tokenizer, "--force"]
    printed = subprocess.run([*command, "-m", "bleu", "chrf", "-f", "json"], capture_output=True, check=True).stdout
    found = {one["name"]: one["score"] for one in json.loads(printed)}
    return {name: found[theirs] for name, theirs in METRICS.items()}


# ---- Results


def records(results: Path) -> dict[str, dict[str, object]]:
    """The newest record of each way."""
    found = [json.loads(line) for line in read_lines(results)] if results.exists() else []
    return {one["way"]: one for one in found}


def table(found: Mapping[str, Mapping[str, object]]) -> list[str]:
    """BLEU and chrF of the new directions, and BLEU of the old ones, a line for each way."""
    new, old = ["-".join(one) for one in NEW], ["-".join(one) for one in OLD]
    head = ["way", "updates", *(f"{one}: BLEU, chrF" for one in new), *(f"{one}: BLEU" for one in old)]
    lines = [row(head), f"|---|{'---:|' * (len(head) - 1)}"]
    for way in (way for way in ORDER if way in found):
        one = found[way]
        scores = one["scores"]
        cells = [f"{scores[name]['BLEU']:.1f}, {scores[name]['chrF']:.1f}" if name in scores else "" for name in new]
        cells += [f"{scores[name]['BLEU']:.1f}" if name in scores else "" for name in old]
        lines.append(row([way, f"{one['updates']:,}", *cells]))
    return lines


def row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the folder of the corpora, or table")
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"unset: all, which are {'; '.join(ORDER)}")
    parser.add_argument("--pairs", type=int, default=5000)
    parser.add_argument("--updates", type=int, default=500)
    parser.add_argument("--pieces", type=int, default=1000, help="of init.extend_vocab")
    parser.add_argument("--base-minutes", type=float, default=15)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/bench_new_language"))
    options = parser.parse_intermixed_args(arguments)
    options.out = options.out.resolve()
    results = options.out / "results.jsonl"
    if options.folder == "table":
        print(*table(records(results)), sep="\n")
        return
    overrides = [word for word in options.ways if "=" in word]
    chosen = [word for word in options.ways if "=" not in word]
    if unknown := [way for way in chosen if way not in ORDER]:
        parser.error(f"{unknown[0]}: no way. Ways: {'; '.join(ORDER)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # which ends the training, too
    text = Text(Path(options.folder), options.out / "text", options.pairs)
    text.prepare()
    done = records(results)
    for way in (way for way in ORDER if not chosen or way in chosen or (way == BASE and chosen != [SCRATCH])):
        settings = [*settings_of(way, text, options), *overrides]
        if way not in done:
            record = json.dumps(run(way, text, options, settings))
            with results.open("a", encoding="utf-8") as file:
                file.write(f"{record}\n")
        elif done[way]["settings"] != settings:
            sys.exit(f"{results}: {way} was run with other settings. Name another folder by --out")
    print(*table(records(results)), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
