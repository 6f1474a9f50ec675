"""Fault rows B of the environment: streams, locale, network, home, limits, memory, device. Test names carry the row."""

import json
import os
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import slow
from tests.data.test_corpus_faults import CORPUS, TRAIN, write
from tests.golden.make import FOLDER
from tests.support.contract import error_line, refused, run, tree, untouched
from tests.support.forked import PROGRAM, Forked, Ran, environment
from tests.toy.run import append, sentences, tokenizers
from transformer_cli.cli import main
from transformer_cli.data.batching import BatchPlan, micro_batches
from transformer_cli.data.cache import CorpusWriter, EncodedCorpus

MODEL = ["--checkpoint", "model.safetensors", "--device", "cpu", "decode=greedy"]
TRANSLATE = ["translate", *MODEL, "--engine", "torch"]
EVALUATE = ["evaluate", *MODEL, "--source", "text", "--reference", "text", "--save", "hypotheses"]
ODD_NAME = "größe 50%\nx ☃"


def fill(folder: Path) -> Path:
    """A corpus with letters beyond ASCII in its text and in its names, a model and a text."""
    folder.mkdir(exist_ok=True)
    lines = sentences(60, seed=1)
    write(folder / "kö.en", [f"{line} é" for line in lines])
    write(folder / "kö.de", [f"ü {line}" for line in lines])
    (folder / "text").write_text("a b c\nd é ☃\n", encoding="utf-8")
    (folder / "model.safetensors").write_bytes((FOLDER / "joint-pre.safetensors").read_bytes())
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fill(tmp_path)


Process = subprocess.Popen[bytes] | Forked


def begun(command: Sequence[str], folder: Path, *, env: Mapping[str, str] | None = None) -> Process:
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment(env), stdin=pipe, stdout=pipe, stderr=pipe)


def ended(process: Process, stdin: bytes = b"") -> Ran:
    out, err = process.communicate(stdin)
    assert process.returncode is not None
    return Ran(process.returncode, out, err)


# ---- The same bytes everywhere: prepare, train, translate and evaluate in one process, in other surroundings

PIPELINE = [
    ["prepare", *CORPUS, "data.train=['kö.en','kö.de']"],
    [*TRAIN, "data.train=['kö.en','kö.de']"],
    ["translate", "--input", "text", "--output", "öut", "decode=greedy", "--device", "cpu"],
    ["translate", "decode=greedy", "--device", "cpu"],
    ["evaluate", "--source", "kö.en", "--reference", "kö.de", "--save", "hypotheses ☃", "--device", "cpu"],
]
ALL_OF_IT = """
import json, sys
from transformer_cli import cli

def everything(main=cli.main):
    return next((code for line in json.loads(sys.argv[1]) if (code := main(line))), 0)

cli.main = everything
cli.entry_point()
"""


def unshare_works() -> bool:
    return subprocess.run(["unshare", "--map-root-user", "--net", "--mount", "true"], check=False).returncode == 0


SHUT_OFF = ["unshare", "--map-root-user", "--net", "--mount", "sh", "-c",
            'mount -t tmpfs -o ro none "$HOME" && exec "$@"', "sh"] if unshare_works() else []  # fmt: skip
SURROUNDINGS: dict[str, tuple[list[str], dict[str, str]]] = {
    "usual": ([], {"LC_ALL": "C.UTF-8"}),
    # Python takes a C locale for UTF-8, unless an option forbids it.
    "ASCII": (
        ["env", "-u", "HOME"],
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"},
    ),
    "Latin-1": (SHUT_OFF, {"LC_ALL": "POSIX", "PYTHONIOENCODING": "latin-1"}),
}
WRITTEN = ["öut", "hypotheses ☃", "runs/run/model.safetensors", "runs/run/config.yaml"]
TYPED = b"a b c\n\nd \xc3\xa9 \xe2\x98\x83\n\xff"


Pipelines = dict[str, tuple[Path, Ran]]


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> Pipelines:
    """The outcome of the pipeline in two of the surroundings."""
    return pipelines_in(["usual", "Latin-1"], tmp_path_factory)


@pytest.fixture(scope="module")
def in_ascii(pipelines: Pipelines, tmp_path_factory: pytest.TempPathFactory) -> Pipelines:
    """The outcome of the pipeline in all three surroundings."""
    return pipelines | pipelines_in(["ASCII"], tmp_path_factory)


def pipelines_in(names: list[str], tmp_path_factory: pytest.TempPathFactory) -> Pipelines:
    processes: dict[str, tuple[Path, Process]] = {}
    for name in names:
        before, env = SURROUNDINGS[name]
        folder = fill(tmp_path_factory.mktemp("pipeline") / ODD_NAME)
        env = {"HOME": str(tmp_path_factory.mktemp("home")), **env}
        pipeline = json.dumps(PIPELINE)
        if before:
            processes[name] = folder, begun([*before, sys.executable, "-c", ALL_OF_IT, pipeline], folder, env=env)
        else:
            processes[name] = folder, Forked([pipeline], folder, env=env, program=ALL_OF_IT)
    return {name: (folder, ended(process, TYPED)) for name, (folder, process) in processes.items()}


def same_bytes(pipelines: Pipelines, name: str) -> None:
    (usual, expected), (there, ran) = pipelines["usual"], pipelines[name]
    assert expected.code == 0, expected.err.decode()
    assert ran.code == 0, ran.err.decode()
    assert ran.out == expected.out
    for file in WRITTEN:
        assert (there / file).read_bytes() == (usual / file).read_bytes(), file


@pytest.mark.slow
def test_B6_B17_B18_no_byte_depends_on_the_locale_the_network_or_a_home(pipelines: Pipelines) -> None:
    """One run without all three; where namespaces need privileges, without the locale alone."""
    same_bytes(pipelines, "Latin-1")


@pytest.mark.slow
def test_B6_B17_no_byte_depends_on_an_ascii_locale_or_on_whether_there_is_a_home(in_ascii: Pipelines) -> None:
    same_bytes(in_ascii, "ASCII")


def test_B7_blanks_newlines_and_unicode_in_a_path_work(pipelines: Pipelines) -> None:
    folder, ran = pipelines["usual"]
    assert folder.name == ODD_NAME
    assert ran.code == 0, ran.err.decode()
    assert ran.err.endswith("translations: hypotheses ☃\n".encode())
    (run,) = (path.name for path in (folder / "runs").iterdir() if path.name != "latest")
    assert f"\nkö.en, 60 lines, runs/{run}/model.safetensors\n" in ran.out.decode()


def test_B7_a_name_that_needs_quotes_is_shown_as_it_was_typed(folder: Path) -> None:
    says = ["data.train=[kö[1].en,kö[1].de]", "quote a value that holds brackets"]
    refused(["prepare", *CORPUS, "data.train=[kö[1].en,kö[1].de]"], folder, code=2, says=says)


# ---- Where something is missing or full


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_B4_a_full_disk_behind_stdout_is_one_line(folder: Path) -> None:
    before = tree(folder)
    for arguments in (["--help"], ["train", "--cfg"], ["completion", "bash"], EVALUATE, TRANSLATE):
        ran = run(arguments, folder, stdin=b"a b\n", stdout="/dev/full")
        error_line(ran, code=5, says=["standard output: No space left on device"], working=arguments is EVALUATE)
    untouched(before, folder, new=["hypotheses"])


def test_B6_a_cache_that_cannot_be_written_is_named(folder: Path) -> None:
    (folder / "shut").mkdir(mode=0o500)
    command = ["prepare", *CORPUS, "data.train=['kö.en','kö.de']", "data.cache=shut/data"]
    refused(command, folder, code=5, says=["shut/data: ", "Permission denied", "data.cache"], as_root=False)


def test_B6_a_cache_below_an_unknown_home_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_user(_: object) -> None:
        raise KeyError("no such user")

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", no_such_user)
    command = ["prepare", *CORPUS, "data.train=['kö.en','kö.de']"]
    refused([*command, "data.cache='~/cache'"], folder, code=5, says=["~/cache: ", "HOME"])
    refused([*command, "data.root='~/texts'"], folder, code=5, says=["~/texts: ", "HOME"])


@contextmanager
def descriptors_left(n: int) -> Iterator[None]:
    """Let this process open `n` more files, and no more."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + n + 2, limits[1]))
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for _ in range(n):
        os.close(held.pop())
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in held:
            os.close(descriptor)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_B7_too_few_open_files_are_one_line_wherever_they_run_out(folder: Path) -> None:
    command = [*TRAIN, "data.train=['kö.en','kö.de']"]
    run(command, folder)  # so that all that is imported is, and runs/latest is there
    before, codes = {name: kind for name, kind in tree(folder).items() if name != "runs/latest"}, []
    for n in range(7, 30):
        with descriptors_left(n):  # seven of them are the test's own
            ran = run([*command, f"name=with-{n}", f"data.cache=cache-{n}"], folder)
        codes.append(ran.code)
        if ran.code == 0:
            break
        error_line(ran, code=5, says=["Too many open files"], working=True)
    assert codes[-1] == 0
    assert len(codes) > 3
    untouched(before, folder, new=["runs/with-*", "runs/latest", "cache-*"])


@pytest.mark.parametrize(
    ("command", "code"),
    [
        slow([*TRAIN, "data.train=['kö.en','kö.de']", f"runs={'x/' * 3000}"], 5),
        (["prepare", *CORPUS, "data.train=['kö.en','kö.de']", f"data.cache={'x' * 300}"], 5),
        (["prepare", *CORPUS, f"data.train=[{'x' * 300},y]"], 5),
        (["translate", "--checkpoint", "x" * 300], 5),
        (["translate", *MODEL, "--input", "x" * 300], 5),
        (["translate", *MODEL, "--input", "text", "--output", "x" * 300], 5),
        ([*EVALUATE[:-1], "x" * 300], 5),
        (["train", "--config-dir", "x" * 300], 5),
    ],
    ids=["runs", "cache", "corpus", "checkpoint", "input", "output", "hypotheses", "configs"],
)
def test_B7_a_name_that_is_too_long_is_one_line(folder: Path, command: list[str], code: int) -> None:
    refused(command, folder, code=code, says=["xxx" if "runs" not in str(command) else "x/x"])


# ---- Memory


def test_B10_training_holds_no_text_in_memory_but_some_bytes_a_pair(
    tmp_path: Path, figures: Callable[[str, str], None]
) -> None:
    ids, n_pairs, longest = tokenizers(), 50_000, 200
    rng = np.random.default_rng(1)
    sizes = {"source_vocab_size": len(ids.source), "target_vocab_size": len(ids.target)}
    with CorpusWriter(tmp_path, **sizes) as writer:
        for _ in range(10):
            pairs = [rng.integers(4, 25, longest).tolist() for _ in range(n_pairs // 100)]
            for _ in range(10):
                append(writer, pairs, pairs)
    on_disk = sum(path.stat().st_size for path in tmp_path.glob("*.ids"))
    tracemalloc.start()  # NumPy reports its arrays to it; pages of mapped files are the system's, to take back at will
    corpus = EncodedCorpus.open(tmp_path, **sizes)
    plan = BatchPlan(corpus.source_lengths, corpus.target_lengths, tokens_per_update=4000, seed=1)
    for step in range(50):
        assert micro_batches(corpus, plan.update(step), ids, max_tokens=4000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    figures("B10 peak bytes a pair of a mapped corpus", f"{peak / n_pairs:.0f}, of {on_disk / n_pairs:.0f} on disk")
    assert peak < 0.2 * on_disk
    assert peak / n_pairs < 150


# ---- Device


@pytest.mark.parametrize("command", [TRAIN, ["translate", *MODEL], EVALUATE], ids=lambda command: command[0])
def test_B14_a_gpu_that_is_not_there_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.version.cuda", "13.0")
    given = [word for word in command if word not in ("--device", "cpu", "device=cpu")]
    says = ["device=cuda: no CUDA device visible. Use device=cpu"]
    refused([*given, "device=cuda"], folder, code=5, says=says)


def test_B15_a_precision_that_a_cpu_lacks_is_named_with_one_that_it_has(folder: Path) -> None:
    command = [*TRAIN, "data.train=['kö.en','kö.de']"]
    refused([*command, "train.precision=fp16"], folder, code=5, says=["train.precision=fp16: ", "train.precision=fp32"])
    refused([*command, "train.precision=tf32"], folder, code=5, says=["train.precision=tf32: ", "train.precision=fp32"])
    assert run([*command, "train.precision=bf16"], folder).code == 0


# ---- Standard streams


@pytest.mark.slow
def test_B19_a_closed_stdin_is_named_and_without_any_stream_a_file_is_translated(tmp_path: Path) -> None:
    """Three commands at once, each with streams closed. What a closed stderr would hear goes nowhere else."""
    commands = {
        "<&-": ["translate", *MODEL],
        "2>&-": ["trian"],
        "<&- >&- 2>&-": ["translate", *MODEL, "--output", "out", "--input", "text"],
    }
    processes = {}
    for n, (closed, arguments) in enumerate(commands.items()):
        command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", PROGRAM, *arguments]
        processes[closed] = begun(command, fill(tmp_path / str(n)))
    ran = {closed: ended(process) for closed, process in processes.items()}
    error_line(ran["<&-"], code=3, says=["standard input: closed", "--input"])
    assert ran["2>&-"] == Ran(2, b"", b"")
    assert ran["<&- >&- 2>&-"] == Ran(0, b"", b"")
    assert (tmp_path / "2" / "out").read_bytes().count(b"\n") == 2


@pytest.mark.parametrize("command", [EVALUATE, ["translate", *MODEL]], ids=["evaluate", "translate"])
def test_B19_a_closed_stdout_is_named_before_anything_is_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], command: list[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.stdout", None)
    code = main(command)
    error_line(Ran(code, b"", capfd.readouterr().err.encode()), code=5, says=["standard output: closed. Open it"])
    assert not (folder / "hypotheses").exists()
