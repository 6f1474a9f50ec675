"""What `recipe=auto` chooses: a pure function of the text, the device, and what the user has set.

`POINTS` are the texts that were measured (benchmarks/small_models.md). Between two of them dropout and epochs are
interpolated over the logarithm of the target tokens; below the first and above the last the values stay.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from transformer_cli.config.decode import LengthNormalization
from transformer_cli.config.model import Autoregression
from transformer_cli.config.tasks import NLL
from transformer_cli.config.train import Sharding, TrainConfig
from transformer_cli.data.feed import Epoch
from transformer_cli.training.run_directory import values_at


@dataclass(frozen=True)
class Point:
    """A measured text, and the values that did best on it, of those that were tried."""

    text: str
    tokens: int  # target tokens of an epoch
    epochs: float
    dropout: float
    rdrop: float = 3.0
    tokens_per_update: int = 2048


POINTS = (
    Point("1,000 pairs", 14_000, epochs=100, dropout=0.3),
    Point("5,000 pairs", 60_000, epochs=34, dropout=0.3),
    Point("10,000 captions", 150_000, epochs=30, dropout=0.2),
    Point("29,000 captions", 500_000, epochs=20, dropout=0.2),
    Point("162,000 pairs", 1_750_000, epochs=7, dropout=0.1, rdrop=0.0, tokens_per_update=4096),
)
SMALL = {"n_encoder_layers": 4, "n_decoder_layers": 4, "d_model": 128, "n_heads": 4, "d_ff": 256}
BASE = {"n_encoder_layers": 6, "n_decoder_layers": 6, "d_model": 512, "n_heads": 8, "d_ff": 2048}
MANY_TOKENS = 25_000_000  # about a million pairs: from here on a GPU trains the paper's base model
MUON_RATE, ADAM_RATE = 8e-3, 3e-3  # peaks of the linear schedule
FEWEST_PER_EPOCH = 4  # updates, so that an update is no whole epoch
LEAST_EPOCHS, MOST_TOKENS = 3.0, 1e8  # of a run on more text than was measured: about two hours of a CPU at least
LENGTH_PENALTIES = [0.6, 1.0, 1.4]


@dataclass(frozen=True)
class Choice:
    """Values for some keys, and the reason for them in a line."""

    values: Mapping[str, Any]
    reason: str


def choices(config: TrainConfig, epoch: Epoch, device_type: str) -> list[Choice]:
    """All that the recipe would choose, also for keys that are not left open."""
    if is_as_in_the_paper(config, epoch, device_type):
        return [*_as_in_the_paper(epoch), *_search(config)]
    n, nearest = epoch.n_tokens, nearest_point(epoch.n_tokens)
    rdrop = 0.0 if config.train.simcut else nearest.rdrop
    positions, why = "sinusoidal", "rotary ones are 2.6 BLEU above sinusoidal on 10,000 captions"
    if config.model.decoder is Autoregression.ssru:
        positions, why = "sinusoidal_tensor2tensor", "a recurrent decoder has nothing to rotate, and Marian has these"
    elif config.model.key_width % 2 == 0:
        positions = "rotary"
    dropout = round(between(n, "dropout"), 2)
    tokens_per_update = max(config.data.max_length, min(nearest.tokens_per_update, n // FEWEST_PER_EPOCH))
    passes = "each batch passes twice" if rdrop else "R-Drop's time goes to more text"
    return [
        Choice(
            {f"model.{key}": value for key, value in SMALL.items()},
            "4 + 4 layers of width 128: those of all runs that were measured",
        ),
        Choice({"model.norm": "pre"}, "pre-LN: that of all runs that were measured"),
        Choice({"model.positions": positions}, f"{positions} positions: {why}"),
        Choice(
            {"model.dropout": dropout, "train.rdrop": rdrop},
            f"dropout {dropout:g}, R-Drop {rdrop:g}: as for {nearest.text}, the nearest measured text; {passes}",
        ),
        _rate(config),
        Choice(
            {
                "train.tokens_per_update": tokens_per_update,
                "train.max_tokens_per_microbatch": max(config.data.max_length, tokens_per_update * 9 // 8),
            },
            f"updates of {tokens_per_update:,} target tokens: many small ones on little text",
        ),
        *_search(config),
    ]


def is_as_in_the_paper(config: TrainConfig, epoch: Epoch, device_type: str) -> bool:
    """Whether the text is large enough for the paper's recipe, on a device for it, and the user sets nothing of it."""
    is_large = device_type == "cuda" and epoch.n_tokens >= MANY_TOKENS
    return is_large and _is_open(config, "schedule", "optimizer", "norm")


def recipe_lines(config: TrainConfig, epoch: Epoch, device_type: str) -> list[str]:
    """A line for each choice of keys that `config` leaves open, with its reason, and one for what the user has set."""
    if not config.left_open:
        return []
    lines = [f"auto: {epoch.n_pairs:,} pairs, {epoch.n_tokens:,} target tokens, on {device_type}"]
    yours = []
    for choice in choices(config, epoch, device_type):
        if any(key in config.left_open for key in choice.values):
            lines.append(choice.reason)
        now = values_at(config, choice.values)
        other = [key for key in now if key not in config.left_open and now[key] != choice.values[key]]
        yours += [f"{key}={now[key]} (not {choice.values[key]})" for key in other]
    return [*lines, *([f"yours: {', '.join(yours)}"] if yours else [])]


def epochs_of(n_tokens: int) -> float:
    """Passes over a text of so many target tokens."""
    return max(min(between(n_tokens, "epochs"), MOST_TOKENS / n_tokens), LEAST_EPOCHS)


def nearest_point(n_tokens: int) -> Point:
    return min(POINTS, key=lambda point: abs(math.log(point.tokens) - math.log(max(1, n_tokens))))


def between(n_tokens: int, name: str) -> float:
    """The value of `POINTS` for so many tokens."""
    place = math.log(max(1, n_tokens))
    for low, high in pairwise(POINTS):
        if n_tokens < high.tokens:
            start, end = math.log(low.tokens), math.log(high.tokens)
            share = max(0.0, (place - start) / (end - start))
            return float(getattr(low, name) + share * (getattr(high, name) - getattr(low, name)))
    return float(getattr(POINTS[-1], name))


def _as_in_the_paper(epoch: Epoch) -> list[Choice]:
    model = {f"model.{key}": value for key, value in BASE.items()}
    rate = {"optimizer.name": "adam", "optimizer.eps": 1e-9, "optimizer.weight_decay": 0.0}
    rate |= {"schedule.name": "noam", "schedule.factor": 1.0, "schedule.lr": None}
    return [
        Choice(model, f"the paper's base model, for {epoch.n_tokens:,} target tokens on a GPU; not measured by us"),
        Choice({"model.norm": "post", "model.positions": "sinusoidal"}, "post-LN, sinusoidal positions: the paper's"),
        Choice(
            {"model.dropout": 0.1, "train.rdrop": 0.0},
            "dropout 0.1, no R-Drop: the paper's",
        ),
        Choice(rate, "adam and schedule noam: the paper's"),
        Choice(
            {"train.tokens_per_update": 25_000, "train.max_tokens_per_microbatch": 8192},
            "updates of 25,000 target tokens: the paper's",
        ),
    ]


def _rate(config: TrainConfig) -> Choice:
    """Muon and its rate; Adam with its own where the user has another schedule or optimizer, or divides the model."""
    is_adam = not _is_open(config, "schedule.name") or config.train.sharding is Sharding.full
    is_adam = is_adam or (not _is_open(config, "optimizer.name") and config.optimizer.name != "muon")
    rate = ADAM_RATE if is_adam else MUON_RATE
    eps, decay = (1e-9, 0.0) if is_adam else (1e-8, 0.1)
    name = "adam" if is_adam else "muon"
    why = "its rate was not searched" if is_adam else "7 BLEU above Adam on 10,000 captions"
    return Choice(
        {"optimizer.name": name, "optimizer.eps": eps, "optimizer.weight_decay": decay}
        | {"schedule.name": "linear", "schedule.factor": None, "schedule.lr": rate},
        f"{name}, a rate of {rate:g} that falls to zero: {why}",
    )


def _search(config: TrainConfig) -> list[Choice]:
    """The length penalties that are tried at the end, where translations are made that they act on."""
    decode = config.decode
    is_used = decode.search == "beam" and decode.beam_size > 1 and config.train.best_metric != NLL
    if not is_used or decode.length_normalization is not LengthNormalization.gnmt:
        return []
    shown = ", ".join(map(str, LENGTH_PENALTIES))
    return [Choice({"train.length_penalties": LENGTH_PENALTIES}, f"length penalty: the best of {shown} on dev")]


def _is_open(config: TrainConfig, *names: str) -> bool:
    """Whether all keys of the recipe with these names, or in these groups, are left open."""
    groups = {"norm": ["model.norm"], "schedule": ["schedule.name", "schedule.factor", "schedule.lr"]}
    groups["optimizer"] = ["optimizer.name", "optimizer.eps", "optimizer.weight_decay"]
    return all(key in config.left_open for name in names for key in groups.get(name, [name]))
