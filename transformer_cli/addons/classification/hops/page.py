"""What each hop of a classifier's pooling reads, as one HTML page that needs no network and no script.

The texts may be anyone's: each is escaped, and isolated in its direction.

Shapes: R hops, L tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from transformer_cli.addons.pages.document import document, escaped

_STEPS = 20  # of the colour, from weight 0 to 1, by its square root: in a long line all weights are small
_SPACE = "▁"  # of SentencePiece, for a space


@dataclass(frozen=True)
class ReadLine:
    """A line with its class, and the weights of its tokens in each hop."""

    number: int
    label: str
    probability: float
    tokens: Sequence[str]  # as SentencePiece writes them: ▁ begins a word
    weights_RL: Tensor


def render(lines: Sequence[ReadLine], *, facts: Mapping[str, str], notes: Sequence[str] = ()) -> str:
    """The page; equal lines give equal text."""
    n_hops = len(lines[0].weights_RL) if lines else 0
    what = "the hop reads" if n_hops == 1 else f"each of {n_hops} hops reads" if n_hops else "hops read"
    finding = f"What {what} in {len(lines):,} line{'s' * (len(lines) != 1)}"
    return document(
        "transformer_cli.addons.classification.hops",
        title=finding,
        finding=escaped(finding),
        facts="\n".join(f"<div><dt>{escaped(name)}</dt><dd>{escaped(fact)}</dd></div>" for name, fact in facts.items()),
        notes="".join(f'<p class="note">{escaped(note)}.</p>\n' for note in notes),
        scale="".join(f'<span data-step="{step}"></span>' for step in range(_STEPS + 1)),
        lines="\n".join(map(_section, lines)),
    )


def _section(line: ReadLine) -> str:
    hops = [f"hop {n}" for n in range(1, len(line.weights_RL) + 1)]
    rows = [_row(name, line.tokens, weights_L.tolist()) for name, weights_L in zip(hops, line.weights_RL, strict=True)]
    if len(rows) > 1:
        rows.insert(0, _row("mean", line.tokens, line.weights_RL.mean(0).tolist(), kind="all"))
    return (
        f'<section>\n<h2>{escaped(line.label)} <span class="quiet">{line.probability:.3f} · line {line.number:,}</span>'
        f"</h2>\n<table><tbody>\n{''.join(rows)}</tbody></table>\n</section>"
    )


def _row(name: str, tokens: Sequence[str], weights: Sequence[float], *, kind: str = "hop") -> str:
    top = max(range(len(weights)), key=weights.__getitem__)
    most = f"{escaped(_shown(tokens[top]).strip())} {weights[top]:.2f}"
    return (
        f'<tr class="{kind}"><th scope="row">{name}</th><td class="text" dir="auto">'
        f'{"".join(_shaded(tokens, weights))}</td><td class="most">{most}</td></tr>\n'
    )


def _shaded(tokens: Sequence[str], weights: Sequence[float]) -> Iterator[str]:
    """Each token, with a space before it that is not shaded where a word begins."""
    for place, (token, weight) in enumerate(zip(tokens, weights, strict=True)):
        text = _shown(token)
        # SentencePiece marks no space before what follows <s>, nor before </s>.
        is_apart = text.startswith(" ") or token in ("<s>", "</s>")
        yield " " * (is_apart and place > 0)
        word = escaped(text.lstrip(" ")) or "&nbsp;"
        yield f'<span data-step="{round(_STEPS * weight**0.5)}" title="{weight:.3f}">{word}</span>'


def _shown(token: str) -> str:
    return token.replace(_SPACE, " ")
