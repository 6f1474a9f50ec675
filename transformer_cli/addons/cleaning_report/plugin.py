"""What this add-on brings."""

from typing import TYPE_CHECKING

from transformer_cli.commands.prepare.reports import CLEANING_REPORTS

if TYPE_CHECKING:
    from transformer_cli.config.data import DataConfig
    from transformer_cli.data.prepare import Prepared


@CLEANING_REPORTS.register("html")
def _page(prepared: "Prepared", config: "DataConfig") -> str:
    from transformer_cli.addons.cleaning_report.page import render

    return render(prepared.filtering, prepared.report, config)
