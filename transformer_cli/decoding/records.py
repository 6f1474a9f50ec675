"""A translation as one JSON object, for programs (docs/output.md describes the keys)."""

import json
from typing import Any

from transformer_cli.decoding.results import Candidate, Translated, json_score

# Characters that some programs take for the end of a line.
_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}


def quality_flags(result: Translated) -> dict[str, bool]:
    """Quality flags of a translation."""
    return {
        "cut": result.cut,
        "split": result.split,
        "hit_length_limit": result.hit_limit,
        "repeats_itself": result.repeats_itself,
        "copied": result.copied,
        "empty": result.empty,
        "unknown_source": bool(result.unknown),
        "unmet_terms": bool(result.unsatisfied),
        "misplaced_terms": bool(result.misplaced),
    }


def record_of(result: Translated, *, line: int, source: str, bad_bytes: bool) -> dict[str, Any]:
    best, *others = result.candidates
    record = {
        "line": line,
        "source": source,
        **_candidate(best),
        "alternatives": [_candidate(other) for other in others],
        **quality_flags(result),
        "unmet_terms": [[term.source, *term.targets] for term in result.unsatisfied],
        "misplaced_terms": [[term.source, *term.targets] for term in result.misplaced],
        "unknown_characters": list(result.unknown),
        "parts": result.n_parts,
        "bad_bytes": bad_bytes,
        "retried": result.retried,
        "replaced": result.replaced,
    }
    if result.alignment is not None:
        record["alignment"] = result.alignment
    if result.tokens is not None:
        record["tokens"] = [[piece, round(log_prob, 4)] for piece, log_prob in result.tokens]
    return record


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "translation": candidate.text,
        "score": json_score(candidate.score),
        "log_prob": json_score(candidate.log_prob),
        "n_tokens": candidate.n_tokens,
    }


def to_line(record: dict[str, Any]) -> str:
    """JSON on one line, for any program."""
    return json.dumps(record, ensure_ascii=False).translate(_LINE_ENDS)
