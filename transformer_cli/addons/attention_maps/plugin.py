"""What this add-on brings."""

from transformer_cli.addons.attention_maps.keys import AttentionConfig
from transformer_cli.command import Command, register


def _run(config: AttentionConfig) -> None:
    from transformer_cli.addons.attention_maps.run_attention import run

    run(config)


register(
    Command(
        "attention",
        help="draw the attention weights of a model for a sentence and its translation",
        example='tfm attention "She sat down in the chair, it was very comfortable."',
        schema=AttentionConfig,
        run=_run,
        groups={"decode": "beam"},
        group_flags={"--beam": "decode.beam_size"},
    )
)
