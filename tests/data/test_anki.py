"""`data=anki_en_*`: an archive of manythings.org, from a server on this machine that is as particular as that one."""

import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path

import pytest

from tests.support.each import each
from transformer_cli.config.compose import from_plain, load_config
from transformer_cli.config.data import DataConfig, Download
from transformer_cli.config.yaml_files import config_dir, read_yaml
from transformer_cli.data.download import fetch
from transformer_cli.data.splits import Splits, load_splits
from transformer_cli.errors import DataError, EnvironmentFault

NAMES = sorted(path.stem for path in (config_dir() / "data").glob("anki_*.yaml"))
CREDIT = "CC-BY 2.0 (France) Attribution: tatoeba.org #1 (CM) & #2 (sacredceltic)"
# As there: sorted by length, and a sentence has as many lines as translations.
PAIRS = [("Go.", "Va !"), ("Go.", "Marche."), ("Go.", "Bouge !")]
PAIRS += [(f"I see {n} cats.", f"Je vois {n} chats.") for n in range(40)]
PAIRS += [(f"I see {n} cats.", f"Je regarde {n} chats.") for n in range(40)]


def archive(*, columns: int = 3, end: str = "\n") -> bytes:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("_about.txt", "Tab-delimited bilingual sentence pairs\n")
        file.writestr("fra.txt", "".join("\t".join((*pair, CREDIT)[:columns]) + end for pair in PAIRS))
    return packed.getvalue()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        is_welcome = self.headers["User-Agent"].startswith("Mozilla/5.0 ") and self.headers["Accept"]
        content = archive()
        if self.path.startswith("/closed/") or not is_welcome:
            self.send_error(406)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def corpus(*overrides: str) -> DataConfig:
    config: DataConfig = load_config("prepare", ["data=anki_en_fr", *overrides]).data
    return config


def pairs_of(splits: Splits) -> tuple[list[tuple[str, str]], list[tuple[str, str]], list[tuple[str, str]]]:
    """Train without what is held out, dev and test."""
    assert splits.test is not None
    train = [pair for pair in splits.train.each() if pair[0] not in splits.held_out]
    return train, list(splits.dev.each()), list(splits.test.each())


@each("name", NAMES)
def test_each_of_them_names_one_archive_and_the_text_in_it(name: str) -> None:
    file = config_dir() / "data" / f"{name}.yaml"
    corpus = from_plain(DataConfig, read_yaml(file))
    (download,) = corpus.downloads
    three, _, _ = download.url.removeprefix("https://www.manythings.org/anki/").partition("-eng.zip")
    assert corpus.train == f"{three}-eng.zip::{three}.txt"
    assert (corpus.name, corpus.source_lang, corpus.columns) == (name, "en", [0, 1])
    assert name.endswith(f"_{corpus.target_lang}")
    assert (download.size, download.sha256, download.text_sha256) == (None, None, None)  # it is packed anew at times
    assert "CC BY 2.0" in file.read_text(encoding="utf-8")


def test_the_archive_is_downloaded_and_split_by_source_sentence(site: str, tmp_path: Path) -> None:
    config = corpus(f"data.cache={tmp_path}", "data.holdout=4")
    config.downloads = [Download(url=f"{site}/fra-eng.zip")]
    fetch(config)
    train, dev, test = pairs_of(load_splits(config, tmp_path))
    sources = [{source for source, _ in pairs} for pairs in (train, dev, test)]
    assert (len(dev), len(test)) == (4, 3)  # at most 5 % of what is left
    assert sources[0] | sources[1] | sources[2] == {source for source, _ in PAIRS}
    assert not sources[0] & (sources[1] | sources[2])
    assert not sources[1] & sources[2]
    assert set(train + dev + test) <= set(PAIRS)  # without the third column


def test_a_server_that_refuses_programs_says_how_to_get_the_file(site: str, tmp_path: Path) -> None:
    config = corpus(f"data.cache={tmp_path}")
    config.downloads = [Download(url=f"{site}/closed/fra-eng.zip")]
    with pytest.raises(
        EnvironmentFault, match=r"answers 406 Not Acceptable\. Open the address in a browser, put .* set data\.root"
    ):
        fetch(config)


@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("packed", [True, False])
def test_a_folder_may_have_the_archive_or_its_text_of_any_year(
    tmp_path: Path, columns: int, end: str, packed: bool
) -> None:
    content = archive(columns=columns, end=end)
    if packed:
        (tmp_path / "fra-eng.zip").write_bytes(content)
    else:
        zipfile.ZipFile(BytesIO(content)).extractall(tmp_path)
    for spool in ("a", "b"):
        (tmp_path / spool).mkdir()
    splits = load_splits(corpus(f"data.root={tmp_path}"), tmp_path / "a")
    assert list(splits.train.each()) == PAIRS
    other = load_splits(corpus(f"data.root={tmp_path}", "data.source_lang=fr", "data.target_lang=en"), tmp_path / "b")
    assert list(other.train.each()) == [(target, source) for source, target in PAIRS]


def test_a_folder_without_the_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no fra-eng\.zip::fra\.txt, packed or not"):
        load_splits(corpus(f"data.root={tmp_path}"), tmp_path)
