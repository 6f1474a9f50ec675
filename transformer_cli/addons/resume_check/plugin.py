"""What this add-on brings."""

from transformer_cli.addons.resume_check.keys import VerifyResumeConfig
from transformer_cli.command import Command, register


def _run(config: VerifyResumeConfig) -> None:
    from transformer_cli.addons.resume_check.run_verify_resume import run

    run(config)


register(
    Command(
        "verify-resume",
        help="check on this machine that a stopped and resumed run equals the uninterrupted one, to the last bit",
        example="tfm verify-resume runs/NAME",
        schema=VerifyResumeConfig,
        run=_run,
    )
)
