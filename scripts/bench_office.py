"""Translates office files of many kinds, made by other programs, and asks these whether all is well with the result.

python scripts/bench_office.py PYTHON [--soffice soffice] [--keep FOLDER]   PYTHON: what `scripts/judges office` prints
python scripts/bench_office.py time [PAGES …]   seconds and memory of documents of so many pages
python scripts/bench_office.py cells [CELLS …]   those of spreadsheets of so many texts

A stand-in for a model writes small letters as capitals and capitals as small ones, so that a text that was translated
twice, or not at all, shows. Each file must be opened again by the library that made it and by LibreOffice, which must
find its pages; no member of the archive may change but those with text; and the library must find each text
translated. benchmarks/documents.md holds what it printed.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from transformer_cli.addons.documents.document import translate_parsed
from transformer_cli.addons.documents.formats import format_of_file, formats
from transformer_cli.addons.documents.reading import read_file
from transformer_cli.decoding.results import Candidate, Translated
from transformer_cli.registry import load_addons

_MAKERS = Path(__file__).with_name("office_makers.py")
_WORDS_A_PAGE, _WORDS_A_PARAGRAPH = 500, 80
_SENTENCE = "the old man sat by the river and read a long book about two dogs that run through the snow"
_BODY = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def swapped(texts: Sequence[str]) -> list[Translated]:
    """Small letters as capitals, and capitals as small letters, word by word."""
    return [
        Translated([Candidate(text.swapcase(), -1.0)], alignment=[(i, i) for i in range(len(text.split()))])
        for text in texts
    ]


def translate(path: Path) -> tuple[bytes, int]:
    """The file translated, and how many texts it has."""
    name = format_of_file(path.name)
    assert name is not None, path
    opened = read_file(formats()[name], path.read_bytes(), path.name)
    documents = translate_parsed(opened.documents, swapped)
    return opened.write([one.text for one in documents]), sum(len(one.units) for one in documents)


def changed_members(before: bytes, after: bytes) -> tuple[list[str], bool]:
    """The members that differ, and whether the names and their order are the same."""
    with ZipFile(BytesIO(before)) as old, ZipFile(BytesIO(after)) as new:
        names = old.namelist()
        return [name for name in names if old.read(name) != new.read(name)], names == new.namelist()


def ask(python: str, folder: Path, files: Sequence[Path]) -> dict[str, list[str]]:
    """The texts that the library of each file finds in it."""
    command = [python, str(_MAKERS), "texts", *map(str, files)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {str(name): found for name, found in json.loads(done.stdout).items()}


def pages(soffice: str, folder: Path, files: Sequence[Path]) -> dict[str, int]:
    """How many pages LibreOffice makes of each file; 0 where it cannot."""
    target = folder / "pdf"
    for kind in sorted({path.suffix for path in files}):  # in one run, files of one name would overwrite each other
        of_kind = [str(path) for path in files if path.suffix == kind]
        command = [soffice, "--headless", "--convert-to", "pdf", "--outdir", str(target / kind[1:]), *of_kind]
        subprocess.run(command, check=False, capture_output=True, timeout=1200)
    found = {}
    for path in files:
        pdf = target / path.suffix[1:] / f"{path.stem}.pdf"
        done = subprocess.run(["pdfinfo", str(pdf)], capture_output=True, text=True, check=False)
        line = next((line for line in done.stdout.split("\n") if line.startswith("Pages:")), "Pages: 0")
        found[path.name] = int(line.split()[1])
    return found


def check(python: str, soffice: str, folder: Path) -> int:
    """Print a line for each file; the number of faults."""
    before, after = folder / "before", folder / "after"
    before.mkdir(parents=True)
    after.mkdir()
    made = subprocess.run(
        [python, str(_MAKERS), "make", str(before), soffice], cwd=folder, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr[-3000:]
    files = sorted(path for path in before.iterdir() if path.is_file())
    faults: dict[str, list[str]] = {path.name: [] for path in files}
    n_units = {}
    for path in files:
        written, n_units[path.name] = translate(path)
        (after / path.name).write_bytes(written)
        changed, is_same = changed_members(path.read_bytes(), written)
        if not is_same:
            faults[path.name].append("other members")
        faults[path.name] += [
            f"{name} changed" for name in changed if not name.endswith((".xml", ".xhtml", ".opf", ".ncx"))
        ]
    translated = [after / path.name for path in files]
    old, new = ask(python, folder, files), ask(python, folder, translated)
    for path, other in zip(files, translated, strict=True):
        wanted = sorted(" ".join(text.swapcase().split()) for text in old[str(path)])
        found = sorted(" ".join(text.split()) for text in new[str(other)])
        if wanted != found:
            wrong = [text for text in found if text not in wanted]
            faults[path.name].append(f"the library finds {wrong[:3]}")
    if soffice:
        known = [[one for one in several if one.suffix != ".epub"] for several in (files, translated)]
        first, second = (pages(soffice, folder / str(n), several) for n, several in enumerate(known))
        for name, n in first.items():
            if not n <= second[name] <= 2 * n:  # capitals are wider
                faults[name].append(f"{second[name]} pages of {n}")
    for name, said in faults.items():
        print(f"| {name} | {n_units[name]} | {'; '.join(said) or 'well'} |")
    n_faults = sum(map(len, faults.values()))
    print(f"{len(files)} files, {n_faults} faults")
    return n_faults


def document(n_pages: int) -> bytes:
    """A document of Word, with some words in bold."""
    words = _SENTENCE.split()
    paragraphs = []
    for n in range(n_pages * _WORDS_A_PAGE // _WORDS_A_PARAGRAPH):
        runs = [
            f'<w:r w:rsidR="00AB12CD"><w:rPr>{"<w:b/>" if i % 5 == 4 else ""}<w:sz w:val="22"/></w:rPr>'
            f'<w:t xml:space="preserve">{" ".join(words[(n + i + k) % len(words)] for k in range(8))} </w:t></w:r>'
            for i in range(_WORDS_A_PARAGRAPH // 8)
        ]
        paragraphs.append(f'<w:p><w:pPr><w:jc w:val="both"/></w:pPr>{"".join(runs)}</w:p>')
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    target = BytesIO()
    with ZipFile(target, "w", 8) as archive:
        archive.writestr(
            "[Content_Types].xml",
            '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
            f'<Override PartName="/word/document.xml" ContentType="{main}"/></Types>',
        )
        archive.writestr(
            "word/document.xml", f"<w:document {_BODY}><w:body>{''.join(paragraphs)}</w:body></w:document>"
        )
    return target.getvalue()


def spreadsheet(n_texts: int) -> bytes:
    """A workbook of texts that all differ, as most programs write it: the sheet has their numbers."""
    words, space = _SENTENCE.split(), 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    texts = (f"{' '.join(words[(n + k) % len(words)] for k in range(5))} {n}" for n in range(n_texts))
    cells = "".join(f'<row r="{n + 1}"><c r="A{n + 1}" t="s"><v>{n}</v></c></row>' for n in range(n_texts))
    kinds = {"workbook": "sheet.main", "worksheets/sheet1": "worksheet", "sharedStrings": "sharedStrings"}
    overrides = "".join(
        f'<Override PartName="/xl/{name}.xml"'
        f' ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.{kind}+xml"/>'
        for name, kind in kinds.items()
    )
    target = BytesIO()
    with ZipFile(target, "w", 8) as archive:
        types = "http://schemas.openxmlformats.org/package/2006/content-types"
        archive.writestr("[Content_Types].xml", f'<Types xmlns="{types}">{overrides}</Types>')
        archive.writestr("xl/workbook.xml", f"<workbook {space}><sheets/></workbook>")
        archive.writestr("xl/worksheets/sheet1.xml", f"<worksheet {space}><sheetData>{cells}</sheetData></worksheet>")
        items = "".join(f"<si><t>{text}</t></si>" for text in texts)
        archive.writestr("xl/sharedStrings.xml", f"<sst {space}>{items}</sst>")
    return target.getvalue()


def measure(data: bytes, kind: str, what: str) -> None:
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    opened = read_file(formats()[kind], data, f"long.{kind}")
    documents = translate_parsed(opened.documents, swapped)
    opened.write([one.text for one in documents])
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{what}: {seconds:.1f} s, {(peak - base) / 1024:.0f} MB more at the peak", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", help="the Python of the environment, or `time`, or `cells`")
    parser.add_argument("sizes", nargs="*", type=int)
    parser.add_argument("--soffice", default="", help="the program of LibreOffice; unset, it is left out")
    parser.add_argument("--keep", type=Path, help="a new folder in which the files stay")
    given = parser.parse_args()
    load_addons()
    if given.python == "time":
        for n_pages in given.sizes or [300]:
            measure(document(n_pages), "docx", f"{n_pages} pages")
        return
    if given.python == "cells":
        for n_texts in given.sizes or [100_000]:
            measure(spreadsheet(n_texts), "xlsx", f"{n_texts} texts")
        return
    with TemporaryDirectory() as folder:
        sys.exit(min(check(given.python, given.soffice, (given.keep or Path(folder)).resolve()), 1))


if __name__ == "__main__":
    main()
