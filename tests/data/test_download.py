"""Downloads from a real server on this machine that cuts, lies and redirects; archives that attack."""

import errno
import fcntl
import gzip
import hashlib
import io
import json
import logging
import os
import random
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.support.each import each
from transformer_cli.config.data import DataConfig, Download
from transformer_cli.data import archive, compression, download
from transformer_cli.data.archive import open_members
from transformer_cli.data.download import fetch
from transformer_cli.data.lines import read_stream
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault

CONTENT = bytes(range(256)) * 2000  # 512,000 bytes
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        site = self.server.site  # type: ignore[attr-defined]
        site.requests.append((self.path, self.headers.get("Range")))
        self.close_connection = True
        site.replies[self.path](self)

    def log_message(self, *_: object) -> None:
        pass

    def send(
        self,
        content: bytes,
        *,
        status: int = 200,
        claim: int | None = None,
        stop_after: int | None = None,
        **headers: str,
    ) -> None:
        """Send `content` whole or in part, claiming its length or another."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(content) if claim is None else claim))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content[:stop_after])

    def send_range(self, content: bytes, *, stop_after: int | None = None, etag: str = '"1"') -> None:
        """Send what the Range header asks for, as a good server does."""
        start = 0
        if (wanted := self.headers.get("Range")) and self.headers.get("If-Range", etag) == etag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if start >= len(content):
            self.send(b"", status=416, Content_Range=f"bytes */{len(content)}")
        elif start:
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.send(content[start:], status=206, stop_after=stop_after, Content_Range=span, ETag=etag)
        else:
            self.send(content, stop_after=stop_after, ETag=etag)


class Site:
    """A server on this machine; `replies` says what each path does."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.replies: dict[str, Callable[[Handler], None]] = {}
        self.requests: list[tuple[str, str | None]] = []

    def config(self, cache: Path, **options: Any) -> DataConfig:
        """A corpus that downloads /corpus.bin."""
        file = Download(url=f"{self.url}/corpus.bin", **options)
        return DataConfig(name="toy", source_lang="en", target_lang="de", cache=str(cache), downloads=[file])


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.0)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that hang up are part of the tests
    server.site = Site(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.site  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


def good(handler: Handler) -> None:
    handler.send_range(CONTENT)


def always_cut(handler: Handler) -> None:
    handler.send(CONTENT, stop_after=len(CONTENT) // 2)


def downloaded(cache: Path) -> Path:
    return cache / "toy" / "downloads" / "corpus.bin"


def part_of(cache: Path) -> Path:
    return downloaded(cache).with_name("corpus.bin.part")


def test_a_file_is_downloaded_verified_and_not_asked_for_again(site: Site, tmp_path: Path) -> None:
    site.replies["/corpus.bin"] = good
    config = site.config(tmp_path, size=len(CONTENT), sha256=SHA256)
    fetch(config)
    fetch(config)
    assert downloaded(tmp_path).read_bytes() == CONTENT
    assert not part_of(tmp_path).exists()
    assert len(site.requests) == 1


def test_F9_a_cut_download_goes_on_where_it_was_cut(site: Site, tmp_path: Path) -> None:
    half = len(CONTENT) // 2
    site.replies["/corpus.bin"] = lambda handler: handler.send_range(
        CONTENT, stop_after=half if len(site.requests) == 1 else None
    )
    fetch(site.config(tmp_path, sha256=SHA256))
    assert downloaded(tmp_path).read_bytes() == CONTENT
    assert [wanted for _, wanted in site.requests] == [None, f"bytes={half}-"]


def test_F9_a_download_cut_for_good_keeps_its_part_for_the_next_run(site: Site, tmp_path: Path) -> None:
    half = len(CONTENT) // 2
    site.replies["/corpus.bin"] = always_cut
    config = site.config(tmp_path, sha256=SHA256)
    with pytest.raises(EnvironmentFault, match=r"cut at 256,000 of 512,000 bytes; 256,000 bytes are kept in .*\.part"):
        fetch(config)
    assert not downloaded(tmp_path).exists()
    assert part_of(tmp_path).read_bytes() == CONTENT[:half]
    site.requests.clear()
    site.replies["/corpus.bin"] = good
    fetch(config)
    assert site.requests == [("/corpus.bin", f"bytes={half}-")]
    assert downloaded(tmp_path).read_bytes() == CONTENT


def test_F9_a_server_that_ignores_range_sends_everything_anew(site: Site, tmp_path: Path) -> None:
    site.replies["/corpus.bin"] = lambda handler: handler.send(
        CONTENT, stop_after=1000 if len(site.requests) == 1 else None
    )
    fetch(site.config(tmp_path, sha256=SHA256))
    assert downloaded(tmp_path).read_bytes() == CONTENT
    assert len(site.requests) == 2


def test_F9_a_part_of_another_version_is_thrown_away(site: Site, tmp_path: Path) -> None:
    site.replies["/corpus.bin"] = good
    part_of(tmp_path).parent.mkdir(parents=True)
    part_of(tmp_path).write_bytes(b"another version")
    fetch(site.config(tmp_path, sha256=SHA256))
    assert downloaded(tmp_path).read_bytes() == CONTENT


def test_F9_without_a_known_hash_only_the_same_version_is_resumed(site: Site, tmp_path: Path) -> None:
    old = CONTENT[::-1]
    site.replies["/corpus.bin"] = lambda handler: handler.send(old, stop_after=1000, ETag='"old"')
    with pytest.raises(EnvironmentFault):
        fetch(site.config(tmp_path))
    site.replies["/corpus.bin"] = lambda handler: handler.send_range(CONTENT, etag='"new"')
    fetch(site.config(tmp_path))
    assert downloaded(tmp_path).read_bytes() == CONTENT


def test_F9_a_server_that_promises_more_than_it_sends_is_not_believed(site: Site, tmp_path: Path) -> None:
    site.replies["/corpus.bin"] = lambda handler: handler.send(CONTENT, claim=len(CONTENT) + 1)
    with pytest.raises(EnvironmentFault, match=r"cut at 512,000 of 512,001 bytes"):
        fetch(site.config(tmp_path))
    assert not downloaded(tmp_path).exists()


def test_F9_a_server_that_promises_less_than_the_file_fails_the_hash(site: Site, tmp_path: Path) -> None:
    site.replies["/corpus.bin"] = lambda handler: handler.send(CONTENT, claim=1000)
    got = hashlib.sha256(CONTENT[:1000]).hexdigest()
    with pytest.raises(EnvironmentFault, match=f"SHA-256 is {got}, expected {SHA256}"):
        fetch(site.config(tmp_path, sha256=SHA256))


def test_F9_a_file_of_another_size_is_refused_before_it_is_sent(site: Site, tmp_path: Path) -> None:
    site.replies["/corpus.bin"] = good
    with pytest.raises(EnvironmentFault, match=r"offers 512,000 bytes, expected 9"):
        fetch(site.config(tmp_path, size=9))
    assert not part_of(tmp_path).exists()


def test_F9_a_wrong_hash_is_reported_kept_apart_and_fetched_anew(site: Site, tmp_path: Path) -> None:
    site.replies["/corpus.bin"] = lambda handler: handler.send_range(b"something else")
    got = hashlib.sha256(b"something else").hexdigest()
    config = site.config(tmp_path, sha256=SHA256)
    with pytest.raises(EnvironmentFault, match=rf"SHA-256 is {got}, expected {SHA256}\. It is kept as") as caught:
        fetch(config)
    assert caught.value.exit_code == 5
    assert not downloaded(tmp_path).exists()
    assert part_of(tmp_path).exists()
    site.replies["/corpus.bin"] = good
    fetch(config)
    assert downloaded(tmp_path).read_bytes() == CONTENT


def test_F9_a_text_hash_does_not_depend_on_how_the_text_was_packed(site: Site, tmp_path: Path) -> None:
    text = b"one\ntwo"
    right = hashlib.sha256(text + b"\n").hexdigest()
    site.replies["/t.en.gz"] = lambda handler: handler.send(gzip.compress(text, compresslevel=1, mtime=9))
    config = site.config(tmp_path)
    config.downloads = [Download(url=f"{site.url}/t.en.gz", text_sha256=right)]
    fetch(config)
    config.cache = str(tmp_path / "other")
    config.downloads = [Download(url=f"{site.url}/t.en.gz", text_sha256="0" * 64)]
    with pytest.raises(EnvironmentFault, match=f"SHA-256 of its text is {right}, expected 000"):
        fetch(config)


def test_F9_a_login_page_is_not_taken_for_the_file(site: Site, tmp_path: Path) -> None:
    page = b"\n<!DOCTYPE html><html>Please log in</html>"
    for content_type in ("text/html; charset=utf-8", "application/octet-stream"):
        site.replies["/corpus.bin"] = lambda handler, kind=content_type: handler.send(page, Content_Type=kind)  # type: ignore[misc]
        with pytest.raises(EnvironmentFault, match="a web page came instead of the file"):
            fetch(site.config(tmp_path))
        assert not part_of(tmp_path).exists()


def test_F9_a_missing_file_is_an_error_at_once(site: Site, tmp_path: Path) -> None:
    site.replies["/corpus.bin"] = lambda handler: handler.send(b"no", status=404)
    with pytest.raises(EnvironmentFault, match=r"/corpus.bin: the server answers 404 Not Found\. .*data\.root"):
        fetch(site.config(tmp_path))
    assert len(site.requests) == 1


def test_a_server_that_is_busy_is_asked_again(site: Site, tmp_path: Path) -> None:
    site.replies["/corpus.bin"] = lambda handler: (
        handler.send(b"", status=503) if len(site.requests) < 3 else handler.send_range(CONTENT)
    )
    fetch(site.config(tmp_path, sha256=SHA256))
    assert len(site.requests) == 3


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "FILE:///etc/passwd", "ftp://127.0.0.1/x", "data:text/plain,x"]
)
def test_F9_a_redirect_away_from_http_is_refused(site: Site, tmp_path: Path, target: str) -> None:
    site.replies["/corpus.bin"] = lambda handler: handler.send(b"", status=302, Location=target)
    with pytest.raises(
        EnvironmentFault, match=rf"redirects to '{re.escape(target)}'; only http and https are followed"
    ):
        fetch(site.config(tmp_path))
    assert not downloaded(tmp_path).exists()
    assert not part_of(tmp_path).exists()


def test_a_redirect_within_http_is_followed_and_a_circle_is_not(site: Site, tmp_path: Path) -> None:
    site.replies["/corpus.bin"] = lambda handler: handler.send(b"", status=302, Location="/moved")
    site.replies["/moved"] = good
    fetch(site.config(tmp_path, sha256=SHA256))
    assert downloaded(tmp_path).read_bytes() == CONTENT
    site.replies["/moved"] = lambda handler: handler.send(b"", status=302, Location="/corpus.bin")
    with pytest.raises(EnvironmentFault, match="circle"):
        fetch(site.config(tmp_path / "other"))


def test_a_hash_that_nobody_published_is_recorded_and_compared_afterwards(site: Site, tmp_path: Path) -> None:
    site.replies["/corpus.bin"] = good
    config = site.config(tmp_path)
    fetch(config)
    records = json.loads(downloaded(tmp_path).with_name("downloads.json").read_bytes())
    assert records["corpus.bin"]["sha256"] == SHA256
    downloaded(tmp_path).write_bytes(b"tampered")
    with pytest.raises(EnvironmentFault, match=rf"corpus.bin: SHA-256 is .* but downloads.json has {SHA256}"):
        fetch(config)
    downloaded(tmp_path).unlink()
    site.replies["/corpus.bin"] = lambda handler: handler.send_range(b"another release")
    with pytest.raises(EnvironmentFault, match=rf"SHA-256 is .* but downloads.json has {SHA256}"):
        fetch(config)


def test_a_file_that_was_damaged_on_disk_is_noticed(site: Site, tmp_path: Path) -> None:
    site.replies["/corpus.bin"] = good
    config = site.config(tmp_path, sha256=SHA256)
    fetch(config)
    downloaded(tmp_path).write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(EnvironmentFault, match=rf"SHA-256 is .*, expected {SHA256}\. Delete it"):
        fetch(config)


def test_a_hash_added_to_the_config_is_checked_on_files_that_are_there(site: Site, tmp_path: Path) -> None:
    site.replies["/corpus.bin"] = good
    fetch(site.config(tmp_path))
    with pytest.raises(EnvironmentFault, match="expected 000"):
        fetch(site.config(tmp_path, sha256="0" * 64))


def test_a_local_folder_serves_instead_of_the_network(site: Site, tmp_path: Path) -> None:
    config = site.config(tmp_path)
    config.root = str(tmp_path)
    fetch(config)
    assert site.requests == []
    assert list(tmp_path.iterdir()) == []


def test_two_processes_at_once_download_a_file_once(site: Site, tmp_path: Path) -> None:
    site.replies["/corpus.bin"] = good
    script = (
        "import sys; from transformer_cli.data.download import fetch;"
        "from transformer_cli.config.data import DataConfig, Download;"
        "fetch(DataConfig(name='toy', cache=sys.argv[1], downloads=[Download(url=sys.argv[2])]))"
    )
    command = [sys.executable, "-c", script, str(tmp_path), f"{site.url}/corpus.bin"]
    processes = [subprocess.Popen(command, cwd=ROOT) for _ in range(2)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0]
    assert len(site.requests) == 1
    assert downloaded(tmp_path).read_bytes() == CONTENT


def test_a_disk_without_locks_is_warned_of_and_used(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    site.replies["/corpus.bin"] = good
    monkeypatch.setattr(fcntl, "lockf", no_locks)
    with caplog.at_level(logging.WARNING, "tfm"):
        fetch(site.config(tmp_path))
    assert "this disk has no locks" in caplog.text
    assert downloaded(tmp_path).read_bytes() == CONTENT


def test_an_unknown_host_is_an_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    config = Site("http://corpus.invalid").config(tmp_path)
    with pytest.raises(EnvironmentFault, match=r"http://corpus.invalid/corpus.bin: cannot be reached .*data\.root"):
        fetch(config)


def test_a_full_disk_is_noticed_before_the_download(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.replies["/corpus.bin"] = good
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(EnvironmentFault, match=r"corpus.bin needs 512,000 bytes, 10 are free"):
        fetch(site.config(tmp_path))


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://host/x", "/etc/passwd", "http://host/", "http://host/a/.."]
)
def test_an_address_that_is_no_download_is_a_config_error(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(url))):
        fetch(DataConfig(name="toy", cache=str(tmp_path), downloads=[Download(url=url)]))


def test_damaged_records_are_an_error_that_says_what_to_delete(site: Site, tmp_path: Path) -> None:
    downloaded(tmp_path).parent.mkdir(parents=True)
    for content in (
        *("[", "[]", '{"corpus.bin": 3}', '{"corpus.bin": {"url": ["x"]}}', "[" * 100_000),
        '{"corpus.bin.part": {"url": "http://x", "validator": "\\r\\nX-Injected: 1"}}',
    ):
        downloaded(tmp_path).with_name("downloads.json").write_text(content, encoding="utf-8")
        with pytest.raises(EnvironmentFault, match=r"downloads.json: is damaged\. Delete it"):
            fetch(site.config(tmp_path))


def test_F13_a_planted_link_is_not_downloaded_into(site: Site, tmp_path: Path) -> None:
    site.replies["/corpus.bin"] = good
    part_of(tmp_path).parent.mkdir(parents=True)
    (tmp_path / "precious").touch()
    part_of(tmp_path).symlink_to(tmp_path / "precious")
    with pytest.raises(EnvironmentFault, match="symbolic link"):
        fetch(site.config(tmp_path, sha256=SHA256))
    assert (tmp_path / "precious").read_bytes() == b""


def test_progress_is_drawn_on_a_terminal_only(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    site.replies["/corpus.bin"] = good
    monkeypatch.setattr(sys, "stderr", Terminal())
    fetch(site.config(tmp_path / "a"), progress=True)
    assert "corpus.bin: 100%" in sys.stderr.getvalue()  # type: ignore[attr-defined]
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    fetch(site.config(tmp_path / "b"), progress=True)
    assert "100%" not in sys.stderr.getvalue()  # type: ignore[attr-defined]


# ---- Archives


TEXT = b"ein Haus\nzwei Katzen\n"


def tar_file(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def packed(path: Path, files: dict[str, bytes]) -> Path:
    """An archive of the kind that its name says."""
    if path.suffix != ".zip":
        return tar_file(path, *((tarfile.TarInfo(name), content) for name, content in files.items()))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as writer:
        for name, content in files.items():
            writer.writestr(name, content)
    return path


def special(name: str, kind: bytes, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member, b""


HOSTILE = [
    (tarfile.TarInfo("../outside"), b"x"),
    (tarfile.TarInfo("/tmp/absolute"), b"x"),
    special("link", tarfile.SYMTYPE, "/etc/passwd"),
    special("hardlink", tarfile.LNKTYPE, "/etc/passwd"),
    special("fifo", tarfile.FIFOTYPE),
    special("device", tarfile.CHRTYPE),
    special("folder", tarfile.DIRTYPE),
]


def contents(path: Path, *names: str) -> dict[str, list[str]]:
    return {name: read_stream(stream, name).texts for name, stream in open_members(path, names)}


@pytest.mark.parametrize("suffix", archive.SUFFIXES)
def test_members_are_read_in_one_pass_without_unpacking(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"corpus{suffix}"
    files = {"a/train.de": TEXT, "a/train.en.gz": gzip.compress(b"a house\ntwo cats\n"), "a/other": b"x" * 9000}
    packed(path, files)
    expected = {"a/train.de": ["ein Haus", "zwei Katzen"], "a/train.en.gz": ["a house", "two cats"]}
    assert contents(path, "a/train.de", "a/train.en.gz") == expected
    assert os.listdir(tmp_path) == [path.name]
    with pytest.raises(DataError, match=r"has no member 'b/train.de'\. Name another, such as 'a/train.de'"):
        contents(path, "b/train.de")


def test_F8_a_hostile_archive_touches_nothing_and_its_good_member_is_read(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    path = tar_file(tmp_path / "inside" / "hostile.tgz", *HOSTILE, (tarfile.TarInfo("train.de"), TEXT))
    assert contents(path, "train.de") == {"train.de": ["ein Haus", "zwei Katzen"]}
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "inside", path]


@each("name", [member.name for member, content in HOSTILE if not content])
def test_F8_a_link_or_device_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = tar_file(tmp_path / "hostile.tar", *HOSTILE)
    with pytest.raises(DataError, match=rf"hostile\.tar::{name}: is not a plain file"):
        contents(path, name)


def test_F8_a_link_in_a_zip_is_refused_by_name(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "hostile.zip", "w") as writer:
        writer.writestr(link, "/etc/passwd")
    with pytest.raises(DataError, match=r"hostile\.zip::link: is not a plain file"):
        contents(tmp_path / "hostile.zip", "link")


def test_F8_a_sparse_member_that_claims_a_terabyte_is_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("train.de")
    member.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = tarfile.itn(1 << 40, 12, tarfile.GNU_FORMAT)  # the size it claims to unpack to
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "sparse.tar").write_bytes(bytes(header) + b"\0" * 10240)
    with pytest.raises(DataError, match="is not a plain file"):
        contents(tmp_path / "sparse.tar", "train.de")


@pytest.mark.parametrize("name", ["bomb.tgz", "bomb.zip", "bomb.gz.tar"])
def test_F8_a_bomb_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(compression, "MAX_FREE_BYTES", 1 << 16)
    zeros = b"\n" * (1 << 24)
    member, content = ("train.de.gz", gzip.compress(zeros)) if name == "bomb.gz.tar" else ("train.de", zeros)
    path = packed(tmp_path / name, {member: content})
    with pytest.raises(DataError, match="100 to 1"):
        contents(path, member)


def test_F8_a_member_is_no_bomb_until_it_is_over_both_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents_of = {"small": b"a\n" * 500, "large": random.Random(1).randbytes(3000).hex().encode()}
    path = packed(tmp_path / "corpus.zip", contents_of)
    with zipfile.ZipFile(path) as archive_of_both:
        sizes = {info.filename: info.compress_size for info in archive_of_both.infolist()}
    assert sizes["small"] < 100
    assert 3000 < sizes["large"] < 6000
    for n_free, ratio, name, is_read in [
        (1000, 1, "small", True),
        (999, 1, "small", False),
        (10, 2, "large", True),
        (10, 1, "large", False),
        (10, 100, "small", True),
        (6000, 1, "large", True),
    ]:
        monkeypatch.setattr(compression, "MAX_FREE_BYTES", n_free)
        monkeypatch.setattr(compression, "MAX_RATIO", ratio)
        if is_read:
            assert "\n".join(contents(path, name)[name]).encode() == contents_of[name].removesuffix(b"\n")
        else:
            with pytest.raises(DataError, match=f"over {ratio} to 1"):
                contents(path, name)


def test_F8_a_million_members_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 50)
    path = packed(tmp_path / "many.tar", {f"m{i}": b"x" for i in range(60)})
    with pytest.raises(DataError, match="holds more than 50 members"):
        contents(path, "m59")


def test_F8_nested_headers_without_end_are_damage(tmp_path: Path) -> None:
    long_name = tarfile.TarInfo("././@LongLink")
    long_name.type = tarfile.GNUTYPE_LONGNAME
    (tmp_path / "nested.tar").write_bytes(long_name.tobuf(tarfile.GNU_FORMAT) * 5000)
    with pytest.raises(DataError, match="cut short or damaged"):
        contents(tmp_path / "nested.tar", "train.de")


def test_a_member_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = tar_file(tmp_path / "twice.tar", *((tarfile.TarInfo("train.de"), text) for text in (TEXT, b"x\n")))
    with pytest.raises(DataError, match=r"::train\.de: is there twice"):
        contents(path, "train.de")


@pytest.mark.parametrize("name", ["cut.tgz", "cut.tar.gz", "cut.tar", "cut.zip"])
def test_C15_a_truncated_archive_is_refused_before_a_line_is_used(tmp_path: Path, name: str) -> None:
    text, noise = {"train.de": TEXT}, {"noise": os.urandom(300_000).hex().encode()}
    path = packed(tmp_path / name, noise | text if name == "cut.tar" else text | noise)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=rf"{re.escape(name)}: .*(cut short|has no member)"):
        contents(path, "train.de")


@pytest.mark.parametrize("name", ["damaged.tgz", "damaged.zip"])
def test_C15_an_archive_with_a_flipped_bit_is_refused(tmp_path: Path, name: str) -> None:
    path = packed(tmp_path / name, {"train.de": os.urandom(100_000).hex().encode()})
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        contents(path, "train.de")


def test_C2_an_archive_that_is_missing_or_empty_is_named(tmp_path: Path) -> None:
    for name in ("absent.tgz", "absent.zip"):
        with pytest.raises(DataError, match=rf"{name}: no such file"):
            contents(tmp_path / name, "train.de")
    for name in ("empty.tgz", "empty.zip", "empty.tar"):
        (tmp_path / name).touch()
        with pytest.raises(DataError, match=rf"{name}: "):
            contents(tmp_path / name, "train.de")
