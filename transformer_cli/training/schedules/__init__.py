"""Learning rate schedules."""

from transformer_cli.training.schedules import builtin  # noqa: F401
from transformer_cli.training.schedules.registry import (
    SCHEDULES,
    Schedule,
    ScheduleKind,
    build_schedule,
    check_schedule,
    ends_at_max_steps,
)

__all__ = ["SCHEDULES", "Schedule", "ScheduleKind", "build_schedule", "check_schedule", "ends_at_max_steps"]
