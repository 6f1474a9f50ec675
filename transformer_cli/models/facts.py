"""What a model file says of itself, as plain values and as aligned text, without torch.

Everything is read from the model file, or from what was made of one, and what they do not say is called unknown. An
add-on describes what it writes, and makes a card of the facts, in the registries of models.registries.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer_cli.config.tags import languages_of
from transformer_cli.config.tasks import TASKS, Task, all_tasks
from transformer_cli.errors import CheckpointError, quoted
from transformer_cli.languages import language_name
from transformer_cli.models.header import MALFORMED, Header, is_whole, read_header
from transformer_cli.models.registries import CARDS, Row

UNKNOWN, UNKNOWN_SEARCH = "unknown", "search:unknown"
NO_LICENSE = "not stated"
_N_LANGUAGES = 20  # that the hub states, in a card; a model of many has 200
_METRICS = {  # of dev translations, with a signature
    "bleu": "BLEU",
    "spbleu": "spBLEU",
    "chrf": "chrF2",
    "chrf++": "chrF2++",
    "ter": "TER",
    "comet": "COMET",
}
OTHER_SCORES = {  # of every task
    "nll": "NLL, nats per target token",
    "ppl": "perplexity per token",
    "accuracy": "accuracy, percent",
    "macro_f1": "macro-F1, percent",
    "entity_f1": "F1 of entities, percent",
}
CLEANING = (  # keys of the cleaning report, and what was done with so many pairs
    ("n_bad", "dropped: a line could not be read"),
    ("n_left_out", "dropped: dev or test text of the model that training began with"),
    ("n_blank", "dropped: blank on one side or both"),
    ("n_duplicate", "dropped: duplicates"),
    ("n_long", "dropped: longer than {max_length} tokens"),
    ("n_uneven", "dropped: length ratio over {max_ratio:g}"),
    ("n_control", "kept with control characters in them"),
    ("n_truncated", "sources truncated to {max_length} tokens"),
)
_KEPT = ("n_control", "n_truncated")  # which dropped nothing


def model_facts(path: Path) -> dict[str, Any]:
    """The facts of a model file. Raises CheckpointError."""
    header = read_header(path)
    metadata = header.metadata
    try:
        facts = {
            "tfm": str(metadata["tfm"]),
            "model_sha256": header.sha256,
            "source_lang": str(metadata["source_lang"]),
            "target_lang": str(metadata["target_lang"]),
            "step": metadata["step"],
            "scores": dict(metadata["scores"]),
            "config": dict(metadata["config"]),
            "fingerprint": str(metadata.get("fingerprint", "")),
            "data": dict(metadata["data"]),
            "averaged": list(metadata.get("averaged", [])),
            "provenance": dict(metadata.get("provenance", {})),
            "labels": list(metadata.get("labels", [])),
            "length_penalty": metadata.get("length_penalty"),
            "parameters": header.n_parameters,
            "vocabularies": vocabularies(header),
            "dtypes": sorted({dtype for name, dtype in header.dtypes.items() if not name.startswith("tokenizer.")}),
            "bytes": header.n_bytes,
        }
        if metadata.get("alignment_head") is not None:
            layer, head = metadata["alignment_head"]
            facts["alignment_head"] = [int(layer), int(head)]
            facts["full_context_alignment"] = metadata.get("full_context_alignment") is True
    except MALFORMED as error:
        raise unreadable(path, error) from error
    for name in CARDS.names():
        facts |= CARDS[name]().facts_beside(path, header.sha256)
    return checked_facts(facts, path)


def checked_facts(facts: dict[str, Any], path: Path) -> dict[str, Any]:
    """`facts`, of which a card can be made. Raises CheckpointError for those of a damaged or forged file."""
    try:
        for name in CARDS.names():
            CARDS[name]().write(facts)
        as_text(facts)
    except MALFORMED as error:
        raise unreadable(path, error) from error
    return facts


def unreadable(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{path}: damaged or not written by tfm ({quoted(f'{type(error).__name__}: {error}')})."
        " Copy the model again, or choose another"
    )


def vocabularies(header: Header) -> dict[str, Any]:
    """Sizes of the vocabularies, by the matrices of the embeddings; None: there is no such side."""

    def rows(*names: str) -> int | None:
        return next((header.shapes[f"{name}.weight"][0] for name in names if f"{name}.weight" in header.shapes), None)

    tokenizers = header.metadata["tokenizers"]
    return {
        "source": rows("source_embedding", "embedding"),
        "target": rows("own_target_embedding", "source_embedding", "embedding"),
        "joint": len(tokenizers) == 1,
    }


# ---- The facts as rows: name and value


def model_lines(facts: Mapping[str, Any]) -> list[Row]:
    config = facts["config"]
    task = facts["data"].get("task", "translation")
    is_translator = task in TASKS and TASKS[task].translates
    rows = (
        [("languages", direction(facts))] if is_translator else [("language", described_language(facts["source_lang"]))]
    )
    rows += [
        ("architecture", architecture(config)),
        ("options", options(config)),
        ("vocabulary", vocabulary_line(facts)),
    ]
    if facts.get("labels"):
        name = "labels" if _task_of(config).unit == "words" else "classes"
        rows.append((name, ", ".join(map(str, facts["labels"]))))
    rows.append(("parameters", counted(facts.get("parameters"))))
    if (own := facts.get("length_penalty")) is not None:
        rows.append(("length penalty", f"{own:g}, its own: chosen on the dev set"))
    if (taught := facts.get("alignment_head")) is not None:
        layer, head = (int(number) + 1 for number in taught)
        context = " with full context" if facts.get("full_context_alignment") else ""
        rows.append(("word alignment", f"was taught to head {head} of decoder layer {layer}{context}"))
    updates = counted(facts["step"]) + (
        f", the mean of {'; '.join(facts['averaged'])}" if facts.get("averaged") else ""
    )
    return [*rows, ("updates", updates), ("trained with", f"tfm {facts['tfm']}"), ("licence", license_of(facts))]


def _task_of(config: Mapping[str, Any]) -> Task:
    """A task that such models are for; for one of a plugin that is not loaded, some task."""
    return next((task for task in all_tasks() if task.model == config["name"]), Task())


def direction(facts: Mapping[str, Any]) -> str:
    return f"{described_language(facts['source_lang'])} → {described_language(facts['target_lang'])}"


def architecture(config: Mapping[str, Any]) -> str:
    layers = ", ".join(f"{config[f'n_{side}_layers']} {side} layers" for side in _task_of(config).stacks)
    heads = f"{config['n_heads']} heads"
    if config.get("d_k") or config.get("d_v"):
        heads += f" (d_k {config.get('d_k') or 'd_model / n_heads'}, d_v {config.get('d_v') or 'd_model / n_heads'})"
    named = "Transformer" if config["name"] == "transformer" else f"Transformer ({config['name']})"
    return f"{named}: {layers}, width {config['d_model']}, {heads}, feed-forward {config['d_ff']}"


def options(config: Mapping[str, Any]) -> str:
    """The options of a model in the words of the keys of `model`."""
    names = ("norm", "norm_kind", "activation", "positions", "tie_embeddings")
    parts = [f"{name}={config[name]}" for name in names if name in config]
    defaults = {"bias": True, "scale_embeddings": True, "output_bias": False, "decoder_start": "bos", "n_segments": 1}
    defaults["decoder"] = "self_attention"
    changed = [name for name, default in defaults.items() if config.get(name, default) != default]
    changed += [name for name in ("norm_eps", "first_position", "d_embedding", "attention_window") if config.get(name)]
    return " ".join([*parts, *(f"{name}={str(config[name]).lower()}" for name in changed)])


def vocabulary_line(facts: Mapping[str, Any]) -> str:
    sizes = facts.get("vocabularies") or {}
    source, target = sizes.get("source"), sizes.get("target")
    if source is None and target is None:
        return UNKNOWN
    kind = facts["data"].get("tokenizer", {}).get("kind")
    made = f", {kind}" if kind else ""
    if sizes.get("joint"):
        return f"{counted(source)} pieces, joint{made}"
    return f"{counted(source)} pieces and {counted(target)} pieces{made}"


def data_lines(facts: Mapping[str, Any]) -> list[Row]:
    """The corpus and its cleaning."""
    data, provenance = facts["data"], facts.get("provenance") or {}
    rows = [("corpus", str(data.get("name", UNKNOWN)))]
    rows += [(key.replace("_", " "), str(provenance[key])) for key in ("origin", "started_from") if key in provenance]
    if named := provenance.get("languages"):
        more = f" and {len(named) - _N_LANGUAGES} more" if len(named) > _N_LANGUAGES else ""
        rows.append(("languages stated", ", ".join(map(str, named[:_N_LANGUAGES])) + more))
    if n_context := data.get("context_sentences"):
        rows.append(("document level", f"reads {n_context} before each source line; a blank line ends a document"))
    report = provenance.get("cleaning")
    if not report:
        return [*rows, ("cleaning", UNKNOWN)]
    dropped = sum(int(report.get(key, 0)) for key, _ in CLEANING if key not in _KEPT)
    rows.append(("pairs kept", f"{report['n_read'] - dropped:,} of {report['n_read']:,}"))
    rows += [(why.format_map(report), f"{report[key]:,}") for key, why in CLEANING if report.get(key)]
    return rows


def input_lines(facts: Mapping[str, Any]) -> list[Row]:
    """The files that the training text was made from, with the SHA-256 of each."""
    inputs = (facts.get("provenance") or {}).get("inputs") or {}
    return [
        (str(name).removesuffix(": "), str(sha256)) for name, sha256 in inputs.items()
    ]  # generated text has no file


def score_rows(facts: Mapping[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """Text, metric, value, signature of the metric, signature of the search; the last two empty where there is none."""
    scores, found = facts["scores"], []
    provenance = facts.get("provenance") or {}
    search = provenance.get("dev_search", UNKNOWN_SEARCH)
    dev = f"dev, {provenance['dev_lines']:,} lines" if "dev_lines" in provenance else "dev"
    # Of a fine-tuned model also what it may have forgotten.
    for text, prefix, signed in ((dev, "dev_", ""), ("dev of the old text", "dev_old_", "dev_old_")):
        for key, name in _METRICS.items():
            if prefix + key in scores:
                signature = str(scores.get(f"{signed}{key}_signature", UNKNOWN))
                found.append((text, name, f"{scores[prefix + key]:.2f}", signature, search))
        for key, name in OTHER_SCORES.items():
            if prefix + key in scores:
                found.append((text, name, f"{scores[prefix + key]:.4g}", "", ""))
    test = facts.get("test")
    if test:
        text = f"{test['test_set']}, {test['lines']:,} lines"
        searched = str(test["search"] or UNKNOWN_SEARCH)
        found += [(text, it["name"], f"{it['score']:.2f}", it["signature"], searched) for it in test["scores"]]
    return found


def hash_lines(facts: Mapping[str, Any]) -> list[Row]:
    rows = [("model file", facts["model_sha256"])]
    if facts.get("fingerprint"):
        rows.append(("prepared corpus", facts["fingerprint"]))
    return rows


def license_of(facts: Mapping[str, Any]) -> str:
    return stated_license(facts) or NO_LICENSE


def stated_license(facts: Mapping[str, Any]) -> str | None:
    """What --license says, else what the makers of the model say."""
    found = facts.get("license") or (facts.get("provenance") or {}).get("license")
    return None if found is None else str(found)


def counted(number: object) -> str:
    return f"{number:,}" if is_whole(number) else UNKNOWN


def described_language(code: str) -> str:
    """`German (de)`, of several languages `German (de) and French (fr)`; a code alone where its name is not known."""
    names = [(one, language_name(one)) for one in languages_of(code)]
    return " and ".join(one if name is None else f"{name} ({one})" for one, name in names)


# ---- As text


def as_text(facts: Mapping[str, Any], first: Sequence[Row] = ()) -> str:
    """The same facts in aligned columns; `first` are rows before them."""
    rows = [*first, *model_lines(facts), ("", ""), *data_lines(facts)]
    if facts.get("bytes"):
        size = f"{facts['bytes']:,} bytes ({', '.join(facts['dtypes'])})"
        rows.insert(0, ("file", size))
    rows.append(("", ""))
    scores = score_rows(facts)
    rows += [
        (f"{text} {name}", f"{value}  {signature}  {search}".rstrip())
        for text, name, value, signature, search in scores
    ]
    rows += [] if scores else [("scores", UNKNOWN)]
    rows += [("", ""), *input_lines(facts), *hash_lines(facts)]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in rows)
