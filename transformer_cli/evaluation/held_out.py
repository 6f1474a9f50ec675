"""The dev and test text of a run, kept in its run directory: for scores when its corpus has moved, changed or gone.

A test set that was held out of the training text would otherwise take all of that text to find again.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformer_cli.data.corpus import ParallelText, TextPart
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.tags import split_tags
from transformer_cli.errors import TfmError
from transformer_cli.files import wrap_os_errors, write_whole
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile
from transformer_cli.models.header import MALFORMED

HELD_OUT_FILE = "held_out.json"
LEFT_OUT_FILE = "left_out.json"  # source sentences that a fine-tuned run has left out of its training text
MOST_CHARACTERS = 50_000_000  # of both sets together; the largest news sets have some 500,000


@dataclass(frozen=True)
class HeldOutTexts:
    """What a run is scored on."""

    dev: ParallelText
    test: ParallelText | None
    held: Sequence[str] = ()  # those of the two that were held out of the training text, rather than named

    @property
    def sources(self) -> list[str]:
        """The source sentences, with their tags, of what was held out of the training text."""
        texts = {"dev": self.dev, "test": self.test or ParallelText()}
        return [source for split, text in texts.items() if split in self.held for source in text.sources]


def write_held_out(prepared: Prepared, run_dir: Path) -> None:
    """Keep dev and test text, unless they are too large, and the sentences left out. Raises EnvironmentFault."""
    left_out = run_dir / LEFT_OUT_FILE
    if prepared.left_out or left_out.exists():
        with wrap_os_errors(run_dir, "write to the run directory"):
            write_whole(left_out, json.dumps(list(prepared.left_out)).encode())
    texts = [text for text in (prepared.dev, prepared.test) if text is not None]
    n_characters = sum(len(line) for text in texts for line in (*text.sources, *text.targets))
    if n_characters > MOST_CHARACTERS:
        LOGGER.info("the %s characters of dev and test text are too many to be kept in the run", f"{n_characters:,}")
        return
    content = {
        "fingerprint": prepared.fingerprint,
        "dev": plain_text(prepared.dev),
        "test": None if prepared.test is None else plain_text(prepared.test),
        "held": list(prepared.held),
    }
    with wrap_os_errors(run_dir, "write to the run directory"):
        write_whole(run_dir / HELD_OUT_FILE, json.dumps(content).encode())


def read_held_out(run_dir: Path | None, fingerprints: Iterable[str]) -> HeldOutTexts | None:
    """What `write_held_out` has left of the corpus with these fingerprints; None if there is nothing, or another's."""
    if run_dir is None:
        return None
    try:
        content = json.loads((run_dir / HELD_OUT_FILE).read_bytes())
        if any(fingerprint != content["fingerprint"] for fingerprint in fingerprints):
            return None
        test = None if content["test"] is None else text_of(content["test"])
        return HeldOutTexts(text_of(content["dev"]), test, tuple(content["held"]))
    except (OSError, TfmError, AssertionError, *MALFORMED):
        return None


def read_left_out(run_dir: Path | None) -> list[str]:
    """The source sentences that a run leaves out of its training text, as `write_held_out` has kept them."""
    if run_dir is None:
        return []
    try:
        return list(map(str, json.loads((run_dir / LEFT_OUT_FILE).read_bytes())))
    except (OSError, *MALFORMED):
        return []


def to_leave_out(run_dir: Path | None, model: ModelFile) -> list[str]:
    """The source sentences that a run which begins with `model`, of the run in `run_dir`, must not be trained on.

    They are those of the dev and test text that was held out of its training text, and what it has itself left out.
    """
    kept = read_held_out(run_dir, [model.fingerprint])
    sources = [] if kept is None else [split_tags(line, model.tokenizers.source.tags)[1] for line in kept.sources]
    return list(dict.fromkeys([*read_left_out(run_dir), *sources]))


def plain_text(text: ParallelText) -> dict[str, Any]:
    """A text as JSON has it."""
    plain = {"sources": text.sources, "targets": text.targets, "parts": [asdict(part) for part in text.parts]}
    return {**plain, "contexts": text.contexts} if text.contexts else plain


def text_of(plain: dict[str, Any]) -> ParallelText:
    """The inverse of `plain_text`. Raises what MALFORMED lists, or AssertionError."""
    parts = [TextPart(**part) for part in plain["parts"]]
    contexts = [tuple(map(str, context)) for context in plain.get("contexts", [])]
    return ParallelText(
        list(map(str, plain["sources"])), list(map(str, plain["targets"])), parts=parts, contexts=contexts
    )
