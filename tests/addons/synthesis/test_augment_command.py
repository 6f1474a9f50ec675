"""`tfm augment`: synthetic pairs are those of `tfm translate`, in shards and after a stop as in one go."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.addons.interop.test_export import tagged_model
from tests.support.contract import error_line, refused, run
from tests.support.each import each
from tests.toy.run import model_file, packed, sentences
from transformer_cli.addons.synthesis import work as work_module
from transformer_cli.addons.synthesis.filters import PairFilters
from transformer_cli.addons.synthesis.keys import Choose
from transformer_cli.addons.synthesis.methods import Synthesis
from transformer_cli.addons.synthesis.run_augment import language_of_text
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.results import Candidate, Translated
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import ConfigError

KEEP_ALL = ["max_ratio=null", "drop_copies=false", "drop_loops=false", "drop_unfinished=false", "device=cpu"]
LINES = [*sentences(23, seed=5), "", "  ", "a b"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model from en to fr, a text, and references for it."""
    (tmp_path / "model.safetensors").write_bytes(packed(model_file()))
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in LINES))
    (tmp_path / "references").write_text("".join(f"{line}\n" for line in reversed(LINES)))
    return tmp_path


def augment(folder: Path, *arguments: str) -> str:
    ran = run(["augment", *arguments, *(KEEP_ALL if "merge" not in arguments else [])], folder)
    assert (ran.code, ran.err) == (0, b""), ran.err.decode()
    return ran.out.decode()


def refuse(arguments: list[str], folder: Path, code: int, message: str) -> None:
    refused(arguments, folder, code=code, says=[message])


def made(folder: Path, name: str, *languages: str) -> list[list[str]]:
    return [(folder / f"{name}.{language}").read_text().split("\n")[:-1] for language in languages]


MODEL = ("--checkpoint", "model.safetensors", "--input", "in.txt")
GREEDY = ("decode.search=greedy", "decode.beam_size=1")
BEAM = ("decode.beam_size=2", "decode.max_extra_length=5")
NOT_SETTINGS = ("format", "first_line", "lines", "translations", "pairs", "dropped", "sha256")  # of a report
SAMPLE = ("decode.search=sample", "decode.beam_size=1")


@pytest.mark.parametrize(("method", "languages"), [("distill", ("en", "fr")), ("back-translate", ("fr", "en"))])
def test_the_pairs_are_the_lines_and_their_translations(folder: Path, method: str, languages: tuple[str, str]) -> None:
    printed = augment(folder, method, *MODEL, *GREEDY, "--output", "out")
    translated = run(["translate", *MODEL, *GREEDY, "device=cpu"], folder).out.decode().split("\n")
    expected = [pair for pair in zip(LINES, translated, strict=False) if pair[0].strip() and pair[1].strip()]
    given, translations = made(folder, "out", "en", "fr")
    assert list(zip(given, translations, strict=True)) == expected
    assert f"out: {len(expected)} pairs of {len(LINES)} lines; dropped: " in printed
    assert "2 blank" in printed
    assert f"out.{languages[0]},out.{languages[1]}]" in printed
    report = json.loads((folder / "out.json").read_bytes())
    assert (report["languages"], report["lines"], report["pairs"]) == ([*languages], len(LINES), len(expected))


def test_shards_are_merged_to_what_one_run_makes(folder: Path) -> None:
    """Sampling draws by the number of a line, which a shard knows of."""
    augment(folder, "distill", *MODEL, *SAMPLE, "--output", "whole")
    for number in (3, 1, 2):
        augment(folder, "distill", *MODEL, *SAMPLE, "--output", "parts", "--shard", f"{number}/3")
    assert "parts: " in augment(folder, "merge", "--output", "parts")
    assert made(folder, "parts", "en", "fr") == made(folder, "whole", "en", "fr")
    assert (folder / "whole.json").read_bytes() == (folder / "parts.json").read_bytes()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_goes_on_after_its_last_block(
    folder: Path, signum: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["distill", *MODEL, *SAMPLE, "block_lines=5", "--output"]
    augment(folder, *arguments, "whole")
    n_blocks = 0
    write_whole = work_module.write_whole

    def dying(file: Path, *pieces: Any) -> None:
        nonlocal n_blocks
        n_blocks += file.name.startswith("block-")
        if n_blocks == 3:
            signal.raise_signal(signum)
        write_whole(file, *pieces)

    with monkeypatch.context() as patch:
        patch.setattr(work_module, "write_whole", dying)
        stopped = run(["augment", *arguments, "stopped", *KEEP_ALL], folder)
    assert stopped.code == 128 + signum
    says = f"stopped by {signum.name}: the blocks that are finished are kept. Go on with `tfm augment distill"
    assert says in stopped.err.decode()
    assert not (folder / "stopped.en").exists()
    assert len(list((folder / "stopped.work").glob("block-*"))) == 2

    other = ["augment", *arguments, "stopped", *KEEP_ALL, "seed=2"]
    refuse(other, folder, 2, "stopped.work: holds unfinished work with other settings (seed). Repeat its command")

    ran = run(["augment", *arguments, "stopped", *KEEP_ALL], folder)
    assert (ran.code, b"stopped: 10 of 26 lines were there already" in ran.err) == (0, True)
    assert made(folder, "stopped", "en", "fr") == made(folder, "whole", "en", "fr")
    assert not (folder / "stopped.work").exists()


@pytest.mark.parametrize(("own", "used"), [([1.4], 1.4), ([None], 0.6), ([1.4, 0.4], 0.9)])
def test_the_length_penalty_of_the_search_is_kept_beside_the_pairs(
    folder: Path, own: list[float | None], used: float
) -> None:
    """Another length penalty makes other pairs."""
    arguments = ["augment", "distill", "--input", "in.txt", *BEAM, "--output", "out", *KEEP_ALL]
    for n, alpha in enumerate(own):
        (folder / f"{n}.safetensors").write_bytes(packed(replace(model_file(), length_penalty=alpha)))
        arguments += ["--checkpoint", f"{n}.safetensors"]
    code = run(arguments, folder).code
    assert code in (0, 3)  # these random models leave no pair, but a report
    report = json.loads((folder / "out.json").read_bytes())
    assert report["decode"]["length_penalty"] == used
    ran = run([*arguments, f"decode.length_penalty={used}"], folder)
    assert (ran.code, b"was made before" in ran.err) == (code, True)
    other = [*arguments, "decode.length_penalty=0.2"]
    refuse(other, folder, 2, "out.json: exists already. Add --overwrite")

    (folder / "out.work").mkdir()  # as a stopped run leaves it
    begun = {key: report[key] for key in report if key not in NOT_SETTINGS}
    (folder / "out.work/settings.json").write_text(json.dumps(begun))
    (folder / "out.work/block-000000000001.json").write_text("[1, [], {}]")
    for path in (folder / "out.en", folder / "out.fr", folder / "out.json"):
        path.unlink()
    refuse(other, folder, 2, "out.work: holds unfinished work with other settings (decode). Repeat its command")
    assert run(arguments, folder).code == code


def test_what_was_made_before_is_not_made_again(folder: Path) -> None:
    arguments = ["distill", *MODEL, *GREEDY, "--output", "out"]
    first = augment(folder, *arguments)
    ran = run(["augment", *arguments, *KEEP_ALL], folder)
    assert (ran.code, ran.out.decode(), b"was made before" in ran.err) == (0, first, True)
    refuse(["augment", *arguments, *KEEP_ALL, "seed=2"], folder, 2, "out.json: exists already. Add --overwrite")


def test_a_corpus_that_was_damaged_is_not_made_again_unasked(folder: Path) -> None:
    """An edited file would be lost."""
    arguments = ["augment", "distill", *MODEL, *GREEDY, *KEEP_ALL, "--output", "out"]
    assert run(arguments, folder).code == 0
    whole = made(folder, "out", "en", "fr")
    (folder / "out.fr").write_text("edited\n")
    refuse(arguments, folder, 2, "out.fr: was made before with these settings, and was edited since. Add --overwrite")
    assert (folder / "out.fr").read_text() == "edited\n"
    (folder / "out.fr").unlink()
    refuse(arguments, folder, 2, "out.fr: was made before with these settings, and has gone. Add --overwrite")
    assert run([*arguments, "--overwrite"], folder).code == 0
    assert made(folder, "out", "en", "fr") == whole


def test_a_merged_corpus_that_was_edited_is_not_merged_again_unasked(folder: Path) -> None:
    for number in (1, 2):
        augment(folder, "distill", *MODEL, *GREEDY, "--output", "out", "--shard", f"{number}/2")
    augment(folder, "merge", "--output", "out")
    whole = made(folder, "out", "en", "fr")
    (folder / "out.fr").write_text("edited\n")
    merging = ["augment", "merge", "--output", "out"]
    refuse(merging, folder, 2, "out.fr: was made before with these settings, and was edited since. Add --overwrite")
    assert (folder / "out.fr").read_text() == "edited\n"
    augment(folder, "merge", "--output", "out", "--overwrite")
    assert made(folder, "out", "en", "fr") == whole


def test_chrf_chooses_the_hypothesis_that_is_most_similar_to_the_reference(folder: Path) -> None:
    n_best = [*SAMPLE, "decode.n_best=4"]
    augment(folder, "distill", *MODEL, *n_best, "--choose", "chrf", "--reference", "references", "--output", "out")
    from sacrebleu import sentence_chrf

    ran = run(["translate", *MODEL, *n_best, "device=cpu"], folder)
    hypotheses: dict[int, list[str]] = {}
    for row in ran.out.decode().split("\n")[:-1]:
        number, text, _ = row.split(" ||| ")
        hypotheses.setdefault(int(number), []).append(text)
    references = list(reversed(LINES))
    expected = []
    for number, texts in hypotheses.items():
        best = max(texts, key=lambda text: sentence_chrf(text, [references[number - 1]]).score)
        if LINES[number - 1].strip() and best.strip():
            expected.append(best)
    assert len(expected) > 9
    assert made(folder, "out", "fr") == [expected]


def test_all_of_the_n_best_list_are_pairs_but_what_is_there_twice(folder: Path) -> None:
    n_best = [*SAMPLE, "decode.n_best=4", "decode.top_k=2"]
    printed = augment(folder, "distill", *MODEL, *n_best, "--choose", "all", "--output", "out")
    ran = run(["translate", *MODEL, *n_best, "device=cpu"], folder)
    rows = [row.split(" ||| ")[:2] for row in ran.out.decode().split("\n")[:-1]]
    distinct = list(dict.fromkeys((LINES[int(number) - 1], text, number) for number, text in rows))
    kept = [(line, text) for line, text, _ in distinct if line.strip() and text.strip()]
    assert 26 < len(kept) < len(rows) - 9
    assert list(zip(*made(folder, "out", "en", "fr"), strict=True)) == kept
    report = json.loads((folder / "out.json").read_bytes())
    assert (report["lines"], report["translations"], report["pairs"]) == (len(LINES), len(rows), len(kept))
    assert report["pairs"] + sum(report["dropped"].values()) == report["translations"]
    assert report["dropped"]["repeated"] == len(rows) - len(distinct)
    assert f"out: {len(kept)} pairs of 26 lines, {len(rows)} translations; dropped: " in printed


@given(texts=st.lists(st.sampled_from(["x", "y y", "z", "", "a a a a a a"]), min_size=1, max_size=8))
@example(texts=["x", "z", "x"])  # two segmentations of one text, and another between them
def test_all_of_the_n_best_list_stay_in_their_order(texts: list[str]) -> None:
    """The best of equal texts is kept, in its place, and filters take others out between the rest."""
    tokenizer = model_file().tokenizers.source
    candidates = [Candidate(text, -float(i), hit_limit=text == "z") for i, text in enumerate(texts)]
    translator = SimpleNamespace(
        translate=lambda lines, first_line: [Translated(candidates) for _ in lines],
        tokenizers=Tokenizers(tokenizer, tokenizer),
        engine=SimpleNamespace(text=SimpleNamespace(target_lang="fr")),
    )
    filters = PairFilters(max_ratio=None, copies=True, loops=True, unfinished=True)
    made = Synthesis(cast(Translator, translator), filters, False, "fr", Choose.all)(["b", "c"], 1)
    kept = [text for text in dict.fromkeys(texts) if text in ("x", "y y")]
    assert made.pairs == [(line, text) for line in "bc" for text in kept]
    assert (made.n_lines, made.n_translations) == (2, 2 * len(texts))


def test_pairs_below_the_score_of_the_forward_model_are_dropped(folder: Path) -> None:
    """The forward model is that which made the pairs, so its scores of the lines are those of `tfm score`."""
    from dataclasses import replace

    reverse = replace(model_file(seed=3), source_lang="fr", target_lang="en")
    (folder / "reverse.safetensors").write_bytes(packed(reverse))
    made_by = ["--checkpoint", "reverse.safetensors", "--input", "in.txt", *GREEDY]
    augment(folder, "back-translate", *made_by, "--output", "all")
    sources, lines = made(folder, "all", "en", "fr") if (folder / "all.fr").exists() else ([], [])
    assert sources
    rows = "".join(f"{source}\t{line}\n" for source, line in zip(sources, lines, strict=True)).encode()
    scored = run(["score", "--checkpoint", "model.safetensors", "--json", "device=cpu"], folder, stdin=rows)
    per_token = [one["log_prob"] / one["n_tokens"] for one in map(json.loads, scored.out.split(b"\n")[:-1])]
    limit = sorted(per_token)[len(per_token) // 2]
    printed = augment(
        folder,
        "back-translate",
        *made_by,
        "--output",
        "few",
        "--forward",
        "model.safetensors",
        f"min_score={limit - 1e-3}",
    )
    kept = [
        pair for pair, score in zip(zip(sources, lines, strict=True), per_token, strict=True) if score >= limit - 1e-3
    ]
    assert list(zip(*made(folder, "few", "en", "fr"), strict=True)) == kept
    assert 0 < len(kept) < len(lines)
    assert f"{len(lines) - len(kept)} forward score" in printed


def test_a_merge_refuses_a_missing_a_doubled_and_a_changed_shard(folder: Path) -> None:
    for number in (1, 2):
        augment(folder, "distill", *MODEL, *GREEDY, "--output", "out", "--shard", f"{number}/3")
    merging = ["augment", "merge", "--output", "out"]
    refuse(merging, folder, 3, "out: 1 of 3 shards are missing (3). Make them, as shard=3/3")
    augment(folder, "distill", *MODEL, *GREEDY, "--output", "out", "--shard", "1/2")
    refuse(merging, folder, 3, "out: there are shards of 2 and of 3, which hold the same lines. Remove those of")
    for file in folder.glob("out.1-of-2.*"):
        file.unlink()
    augment(folder, "distill", *MODEL, *SAMPLE, "--output", "out", "--shard", "3/3")
    refuse(merging, folder, 3, "out.3-of-3: made with other settings than out.1-of-3 (decode). Make one again")
    augment(folder, "distill", *MODEL, *GREEDY, "--output", "out", "--shard", "3/3", "--overwrite")
    (folder / "out.2-of-3.fr").write_text("x\n")
    refuse(merging, folder, 3, "out.2-of-3: its text has changed since it was made. Make the shard again")
    augment(folder, "distill", *MODEL, *GREEDY, "--output", "out", "--shard", "2/3", "--overwrite")
    for ending in ("en", "fr", "json"):
        (folder / f"out.2-of-3.{ending}").write_bytes((folder / f"out.1-of-3.{ending}").read_bytes())
    refuse(merging, folder, 3, "out.2-of-3.json: holds shard 1/3, not 2/3. Make shard=2/3 again")
    for also in ("out.01-of-3.json", "out.4-of-3.json"):
        (folder / also).write_bytes((folder / "out.1-of-3.json").read_bytes())
        refuse(
            merging, folder, 3, f"{also}: not the name of a shard, which begins at 1-of-N, ends at N-of-N and has no"
        )
        (folder / also).unlink()
    refuse(["augment", "merge", "--output", "other"], folder, 3, "other: no shard is finished")
    refuse([*merging, "--input", "in.txt"], folder, 2, "input: of pairs that are made, and merge joins")
    assert not (folder / "out.json").exists()


HOLDS = "import fcntl, sys; lock = open(sys.argv[1], 'ab'); fcntl.lockf(lock, fcntl.LOCK_EX); print(); input()"


@pytest.mark.slow
@pytest.mark.parametrize("unfinished", ["out", "out.2-of-2"])
def test_a_merge_leaves_unfinished_work_alone(folder: Path, unfinished: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with --overwrite was stopped, and its older shard is there and whole; or a run without shards was."""
    for number in (1, 2):
        augment(folder, "distill", *MODEL, *GREEDY, "--output", "out", "--shard", f"{number}/2")
    again = ["distill", *MODEL, *GREEDY, "seed=2", "block_lines=5", "--output", "out", "--overwrite"]
    again += ["--shard", "2/2"] * (unfinished != "out")
    work = folder / f"{unfinished}.work"

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(work_module, "publish", stop)
        assert run(["augment", *again, *KEEP_ALL], folder).code == 130
    blocks = sorted(path.name for path in work.glob("block-*"))
    assert len(blocks) > 1
    merging = ["augment", "merge", "--output", "out"]
    message = f"{work.name}: holds unfinished work on {unfinished}. Repeat its command to finish it, or remove"
    for arguments in (merging, [*merging, "--overwrite"]):
        refuse(arguments, folder, 2, message)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, work / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        refuse(merging, folder, 5, f"{work.name}: another process works there. Wait for it, or end it")
        other.communicate(b"\n")
    assert sorted(path.name for path in work.glob("block-*")) == blocks
    assert not (folder / "out.json").exists()
    for path in work.iterdir():
        path.unlink()
    work.rmdir()
    augment(folder, "merge", "--output", "out")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "no method given. Name back-translate, distill, merge or loop"),
        (["distil", *MODEL, "--output", "out"], 2, "method=distil: unknown; did you mean `distill`?"),
        (["distill", *MODEL, "--output", "in.txt/"], 2, "--output in.txt/: names a folder. Name the corpus in it"),
        (["distill", *MODEL, "--output", "out", "--min-score", "-1"], 2, "min_score=-1: is of the model of --forward"),
        (["distill", *MODEL, "--output", "out", "decode.n_best=2"], 2, "decode.n_best=2: all but the best are unused"),
        (["distill", *MODEL, "--output", "out", "--choose", "all"], 2, "choose=all: needs several translations"),
        (["distill", *MODEL, "--output", "out", "--shard", "1/2,2/2"], 2, "several need -m, as in `-m shard=1/2,2/2`"),
        (["distill", "--input", "in.txt"], 2, "--output: not given"),
        (["distill", "--output", "out"], 2, "--input: not given"),
        (["distill", *MODEL, "--output", "out", "--shard", "4/3"], 2, "shard=4/3: must be I/N with I from 1 to N"),
        (["distill", *MODEL, "--output", "out", "--choose", "chrf"], 2, "choose=chrf: compares with references"),
        (["distill", *MODEL, "--output", "out", "--reference", "references"], 2, "--reference references: is not used"),
        (["distill", *MODEL, "--output", "out", "--forward", "model.safetensors"], 2, "forward: scores back-transl"),
        (
            ["back-translate", *MODEL, "--output", "out", "--forward", "model.safetensors"],
            2,
            "--forward: translates en → fr, but the pairs are fr → en",
        ),
    ],
)
def test_what_cannot_be_is_refused(folder: Path, arguments: list[str], code: int, message: str) -> None:
    refuse(["augment", *arguments, "device=cpu"], folder, code, message)


def test_references_of_another_length_are_refused(folder: Path) -> None:
    (folder / "references").write_text("one\n")
    with_them = [*MODEL, "--choose", "chrf", "--reference", "references", "decode.n_best=2", "--output", "out"]
    refuse(["augment", "distill", *with_them], folder, 3, "references: has 1 lines, and in.txt 26")


LINE, GOOD, UNSPACED = "a line that is copied", "eine gute Übersetzung davon", "今日は晴れです。明日は雨でしょう。"


@each(
    "source, translation, n_tokens, is_unfinished, reason",
    [
        (LINE, GOOD, (5, 5), False, None),
        (LINE, "", (5, 0), False, "empty"),
        (LINE, "la la la la la la la la", (5, 8), False, "loop"),
        (LINE, LINE, (5, 5), False, "copy"),
        (UNSPACED, UNSPACED, (20, 20), False, "copy"),
        (LINE, GOOD, (5, 5), True, "unfinished"),
        (LINE, GOOD, (5, 17), False, None),  # 18 = 3 · 6, with EOS
        (LINE, GOOD, (5, 18), False, "length ratio"),
    ],
)
def test_why_a_pair_is_dropped(
    source: str, translation: str, n_tokens: tuple[int, int], is_unfinished: bool, reason: str | None
) -> None:
    filters = PairFilters(max_ratio=3.0, copies=True, loops=True, unfinished=True)
    assert filters.reason(source, translation, n_tokens, is_unfinished=is_unfinished) == reason


def test_a_corpus_without_a_pair_is_an_error_and_a_shard_without_one_is_not(folder: Path) -> None:
    (folder / "in.txt").write_text("\n \n")
    making = ["augment", "distill", *MODEL, *GREEDY, *KEEP_ALL, "device=cpu", "--output"]
    for _ in range(2):  # the second finds what the first has made
        ran = run([*making, "out"], folder)
        says = [
            "out: no pair is left of 2 lines (2 blank), so there is nothing to train on. Check the text and the model"
        ]
        error_line(ran, code=3, says=says, working=True)
    for number in (1, 2):
        assert run([*making, "parts", "--shard", f"{number}/2"], folder).code == 0
    error_line(run(["augment", "merge", "--output", "parts"], folder), code=3, says=["parts: no pair is left of 2"])


def test_a_merge_never_replaces_the_text_that_its_shards_were_made_from(folder: Path) -> None:
    for number in (1, 2):
        augment(folder, "distill", *MODEL, *GREEDY, "--output", "out", "--shard", f"{number}/2")
    text = (folder / "in.txt").read_bytes()
    (folder / "out.en").write_bytes(text)  # as if it had been --input out.en in another folder
    merging = ["augment", "merge", "--output", "out"]
    refuse(merging, folder, 2, "out.en: is the text that the shards were made from")
    refuse([*merging, "--overwrite"], folder, 2, "out.en: is the text that the shards were made from")
    assert (folder / "out.en").read_bytes() == text
    (folder / "out.en").unlink()
    augment(folder, "merge", "--output", "out")
    augment(folder, "merge", "--output", "out", "--overwrite")  # whose source side is the same text


def test_a_file_of_the_user_is_never_replaced(folder: Path) -> None:
    """`--output corpus` beside --input corpus.en would write the corpus over its input."""
    (folder / "in.txt").rename(folder / "corpus.en")
    given = ["augment", "distill", "--checkpoint", "model.safetensors", "--input", "corpus.en", "--output"]
    refuse([*given, "corpus"], folder, 2, "corpus.en: both --input and --output. Choose another --output")
    refuse([*given, "corpus", "--overwrite"], folder, 2, "corpus.en: both --input and --output")
    refuse([*given, "corpus", "--shard", "1/2"], folder, 2, "corpus.en: both --input and --output")
    (folder / "other.fr").write_text("mine\n")
    refuse([*given, "other"], folder, 2, "other.fr: exists already. Add --overwrite, or choose another --output")


def test_text_in_the_language_of_the_translations_is_refused(folder: Path) -> None:
    (folder / "in.txt").rename(folder / "in.fr")
    given = ["augment", "back-translate", "--checkpoint", "model.safetensors", "--output", "bt", "--input"]
    refuse([*given, "in.fr"], folder, 3, "in.fr: is fr by its name, but the model translates en → fr. Choose another")
    words = "le chat est dans la maison et les chiens sont avec une femme qui est pour nous\n"
    (folder / "text").write_text(words * 20)
    refuse([*given, "text"], folder, 3, "text: reads like fr, but the model translates en → fr. Choose another")


def test_lines_that_are_not_utf_8_are_counted_and_windows_ends_are_none_of_the_text(folder: Path) -> None:
    augment(folder, "distill", *MODEL, *SAMPLE, "--output", "out")
    lines = [line.encode() for line in LINES]
    lines[3] = b"\xe9"
    (folder / "in.txt").write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines))
    assert "1 not UTF-8" in augment(folder, "distill", *MODEL, *SAMPLE, "--output", "odd")
    expected = [pair for pair in zip(*made(folder, "out", "en", "fr"), strict=True) if pair[0] != LINES[3]]
    assert list(zip(*made(folder, "odd", "en", "fr"), strict=True)) == expected
    strict = ["augment", "distill", *MODEL, *SAMPLE, "--output", "strict", "--strict", "device=cpu"]
    refuse(strict, folder, 3, "in.txt:4: byte 0xe9 at column 1 is not UTF-8")


@pytest.mark.slow
def test_a_sweep_makes_all_shards_and_the_same_again_those_that_failed(folder: Path) -> None:
    sweep = ["augment", "distill", *MODEL, *GREEDY, "--output", "out", *KEEP_ALL, "-m", "shard=1/3,2/3,3/3"]
    (folder / "out.2-of-3.fr").write_text("in the way\n")
    failed = run(sweep, folder)
    assert failed.code == 2, failed.err.decode()
    assert b"1 of 3 runs failed, shard=2/3: out.2-of-3.fr: exists already." in failed.err
    rows = [line.split() for line in failed.out.decode().split("\n") if line]
    start = rows.index(["corpus", "shard", "lines", "pairs", "dropped", "minutes"])
    assert [row[:2] for row in rows[start + 1 : start + 4]] == [["out.1-of-3", "1/3"], ["2/3"], ["out.3-of-3", "3/3"]]
    (folder / "out.2-of-3.fr").unlink()
    ran = run(sweep, folder)
    assert ran.code == 0, ran.err.decode()
    rows = [line.split() for line in ran.out.decode().split("\n") if line]
    start = rows.index(["corpus", "shard", "lines", "pairs", "dropped", "minutes"])
    assert [row[-1] == "before" for row in rows[start + 1 : start + 4]] == [True, False, True]
    assert sum(int(row[2]) for row in rows[start + 1 : start + 4]) == len(LINES)
    augment(folder, "merge", "--output", "out")
    twice = [*sweep[:-1], "seed=1,2"]
    refuse(twice, folder, 2, "out (shard=1/1): two runs would write it. Sweep over shard=")


# ---- Tags


@pytest.fixture
def tagged(folder: Path) -> Path:
    """A model from en to de and fr, whose lines may also begin with <bt>."""
    model = replace(tagged_model(), target_lang="de+fr", data={"tags": ["<2de>", "<2fr> <bt>"]})
    (folder / "model.safetensors").write_bytes(packed(model))
    (folder / "in.txt").write_text("the cat sat down .\n<2fr> a woman .\n<2de> in her chair\n<2de> <bt> the cat\n")
    return folder


def test_a_target_language_is_chosen_where_there_are_several(tagged: Path) -> None:
    for method in ("distill", "back-translate"):
        arguments = ["augment", method, *MODEL, *GREEDY, "--output", "out", "device=cpu"]
        refuse(arguments, tagged, 2, "--tag: names none of the target languages de+fr. Choose one (tags: <2fr>, <2de>,")
    assert not list(tagged.glob("out*"))


def test_lines_keep_their_tags_and_the_training_command_names_them(tagged: Path) -> None:
    """A line whose tag asks for another language is dropped."""
    printed = augment(tagged, "distill", *MODEL, *GREEDY, "--output", "out", "--tag", "<2de>")
    kept = ["the cat sat down .", "<2de> in her chair", "<2de> <bt> the cat"]
    assert made(tagged, "out", "en")[0] == kept
    assert "1 tag of another language" in printed
    (tagged / "in.txt").write_text("".join(f"{line}\n" for line in kept))
    translated = run(["translate", *MODEL, "--tag", "<2de>", *GREEDY, "device=cpu"], tagged).out.decode()
    assert made(tagged, "out", "de")[0] == translated.split("\n")[:-1]
    assert """'data.tags=["<2de>"]' 'data.dev_tags=["<2de>"]'""" in printed
    assert printed.rstrip().endswith("""'data.line_tags=["<2de>","<bt>"]'""")


def test_no_tag_is_in_the_target_of_a_back_translation(tagged: Path) -> None:
    augment(tagged, "back-translate", *MODEL, *GREEDY, "--output", "out", "--tag", "<2de>")
    assert made(tagged, "out", "en")[0] == ["the cat sat down .", "in her chair", "the cat"]


def test_a_text_for_a_model_of_several_languages_says_by_its_name_which_it_is_in() -> None:
    assert language_of_text(Path("web.txt"), "fr") == "fr"
    assert [language_of_text(Path(name), "en+fr") for name in ("web.fr", "a.b/web.en.gz")] == ["fr", "en"]
    with pytest.raises(ConfigError, match=r"web\.txt: the model reads en\+fr, .*Call it web\.en if it is in en"):
        language_of_text(Path("web.txt"), "en+fr")
