"""What the hub is asked for: the commit and the files of a model, downloaded into the cache of huggingface_hub.

The library has the addresses, the tokens, the mirrors and the offline mode. A large file is received here, so that a
download that was cut goes on, and every file is compared with the hash that the hub lists.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from transformer_cli.addons.hub.faults import Unreachable, explained, first_line, hub_library, transport_errors
from transformer_cli.addons.hub.names import HubName, shortened
from transformer_cli.errors import CheckpointError, EnvironmentFault, quoted
from transformer_cli.logs import LOGGER

_AT_A_TIME = 1 << 22
_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class RemoteFile:
    """Size and hash of a file as the hub lists it; None: not known, as of what is in the cache alone."""

    size: int | None = None
    sha256: str | None = None  # of large files
    git_sha1: str | None = None  # of the others, as git computes it


@dataclass(frozen=True)
class CommitFiles:
    """A commit of a repository: its files, and what its card says."""

    commit: str
    files: Mapping[str, RemoteFile]
    license: str | None = None
    languages: Sequence[str] = ()


def listing_of(name: HubName, place: Path) -> CommitFiles:
    """What the hub lists; where it does not answer, what is in the cache of huggingface_hub. Raises TfmError."""
    try:
        with explained(name, place):
            library = hub_library(name)
            info = library.HfApi().model_info(
                name.repository, revision=name.revision, files_metadata=True, timeout=_TIMEOUT_S
            )
            card = info.card_data.to_dict() if info.card_data else {}
            languages = card.get("language") or []
            found = CommitFiles(
                commit=str(info.sha),
                files={str(file.rfilename): _remote(file) for file in info.siblings or ()},
                license=_license(card),
                languages=[str(one) for one in ([languages] if isinstance(languages, str) else languages)],
            )
    except Unreachable:
        if (cached := _cached_listing(name)) is None:
            raise
        found = cached
        LOGGER.warning("%s: the hub does not answer, so commit %s of the cache", name, shortened(cached.commit))
    _check(name, found)
    return found


def _remote(file: Any) -> RemoteFile:
    if file.lfs is not None:
        return RemoteFile(int(file.lfs.size), sha256=str(file.lfs.sha256))
    return RemoteFile(None if file.size is None else int(file.size), git_sha1=file.blob_id and str(file.blob_id))


def _license(card: Mapping[str, Any]) -> str | None:
    name = card.get("license_name") if card.get("license") == "other" else None
    found = name or card.get("license")
    return None if found is None else ", ".join(map(str, found)) if isinstance(found, list) else str(found)


def _check(name: HubName, listing: CommitFiles) -> None:
    """Refuse names of files that lead out of the folder that they are put into, whether they are needed or not."""
    if not HubName(name.repository, listing.commit).is_commit:
        raise CheckpointError(f"{name}: its commit is {quoted(listing.commit)}, no hash. Check HF_ENDPOINT")
    for file in listing.files:
        parts = PurePosixPath(file)
        if parts.is_absolute() or ".." in parts.parts or "\\" in file or str(parts) != file or not file.isprintable():
            raise CheckpointError(f"{name}: lists {quoted(file)}, no file of a folder. Choose another model")


def _cached_listing(name: HubName) -> CommitFiles | None:
    """The files that an earlier download, of any program, has left in the cache."""
    cache = _cache_of(name)
    try:
        commit = name.revision if name.is_commit else _text_of(cache / "refs" / (name.revision or "main"))
    except (OSError, ValueError):
        return None
    folder = cache / "snapshots" / str(commit)
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    return CommitFiles(folder.name, dict.fromkeys(names, RemoteFile())) if names else None


def _text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip()


def _cache_of(name: HubName) -> Path:
    """The folder of a repository in the cache of huggingface_hub."""
    folder = hub_library(name, "file_download").repo_folder_name(repo_id=name.repository, repo_type="model")
    return Path(hub_library(name, "constants").HF_HUB_CACHE) / str(folder)


def download(name: HubName, listing: CommitFiles, files: Sequence[str], view: Path, place: Path) -> int:
    """Put links to these files into the new folder `view`, downloaded where they are not in the cache.

    The result is the number of bytes of all. Raises TfmError; what was received of a file stays for the next time.
    """
    n_bytes = 0
    view.mkdir(parents=True)
    for file in files:
        with explained(name, place):
            path = _cached(name, listing, file) or _fetched(name, listing, file)
            _verify(name, file, listing.files[file], path)
            target = view / file
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                target.symlink_to(os.path.realpath(path))
            except (OSError, NotImplementedError):  # Windows asks for a privilege
                shutil.copyfile(path, target)
            n_bytes += path.stat().st_size
    return n_bytes


def _cached(name: HubName, listing: CommitFiles, file: str) -> Path | None:
    found = hub_library(name).try_to_load_from_cache(name.repository, file, revision=listing.commit)
    return Path(found) if isinstance(found, str) else None


def _fetched(name: HubName, listing: CommitFiles, file: str) -> Path:
    library, remote = hub_library(name), listing.files[file]
    if remote.sha256 is not None:
        _receive(name, listing.commit, file, remote)
    return Path(library.hf_hub_download(name.repository, file, revision=listing.commit))


def _receive(name: HubName, commit: str, file: str, remote: RemoteFile) -> None:
    """Write a large file to where the library has it by its hash, going on from what an earlier attempt has received.

    The library itself begins anew. Two processes exclude each other by the lock of the model.
    """
    transfer = hub_library(name, "file_download")
    blob = _cache_of(name) / "blobs" / str(remote.sha256)
    if blob.exists():
        return
    part = blob.with_name(f"{blob.name}.tfm.incomplete")
    blob.parent.mkdir(parents=True, exist_ok=True)
    url = hub_library(name).hf_hub_url(name.repository, file, revision=commit)
    with part.open("ab") as output:
        if output.tell() > (remote.size or 0):
            output.truncate(0)
            output.seek(0)
        if n_bytes := output.tell():
            LOGGER.info("%s: %s goes on at byte %s of %s", name, file, f"{n_bytes:,}", f"{remote.size:,}")
        headers = hub_library(name, "utils").build_hf_headers()
        with _cut(name, file, output, remote):
            transfer.http_get(
                url,
                output,
                resume_size=output.tell(),
                headers=headers,
                expected_size=remote.size,
                displayed_filename=file,
            )
    _verify(name, file, remote, part)
    part.replace(blob)


@contextmanager
def _cut(name: HubName, file: str, output: BinaryIO, remote: RemoteFile) -> Iterator[None]:
    """Say how much of a file is there after an error that ended its transfer, but for a refusal of the hub."""
    refusal = hub_library(name, "errors").HfHubHTTPError
    try:
        yield
    except refusal as error:
        if error.response.status_code == 416:  # it has fewer bytes than were received
            output.truncate(0)
        raise
    except (transport_errors(name), OSError) as error:
        n_bytes = output.tell()
        if not n_bytes or (isinstance(error, OSError) and error.errno is not None):
            raise
        raise EnvironmentFault(
            f"{name}: the connection was cut at byte {n_bytes:,} of {remote.size or 0:,} of {file}"
            f" ({first_line(error)}). Run again to go on from there"
        ) from error


def _verify(name: HubName, file: str, remote: RemoteFile, path: Path) -> None:
    """Remove a file that is not the listed one, with what leads to it, and raise EnvironmentFault."""
    size = path.stat().st_size
    differs = "size" if remote.size not in (None, size) else ""
    if not differs and (expected := remote.sha256 or remote.git_sha1):
        digest = hashlib.sha256() if remote.sha256 else hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        with path.open("rb") as content:
            while part := content.read(_AT_A_TIME):
                digest.update(part)
        differs = "hash" if digest.hexdigest() != expected else ""
    if differs:
        cache, real = os.path.realpath(hub_library(name, "constants").HF_HUB_CACHE), Path(os.path.realpath(path))
        for one in {path, *([real] if real.is_relative_to(cache) else [])}:  # not what a link out of it leads to
            with suppress(OSError):
                one.unlink()
        raise EnvironmentFault(
            f"{name}: {file} has another {differs} than the hub lists, and was removed. Run again to fetch it anew;"
            " if it happens again, check HF_ENDPOINT"
        )
