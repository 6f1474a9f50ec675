"""Uploaded documents, which are translated while no request waits for them."""

import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum

from transformer_cli.addons.serving.downloads import KEPT_BODIES, KEPT_SECONDS, Downloads
from transformer_cli.addons.serving.errors import RequestError, log_fault
from transformer_cli.addons.serving.metrics import Metrics
from transformer_cli.addons.serving.service import RequestCall, RequestOptions, Service
from transformer_cli.addons.serving.uploads import DocumentUpload
from transformer_cli.decoding.batch_queue import GoneError
from transformer_cli.plugins import RAISED

AT_ONCE = 2  # documents that are read and translated; the others wait, so that requests have a share of the CPU
MOST_ENDED = 10_000  # documents whose end is known
NOT_FOUND = "Document not found: the ID or the key is wrong, or it was fetched, or its ten minutes are over"
EQUAL = "Source and target language are equal."  # as DeepL says it


class DocumentState(Enum):
    """The states of a document, as DeepL names them."""

    queued = "queued"
    translating = "translating"
    done = "done"
    error = "error"


@dataclass(eq=False)
class UploadedDocument:
    """A document and what has become of it. `owner` is the name of an API key, empty without keys."""

    owner: str
    call: RequestCall
    upload: DocumentUpload | None  # None once it has ended, or is cancelled
    source: str | None  # None: to be detected
    target: str
    options: RequestOptions
    id: str = field(default_factory=lambda: secrets.token_hex(16).upper())
    key: str = field(default_factory=lambda: secrets.token_hex(32).upper())
    state: DocumentState = DocumentState.queued
    since: float = field(default_factory=time.monotonic)  # of this state
    error: str = ""
    download: str = ""  # token
    flags: tuple[str, ...] = ()  # of any text in it

    def becomes(self, state: DocumentState) -> None:
        self.since, self.state = time.monotonic(), state

    @property
    def has_ended(self) -> bool:
        return self.state in (DocumentState.done, DocumentState.error)

    @property
    def progress(self) -> float:
        """The share of its texts that are translated."""
        return self.call.n_done / self.call.n_units if self.call.n_units else float(self.has_ended)

    @property
    def seconds_remaining(self) -> int:
        """An estimate by the rate so far; 1 where nothing is known."""
        done, waits = self.call.n_done, self.call.n_units - self.call.n_done
        return 1 if not done else max(1, round((time.monotonic() - self.since) * waits / done))


class Documents:
    """All uploaded documents; those that have ended are kept as long as downloads are. Any thread may call."""

    def __init__(self, service: Service, downloads: Downloads, metrics: Metrics) -> None:
        self.service, self.downloads, self.metrics = service, downloads, metrics
        self.most_waiting = service.config.limits.documents
        self.most_bytes = KEPT_BODIES * service.config.limits.body_bytes  # of uploads
        self.threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="document")
        self.lock = threading.Lock()
        self.known: dict[str, UploadedDocument] = {}

    def close(self) -> None:
        """Give up what is not translated yet."""
        with self.lock:
            for one in self.known.values():
                one.call.is_cancelled = True
        self.threads.shutdown(wait=False, cancel_futures=True)

    def add(
        self, owner: str, upload: DocumentUpload, source: str | None, target: str, options: RequestOptions
    ) -> UploadedDocument:
        """Raises RequestError 503 where too many wait, or their files take too much memory."""
        new = UploadedDocument(owner, self.service.document_call(), upload, source, target, options)
        with self.lock:
            self._forget()
            waiting = [one.upload for one in self.known.values() if one.upload is not None]
            n_bytes = sum(len(one.content) for one in waiting) + len(upload.content)
            if len(waiting) >= self.most_waiting or (waiting and n_bytes > self.most_bytes):
                raise RequestError(
                    503, "too many documents are waiting. Try again later", retry_after=self.service.retry_after()
                )
            self.known[new.id] = new
        self.threads.submit(self._work, new)
        return new

    def get(self, owner: str, document_id: str, key: str) -> UploadedDocument:
        """Raises RequestError 404 for what is not known, or belongs to another."""
        with self.lock:
            self._forget()
            found = self.known.get(document_id)
        is_right = found is not None and found.owner == owner
        if found is None or not secrets.compare_digest(found.key.encode(), key.encode()) or not is_right:
            raise RequestError(404, NOT_FOUND)
        return found

    def take(self, one: UploadedDocument) -> tuple[str, bytes]:
        """Name and content of a translation, which is deleted. Raises RequestError 503 where it is not done."""
        if one.state is DocumentState.error:
            raise RequestError(400, one.error)
        if one.state is not DocumentState.done:
            raise RequestError(503, "Document translation is not done", retry_after=one.seconds_remaining)
        with self.lock:
            self.known.pop(one.id, None)
        content = self.downloads.take(one.download)
        if content is None:
            raise RequestError(404, NOT_FOUND)
        return content

    def cancel(self, one: UploadedDocument) -> None:
        """Forget it, and end its translation."""
        one.call.is_cancelled, one.upload = True, None
        with self.lock:
            self.known.pop(one.id, None)
        self.downloads.take(one.download)

    def _work(self, one: UploadedDocument) -> None:
        if (upload := one.upload) is None:  # it was cancelled
            one.becomes(DocumentState.error)
            return
        one.becomes(DocumentState.translating)
        try:
            found = self.service.translate_file(
                upload.form, upload.content, one.source, one.target, one.call, options=one.options
            )
            if found.source == found.target:
                raise RequestError(400, EQUAL)
            one.flags, one.download = found.flags, self.downloads.add(upload.name, found.content)
            end = DocumentState.done
        except RequestError as error:
            one.error, end = error.message, DocumentState.error
        except GoneError:
            one.error, end = "the server ends. Send the document again", DocumentState.error
        except RAISED as error:
            log_fault("document", f"/v2/document/{one.id}", error)
            one.error, end = "a fault of the server, which its log names", DocumentState.error
        self.metrics.characters.inc(one.call.n_characters)
        self.metrics.cache_hits.inc(one.call.n_cached)
        one.upload = None
        one.becomes(end)

    def _forget(self) -> None:
        """Forget those that ended long ago, and the oldest of too many."""
        ended = [one for one in self.known.values() if one.has_ended]
        for n, one in enumerate(ended):
            if time.monotonic() - one.since > KEPT_SECONDS or n < len(ended) - MOST_ENDED:
                del self.known[one.id]
