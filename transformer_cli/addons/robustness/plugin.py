"""What this add-on registers."""

from typing import Any

from transformer_cli.evaluation.extra_reports import EXTRA_REPORTS, ExtraReport


@EXTRA_REPORTS.register("robustness")
def robustness(*args: Any, **settings: Any) -> ExtraReport | None:
    from transformer_cli.addons.robustness.evaluate_robustness import measure_robustness

    return measure_robustness(*args, **settings)
