"""Write the text of the built-in corpora into transformer_cli/data/demo/: `python -m scripts.demo_corpora [FOLDER]`.

The text is the same on every machine and with every Python. A file that holds it already is left as it is, since other
versions of zlib compress the same text to other bytes.
"""

import gzip
import sys
from pathlib import Path

from scripts.demo_corpora import en_fr, questions, summaries, trees

FOLDER = Path(__file__).resolve().parents[2] / "transformer_cli/data/demo"
SPLITS = ("train", "dev", "test")


def texts() -> dict[str, str]:
    """The text of each file by its name below the folder."""
    found = {}
    for name, places in {"demo_en_fr": True, "demo_en_fr_without_places": False}.items():
        corpus = en_fr.generate(places=places)
        for split in SPLITS:
            found |= sides(f"{name}/{split}", getattr(corpus, split))
    for split in SPLITS:
        found |= sides(f"demo_summaries/{split}", summaries.generate(split))
        found |= sides(f"demo_questions/{split}", questions.generate(split))
        found |= sides(f"demo_trees/{split}", trees.generate(split))
    return found


def sides(name: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    """The sources and the targets, a line each."""
    return {
        f"{name}.{side}.gz": "".join(f"{pair[i]}\n" for pair in pairs) for i, side in enumerate(("source", "target"))
    }


def write(folder: Path) -> list[Path]:
    """The files that were written."""
    written = []
    for name, text in texts().items():
        path = folder / name
        if path.exists() and gzip.decompress(path.read_bytes()).decode() == text:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        written.append(path)
    return written


if __name__ == "__main__":
    for path in write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER):
        print(path)
