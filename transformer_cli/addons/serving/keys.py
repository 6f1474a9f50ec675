"""Keys of `tfm serve`."""

import ipaddress
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from transformer_cli.config.checks import model_names
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.fields import DEVICE, PLUGINS, RUNS, SEED, check_ranges, key
from transformer_cli.config.shared import AUTO_ENGINE, engine_names
from transformer_cli.config.train import Device
from transformer_cli.errors import ConfigError, quoted

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+")


class LogFormat(Enum):
    text = "text"
    json = "json"  # an object a line


@dataclass
class LimitsConfig:
    """What one request may ask for, and how much may wait."""

    characters: int = key(20_000, "Characters of one text; more are answered with 413.", low=1)
    texts: int = key(500, "Texts of one request; more are answered with 413.", low=1)
    units: int = key(
        20_000, "Lines of the texts of a request, or texts of its documents; more are answered with 413.", low=1
    )
    terms: int = key(1000, "Phrases, of both languages, in the terms of a request; more are answered with 413.", low=1)
    term_characters: int = key(200, "Characters of a phrase of a term; more are answered with 413.", low=1)
    glossaries: int = key(
        1000, "Glossaries of one API key, or of all where there are no keys; more are answered with 456.", low=1
    )
    glossary_bytes: int = key(
        10_000_000, "Bytes of the entries of all glossaries of one API key; more are answered with 456.", low=100
    )
    body_bytes: int = key(2_000_000, "Bytes of a request's body; more are answered with 413.", low=100)
    queue: int = key(
        2000, "Lines that may wait or be translated at once; a request beyond is answered with 503.", low=1
    )
    requests: int = key(256, "Requests that may be worked on at once; more are answered with 503.", low=1, high=10_000)
    seconds: float = key(60.0, "Deadline of a request; what is not done by then is answered with 503.", low=0.01)
    documents: int = key(
        100, "Uploaded documents that may wait or be translated at once; more are answered with 503.", low=1
    )
    document_seconds: float = key(
        600.0, "Deadline of an uploaded document; what is not translated by then is given up.", low=0.01
    )
    beam_size: int = key(16, "Largest beam, and most alternatives, that a request may ask for.", low=1, high=1000)
    tokens: int = key(
        500,
        "Largest max_source_length, max_extra_length and min_length that a request may ask for; the time of a search"
        " grows with them.",
        low=1,
        high=100_000,
    )
    per_minute: int | None = key(
        None, "Requests a minute of one API key, or of one address where there are no keys; more: 429.", low=1
    )
    connections: int = key(
        1000, "Open connections; for one more, that which has been idle the longest is closed.", low=1, high=100_000
    )
    head_bytes: int = key(16_384, "Bytes of a request's line and headers; more are answered with 431.", low=1024)
    receive_seconds: float = key(
        20.0,
        "Seconds for a request's head to arrive, and again for its body; a slower one is answered with 408.",
        low=0.1,
    )
    idle_seconds: float = key(75.0, "Seconds that a connection is kept open between requests.", low=1)


@dataclass
class ServeConfig:
    """`tfm serve`."""

    checkpoint: Any = key(
        None,
        "Model, or a list of models of other language pairs: files, checkpoints, runs, exports; unset: the newest.",
        path=True,
        flag="--checkpoint",
        repeated=True,
    )
    runs: str = key("runs", RUNS, path=True)
    host: str = key("127.0.0.1", "Address to listen at; 0.0.0.0: of every network of this machine.", flag="--host")
    port: int = key(8080, "Port to listen at; 0: any that is free.", low=0, high=65_535, flag="--port")
    pivot: str | None = key(
        None, "Language through which pairs without a model of their own are translated, by two models.", flag="--pivot"
    )
    engine: str = key(
        AUTO_ENGINE,
        "torch, ctranslate2, firefox, or auto: ctranslate2 where it is installed; torch has what a request asks for"
        " that the engine lacks.",
        choices=engine_names,
        flag="--engine",
    )
    cache: int = key(20_000, "Sentences whose translations are kept in memory, of each model; 0: none.", low=0)
    reload: float = key(
        5.0, "Seconds between checks of the models' files, which are read again if replaced; 0: never.", low=0
    )
    api_keys: str | None = key(
        None,
        "File with the API keys that requests need one of, a key a line; unset: none.",
        path=True,
        flag="--api-keys",
    )
    glossaries: str | None = key(
        None,
        "Folder in which glossaries are kept; it is made if it is missing. Unset: in memory, until the server ends.",
        path=True,
    )
    cors: list[str] = key(
        [], "Origins whose pages may call the server, as https://example.org; `*`: all.", flag="--cors"
    )
    allowed_hosts: list[str] = key(
        [],
        "Names by which requests may call the server, in their Host header; `*`: any. Unset: any, but where host is a"
        " loopback address only localhost, 127.0.0.1 and ::1.",
    )
    proxies: list[str] = key(
        [],
        "Addresses or networks of reverse proxies, whose X-Forwarded-For, -Proto and -Prefix headers name the client,"
        " the scheme and the prefix of addresses; unset: the headers are not believed.",
    )
    page: bool = key(True, "Serve the web page.")
    log_format: LogFormat = key(LogFormat.text, "Log: lines of text, or a JSON object a line.", flag="--log-format")
    access_log: bool = key(True, "Write the access log, to standard error.")
    check: bool = key(
        False, "Load the models, translate a sentence with each, say what was found, and stop.", flag="--check"
    )
    seed: int = key(1, SEED, low=0, high=2**31 - 1)
    device: Device = key(Device.auto, DEVICE, flag="--device")
    plugins: list[str] = key([], PLUGINS)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        self.checkpoint = model_names(self.checkpoint)
        check_ranges(self)
        check_ranges(self.limits, "limits")
        if not self.host:
            raise ConfigError("host=: empty. Give an address, as 127.0.0.1")
        for proxy in self.proxies:
            try:
                ipaddress.ip_network(proxy, strict=False)
            except ValueError:
                raise ConfigError(
                    f"proxies={quoted(proxy)}: is no address. Give one as 127.0.0.1 or 10.0.0.0/8"
                ) from None
        for origin in self.cors:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ConfigError(
                    f"cors={quoted(origin)}: is no origin. Give one as https://example.org, without a path"
                )
