"""The spaces of a translation that the document does not have: those of joints, which only the model was shown."""

from bisect import bisect_right
from collections.abc import Sequence

from transformer_cli.addons.documents.units import Unit

Sources = tuple[int | None, int | None]


def joint_boundaries(unit: Unit, sources: Sequence[Sources], marks: Sequence[tuple[int, int]]) -> frozenset[int]:
    """The boundaries between tokens where what meets at a joint of the source meets again, with a tag in between.

    `sources` has two characters of the source for each token: one of the word that it ends, and one of the word that it
    begins. `marks` are the tags at boundaries.
    """
    if not unit.joints:
        return frozenset()
    at_boundary: dict[int, list[int]] = {}
    for boundary, tag in marks:
        at_boundary.setdefault(boundary, []).append(tag)
    adjacent = _adjacent(unit)
    starts = [i for i in range(len(unit.text)) if unit.text[i] != " " and unit.text[i - 1 : i] in ("", " ")]
    joined = {bisect_right(starts, joint) for joint in unit.joints}  # the words that begin after joints
    found = set()
    for boundary, tags in at_boundary.items():
        if not 0 < boundary < len(sources):
            continue
        around = (sources[boundary - 1][0], sources[boundary][1])
        first, second = sorted(-1 if source is None else bisect_right(starts, source) - 1 for source in around)
        partners = {tag: unit.tags[tag].partner for tag in tags}
        ending = [partner for tag, partner in partners.items() if partner is not None and partner < tag]
        beginning = [tag for tag, partner in partners.items() if partner is not None and partner > tag]
        meet = any(frozenset((one, other)) in adjacent for one in ending for other in beginning)
        if meet or (first >= 0 and second == first + 1 and second in joined):
            found.add(boundary)
    return frozenset(found)


def _adjacent(unit: Unit) -> set[frozenset[int]]:
    """The pairs of elements that meet at a joint, each by its opening tag."""
    ending: dict[int, list[int]] = {}
    beginning: dict[int, list[int]] = {}
    for i, tag in enumerate(unit.tags):
        if tag.partner is not None and tag.partner < i:
            ending.setdefault(tag.offset, []).append(tag.partner)
        elif tag.partner is not None:
            beginning.setdefault(tag.offset, []).append(i)
    return {
        frozenset((one, other))
        for joint in unit.joints
        for one in ending.get(joint, [])
        for other in beginning.get(joint + 1, [])
    }
