"""The model of a name: as it is kept here, else fetched. Nothing heavy is imported for what is kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformer_cli.addons.hub.kept import Kept, find, hub_folder
from transformer_cli.addons.hub.names import HubName, read_name, shortened
from transformer_cli.addons.interop.registries import READING
from transformer_cli.files import locked, make_folder, wrap_os_errors
from transformer_cli.logs import LOGGER
from transformer_cli.models.registries import PublishedModel

_said: set[Path] = set()  # the log names each once, however often a command looks it up


class Hub:
    """The addresses `hf:OWNER/NAME`."""

    def model(self, name: str) -> Path:
        return kept_model(read_name(name)).place

    @contextmanager
    def published(self, name: str, format_name: str | None) -> Iterator[PublishedModel]:
        from transformer_cli.addons.hub.fetching import fetched

        asked = read_name(name)
        with locked_name(asked), fetched(_pinned(asked), asked, format_name) as files:
            yield PublishedModel(files.view, files.provenance)


def kept_model(name: HubName) -> Kept:
    """The model that is kept under a name; fetched first where there is none. Raises TfmError."""
    kept = find(name)
    if kept is None or not kept.is_whole(READING):
        from transformer_cli.addons.hub.fetching import keep

        with locked_name(name):
            kept = find(name)  # another process may have fetched it meanwhile
            if kept is None or not kept.is_whole(READING):
                kept = keep(name, _pinned(name))
    elif kept.record not in _said:
        advice = "" if name.is_commit else f"; `tfm models update {name}` asks for a newer one"
        LOGGER.info("%s: commit %s, kept since %s%s", name, shortened(kept.commit), kept.fetched[:10], advice)
    _said.add(kept.record)
    kept.used_now()
    return kept


def _pinned(name: HubName) -> HubName:
    """The name of the commit that a name has had here since it was first used."""
    kept = find(name)
    return name if kept is None else HubName(name.repository, kept.commit)


@contextmanager
def locked_name(name: HubName) -> Iterator[None]:
    """Hold the lock of a repository, so that one process fetches at a time."""
    folder = hub_folder()
    with wrap_os_errors(folder, "keep the model"):
        make_folder(folder)
        with locked(folder / f"{name.stem}.lock"):
            yield
