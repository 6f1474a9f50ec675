"""The page of `tfm fill --html`: each text with its masks, and the words that fill them."""

from collections.abc import Sequence

from transformer_cli.addons.masked_language_models.filling import MASK, Filling
from transformer_cli.addons.pages.document import document, escaped


def render(model: str, filled: Sequence[tuple[str, Sequence[Filling]]]) -> str:
    """The page of these texts and their fillings; equal ones give equal text."""
    first = MASK.sub("[mask]", filled[0][0]) if filled else "nothing"
    return document(
        "transformer_cli.addons.masked_language_models",
        title=f"Masks: {first}",
        model=escaped(model),
        n_texts=f"{len(filled):,}",
        sections="\n".join(_section(text, fillings) for text, fillings in filled),
    )


def _section(text: str, fillings: Sequence[Filling]) -> str:
    parts = MASK.split(text)
    shown = '<span class="mask">?</span>'.join(map(escaped, parts))
    highest = max((one.probability for one in fillings), default=1.0) or 1.0
    rows = "\n".join(_row(parts, one, highest) for one in fillings)
    return (
        f'<section>\n<h2><span class="text" dir="auto">{shown}</span></h2>\n<table>\n'
        '<thead><tr><th scope="col">Text</th><th scope="col" class="number">Probability</th><th></th></tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table>\n</section>"
    )


def _row(parts: Sequence[str], filling: Filling, highest: float) -> str:
    words = [f"<mark>{escaped(word)}</mark>" for word in filling.words]
    text = "".join(piece for pair in zip(map(escaped, parts), [*words, ""], strict=True) for piece in pair)
    percent, width = 100 * filling.probability, 120 * filling.probability / highest
    bar = f'<svg class="bar" aria-hidden="true"><rect width="{width:.1f}" height="7"/></svg>'
    return (
        f'<tr><td><span class="text" dir="auto">{text}</span></td><td class="number">{percent:.2f} %</td>'
        f"<td>{bar}</td></tr>"
    )
