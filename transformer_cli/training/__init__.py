"""The loop, its loss, schedules, optimizers, checkpoints and metric writers."""
