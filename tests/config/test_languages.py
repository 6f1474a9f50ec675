"""Codes of languages, and which language a text is in by its frequent words."""

import re

import pytest

from tests.support.each import each
from transformer_cli.config.data import DataConfig
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.checks.languages import reads_like
from transformer_cli.errors import ConfigError
from transformer_cli.languages import _TABLE, NAMES, Code, iso_639_1
from transformer_cli.training.run_directory import _fixed

# Of the registration authority's list: ISO 639-1, then those of ISO 639-2, the terminological one first.
ISO_639_2 = """
af afr, am amh, ar ara, az aze, be bel, bg bul, bn ben, bo bod tib, bs bos, ca cat, cs ces cze, cy cym wel, da dan,
de deu ger, dz dzo, el ell gre, en eng, eo epo, es spa, et est, eu eus baq, fa fas per, fi fin, fo fao, fr fra fre,
ga gle, gl glg, gu guj, he heb, hi hin, hr hrv, hu hun, hy hye arm, id ind, is isl ice, it ita, ja jpn, ka kat geo,
kk kaz, km khm, kn kan, ko kor, lb ltz, lo lao, lt lit, lv lav, mk mkd mac, ml mal, mn mon, mr mar, ms msa may, mt mlt,
my mya bur, nb nob, ne nep, nl nld dut, nn nno, no nor, pa pan, pl pol, ps pus, pt por, ro ron rum, ru rus, se sme,
si sin, sk slk slo, sl slv, sq sqi alb, sr srp, sv swe, sw swa, ta tam, te tel, th tha, tl tgl, tr tur, uk ukr, ur urd,
uz uzb, vi vie, yi yid, zh zho chi
"""
PAIRS = [(code, entry.split()[0]) for entry in ISO_639_2.split(",") for code in entry.split()]


@each("code, expected", PAIRS)
def test_a_code_of_three_letters_is_that_of_two(code: str, expected: str) -> None:
    for written in (code, code.upper(), f"{code}_Latn", f"{code}-XX"):
        assert iso_639_1(written) == expected


def test_codes_that_people_use_and_codes_of_no_list() -> None:
    assert [iso_639_1(code) for code in ("cn", "jp", "kr", "cmn", "yue", "xx")] == ["zh", "ja", "ko", "zh", "yue", "xx"]


def test_a_code_is_of_one_language() -> None:
    codes = [code for row in _TABLE.strip().split("\n") for code in row.partition(":")[0].split()]
    assert len(codes) == len(set(codes))
    assert all(iso_639_1(code) in NAMES for code in codes)
    assert [Code.of(code).language for code in ("deu", "nob", "fil", "pb", "sr@latin")] == [
        "de",
        "no",
        "tl",
        "pt",
        "sr",
    ]


ENGLISH = "the dog is not in the house and they were there for the day"
DANISH = "hunden er ikke i huset og de var der hele dagen men jeg har den"


@each("code", ["no", "nor", "nb", "nob_Latn", "nn-NO", "da", "dan"])
def test_norwegian_reads_like_danish(code: str) -> None:
    assert reads_like([DANISH] * 20, code) is None
    assert reads_like([ENGLISH] * 20, code) == "en"


def test_names_are_of_codes_of_the_standard() -> None:
    known = {iso_639_1(code) for code, _ in PAIRS}
    assert all(re.fullmatch("[a-z]{2,3}", code) for code in NAMES)
    assert all(name[0].isupper() for name in NAMES.values())
    assert len(set(NAMES.values())) == len(NAMES)
    assert {code for code in known if code not in NAMES} <= {"bo", "dz", "nb", "nn"}


@each("target", ["de+de", "de+", "de++fr", "de+fr+de"])
def test_several_target_languages_are_different_ones(target: str) -> None:
    with pytest.raises(ConfigError, match=r"^data\.target_lang=.*: must be different languages, joined by"):
        DataConfig(name="files", source_lang="en", target_lang=target, train=["a", "b"])


@pytest.mark.parametrize(("languages", "is_fixed"), [(["en", "de"], False), (["de", "en"], True)])
def test_a_resumed_run_may_say_its_languages_unless_that_swaps_its_sides(languages: list[str], is_fixed: bool) -> None:
    data = DataConfig(name="files", source_lang="en", target_lang="de", train=["a", "b"], languages=languages)
    assert ("data.languages" in _fixed(TrainConfig(data=data))) == is_fixed
