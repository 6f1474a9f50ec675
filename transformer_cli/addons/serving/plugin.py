"""What this add-on brings."""

from transformer_cli.addons.serving.keys import ServeConfig
from transformer_cli.command import Command, register


def _run(config: ServeConfig) -> None:
    from transformer_cli.addons.serving.run_serve import run

    run(config)


register(
    Command(
        "serve",
        help="answer HTTP requests: the APIs of LibreTranslate, DeepL and OpenNMT, our own, and a web page",
        example="tfm serve --checkpoint model.safetensors",
        schema=ServeConfig,
        run=_run,
        groups={"decode": "beam"},
        group_flags={"--beam": "decode.beam_size"},
    )
)
