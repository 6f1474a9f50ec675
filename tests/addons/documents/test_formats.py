"""Each format of documents that comes along is a module of its own, which registers it."""

import pkgutil

from transformer_cli.addons.documents import formats as package
from transformer_cli.addons.documents.formats import formats
from transformer_cli.registry import is_ours


def test_each_module_registers_the_format_of_its_name() -> None:
    modules = [found.name for found in pkgutil.iter_modules(package.__path__)]
    ours = {name: one.function.__module__ for name, one in formats().items() if is_ours(one.function)}
    assert ours == {name: f"{package.__name__}.{name}" for name in modules}


def test_an_ending_belongs_to_one_format_and_is_in_small_letters_with_its_dot() -> None:
    endings = [ending for one in formats().values() for ending in one.endings]
    assert len(set(endings)) == len(endings)
    assert all(ending == ending.lower() and ending.startswith(".") for ending in endings)
