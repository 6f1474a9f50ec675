"""Errors of requests, and the responses to them."""

import math
import traceback
from pathlib import Path

from starlette.responses import JSONResponse

from transformer_cli.errors import printable, quoted
from transformer_cli.logs import LOGGER
from transformer_cli.plugins import plugin_fault

LONGEST_MESSAGE = 1000  # characters: what a request has in it may be longer


class RequestError(Exception):
    """An HTTP status, and one line for people: what is wrong, where, what to do. `retry_after` is in seconds.

    Whatever a message shows of a request, it is short and printable. `detail` is for APIs that have a line of their own
    for it.
    """

    def __init__(self, status: int, message: str, *, retry_after: float | None = None, detail: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, printable(message, LONGEST_MESSAGE), retry_after
        self.detail = printable(detail, LONGEST_MESSAGE)


def error_answer(error: RequestError) -> JSONResponse:
    return JSONResponse({"error": error.message}, error.status, headers=headers_of(error))


def headers_of(error: RequestError) -> dict[str, str]:
    """The headers of an error's response, whatever its shape."""
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return headers


def log_fault(method: str, path: str, error: BaseException) -> None:
    """One line for what should not happen; the last calls tell where it did, or a plugin whose code it was."""
    if plugin := plugin_fault(error):
        LOGGER.error("%s %s: %s", method, quoted(path), plugin)
        return
    calls = traceback.extract_tb(error.__traceback__)[-3:]
    where = " > ".join(f"{Path(call.filename).name}:{call.lineno}" for call in calls)
    LOGGER.error("%s %s: %r, a fault of tfm (%s)", method, quoted(path), error, where)
