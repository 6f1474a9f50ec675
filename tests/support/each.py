"""Many small cases in one test: as `pytest.mark.parametrize`, but with one id, and without the cost of one for each."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any


def each(names: str, cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a test that gets a case by the comma-separated `names`; a failure names its case.

    Fixtures are those of the one test: not for tests that need a folder or a captured output for each case.
    """
    keys, listed = [name.strip() for name in names.split(",")], list(cases)
    assert listed, "no case: the test could not fail"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        def run(**fixtures: Any) -> None:
            for case in listed:
                values = case if len(keys) > 1 else (case,)
                try:
                    test(**fixtures, **dict(zip(keys, values, strict=True)))
                except BaseException as error:
                    error.add_note(f"case: {names} = {case!r}")
                    raise

        left = [one for name, one in signature.parameters.items() if name not in keys]
        run.__dict__["__signature__"] = signature.replace(parameters=left)
        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        return run

    return decorate
