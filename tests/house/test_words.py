"""Words in code and docs: the terms of the field, and docstrings that say what the thing is."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.conftest import ROOT

# Old word → the field's term. Only words that have no other use here.
TERMS = {
    r"learnt": "trained",
    r"(?-i:Learner)|learners": "Trainer",
    r"look_back": "evaluate_and_save",
    r"(?-i:FirstRun)": "MainProcess (rank 0)",
    r"(?-i:Skips)": "NonFiniteTracker",
    r"(?-i:GradientSum)|as_it_comes": "GradientReducer",
    r"(?-i:FusedLoss)|can_fuse": "CompiledLoss",
    r"nobody|(?-i:NOBODY)": "no one; of labels, IGNORE_INDEX",
    r"whom": "a sentence about the thing itself",
    r"attend_runs": "group by length",
    r"(?-i:PackedLinear)": "PrepackedLinear",
    r"(?-i:PastCache)|own_past": "KVCache, self_attention_cache",
    r"recomputes": "activation_checkpointing",
    r"(?-i:Replayed)": "CudaGraphDecoder",
    r"(?-i:Wishes)|wishes|wished": "TranslateOptions; of terms, constraints",
    r"(?-i:Demands)|unmet": "Constraints, unsatisfied",
    r"said_\w+": "backpointers",
    r"read_back|(?-i:ReadBack)": "force_decode",
    r"consensus": "minimum Bayes risk (mbr)",
    r"close[ _]calls?": "near tie",
    r"in company|neighbours?": "batch composition; other sentences of the batch",
    r"flaws?|flawed": "quality flags",
    r"told_in_parts": "split, truncated",
    r"strangers?": "unknown keys; of pairs, unrelated",
    r"n_cells": "padded tokens",
    r"stirred": "shuffled window",
    r"contestants?|(?-i:Contestants?)": "worker, baseline",
    r"(?<!config\.)rivals(?!=(?:true|false)\b)": "baselines",  # but not where the key of `tfm bench` is read or named
    r"beginnings": "prefixes, partial hypotheses",
}
OLD = re.compile("|".join(rf"(?P<w{i}>(?<!\w)(?:{word})(?!\w))" for i, word in enumerate(TERMS)), re.IGNORECASE)

FOLDERS = ("transformer_cli", "configs", "docs", "scripts")
ENDINGS = {".py", ".yaml", ".md", ".html", ""}
# `rivals` is a key of `tfm bench`.
ALLOWED = {
    "transformer_cli/addons/benchmarks/keys.py": {"rivals"},
    "docs/configuration.md": {"rivals"},
    "docs/benchmarking.md": {"rivals"},
    "transformer_cli/addons/benchmarks/worker.py": {"n_cells"},  # in --json
    "transformer_cli/training/progress.py": {"n_cells"},  # in state.json
}


def files() -> Iterator[Path]:
    yield ROOT / "README.md"
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in ENDINGS and "__pycache__" not in path.parts:
                yield path


@cache
def may_be_old(word: str) -> bool:
    """Whether a line with this word is searched: thirty alternatives at each letter of all files take seconds."""
    return OLD.search(word) is not None or word.lower() in ("call", "calls", "company")


def old_words(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, word, and the term for it."""
    for number, line in enumerate(text.split("\n"), 1):
        if not any(map(may_be_old, re.findall(r"\w+", line))):
            continue
        for match in OLD.finditer(line):
            assert match.lastgroup is not None
            yield number, match[0], list(TERMS.values())[int(match.lastgroup[1:])]


def test_the_words_are_those_of_the_field() -> None:
    found = [
        f"{name}:{number}: {word} → {term}"
        for path in files()
        for name in [str(path.relative_to(ROOT))]
        for number, word, term in old_words(path.read_text(encoding="utf-8"))
        if not any(word.lower().startswith(allowed) for allowed in ALLOWED.get(name, ()))
    ]
    assert not found, "old words, and the field's terms for them:\n" + "\n".join(found)


def test_the_check_finds_old_words_and_leaves_others() -> None:
    assert [found[:2] for found in old_words("# what is learnt\nx = can_fuse(y)\n")] == [(1, "learnt"), (2, "can_fuse")]
    key = [found[:2] for found in old_words("config.rivals, rivals=false\nour rivals, RIVALS = 1\nrivals=names")]
    assert key == [(2, "rivals"), (2, "RIVALS"), (3, "rivals")]
    assert [found[1] for found in old_words("A close call in Company.")] == ["close call", "in Company"]
    assert not list(old_words("the neighbourhood, the wishlist, a said word, own_pasture, skips a line"))


NO_SUBJECT = re.compile(
    r"(?:Of|Its|Those|That|Their|These|With|Where|By|In(?! place\b)|As|For|From|To|And|Or|But|Whose|Who|Which|Without"
    r"|Behind|Beside|Within|Between|Also|Until|Up|On|At(?! (?:most|least)\b)|Under|Through|Inside|What is)\b"
)


def without_subject(source: str) -> Iterator[tuple[int, str]]:
    """The line and the text of each docstring whose first word leaves open what it is about."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None and NO_SUBJECT.match(text):
                yield getattr(node, "lineno", 1), text.partition("\n")[0]


def test_docstrings_say_what_the_thing_is() -> None:
    paths = [path for path in [*files(), *(ROOT / "tests").rglob("*.py")] if path.suffix == ".py"]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in paths
        for line, text in without_subject(path.read_text(encoding="utf-8"))
    ]
    assert len(paths) > 100
    assert not found, "docstrings that begin without a subject:\n" + "\n".join(found)


def test_the_check_of_docstrings_finds_one_without_a_subject() -> None:
    source = 'def f():\n    """Of it."""\n\nclass C:\n    """In place."""\n    def g(self):\n        """Those."""\n'
    assert [line for line, _ in without_subject(source)] == [1, 6]
