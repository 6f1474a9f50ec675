"""Translated files in memory, until they are fetched or their time is over."""

import secrets
import threading
import time

KEPT_SECONDS = 600  # of a translated file
KEPT_BODIES = 20  # times the largest body that a request may have: what all translated files may take


class Downloads:
    """Translated files by a token that cannot be guessed. The oldest make room for new ones. Any thread may call."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes, self.kept = most_bytes, dict[str, tuple[float, str, bytes]]()
        self.lock = threading.Lock()

    def add(self, name: str, content: bytes) -> str:
        token = secrets.token_urlsafe(24)
        with self.lock:
            self.kept[token] = (time.monotonic() + KEPT_SECONDS, name, content)
            self._drop()
        return token

    def get(self, token: str) -> tuple[str, bytes] | None:
        """Name and content; None where they are no longer kept."""
        with self.lock:
            self._drop()
            found = self.kept.get(token)
        return None if found is None else found[1:]

    def take(self, token: str) -> tuple[str, bytes] | None:
        """`get`, after which the file is not kept."""
        found = self.get(token)
        with self.lock:
            return found if self.kept.pop(token, None) else None

    def _drop(self) -> None:
        size, now = sum(len(content) for _, _, content in self.kept.values()), time.monotonic()
        for token, (until, _, content) in list(self.kept.items()):
            if until > now and size <= self.most_bytes:
                return
            del self.kept[token]
            size -= len(content)
