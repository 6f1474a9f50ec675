"""Time and memory of the layers in table 1 of the paper, by sequence length and width.

    python -m scripts.layer_costs --plot layers.svg    # self-attention beside recurrence and convolution
    OMP_NUM_THREADS=1 python -m scripts.layer_costs --device cpu --clock processor    # on a shared machine

benchmarks/layers.md has what it prints.
"""

import json
import sys
from dataclasses import asdict

from scripts.layer_costs.report import bench_layers
from scripts.layer_costs.settings import parsed
from transformer_cli.config.train import Device, Precision
from transformer_cli.errors import TfmError
from transformer_cli.models.device import choose_device, tune_cpu_memory
from transformer_cli.training.precision import set_float32_products


def main(arguments: list[str] | None = None) -> int:
    settings = parsed(arguments)
    try:
        device = choose_device(Device[settings.device])
        tune_cpu_memory()
        set_float32_products(Precision[settings.precision], device)
        measured = bench_layers(settings, device)
    except TfmError as error:
        print(f"layer_costs: error: {error}", file=sys.stderr)
        return error.exit_code
    if settings.json:
        print(json.dumps(measured.as_dict(device, asdict(settings)), indent=2))
    else:
        print(measured.text(device).removeprefix("tfm bench "))
    return 0


if __name__ == "__main__":
    sys.exit(main())
