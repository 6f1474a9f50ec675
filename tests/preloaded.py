"""Imported by the process that `tests.forked` forks: whatever a training imports on its way."""

from tests.zygote import warm_up

warm_up()
