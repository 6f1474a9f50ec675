"""What this add-on brings: addresses of the hub, wherever a model is named, and the commands `models` and `push`."""

from transformer_cli.addons.hub.keys import ModelsConfig, PushConfig
from transformer_cli.addons.hub.names import SCHEME
from transformer_cli.addons.hub.opening import Hub
from transformer_cli.command import Command, register
from transformer_cli.models.registries import ADDRESSES

ADDRESSES.register(SCHEME)(Hub())


def _models(config: ModelsConfig) -> None:
    from transformer_cli.addons.hub.run_models import run

    run(config)


register(
    Command(
        "models",
        help="list the models that are kept here, from where they are and how large; remove or update one",
        example="tfm models remove hf:Helsinki-NLP/opus-mt-en-de",
        schema=ModelsConfig,
        run=_models,
    )
)


def _push(config: PushConfig) -> None:
    from transformer_cli.addons.hub.run_push import run

    run(config)


register(
    Command(
        "push",
        help="upload a finished model or an export to the Hugging Face Hub, with card and licence, after a question",
        example="tfm push hf:me/en-de --checkpoint runs/en-de --license cc-by-4.0",
        schema=PushConfig,
        run=_push,
        needs_word="Name the repository, as hf:OWNER/NAME",
    )
)
