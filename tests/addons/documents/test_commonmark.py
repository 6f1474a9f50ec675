"""The examples of CommonMark's specification under two translators: mark-up stays, and every word is translated once.

A stand-in exchanges upper and lower case, so that a letter shows how often it was translated; it keeps the order of
the words or reverses it. Source and translation are rendered by markdown-it-py and compared.
"""

import os
import re
import shutil
import subprocess
import tarfile
from collections import Counter
from collections.abc import Sequence
from html import unescape
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.addons.documents.test_markup_properties import echo, translated
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.decoding.results import Translated

PACKAGE = "commonmark-spec@0.31.2"
N_EXAMPLES = 652
_EXAMPLE = re.compile(r"^`{32} example\n(.*?)^\.\n.*?^`{32}$", re.DOTALL | re.MULTILINE)
_MARK = re.compile(
    r"<(code|script|style|textarea)\b.*?(?:</\1>|\Z)|<!--(?:-?>|.*?(?:-->|\Z))|<\?.*?\?>|<!\[CDATA\[.*?\]\]>"
    r"|<(?=[a-zA-Z/!?])(?:=\s*\"[^\"]*\"|=\s*'[^']*'|[^>])*(?:>|$)",
    re.DOTALL,
)
_ALT = re.compile(r'(?<=\balt=")[^"]*')
_ADDRESS = re.compile(r"\w://|[\w+]@\w\S*\.\w")
_SCHEME = re.compile(r"[A-Za-z][\w.+-]+:\S*")
Part = tuple[str, str]  # "tag", "code", "address" or "word", and what it is

render = MarkdownIt("commonmark").render


def swapped(texts: Sequence[str]) -> list[Translated]:
    return [translated(text.swapcase(), [(i, i) for i in range(len(text.split()))]) for text in texts]


def swapped_and_reversed(texts: Sequence[str]) -> list[Translated]:
    found = []
    for text in texts:
        words = text.swapcase().split()[::-1]
        found.append(translated(" ".join(words), [(len(words) - 1 - i, i) for i in range(len(words))]))
    return found


def parts(html: str) -> list[Part]:
    """A page as tags, code and words. The text of an image is in lower case, and in the order of the alphabet."""
    found: list[Part] = []
    position = 0
    for match in [*_MARK.finditer(html), None]:
        end = len(html) if match is None else match.start()
        for word in re.finditer(r"\S+", html[position:end]):
            is_first = word.start() == 0 and html.startswith('">', position - 2)
            is_address = _ADDRESS.search(word[0]) or (is_first and _SCHEME.match(word[0]))
            found.append(("address" if is_address else "word", unescape(word[0])))
        if match is not None:
            text = _ALT.sub(lambda alt: " ".join(sorted(alt[0].lower().split())), match[0])
            found.append(("code" if match[1] else "tag", text))
            position = match.end()
    return found


def swapped_words(page: Sequence[Part]) -> list[Part]:
    """What the translation of a page must be, in the same order."""
    return [(kind, text.swapcase() if kind == "word" else text) for kind, text in page]


def without_order(page: Sequence[Part]) -> Counter[Part]:
    """The tags and the letters of a page. A tag within a word can be beside it in another order."""
    letters = Counter(("letter", letter) for kind, text in page if kind == "word" for letter in text)
    return letters + Counter(part for part in page if part[0] != "word")


@pytest.fixture(scope="session")
def examples(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The Markdown of the examples, from the package that the specification is published as."""
    cache = pytestconfig.cache
    folder = tmp_path_factory.mktemp("commonmark") if cache is None else cache.mkdir("commonmark")
    path = folder / f"{PACKAGE}.txt"
    if not path.exists():
        part = path.with_name(f"{os.getpid()}.part")  # other processes may be at it, too
        part.write_bytes(downloaded(tmp_path_factory.mktemp("npm")))
        part.replace(path)
    found = [match.replace("→", "\t") for match in _EXAMPLE.findall(path.read_text(encoding="utf-8"))]
    assert len(found) == N_EXAMPLES
    return found


def downloaded(folder: Path) -> bytes:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("the examples of CommonMark need npm")
    try:
        command = [npm, "pack", "--silent", "--fetch-timeout=10000", "--fetch-retries=0", PACKAGE]
        subprocess.run(command, cwd=folder, timeout=30, check=True, capture_output=True)
    except (subprocess.SubprocessError, OSError):
        pytest.skip("the examples of CommonMark cannot be downloaded")
    (package,) = folder.glob("*.tgz")
    with tarfile.open(package) as archive:
        file = archive.extractfile("package/spec.txt")
        assert file is not None
        return file.read()


def test_a_translation_of_each_example_has_its_markup_and_each_of_its_words_once(examples: list[str]) -> None:
    wrong = []
    for source in examples:
        target = translate_document(source, "markdown", swapped).text
        if parts(render(target)) != swapped_words(parts(render(source))):
            wrong.append((source, target))
    assert wrong == []


def test_a_translation_of_each_example_in_another_order_has_the_same_tags_and_words(examples: list[str]) -> None:
    wrong = []
    for source in examples:
        target = translate_document(source, "markdown", swapped_and_reversed).text
        if without_order(parts(render(target))) != without_order(swapped_words(parts(render(source)))):
            wrong.append((source, target))
    assert wrong == []


def test_the_same_words_are_the_same_bytes(examples: list[str]) -> None:
    for source in examples:
        for text in (source, source.replace("\n", "\r\n"), source.rstrip("\n"), source + "  \n\n"):
            assert translate_document(text, "markdown", echo).text == text
