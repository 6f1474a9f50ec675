"""Tables that are pasted: what csv, markdown-it-py and a reader of LaTeX get out of them is what was put in."""

import csv
import io
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.support.each import each
from transformer_cli.tables import Cell, Column, ResultTable, TableFormat, aligned_lines, cell, print_tables

# Every sign that one of the formats takes for its own.
HOSTILE = [
    r"a_b & 100% $x^2$ #1 {y} ~z \n",
    "[2] *star* `code` <b>x</b> a|b &amp;",
    '--- "quoted", with commas; !x ![y](z)',
    "=1+1",
    "line\nbreak\rand\ttab",
    "ünï → 日本",
]
NOTES = ["nrefs:1|case:mixed --> not the end", "two\nlines"]


def table_of(names: list[str]) -> ResultTable:
    columns = [
        Column("system", is_text=True),
        Column("BLEU", "score", ("score",), "BLEU_5"),
        Column("", "95 % interval", ("mean", "half_width"), "BLEU_5"),
        Column("diff.", keys=("difference",), group="BLEU_5"),
        Column("signature", is_shown=False),
        Column("", "*", ("significant",)),
    ]
    rows = [
        [
            cell(name),
            Cell(f"{10 / 3 + i:.2f}", (10 / 3 + i,), is_bold=i == 1),
            Cell("(3.30 ± 0.10)", (3.3, 0.1)),
            cell(None) if i == 0 else cell(-float(i), f"{-i:+.2f}"),
            cell('tok:13a|"x"'),
            cell(i == 1, "*" if i == 1 else ""),
        ]
        for i, name in enumerate(names)
    ]
    return ResultTable(columns, rows)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A function that prints tables and returns standard output."""

    def printing(form: TableFormat, *tables: ResultTable) -> str:
        print_tables(tables or [table_of(HOSTILE)], form, notes=NOTES, more=["a sentence"])
        output = capsys.readouterr()
        assert output.err == "".join(f"{line}\n" for line in [*NOTES, "a sentence"])
        return output.out

    return printing


def one_line(text: str) -> str:
    return re.sub(r"[\n\r\t]", " ", text)


# ---- CSV


def test_csv_has_every_value_with_all_its_digits(printed: Callable[..., str]) -> None:
    written = printed(TableFormat.csv)
    head, *rows = csv.reader(io.StringIO(written, newline=""), strict=True)
    scores = ["BLEU_5 score", "BLEU_5 mean", "BLEU_5 half_width", "BLEU_5 difference"]
    assert head == ["system", *scores, "signature", "significant"]
    assert [row[0] for row in rows] == HOSTILE
    assert [float(row[1]) for row in rows] == [10 / 3 + i for i in range(len(HOSTILE))]
    assert [row[4] for row in rows] == ["", *(f"{-i:.1f}" for i in range(1, len(HOSTILE)))]
    assert [row[5:] for row in rows[:2]] == [['tok:13a|"x"', "false"], ['tok:13a|"x"', "true"]]


def test_lines_of_csv_end_as_rfc_4180_has_it(printed: Callable[..., str]) -> None:
    written = printed(TableFormat.csv, table_of(["a", "b"]))
    assert written.count("\r\n") == 3
    assert "\n" not in written.replace("\r\n", "")
    assert printed(TableFormat.csv, table_of(["a", "b"]), table_of(["other"])) == written  # the first table alone


# ---- Markdown


def markdown_rows(text: str) -> tuple[list[list[str]], list[str], list[str]]:
    """The cells by row, the alignment of the columns, and the blocks of HTML, as a reader of Markdown finds them."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows and token.children is not None:
            assert all(child.type in ("text", "text_special") for child in token.children), token.content
            rows[-1].append("".join(child.content for child in token.children))
    aligned = [str(token.attrs.get("style", "")) for token in tokens if token.type == "th_open"]
    return rows, aligned, [token.content for token in tokens if token.type == "html_block"]


def test_markdown_shows_every_text_as_it_is_and_figures_at_the_right(printed: Callable[..., str]) -> None:
    rows, aligned, html = markdown_rows(printed(TableFormat.markdown))
    assert rows[0] == ["system", "BLEU_5 score", "BLEU_5 95 % interval", "BLEU_5 diff.", "*"]
    assert [row[0] for row in rows[1:]] == [one_line(name) for name in HOSTILE]
    assert [row[1:] for row in rows[1:3]] == [
        ["3.33", "(3.30 ± 0.10)", "", ""],
        ["4.33", "(3.30 ± 0.10)", "-1.00", "*"],
    ]
    assert aligned == ["", *["text-align:right"] * 4]
    assert re.fullmatch(r"(<!-- (?:(?!--).)* -->\n?){2}", "".join(html)), html


def test_a_second_table_of_markdown_is_one_of_its_own(printed: Callable[..., str]) -> None:
    text = printed(TableFormat.markdown, table_of(["a"]), table_of(["b"]))
    assert text.count("| ------ |") == 2
    assert [row[0] for row in markdown_rows(text)[0]] == ["system", "a", "system", "b"]


# ---- LaTeX

# By hand, after the table of special characters in Lamport's LaTeX (1994), page 33.
SIGNS = {
    **{r"\&": "&", r"\%": "%", r"\$": "$", r"\#": "#", r"\_": "_", r"\{": "{", r"\}": "}"},
    **{r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", r"\textless{}": "<"},
    **{r"\textgreater{}": ">", r"\textbar{}": "|", r"\textasciigrave{}": "`", r"\symbol{34}": '"', r"$\pm$": "±"},
    **{"{*}": "*", "{[}": "[", "-{}": "-", ",{}": ",", "'{}": "'"},
}
PLAIN = r"[^\\&%$#_{}~^<>|`\"*\[±\n]"
_SIGN = "|".join(map(re.escape, sorted(SIGNS, key=len, reverse=True)))
_CELL = rf"(?:{_SIGN}|{PLAIN})*"


def latex_text(written: str) -> str:
    """What a cell shows; it may hold nothing that LaTeX would take for its own."""
    if bold := re.fullmatch(r"\\textbf\{(.*)\}|\$\\mathbf\{(.*)\}\$", written):
        return f"**{latex_text(bold[1]) if bold[1] is not None else bold[2]}**"
    if figure := re.fullmatch(r"\$([+-]\d[\d,]*(?:\.\d+)?)\$", written):
        return figure[1]
    assert re.fullmatch(_CELL, written), written
    assert not re.search(r"--|''|,,", re.sub(_SIGN, "", written)), written
    return re.sub(_SIGN, lambda match: SIGNS[match[0]], written)


def latex_rows(text: str) -> list[list[str]]:
    """The rows of a tabular, without that of the groups, whose structure is checked."""
    found = re.fullmatch(
        r"% needs \\usepackage\{booktabs\}\n\\begin\{tabular\}\{([lr]+)\}\n\\toprule\n(.*)"
        r"\\bottomrule\n\\end\{tabular\}\n((?:%.*\n)*)",
        text,
        re.DOTALL,
    )
    assert found, text
    columns, body, _ = found.groups()
    head, rows = body.split("\\midrule\n")
    written = [*head.split("\n")[-2:-1], *rows.split("\n")[:-1]]
    assert all(line.endswith(r" \\") for line in written)
    cells = [re.split(r"(?<!\\) ?& ?", line.removesuffix(r" \\")) for line in written]
    assert {len(row) for row in cells} == {len(columns)}
    return [[latex_text(one) for one in row] for row in cells]


def test_latex_shows_every_text_as_it_is(printed: Callable[..., str]) -> None:
    text = printed(TableFormat.latex)
    head, *rows = latex_rows(text)
    assert head == ["system", "score", "95 % interval", "diff.", "*"]
    assert [row[0] for row in rows] == [one_line(name) for name in HOSTILE]
    assert [row[1:] for row in rows[:2]] == [
        ["3.33", "(3.30 ± 0.10)", "", ""],
        ["**4.33**", "(3.30 ± 0.10)", "-1.00", "*"],
    ]
    assert " & \\multicolumn{3}{c}{BLEU\\_5} &  \\\\\n\\cmidrule(lr){2-4}\n" in text
    assert text.endswith("\\end{tabular}\n% nrefs:1|case:mixed --> not the end\n% two lines\n")


def test_a_bold_figure_below_zero_is_bold_in_mathematics_too(printed: Callable[..., str]) -> None:
    table = ResultTable([Column("COMET")], [[Cell("-0.1234", (-0.1234,), is_bold=True)]])
    assert "$\\mathbf{-0.1234}$ \\\\\n" in printed(TableFormat.latex, table)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_pdflatex_sets_the_table(tmp_path: Path, printed: Callable[..., str]) -> None:
    table = printed(TableFormat.latex, table_of([name for name in HOSTILE if name.isascii()]))
    page = f"\\documentclass{{article}}\\usepackage{{booktabs}}\\begin{{document}}\n{table}\\end{{document}}\n"
    (tmp_path / "page.tex").write_text(page, encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "page.tex"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True)
    assert ran.returncode == 0, ran.stdout.decode(errors="replace")


# ---- Terminal


@each("is_text, expected", [(True, ["name  b", "a     1", "long  2"]), (False, ["name  b", "   a  1", "long  2"])])
def test_a_terminal_gets_aligned_columns(is_text: bool, expected: list[str]) -> None:
    columns = [Column("name", is_text=is_text), Column("b"), Column("hidden", is_shown=False)]
    rows = [[cell(name), cell(n), cell("x")] for name, n in (("a", 1), ("long", 2))]
    assert aligned_lines(ResultTable(columns, rows)) == expected
