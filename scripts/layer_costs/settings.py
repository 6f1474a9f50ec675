"""Settings of the measurement: the sizes of the layers and how they are timed."""

import argparse
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    n: list[int]
    d: list[int]
    head: int
    window: int
    kernel: int
    clock: str
    rounds: int
    precision: str
    device: str
    seed: int
    plot: str | None
    json: bool


def parsed(arguments: list[str] | None = None) -> Settings:
    """The settings of a command line. What cannot be measured ends the program with status 2."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.layer_costs",
        description="Time and memory of the layers in table 1 of the paper, by sequence length and width.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--n", type=int, nargs="+", default=[128, 256, 512, 1024, 2048], help="sentence lengths")
    parser.add_argument("--d", type=int, nargs="+", default=[64, 128, 256], help="widths d_model")
    parser.add_argument("--head", type=int, default=32, help="width of a head")
    parser.add_argument("--window", type=int, default=32, help="positions that restricted attention attends to")
    parser.add_argument("--kernel", type=int, default=3, help="kernel width of the convolution")
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall", help="processor: of this process")
    parser.add_argument("--rounds", type=int, default=5, help="times that each layer is measured, in turn")
    parser.add_argument("--precision", choices=("auto", "fp32", "bf16", "fp16"), default="auto", help="of the layers")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where they run")
    parser.add_argument("--seed", type=int, default=1, help="of the weights")
    parser.add_argument("--plot", metavar="FILE", help="a plot of times and memory: .svg or .png")
    parser.add_argument("--json", action="store_true", help="print JSON")
    settings = Settings(**vars(parser.parse_args(arguments)))
    if fault := fault_of(settings):
        parser.error(fault)
    return settings


def fault_of(settings: Settings) -> str | None:
    """The first of the settings that cannot be measured, and what to choose."""
    for name, sizes in (("n", settings.n), ("d", settings.d)):
        if len(set(sizes)) < max(2, len(sizes)) or min(sizes) < 1:
            return f"--{name}: an exponent is fitted to two sizes or more. Give different ones, from 1 up"
    for name in ("head", "window", "kernel", "rounds"):
        if getattr(settings, name) < 1:
            return f"--{name} {getattr(settings, name)}: out of range. Choose a value of at least 1"
    if any(d % settings.head for d in settings.d):
        return (
            f"--d: not all are multiples of {settings.head}, the width of a head. Choose multiples of {settings.head}"
        )
    if settings.kernel % 2 == 0:
        return (
            f"--kernel {settings.kernel}: even, but a convolution sees as much before a position as after it."
            f" Choose {settings.kernel - 1} or {settings.kernel + 1}"
        )
    if settings.plot is not None and not settings.plot.endswith((".svg", ".png")):
        return f"--plot {settings.plot}: neither .svg nor .png. Choose a name that ends in one of them"
    return None
