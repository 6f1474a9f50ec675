"""The process: uvicorn, its address, and its end."""

import asyncio
import logging

import uvicorn

from transformer_cli.logs import LOGGER
from transformer_cli.serving.app import create_app
from transformer_cli.serving.server import Server


def serve(server: Server) -> None:
    """Answer requests until SIGTERM or SIGINT; those that are being worked on are finished first."""
    config = uvicorn.Config(
        create_app(server),
        host=server.config.host,
        port=server.config.port,
        log_level=logging.WARNING,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=int(server.config.limits.seconds) + 1,
    )
    uvicorn_server = uvicorn.Server(config)
    server.is_ready = True
    LOGGER.info("http://%s:%d", server.config.host, server.config.port)
    asyncio.run(uvicorn_server.serve())
