"""Plural forms of a catalogue: each language has as many as it has, and the singular fills the form for one thing."""

import subprocess
from gettext import GNUTranslations
from pathlib import Path

import pytest

from tests.addons.documents.test_markup import upper
from tests.support.each import each
from transformer_cli.addons.documents.document import translate_document

# As gettext's manual has them; by language, the number of forms and the formula.
FORMULAS = {
    "ja": (1, "0"),
    "fr": (2, "n > 1"),
    "pl": (3, "n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2"),
    "ar": (6, "n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5"),
}


def catalogue(n_forms: int, formula: str) -> str:
    header = ["Content-Type: text/plain; charset=UTF-8", f"Plural-Forms: nplurals={n_forms}; plural={formula};"]
    lines = ['msgid ""', 'msgstr ""', *(f'"{line}\\n"' for line in header), ""]
    lines += ['msgid "one file"', 'msgid_plural "%d files"', *(f'msgstr[{i}] ""' for i in range(n_forms))]
    return "\n".join([*lines, ""])


@pytest.mark.parametrize("language", FORMULAS)
def test_gettext_finds_the_singular_for_one_and_the_plural_for_others(language: str, tmp_path: Path) -> None:
    text = translate_document(catalogue(*FORMULAS[language]), "po", upper).text
    assert text.count("ONE FILE") == (language != "ja")
    (tmp_path / "x.po").write_text(text, encoding="utf-8")
    compile_it = ["msgfmt", "--check-header", "--use-fuzzy", "-o", str(tmp_path / "x.mo"), str(tmp_path / "x.po")]
    if subprocess.run(["which", "msgfmt"], capture_output=True, check=False).returncode:
        pytest.skip("needs gettext's msgfmt")
    subprocess.run(compile_it, check=True, capture_output=True)
    with open(tmp_path / "x.mo", "rb") as file:
        compiled = GNUTranslations(file)
    for n in (0, 1, 2, 3, 5, 11, 100, 101):
        is_one = compiled.ngettext("one file", "%d files", n) == "ONE FILE"
        of_one = {"ja": (), "fr": (0, 1)}.get(language, (1,))
        assert is_one == (n in of_one), n


@each("formula", ["", "n > ", "n % 0", "n % (n - 5)", "__import__('os')", "1" * 2000])
def test_a_formula_that_is_none_leaves_the_singular_in_the_first_form(formula: str) -> None:
    text = translate_document(catalogue(2, formula), "po", upper).text
    assert 'msgstr[0] "ONE FILE"\nmsgstr[1] "%d FILES"\n' in text
