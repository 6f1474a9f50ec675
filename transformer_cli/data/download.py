"""HTTP downloads of corpus files: resumed after interruptions, verified before use."""

import hashlib
import http.client
import json
import re
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import IO, Any, NoReturn

from tqdm import tqdm

from transformer_cli.config.data import DataConfig, Download
from transformer_cli.data.compression import ByteSource, Gunzip
from transformer_cli.data.hashes import file_sha256
from transformer_cli.data.lines import BLOCK_BYTES, shown
from transformer_cli.environment import folder_named
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault, quoted
from transformer_cli.files import locked, open_no_link, write_whole
from transformer_cli.logs import LOGGER
from transformer_cli.system import sync, sync_folder

ATTEMPTS = 5
TIMEOUT_SECONDS = 30.0
PAUSE_SECONDS = 1.0  # before the second attempt, then doubled
MAX_BYTES = 1 << 36  # of a file whose size is not known beforehand
CHUNK_BYTES = 1 << 16
_RECORDS = "downloads.json"
# Some servers (manythings.org) answer 406 to a name that does not begin as browsers' do, so that is how ours begins.
USER_AGENT = "Mozilla/5.0 (compatible; tfm)"


def downloads_folder(config: DataConfig) -> Path:
    return folder_named(config.cache) / config.name / "downloads"


def fetch(config: DataConfig, *, progress: bool = False) -> None:
    """Download and verify what the corpus needs and is not there yet; nothing if `data.root` or a generator serves.

    Raises EnvironmentFault; a partial download stays as `<name>.part`, and the next call resumes it.
    """
    if config.builtin is not None or config.root is not None or not config.downloads:
        return
    folder = downloads_folder(config)
    try:
        records = Records(folder / _RECORDS)
        if all(_is_verified(download, folder, records) for download in config.downloads):
            return  # without a lock, so that a cache may be read-only
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / ".lock") as alone:
            if not alone:
                LOGGER.warning("%s: this disk has no locks; let one process at a time download", shown(folder))
            records = Records(folder / _RECORDS)
            for download in config.downloads:
                if not _is_verified(download, folder, records):
                    _download(download, folder, records, progress=progress)
    except OSError as error:
        where = shown(error.filename or folder)
        raise EnvironmentFault(
            f"{where}: {error.strerror or error}. Free the disk or choose another data.cache"
        ) from error


class Records:
    """Records of complete and partial downloads, by name, in a small JSON file beside them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            entries = json.loads(path.read_bytes())
        except FileNotFoundError:
            entries = {}
        except (ValueError, RecursionError):
            entries = None
        if not isinstance(entries, dict) or not all(map(_is_entry, entries.values())):
            raise EnvironmentFault(f"{shown(path)}: is damaged. Delete it; what is downloaded is then verified anew")
        self._entries: dict[str, dict[str, Any]] = entries

    def of(self, name: str, url: str) -> dict[str, Any]:
        """The entry of a file; empty if there is none, or if it came from another address."""
        entry = self._entries.get(name, {})
        return entry if entry.get("url") == url else {}

    def put(self, name: str, **entry: Any) -> None:
        """Replace the entry of a file; without values, remove it."""
        if entry:
            self._entries[name] = entry
        else:
            self._entries.pop(name, None)
        write_whole(self._path, json.dumps(self._entries, indent=2).encode() + b"\n")


def _is_entry(entry: object) -> bool:
    """Whether an entry holds plain values; its texts are sent to a server and shown."""
    return isinstance(entry, dict) and all(
        value.isprintable() if isinstance(value, str) else isinstance(value, int | None) for value in entry.values()
    )


def _is_verified(download: Download, folder: Path, records: Records) -> bool:
    """Whether a file is there, untouched since it was verified, and verified against all that `download` says now."""
    path = folder / file_name(download.url)
    entry = records.of(path.name, download.url)
    if not entry or not path.exists():
        return False
    stat = path.stat()
    expected = {"size": download.size, "sha256": download.sha256, "text_sha256": download.text_sha256}
    return (entry.get("size"), entry.get("mtime_ns")) == (stat.st_size, stat.st_mtime_ns) and all(
        value in (None, entry.get(key)) for key, value in expected.items()
    )


def _download(download: Download, folder: Path, records: Records, *, progress: bool) -> None:
    """Download one file to `folder`, verify and record it."""
    path = folder / file_name(download.url)
    known = records.of(path.name, download.url)
    if path.exists():
        try:
            entry = _verify(download, path, known)
        except Mismatch as fault:
            raise EnvironmentFault(f"{shown(path)}: {fault}. Delete it, and it is downloaded again") from None
    else:
        part = folder / f"{path.name}.part"
        while True:
            transfer = Transfer(download, part, records, progress=progress)
            transfer.run()
            try:
                entry = _verify(download, part, known)
                break
            except Mismatch as fault:
                if not transfer.resumed:
                    raise EnvironmentFault(
                        f"{download.url}: {fault}. It is kept as {shown(part)} and not used; run again"
                        " to fetch it anew, or put the right file into a folder and set data.root to that"
                    ) from None
                part.unlink()  # what was resumed may have been the beginning of another version
        part.replace(path)
        sync_folder(folder)
        records.put(part.name)
    records.put(path.name, **entry, mtime_ns=path.stat().st_mtime_ns)


class Mismatch(Exception):
    """A file is not the expected one."""


def _verify(download: Download, file: Path, known: dict[str, Any]) -> dict[str, Any]:
    """The record of a downloaded file. Raises Mismatch if size or hash are not those of `download`."""
    size, digest = file.stat().st_size, file_sha256(file)
    if download.size not in (None, size):
        raise Mismatch(f"has {size:,} bytes, expected {download.size:,}")
    if download.sha256 not in (None, digest):
        raise Mismatch(f"SHA-256 is {digest}, expected {download.sha256}")
    if download.sha256 is None and known.get("sha256") not in (None, digest):
        raise Mismatch(f"SHA-256 is {digest}, but {_RECORDS} has {known['sha256']} from the first download")
    entry = {"url": download.url, "size": size, "sha256": digest}
    if download.text_sha256 is not None:
        entry["text_sha256"] = _text_sha256(file)
        if entry["text_sha256"] != download.text_sha256:
            raise Mismatch(f"SHA-256 of its text is {entry['text_sha256']}, expected {download.text_sha256}")
    return entry


def _text_sha256(file: Path) -> str:
    """SHA-256 of the unpacked text with a final newline, which does not depend on who packed it."""
    digest, last = hashlib.sha256(), b"\n"
    packed = file.name.removesuffix(".part").endswith(".gz")
    with file.open("rb") as handle:
        source: ByteSource = Gunzip(handle, file.name) if packed else handle
        try:
            while block := source.read(BLOCK_BYTES):
                digest.update(block)
                last = block[-1:]
        except DataError as error:
            raise Mismatch(str(error)) from None
    if last != b"\n":
        digest.update(b"\n")
    return digest.hexdigest()


def file_name(url: str) -> str:
    """The name of a download on disk: the last part of its address."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"data.downloads: {quoted(url)} is not an http or https address. Correct it")
    name = urllib.parse.unquote(parts.path.rsplit("/", 1)[-1])
    if not re.fullmatch(r"[\w+-][\w+.@ -]*", name) or name == _RECORDS:
        raise ConfigError(f"data.downloads: {quoted(url)} does not end in a file name. Correct it")
    return name


class Interrupted(Exception):
    """The connection failed; another attempt may succeed."""


class Transfer:
    """Downloads one file to `part`, with new attempts as long as they make progress."""

    def __init__(self, download: Download, part: Path, records: Records, *, progress: bool) -> None:
        self.url, self.size, self.part = download.url, download.size, part
        self.resumed = False  # the beginning of `part` was there before this transfer
        self._records, self._progress = records, progress
        # A file without a known hash is only resumed if the server confirms that it has not changed.
        self._verifiable = bool(download.sha256 or download.text_sha256)

    def run(self) -> None:
        """Return when the file is complete; raise EnvironmentFault after the last failed attempt."""
        self.resumed = self._n_bytes() > 0
        failures, furthest = 0, self._n_bytes()
        while True:
            try:
                return self._attempt()
            except Interrupted as cut:
                n_bytes = self._n_bytes()
                failures = 1 if n_bytes > furthest else failures + 1
                furthest = max(furthest, n_bytes)
                if failures == ATTEMPTS:
                    raise EnvironmentFault(
                        f"{self.url}: {cut}; {n_bytes:,} bytes are kept in {shown(self.part)}."
                        " Run again to go on from there, or get the file elsewhere and set data.root"
                    ) from None
                time.sleep(PAUSE_SECONDS * 2 ** (failures - 1))

    def _n_bytes(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _attempt(self) -> None:
        """Request the missing bytes and append them. Raises Interrupted, EnvironmentFault."""
        headers = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
        n_bytes = self._n_bytes()
        validator = self._records.of(self.part.name, self.url).get("validator")
        if n_bytes and (validator or self._verifiable):
            headers["Range"] = f"bytes={n_bytes}-"
            if validator:
                headers["If-Range"] = validator
        try:
            with http_opener().open(
                urllib.request.Request(self.url, headers=headers), timeout=TIMEOUT_SECONDS
            ) as response:
                self._receive(response, n_bytes)
        except urllib.error.HTTPError as error:
            with error:
                self._refused(error, n_bytes)
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, socket.gaierror | ConnectionRefusedError | ssl.SSLCertVerificationError):
                raise EnvironmentFault(
                    f"{self.url}: cannot be reached ({reason}). Connect to the network,"
                    " or put the files into a folder and set data.root to that"
                ) from None
            raise Interrupted(f"the connection failed ({reason or type(error).__name__})") from None

    def _refused(self, error: urllib.error.HTTPError, n_bytes: int) -> None:
        """Raise for an HTTP status that is not a success; return if the file is already complete."""
        if error.code == 416:  # nothing lies beyond what we have
            if error.headers.get("Content-Range") == f"bytes */{n_bytes}":
                return
            self.part.unlink(missing_ok=True)
            raise Interrupted("the server refused to go on where it stopped")
        if 300 <= error.code < 400:
            raise EnvironmentFault(
                f"{self.url}: redirects to {quoted(error.url or '')}; only http and https are followed,"
                " and not in a circle. Correct the address"
            ) from None
        if error.code in (408, 425, 429) or error.code >= 500:
            raise Interrupted(f"the server answers {error.code} {shown(str(error.reason))}")
        refuses_programs = error.code in (403, 406)
        remedy = "Open the address in a browser" if refuses_programs else "Get the file elsewhere"
        raise EnvironmentFault(
            f"{self.url}: the server answers {error.code} {shown(str(error.reason))}."
            f" {remedy}, put the file into a folder and set data.root to that"
        ) from None

    def _receive(self, response: http.client.HTTPResponse, n_bytes: int) -> None:
        """Append the body of a response to the file, or replace the file if the server begins anew."""
        if response.status != 206:
            n_bytes = 0
        elif not (response.headers.get("Content-Range") or "").startswith(f"bytes {n_bytes}-"):
            self.part.unlink()
            raise Interrupted("the server went on at another place")
        total = None if response.length is None else n_bytes + response.length
        self._check_size(total, n_bytes)
        first = response.read(CHUNK_BYTES)
        if n_bytes == 0:
            self.resumed = False
            if is_web_page(first, response):
                raise EnvironmentFault(
                    f"{self.url}: a web page came instead of the file, perhaps the login page of this network."
                    " Open the address in a browser, or put the file into a folder and set data.root to that"
                )
            etag = response.headers.get("ETag") or ""
            validator = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified")
            self._records.put(self.part.name, url=self.url, validator=validator)
        mode = "ab" if n_bytes else "wb"
        with open(self.part, mode, opener=open_no_link) as file, self._bar(total, n_bytes) as bar:
            chunk = first
            while chunk:
                file.write(chunk)
                bar.update(len(chunk))
                n_bytes += len(chunk)
                if n_bytes > (self.size or MAX_BYTES):
                    raise EnvironmentFault(
                        f"{self.url}: sends more than {self.size or MAX_BYTES:,} bytes. Check the address"
                    )
                chunk = response.read(CHUNK_BYTES)
            file.flush()
            sync(file.fileno())
        if total is not None and n_bytes < total:
            raise Interrupted(f"the connection was cut at {n_bytes:,} of {total:,} bytes")

    def _check_size(self, total: int | None, n_bytes: int) -> None:
        if total is None:
            return
        if self.size not in (None, total):
            raise EnvironmentFault(
                f"{self.url}: the server offers {total:,} bytes, expected {self.size:,}."
                " The file was replaced; get the right one elsewhere and set data.root"
            )
        free = shutil.disk_usage(self.part.parent).free
        if total - n_bytes > free:
            raise EnvironmentFault(
                f"{shown(self.part.parent)}: {self.part.stem} needs {total - n_bytes:,} bytes, {free:,} are free."
                " Free the disk or choose another data.cache"
            )

    def _bar(self, total: int | None, n_bytes: int) -> "tqdm[NoReturn]":
        off = None if self._progress else True  # None: on if stderr is a terminal
        bar = tqdm(desc=self.part.stem, total=total, initial=n_bytes, unit="B", unit_scale=True, disable=off)
        if bar.disable:
            LOGGER.info("downloading %s%s", self.url, f" ({total:,} bytes)" if total is not None else "")
        return bar


def is_web_page(first: bytes, response: http.client.HTTPResponse) -> bool:
    """Whether a web page came in place of the file: the login page of a network, or an error page."""
    is_page = re.match(rb"\s*<(!doctype\s+html|html)\b", first, flags=re.IGNORECASE)
    return bool(is_page) or response.headers.get_content_type() == "text/html"


class _HttpOnly(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https. The base class refuses file: and others, but would follow ftp:."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(newurl).scheme not in ("http", "https"):
            raise urllib.error.HTTPError(newurl, code, msg, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def http_opener() -> urllib.request.OpenerDirector:
    """An opener for http and https only; urllib's own also reads file:, ftp: and data: addresses."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
        _HttpOnly(),
    ):
        opener.add_handler(handler)
    return opener
