"""`tfm prepare`: text → cleaned, tokenized, encoded corpus on disk."""

from transformer_cli.commands.prepare.keys import PrepareConfig
from transformer_cli.commands.prepare.reports import check_report, write_report
from transformer_cli.data.feed import epoch_of
from transformer_cli.data.lines import shown
from transformer_cli.data.prepare import prepare
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.training.auto_recipe import recipe_lines
from transformer_cli.training.initialisation import initial_tokenizers, left_out_for, read_initial_model


def run(config: PrepareConfig) -> None:
    """Download, verify, clean, train the tokenizer and encode; do nothing that is already done."""
    if config.report is not None:
        check_report(config.report, overwrite=config.overwrite)
    start = read_initial_model(config)
    tokenizers = initial_tokenizers(config, start)
    prepared = prepare(config.data, progress=True, tokenizers=tokenizers, left_out=left_out_for(start))
    sizes = f"{len(prepared.train):,} training, {len(prepared.dev):,} dev"
    sizes += f", {len(prepared.test):,} test pairs" if prepared.test is not None else " pairs, no test set"
    for warning in prepared.warnings:
        LOGGER.warning("%s", warning)
    for line in recipe_lines(config, epoch_of(config, prepared), choose_device(config.device).type):
        LOGGER.info("%s", line)
    LOGGER.info("%s: %s, vocabulary of %s", config.data.title, sizes, f"{len(prepared.tokenizers.source):,}")
    if config.report is not None:
        write_report(config.report, prepared, config.data, overwrite=config.overwrite)
        LOGGER.info("report: %s", shown(config.report))
