"""Corpora by their ids in mtdata's index, downloaded from a server on this machine.

What mtdata answers is given here, but for the last tests, which ask mtdata itself where it is installed.
"""

import gzip
import importlib.util
import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.data.test_download import Site, site  # noqa: F401 (a fixture)
from tests.support.contract import refused
from transformer_cli.addons.named_corpora import index
from transformer_cli.config.data import DataConfig
from transformer_cli.data.corpus import load_text
from transformer_cli.data.prepare import prepare
from transformer_cli.errors import ConfigError, EnvironmentFault

PAIRS = [(f"Sentence {number}.", f"Satz {number}.") for number in range(200)]
ENGLISH, GERMAN = ("".join(f"{pair[side]}\n" for pair in PAIRS).encode() for side in (0, 1))
TABLE = gzip.compress("".join(f"{n}\t{german}\t{english}\n" for n, (english, german) in enumerate(PAIRS)).encode())
UNITS = "".join(
    f"<tu><tuv xml:lang='en'><seg>{english}</seg></tuv><tuv xml:lang='de'><seg>{german}</seg></tuv></tu>"
    for english, german in PAIRS
)
MEMORY = f'<tmx version="1.4"><body>{UNITS}</body></tmx>'.encode()
CITATION = "@article{someone, title={A corpus}}"
HAS_MTDATA = importlib.util.find_spec("mtdata") is not None


def zipped(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def set_of(lines: bytes) -> bytes:
    """Text as WMT publishes test sets."""
    segments = "".join(f'<seg id="{n}">{line}</seg>\n' for n, line in enumerate(lines.decode().split("\n")[:-1], 1))
    return f'<srcset><doc docid="d">\n{segments}</doc></srcset>\n'.encode()


CONTENTS = {
    "texts.zip": zipped({"README": b"", "a/corpus.de-en.de": GERMAN, "a/corpus.de-en.en": ENGLISH}),
    "table.tsv.gz": TABLE,
    "memory.zip": zipped({"x/memory.tmx": MEMORY}),
    "memories.zip": zipped({"a.tmx": MEMORY, "b.tmx": MEMORY}),
    "sets.zip": zipped({"src.de.sgm": set_of(GERMAN), "ref.en.sgm": set_of(ENGLISH)}),
    "one.de": GERMAN,
    "one.en": ENGLISH,
}
ENTRIES: dict[str, dict[str, Any]] = {
    "Made-texts-1-deu-eng": {"form": "txt", "of": ["texts.zip"], "members": ["*.de", "*.en"]},
    "Made-table-1-deu-eng": {"form": "tsv.gz", "of": ["table.tsv.gz"], "columns": [1, 2]},
    "Made-memory-1-deu-eng": {"form": "tmx", "of": ["memory.zip"], "members": ["*.tmx"]},
    "Made-memories-1-eng-deu": {"form": "tmx", "of": ["memories.zip"], "members": ["a.tmx", "b.tmx"]},
    "Made-sets-1-deu-eng": {"form": "sgm", "of": ["sets.zip"], "members": ["src.*", "ref.*"]},
    "Made-two-1-deu-eng": {"form": "txt", "of": ["one.de", "one.en"]},
    "Made-packed-1-deu-eng": {"form": "tsv.xz", "of": ["packed.tsv.xz"]},
    "Made-packed-2-deu-eng": {"form": "tsv", "of": ["packed.tsv.xz"]},
    "Made-other-1-deu-eng": {"form": "hfds", "of": []},
    "Made-single-1-deu": {"form": "txt", "of": ["one.de"]},
    "Made-french-1-eng-fra": {"form": "txt", "of": ["one.de", "one.en"]},
    "Made-missing-1-deu-eng": {"form": "txt", "of": ["texts.zip"], "members": ["*.de", "*.fr"]},
}


@pytest.fixture
def asked(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:  # noqa: F811
    """The ids that mtdata was asked for; its files are on the server, and its cache is a folder of the test."""
    found: list[str] = []
    for name, content in CONTENTS.items():
        site.replies[f"/{name}"] = lambda handler, content=content: handler.send(content)

    def described(name: str) -> dict[str, Any]:
        entry = ENTRIES[name]
        paths = {one: tmp_path / "mtdata" / "127.0.0.1" / one / one for one in entry["of"]}
        files = [
            {"url": f"{site.url}/{one}", "path": str(path), "flag": f"{path}._valid"} for one, path in paths.items()
        ]
        plain = {"languages": name.split("-")[3:], "members": [], "columns": [], "citations": [CITATION]}
        return {**plain, **entry, "files": files}

    def answer(ids: list[str]) -> dict[str, Any]:
        found.extend(ids)
        known = {name: described(name) for name in ids if name in ENTRIES}
        near = {name: ["Made-texts-1-deu-eng"] for name in ids if name not in ENTRIES}
        return {"version": "0.5.1", "entries": known, "near": near}

    monkeypatch.setattr(index, "_answer", answer)
    return found


def config(tmp_path: Path, *ids: str, **changes: Any) -> DataConfig:
    plain = {"source_lang": "en", "target_lang": "de", "cache": str(tmp_path / "cache"), "mtdata": list(ids)}
    return DataConfig(**{**plain, **changes})


def pairs(data: DataConfig) -> list[tuple[str, str]]:
    text = load_text(data, "train")
    assert text is not None
    return list(text.each())


READABLE = ["texts", "table", "memory", "sets", "two"]


@pytest.mark.parametrize("name", READABLE)
def test_a_corpus_is_read_in_the_direction_of_the_training(tmp_path: Path, asked: list[str], name: str) -> None:
    """The ids name German first, and so do their files, but for the memory."""
    wanted = f"Made-{name}-1-deu-eng"
    assert pairs(config(tmp_path, wanted)) == PAIRS
    exchanged = config(tmp_path, wanted, source_lang="de", target_lang="en", languages=["en", "de"])
    assert pairs(exchanged) == [(german, english) for english, german in PAIRS]
    assert asked == [wanted]


def test_several_files_of_one_id_are_one_corpus(tmp_path: Path, asked: list[str]) -> None:
    assert pairs(config(tmp_path, "Made-memories-1-eng-deu", weights=[2])) == [*PAIRS, *PAIRS]


def test_several_corpora_come_in_order_before_those_of_train(tmp_path: Path, asked: list[str]) -> None:
    (tmp_path / "own.tsv").write_text("one\teins\n", encoding="utf-8")
    ids = ["Made-two-1-deu-eng", "Made-table-1-deu-eng"]
    data = config(tmp_path, *ids, train=str(tmp_path / "own.tsv"), weights=[1, 2, 3])
    assert pairs(data) == [*PAIRS, *PAIRS, ("one", "eins")]
    assert pairs(config(tmp_path, *ids, weights=[1, 2], tags=["<a>", "<b>"])) == [
        (f"{tag} {english}", german) for tag in ("<a>", "<b>") for english, german in PAIRS
    ]


def test_a_file_is_downloaded_once_and_later_starts_need_no_mtdata(
    tmp_path: Path,
    asked: list[str],
    site: Site,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = config(tmp_path, "Made-texts-1-deu-eng")
    assert pairs(data) == PAIRS
    assert [path for path, _ in site.requests] == ["/texts.zip"]
    folder = tmp_path / "mtdata" / "127.0.0.1" / "texts.zip"
    assert (folder / "texts.zip._valid").is_file()  # by which mtdata knows that it is whole
    monkeypatch.setattr(index, "_answer", lambda ids: pytest.fail("mtdata was asked"))
    assert pairs(data) == PAIRS
    assert len(site.requests) == 1
    record = next((tmp_path / "cache" / "files" / "mtdata").glob("*.json"))
    record.write_text("{damaged", encoding="utf-8")
    with pytest.raises(pytest.fail.Exception):
        pairs(data)


def test_what_mtdata_has_downloaded_is_not_downloaded_again(
    tmp_path: Path,
    asked: list[str],
    site: Site,  # noqa: F811
) -> None:
    folder = tmp_path / "mtdata" / "127.0.0.1" / "texts.zip"
    folder.mkdir(parents=True)
    (folder / "texts.zip").write_bytes(CONTENTS["texts.zip"])
    (folder / "texts.zip._valid").touch()
    assert pairs(config(tmp_path, "Made-texts-1-deu-eng")) == PAIRS
    assert site.requests == []


def test_a_prepared_corpus_has_the_facts_of_each(tmp_path: Path, asked: list[str], site: Site) -> None:  # noqa: F811
    prepared = prepare(config(tmp_path, "Made-texts-1-deu-eng", holdout=5))
    assert prepared.corpora == [
        {
            "id": "Made-texts-1-deu-eng",
            "urls": [f"{site.url}/texts.zip"],
            "bytes": len(CONTENTS["texts.zip"]),
            "citations": [CITATION],
        }
    ]


@pytest.mark.parametrize(
    ("name", "fault", "message"),
    [
        ("Made-textz-1-deu-eng", ConfigError, "has no corpus Made-textz-1-deu-eng; did you mean Made-texts-1-deu-eng?"),
        ("europarl", ConfigError, "'europarl' is no id of mtdata. Write GROUP-NAME-VERSION-LANGUAGE-LANGUAGE"),
        ("../../etc-a-b-c", ConfigError, "is no id of mtdata"),
        ("Made-french-1-eng-fra", ConfigError, "is of eng and fra, not of data.source_lang=en and data.target_lang=de"),
        ("Made-packed-1-deu-eng", ConfigError, "is text as tsv.xz, which is not read by name"),
        ("Made-packed-2-deu-eng", ConfigError, "is text as tsv.xz, which is not read by name"),
        ("Made-other-1-deu-eng", ConfigError, "is text as hfds, which is not read by name"),
        ("Made-single-1-deu", ConfigError, "is text in one language"),
        ("Made-missing-1-deu-eng", EnvironmentFault, r"0 members of \S+texts.zip are called '\*.fr'"),
    ],
)
def test_what_is_no_corpus_of_these_languages_is_one_line(
    tmp_path: Path, asked: list[str], name: str, fault: type[Exception], message: str
) -> None:
    with pytest.raises(fault, match=message) as error:
        pairs(config(tmp_path, name))
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("data.mtdata: ")


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (lambda handler: handler.send(b"", status=404), "the server answers 404"),
        (lambda handler: handler.send(b"<html></html>"), "a web page came instead of the file"),
        (lambda handler: handler.send(b"abc", claim=100), "the connection was cut at 3 of 100 bytes"),
    ],
)
def test_a_failed_download_is_one_line_and_no_corpus(
    tmp_path: Path,
    asked: list[str],
    site: Site,  # noqa: F811
    reply: Any,
    message: str,
) -> None:
    site.replies["/texts.zip"] = reply
    remedy = "Connect to the network and run again, or fetch it with `mtdata get`"
    with pytest.raises(EnvironmentFault, match=f"data.mtdata: Made-texts-1-deu-eng: .*{message}.*{remedy}"):
        pairs(config(tmp_path, "Made-texts-1-deu-eng"))
    assert not list((tmp_path / "mtdata").rglob("texts.zip"))[1:]
    assert not list((tmp_path / "mtdata").rglob("*._valid"))


def test_without_a_network_one_line_says_so(tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # where nothing listens
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(EnvironmentFault, match=r"texts.zip: cannot be reached .*\. Connect to the network"):
        pairs(config(tmp_path, "Made-texts-1-deu-eng"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reader": "plain"}, "data.reader=plain, and reads no named corpora. Leave one of them out"),
        ({"mtdata": ["A-b-1-deu-eng", "A-b-1-deu-eng"]}, "names a corpus twice"),
        ({"builtin": "demo_en_fr"}, "data=files is built in, and reads no named corpora. Add data=files"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pairs(config(tmp_path, "A-b-1-deu-eng", **changes))


@pytest.mark.skipif(HAS_MTDATA, reason="mtdata is installed")
def test_without_mtdata_one_line_names_the_extra(tmp_path: Path) -> None:
    languages = ["data.source_lang=en", "data.target_lang=de"]
    command = ["prepare", "data=files", "data.mtdata=[Statmt-europarl-10-deu-eng]", *languages]
    says = [
        "data.mtdata: the package mtdata cannot be imported",
        "Run `pip install '.[mtdata]'` in the checkout of tfm",
    ]
    refused(command, tmp_path, code=5, says=says, working=True)


# ---- mtdata itself

MAKE_INDEX = """
import pickle, sys, types
import mtdata
from mtdata.entry import Entry
# An index as mtdata keeps it, without importing its own, which would make one of all corpora.
module = types.ModuleType("mtdata.index")
for name in ("Index", "ReferenceDb"):
    setattr(module, name, type(name, (), {"__module__": "mtdata.index"}))
sys.modules["mtdata.index"] = module
found = module.Index()
url, cite = sys.argv[1], ("koehn2005europarl",)
entries = [
    Entry("Made-texts-1-deu-eng", f"{url}/texts.zip", in_paths=["*.de", "*.en"], in_ext="txt", cite=cite),
    Entry("Made-table-1-deu-eng", f"{url}/table.tsv.gz", cols=(1, 2)),
    Entry("Made-memory-1-eng-deu", f"{url}/memory.zip", in_paths=["*.tmx"], in_ext="tmx"),
    Entry("Made-two-1-deu-eng", (f"{url}/one.de", f"{url}/one.en"), ext="txt", in_ext="txt"),
]
found.entries = {entry.did: entry for entry in entries}
found.papers, found.version, found.ref_db = {}, mtdata.__version__, module.ReferenceDb()
mtdata.cached_index_file.parent.mkdir(parents=True)
mtdata.cached_index_file.write_bytes(pickle.dumps(found))
"""


@pytest.fixture
def real(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """An index of mtdata with few corpora, which are on the server."""
    if not HAS_MTDATA:
        pytest.skip("mtdata is not installed")
    for name, content in CONTENTS.items():
        site.replies[f"/{name}"] = lambda handler, content=content: handler.send(content)
    monkeypatch.setenv("MTDATA", str(tmp_path / "mtdata"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mtdata_own.py").write_text("raise SystemExit('was imported')\n", encoding="utf-8")
    subprocess.run([sys.executable, "-c", MAKE_INDEX, site.url], check=True, env=dict(os.environ))


@pytest.mark.usefixtures("real")
def test_corpora_are_found_in_mtdatas_index_and_kept_in_its_cache(tmp_path: Path) -> None:
    ids = ["Made-texts-1-deu-eng", "Made-table-1-deu-eng", "Made-memory-1-eng-deu", "Made-two-1-deu-eng"]
    assert pairs(config(tmp_path, *ids)) == PAIRS * 4
    [texts, *_] = index.named_corpora(config(tmp_path, *ids))
    assert texts.languages == ["deu", "eng"]
    assert "Europarl" in texts.citations[0]
    check = (
        "import sys; from mtdata.cache import Cache; from mtdata.index import INDEX; from mtdata import cache_dir\n"
        "from mtdata.parser import Parser\n"
        "for entry in INDEX.get_entries():\n"
        "    path = Cache(cache_dir).get_entry(entry)\n"
        "    rows = list(Parser(path, ext=entry.in_ext or None, ent=entry).read_segs(show_pbar=False))\n"
        "    print(entry.did, len(rows), rows[7][:2])\n"
    )
    site_off = {**os.environ, "http_proxy": "http://127.0.0.1:9", "no_proxy": ""}
    done = subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, env=site_off, text=True)
    assert len(done.stdout.split("\n")) == 5  # mtdata reads what was downloaded here, without a network
    assert "Made-table-1-deu-eng 200 ['Satz 7.', 'Sentence 7.']" in done.stdout


@pytest.mark.usefixtures("real")
def test_an_id_that_mtdata_does_not_have_is_one_line_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no corpus Made-text-1-deu-eng; did you mean Made-texts-1-deu-eng"):
        pairs(config(tmp_path, "Made-text-1-deu-eng"))
    with pytest.raises(ConfigError, match=r"has no corpus Other-thing-9-xxx-yyy`?"):
        pairs(config(tmp_path, "Other-thing-9-xxx-yyy"))


@pytest.mark.usefixtures("real")
def test_a_damaged_index_is_one_line(tmp_path: Path) -> None:
    next((tmp_path / "mtdata").glob("*.pkl")).write_bytes(b"damaged")
    with pytest.raises(EnvironmentFault, match="mtdata cannot read its index"):
        pairs(config(tmp_path, "Made-texts-1-deu-eng"))
