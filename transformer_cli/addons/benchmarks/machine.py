"""`tfm bench machine`: peak rates of the machine, to which the other benchmarks are compared."""

import torch

from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.addons.benchmarks.matmuls import Projection, count_projections, peak_rate, seconds_alone
from transformer_cli.addons.benchmarks.report import Measured
from transformer_cli.addons.benchmarks.timing import best
from transformer_cli.addons.benchmarks.training import skeleton

N_BYTES = 1 << 28  # size of the copy: larger than any cache
N_LAUNCHES = 1000


def bench_machine(config: BenchConfig, device: torch.device) -> Measured:
    """Matrix products, large and at the shapes of the model; memory bandwidth; and the overhead of an operation."""
    found = Measured("machine", ("", "of what", "how fast"))
    for dtype in dtypes(device):
        rate = peak_rate(dtype, device) / 1e9
        found.rows.append(["large product", str(dtype).removeprefix("torch."), f"{rate:,.0f} GFLOP/s"])
        found.figures[f"large product, {dtype}"] = rate
    dtype = dtypes(device)[-1] if device.type == "cuda" else torch.float32
    for projection in model_projections(config):
        rate = projection.flops / seconds_alone(projection, dtype=dtype, device=device) / 1e9
        found.rows.append(["projection, forward and backward", str(projection), f"{rate:,.0f} GFLOP/s"])
        found.figures[f"projection {projection}"] = rate
    copied = copy_rate(device)
    found.rows.append(["copying", f"{N_BYTES >> 20} MiB, read and written", f"{copied / 1e9:,.1f} GB/s"])
    launch = seconds_per_launch(device)
    found.rows.append(["starting an operation", "an addition of one number", f"{launch * 1e6:.1f} µs"])
    found.figures |= {"bytes copied per second": copied, "seconds per launch": launch}
    return found


def dtypes(device: torch.device) -> list[torch.dtype]:
    return [torch.float32, torch.float16, torch.bfloat16] if device.type == "cuda" else [torch.float32, torch.bfloat16]


def model_projections(config: BenchConfig) -> list[Projection]:
    """Each projection shape of the model once, with as many rows as a batch has tokens."""
    model = skeleton(config, vocab_size=config.data.tokenizer.vocab_size)
    n_tokens = min(config.train.max_tokens_per_microbatch, config.train.tokens_per_update)
    return sorted(count_projections(model, n_source=n_tokens, n_target=n_tokens))


def copy_rate(device: torch.device) -> float:
    """Memory bandwidth: bytes a second, read and written."""
    x, y = (torch.randint(256, (N_BYTES,), dtype=torch.uint8, device=device) for _ in range(2))
    return 2 * N_BYTES / best(lambda: y.copy_(x), device)


def seconds_per_launch(device: torch.device) -> float:
    x = torch.zeros(1, device=device)

    def launch() -> None:
        for _ in range(N_LAUNCHES):
            x.add_(1)

    return best(launch, device) / N_LAUNCHES
