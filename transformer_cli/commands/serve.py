"""`tfm serve`: answer HTTP requests until a signal ends it."""

from transformer_cli.config.serve import ServeConfig
from transformer_cli.data.lines import shown
from transformer_cli.extras import imported
from transformer_cli.logs import LOGGER


def run(config: ServeConfig) -> None:
    """Load the models and serve them; with `config.check`, say what was found and stop. Raises TfmError."""
    for library in ("starlette", "uvicorn", "prometheus_client"):
        imported(library, needs="tfm serve")
    from transformer_cli.serving.models import ModelTable
    from transformer_cli.serving.run import serve
    from transformer_cli.serving.server import Server
    from transformer_cli.serving.service import Service

    table = ModelTable(config)
    for model in table.models:
        model.warm_up()
        LOGGER.info(
            "%s → %s with %s, engine=%s", model.source_lang, model.target_lang, shown(model.path), model.engine.name
        )
    if config.check:
        return
    serve(Server(config, Service(config, table)))
