"""A hub on this machine: it speaks the addresses that huggingface_hub asks for, and serves repositories from memory."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

LARGE = 2000  # bytes from which a file lies in the storage of large files
TOKEN = "hf_made_for_the_tests"
NAME = "toy/opus-mt-en-de"


@dataclass
class Repository:
    """The files of its commits; a branch or tag is one of the names of a commit."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    card: dict[str, Any] = field(default_factory=dict)
    is_private: bool = False
    lists: dict[str, dict[str, Any]] = field(default_factory=dict)  # what the list says of files, if not the truth

    def commit(self, files: dict[str, bytes], *names: str) -> str:
        digest = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[digest] = files
        self.names |= dict.fromkeys(names or ("main",), digest)
        return digest

    def resolved(self, revision: str) -> str | None:
        return revision if revision in self.commits else self.names.get(revision)


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    range: str | None
    token: str | None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: "HubServer"

    def log_message(self, *_: object) -> None:
        pass

    def answer(self) -> None:
        self.close_connection = True
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        self.address = unquote(urlsplit(self.path).path)
        token = self.headers.get("Authorization")
        self.hub.requests.append(Request(self.command, self.address, self.headers.get("Range"), token))
        for pattern, fault in self.hub.faults:
            if re.search(pattern, f"{self.command} {self.address}"):
                return fault(self)
        if match := re.fullmatch(r"/lfs/(\w+)", self.address):
            return self.send_content(self.hub.storage[match[1]], f'"{match[1]}"')
        if match := re.fullmatch(r"/upload/(\w+)", self.address):
            assert hashlib.sha256(self.body).hexdigest() == match[1]
            self.hub.storage[match[1]] = self.body
            return self.send(b"")
        if self.address.startswith("/api/") or self.address.endswith("/info/lfs/objects/batch"):
            return self.answer_api()
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.address)
        assert match, self.address
        found = self.found(match[1], match[2])
        if found is None:
            return None
        return self.send_file(*found, match[3])

    do_GET = do_HEAD = do_POST = do_PUT = answer

    def found(self, name: str, revision: str) -> tuple[Repository, str] | None:
        """A repository and a commit; what cannot be had is answered as the hub does."""
        repository = self.hub.repositories.get(name)
        token = self.headers.get("Authorization")
        if token not in (None, f"Bearer {TOKEN}"):
            self.refuse(401, "Invalid credentials in Authorization header")
        elif repository is None or (repository.is_private and token is None):
            self.refuse(404 if token else 401, "Repository not found", "RepoNotFound")
        elif (commit := repository.resolved(revision)) is None:
            self.refuse(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        else:
            return repository, commit
        return None

    def answer_api(self) -> None:
        if self.address == "/api/repos/create":
            wanted = json.loads(self.body)
            name = f"{wanted.get('organization') or 'me'}/{wanted['name']}"
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return self.refuse(401, "Invalid username or password.")
            is_private = bool(wanted.get("private")) or wanted.get("visibility") == "private"
            repository = Repository(is_private=is_private)
            if self.hub.repositories.setdefault(name, repository) is not repository:
                return self.refuse(409, "You already created this model repo")
            return self.send_json({"url": f"{self.hub.url}/{name}", "name": name})
        if self.address == "/api/validate-yaml":
            return self.send_json({"errors": [], "warnings": []})
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/([^/]+)", self.address):
            files = json.loads(self.body)["files"]
            modes = {it["path"]: "lfs" if it["size"] >= LARGE else "regular" for it in files}
            plain = {"shouldIgnore": False, "oid": None}
            return self.send_json(
                {"files": [{"path": path, "uploadMode": mode, **plain} for path, mode in modes.items()]}
            )
        if self.address.endswith("/info/lfs/objects/batch"):
            objects = [
                {**it, "actions": {"upload": {"href": f"{self.hub.url}/upload/{it['oid']}"}}}
                for it in json.loads(self.body)["objects"]
            ]
            return self.send_json({"transfer": "basic", "objects": objects})
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/([^/]+)", self.address):
            return self.commit(self.hub.repositories[match[1]])
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/(.+)", self.address):
            listed = self.listing(match[1], self.hub.repositories[match[1]], match[2])["siblings"]
            return self.send_json(
                [{"type": "file", "path": it["rfilename"], "size": it["size"], "oid": it["blobId"]} for it in listed]
            )
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", self.address)
        if match is None:
            return self.refuse(404, "Not found")
        found = self.found(match[1], match[2] or "main")
        return None if found is None else self.send_json(self.listing(match[1], *found))

    def listing(self, name: str, repository: Repository, commit: str) -> dict[str, Any]:
        files = []
        for path, content in repository.commits[commit].items():
            entry = {"rfilename": path, "size": len(content), "blobId": git_sha1(content)}
            if len(content) >= LARGE:
                sha256 = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 130}
            files.append(entry | repository.lists.get(path, {}))
        return {"id": name, "modelId": name, "sha": commit, "siblings": files, "cardData": repository.card, "tags": []}

    def send_file(self, repository: Repository, commit: str, path: str) -> None:
        content = repository.commits[commit].get(path)
        if content is None:
            return self.refuse(404, "Entry not found", "EntryNotFound")
        if len(content) < LARGE:
            return self.send_content(content, f'"{git_sha1(content)}"', X_Repo_Commit=commit)
        sha256 = hashlib.sha256(content).hexdigest()
        self.hub.storage[sha256] = content
        # The storage has another name than the hub, so that it must not see the token.
        location = f"{self.hub.url.replace('127.0.0.1', 'localhost')}/lfs/{sha256}"
        more = {"X_Linked_Etag": f'"{sha256}"', "X_Linked_Size": str(len(content)), "Location": location}
        return self.send(b"", status=302, X_Repo_Commit=commit, ETag='"of the pointer"', **more)

    def commit(self, repository: Repository) -> None:
        files: dict[str, bytes] = dict(repository.commits.get(repository.names.get("main", ""), {}))
        for line in self.body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.hub.storage[value["oid"]]
        commit = repository.commit(files)
        url = f"{self.hub.url}/me/model/commit/{commit}"
        self.send_json({"success": True, "commitOid": commit, "commitUrl": url, "hookOutput": ""})

    def send_content(self, content: bytes, etag: str, *, stop_after: int | None = None, **headers: str) -> None:
        start = 0
        if wanted := self.headers.get("Range"):
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if start:
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            headers["Content_Range"] = span
        self.send(content[start:], status=206 if start else 200, stop_after=stop_after, ETag=etag, **headers)

    def send(self, content: bytes, *, status: int = 200, stop_after: int | None = None, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:stop_after])

    def send_json(self, value: Any) -> None:
        self.send(json.dumps(value).encode(), Content_Type="application/json")

    def refuse(self, status: int, message: str, code: str = "", **headers: str) -> None:
        more = {"X_Error_Code": code} if code else {}
        self.send(json.dumps({"error": message}).encode(), status=status, X_Error_Message=message, **more, **headers)


@dataclass
class HubServer:
    """`faults` are answers in place of its own, by patterns of method and path."""

    url: str
    repositories: dict[str, Repository] = field(default_factory=dict)
    storage: dict[str, bytes] = field(default_factory=dict)  # large files, by their SHA-256
    requests: list[Request] = field(default_factory=list)
    faults: list[tuple[str, Callable[[Handler], None]]] = field(default_factory=list)

    def publish(self, name: str, files: dict[str, bytes], **options: Any) -> str:
        """A new repository, or a new commit of one; the result is the commit."""
        return self.repositories.setdefault(name, Repository(**options)).commit(files)

    def received(self) -> list[str]:
        """The files whose content was asked for, in order."""
        found = [match[1] for it in self.requests if (match := re.search(r"/resolve/[^/]+/(.+)", it.path))]
        return list(dict.fromkeys(found))


def git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


@contextmanager
def serving() -> Iterator[HubServer]:
    handler = type("Of", (Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that hang up are part of the tests
    handler.hub = HubServer(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield handler.hub  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def point_to(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process ask the hub at `url`, with caches in `folder`: huggingface_hub reads all that as it starts."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    values = {
        "ENDPOINT": url,
        "HUGGINGFACE_CO_URL_TEMPLATE": f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
        "HF_HUB_CACHE": str(folder / "huggingface"),
        "HF_TOKEN_PATH": str(folder / "token"),
        "HF_STORED_TOKENS_PATH": str(folder / "tokens"),
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_XET": True,
        "DOWNLOAD_CHUNK_SIZE": 50,  # bytes that are lost with a connection, at most; of large models 10 MB
    }
    for name, value in values.items():
        assert hasattr(constants, name), name
        monkeypatch.setattr(constants, name, value)
