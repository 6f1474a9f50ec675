"""What this add-on registers."""

from transformer_cli.evaluation.extra_reports import EXTRA_REPORTS, ExtraReport, ReportRequest


@EXTRA_REPORTS.register("robustness")
def robustness(request: ReportRequest) -> ExtraReport | None:
    from transformer_cli.addons.robustness.evaluate_robustness import measure_robustness

    return measure_robustness(request)
