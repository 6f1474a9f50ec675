"""The HTTP APIs: what is asked and what is answered, with stand-ins whose translations are known."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.toy_server import Running, StandIn, running, stand_in_server, toy_model, toy_server


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    """de → en in capitals, and en → de with the words reversed."""
    with running(stand_in_server(StandIn(), StandIn("en", "de", reverses=True))) as server:
        yield server


def test_texts_are_translated_line_by_line_with_their_white_space(served: Running) -> None:
    status, answer = served.ask("/api/translate", {"text": "  ein Hund\n\nzwei\r\n", "source": "de"})
    assert (status, answer["translations"][0]["text"]) == (200, "  EIN HUND\n\nZWEI\r\n")


def test_a_real_model_answers(tmp_path: Path) -> None:
    with running(toy_server(toy_model(tmp_path))) as server:
        status, answer = server.ask("/api/translate", {"text": ["a b", ""], "alignments": True})
    assert status == 200
    assert (answer["model"]["source"], answer["model"]["target"]) == ("en", "fr")
    assert [one["text"] == "" for one in answer["translations"]] == [False, True]
