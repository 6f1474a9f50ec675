"""Imported by the process that `tests.support.forked` forks: whatever a training imports on its way."""

from tests.support.zygote import warm_up

warm_up()
