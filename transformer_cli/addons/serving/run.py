"""The process: its address, uvicorn, the check for replaced files, and the end."""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import sys
import threading
from collections.abc import Iterable
from types import FrameType
from typing import Any

import prometheus_client
import uvicorn

from transformer_cli.addons.serving.access_log import AccessLog, AccessRecord
from transformer_cli.addons.serving.app import create_app
from transformer_cli.addons.serving.gate import is_loopback
from transformer_cli.addons.serving.keys import ServeConfig
from transformer_cli.addons.serving.protocol import BoundedProtocol, check_uvicorn, sweep
from transformer_cli.addons.serving.proxies import behind_proxies
from transformer_cli.addons.serving.server import Server
from transformer_cli.errors import ConfigError, EnvironmentFault
from transformer_cli.logs import LOGGER

BACKLOG = 2048  # connections that wait to be accepted
SPARE_FILES = 100  # descriptors for other things than connections
REASONS = {
    errno.EADDRINUSE: "another program listens there. Choose another with --port, or 0 for any that is free",
    errno.EACCES: "this user may not listen there. Choose a port from 1024 on",
}


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets at every address of `host`, which do not listen yet: until then, connections are refused.

    Raises ConfigError if the host is no address of this machine, EnvironmentFault if the port cannot be had.
    """
    hosts = (host, "0.0.0.0") if host == "::" else (host,)  # every address, and clients of IPv4 with theirs
    try:
        found = [
            address
            for name in hosts
            for address in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        ]
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"host={host}: {getattr(error, 'strerror', error)}. Give an address of this machine"
        ) from None
    sockets: list[socket.socket] = []
    for family, kind, protocol, _, address in dict.fromkeys(found):
        try:
            sockets.append(_bound(family, kind, protocol, (address[0], port, *address[2:])))
        except OSError as error:
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                continue  # localhost may be ::1, too, where there is no IPv6
            for one in sockets:
                one.close()
            raise _cannot_listen(host, port, error) from None
        port = sockets[0].getsockname()[1]
    if not sockets:
        raise ConfigError(f"host={host}: is no address of this machine. Give one that is")
    return sockets


def _bound(family: int, kind: int, protocol: int, address: tuple[Any, ...]) -> socket.socket:
    one = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
    except OSError:
        one.close()
        raise
    return one


def _cannot_listen(host: str, port: int, error: OSError) -> EnvironmentFault:
    return EnvironmentFault(
        f"cannot listen at {url_of(host, port)}: {REASONS.get(error.errno or 0, error.strerror or error)}"
    )


def url_of(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Process(uvicorn.Server):
    """A first signal lets requests end; a second one does not."""

    def __init__(self, config: uvicorn.Config, server: Server) -> None:
        super().__init__(config)
        self.server = server

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = self.server.is_draining = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.sweeper = asyncio.create_task(self._sweep())
        assert sockets is not None
        self.server.is_ready = True
        LOGGER.info("ready at %s", url_of(self.server.config.host, sockets[0].getsockname()[1]))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(0.1 if self.should_exit else 1)
            sweep(self.server_state.connections)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._accept_arrived(sockets or [])
        n_tasks = len(self.server_state.tasks)
        LOGGER.info("stopping%s", f" when {n_tasks} requests are answered" if n_tasks else "")
        await super().shutdown(sockets)
        self.sweeper.cancel()

    async def _accept_arrived(self, sockets: Iterable[socket.socket]) -> None:
        """Accept the connections that the system has made already, and no more: closing would reset them."""
        self.sweeper.cancel()
        self.sweeper = asyncio.create_task(self._sweep())
        arrived: list[socket.socket] = []
        for one in sockets:
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    arrived.append(one.accept()[0])
        for listener in self.servers:
            listener.close()
        loop = asyncio.get_running_loop()
        for one in arrived:
            one.setblocking(False)
            await loop.connect_accepted_socket(self._protocol, one)

    def _protocol(self) -> asyncio.Protocol:
        kind: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = kind(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol


def serve(server: Server, sockets: list[socket.socket]) -> None:
    """Answer requests until SIGTERM or SIGINT; those that have arrived are answered first."""
    check_uvicorn()
    limits = server.config.limits
    warn_if_open(server.config)
    log = AccessLog(server.config.log_format) if server.config.access_log else None
    app = create_app(server, log)

    class Protocol(BoundedProtocol):
        pass

    Protocol.limits = limits
    Protocol.on_refused = staticmethod(lambda client, status: app.count(AccessRecord(client, "-", "-", status)))
    process = _Process(
        uvicorn.Config(
            behind_proxies(app, server.config.proxies),
            http=Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.ERROR,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(limits.idle_seconds),
            timeout_graceful_shutdown=int(limits.seconds) + 1,
        ),
        server,
    )
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, which no one reads
    server.metrics.watch(server.service.table, lambda: len(process.server_state.connections))
    _allow_open_files(limits.connections + SPARE_FILES)
    for one in sockets:
        try:
            one.listen(BACKLOG)
        except OSError as error:  # another server was as quick
            raise _cannot_listen(server.config.host, one.getsockname()[1], error) from None
    ended = threading.Event()
    if server.config.reload:
        threading.Thread(target=_reload, args=(server, ended), name="reload", daemon=True).start()
    try:
        process.run(sockets)
    finally:
        ended.set()
        server.close()
        if log is not None:
            log.close()


def warn_if_open(config: ServeConfig) -> None:
    """Warns of an address that other machines may reach, and that asks for no key."""
    if config.api_keys is None and not is_loopback(config.host):
        LOGGER.warning(
            "host=%s without api_keys: all that reach this address may send requests. Add --api-keys FILE, or leave"
            " --host out",
            config.host,
        )


def _reload(server: Server, ended: threading.Event) -> None:
    while not ended.wait(server.config.reload):
        server.service.table.reload_replaced()
        if server.access.keys is not None:
            server.access.keys.reload_if_changed()


def _allow_open_files(n: int) -> None:
    """Raise the soft limit of this process as far as it may; many systems begin with 1024."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = n if hard == resource.RLIM_INFINITY else min(n, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
