"""Test sets by name: sacrebleu's cache is filled from a server on this machine, and scores are those of its command."""

import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from sacrebleu.dataset import DATASETS

from tests.test_download import Handler, Site, site  # noqa: F401 (a fixture)
from transformer_cli.data import named_sets
from transformer_cli.data.named_sets import SetFiles, set_files, set_names
from transformer_cli.errors import ConfigError, EnvironmentFault

SOURCES = ["The cat sat on the mat .", "She left.", "A third & last line."]
GERMAN = ["Die Katze saß auf der Matte.", "Sie ging.", "Eine dritte & letzte Zeile."]


def sgm(lines: list[str]) -> bytes:
    """As WMT publishes them: no well-formed XML, and entities are not replaced by sacrebleu."""
    segments = "".join(f'<seg id="{number}">{line}</seg>\n' for number, line in enumerate(lines, 1))
    return f'<srcset>\n<doc docid="d1" genre="news" origlang="en">\n{segments}</doc>\n</srcset>\n'.encode()


def packed(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


WMT14 = packed(
    {
        "test/newstest2014-deen-src.en.sgm": sgm(SOURCES),
        "test/newstest2014-deen-ref.de.sgm": sgm(GERMAN),
        "test/newstest2014-deen-src.de.sgm": sgm(GERMAN),
        "test/newstest2014-deen-ref.en.sgm": sgm(SOURCES),
        "test/of nobody": b"not unpacked",
        "../outside": b"an attack",
    }
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SACREBLEU", str(folder))
    return folder


@pytest.fixture
def wmt14(site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Site:  # noqa: F811
    """A server with a tiny newstest2014, which sacrebleu's table names."""
    monkeypatch.setattr(DATASETS["wmt14"], "data", [f"{site.url}/test-filtered.tgz"])
    monkeypatch.setattr(DATASETS["wmt14"], "md5", [hashlib.md5(WMT14).hexdigest()])
    site.replies["/test-filtered.tgz"] = lambda handler: handler.send(WMT14)
    return site


def found(languages: str = "en-de") -> SetFiles:
    return set_files("wmt14", languages, asked_by="--test-set wmt14")


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_set_is_downloaded_once_and_laid_out_as_sacrebleu_does(wmt14: Site, cache: Path) -> None:
    files = found()
    assert (files.source_lang, files.target_lang) == ("en", "de")
    assert files.read() == (SOURCES, [GERMAN])
    fields = ("docid", "genre", "origlang", "ref", "src")
    raw = sorted(
        [f"newstest2014-deen-{side}.sgm" for side in ("ref.de", "ref.en", "src.de", "src.en")],
    )
    assert names(cache) == [
        *(f"wmt14/raw/test/{name}" for name in raw),
        "wmt14/raw/wmt14.test-filtered.tgz",
        *(f"wmt14/wmt14.en-de.{field}" for field in fields),
    ]
    assert found("de-en").read() == (GERMAN, [SOURCES])
    assert found() == files
    assert len(wmt14.requests) == 1


def test_nothing_is_left_of_a_download_that_fails(wmt14: Site, cache: Path) -> None:
    def page(handler: Handler) -> None:
        handler.send(b"<html>log in</html>", Content_Type="text/html")

    for reply, says in (
        (lambda handler: handler.send(WMT14, stop_after=100), "bytes are missing"),
        (lambda handler: handler.send(WMT14[:100]), "what came has MD5"),
        (lambda handler: handler.send(b"", status=404), "the server answers 404"),
        (page, "a web page came instead"),
    ):
        wmt14.replies["/test-filtered.tgz"] = reply
        with pytest.raises(EnvironmentFault, match=says) as caught:
            found()
        assert str(caught.value).startswith(f"--test-set wmt14: not in {cache}, and {wmt14.url}/test-filtered.tgz")
        assert "--source and --reference" in str(caught.value)
        assert list(cache.iterdir()) == []


def test_a_server_that_is_not_there_is_said(wmt14: Site, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DATASETS["wmt14"], "data", ["http://127.0.0.1:9/test-filtered.tgz"])
    with pytest.raises(EnvironmentFault, match="refused"):
        found()


@pytest.mark.parametrize("damage", ["no text", "empty text", "archive cut short", "member cut short", "no archive"])
def test_what_an_interrupted_sacrebleu_has_left_is_made_whole(wmt14: Site, cache: Path, damage: str) -> None:
    found()
    folder = cache / "wmt14"
    for text in folder.glob("wmt14.*"):
        text.unlink()
    archive = folder / "raw/wmt14.test-filtered.tgz"
    match damage:
        case "empty text":
            for field in ("docid", "genre", "origlang", "ref", "src"):
                (folder / f"wmt14.en-de.{field}").touch()
        case "archive cut short":
            archive.write_bytes(WMT14[:50])
        case "member cut short":
            (folder / "raw/test/newstest2014-deen-ref.de.sgm").write_bytes(sgm(GERMAN)[:-40])
        case "no archive":
            archive.unlink()
    assert found().read() == (SOURCES, [GERMAN])
    assert archive.read_bytes() == WMT14


def test_a_lock_of_sacrebleu_is_not_waited_for(wmt14: Site, cache: Path) -> None:
    lock = cache / "wmt14/raw/wmt14.test-filtered.tgz.lock"
    lock.parent.mkdir(parents=True)
    portalocker = pytest.importorskip("portalocker")
    with portalocker.Lock(lock):
        assert found().read() == (SOURCES, [GERMAN])


def test_files_that_do_not_fit_are_refused(wmt14: Site, cache: Path) -> None:
    found()
    (cache / "wmt14/wmt14.en-de.ref").write_text("one line\n", encoding="utf-8")
    with pytest.raises(EnvironmentFault, match=r"ref: has 1 lines, .*src 3\. Delete .*wmt14, and it is made again"):
        found().read()


def test_a_set_in_the_cache_needs_neither_network_nor_a_disk_to_write_to(wmt14: Site, cache: Path) -> None:
    found()
    wmt14.replies.clear()
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    assert found().read() == (SOURCES, [GERMAN])
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before


XML = b"""<dataset id="t"><doc id="d" origlang="en"><src lang="en">
<p><seg id="1">One.</seg><seg id="2">Two.</seg></p></src>
<ref lang="de" translator="A"><p><seg id="1">Eins.</seg><seg id="2">Zwei.</seg></p></ref>
<ref lang="de" translator="B"><p><seg id="1">Ein.</seg><seg id="2">Zwo.</seg></p></ref></doc></dataset>"""


def test_a_set_with_two_references_has_both(site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    archive = packed({"test/newstest2021.en-de.xml": XML})
    for name in ("wmt21/AC", "wmt21", "wmt21/AB"):
        monkeypatch.setattr(DATASETS[name], "data", [f"{site.url}/test.tgz"])
        monkeypatch.setattr(DATASETS[name], "md5", [hashlib.md5(archive).hexdigest()])
    site.replies["/test.tgz"] = lambda handler: handler.send(archive)
    one = set_files("wmt21", "en-de", asked_by="").read()
    assert one == (["One.", "Two."], [["Eins.", "Zwei."]])
    monkeypatch.setitem(DATASETS["wmt21/AC"].kwargs, "refs", ["A", "B"])
    both = set_files("wmt21/AC", "en-de", asked_by="").read()
    assert both == (["One.", "Two."], [["Eins.", "Zwei."], ["Ein.", "Zwo."]])


def test_names_and_directions_that_there_are_not_are_answered_with_those_that_there_are(cache: Path) -> None:
    with pytest.raises(ConfigError, match=r"--test-set wmt41: sacrebleu has no such test set; did you mean `wmt14`\?"):
        set_files("wmt14x", "en-de", asked_by="--test-set wmt41")
    with pytest.raises(ConfigError, match=r"--test-set wmt14: has no en-ja.*\(choices: cs-en, de-en, en-cs, en-de"):
        set_files("wmt14", "en-ja", asked_by="--test-set wmt14")
    assert set(set_names("en-de")) < set(set_names()) == set(DATASETS)
    assert not cache.exists()
    assert named_sets.check_languages("en-de") == ("en", "de")
    with pytest.raises(ConfigError, match="Write it as en-de"):
        named_sets.check_languages("English")
