"""Treebanks as training text: files of trees in brackets, each of which is a pair of a sentence and its linear form."""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain

from transformer_cli.addons.parsing.trees import linearize, read_tree
from transformer_cli.config.data import DataConfig
from transformer_cli.data.formats.base import Contents, Fault, FileFormat, SourceFile, Table, contents_of_rows
from transformer_cli.data.lines import each_line
from transformer_cli.data.registry import FORMATS

LARGEST_TREE = 100_000  # characters of a tree: more are a file whose brackets do not close
COLUMNS = ("source", "target")


class Treebank(FileFormat):
    """Trees of the Penn Treebank's form, each on one line or on several."""

    what = "a treebank (trees in brackets)"
    endings = (".mrg", ".trees", ".ptb")

    def recognises(self, head: bytes) -> bool:
        text = head.decode("utf-8", errors="ignore").lstrip("\ufeff \n\r\t")
        return text.startswith(("( (", "((", "(ROOT", "(TOP", "(S ", "(S\n"))

    def names(self, file: SourceFile) -> Sequence[str]:
        return COLUMNS

    def table(self, file: SourceFile, config: DataConfig) -> Table:
        return Table(COLUMNS, self._rows(file))

    def contents(self, file: SourceFile) -> Contents:
        return contents_of_rows(chain([COLUMNS], self._rows(file)))

    def _rows(self, file: SourceFile) -> Iterator[Sequence[str] | Fault]:
        with file.open() as stream:
            lines = _Lines((line, n) for n, (line, _) in enumerate(each_line(stream, file.name), 1))
            for line, number in lines:
                if line.strip():
                    tree = _to_the_last_bracket(line, lines)
                    yield _row(" ".join(tree), number)


class _Lines(Iterator[tuple[str, int]]):
    """Lines with their numbers, which can be put back."""

    def __init__(self, lines: Iterator[tuple[str, int]]) -> None:
        self._lines, self._again = lines, deque[tuple[str, int]]()

    def __next__(self) -> tuple[str, int]:
        return self._again.popleft() if self._again else next(self._lines)

    def put_back(self, lines: Sequence[tuple[str, int]]) -> None:
        self._again.extendleft(reversed(lines))


def _to_the_last_bracket(first: str, lines: _Lines) -> list[str]:
    """`first` and the lines that close its brackets.

    Where nothing closes them, the tree is faulty, and only that: it ends before the next line that begins with a
    bracket and is not indented more than `first`, so that the trees behind it are read.
    """
    taken = list[tuple[str, int]]()
    depth, size = _depth(first), len(first)
    while depth > 0 and size <= LARGEST_TREE and (one := next(lines, None)) is not None:
        taken.append(one)
        depth, size = depth + _depth(one[0]), size + len(one[0])
    if depth > 0:
        begins = (
            n for n, (line, _) in enumerate(taken) if line.lstrip()[:1] == "(" and _indent(line) <= _indent(first)
        )
        n_own = next(begins, len(taken))
        lines.put_back(taken[n_own:])
        del taken[n_own:]
    return [first, *(line for line, _ in taken)]


def _depth(line: str) -> int:
    """How many brackets it leaves open."""
    return line.count("(") - line.count(")")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _row(text: str, line: int) -> Sequence[str] | Fault:
    try:
        tree = read_tree(text)
    except ValueError as error:
        return Fault(
            f"line {line}", f"no tree in brackets ({error})", "Correct the tree, or skip it with data.on_bad=skip"
        )
    return " ".join(word.text for word in tree.words()), linearize(tree)


FORMATS.register("treebank")(Treebank())
