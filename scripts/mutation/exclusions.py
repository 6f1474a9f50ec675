"""Mutants that no test can notice, or need not: each with the reason."""

# Module → texts in the lines, or whole "line → mutated line"s, that are left out, with the reason.
EXCLUDED: dict[str, dict[str, str]] = {
    "training/loss.py": {"ROWS = 128": "the speed alone"},
    "training/optimizers/registry.py": {
        "set_lr(optimizer, 0.0) → pass": "the weights that it spares are put back anyway"
    },
    "training/optimizers/adam.py": {"fused=False": "the speed alone"},
    "training/optimizers/muon.py": {
        "= self.param_groups[1]": "all groups have one rate",
        "param_groups[-1]": "all groups have one rate, and Muon itself has one group",
    },
    "training/consistency.py": {
        "> self.settings.token_cutoff": "a number that is drawn once in 2^24 times",
        "PAIRED_ROWS =": "the speed alone",
    },
    "data/batching.py": {
        "low, high = max(": "where a bisection starts that ends within the same 1 %",
        "high // 99:": "how near to the best a bisection ends",
        "high // 101:": "how near to the best a bisection ends",
    },
    "data/cache.py": {
        "→ count = max(_LENGTHS_AT_A_TIME": "the memory alone: a file is not read beyond its end",
    },
    "data/clean.py": {
        "digest_size=7": "how seldom two pairs have one hash: once in 2^56 pairs of pairs",
    },
    "data/repetitions.py": {
        "→ _MOST_PARTS =": "the memory alone",
        "→ n_parts = max(": "the memory alone",
        "2 + len(hashes)": "the memory alone",
    },
    "decoding/search/beam.py": {
        "n_candidates = len(state.live_log_prob_BN), 3": "candidates beyond those that are chosen from"
    },
    "decoding/search/sampling.py": {"n_first = 3": "the speed alone", "→ n_first *= ": "the speed alone"},
    "decoding/search/loop.py": {
        "ranked[: n_best + 2]": "the speed alone: more sentences are searched again by themselves"
    },
    "decoding/search/top_k.py": {
        "FEW =": "the speed alone",
        "CHUNK < 3 * n": "the speed alone",
        "CHUNK < 1 * n": "the speed alone",
        "<= FEW": "the speed alone",
    },
    "decoding/search/logits_processors.py": {
        "*[-2] * self.longest_prefix": "any negative number is no token",
        "→ if self.n_gram is None and self.past_BNT is None": "there is a past before the length is that of an n-gram",
    },
    "decoding/search/scores.py": {"for n in range(1, longest + 2)": "a divisor for a length that no hypothesis has"},
    "addons/attention_maps/positions/pictures.py": {"figure.text(": "where a title stands in a picture"},
    "addons/benchmarks/decoders.py": {
        "batches = _chunks(order": "how rows are put in batches; what comes out is the same"
    },
    "evaluation/report.py": {"model = reports[": "all reports are of one model, or of none"},
    "addons/interop/verify.py": {"if beam_size > 2": "beams of 1 and of BEAM alone are asked for"},
    "models/linear.py": {"grads[-1]": "there is one"},
    "models/memory.py": {"has_freed": "a GPU alone"},
    "models/embeddings.py": {
        "→ n_rows = max(255": "the number of rows that are computed; the first ones are the same",
        "→ n_rows = max(257": "the number of rows that are computed; the first ones are the same",
        "→ n_rows = max(256, 2 <<": "the number of rows that are computed; the first ones are the same",
    },
}

# Patterns of changed lines that are left out wherever they are, with the reason.
EXCLUDED_EVERYWHERE: dict[str, str] = {
    r"torch\.cuda\b|\.pin_memory\(|torch\.mps\b": "a GPU alone",
    r"^_?[A-Z_]*(AT_A_TIME|CHUNK|BUFFER|POLL|INTERVAL)[A-Z_]* = ": "the speed or the memory alone",
    r"^@|^from |^import ": "decorators and imports",
}

# Arguments that are left as they are.
KEYWORDS = {
    "strict": "it asserts",
    "non_blocking": "the speed alone",
    "pin_memory": "the speed alone",
    "maxsize": "the speed alone",
    "copy": "the speed alone",
    "copies": "the memory alone",
    "device": "a GPU alone: tests run on one device",
    "encoding": "the tests' locale is UTF-8",
    "progress": "how waiting looks",
    "daemon": "how the process ends that it is part of",
    "stacklevel": "the line that a warning names",
    "help": "prose",
    "metavar": "prose",
    "description": "prose",
}
