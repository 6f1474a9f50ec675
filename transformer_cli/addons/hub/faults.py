"""What goes wrong between here and the hub, each in one line with what to do next."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformer_cli.addons.hub.names import HubName
from transformer_cli.errors import CheckpointError, EnvironmentFault, TfmError, quoted
from transformer_cli.extras import imported

_NETWORK = (ConnectionError, TimeoutError)


def hub_library(needs: object, module: str = "") -> Any:
    """The package huggingface_hub, or a module of it. Raises EnvironmentFault where it is not installed."""
    return imported(f"huggingface_hub.{module}".removesuffix("."), needs=str(needs))


def transport_errors(needs: object) -> type[Exception]:
    """The base of the errors of the library that sends the requests, which is not the same in all versions."""
    found: type[Exception] = hub_library(needs, "errors").HfHubHTTPError.__mro__[1]
    return found


class Unreachable(EnvironmentFault):
    """No answer of the hub: no network, none allowed, or something else that answers in its place."""


@contextmanager
def explained(name: HubName, place: Path | None) -> Iterator[None]:
    """Raise TfmError for what huggingface_hub raises.

    What is fetched comes into `place`, to where it can be copied from another machine; None: it is an upload.
    """
    errors, endpoint = hub_library(name, "errors"), hub_library(name, "constants").ENDPOINT
    refused, transport = errors.HfHubHTTPError, transport_errors(name)
    try:
        yield
    except TfmError:
        raise
    except (refused, transport, OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        cause: BaseException = error
        while not isinstance(cause, refused | transport) and cause.__cause__ is not None:
            cause = cause.__cause__  # what a file could not be found for
        if isinstance(cause, refused) and getattr(cause, "response", None) is not None:
            raise _refusal(name, cause, errors, is_upload=place is None) from error
        if isinstance(cause, (transport, errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError, *_NETWORK)):
            raise _unreachable(name, cause, place, endpoint, errors) from error
        if isinstance(cause, OSError) and cause.errno is not None:
            raise EnvironmentFault(
                f"{name}: {cause.filename or place or 'the upload'} fails ({cause.strerror}). Make room or repair it,"
                " and run the same command again"
            ) from error
        raise Unreachable(
            f"{name}: {endpoint} does not answer as a hub does ({first_line(cause)}). Check HF_ENDPOINT"
            " and the network, and run again"
        ) from error


def _unreachable(name: HubName, error: BaseException, place: Path | None, endpoint: str, errors: Any) -> Unreachable:
    is_off = isinstance(error, errors.OfflineModeIsEnabled)
    why = "HF_HUB_OFFLINE is set" if is_off else f"{endpoint} cannot be reached: {first_line(error)}"
    if place is None:
        return Unreachable(f"{name}: {why}. Connect to the network and run again")
    return Unreachable(
        f"{name}: is not kept here, and {why}. Connect to the network and run again, or use the name on a machine with"
        f" network, and copy {name.stem}* of its folder ~/.cache/tfm/hub to {place} on this one"
    )


def _refusal(name: HubName, error: Any, errors: Any, *, is_upload: bool) -> TfmError:
    """An answer that is a refusal."""
    status: int = error.response.status_code
    headers = error.response.headers
    has_token = "authorization" in error.response.request.headers
    if is_upload and status in (401, 403, 404):
        return EnvironmentFault(
            f"{name}: the token may not write there ({status}). Check the owner, and set HF_TOKEN to one that may"
        )
    if isinstance(error, errors.GatedRepoError) or status == 403:
        return EnvironmentFault(
            f"{name}: its owner gives it to those who ask ({status}). Ask on its page,"
            f" {_page(name, error)}, and set HF_TOKEN to a token that may read it"
        )
    if status == 401 and has_token:
        return EnvironmentFault(
            f"{name}: the hub does not take the token (401). Set HF_TOKEN to another, or run `hf auth login`"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return CheckpointError(
            f"{name}: the hub has no revision {name.revision} of it ({status}). Check the name behind the @"
        )
    if status in (401, 404):
        private = "" if has_token else "; for a private one, set HF_TOKEN"
        return CheckpointError(f"{name}: the hub has no such model ({status}). Check the name{private}")
    if status == 429:
        seconds = headers.get("Retry-After") or headers.get("ratelimit", "").rpartition("t=")[2]
        when = f"in {seconds} seconds" if re.fullmatch(r"\d+", seconds) else "later"
        return EnvironmentFault(f"{name}: the hub answers too many requests (429). Run again {when}")
    return EnvironmentFault(f"{name}: the hub answers {status}. Run again later")


def _page(name: HubName, error: Any) -> str:
    address = error.response.request.url
    port = f":{address.port}" if address.port else ""
    return f"{address.scheme}://{address.host}{port}/{name.repository}"


def first_line(error: BaseException) -> str:
    return quoted(str(error).strip().split("\n")[0] or type(error).__name__, 120)
