"""`tfm verify-resume`: whether a run that is stopped and resumed on this machine equals the uninterrupted one."""
