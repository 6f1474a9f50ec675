"""Imported by the process that `tests.support.forked` forks: whatever a training imports on its way."""

from tests.support.compositions import compose_once
from tests.support.zygote import warm_up
from transformer_cli.config import compose

compose.compose = compose_once()
warm_up()
