"""`tfm push`: a finished model or an export on the hub, with its card and its licence, after a question."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from transformer_cli.addons.hub.faults import explained, hub_library
from transformer_cli.addons.hub.keys import PushConfig
from transformer_cli.addons.hub.names import SCHEME, HubName, read_name, shortened
from transformer_cli.addons.interop.export_file import export_facts
from transformer_cli.addons.interop.model_card import CARD, card, front_matter
from transformer_cli.errors import ConfigError, EnvironmentFault
from transformer_cli.logs import LOGGER
from transformer_cli.models.facts import model_facts, stated_license
from transformer_cli.models.header import MODEL_FILE
from transformer_cli.models.locate import EXPORT_FILE, is_own_model, locate_own_model, place_named
from transformer_cli.standard_streams import require_stdout

_LIBRARY = "transformer-cli"  # of our own model files, in the header of their card


@dataclass(frozen=True)
class PushedFiles:
    """What goes to the hub: files, or their contents, by the names that they get there."""

    files: Mapping[str, Path | bytes]
    license: str

    @property
    def n_bytes(self) -> int:
        return sum(len(it) if isinstance(it, bytes) else it.stat().st_size for it in self.files.values())


def run(config: PushConfig) -> None:
    """Upload, if the user agrees, and print where to. Raises TfmError, and then has uploaded nothing."""
    require_stdout("the address")
    name = _name_of(config.address)
    upload = _upload_of(config, name)
    who = "for its owner alone" if config.private else "for everybody"
    LOGGER.info(
        "%s: %s, %s bytes, licence %s, %s", name, ", ".join(upload.files), f"{upload.n_bytes:,}", upload.license, who
    )
    if not config.yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise ConfigError(f"tfm push {name}: asks before it uploads, and standard input is no terminal. Add --yes")
    if hub_library(name).get_token() is None:
        raise EnvironmentFault(f"{name}: there is no token that may write there. Set HF_TOKEN, or run `hf auth login`")
    if not config.yes and not _agrees(name):
        LOGGER.info("%s: nothing was uploaded", name)
        return
    with explained(name, None):
        commit = _send(name, upload, is_private=config.private)
    print(f"{name}: commit {shortened(str(commit.oid))}, {commit.commit_url}", flush=True)


def _name_of(address: str | None) -> HubName:
    """Raises ConfigError for what is no name of a repository with an owner, or names a revision."""
    text = address or ""
    if not text.startswith(f"{SCHEME}:"):
        raise ConfigError(f"tfm push {text}: no address of the hub. Write {SCHEME}:OWNER/NAME")
    name = read_name(text.removeprefix(f"{SCHEME}:"))
    if name.revision is not None or "/" not in name.repository:
        raise ConfigError(f"tfm push {name}: names no repository, or a revision of one. Write {SCHEME}:OWNER/NAME")
    return name


def _upload_of(config: PushConfig, name: HubName) -> PushedFiles:
    """The files of an export, or a model file with a card. Raises ConfigError where no licence is stated."""
    place = None if config.checkpoint is None else place_named(config.checkpoint)
    if place is not None and (place / EXPORT_FILE).is_file():
        return _export(place, config)
    path = locate_own_model(config.checkpoint, config.runs)
    if not is_own_model(path):
        raise ConfigError(f"{path}: is no model of tfm. Make one of it with `tfm import`")
    facts = model_facts(path)
    facts |= {"license": config.license} if config.license is not None else {}
    stated = stated_license(facts)
    if stated is None:
        raise ConfigError(f"{path}: states no licence, without which no one may use it. Add --license, as cc-by-4.0")
    usage = f"## How to use it\n\n```\ntfm translate --checkpoint {name} < text\n```\n"
    text = f"{front_matter(facts, library=_LIBRARY)}{card(facts)}\n{usage}"
    return PushedFiles({MODEL_FILE: path, CARD: text.encode(errors="backslashreplace")}, stated)


def _export(folder: Path, config: PushConfig) -> PushedFiles:
    if config.license is not None:
        raise ConfigError(f"--license {config.license}: an export has a card of its own. Add it to `tfm export`")
    facts = export_facts(folder)  # which compares its files with their hashes
    again = f"Write it again with `tfm export {facts['program']} --license NAME`"
    if CARD not in facts["files"]:
        raise ConfigError(f"{folder}: has no card ({CARD}). {again}")
    if (stated := stated_license(facts)) is None:
        raise ConfigError(f"{folder}: states no licence, without which no one may use it. {again}")
    files: dict[str, Path | bytes] = {file: folder / file for file in facts["files"]}
    text = (folder / CARD).read_bytes()
    if not text.startswith(b"---\n"):  # the hub asks for a header, which not every program's card has
        text = front_matter(facts, library=str(facts["program"])).encode(errors="backslashreplace") + text
        facts = {**facts, "files": {**facts["files"], CARD: sha256(text).hexdigest()}}
    listed = json.dumps(facts, indent=2, allow_nan=False) + "\n"
    return PushedFiles({**files, CARD: text, EXPORT_FILE: listed.encode()}, stated)


def _agrees(name: HubName) -> bool:
    """The answer of the user, who is asked on standard error."""
    print(f"Upload to {name}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _send(name: HubName, upload: PushedFiles, *, is_private: bool) -> Any:
    library = hub_library(name)
    if sys.stderr is None or not sys.stderr.isatty():
        hub_library(name, "utils").disable_progress_bars()
    api = library.HfApi()
    api.create_repo(name.repository, private=is_private, exist_ok=True)
    operations = [
        library.CommitOperationAdd(
            path_in_repo=file, path_or_fileobj=content if isinstance(content, bytes) else str(content)
        )
        for file, content in upload.files.items()
    ]
    return api.create_commit(name.repository, operations, commit_message="Upload a model with tfm")
