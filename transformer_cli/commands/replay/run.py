"""`tfm replay`: the update that ended a run once more, batch by batch."""

from pathlib import Path

from transformer_cli.commands.replay.keys import ReplayConfig
from transformer_cli.errors import quoted
from transformer_cli.models.device import choose_device
from transformer_cli.training.divergence_dump import BatchFinding, read_divergence_dump


def run(config: ReplayConfig) -> None:
    """Print loss and gradient norm of each batch, and whether they are as recorded. Raises CheckpointError."""
    dump = read_divergence_dump(Path(config.incident))
    findings = dump.replay(choose_device(config.device))
    print(f"{config.incident}: update {dump.step} of {dump.config.data.title}")
    for i, finding in enumerate(findings):
        norm = sum(norm**2 for norm in finding.grad_norms.values()) ** 0.5
        mark = "" if finding.is_finite else "  <- not finite"
        print(f"batch {i + 1}: {len(finding.pairs)} pairs, loss {finding.loss:.4f}, gradient norm {norm:.4g}{mark}")
    for i, finding in enumerate(findings):
        if not finding.is_finite:
            _describe(i + 1, finding)
    same = [finding.state() for finding in findings] == dump.recorded
    print("the same as recorded, to the last bit" if same else "not the same as recorded")


def _describe(number: int, finding: BatchFinding) -> None:
    bad = [name for name, norm in finding.grad_norms.items() if not norm < float("inf")]
    print(f"\nbatch {number}: the gradients of {len(bad)} of {len(finding.grad_norms)} parameters are not finite")
    for name in bad[:10]:
        print(f"  {name}: {finding.grad_norms[name]}")
    for source, target in finding.pairs:
        print(f"  {quoted(source, 200)} -> {quoted(target, 200)}")
    print()
