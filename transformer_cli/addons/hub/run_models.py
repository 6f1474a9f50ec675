"""`tfm models`: what is kept here of models from elsewhere: of the hub, and imports in the user's cache."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from transformer_cli.addons.hub.kept import Kept, all_kept, find, remove_record, remove_unnamed
from transformer_cli.addons.hub.keys import ModelsConfig
from transformer_cli.addons.hub.names import SCHEME, HubName, read_name, shortened
from transformer_cli.addons.hub.opening import locked_name
from transformer_cli.addons.interop.registries import IMPORTED
from transformer_cli.environment import user_cache
from transformer_cli.errors import ConfigError, printable
from transformer_cli.files import wrap_os_errors
from transformer_cli.logs import LOGGER
from transformer_cli.registry import did_you_mean
from transformer_cli.standard_streams import require_stdout

_HEAD = ("name", "commit", "size", "last used", "languages", "licence")


def run(config: ModelsConfig) -> None:
    """Print the list, or what was done. Raises TfmError."""
    require_stdout("the models")
    if config.action == "remove" and (path := _imports().get(config.name or "")) is not None:
        with wrap_os_errors(path, "remove the import"):
            path.unlink(missing_ok=True)
        print(f"{config.name}: removed")
    elif config.action == "remove":
        _remove(_named(config.name))
    elif config.action == "update":
        _update(_named(config.name))
    else:
        _list(config.name, as_json=config.json)
    sys.stdout.flush()


def _imports() -> dict[str, Path]:
    """The imports of folders that are kept in the cache, as they cannot be written, by their names in the list."""
    folder = user_cache() / IMPORTED
    return {f"{IMPORTED}/{path.name}": path for path in sorted(folder.glob("*.safetensors"))}


def _named(text: str | None) -> HubName:
    """Raises ConfigError for what is no name of the hub, and for one under which nothing is kept."""
    name = read_name((text or "").removeprefix(f"{SCHEME}:"))
    if find(name) is None:
        hint = did_you_mean(str(name), [str(kept.hub_name) for kept in all_kept()])
        raise ConfigError(f"{name}: nothing is kept under this name{hint or '. Choose one that `tfm models` lists'}")
    return name


def _list(name: str | None, *, as_json: bool) -> None:
    rows = [_facts(kept) for kept in all_kept()] + [_import_facts(own, path) for own, path in _imports().items()]
    if name is not None:
        own = name if name in _imports() else str(_named(name))
        rows = [row for row in rows if row["name"] == own]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        LOGGER.info("no model is kept here. Name one as --checkpoint %s:OWNER/NAME", SCHEME)
        return
    table = [_HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEAD))]
    for line in table:
        print(printable("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()))


def _facts(kept: Kept) -> dict[str, Any]:
    try:
        used = datetime.fromtimestamp(kept.record.stat().st_mtime, UTC).isoformat(timespec="seconds")
    except OSError:  # removed meanwhile
        used = kept.fetched
    return {
        "name": str(kept.hub_name),
        "commit": kept.commit,
        "bytes": kept.n_bytes,
        "fetched": kept.fetched,
        "used": used,
        "languages": list(kept.languages),
        "license": kept.license,
        "path": str(kept.place),
    }


def _import_facts(name: str, path: Path) -> dict[str, Any]:
    status = path.stat()
    made = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="seconds")
    found = {"name": name, "commit": None, "bytes": status.st_size, "fetched": made, "used": None}
    return found | {"languages": [], "license": None, "path": str(path)}


def _cells(facts: dict[str, Any]) -> Sequence[str]:
    size = f"{facts['bytes'] / 1e6:,.1f} MB"
    languages = ", ".join(facts["languages"][:4]) + (", …" if len(facts["languages"]) > 4 else "")
    used, commit = (facts["used"] or "-")[:10], shortened(facts["commit"] or "-")
    return facts["name"], commit, size, used, languages or "-", facts["license"] or "-"


def _remove(name: HubName) -> None:
    with locked_name(name), wrap_os_errors(Path(name.record), "remove the model"):
        kept = find(name)
        left = [] if kept is None else remove_record(kept)
    print(f"{name}: removed")
    _report(left)
    LOGGER.info(
        "what was downloaded stays in the cache of huggingface_hub; `hf cache rm model/%s` removes it", name.repository
    )


def _report(left: Sequence[Path]) -> None:
    for path in left:
        LOGGER.info("%s: stays, as it is no part of the model", path)


def _update(name: HubName) -> None:
    from transformer_cli.addons.hub.fetching import keep

    if name.is_commit:
        raise ConfigError(f"{name}: names a commit, which stays as it is. Name a branch, or leave @{name.revision} out")
    with locked_name(name):
        before = find(name)
        now = keep(name, name)
        if before is not None:
            _report(remove_unnamed(before))
    if before is not None and before.commit == now.commit:
        print(f"{name}: commit {shortened(now.commit)} is the newest")
    else:
        print(f"{name}: commit {shortened(now.commit)}, before {shortened(before.commit) if before else 'none'}")
