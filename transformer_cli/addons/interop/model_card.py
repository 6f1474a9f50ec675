"""The model card: what a person who gets a model wants to know of it, as Markdown.

`facts` are those of `models.facts`: a plain dictionary with the keys of export.json.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer_cli.addons.interop import robustness_card
from transformer_cli.addons.interop.registries import EXPORTERS, Exporter
from transformer_cli.addons.interop.usage import export_languages, export_tags
from transformer_cli.config.tags import languages_of
from transformer_cli.errors import CheckpointError, ConfigError, EnvironmentFault
from transformer_cli.languages import base_code, language_name
from transformer_cli.models.facts import (
    NO_LICENSE,
    UNKNOWN,
    data_lines,
    hash_lines,
    input_lines,
    model_lines,
    score_rows,
    stated_license,
)
from transformer_cli.models.header import MALFORMED, is_whole, read_json
from transformer_cli.models.registries import Row

CARD = "README.md"
N_TAGS = 10  # that are listed
# The commonest of the names that the Hugging Face Hub knows; any other is written there as a licence of its own.
HUB_LICENSES = {
    *("apache-2.0", "mit", "openrail", "bsd-2-clause", "bsd-3-clause", "cc0-1.0", "cc-by-2.0", "cc-by-3.0"),
    *("cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nc-nd-4.0"),
    *("cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0", "gpl-2.0", "gpl-3.0", "agpl-3.0", "lgpl-2.1", "lgpl-3.0"),
    *("mpl-2.0", "unlicense", "odbl", "wtfpl"),
}


def read_scores(file: Path) -> dict[str, Any]:
    """What `tfm evaluate --json` has printed. Raises ConfigError for anything else."""
    try:
        found = read_json(file.read_bytes(), file)
        wanted = {"test_set": str(found["test_set"]), "lines": found["lines"], "search": found.get("search")}
        wanted["scores"] = [
            {"name": str(it["name"]), "score": float(it["score"]), "signature": str(it["signature"])}
            for it in found["scores"]
        ]
        if not is_whole(wanted["lines"]):
            raise ValueError("lines is no number")
        if found.get("robustness") is not None:
            of_test = {"test_set": wanted["test_set"], "search": wanted["search"]}
            wanted["robustness"] = robustness_card.checked_report({**found["robustness"], **of_test})
    except OSError as error:
        raise EnvironmentFault(f"--scores {file}: {error.strerror}. Check the name") from error
    except (CheckpointError, *MALFORMED) as error:
        raise ConfigError(
            f"--scores {file}: not what `tfm evaluate --json` prints. Save its output in a file"
        ) from error
    return wanted


def robustness_of(facts: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The table of --scores, else that of the run."""
    found: Mapping[str, Any] | None = (facts.get("test") or {}).get("robustness") or facts.get("robustness")
    return found


# ---- As Markdown


def card(facts: Mapping[str, Any], *, files: Mapping[str, str] | None = None, verified: Sequence[str] = ()) -> str:
    """README.md: `files` are those of an export with their SHA-256, `verified` what was compared in it."""
    exporter = exporter_of(facts)
    front = front_matter(facts) if exporter is not None and exporter.has_hub_header else ""
    parts = [f"# {title(facts)}", _introduction(facts), markdown_table(["", ""], model_lines(facts))]
    parts += ["## Training text", markdown_table(["", ""], data_lines(facts))]
    if inputs := input_lines(facts):
        parts.append(markdown_table(["made from", "SHA-256"], [(name, _code(sha256)) for name, sha256 in inputs]))
    parts += named_corpora(facts)
    parts += ["## Scores", scores_text(facts)]
    if robustness := robustness_of(facts):
        of_suite = markdown_table(robustness_card.HEAD, robustness_card.table_rows(robustness))
        parts += ["## Robustness", robustness_card.introduction(robustness), of_suite]
    if exporter is not None:
        is_packed = any(name.endswith(".tokenizer") for name in files or {})
        usage = exporter.usage({**facts, "files": files or {}}, is_packed)
        if (tags := export_tags(facts)) and not export_languages(facts):
            named = ", ".join(map(_code, tags[:N_TAGS])) + (f" and {len(tags) - N_TAGS} more" * (len(tags) > N_TAGS))
            usage = f"A line begins with its tags, as in training: {named}.\n\n{usage}"
        done = "labelled" if facts["config"]["name"] in ("classifier", "tagger") else "translated"
        parts += ["## How to use it", f"TEXT stands for what is {done}, {exporter.place}.", usage]
    if verified:
        parts += [
            "## Comparison with the original",
            f"Before it was published, this model was compared with the original on {facts['verified']['lines']} lines"
            f" of {facts['verified']['text']}:",
            "\n".join(f"- {line}" for line in verified),
        ]
    rows = [(name, _code(sha256)) for name, sha256 in hash_lines(facts)]
    rows += [(_code(name), _code(sha256)) for name, sha256 in (files or {}).items()]
    parts += ["## Hashes", markdown_table(["", "SHA-256"], rows)]
    return front + "\n\n".join(parts) + "\n"


def title(facts: Mapping[str, Any]) -> str:
    if facts["data"].get("task", "translation") != "translation":
        kinds = {"classification": "sentence classifier", "token_classification": "tagger of words"}
        return f"A {kinds.get(facts['data']['task'], 'language model')}"
    names = [language_name(facts[f"{side}_lang"]) or facts[f"{side}_lang"] for side in ("source", "target")]
    return f"{names[0]} to {names[1]} translation"


def _introduction(facts: Mapping[str, Any]) -> str:
    program = facts.get("program")
    what = f"A model of tfm (transformer-cli {facts['tfm']})"
    if program is None:
        return f"{what}."
    return f"{what}, exported for {_program_name(facts)} and checked with {facts.get('library', UNKNOWN)}."


def named_corpora(facts: Mapping[str, Any]) -> list[str]:
    """The corpora of data.mtdata, with their size, licence and address, and what to cite."""
    found = (facts.get("provenance") or {}).get("corpora") or []
    if not found:
        return []
    rows = [
        (
            str(one["id"]),
            f"{int(one['bytes']):,}",
            str(one.get("license") or NO_LICENSE),
            " ".join(map(str, one["urls"])),
        )
        for one in found
    ]
    citations = dict.fromkeys(str(text).strip() for one in found for text in one["citations"])
    parts = [markdown_table(["corpus of mtdata", "bytes", "licence", "address"], rows)]
    if citations:
        parts += ["To be cited:", _code_block("\n\n".join(citations))]
    return parts


def _code_block(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}bibtex\n{text}\n{fence}"


def scores_text(facts: Mapping[str, Any]) -> str:
    rows = score_rows(facts)
    if not rows:
        return "Unknown: none are in the model file."
    return markdown_table(["text", "metric", "score", "signature", "search"], rows)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", r"\|").replace("\n", " ") for cell in cells) + " |"

    return "\n".join([line(head), line(["---"] * len(head)), *map(line, rows)])


def _code(text: str) -> str:
    return f"`{text}`"


def front_matter(facts: Mapping[str, Any], *, library: str = "transformers") -> str:
    """What the Hugging Face Hub reads. JSON texts are YAML texts, whatever is in them."""
    sides = (language for side in ("source", "target") for language in languages_of(facts[f"{side}_lang"]))
    codes = list(dict.fromkeys(map(base_code, sides)))
    pipeline = _pipeline(facts)
    lines = [
        "---",
        f"library_name: {json.dumps(library)}",
        f"pipeline_tag: {pipeline}",
        "tags:",
        f"- {pipeline}",
        "- tfm",
    ]
    known = [it for it in codes if re.fullmatch("[a-z]{2,3}", it)]
    if known:
        lines += ["language:", *(f"- {json.dumps(it)}" for it in known)]
    if base := (facts.get("provenance") or {}).get("base_model"):
        lines.append(f"base_model: {json.dumps(str(base))}")
    if name := stated_license(facts):
        is_known = name.lower() in HUB_LICENSES
        lines.append(f"license: {name.lower() if is_known else 'other'}")
        lines += [] if is_known else [f"license_name: {json.dumps(name)}"]
    results = hub_results(facts)
    if results:
        model_name = "-".join([str(facts["data"].get("name", "tfm")), facts["source_lang"], facts["target_lang"]])
        lines += ["model-index:", f"- name: {json.dumps(model_name)}", "  results:", *results]
    return "\n".join([*lines, "---", "", ""])


def _pipeline(facts: Mapping[str, Any]) -> str:
    """The hub's name for what the model does."""
    kinds = {"classifier": "text-classification", "tagger": "token-classification"}
    return kinds.get(facts["config"]["name"], "translation")


def hub_results(facts: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    corpus = str(facts["data"].get("name", UNKNOWN))
    for text, name, value, signature, search in score_rows(facts):
        if not signature:
            continue
        if text.startswith("dev of the old"):
            continue  # whose name is not in the file
        is_dev = text.partition(",")[0] == "dev"
        dataset = corpus if is_dev else text.rsplit(", ", 1)[0]
        found += [
            *("  - task:", f"      type: {_pipeline(facts)}", "    dataset:"),
            *(f"      name: {json.dumps(dataset)}", f"      type: {json.dumps(dataset)}"),
            *(f"      split: {json.dumps('dev' if is_dev else 'test')}", "    metrics:"),
            *(f"    - type: {json.dumps(name.lower().rstrip('2'))}", f"      value: {value}"),
            f"      name: {json.dumps(f'{name} ({signature}; {search})')}",
        ]
    return found


def export_rows(facts: Mapping[str, Any]) -> list[Row]:
    """The first rows of what `tfm inspect` prints of an export."""
    rows = [("exported for", f"{_program_name(facts)}, by {facts.get('library', UNKNOWN)}")]
    return [*rows, ("quantization", str(facts["quantization"]))] if facts.get("quantization") else rows


class MarkdownCard:
    """The card as `tfm inspect --card` prints it."""

    def facts_beside(self, model: Path, sha256: str) -> dict[str, Any]:
        robustness = robustness_card.robustness_beside(model, sha256)
        return {"robustness": robustness} if robustness else {}

    def read_scores(self, file: Path) -> dict[str, Any]:
        return read_scores(file)

    def write(self, facts: Mapping[str, Any], *, files: Mapping[str, str] | None = None) -> str:
        return card(facts, files=files)


def _program_name(facts: Mapping[str, Any]) -> str:
    exporter = exporter_of(facts)
    return str(facts["program"]) if exporter is None else exporter.program


def exporter_of(facts: Mapping[str, Any]) -> Exporter | None:
    """What has written an export; None for a model file, and where that is not known."""
    program = facts.get("program")
    return EXPORTERS[program] if program in EXPORTERS.names() else None
