"""Access to the server: API keys from a file, and a rate limit for each key or address."""

import hashlib
import hmac
import ipaddress
import os
import stat
import time
from collections import OrderedDict
from pathlib import Path

from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.keys import ServeConfig
from transformer_cli.addons.serving.models import FileState
from transformer_cli.errors import ConfigError, quoted
from transformer_cli.logs import LOGGER

REMEMBERED = 10_000  # keys or addresses whose rate is known


class Access:
    """The right to send a request. Raises ConfigError if there is a file of keys that cannot be used."""

    def __init__(self, config: ServeConfig) -> None:
        self.keys = None if config.api_keys is None else KeyFile(Path(config.api_keys))
        per_minute = config.limits.per_minute
        self.rate = None if per_minute is None else Rate(per_minute)

    def check(self, key: str | None, client: str, *, counts: bool = True) -> str:
        """Returns the name of the key, empty where none is needed.

        Raises RequestError 401 without a valid key where one is needed, 429 for too many requests. `counts`: whether
        the request is one of those that have a rate.
        """
        who, found = address_of(client), None
        if self.keys is not None:
            found = self.keys.find(key) if key else None
            if found is None:
                self._count(who)  # guesses
                what = "this API key is not valid" if key else "an API key is needed"
                raise RequestError(401, f"{what}. Give one in the header `Authorization: Bearer KEY`")
            who = f"key {found}"
        if counts:
            self._count(who)
        return found or ""

    def _count(self, who: str) -> None:
        if self.rate is not None and (wait := self.rate.take(who)) > 0:
            raise RequestError(429, f"more than {self.rate.per_minute} requests a minute. Wait", retry_after=wait)


class KeyFile:
    """API keys, one a line; empty lines and those that begin with `#` do not count. Only their hashes are kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state, self.hashes = self._read()

    def _read(self) -> tuple[FileState, list[bytes]]:
        try:
            state = FileState.of(self.path)
            text = self.path.read_bytes()
            mode = os.stat(self.path).st_mode
        except OSError as error:
            raise ConfigError(
                f"api_keys={self.path}: cannot be read ({error.strerror}). Give a file with a key a line"
            ) from error
        hashes = []
        for n, line in enumerate(text.split(b"\n"), start=1):
            key = line.strip()
            if not key or key.startswith(b"#"):
                continue
            if not all(0x21 <= byte <= 0x7E for byte in key):
                raise ConfigError(
                    f"{self.path}, line {n}: a key of other signs than ASCII letters, digits and punctuation, which"
                    " headers cannot carry. Choose another"
                )
            hashes.append(hashlib.sha256(key).digest())
        if not hashes:
            raise ConfigError(f"{self.path}: holds no key. Write one a line, or leave api_keys out")
        if os.name == "posix" and mode & (stat.S_IRGRP | stat.S_IROTH):
            LOGGER.warning("%s: other users of this machine can read the API keys. Run `chmod 600` on it", self.path)
        return state, hashes

    def reload_if_changed(self) -> bool:
        """Whether it was read again. A file that cannot be used is named once, and the keys stay as they were."""
        try:
            state = FileState.of(self.path)
        except OSError:
            return False
        if state == self.state:
            return False
        try:
            self.state, self.hashes = self._read()
        except ConfigError as error:
            self.state = state
            LOGGER.error("%s. The keys that were read before stay valid", error)
            return False
        LOGGER.info("%s: changed, and read again (%d keys)", self.path, len(self.hashes))
        return True

    def find(self, key: str) -> str | None:
        """A name that does not tell `key`, None if it is not valid; takes as long for one key as for another."""
        given, found = hashlib.sha256(key.encode("utf-8", "replace")).digest(), None
        for known in self.hashes:
            if hmac.compare_digest(known, given):
                found = known.hex()[:16]
        return found


class Rate:
    """A token bucket for each sender: a minute's requests at once, or evenly."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self.buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, at which time

    def take(self, who: str) -> float:
        """Count a request; the seconds after which it would be allowed, 0 if it is now."""
        now = time.monotonic()
        left, then = self.buckets.pop(who, (float(self.per_minute), now))
        left = min(self.per_minute, left + (now - then) * self.per_minute / 60)
        wait = 0.0 if left >= 1 else (1 - left) * 60 / self.per_minute
        self.buckets[who] = (left if wait else left - 1, now)
        while len(self.buckets) > REMEMBERED:
            self.buckets.popitem(last=False)
        return wait


def address_of(client: str) -> str:
    """The address that a rate counts: of IPv6 the network of 64 bits, which one customer has."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return quoted(client)
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return client
