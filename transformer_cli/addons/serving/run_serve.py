"""`tfm serve`: answer HTTP requests until a signal ends it."""

import sys
from collections.abc import Sequence

from transformer_cli.addons.serving.keys import ServeConfig
from transformer_cli.data.lines import shown
from transformer_cli.decoding.directions import direction_of
from transformer_cli.extras import imported
from transformer_cli.logs import LOGGER


def run(config: ServeConfig) -> None:
    """Load the models and serve them; with `config.check`, print a table of them and stop. Raises TfmError."""
    for library in ("starlette", "uvicorn", "httptools", "prometheus_client", "python_multipart"):
        imported(library, needs="tfm serve")
    from transformer_cli.addons.serving.access_log import start_log
    from transformer_cli.addons.serving.metrics import Metrics
    from transformer_cli.addons.serving.models import ModelTable
    from transformer_cli.addons.serving.run import bind, serve
    from transformer_cli.addons.serving.server import Server
    from transformer_cli.addons.serving.service import Service

    start_log(config.log_format)
    sockets = [] if config.check else bind(config.host, config.port)  # first: a port that is taken is known at once
    metrics = Metrics()
    table = ModelTable(config, metrics.batch)
    server = Server(config, Service(config, table, metrics.results), metrics)
    server.service.warm_up()
    for model in table.models:
        LOGGER.info("%s with %s, engine=%s", direction_of(model), shown(model.path), model.engine)
    if config.check:
        rows = [
            (
                direction_of(model),
                shown(model.path),
                model.engine,
                model.sha256[:12],
                f"{model.load_seconds:.1f} s",
                f"{model.memory / 1e6:.0f} MB",
                f"{model.first_seconds * 1000:.0f} ms",
            )
            for model in table.models
        ]
        sys.stdout.write(
            _table([("pair", "model", "engine", "sha256", "loaded in", "memory", "first sentence"), *rows])
        )
        return
    serve(server, sockets)


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in rows
    )
