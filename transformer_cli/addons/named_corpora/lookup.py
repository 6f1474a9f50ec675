"""A program of its own, which prints as JSON what the index of mtdata has under the ids that it is given.

Importing mtdata reads an index of 60 MB, changes the logging of the process, and runs each mtdata*.py of the working
folder where it makes that index: so this is started apart, in an empty folder.
"""

import json
import logging
import sys
from typing import Any

N_NEAR = 3
_HUGGING_FACE = "hfds"  # which mtdata does not fetch as files


def look_up(ids: list[str]) -> dict[str, Any]:
    try:
        import mtdata
    except ImportError as error:
        return {"absent": str(error)}
    logging.getLogger().setLevel(logging.WARNING)
    from mtdata.entry import DatasetId
    from mtdata.index import INDEX

    found: dict[str, Any] = {"version": mtdata.__version__, "entries": {}, "near": {}}
    for name in ids:
        try:
            key = DatasetId.parse(name)
        except Exception:  # assertions, and errors of its table of languages
            key = None
        if key is not None and key in INDEX:
            found["entries"][name] = _described(INDEX[key], INDEX)
        else:
            found["near"][name] = _near(name, INDEX)
    return found


def _described(entry: Any, index: Any) -> dict[str, Any]:
    from mtdata import cache_dir
    from mtdata.cache import Cache

    cache, form = Cache(cache_dir), entry.in_ext or entry.ext
    urls = list(entry.url) if isinstance(entry.url, list | tuple) else [entry.url]
    files = []
    for url in urls if form != _HUGGING_FACE else ():
        filename = entry.filename if len(urls) == 1 else None
        path = cache.get_local_path(url, filename=filename, fix_missing=False, entry=entry)
        files.append({"url": url, "path": str(path), "flag": str(cache.get_flag_file(path))})
    return {
        "languages": [str(language) for language in entry.did.langs],
        "form": form,
        "files": files,
        "members": list(entry.in_paths or []) if entry.is_archive else [],
        "columns": list(entry.cols or []),
        "citations": [index.ref_db.get_bibtex(key) for key in entry.cite or ()],
    }


def _near(name: str, index: Any) -> list[str]:
    """The ids that are nearest, of the same languages or of the same corpus."""
    import difflib

    group, *_ = parts = name.lower().split("-")
    languages, corpus = set(parts[3:]), parts[1:2]
    ids = [
        str(key)
        for key in index.entries
        if {str(one).lower() for one in key.langs} == languages or (key.group.lower() == group and [key.name] == corpus)
    ]
    return difflib.get_close_matches(name, ids, n=N_NEAR, cutoff=0.6)


if __name__ == "__main__":
    answer, sys.stdout = sys.stdout, sys.stderr
    answer.write(json.dumps(look_up(sys.argv[1:])))
