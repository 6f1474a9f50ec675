"""What a page shows of a search, or of a given translation."""

from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.explain import Record, explain_reference, explain_search, option_record, trace_of
from transformer_cli.decoding.results import Searched
from transformer_cli.decoding.search.trace import ROOT
from transformer_cli.decoding.torch_engine import TorchEngine
from transformer_cli.decoding.translator import Translator

LIKELIEST = 6  # tokens of each step
# More would be slow to open, and no one could read it.
MOST_STEPS = 60
MOST_HYPOTHESES = 1200
MOST_RANKED = 12


def explain_for_page(searched: Searched, tokenizers: Tokenizers) -> Record:
    """The record of `explain_search`, cut to what a page can show, with each hypothesis's likeliest tokens (`next`)."""
    record, options = explain_search(searched, tokenizers), trace_of(searched).options
    of_id = {one["id"]: one for one in record["hypotheses"]}
    shown = [one["id"] for one in record["hypotheses"] if one["step"] <= MOST_STEPS]
    notes = []
    if len(record["steps"]) > MOST_STEPS:
        notes.append(f"the first {MOST_STEPS} of {len(record['steps'])} steps are shown")
    if len(shown) > MOST_HYPOTHESES:
        wanted = set(record["path"])
        for one in record["ranking"][:MOST_RANKED]:
            node = one["hypothesis"]
            while node != ROOT:
                wanted.add(node)
                node = of_id[node]["parent"]
        notes.append(f"of {len(shown):,} hypotheses those are shown that led to the first {MOST_RANKED} of the ranking")
        shown = [index for index in shown if index in wanted]
    return {
        **record,
        "steps": record["steps"][:MOST_STEPS],
        "hypotheses": [of_id[index] for index in shown],
        "ranking": record["ranking"][:MOST_RANKED],
        "next": {
            node: [option_record(one, tokenizers.target) for one in options[node]]
            for node in (ROOT, *shown)
            if node in options
        },
        "notes": notes,
    }


def explain_given(translator: Translator, source: list[int], target: list[int], smoothing: float | None) -> Record:
    """The record of `explain_reference` of a given translation, cut to what a page can show."""
    engine = translator.engine
    assert isinstance(engine, TorchEngine)
    record = explain_reference(engine, source, target, n_likeliest=LIKELIEST, smoothing=smoothing)
    n_steps = len(record["steps"])
    notes = [f"the first {MOST_STEPS} of {n_steps} steps are shown"] if n_steps > MOST_STEPS else []
    return {**record, "steps": record["steps"][:MOST_STEPS], "notes": notes}
