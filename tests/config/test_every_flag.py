"""Every flag of every command, with a value that is not its default: it sets its key, and the command does it.

A flag without a value in `VALUES` or without a case in `RUNS` fails here.
"""

import dataclasses
import json
import re
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.addons.classification.toy_classifier import random_model as classifier_model
from tests.addons.interop.test_export import tagged_model
from tests.addons.interop.toy_huggingface import opus
from tests.addons.language_models.toy_text import content as language_model_content
from tests.addons.masked_language_models.toy_masked import content as masked_content
from tests.addons.question_answering.toy_questions import random_model as answers_model
from tests.addons.tagging.toy_tagger import random_model as tagger_model
from tests.config.test_every_key import at, differing
from tests.golden.make import FOLDER
from tests.support.contract import run
from tests.toy.run import model_file, packed, sentences
from transformer_cli.cli import main
from transformer_cli.command import COMMANDS, Flag
from transformer_cli.models.file import ModelFile, read_model, write_model

EVERY_FLAG = [(command, flag) for command in COMMANDS for flag in COMMANDS[command].flags]


# ---- A flag sets its key

# By flag, or by command and flag; of a number 3 (or 0.5) where nothing is said, of a switch nothing.
VALUES: dict[str, str] = {
    "--alignments": "a.txt",
    "--among": "b c",
    "--teacher": "a=b, c.safetensors",
    "--size": "tiny",
    "--api-keys": "keys",
    "--checkpoint": "a=b, c.safetensors",
    "--choose": "all",
    "--comet-model": "a/model.ckpt",
    "--comet-python": "/opt/comet/bin/python",
    "--command": "translate",
    "--cors": "https://example.org",
    "--device": "cpu",
    "--engine": "ctranslate2",
    "--format": "conllu",
    "--forward": "forward",
    "--from": "fr",
    "--from-name": "no",
    "--host": "0.0.0.0",
    "--html": "page.html",
    "--hypotheses": "out.de",
    "--input": "12:30",
    "--kind": "encoder",
    "--languages": "en-no",
    "--layer": "3",
    "--license": "1e3",
    "--lines": "lines",
    "--list": "corpus.csv",
    "--link": "it chair",
    "--log-format": "json",
    "--metrics": "ter",
    "--min-score": "-0.5",
    "--name": "1_000",
    "--nbest": "lists",
    "--language-model": "lm",
    "--metric": "ter",
    "--reverse": "back",
    "--weights": "w.json",
    "--feature": "f=values",
    "--on-issue": "retry",
    "--output": "out.html",
    "--text": "a = [mask]",
    "--output-format": "jsonl",
    "--package-version": "2.5",
    "--passage": "passage.txt",
    "--pivot": "no",
    "--pooling": "max",
    "--prefix": "prefixes",
    "--prompt": "a = b",
    "--quantization": "int16",
    "--question": "Who = it?",
    "--reference": "r.de",
    "--report": "robustness",
    "--save": "saved",
    "--scores": "scores.json",
    "--search": "greedy",
    "--segmenter": "s.model",
    "--samples": "30",
    "--sentence-scores": "scores.jsonl",
    "--shard": "2/3",
    "--source": "s.en",
    "--source-lang": "no",
    "--table": "markdown",
    "--tag": "<2de> <bt>",
    "--target": "t.fr",
    "--target-lang": "de",
    "--terms": "t.tsv",
    "--test-set": "wmt15",
    "--to-name": "Norsk, bokmål",
    "--to": "fra_Latn",
    "--tokenize": "intl",
    "--tokens": "words",
    "--translation": "t.de",
    "--vocabulary": "v.spm",
    "answer --format": "jsonl",
    "translate --format": "srt",
    "embed --output": "a.npy",
    "prepare --report": "cleaning.html",
    "translate --report": "to_check.tsv",
    "config --command": "score",
    "serve --engine": "torch",
}

# What a flag cannot be given without.
WITH: dict[str, list[str]] = {
    "translate --reference": ["explain=true"],
    "translate --report": ["format=srt"],
    "translate --fail-on-flags": ["format=srt"],
    "translate --token-scores": ["output_format=jsonl"],
    "answer --question": ["passage=a"],
    "answer --n-best": ["output_format=jsonl"],
    "augment --reference": ["method=distill", "choose=chrf", "decode.n_best=2"],
    "augment --choose": ["decode.n_best=2"],
    "augment --n-best": ["choose=all"],
    "augment --forward": ["method=back-translate"],
    "augment --min-score": ["method=back-translate", "forward=a"],
    "embed --nearest": ["among=a"],
    "embed --among": ["nearest=2"],
    "evaluate --source": ["reference=a"],
    "evaluate --reference": ["source=a"],
    "evaluate --hypotheses": ["reference=a"],
    "evaluate --languages": ["test_set=wmt14"],
    "compare --source": ["reference=a"],
    "compare --languages": ["test_set=wmt14"],
    "score --translation": ["source=a"],
    "align --tag": ["checkpoint=a"],
    "align --from": ["checkpoint=a"],
    "align --to": ["checkpoint=a"],
    "align --device": ["checkpoint=a"],
    "export --from-name": ["format=argos"],
    "export --to-name": ["format=argos"],
    "bench --from": ["checkpoint=a"],
    "bench --to": ["checkpoint=a"],
    "reproduce --name": ["reproduction=demo_en_fr"],
}
ARGUMENTS = {
    "augment": ["distill"],
    "compare": ["a", "b"],
    "bench": ["train"],
    "replay": ["x"],
    "import": ["x"],
    "push": ["hf:a/b"],
}


def value_of(command: str, option: str) -> str:
    flag = COMMANDS[command].flags[option]
    given = VALUES.get(f"{command} {option}", VALUES.get(option))
    if given is None:
        assert flag.kind in (bool, int, float), f"{command} {option}: give it a value in VALUES"
        return {bool: "", int: "3", float: "0.5"}[flag.kind]
    return given


def typed(flag: Flag, value: str) -> Any:
    wanted: Any = True if flag.kind is bool else flag.kind(value)
    return [wanted] if flag.repeated else wanted


_printed: dict[tuple[str, ...], str] = {}


def printed(capsys: pytest.CaptureFixture[str], command: str, words: list[str]) -> dict[str, Any]:
    """The config that --cfg prints; of the same words once."""
    method = ["distill"] if command == "augment" and not any("method=" in word for word in words) else []
    arguments = method or ([] if command == "augment" else ARGUMENTS.get(command, []))
    line = (command, *arguments, *words, "--cfg")
    if line not in _printed:
        assert main(line) == 0, capsys.readouterr().err
        _printed[line] = capsys.readouterr().out
    found: dict[str, Any] = yaml.load(_printed[line], Loader=yaml.CSafeLoader)
    return found


@pytest.mark.parametrize(("command", "option"), EVERY_FLAG)
def test_a_flag_sets_its_key_and_nothing_else(capsys: pytest.CaptureFixture[str], command: str, option: str) -> None:
    flag, value = COMMANDS[command].flags[option], value_of(command, option)
    beside = WITH.get(f"{command} {option}", [])
    if command == "config":
        pytest.skip("its words are those of another command, and so is --cfg")
    without = printed_without(capsys, command, flag, beside)
    found = printed(capsys, command, [option, *([value] if value else []), *beside])
    wanted, set_to = typed(flag, value), at(found, flag.key)
    assert set_to in (wanted, [wanted], *(wanted if isinstance(wanted, list) else []))
    assert dict(differing(found, without)).keys() == {flag.key}


def printed_without(capsys: pytest.CaptureFixture[str], command: str, flag: Flag, beside: list[str]) -> dict[str, Any]:
    """The config without a flag; the keys that are legal beside it alone are put in behind."""
    needs = [word for word in beside if not word.startswith(("method=", "reproduction="))]
    kept = [word for word in beside if word not in needs]
    found = printed(capsys, command, kept)
    for word in needs:
        key, _, value = word.partition("=")
        *groups, last = key.split(".")
        group = found
        for name in groups:
            group = group[name]
        was = group[last]
        group[last] = [value] if isinstance(was, list) else yaml.safe_load(value)
    return found


# ---- A command does what a flag asks for


@dataclass(frozen=True)
class Case:
    """A command line behind the command and its base, with what shows that the flag was followed."""

    words: str
    says: str = ""  # a pattern in what is printed; unset: something else than without the flag
    code: int = 0
    stdin: str = "a b c\nd e\n"
    writes: str = ""  # a file
    same: bool = False  # nothing else is printed
    base: str | None = None
    marks: Any = field(default_factory=tuple)


def heavy(*arguments: Any, **options: Any) -> Case:
    """A case that takes long: slow."""
    return Case(*arguments, **options, marks=pytest.mark.slow)


KEEP = "max_ratio=null drop_copies=false drop_loops=false drop_unfinished=false decode.max_extra_length=5 device=cpu"
BACK = f"back-translate --checkpoint m --input two --output out {KEEP}"
FEW = "samples=20 trials=20"
LOOP = "data=files data.train=[two,two] data.source_lang=en data.target_lang=fr data.clean=[]"
BASE = {
    "augment loop": f"{LOOP} --target text.fr device=cpu",
    "translate": "--checkpoint m device=cpu decode.max_extra_length=3",
    "serve": "--check --checkpoint m engine=torch device=cpu decode.max_extra_length=3",
    "augment": f"distill --checkpoint m --input text --output out {KEEP}",
    "classify": "--checkpoint classes device=cpu",
    "tag": "--checkpoint tagger device=cpu",
    "answer": "--checkpoint answers device=cpu",
    "embed": "--checkpoint m device=cpu",
    "evaluate": "--checkpoint m --source text --reference text.fr device=cpu decode.max_extra_length=3 metrics=[chrf]",
    "compare": "one.fr two.fr --reference text.fr metrics=[chrf] samples=20 trials=20 --output page.html",
    "score": "--checkpoint m --source text --translation text.fr device=cpu",
    "shortlist": "--checkpoint m --source text --translation text.fr --output list",
    "align": "text text.fr",
    "rerank": "lists device=cpu",
    "attention": "--checkpoint m device=cpu decode.max_extra_length=3",
    "generate": "--checkpoint lm device=cpu decode.max_length=4",
    "fill": "'the [mask] sat' --checkpoint masked device=cpu",
    "average": "--checkpoint m2 --checkpoint m3 --output mean",
    "export": "argos --checkpoint m --output m.argosmodel",
    "inspect": "m",
    "import": "hf opus --output new compare=false",
    "config": "",
    "push": "hf:a/b --checkpoint m",
    "prepare": "data=files data.source_lang=en data.target_lang=fr",
    "train": "",
    "bench": "machine",
}


RUNS: dict[str, dict[str, Case]] = {
    "translate": {
        "--checkpoint": Case("--checkpoint m2", r"\S"),
        "--beam": Case("--beam 2 --output-format jsonl", r'"beam:2|score'),
        "--input": Case("--input text", stdin=""),
        "--output": Case("--output out.txt", writes="out.txt"),
        "--overwrite": Case("--output text.fr --overwrite", writes="text.fr"),
        "--format": Case("--format html", "<p>.*</p>", stdin="<p>a b c</p>"),
        "--n-best": Case("--n-best 2", r"1 \|\|\| .*\n1 \|\|\| "),
        "--output-format": Case("--output-format moses", r"^0 \|\|\| "),
        "--prefix": Case("--prefix prefixes", "^a b.*\nb a"),
        "--tag": Case("--checkpoint tagged --tag <2de>", r"\S", base="device=cpu decode.max_extra_length=3"),
        "--from": Case("--from xx", "--from xx: not a language", code=2),
        "--to": Case("--to xx", "--to xx: not a language", code=2),
        "--terms": Case("--terms terms", "j i h"),
        "--alignments": Case("--alignments a.txt", writes="a.txt"),
        "--report": Case("--report r.tsv --format html", writes="r.tsv", stdin="<p>a b c</p>"),
        "--fail-on-flags": Case(
            "--fail-on-flags --format html", "1 of 1 texts have flags", code=8, stdin="<p>a {name} c</p>"
        ),
        "--token-scores": Case("--token-scores --output-format jsonl", '"token'),
        "--explain": Case("--explain", "%|probab|step"),
        "--reference": Case("--explain --reference two", "reference"),
        "--on-issue": Case("--on-issue retry", r"\S"),
        "--strict": Case("--strict --input latin1", ":2: byte", code=3),
        "--engine": heavy("--engine ctranslate2", same=True),
        "--device": Case("--device cpu", same=True),
    },
    "serve": {
        "--checkpoint": Case("--checkpoint back", "fr → en", base="--check engine=torch device=cpu"),
        "--host": heavy("--host 0.0.0.0", "en → fr"),
        "--port": heavy("--port 0", "en → fr"),
        "--pivot": Case("--checkpoint m --checkpoint to-de --pivot fr", "to-de", base="--check engine=torch"),
        "--beam": heavy("--beam 2", "en → fr"),
        "--engine": heavy("--engine ctranslate2", "en → fr", base="--check --checkpoint m device=cpu"),
        "--device": heavy("--device cpu", "en → fr", base="--check --checkpoint m engine=torch"),
        "--api-keys": Case("--api-keys nowhere", "nowhere", code=2),
        "--cors": Case("--cors example.org", "is no origin", code=2),
        "--log-format": heavy("--log-format json", "en → fr"),
        "--check": Case("--check", "en → fr", base="--checkpoint m engine=torch device=cpu"),
    },
    "augment": {
        "--checkpoint": Case(
            "--checkpoint m", "out: 6 pairs of 6 lines", base=f"distill --input text --output out {KEEP}"
        ),
        "--input": Case("--input two", "2 pairs of 2 lines", base=f"distill --checkpoint m --output out {KEEP}"),
        "--output": Case("--output x", "x: 2 pairs", writes="x.fr", base=f"distill --checkpoint m --input two {KEEP}"),
        "--overwrite": Case(
            "--output made --overwrite", writes="made.json", base=f"distill --checkpoint m --input two {KEEP}"
        ),
        "--shard": Case("--shard 2/2", "of [23] lines"),
        "--reference": Case("--reference text.fr --choose chrf --n-best 2", "6 pairs of 6 lines"),
        "--choose": Case("--choose all --n-best 2", r"(7|8|9|10|11|12) pairs of 6 lines"),
        "--forward": Case("--forward back min_score=-1000", "2 pairs of 2 lines", base=BACK),
        "--min-score": Case(
            "--forward back --min-score -0.001", "no pair is left of 2 lines .*score", code=3, base=BACK
        ),
        "--beam": Case("--beam 1", "6 pairs of 6 lines"),
        "--n-best": Case("--n-best 3 --choose all", r"(1\d) pairs of 6 lines"),
        "--tag": Case("--tag <2de>", "<2de>", code=2),
        "--from": Case("--from xx", "--from xx: not a language", code=2),
        "--to": Case("--to xx", "--to xx: not a language", code=2),
        "--strict": Case(
            "--strict", ":2: byte", code=3, base=f"distill --checkpoint m --input latin1 --output out {KEEP}"
        ),
        "--engine": heavy("--engine ctranslate2", "6 pairs"),
        "--device": Case("--device cuda", "cuda", code=5, base="distill --checkpoint m --input two --output out"),
    },
    "classify": {
        "--checkpoint": Case("--checkpoint m", "m: this is a translator", code=4, base=""),
        "--input": Case("--input two", r"^\w+\n\w+\n$", stdin=""),
        "--output": Case("--output out.txt", writes="out.txt"),
        "--overwrite": Case("--output two --overwrite", writes="two"),
        "--html": Case("--html page.html", "self_attentive", code=2),
        "--probabilities": Case("--probabilities", r"^high\t0\.\d+\t0\.\d+\t0\.\d+\n"),
        "--output-format": Case("--output-format jsonl", r'^\{.*"low"'),
        "--strict": Case("--strict --input latin1", ":2: byte", code=3),
        "--device": Case("--device cpu", same=True, base="--checkpoint classes"),
    },
    "answer": {
        "--checkpoint": Case("--checkpoint m", "m: this is a translator", code=4, base=""),
        "--passage": Case("--passage two", r"\S"),
        "--question": Case("--passage two --question h", r"^.*\S\n$", stdin=""),
        "--input": Case("--input asked", r"^\S.*\n\S", stdin=""),
        "--output": Case("--output out.txt", writes="out.txt", stdin="h\ta b\n"),
        "--overwrite": Case("--output two --overwrite", writes="two", stdin="h\ta b\n"),
        "--strict": Case("--strict --input latin1", ":2: byte", code=3),
        "--format": Case("--format jsonl", r"^[ab]", stdin='{"question": "h", "passage": "a b"}\n'),
        "--probabilities": Case("--probabilities", r"\t[01]\.\d{6}\n", stdin="h\ta b\n"),
        "--output-format": Case("--output-format jsonl", r'^\{.*"start"', stdin="h\ta b\n"),
        "--n-best": Case("--output-format jsonl --n-best 2", r'"answers": \[\{[^{]*\{[^{]*$', stdin="h\ta b\n"),
        "--device": Case("--device cpu", same=True, base="--checkpoint answers", stdin="h\ta b\n"),
    },
    "tag": {
        "--checkpoint": Case("--checkpoint m", "m: this is a translator", code=4, base=""),
        "--input": Case("--input two", r"^\S+ \S+", stdin=""),
        "--output": Case("--output out.txt", writes="out.txt"),
        "--overwrite": Case("--output two --overwrite", writes="two"),
        "--format": Case("--format conll", "^a .*\nb .*\n\nd ", stdin="a\nb\n\nd\n"),
        "--output-format": Case("--output-format jsonl", r'^\{.*"words"'),
        "--strict": Case("--strict --input latin1", ":2: byte", code=3),
        "--device": Case("--device cpu", same=True, base="--checkpoint tagger"),
    },
    "embed": {
        "--checkpoint": Case("--checkpoint classes", r"\[", base="device=cpu"),
        "--input": Case("--input text", stdin=""),
        "--output": Case("--output v.npy", writes="v.npy"),
        "--overwrite": Case("--output old.npy --overwrite", writes="old.npy"),
        "--tokens": Case("--tokens words", r"\["),
        "--layer": Case("--layer 0"),
        "--pooling": Case("--pooling max"),
        "--nearest": Case("--nearest 2 --among text", r"text|\t", stdin="a b\n"),
        "--among": Case("--nearest 1 --among text.fr", r"\t", stdin="a b\n"),
        "--strict": Case("--strict --input latin1", ":2: byte", code=3),
        "--device": Case("--device cpu", same=True, base="--checkpoint m"),
    },
    "evaluate": {
        "--checkpoint": Case(
            "--checkpoint m2", "chrF", base="--source two --reference two device=cpu metrics=[chrf] --save s"
        ),
        "--beam": Case("--beam 2 --json", '"search": "[^"]*beam_size:2'),
        "--source": Case("--source two --reference two", "chrF", base="--checkpoint m device=cpu metrics=[chrf]"),
        "--reference": Case("--reference two.fr", "nrefs:2"),
        "--test-set": Case("--test-set list", "wmt14", base=""),
        "--languages": Case("--languages en-de", "--test-set", code=2),
        "--hypotheses": Case("--hypotheses one.fr --reference text.fr", "chrF", base="metrics=[chrf]"),
        "--save": Case("--save saved.txt", writes="saved.txt"),
        "--overwrite": Case("--save one.fr --overwrite", writes="one.fr"),
        "--sentence-scores": Case("--sentence-scores s.jsonl", writes="s.jsonl"),
        "--tag": Case("--tag <2de>", "<2de>", code=2),
        "--from": Case("--from xx", "--from xx: not a language", code=2),
        "--to": Case("--to xx", "--to xx: not a language", code=2),
        "--tokenize": Case(
            "--tokenize char", "tok:char", base="--hypotheses one.fr --reference text.fr metrics=[bleu]"
        ),
        "--comet-model": Case(
            "--comet-model nowhere/model.ckpt",
            "nowhere",
            code=2,
            base="--source text --reference text.fr --hypotheses one.fr metrics=[comet]",
        ),
        "--comet-python": Case(
            "--comet-python nowhere",
            "nowhere",
            code=5,
            base="--source text --reference text.fr --hypotheses one.fr metrics=[comet]",
        ),
        "--trust-comet-model": heavy("--trust-comet-model", "chrF"),
        "--robustness": Case("--robustness robustness_lines=2", "upper|capital"),
        "--report": Case("--report robustness robustness_lines=2", "upper|capital"),
        "--json": Case("--json", r"^\s*\{"),
        "--table": Case(
            "--table csv", r"^test set,lines,chrF2", base="--hypotheses one.fr --reference text.fr metrics=[chrf]"
        ),
        "--engine": heavy("--engine ctranslate2", "chrF"),
        "--device": Case("--device cpu", "chrF", base="--checkpoint m --source two --reference two metrics=[chrf]"),
    },
    "compare": {
        "--source": Case("--source text", "chrF"),
        "--reference": Case("--reference two.fr", "nrefs:2"),
        "--test-set": Case("--test-set nowhere", "nowhere", code=2, base="one.fr two.fr"),
        "--languages": Case("--languages en-de", "--test-set", code=2),
        "--metrics": Case("--metrics ter", "TER", base=f"one.fr two.fr --reference text.fr {FEW}"),
        "--output": Case("--output p.html", writes="p.html", base=f"one.fr two.fr --reference text.fr {FEW}"),
        "--overwrite": Case("--overwrite", "page.html"),
        "--json": Case("--json", r"^\s*\{"),
        "--table": Case("--table markdown", r"^\| system +\| chrF2 score \|"),
        "--seed": Case("--seed 5 --json", "seed:5"),
        "--samples": Case(
            "--samples 30 --json", "bs:30", base="one.fr two.fr --reference text.fr metrics=[chrf] trials=20"
        ),
        "--tokenize": Case(
            "--tokenize char --json", "tok:char", base=f"one.fr two.fr --reference text.fr metrics=[bleu] {FEW}"
        ),
        "--comet-model": heavy("--comet-model nowhere/model.ckpt", "chrF"),
        "--comet-python": heavy("--comet-python nowhere", "chrF"),
        "--trust-comet-model": heavy("--trust-comet-model", "chrF"),
        "--beam": heavy("--beam 2", "chrF"),
        "--tag": heavy("--tag <2de>", r"tag|chrF"),
        "--from": Case("--from en", "chrF"),
        "--to": Case("--to fr", "chrF"),
        "--engine": heavy("--engine torch", "chrF"),
        "--device": heavy("--device cpu", "chrF"),
    },
    "shortlist": {
        "--checkpoint": Case("--checkpoint m2 --source text --translation text.fr --output list", "^list$", base=""),
        "--source": Case("--source two --translation two --checkpoint m --output list", "^list$", base=""),
        "--translation": Case("--translation one.fr --source text --checkpoint m --output list", "^list$", base=""),
        "--output": Case("--checkpoint m --source text --translation text.fr --output other", "^other$", base=""),
        "--overwrite": Case("--overwrite", "^list$"),
    },
    "align": {
        "--source": Case("--source text --translation text.fr", r"^0-0 .*1-1", base=""),
        "--translation": Case("--translation text.fr --source text", r"^0-0 .*1-1", base=""),
        "--checkpoint": Case("--checkpoint m device=cpu", r"\d-\d"),
        "--output": Case("--output out.txt", writes="out.txt"),
        "--overwrite": Case("--output two --overwrite", writes="two"),
        "--tag": Case("--checkpoint m --tag <2de>", "<2de>", code=2),
        "--from": Case("--checkpoint m --from xx", "--from xx: not a language", code=2),
        "--to": Case("--checkpoint m --to xx", "--to xx: not a language", code=2),
        "--device": Case("--device cpu", same=True, base="text text.fr --checkpoint m"),
    },
    "rerank": {
        "--nbest": Case("--nbest lists --reference two", "reranked", base="device=cpu"),
        "--reference": Case("--reference two", "reranked"),
        "--weights": Case("--weights w.json", r"^a b", base="lists"),
        "--save": Case("--reference two --save saved.json", writes="saved.json"),
        "--source": Case("--source two --reference two --forward m", "forward +[+-]"),
        "--forward": Case("--forward m --reference two --source two", "forward +[+-]"),
        "--reverse": Case("--reverse back --reference two --source two", "reverse +[+-]"),
        "--language-model": Case("--language-model lm --reference two", "language_model +[+-]"),
        "--feature": Case("--feature f=values --reference two", "^f +[+-]"),
        "--output": Case("--output best --weights w.json", writes="best"),
        "--overwrite": Case("--overwrite --output text.fr --weights w.json", writes="text.fr"),
        "--metric": Case("--metric chrf --reference two", "chrF2 of 2 lines"),
        "--to": Case("--to zh --reference two", "tok:zh"),
        "--device": Case("--device cpu", same=True, base="lists --reference two --source two --forward m"),
    },
    "score": {
        "--checkpoint": Case("--checkpoint m2", r"-\d", base="--source text --translation text.fr device=cpu"),
        "--source": Case(
            "--source two --translation two", r"^-\d\S*\n-\d\S*\n2 pairs", base="--checkpoint m device=cpu"
        ),
        "--translation": Case("--source text --translation one.fr", r"-\d", base="--checkpoint m device=cpu"),
        "--tag": Case("--tag <2de>", "<2de>", code=2),
        "--from": Case("--from xx", "--from xx: not a language", code=2),
        "--to": Case("--to xx", "--to xx: not a language", code=2),
        "--json": Case("--json", r"^\{"),
        "--strict": Case(
            "--strict --source latin1 --translation two", ":2: byte", code=3, base="--checkpoint m device=cpu"
        ),
        "--device": Case("--device cpu", same=True, base="--checkpoint m --source text --translation text.fr"),
    },
    "attention": {
        "--tag": Case("'a b' --tag <2de>", "<2de>", code=2),
        "--from": Case("'a b' --from xx", "--from xx: not a language", code=2),
        "--to": Case("'a b' --to xx", "--to xx: not a language", code=2),
        "--checkpoint": Case("--checkpoint m2 --output x.html", writes="x.html", base="'a b'"),
        "--beam": Case("--beam 1 --output x.json", writes="x.json", base="'a b' --checkpoint m"),
        "--input": Case("--input two --output x.json", writes="x-1.json"),
        "--translation": Case("'a b' --translation 'c d' --output x.json", writes="x.json"),
        "--positions": Case("--positions 7 --output x.json", writes="x.json", base=""),
        "--output": Case("'a b' --output x.json", writes="x.json"),
        "--overwrite": Case("'a b' --output old.json --overwrite", writes="old.json"),
        "--words": Case("'a b' --words --output x.json", writes="x.json"),
        "--link": Case("'a b' --link 'a b' --output x.html", "a .*b"),
        "--kind": Case("'a b' --kind encoder --output x.svg", writes="x.svg"),
        "--layer": heavy("'a b' --layer 1 --output x.svg", writes="x.svg"),
        "--head": heavy("'a b' --head 2 --output x.svg", writes="x.svg"),
        "--mean": heavy("'a b' --mean --output x.svg", writes="x.svg"),
        "--device": Case("'a b' --device cpu --output x.json", writes="x.json", base="--checkpoint m"),
    },
    "generate": {
        "--checkpoint": Case("--checkpoint m", "m: ", code=4, base=""),
        "--prompt": Case("--prompt 'a = b'", r"^a = b"),
        "--temperature": Case("'the cat' --temperature 0.001"),
        "--top-k": Case("'the cat' --top-k 1"),
        "--top-p": Case("'the cat' --top-p 0.01"),
        "--max-length": Case("'the cat' --max-length 1", base="--checkpoint lm device=cpu"),
        "--n": Case("'the cat' --n 3", r"^the cat.*\nthe cat.*\nthe cat"),
        "--seed": Case("'the cat' --seed 9"),
        "--strict": Case("--strict", ":2: byte", code=3, stdin="a\n\udcff\n"),
        "--device": Case("'the cat' --device cpu", r"^the cat", base="--checkpoint lm decode.max_length=2"),
    },
    "fill": {
        "--checkpoint": Case("'a [mask]' --checkpoint m", "m: ", code=4, base=""),
        "--text": Case("--text 'a = [mask]'", "a = ", base="--checkpoint masked device=cpu"),
        "--top": Case("--top 1", r"^[^\n]*\n$"),
        "--pieces": Case("--pieces 2"),
        "--output-format": Case("--output-format jsonl", r'^\{"line": 1, "text": "the \[mask\] sat"'),
        "--input": Case("--input masks", r"a .*\n$", base="--checkpoint masked device=cpu"),
        "--output": Case("--output filled", writes="filled"),
        "--html": Case("--html filled.html", writes="filled.html"),
        "--overwrite": Case("--output back --overwrite", writes="back"),
        "--strict": Case("--strict", ":2: byte", code=3, stdin="a [mask]\n\udcff\n", base="--checkpoint masked"),
        "--device": Case("--device cpu", "the .* sat", base="'the [mask] sat' --checkpoint masked"),
    },
    "average": {
        "--checkpoint": Case("--checkpoint m2 --checkpoint m3", writes="mean", base="--output mean"),
        "--last": Case("--last 2", "nowhere/latest: no trained model", code=4, base="--output mean runs=nowhere"),
        "--output": Case("--output other", writes="other", base="--checkpoint m2 --checkpoint m3"),
        "--overwrite": Case("--output back --overwrite", writes="back", base="--checkpoint m2 --checkpoint m3"),
    },
    "export": {
        "--checkpoint": heavy("--checkpoint m2", writes="m.argosmodel", base="argos --output m.argosmodel"),
        "--output": heavy("--output x.argosmodel", writes="x.argosmodel", base="argos --checkpoint m"),
        "--overwrite": heavy("--overwrite", writes="m.argosmodel"),
        "--quantization": heavy("--quantization int8", "int8"),
        "--license": heavy("--license MIT", writes="m.argosmodel"),
        "--scores": Case("--scores nowhere", "--scores nowhere: No such file", code=5),
        "--package-version": heavy("--package-version 2.5", writes="m.argosmodel"),
        "--from-name": heavy("--from-name Anglais", writes="m.argosmodel"),
        "--to-name": heavy("--to-name Français", writes="m.argosmodel"),
    },
    "inspect": {
        "--json": Case("--json", r"^\s*\{"),
        "--card": Case("--card", "^---|# "),
        "--license": Case("--card --license cc-by-4.0", "cc-by-4.0"),
        "--scores": Case("--card --scores scores.json", "12.3"),
    },
    "import": {
        "--output": heavy("--output other", writes="other", base="hf opus compare=false"),
        "--overwrite": heavy("--output m3 --overwrite", writes="m3", base="hf opus compare=false"),
        "--source-lang": heavy("--source-lang no", "no → "),
        "--target-lang": heavy("--target-lang no", "→ no"),
        "--vocabulary": heavy("--vocabulary nowhere", "--vocabulary nowhere: ", code=2),
        "--segmenter": heavy("--segmenter nowhere", "--segmenter nowhere: ", code=2),
        "--lines": Case("--lines two", "compare=false", code=2),
    },
    "models": {"--json": Case("--json", r"^\[", base="")},
    "push": {
        "--checkpoint": Case("--checkpoint m", "m: states no licence", code=2, base="hf:a/b"),
        "--license": Case("--license MIT", "licence MIT", code=2),
        "--private": Case("--private --license MIT", "licence MIT, for its owner alone", code=2),
        "--yes": Case("--yes", "m: states no licence", code=2),
    },
    "config": {
        "--command": Case("--command translate why decode.beam_size", "4"),
        "--json": Case("--json why seed", r"^\s*[\{\[]"),
    },
    "train": {"--name": Case("--name latest", "latest", code=2), "--device": Case("--device cuda", "cuda", code=5)},
    "reproduce": {
        "--name": Case("demo_en_fr --name latest", "latest", code=2, base=""),
        "--device": Case("demo_en_fr --device cuda", "cuda", code=5, base=""),
    },
    "prepare": {
        "--list": Case("--list text", r"^text: text, a sentence a line, 6 rows"),
        "--report": Case("--report text", "text: reports are not written in such files", code=2),
        "--overwrite": Case("--report text --overwrite", "text: reports are not written in such files", code=2),
        "--name": Case(
            "--name x --device cpu",
            "not used by `tfm prepare`: name",
            base="data=files data.source_lang=en data.target_lang=fr",
            code=2,
        ),
        "--device": Case(
            "--device cpu",  # it is read, for what recipe=auto would choose
            "^tfm: error: data.train: not set",
            base="data=files data.source_lang=en data.target_lang=fr",
            code=2,
        ),
    },
    "doctor": {
        "--json": heavy("--json", r"^\s*[\{\[]", base="", code=0),
        "--suspects": heavy("--suspects 2", "training pairs", base="", code=0),
        "--name": Case("--name latest", "latest", code=2, base=""),
        "--device": Case("--device cuda", "cuda", code=5, base=""),
    },
    "distill": {
        "--teacher": Case(
            "--teacher none", "none: no such file or folder. Check --teacher", code=4, base="--input text"
        ),
        "--input": Case("--input nothing", "nothing: no such file", code=3, base="--teacher m"),
        "--size": Case("--size tiny", "are two models", code=2, base="--teacher m --input text model=small"),
        "--beam": Case("--beam 65", "teacher_beam=65", code=2, base="--teacher m --input text"),
        "--output": Case("--output text", "text", code=5, base="--teacher m --input text"),
        "--engine": Case("--engine x", "engine=x: unknown", code=2, base="--teacher m --input text"),
        "--name": Case("--name latest", "latest", code=2, base="--teacher m --input text"),
        "--device": Case("--device cuda", "cuda", code=5, base="--teacher m --input text"),
    },
    "augment loop": {
        "--source": Case("--source nothing", "nothing: no such file", code=3),
        "--target": Case("--target nothing", "nothing: no such file", code=3, base=LOOP),
        "--forward": Case("--forward back", "back: translates fr → en", code=2),
        "--reverse": Case("--reverse m", "m: translates en → fr", code=2),
        "--rounds": Case("--rounds 0", "rounds=0", code=2),
        "--stop-early": Case("--stop-early", "too short to hold pairs out", code=2),
        "--search": Case("--search x", "search=x: unknown", code=2),
        "--beam": Case("--beam 65", "search_beam=65", code=2),
        "--engine": Case("--engine x", "engine=x: unknown", code=2),
        "--output": Case("--output text", "text", code=5),
        "--device": Case("--device cuda", "cuda", code=5, base=f"{LOOP} --target text.fr"),
    },
    "bench": {
        "--checkpoint": Case("decode --checkpoint nowhere source=text", "nowhere", code=4, base=""),
        "--from": Case("students --checkpoint m source=text --from xx", "--from xx: not a language", code=2, base=""),
        "--to": Case("start --checkpoint m --to xx", "--to xx: not a language", code=2, base=""),
        "--json": heavy("--json rounds=1", r"^\s*\{"),
        "--device": Case("--device cuda", "cuda", code=5),
    },
    "replay": {"--device": Case("nowhere --device cpu", "nowhere", code=4, base="")},
    "verify-resume": {
        "--updates": Case("nowhere --updates 1", "n_updates=1", code=2),
        "--device": Case("nowhere --device cpu", "nowhere", code=4),
    },
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Toy models and texts."""
    folder = tmp_path_factory.mktemp("flags")
    english, french = sentences(6, seed=5), sentences(6, seed=6)
    models = {
        "m": ("en", "fr", 1),
        "m2": ("en", "fr", 2),
        "m3": ("en", "fr", 3),
        "back": ("fr", "en", 4),
        "to-de": ("fr", "de", 5),
    }
    for name, (source, target, seed) in models.items():
        model = model_file(seed=seed) if name in ("m2", "m3") else read_model(FOLDER / "joint-pre.safetensors")
        (folder / name).write_bytes(packed(replaced(model, source, target)))
    (folder / "lm").write_bytes(language_model_content())
    (folder / "masked").write_bytes(masked_content())
    (folder / "masks").write_text("a [mask]\n")
    write_model(folder / "classes", classifier_model())
    write_model(folder / "tagger", tagger_model())
    write_model(folder / "answers", answers_model())
    write_model(folder / "tagged", tagged_model())
    for name, lines in {
        **{"text": english, "text.fr": french, "one.fr": french[::-1], "two.fr": english, "two": english[:2]},
        **{"prefixes": ["a b", "b a"], "terms": ["a\tj i h"], "asked": ["h\ta b", "b\tc d"]},
    }.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "lists").write_text("1 ||| a b ||| -1\n1 ||| a c ||| -2\n2 ||| d e ||| -1\n", encoding="utf-8")
    (folder / "values").write_text("1\n2\n3\n")
    (folder / "w.json").write_text(json.dumps({"format": 1, "metric": "bleu", "weights": {"score": 1.0}}))
    (folder / "latin1").write_bytes("a b\né d\n".encode("latin-1"))
    for name in ("old.npy", "old.json", "made.en", "made.fr", "made.json"):
        (folder / name).write_bytes(b"")
    score = {"score": 12.3, "name": "BLEU", "signature": "nrefs:1"}
    (folder / "scores.json").write_text(json.dumps({"scores": [score], "test_set": "t", "lines": 3}))
    return folder


CASES = [
    pytest.param(
        command,
        option,
        RUNS.get(command, {}).get(option),
        marks=getattr(RUNS.get(command, {}).get(option), "marks", ()),
    )
    for command, option in EVERY_FLAG
]


@pytest.mark.parametrize(("command", "option", "case"), CASES)
def test_a_command_does_what_a_flag_asks_for(
    made: Path, tmp_path: Path, command: str, option: str, case: Case | None
) -> None:
    assert case is not None, f"{command} {option}: give it a case in RUNS"
    words = shlex.split(case.words)
    base = shlex.split(BASE.get(command, "") if case.base is None else case.base)
    assert option in words
    folder = copied(made, tmp_path)
    if command == "import" and case.marks:
        opus(folder / "opus")
    ran = run([command, *base, *words], folder, stdin=case.stdin.encode("utf-8", "surrogateescape"))
    shown = (ran.out + ran.err).decode()
    assert ran.code == case.code, shown
    assert re.search(case.says, shown, re.MULTILINE | re.IGNORECASE), shown
    if case.writes:
        written = folder / case.writes
        assert written.stat().st_size, f"{written} is empty"
        assert not (made / case.writes).exists() or written.read_bytes() != (made / case.writes).read_bytes()
    elif not case.says:
        left_out = words.index(option)
        n_words = 1 if COMMANDS[command].flags[option].kind is bool else 2
        others = [*words[:left_out], *words[left_out + n_words :]]
        without = run([command, *base, *others], folder, stdin=case.stdin.encode("utf-8", "surrogateescape"))
        assert without.code == 0, without.err
        assert (without.out == ran.out) == case.same


def copied(made: Path, folder: Path) -> Path:
    for file in made.iterdir():
        shutil.copyfile(file, folder / file.name)
    return folder


def replaced(model: ModelFile, source: str, target: str) -> ModelFile:
    return dataclasses.replace(model, source_lang=source, target_lang=target)
