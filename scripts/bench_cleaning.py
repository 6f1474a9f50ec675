"""Measures the filters of data.clean; benchmarks/cleaning.md holds what it printed. FOLDER has multi30k/ and others.

python scripts/bench_cleaning.py noise FOLDER       known faults in sound text: recall of kinds, precision of filters
python scripts/bench_cleaning.py opusfilter FOLDER  the same faults and OpusFilter 3.3.1
python scripts/bench_cleaning.py models FOLDER      BLEU of models of clean, noisy and cleaned text
python scripts/bench_cleaning.py sound FOLDER       what is dropped of text without known faults, with examples
python scripts/bench_cleaning.py short FOLDER       false alarms in short lines: FOLDER has LANGUAGE/LC_MESSAGES/*.mo
python scripts/bench_cleaning.py speed FOLDER       preparation with and without data.clean, in turn
python scripts/bench_cleaning.py scale FOLDER       processor time and memory of one preparation, as --pairs 10000000
python scripts/bench_cleaning.py near FOLDER        what near_duplicates drops, and its time

OpusFilter filters by the configuration that opusfilter-autogen writes for the text, by its methods defaults and
clustering, of which it takes the second where none is named. scripts/judges makes its environment.

`models … --corpus CORPUS --only TEXT` trains on one text, with SETTINGS and the overrides at the end, as
train.precision=bf16, and then prints the table of all results; without --only it does nothing but that. A TEXT is clean
(without faults), sound (the pairs of clean that get no fault), noisy (with faults), auto (what data.clean=[auto] leaves
of noisy), defaults or clustering (what OpusFilter leaves of it). Texts, runs and results.jsonl are in --out.
"""

import argparse
import gettext
import gzip
import html
import itertools
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from bench_small_models import TEXTS, Bench, tfm, write_lines

from transformer_cli.data.cleaning.base import FILTERS, Languages, PairTexts, WholeTextFilter, chosen_filters
from transformer_cli.data.cleaning.clean_corpora import PART, SAMPLE, apply

Pairs = list[tuple[str, str]]
SHARE = 0.05  # of the pairs that get faults of one kind
BOILERPLATE = {
    "en": [
        "Click here to read more about our products and services.",
        "This page was last modified on Monday.",
        "Please sign in to leave a comment below.",
    ],
    "de": [
        "Alle Rechte vorbehalten, Nachdruck nur mit Genehmigung.",
        "Melden Sie sich an, um einen Kommentar zu schreiben.",
        "Klicken Sie hier, um mehr zu erfahren.",
    ],
    "fr": [
        "Tous droits réservés, reproduction interdite.",
        "Connectez-vous pour laisser un commentaire.",
        "Cliquez ici pour en savoir plus sur nos produits.",
    ],
}
SHORT = ("cs", "de", "el", "es", "fi", "fr", "it", "nl", "pl", "pt", "sv", "tr")  # languages, with English


def lines_of(path: Path) -> list[str]:
    """The lines of a text file, or of the same with .gz."""
    data = path.read_bytes() if path.exists() else gzip.decompress(path.with_name(f"{path.name}.gz").read_bytes())
    return data.decode().split("\n")[:-1]


def pairs_of(folder: Path, stems: Sequence[str], source: str, target: str) -> Pairs:
    sides = [[line for stem in stems for line in lines_of(folder / f"{stem}.{one}")] for one in (source, target)]
    return list(zip(*sides, strict=True))


@dataclass
class Broken:
    """Pairs with faults, what each was before, and the kind of its fault, empty for none."""

    pairs: Pairs
    sound: Pairs
    kinds: list[str]


def broken(sound: Pairs, foreign: list[str], languages: tuple[str, str], *, seed: int, share: float = SHARE) -> Broken:
    """Faults in a share of the pairs for each kind: blocks of shifted targets, and single pairs of eight kinds."""
    draw, n = random.Random(seed), len(sound)
    pairs, kinds = list(sound), [""] * n
    n_each = int(share * n)
    left = n_each
    while left >= 20:
        size = min(left, draw.choice([50, 100, 200, 400]))
        start = draw.randrange(0, max(1, n - size))
        if any(kinds[max(0, start - 5) : start + size + 5]):
            continue
        lag = draw.choice([-2, -1, 1, 2])
        for index in range(start, start + size):
            pairs[index] = pairs[index][0], sound[start + (index - start + lag) % size][1]
            kinds[index] = "shifted"
        left -= size
    free = [index for index, kind in enumerate(kinds) if not kind]
    draw.shuffle(free)
    unrelated = free[:n_each]
    for index, other in zip(unrelated, unrelated[1:] + unrelated[:1], strict=True):
        pairs[index], kinds[index] = (sound[index][0], sound[other][1]), "misaligned"
    rest = free[n_each:]
    # Mojibake first: it needs letters that are no ASCII.
    chosen = {"mojibake": [index for index in rest if not sound[index][1].isascii()][:n_each]}
    taken = set(chosen["mojibake"])
    rest = [index for index in rest if index not in taken]
    for number, kind in enumerate(("swapped", "copied", "foreign", "boilerplate", "markup")):
        chosen[kind] = rest[number * n_each : (number + 1) * n_each]
    for kind, rows in chosen.items():
        for index in rows:
            pairs[index] = faulty(kind, sound[index], draw.randrange(2), foreign, languages, draw)
            kinds[index] = kind
    return Broken(pairs, sound, kinds)


def faulty(
    kind: str, pair: tuple[str, str], side: int, foreign: list[str], languages: tuple[str, str], draw: random.Random
) -> tuple[str, str]:
    """A pair with a fault of one side."""
    if kind == "swapped":
        return pair[::-1]
    if kind == "mojibake":
        return pair[0], pair[1].encode().decode(draw.choice(["latin-1", "cp1252"]), "replace").replace("\ufffd", "")
    line = pair[side]
    changed = {
        "copied": pair[1 - side],
        "foreign": draw.choice(foreign),
        "boilerplate": draw.choice(BOILERPLATE[languages[side]]),
        "markup": draw.choice(
            [
                f'<p class="text">{line}</p>',
                f'<a href="/index.html">{line}</a><br/>',
                html.escape(line).replace(" ", "&nbsp;", 1),
                f"<b>{line.replace(' ', '</b> <i>', 1)}</i>",
            ]
        ),
    }[kind]
    return (changed, pair[1]) if side == 0 else (pair[0], changed)


@dataclass
class Cleaned:
    """The filter that dropped or repaired each pair, empty where none did, and the pair that it left."""

    by: list[str]
    dropped: list[bool]
    left: Pairs


def cleaned(pairs: Pairs, languages: tuple[str, str]) -> Cleaned:
    """The pairs after the filters of auto, which are trained on a sample as in a preparation."""
    sample = pairs[:: max(1, -(-len(pairs) // SAMPLE))]
    text = PairTexts([s for s, _ in sample], [t for _, t in sample], np.arange(len(sample)) * 1000)
    filters = {}
    for name, limit in chosen_filters(["auto"]).items():
        filters[name] = FILTERS[name](Languages(*languages), limit)
        filters[name].learn(text)
        text, _ = apply(filters[name], text)
    done = Cleaned([""] * len(pairs), [False] * len(pairs), list(pairs))
    for first in range(0, len(pairs), PART):
        part = pairs[first : first + PART]
        text = PairTexts([s for s, _ in part], [t for _, t in part], np.arange(first, first + len(part)))
        for name, one in filters.items():
            before, (text, verdict) = text, apply(one, text)
            for index in before.numbers[verdict.dropped].tolist():
                done.by[index], done.dropped[index] = name, True
            for row, pair in verdict.repaired.items():
                done.by[int(before.numbers[row])], done.left[int(before.numbers[row])] = name, pair
    return done


# Says for each pair the first filter that rejects it; the command `opusfilter` writes only what is left.
REJECTED_BY = """
import json, sys
from opusfilter.pipeline import FilterPipeline
from opusfilter.util import yaml

with open(sys.argv[1], encoding="utf-8") as file:
    [step] = yaml.load(file)["steps"]
sides = []
for path in step["parameters"]["inputs"]:
    with open(path, encoding="utf-8", newline="\\n") as file:
        sides.append(file.read().split("\\n")[:-1])
pairs = list(zip(*sides, strict=True))
by = [""] * len(pairs)
for one in FilterPipeline.from_config(step["parameters"]["filters"]).filters:
    for index, accepted in enumerate(one.decisions(iter(pairs))):
        if not accepted and not by[index]:
            by[index] = ".".join(filter(None, [type(one).__name__, one.name]))
json.dump(by, sys.stdout)
"""


def by_opusfilter(method: str) -> Callable[[Pairs, tuple[str, str]], Cleaned]:
    """OpusFilter with the configuration that opusfilter-autogen writes for the text by a method."""

    def clean(pairs: Pairs, languages: tuple[str, str]) -> Cleaned:
        judges = Path(__file__).with_name("judges")
        done = subprocess.run([str(judges), "opusfilter"], stdout=subprocess.PIPE, text=True, check=True)
        python = Path(done.stdout.strip())
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        with tempfile.TemporaryDirectory() as place:
            files = [Path(place) / f"text.{language}" for language in languages]
            for side, file in enumerate(files):
                write_lines(file, (pair[side] for pair in pairs))
            given = ["--files", *files, "--langs", *languages, "--scripts", "Latin", "Latin", "--method", method]
            config = Path(place) / "config.yaml"
            for command in (
                [python.parent / "opusfilter-autogen", *given, "-o", config],
                [python, "-c", REJECTED_BY, config],
            ):
                found = subprocess.run(
                    list(map(str, command)), env=variables, capture_output=True, text=True, check=False
                )
                if found.returncode:
                    sys.exit(found.stderr[-2000:])
            print(config.read_text(encoding="utf-8"), file=sys.stderr)
        by = json.loads(found.stdout)
        return Cleaned(by, [bool(name) for name in by], list(pairs))

    return clean


Cleaner = Callable[[Pairs, tuple[str, str]], Cleaned]
CLEANERS: dict[str, Cleaner] = {"auto": cleaned, **{name: by_opusfilter(name) for name in ("defaults", "clustering")}}
# The corpora that get faults: the row of bench_small_models.TEXTS, and text of a third language.
CORPORA = {"multi30k_fr": ("multi30k", "train.de"), "tatoeba_en_de": ("tatoeba_en_fr", "train.fr")}
NAMES = {"multi30k_fr": "Multi30k en-fr", "tatoeba_en_de": "Tatoeba en-de"}


def with_faults(folder: Path, corpus: str, seed: int, n_pairs: int | None = None) -> tuple[Broken, tuple[str, str]]:
    text = TEXTS[corpus]
    pairs = pairs_of(folder / text.folder, [text.train], text.source, text.target)[:n_pairs]
    other, name = CORPORA[corpus]
    languages = text.source, text.target
    return broken(pairs, lines_of(folder / other / name), languages, seed=seed), languages


def noise(
    folder: Path, corpora: Iterable[str], seeds: Iterable[int], cleaners: Iterable[str], n_pairs: int | None = None
) -> Iterator[str]:
    """Recall of each kind of fault, as dropped or put right, and the precision of each filter."""
    for corpus, seed in itertools.product(corpora, seeds):
        text, languages = with_faults(folder, corpus, seed, n_pairs)
        for cleaner in cleaners:
            done = CLEANERS[cleaner](text.pairs, languages)
            yield f"\n{NAMES[corpus]}, seed {seed}, {cleaner}: {len(text.pairs):,} pairs\n"
            yield "| kind | pairs | dropped | put right | repaired otherwise | recall |"
            yield "|---|---:|---:|---:|---:|---:|"
            kinds = sorted(set(text.kinds) - {""})
            for kind in [*kinds, "all kinds"]:
                rows = [i for i, found in enumerate(text.kinds) if found and kind in (found, "all kinds")]
                dropped = sum(done.dropped[i] for i in rows)
                right = sum(put_right(text, done, i) for i in rows)
                other = sum(bool(done.by[i]) for i in rows) - dropped - right
                recall = (dropped + right + other) / len(rows)
                yield f"| {kind} | {len(rows):,} | {dropped:,} | {right:,} | {other:,} | {recall:.3f} |"
            yield "\n| filter | acted on | of these sound | precision |\n|---|---:|---:|---:|"
            for one in [*sorted(set(filter(None, done.by))), "all filters"]:
                kinds = [
                    kind for by, kind in zip(done.by, text.kinds, strict=True) if by and one in (by, "all filters")
                ]
                n, n_sound = len(kinds), kinds.count("")
                yield f"| {one} | {n:,} | {n_sound:,} | {1 - n_sound / max(1, n):.3f} |"


def put_right(text: Broken, done: Cleaned, index: int) -> bool:
    return bool(done.by[index]) and not done.dropped[index] and done.left[index] == text.sound[index]


# ---- Models

SETTINGS = (
    "data=files recipe=small data.tokenizer.vocab_size=4000 train.rdrop=0 train.length_penalties=[]"
    " train.max_steps=1000 schedule.warmup_steps=100"
)
MODELS = ("clean", "sound", "noisy", *CLEANERS)


def model(
    folder: Path, out: Path, corpus: str, seed: int, of: str, n_pairs: int, overrides: list[str]
) -> dict[str, object]:
    """Train on one of the texts of MODELS and score the test set; the record."""
    text, languages = with_faults(folder, corpus, seed, n_pairs)
    kept, faults = list(range(len(text.pairs))), [i for i, kind in enumerate(text.kinds) if kind]
    pairs = text.sound if of in ("clean", "sound") else text.pairs
    if of == "clean":
        faults = []
    elif of == "sound":
        kept, faults = [i for i, kind in enumerate(text.kinds) if not kind], []
    elif of != "noisy":
        done = CLEANERS[of](text.pairs, languages)
        kept, pairs = [i for i in kept if not done.dropped[i]], done.left
        faults = [i for i in faults if not (done.dropped[i] or put_right(text, done, i))]
    files = [out / f"{corpus}-{seed}-{of}.{language}" for language in languages]
    for side, file in enumerate(files):
        write_lines(file, (pairs[i][side] for i in kept))
    bench = Bench(folder, out, [])
    # The vocabulary and the cache are of this text alone. The text is already clean, or shall stay as it is.
    given = [
        *SETTINGS.split(),
        "data.clean=[]",
        *bench.data_of(corpus, files),
        f"runs={out}",
        f"seed={seed}",
        *overrides,
    ]
    name = f"{corpus}-{seed}-{of}-model"
    with (out / f"{name}.log").open("a", encoding="utf-8") as log:
        tfm(["train", *given, f"name={name}", f"data.cache={out / 'cache'}"], stdout=log, stderr=log)
    source, reference = bench.files(corpus, "test")
    given = [f"--checkpoint={out / name}", f"--source={source}", f"--reference={reference}", "--json", "metrics=[bleu]"]
    [score] = json.loads(tfm(["evaluate", *given, "tokenize=13a"], stdout=subprocess.PIPE))["scores"]
    updates = json.loads((out / name / "result.json").read_bytes())["step"]
    counts = {"pairs": len(kept), "faults": len(faults), "updates": updates, "bleu": score["score"]}
    return {"corpus": corpus, "seed": seed, "text": of, **counts, "overrides": overrides}


def models(results: Path) -> Iterator[str]:
    """The table of all results."""
    yield "| corpus | seed | text | pairs | of these with a fault | updates | test BLEU |"
    yield "|---|---:|---|---:|---:|---:|---:|"
    for line in lines_of(results):
        one = json.loads(line)
        cells = f"{one['pairs']:,} | {one['faults']:,} | {one['updates']:,} | {one['bleu']:.2f}"
        yield f"| {NAMES[one['corpus']]} | {one['seed']} | {one['text']} | {cells} |"


def sound(folder: Path) -> Iterator[str]:
    """Counts of what is dropped of text that people translated, and the first three pairs by each filter."""
    news = [f"newstest{year}" for year in range(2008, 2014)]
    ted = ["dev2010", "tedx_dev2012", "tedx_tst2013", "tedx_tst2014", "tst2010", "tst2011", "tst2013", "tst2014"]
    for name, stems, pair in (
        ("wmt14_en_de", news, ("en", "de")),
        ("wmt14_en_de", news, ("en", "fr")),
        ("ted_de_en_raw", ted, ("de", "en")),
        ("europarl_de_en_20k", ["train"], ("de", "en")),
        ("tatoeba_en_de", ["train"], ("en", "de")),
        ("tatoeba_en_fr", ["train"], ("en", "fr")),
        ("multi30k", ["train"], ("en", "de")),
        ("multi30k", ["train"], ("en", "fr")),
        ("small_parallel_enja", ["train"], ("en", "ja")),
    ):
        text = pairs_of(folder / name, stems, *pair)
        done = cleaned(text, pair)
        counts = Counter(by for by, dropped in zip(done.by, done.dropped, strict=True) if dropped)
        share = 100 * counts.total() / len(text)
        listed = ", ".join(f"{by} {n}" for by, n in counts.items()) or "none"
        yield f"{name} {pair[0]}-{pair[1]}: {counts.total()} of {len(text):,} dropped, {share:.2f} %: {listed}"
        for by in counts:
            for index in [i for i, found in enumerate(done.by) if found == by and done.dropped[i]][:3]:
                yield f"    {by}: {text[index][0][:90]} | {text[index][1][:90]}"


def short(folder: Path) -> Iterator[str]:
    """False alarms of `language` in lines of 15 to 30 characters, of translated messages of a program."""
    yield "| language | pairs | dropped | % |\n|---|---:|---:|---:|"
    for language in SHORT:
        messages: Pairs = []
        for path in sorted(folder.rglob(f"{language}/LC_MESSAGES/*.mo")):
            with path.open("rb") as file:
                catalog = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
            messages += [(s, t) for s, t in catalog.items() if isinstance(s, str) and s and t and "%" not in s]
        pairs = [pair for pair in messages if "\n" not in "".join(pair)]
        if not pairs:
            continue
        text = PairTexts([s for s, _ in pairs], [t for _, t in pairs], np.arange(len(pairs)))
        one = FILTERS["language"](Languages("en", language), FILTERS["language"].threshold)
        one.learn(text)
        is_short = np.array([15 <= min(map(len, pair)) <= 30 for pair in pairs])
        dropped = one.apply(text).dropped & is_short
        yield f"| {language} | {is_short.sum()} | {dropped.sum()} | {100 * dropped.sum() / is_short.sum():.2f} |"
        for index in np.flatnonzero(dropped)[:3].tolist():
            print(language, pairs[index], file=sys.stderr)


def write_repeated(text: Pairs, n_pairs: int, place: Path) -> None:
    """Write train.en and train.de: a text, repeated to `n_pairs` pairs with other numbers at the ends of its lines."""
    for side, language in enumerate(("en", "de")):
        with (place / f"train.{language}").open("w", encoding="utf-8") as file:
            for number in range(n_pairs):
                repeat, index = divmod(number, len(text))
                file.write(text[index][side] + (f" ({repeat})" if repeat else "") + "\n")


def prepare(place: Path, clean: str, cache: str) -> None:
    program = "from transformer_cli.cli import entry_point; entry_point()"
    command = [sys.executable, "-c", program, "prepare", "data=files", "data.train=train"]
    command += ["data.source_lang=en", "data.target_lang=de", f"data.clean={clean}", f"data.cache={cache}"]
    subprocess.run(command, cwd=place, check=True)


def speed(folder: Path, n_pairs: int, rounds: int) -> Iterator[str]:
    """`tfm prepare` of Tatoeba en-de, repeated, without and with data.clean."""
    text = pairs_of(folder / "tatoeba_en_de", ["train"], "en", "de")
    with tempfile.TemporaryDirectory() as place:
        write_repeated(text, n_pairs, Path(place))
        seconds: dict[str, list[float]] = {"[]": [], "[auto]": []}
        for number in range(rounds):
            for clean, found in seconds.items():
                start = time.perf_counter()
                prepare(Path(place), clean, f"cache-{number}-{len(clean)}")
                found.append(time.perf_counter() - start)
        rates = {clean: [n_pairs / second for second in found] for clean, found in seconds.items()}
        ratios = [cleaned / plain for plain, cleaned in zip(*rates.values(), strict=True)]
        yield json.dumps({"pairs": n_pairs, "pairs/s": rates, "ratios": ratios})


def scale(folder: Path, n_pairs: int) -> Iterator[str]:
    """`tfm prepare` with data.clean=[auto] of four corpora, repeated: its time, and the largest memory of a process."""
    text: Pairs = []
    for name, stems in (
        ("tatoeba_en_de", ["train"]),
        ("multi30k", ["train"]),
        ("europarl_de_en_20k", ["train"]),
        ("wmt14_en_de", ["newstest2012", "newstest2013"]),
    ):
        text += pairs_of(folder / name, stems, "en", "de")
    with tempfile.TemporaryDirectory() as place:
        write_repeated(text, n_pairs, Path(place))
        n_bytes = sum(path.stat().st_size for path in Path(place).iterdir())
        start = time.perf_counter()
        prepare(Path(place), "[auto]", "cache")
        wall = time.perf_counter() - start
        cache = sum(path.stat().st_size for path in Path(place, "cache").rglob("*") if path.is_file())
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    yield json.dumps(
        {
            "pairs": n_pairs, "GB": n_bytes / 1e9, "prepared GB": cache / 1e9, "wall s": wall,
            "processor s": used.ru_utime + used.ru_stime, "peak MiB": used.ru_maxrss / 1024,
        }
    )  # fmt: skip


def near(folder: Path) -> Iterator[str]:
    """The pairs that near_duplicates drops by its threshold, and microseconds of processor time a pair."""
    limits = (0.7, 0.8, 0.9)
    yield f"| text | pairs | {' | '.join(map(str, limits))} | µs a pair |\n|---|{'---:|' * (len(limits) + 2)}"
    for name, source, target in (
        ("tatoeba_en_de", "en", "de"),
        ("multi30k", "en", "fr"),
        ("europarl_de_en_20k", "de", "en"),
    ):
        pairs = pairs_of(folder / name, ["train"], source, target)
        text = PairTexts([s for s, _ in pairs], [t for _, t in pairs], np.arange(len(pairs)))
        counts, times = [], []
        for limit in limits:
            with tempfile.TemporaryDirectory() as place:
                one = FILTERS["near_duplicates"](Languages(source, target), limit)
                assert isinstance(one, WholeTextFilter)
                start = time.process_time()
                one.add(text, Path(place))
                counts.append(int(one.dropped(Path(place)).sum()))
                times.append(1e6 * (time.process_time() - start) / len(pairs))
        shown = " | ".join(f"{count:,}" for count in counts)
        yield f"| {name}, {source}-{target} | {len(pairs):,} | {shown} | {min(times):.0f} to {max(times):.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["noise", "opusfilter", "models", "sound", "short", "speed", "scale", "near"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="of models")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--corpus", choices=CORPORA, help="of noise, opusfilter and models; unset: all")
    parser.add_argument("--only", choices=MODELS, help="the text of models, or the method of opusfilter")
    parser.add_argument("--out", type=Path, default=Path("runs/bench_cleaning"))
    given = parser.parse_intermixed_args()
    corpora = [given.corpus] if given.corpus else list(CORPORA)
    methods = [given.only] if given.only else ["defaults", "clustering"]
    results = given.out.resolve() / "results.jsonl"
    if given.what == "models" and given.only:
        results.parent.mkdir(parents=True, exist_ok=True)
        for corpus, seed in itertools.product(corpora, given.seeds):
            options = (corpus, seed, given.only, given.pairs, given.overrides)
            record = json.dumps(model(given.folder, results.parent, *options))
            with results.open("a", encoding="utf-8") as file:
                file.write(f"{record}\n")
    lines = {
        "noise": lambda: noise(given.folder, corpora, given.seeds, ["auto"], given.pairs),
        "opusfilter": lambda: noise(given.folder, corpora, given.seeds, methods, given.pairs),
        "models": lambda: models(results),
        "sound": lambda: sound(given.folder),
        "short": lambda: short(given.folder),
        "speed": lambda: speed(given.folder, given.pairs, given.rounds),
        "scale": lambda: scale(given.folder, given.pairs),
        "near": lambda: near(given.folder),
    }
    for line in lines[given.what]():
        print(line, flush=True)


if __name__ == "__main__":
    main()
