"""Compares recipe=auto with recipe=files, recipe=small, JoeyNMT and fairseq in the same minutes of one core.

python scripts/bench_auto_recipe.py FOLDER ROW [ROW …] --only SYSTEM [--minutes 12] [key=value …]
python scripts/bench_auto_recipe.py table

FOLDER holds the corpora; a row is one of TEXTS in bench_small_models.py, as fr_5k. A run trains for the minutes of wall
time, translates the test set by the system's own search and appends its BLEU, by the command of sacrebleu, to
results.jsonl in --out; `table` prints that file. Overrides, as train.precision=bf16, are for tfm alone. One thread: pin
the script to one core, with taskset -c 1.

* auto, files, small: the recipes of tfm with train.budget. Preparing the text and the search for the length penalty
  come on top of the minutes of the budget, and are in the minutes of the table.
* joeynmt: JoeyNMT 2.3.0 by configs/iwslt14_deen_bpe.yaml with the joint vocabulary of 4,000 pieces of its quick start
  on Tatoeba (notebooks/joey_v1_demo.ipynb, the same model), learned by SentencePiece, and translations of at most 1.5
  times the source, its default, in place of 100 tokens. It is interrupted when the minutes are over, and the best
  checkpoint by dev BLEU translates.
* joeynmt_small: the same by configs/transformer_small.yaml, made for toy text: 3 + 3 layers of width 64, updates of ten
  pairs, the best checkpoint by dev loss. It is validated each 1,000 updates (20 times --every).
* fairseq: fairseq 0.12.2 by the command of examples/translation/README.md for IWSLT14 de-en, with a joint vocabulary of
  10,000 pieces as in prepare-iwslt14.sh, learned by SentencePiece.

JoeyNMT and fairseq are validated each 50 updates (--every) on 300 dev lines, where tfm has 1,000: their examples
validate each 1,000 updates or once an epoch, which is never or all the time in a few minutes of little text, and a
model that is hardly trained writes long lines, slowly. Learning their vocabulary is not in their minutes. They run in
environments that scripts/judges makes. --precision bf16 is for all: JoeyNMT and fairseq have it on GPUs and TPUs alone,
and get it here by a few lines, named where they stand.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import sentencepiece
import yaml
from bench_small_models import TEXTS, Bench, read_lines, tfm, write_lines

JUDGES = Path(__file__).with_name("judges")
N_DEV = 300  # dev lines that JoeyNMT and fairseq are validated on; train.eval_lines is 1,000
INTERRUPTED = 120  # seconds that a program has to save its state
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
ENVIRONMENT |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class Setting:
    """What a system is given: a text, minutes, and a folder of its own."""

    bench: Bench
    text: str
    folder: Path
    minutes: float
    every: int
    seed: int
    precision: str

    def languages(self) -> tuple[str, str]:
        return TEXTS[self.text].source, TEXTS[self.text].target

    def copy(self, name: str, part: str, n_lines: int | None = None) -> Path:
        """The files of a part of the text as `name`.LANGUAGE in the folder; the path without the language."""
        for language, given in zip(self.languages(), self.bench.files(self.text, part), strict=True):
            write_lines(self.folder / f"{name}.{language}", read_lines(given)[:n_lines])
        return self.folder / name


@dataclass(frozen=True)
class Trained:
    """What a system has done in its minutes."""

    translations: Path
    minutes: float  # of wall time, of the command that trains
    updates: int
    best: int | None  # the update whose weights translate, where the system says so


def judge(name: str) -> str:
    """The Python of an environment with another program, made where there is none."""
    return subprocess.run([str(JUDGES), name], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def call(command: Sequence[str | Path], log: Path, *, minutes: float | None = None) -> float:
    """Run a program, and interrupt it as Ctrl-C does when `minutes` are over; the minutes that it took."""
    start = time.monotonic()
    with log.open("a", encoding="utf-8") as file:
        process = subprocess.Popen(list(map(str, command)), cwd=log.parent, env=ENVIRONMENT, stdout=file, stderr=file)
        try:
            process.wait(None if minutes is None else 60 * minutes)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait(INTERRUPTED)
        finally:
            process.kill()
    if process.returncode:
        sys.exit(f"exit code {process.returncode}: {command[0]} … See {log}")
    return (time.monotonic() - start) / 60


def learn_pieces(training: Path, languages: Sequence[str], size: int, prefix: Path) -> list[str]:
    """A joint SentencePiece model of at most `size` pieces, PREFIX.model; its pieces without the control symbols."""
    sentencepiece.SentencePieceTrainer.train(
        input=[f"{training}.{language}" for language in languages], model_prefix=str(prefix), vocab_size=size,
        hard_vocab_limit=False, character_coverage=1.0, num_threads=1, minloglevel=2,
    )  # fmt: skip
    pieces = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
    return [pieces.id_to_piece(i) for i in range(len(pieces)) if not (pieces.is_control(i) or pieces.is_unknown(i))]


# ---- tfm


def by_recipe(recipe: str) -> Callable[[Setting], Trained]:
    def train(setting: Setting) -> Trained:
        """A run of `tfm train` with a budget, and its exported model."""
        bench, run = setting.bench, setting.folder / "run"
        given = ["data=files", f"recipe={recipe}", f"train.budget={round(60 * setting.minutes)}s"]
        given += [f"train.precision={setting.precision}", *bench.overrides]
        given += bench.data_of(setting.text, list(bench.files(setting.text, "train")))
        given += [f"runs={setting.folder}", "name=run", f"seed={setting.seed}", f"data.cache={bench.runs / 'cache'}"]
        start = time.monotonic()
        with (setting.folder / "train.log").open("a", encoding="utf-8") as log:
            tfm(["train", *given], stdout=log, stderr=log)
        minutes = (time.monotonic() - start) / 60
        translations = setting.folder / "test.txt"
        source = bench.files(setting.text, "test")[0]
        tfm(["translate", f"--checkpoint={run}", f"--input={source}", f"--output={translations}", "--overwrite"])
        result = json.loads((run / "result.json").read_bytes())
        return Trained(translations, minutes, result["step"], None)

    return train


# ---- JoeyNMT


@dataclass(frozen=True)
class Joey:
    """What differs between two configurations of JoeyNMT 2.3.0."""

    n_layers: int
    width: int
    feed_forward: int
    dropout: float
    tied_embeddings: bool
    max_length: int
    training: dict[str, object]
    updates_of_one: int  # of its updates for one of --every


# configs/iwslt14_deen_bpe.yaml and configs/transformer_small.yaml
IWSLT14 = Joey(
    n_layers=6, width=256, feed_forward=1024, dropout=0.3, tied_embeddings=True, max_length=62, updates_of_one=1,
    training={
        "normalization": "tokens", "decrease_factor": 0.7, "learning_rate": 3e-4, "learning_rate_min": 1e-8,
        "label_smoothing": 0.1, "batch_size": 4096, "batch_type": "token", "early_stopping_metric": "bleu",
    },
)  # fmt: skip
SMALL = Joey(
    n_layers=3, width=64, feed_forward=128, dropout=0.1, tied_embeddings=False, max_length=30, updates_of_one=20,
    training={
        "normalization": "batch", "decrease_factor": 0.5, "learning_rate": 0.005, "learning_rate_min": 0.0001,
        "label_smoothing": 0.0, "batch_size": 10, "batch_type": "sentence", "early_stopping_metric": "loss",
        "clip_grad_val": 1.0,
    },
)  # fmt: skip


def joeynmt_config(setting: Setting, vocabulary: Path, joey: Joey) -> dict[str, object]:
    """A configuration of JoeyNMT for cased text and one CPU, with our pieces and validations."""
    pieces = {"model_file": f"{vocabulary}.model", "model_type": "unigram", "pretokenizer": "none"}
    side = {"max_length": joey.max_length, "lowercase": False, "normalize": False, "level": "bpe", "voc_min_freq": 1}
    side |= {"voc_file": f"{vocabulary}.txt", "tokenizer_type": "sentencepiece", "tokenizer_cfg": pieces}
    stack = {
        "type": "transformer", "num_layers": joey.n_layers, "num_heads": 4, "hidden_size": joey.width,
        "ff_size": joey.feed_forward, "dropout": joey.dropout, "layer_norm": "pre", "activation": "relu",
        "embeddings": {"embedding_dim": joey.width, "scale": True, "dropout": 0.0},
    }  # fmt: skip
    source, target = setting.languages()
    symbols = {"unk": "<unk>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
    special = {f"{name}_token": token for name, token in symbols.items()}
    special |= {f"{name}_id": number for number, name in enumerate(symbols)}
    every = setting.every * joey.updates_of_one
    return {
        "name": setting.text, "joeynmt_version": "2.3.0", "model_dir": str(setting.folder / "model"),
        "use_cuda": False, "fp16": False, "random_seed": setting.seed,
        "data": {
            **{part: str(setting.folder / part) for part in ("train", "dev", "test")}, "dataset_type": "plain",
            "src": {"lang": source, **side}, "trg": {"lang": target, **side}, "special_symbols": special,
        },
        "testing": {
            "n_best": 1, "beam_size": 5, "beam_alpha": 1.0, "batch_size": 1024, "batch_type": "token",
            "eval_metrics": ["bleu"], "sacrebleu_cfg": {"tokenize": TEXTS[setting.text].tokenize},
        },
        "training": {
            "optimizer": "adamw", "adam_betas": [0.9, 0.999], "scheduling": "plateau", "patience": 5,
            "loss": "crossentropy", "weight_decay": 0.0, **joey.training, "epochs": 100_000,
            "validation_freq": every, "logging_freq": every, "keep_best_ckpts": 5, "shuffle": True,
            "print_valid_sents": [0],
        },
        "model": {
            "initializer": "xavier_uniform", "embed_initializer": "xavier_uniform", "embed_init_gain": 1.0,
            "init_gain": 1.0, "bias_initializer": "zeros", "tied_embeddings": joey.tied_embeddings,
            "tied_softmax": True, "encoder": stack, "decoder": stack,
        },
    }  # fmt: skip


def by_joeynmt(joey: Joey) -> Callable[[Setting], Trained]:
    def train(setting: Setting) -> Trained:
        """A run of JoeyNMT that is interrupted when the minutes are over, and its best checkpoint by dev."""
        python, folder, vocabulary = judge("joeynmt"), setting.folder, setting.folder / "pieces"
        training = setting.copy("train", "train")
        setting.copy("dev", "dev", N_DEV)
        setting.copy("test", "test")
        pieces = learn_pieces(training, setting.languages(), 4000, vocabulary)
        write_lines(vocabulary.with_suffix(".txt"), pieces)
        config, log, model = folder / "config.yaml", folder / "joeynmt.log", folder / "model"
        # No aliases: JoeyNMT changes what it has read.
        given = json.loads(json.dumps(joeynmt_config(setting, vocabulary, joey)))
        config.write_text(yaml.safe_dump(given), encoding="utf-8")
        command = ["env", f"JOEYNMT_BF16={'1' if setting.precision == 'bf16' else ''}", python, "-m", "joeynmt"]
        minutes = call([*command, "train", config, "--skip-test"], log, minutes=setting.minutes)
        if not (model / "best.ckpt").exists():  # the minutes were over before the first validation
            (model / "best.ckpt").symlink_to((model / "latest.ckpt").resolve())
        updates, best = (int((model / f"{name}.ckpt").resolve().stem) for name in ("latest", "best"))
        call([*command, "test", config, "--output-path", folder / "out"], log)
        return Trained(folder / "out.test", minutes, updates, best)

    return train


# ---- fairseq

# --bf16 sets --tpu as well, where no TPU is; and the fast path of its encoder lacks an argument of today's torch.
TRAIN = """
from fairseq import options
from fairseq_cli import train

parse = options.parse_args_and_arch
def parse_args_and_arch(*arguments, **more):
    args = parse(*arguments, **more)
    args.tpu = False
    return args
options.parse_args_and_arch = parse_args_and_arch
train.cli_main()
"""
GENERATE = """
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq_cli import generate

TransformerEncoderLayerBase.ever_training = property(lambda self: True, lambda self, value: None)
generate.cli_main()
"""


FAIRSEQ = [
    *["--arch", "transformer_iwslt_de_en", "--share-decoder-input-output-embed", "--dropout", "0.3"],
    *["--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--clip-norm", "0.0", "--weight-decay", "0.0001"],
    *["--lr", "5e-4", "--lr-scheduler", "inverse_sqrt", "--warmup-updates", "4000", "--max-tokens", "4096"],
    *["--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1", "--eval-bleu"],
    *["--eval-bleu-args", '{"beam": 5, "max_len_a": 1.2, "max_len_b": 10}', "--eval-bleu-remove-bpe", "sentencepiece"],
    *["--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric"],
]
ON_CPU = ["--cpu", "--num-workers", "0"]


def fairseq_texts(setting: Setting) -> list[str]:
    """The parts of the text in pieces, as the options of fairseq-preprocess that name them."""
    training = setting.copy("train", "train")
    parts = {"train": training, "valid": setting.copy("dev", "dev", N_DEV), "test": setting.copy("test", "test")}
    learn_pieces(training, setting.languages(), 10_000, setting.folder / "pieces")
    model = sentencepiece.SentencePieceProcessor(model_file=str(setting.folder / "pieces.model"))
    for part, path in parts.items():
        for language in setting.languages():
            lines = model.encode(read_lines(path.with_name(f"{path.name}.{language}")), out_type=str)
            write_lines(setting.folder / f"pieces-{part}.{language}", map(" ".join, lines))
    return [word for part in parts for word in (f"--{part}pref", str(setting.folder / f"pieces-{part}"))]


def fairseq(setting: Setting) -> Trained:
    """A run of fairseq that ends itself by --stop-time-hours, and its best checkpoint by dev BLEU."""
    python, folder, (source, target) = judge("fairseq"), setting.folder, setting.languages()
    log, binary, best = folder / "fairseq.log", folder / "binary", folder / "checkpoints" / "checkpoint_best.pt"
    text = [binary, "--source-lang", source, "--target-lang", target]
    prepare = [*text[1:], *fairseq_texts(setting), "--destdir", binary, "--joined-dictionary"]
    call([python, "-m", "fairseq_cli.preprocess", *prepare], log)
    each = [word for kind in ("validate", "save") for word in (f"--{kind}-interval-updates", str(setting.every))]
    each += ["--validate-interval", "1000000", "--save-interval", "1000000", "--keep-interval-updates", "1"]
    given = ["--stop-time-hours", str(setting.minutes / 60), "--seed", str(setting.seed), "--save-dir", best.parent]
    given += ["--no-progress-bar", "--log-format", "json", *(["--bf16"] if setting.precision == "bf16" else [])]
    minutes = call([python, "-c", TRAIN, *text, *FAIRSEQ, *each, *given, *ON_CPU], log)
    updates = max(map(int, re.findall(r'num_updates": "(\d+)"', log.read_text(encoding="utf-8"))))
    search = ["--beam", "5", "--max-len-a", "1.2", "--max-len-b", "10", "--remove-bpe", "sentencepiece"]
    printed = folder / "generate.log"
    call([python, "-c", GENERATE, *text, "--path", best, *search, "--max-tokens", "4096", *ON_CPU], printed)
    lines = [line[2:].split("\t") for line in read_lines(printed) if line.startswith("H-")]
    write_lines(folder / "out.test", (line for _, _, line in sorted(lines, key=lambda line: int(line[0]))))
    return Trained(folder / "out.test", minutes, updates, None)


RECIPES = ("auto", "files", "small")
SYSTEMS: dict[str, Callable[[Setting], Trained]] = {
    **{recipe: by_recipe(recipe) for recipe in RECIPES},
    "joeynmt": by_joeynmt(IWSLT14),
    "joeynmt_small": by_joeynmt(SMALL),
    "fairseq": fairseq,
}


# ---- Results


def bleu(reference: Path, translations: Path, tokenize: str) -> float:
    """BLEU as the command of sacrebleu prints it."""
    command = [sys.executable, "-m", "sacrebleu", str(reference), "-i", str(translations), "-tok", tokenize]
    return float(subprocess.run([*command, "-b", "-w", "2", "--force"], capture_output=True, check=True).stdout)


def run(bench: Bench, text: str, system: str, options: argparse.Namespace) -> dict[str, object]:
    """One run from its beginning, and its record."""
    folder = bench.runs / f"{text}-{system}-{options.minutes:g}m-{options.seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    done = SYSTEMS[system](
        Setting(bench, text, folder, options.minutes, options.every, options.seed, options.precision)
    )
    score = bleu(bench.files(text, "test")[1], done.translations, TEXTS[text].tokenize)
    given = {"row": text, "system": system, "budget": options.minutes, "seed": options.seed}
    given |= {"precision": options.precision, "overrides": bench.overrides if system in RECIPES else []}
    n_pairs = len(read_lines(bench.files(text, "train")[0]))
    record = {**given, "pairs": n_pairs, "bleu": score, "tokenize": TEXTS[text].tokenize, **asdict(done)}
    return {**record, "translations": str(done.translations)}


def table(results: Path) -> list[str]:
    """A line for each text and budget, a column for each system: BLEU, minutes and updates of its newest run."""
    records = [json.loads(line) for line in read_lines(results)]
    newest = {(one["row"], one["budget"], one["seed"], one["system"]): one for one in records}
    lines = [f"| text | pairs | minutes | seed | {' | '.join(SYSTEMS)} |", f"|---|{'---:|' * (3 + len(SYSTEMS))}"]
    for row, budget, seed in dict.fromkeys(key[:3] for key in newest):
        of_row = {system: newest.get((row, budget, seed, system)) for system in SYSTEMS}
        pairs = next(one["pairs"] for one in of_row.values() if one)
        cells = [
            f"{one['bleu']:.1f} ({one['minutes']:.0f}, {one['updates']:,})" if one else "" for one in of_row.values()
        ]
        lines.append(f"| {row} | {pairs:,} | {budget:g} | {seed} | {' | '.join(cells)} |")
    return [*lines, "", "BLEU (minutes of wall time of the command that trains, updates)."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the folder of the corpora, or table")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--only", choices=SYSTEMS, help="one system; unset: all, one after the other")
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=50, help="updates between validations of JoeyNMT and fairseq")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--out", type=Path, default=Path("runs/bench_auto_recipe"))
    options = parser.parse_intermixed_args()
    results = options.out.resolve() / "results.jsonl"
    if options.folder == "table":
        print(*table(results), sep="\n")
        return
    rows = [word for word in options.rows if "=" not in word]
    if unknown := [row for row in rows if row not in TEXTS]:
        parser.error(f"{unknown[0]}: no row. Rows: {', '.join(TEXTS)}")
    # A shell ignores SIGINT for what it starts in the background, and so would the programs that are interrupted by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    bench = Bench(Path(options.folder), results.parent, [word for word in options.rows if "=" in word])
    for row in rows:
        for system in [options.only] if options.only else SYSTEMS:
            record = json.dumps(run(bench, row, system, options))
            with results.open("a", encoding="utf-8") as file:
                file.write(f"{record}\n")
            print(record, flush=True)


if __name__ == "__main__":
    main()
