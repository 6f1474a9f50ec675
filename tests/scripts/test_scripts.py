"""Every script starts: at toy size, in a tree of links, so that nothing is written into the checkout."""

import ast
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.browser import NEEDS_CHROMIUM
from tests.support.each import each
from tests.toy.translator import PLAIN, sentences, toy_tokenizer
from tests.toy.translator import random_model as random_toy
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.models.file import ModelFile, write_model

SCRIPTS = {path.name: path for path in (ROOT / "scripts").iterdir() if path.is_file()}
PYTHON = {name for name in SCRIPTS if name.endswith(".py")}
# Scripts of which another test file starts the work.
STARTED_BY = {
    "attention_walk attention_walk.py": "scripts/test_attention_walk.py",
    "bench_alignment.py tag_placement.py": "scripts/test_bench_alignment.py",
    "bench_alignment_cost.py": "scripts/test_bench_alignment_cost.py",
    "bench_auto_recipe.py": "scripts/test_bench_auto_recipe.py",
    "bench_cleaning.py": "scripts/test_bench_cleaning.py",
    "bench_early_stopping.py": "scripts/test_bench_early_stopping.py",
    "bench_dual_cross_entropy.py": "scripts/test_bench_dual_cross_entropy.py",
    "bench_gpu bench_gpu.py": "scripts/test_bench_gpu.py",
    "bench_loop.py": "scripts/test_bench_loop.py",
    "bench_memory.py": "scripts/test_bench_memory.py",
    "bench_new_language.py": "scripts/test_bench_new_language.py",
    "bench_near_ties.py": "inference/test_decode_precision.py",
    "bench_nllb.py": "scripts/test_bench_nllb.py",
    "bench_pruning.py": "scripts/test_bench_pruning.py",
    "bench_written_tags.py": "scripts/test_bench_written_tags.py",
    "bench_readers.py bench_readers_xml.py": "scripts/test_bench_readers.py",
    "bench_office.py office_makers.py": "scripts/test_bench_office.py",
    "bench_vmap.py": "scripts/test_bench_vmap.py",
    "bench_regress bench_regress.py": "scripts/test_bench_scripts.py",
    "bench_small_models.py": "scripts/test_bench_small_models.py",
    "configuration configuration.py": "config/test_config.py",
    "deepl_suite": "scripts/test_deepl_suite.py",
    "house house.py": "house/test_architecture.py",
    "judges": "support/judges.py",
    "mutate": "scripts/test_mutate.py",
    "pretraining_text.py": "scripts/test_pretraining_text.py",
    "reliability reliability_table.py": "scripts/test_reliability.py",
    "table3 table3_table.py": "scripts/test_table3.py",
    "two_hosts": "training/test_two_hosts.py",
}
RUN_TESTS = {"browser", "check", "coverage", "environment", "test"}  # nothing but tests, or their environment

_WIDTHS = "model.d_model=16 model.d_ff=32 model.n_heads=2 model.n_encoder_layers=1 model.n_decoder_layers=1"
TRAINING = [
    *["device=cpu", "train.max_steps=2", "train.eval_every=2", "train.save_every=2", "train.eval_lines=4"],
    *["train.robustness_lines=0", "train.samples=0", "schedule.warmup_steps=1"],
]
TINY = [*_WIDTHS.split(), *TRAINING]
VOCABULARY = "data.tokenizer.vocab_size=60"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout by links, with the environment of this test as its .venv, and toy text and a toy model."""
    folder = tmp_path_factory.mktemp("scripts") / "a tree"
    (folder / ".venv").mkdir(parents=True)
    for path in Path(sys.prefix).iterdir():  # pyvenv.cfg among them, by which a Python knows its packages
        if not path.name.startswith("installed-"):
            (folder / ".venv" / path.name).symlink_to(path)
    for name in ("pyproject.toml", "constraints.txt", "configs", "scripts", "tests", "transformer_cli"):
        (folder / name).symlink_to(ROOT / name)
    pins = "cat pyproject.toml constraints.txt | cksum | tr -d ' '"
    done = subprocess.run(["bash", "-c", pins], cwd=folder, capture_output=True, text=True, check=True)
    (folder / ".venv" / f"installed-dev-{done.stdout.strip()}").touch()
    write_corpora(folder / "text")
    model, tokenizer = random_toy(toy_tokenizer()), toy_tokenizer()
    toy = ModelFile(PLAIN, Tokenizers(tokenizer, tokenizer), model.state_dict(), "en", "de", step=0)
    write_model(folder / "toy.safetensors", toy)
    return folder


def write_corpora(folder: Path) -> None:
    """Toy text by the names that the benchmarks ask for."""
    text = {"train": sentences(300, seed=1), "held": sentences(12, seed=2)}
    translation = {"en": lambda line: line, "de": str.upper, "fr": str.title}
    for corpus, names in (
        ("tatoeba_en_de", ("valid", "test")),
        ("multi30k", ("val", "test_2016_flickr", "newstest2013")),
    ):
        (folder / corpus).mkdir(parents=True)
        for language, change in translation.items():
            train, held = ("".join(f"{change(line)}\n" for line in text[kind]).encode() for kind in ("train", "held"))
            (folder / corpus / f"train.{language}.gz").write_bytes(gzip.compress(train))
            for name in names:
                (folder / corpus / f"{name}.{language}").write_bytes(held)
    classes = [f"{'long' if len(line) > 20 else 'short'}\t{line}\n" for line in text["train"]]
    (folder / "trec_questions").mkdir()
    for name, rows in (("train", classes[:250]), ("test", classes[250:])):
        (folder / "trec_questions" / f"{name}.tsv").write_text("".join(rows), encoding="utf-8")


def start(tree: Path, script: str, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a script in `tree`; its standard output."""
    command = [sys.executable] if script in PYTHON else []
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **(environment or {})}
    done = subprocess.run(
        [*command, str(tree / "scripts" / script), *arguments],
        cwd=tree, env=variables, capture_output=True, text=True, timeout=550, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def rows(table: str) -> list[list[str]]:
    """The cells of a Markdown table, without its head."""
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n") if line[:1] == "|"]
    return [row for row in found if not set("".join(row)) <= set("-: ")][1:]


def test_every_script_starts_in_a_test() -> None:
    """A script without a test fails here."""
    elsewhere = {name: file for names, file in STARTED_BY.items() for name in names.split()}
    cases = Path(__file__).read_text(encoding="utf-8").partition("def rows(")[2]
    here = {name for name in SCRIPTS if f'"{name}"' in cases}
    wrapped = {f"{name}.py" for name in here}
    assert SCRIPTS.keys() - wrapped == here | elsewhere.keys() | RUN_TESTS
    for names, file in STARTED_BY.items():  # the others of a group are its modules
        name = names.split()[0].removesuffix(".py")
        assert name in (ROOT / "tests" / file).read_text(encoding="utf-8"), name


@each("name", sorted(SCRIPTS))
def test_every_script_can_be_parsed(name: str) -> None:
    if name in PYTHON:
        ast.parse(SCRIPTS[name].read_text(encoding="utf-8"))
        return
    subprocess.run(["bash", "-n", str(SCRIPTS[name])], check=True)
    inner = SCRIPTS[name].read_text(encoding="utf-8").split("<<'PYTHON'\n")[1:]
    for program in inner:
        ast.parse(program.split("\nPYTHON\n")[0])


@pytest.mark.slow
def test_the_engines_are_timed(tree: Path) -> None:
    printed = start(tree, "bench_engine", "toy.safetensors", "text/multi30k/val.en", "1")
    assert [row[:2] for row in rows(printed)] == [
        [search, what] for search in ("greedy", "beam 4") for what in ("lines to lines", "one at a time")
    ]


@pytest.mark.slow
def test_batch_invariance_is_timed(tree: Path) -> None:
    printed = start(tree, "bench_exact", "toy.safetensors", "text/multi30k/val.en")
    assert [row[0] for row in rows(printed)] == ["greedy"] * 3 + ["beam 4"] * 3


@pytest.mark.slow
def test_implementations_are_timed(tree: Path) -> None:
    assert len(rows(start(tree, "bench_choices.py", "1"))) > 5
    assert len(rows(start(tree, "bench_choices.py", "search", "1"))) > 20
    assert len(rows(start(tree, "bench_choices.py", "steps", "1"))) == 5


@pytest.mark.slow
def test_the_data_path_is_measured(tree: Path) -> None:
    assert json.loads(start(tree, "bench_data.py", "plan", "1000"))["n_pairs"] == 1000


@pytest.mark.slow
def test_training_is_timed(tree: Path) -> None:
    sizes = ["lengths=wmt", "rounds=1", "n_updates=1", "rivals=false", VOCABULARY, *_WIDTHS.split()]
    tokens = ["train.tokens_per_update=400", "train.max_tokens_per_microbatch=400", "device=cpu"]
    assert start(tree, "bench_train", *sizes, *tokens).count("tfm") >= 2


@pytest.mark.slow
def test_translating_is_timed(tree: Path) -> None:
    small = ["rounds=1", "rivals=false", "n_lines=6", *_WIDTHS.split(), VOCABULARY]
    printed = start(tree, "bench_decode", "toy.safetensors", *small, environment={"DATA": str(tree / "text")})
    assert printed.count("beam 4: tfm") >= 3


@pytest.mark.slow
def test_waiting_threads_are_timed(tree: Path) -> None:
    printed = start(tree, "bench_threads", *_WIDTHS.split(), environment={"ROUNDS": "1"})
    assert [row[0] for row in rows(printed)] == ["idle", "one core busy"]
    assert all(cell.replace(",", "").isdigit() for row in rows(printed) for cell in row[2:])


@pytest.mark.slow
def test_the_server_is_timed(tree: Path) -> None:
    small = ["--lines", "8", "--clients", "2", "--rounds", "1", "--engine", "torch", "--device", "cpu"]
    assert rows(start(tree, "bench_serve", "throughput", "toy.safetensors", "text/multi30k/val.en", *small))


@pytest.mark.slow
def test_regularization_is_timed(tree: Path) -> None:
    sizes = ["lengths=wmt", VOCABULARY, "train.tokens_per_update=400", "train.max_tokens_per_microbatch=400"]
    printed = start(tree, "bench_regularization", "--rounds", "1", "--only", "SimCut", *sizes, *_WIDTHS.split())
    assert [row[0] for row in rows(printed)] == ["SimCut"]


@pytest.mark.slow
def test_optimizers_are_compared(tree: Path) -> None:
    root = ["data=files", "data.source_lang=en", "data.target_lang=de"]
    for role, name, ending in (("train", "train", ".gz"), ("dev", "val", ""), ("test", "test_2016_flickr", "")):
        sides = ",".join(f"text/multi30k/{name}.{language}{ending}" for language in ("en", "de"))
        root.append(f"data.{role}=[{sides}]")
    printed = start(tree, "bench_optimizers", *root, VOCABULARY, *TINY)
    assert [row[0] for row in rows(printed)] == [
        name for name in ("Adam, noam", "AdamW, cosine", "Muon, wsd") for _ in (0, 1)
    ]


@pytest.mark.slow
def test_fine_tuning_is_measured(tree: Path) -> None:
    printed = start(tree, "bench_fine_tuning", "text", VOCABULARY, *TINY, environment={"RUNS": str(tree / "tuned")})
    assert printed.count("BLEU") >= 12


@pytest.mark.slow
def test_classifiers_are_measured(tree: Path) -> None:
    small = ["data.tokenizer.vocab_size=auto", "data.holdout=20", *_WIDTHS.split()[:4], *TRAINING]
    one = {"CORPORA": "trec", "SEEDS": "1 2"}
    printed = start(tree, "bench_classification", "text", *small, environment=one)
    assert [row[2] for row in rows(printed)] == ["1", "2", "mean", "2 together"]


@pytest.mark.slow
def test_a_language_model_is_compared_with_n_grams(tree: Path) -> None:
    """Programs in place of KenLM's give every word and the end of each line the probability 0.1, so perplexity 10."""
    stand_ins = {
        "lmplz": "import sys\nsys.stdin.read()\nprint('model')",
        "query": "import sys\n"
        "for line in sys.stdin:\n"
        "    print(*(f'{word}=1 1 -1.0' for word in [*line.split(), '</s>']), sep='\\t', end='\\t')",
    }
    (tree / "kenlm").mkdir()
    for name, program in stand_ins.items():
        (tree / "kenlm" / name).write_text(f"#!{sys.executable}\n{program}\n", encoding="utf-8")
        (tree / "kenlm" / name).chmod(0o755)
    small = ["model.d_model=16", "model.d_ff=32", "model.n_heads=2", VOCABULARY, *TRAINING]
    kenlm = {"KENLM": str(tree / "kenlm")}
    printed = start(tree, "bench_language_model", "text/tatoeba_en_de", *small, environment=kenlm)
    found = {row[0]: row[1] for row in rows(printed)}
    assert found["5-gram, words"] == found["5-gram, words and marks apart"] == "10.00"
    assert float(found["tfm"]) > 1


@pytest.mark.slow
def test_the_quickstart_runs_all_its_commands(tree: Path) -> None:
    printed = start(tree, "quickstart", *TINY)
    assert "$ tfm evaluate" in printed
    assert printed.count("    → ") == 6


@pytest.mark.parametrize("script", [pytest.param("page_picture.py", marks=NEEDS_CHROMIUM)])
def test_a_page_is_photographed(tree: Path, script: str) -> None:
    page = tree / "page.html"
    page.write_text('<div id="stage">a</div><div id="detail">b</div>', encoding="utf-8")
    start(tree, script, str(page), "x=1", str(tree / "page.png"))
    assert (tree / "page.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("has_gpu", [False, True])
def test_without_a_gpu_the_build_of_torch_for_cpus_is_tried_first(tmp_path: Path, has_gpu: bool) -> None:
    """The Python of the environment is a program that records what it is started with, and has no torch."""
    if sys.platform != "linux":
        pytest.skip("other systems have one build")
    (tmp_path / "scripts").mkdir()
    for name in ("pyproject.toml", "constraints.txt", "scripts/environment"):
        (tmp_path / name).symlink_to(ROOT / name)
    programs = {".venv/bin/python": 'echo "$@" >>calls\n[ "$1" != -c ]'} | ({"bin/nvidia-smi": ""} if has_gpu else {})
    for name, program in programs.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(f"#!/bin/sh\n{program}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    variables = {**os.environ, "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    if (
        not has_gpu
        and subprocess.run(["sh", "-c", "command -v nvidia-smi"], env=variables, check=False).returncode == 0
    ):
        pytest.skip("this machine has a GPU")
    subprocess.run(["bash", "-c", ". scripts/environment plain"], cwd=tmp_path, env=variables, check=True)
    calls = (tmp_path / "calls").read_text(encoding="utf-8").split("\n")[:-1]
    installs = [call for call in calls if call.startswith("-m pip install")]
    assert ["whl/cpu torch==" in call for call in installs] == ([False] if has_gpu else [True, False])
    assert installs[-1].endswith("--editable .")


def test_an_environment_for_the_tests_serves_what_needs_less(tree: Path) -> None:
    """The extras that the environment of the tests holds are not installed once more."""
    program = (
        '. scripts/environment dev && for extra in plain bench export serve plots rouge; do install "$extra"; done'
    )
    done = subprocess.run(["bash", "-c", program], cwd=tree, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
