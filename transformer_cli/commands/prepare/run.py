"""`tfm prepare`: text → cleaned, tokenized, encoded corpus on disk."""

from transformer_cli.commands.prepare.keys import PrepareConfig
from transformer_cli.commands.prepare.reports import check_report, write_report
from transformer_cli.config.shard import Shard
from transformer_cli.data.feed import epoch_of
from transformer_cli.data.lines import shown
from transformer_cli.data.prepare import Prepared, prepare
from transformer_cli.data.shards import Incomplete
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.training.auto_recipe import recipe_lines
from transformer_cli.training.initialisation import initial_tokenizers, left_out_for, read_initial_model


def run(config: PrepareConfig) -> None:
    prepare_and_report(config)


def prepare_and_report(config: PrepareConfig) -> dict[str, int]:
    """Download, verify, clean, train the tokenizer and encode; do nothing that is already done.

    Returns the pairs of each split, or of a shard that others have still to complete, the parts that are missing.
    """
    if config.report is not None:
        check_report(config.report, overwrite=config.overwrite)
    start = read_initial_model(config)
    tokenizers = initial_tokenizers(config, start)
    shard = Shard.parse(config.shard)
    try:
        prepared = prepare(config.data, progress=True, tokenizers=tokenizers, left_out=left_out_for(start), shard=shard)
    except Incomplete as error:
        LOGGER.info(
            "shard=%s: its parts are %s; %s of %s parts are missing, of other shards. Run those, and then this again",
            *(shard, error.what, f"{error.n_missing:,}", f"{error.n_parts:,}"),
        )
        return {"missing": error.n_missing}
    _log(config, prepared)
    if config.report is not None:
        write_report(config.report, prepared, config.data, overwrite=config.overwrite)
        LOGGER.info("report: %s", shown(config.report))
    return {"train": len(prepared.train), "dev": len(prepared.dev), "test": len(prepared.test or ())}


def _log(config: PrepareConfig, prepared: Prepared) -> None:
    sizes = f"{len(prepared.train):,} training, {len(prepared.dev):,} dev"
    sizes += f", {len(prepared.test):,} test pairs" if prepared.test is not None else " pairs, no test set"
    for warning in prepared.warnings:
        LOGGER.warning("%s", warning)
    for line in recipe_lines(config, epoch_of(config, prepared), choose_device(config.device).type):
        LOGGER.info("%s", line)
    LOGGER.info("%s: %s, vocabulary of %s", config.data.title, sizes, f"{len(prepared.tokenizers.source):,}")
