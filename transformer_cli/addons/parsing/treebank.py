"""Treebanks as training text: files of trees in brackets, each of which is a pair of a sentence and its linear form."""

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
        text, first, depth = list[str](), 1, 0
        with file.open() as stream:
            for number, (line, _) in enumerate(each_line(stream, file.name), 1):
                if not text:
                    if not line.strip():
                        continue
                    first = number
                text.append(line)
                depth += line.count("(") - line.count(")")
                if depth <= 0 or sum(map(len, text)) > LARGEST_TREE:
                    yield _row(" ".join(text), first)
                    text, depth = [], 0
        if text:
            yield _row(" ".join(text), first)


def _row(text: str, line: int) -> Sequence[str] | Fault:
    try:
        tree = read_tree(text)
    except ValueError as error:
        return Fault(
            f"line {line}", f"no tree in brackets ({error})", "Correct the tree, or skip it with data.on_bad=skip"
        )
    return " ".join(word.text for word in tree.words()), linearize(tree)


FORMATS.register("treebank")(Treebank())
