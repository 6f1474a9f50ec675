"""The parameters that are trained: all of them, or those that init.freeze and LoRA leave."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import torch
from torch import nn

from transformer_cli.config.train import FrozenPrecision, TrainConfig
from transformer_cli.errors import ConfigError
from transformer_cli.models.device import release_cpu_memory
from transformer_cli.models.embeddings import TokenEmbedding
from transformer_cli.models.linear import Linear
from transformer_cli.registry import did_you_mean
from transformer_cli.training.lora import is_adapter

# Parts by the names that they have in the field → those of their modules.
ALSO_CALLED = {
    "embeddings": ("source_embedding", "own_target_embedding", "embedding"),
    "target_embedding": ("own_target_embedding",),
    # or shared with the embeddings
    "output": ("own_output", "*embedding.bias", "*embedding.project_out", "to_classes"),
}


def choose_trained(model: nn.Module, config: TrainConfig) -> None:
    """Leave gradients to what `config` trains alone. Raises ConfigError, as `check_patterns` does."""
    names = [name for name, _ in model.named_parameters()]
    check_patterns([name for name in names if not is_adapter(name)], config)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_trained(name, config))


@torch.no_grad()
def narrow_frozen(model: nn.Module, config: TrainConfig) -> None:
    """Keep in 16 bits the matrices that are frozen, if `config` asks for it: of projections and of embeddings.

    What is computed with them is in the precision of training all the same (`models.linear.project`). Raises
    ConfigError where no matrix is frozen.
    """
    if config.train.frozen_precision is FrozenPrecision.fp32:
        return
    frozen = [
        module
        for module in model.modules()
        if isinstance(module, Linear | TokenEmbedding) and not module.weight.requires_grad
    ]
    if not frozen:
        raise ConfigError(
            f"train.frozen_precision=bf16: init.freeze=[{','.join(config.init.freeze)}] freezes no matrix. Leave it out"
        )
    for module in frozen:
        module.weight.data = module.weight.data.bfloat16()
        if isinstance(module, TokenEmbedding):
            module.dtype = torch.float32
    release_cpu_memory()


def is_trained(name: str, config: TrainConfig) -> bool:
    """Whether the parameter `name` is.

    With LoRA its adapters are, what lora.also names, and the pooling and the output layer of a classifier or tagger,
    which are new.
    """
    is_chosen = (
        not config.lora.rank
        or is_adapter(name)
        or _is_named(name, [*config.lora.also, "to_classes", "segment_embedding", "pooling"])
    )
    return is_chosen and not _is_named(name, config.init.freeze)


def check_patterns(names: Sequence[str], config: TrainConfig) -> None:
    """Raise ConfigError for a pattern that is the name of none of the parameters `names`, or if all are frozen."""
    for key, patterns in (("init.freeze", config.init.freeze), ("lora.also", config.lora.also)):
        for pattern in patterns:
            if not any(_is_named(name, [pattern]) for name in names):
                raise ConfigError(
                    f"{key}: `{pattern}` is the name of no part of this model"
                    f"{did_you_mean(pattern, _parts(names)) or f'. Choose among {_top(names)}, or a part of one'}"
                )
    if not config.lora.rank and not any(is_trained(name, config) for name in names):
        raise ConfigError(
            f"init.freeze=[{','.join(config.init.freeze)}]: nothing is left to train. Leave out one of them"
        )


def describe(model: nn.Module, config: TrainConfig) -> str | None:
    """How much is trained, and what is not, for the log; None where all is trained."""
    parameters = dict(model.named_parameters())
    n_trained = sum(p.numel() for name, p in parameters.items() if is_trained(name, config))
    n_all = sum(p.numel() for p in parameters.values())
    if n_trained == n_all:
        return None
    frozen = ", ".join(config.init.freeze)
    if config.lora.rank:
        kept = ", ".join(["LoRA", *config.lora.also])
        frozen = f"all but {kept}" + (f"; {frozen} too" if frozen else "")
    narrow = "" if config.train.frozen_precision is FrozenPrecision.fp32 else ", matrices in 16 bits"
    return f"{in_millions(n_trained)} of {in_millions(n_all)} parameters; frozen: {frozen}{narrow}"


def in_millions(n: int) -> str:
    return f"{n / 1e6:.1f}M" if n >= 1e6 else f"{n:,}"


def _is_named(name: str, patterns: Iterable[str]) -> bool:
    """Whether one of `patterns` is the parameter `name`, or a module that it is in."""
    words = name.split(".")
    paths = [".".join(words[:n]) for n in range(1, len(words) + 1)]
    known = [one for pattern in patterns for one in ALSO_CALLED.get(pattern, (pattern,))]
    return any(fnmatchcase(path, pattern) for path in paths for pattern in known)


def _parts(names: Sequence[str]) -> list[str]:
    """What a pattern may be: every module, every parameter, and our other names for some."""
    found = dict.fromkeys(one for one in ALSO_CALLED if any(_is_named(name, [one]) for name in names))
    for name in names:
        words = name.split(".")
        found.update(dict.fromkeys(".".join(words[:n]) for n in range(1, len(words) + 1)))
    return list(found)


def _top(names: Sequence[str]) -> str:
    embeddings = ["embeddings"] if any(_is_named(name, ["embeddings"]) for name in names) else []
    return ", ".join([*embeddings, *sorted({name.split(".")[0] for name in names})])
