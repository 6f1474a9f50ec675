"""Files made to do harm (group F of the fault matrix): none is run, each is refused in one line.

All are read by the functions and commands that read a user's files, in one child process whose audit hook ends it when
anything is executed, imported, unpickled, connected to, or written outside of its folder (`hostile_child.py`).
"""

import copy
import gzip
import hashlib
import io
import json
import os
import pickle
import random
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from tests.conftest import ROOT
from tests.models.test_model_file import NO_HASH, forged, parts, sealed
from tests.support.forked import run
from tests.support.hostile_child import FIRED
from tests.toy.run import CPU, config, model_file, packed, prepared, sentences, train
from transformer_cli.cli import main
from transformer_cli.config.compose import to_yaml
from transformer_cli.data.cache import ensure_folder
from transformer_cli.errors import CheckpointError, EnvironmentFault, TfmError
from transformer_cli.models.file import read_model
from transformer_cli.training.checkpoints import CheckpointStore
from transformer_cli.training.run_directory import open_run

CANARY = "canary"
SECONDS, GROWTH = 10, 600_000_000  # of a job, and bytes of the whole child beyond what good files need

MODEL = packed(model_file())


class Bomb:
    """What a pickle can do to whoever loads it: here, leave a file in the working folder."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(CANARY),)


def saved(thing: object, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(thing, buffer, **options)
    return buffer.getvalue()


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


# ---- Model files. Each must end with exit 4, whoever computed its hashes.


def with_header(change: Callable[[dict[str, Any], bytes], object], tail: bytes = b"") -> bytes:
    """The good model with another table of contents, and with the hash that a forger would put into it."""
    header, metadata, data = parts(MODEL)
    header["__metadata__"]["tfm"] = json.dumps(metadata)
    change(header, data)
    return sealed(header, data + tail)


def raw_header(text: bytes, length: int | None = None) -> bytes:
    return (len(text) if length is None else length).to_bytes(8, "little") + text


def first(header: dict[str, Any]) -> dict[str, Any]:
    """The entry of some weight."""
    return next(entry for name, entry in header.items() if name.endswith("weight"))


def with_metadata_text(change: Callable[[str], str]) -> bytes:
    def edit(header: dict[str, Any], data: bytes) -> None:
        header["__metadata__"]["tfm"] = change(header["__metadata__"]["tfm"])

    return with_header(edit)


def with_weights(kind: torch.dtype) -> bytes:
    """The good model with one weight of another type."""
    tensors = safetensors.torch.load(MODEL)
    name = next(name for name in tensors if name.endswith("weight"))
    return repacked({**tensors, name: tensors[name].to(kind)})


def repacked(tensors: dict[str, torch.Tensor], change: Callable[[dict[str, Any]], object] = lambda _: None) -> bytes:
    _, metadata, _ = parts(MODEL)
    change(metadata)
    content = safetensors.torch.save(tensors, {"tfm": json.dumps(metadata)})
    return content.replace(NO_HASH.encode(), hashlib.sha256(content).hexdigest().encode())


def with_tokenizer(content: bytes) -> bytes:
    tensor = torch.frombuffer(bytearray(content or b"\0"), dtype=torch.uint8)[: len(content)]
    tensors = {**safetensors.torch.load(MODEL), "tokenizer.source": tensor}
    digest = hashlib.sha256(content).hexdigest()
    return repacked(tensors, lambda metadata: metadata["tokenizers"].update({"tokenizer.source": digest}))


def mutated(content: bytes, seed: int) -> bytes:
    """`content` with a few bytes changed, cut out or repeated."""
    draw, changed = random.Random(seed), bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 4])):
        at, how = draw.randrange(len(changed)), draw.randrange(4)
        if how == 0:
            changed[at] = draw.randrange(256)
        elif how == 1:
            changed[at] ^= 1 << draw.randrange(8)
        elif how == 2:
            del changed[at : at + draw.randint(1, 20)]
        else:
            changed[at:at] = changed[at : at + draw.randint(1, 30)]
    return bytes(changed)


def deep(levels: int) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for _ in range(levels):
        tree = {"a": tree}
    return tree


def set_config(**values: Any) -> Callable[[], bytes]:
    return lambda: forged(lambda metadata: metadata["config"].update(values))


def set_metadata(**values: Any) -> Callable[[], bytes]:
    return lambda: forged(lambda metadata: metadata.update(values))


CODE = {
    **{f"a pickle of protocol {n}": lambda n=n: pickle.dumps(Bomb(), n) for n in range(6)},
    "what torch.save writes": lambda: saved(Bomb()),
    "what torch.save wrote of old": lambda: saved(Bomb(), _use_new_zipfile_serialization=False),
    "a zip of a pickle": lambda: zipped(**{"archive/data.pkl": pickle.dumps(Bomb())}),
    "a model, then a zip": lambda: MODEL + saved(Bomb()),
    "a zip, then a model": lambda: saved(Bomb()) + MODEL,
    "a pickle, then a model": lambda: pickle.dumps(Bomb()) + MODEL,
    "a table of contents, then a zip": lambda: raw_header(b"{}      ") + saved(Bomb()),
    "a table of contents, then a pickle": lambda: raw_header(b"{}      ") + pickle.dumps(Bomb()),
    "a pickle as weight": lambda: with_header(lambda header, data: None, tail=pickle.dumps(Bomb())),
    "a pickle as tokenizer": lambda: with_tokenizer(pickle.dumps(Bomb())),
    "Python code": lambda: f"open({CANARY!r}, 'w')\n".encode(),
    "a script": lambda: f"#!/bin/sh\ntouch {CANARY}\n".encode(),
}
TABLES = {
    **{f"a table of {n} bytes": lambda n=n: raw_header(b"{}", n) for n in (2**62, 2**63, 2**64 - 1, 4_000_001, 3)},
    "no table": lambda: raw_header(b""),
    "a list for a table": lambda: raw_header(b"[]"),
    "a table that is no UTF-8": lambda: raw_header(b'{"\xff\xfe": 1}'),
    "a table with a lone surrogate": lambda: raw_header(
        b'{"\\ud800": {"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'
    ),
    "a table of brackets": lambda: raw_header(b'{"a":' + b"[" * 1_000_000),
    "a number of 5,000 digits": lambda: raw_header(b'{"a":' + b"9" * 5000 + b"}"),
    "a name twice": lambda: raw_header(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":1}'),
    "overlapping tensors": lambda: with_header(lambda h, data: first(h).update(data_offsets=[0, 8])),
    "a tensor out of range": lambda: with_header(lambda h, d: first(h).update(data_offsets=[len(d), len(d) + 8])),
    "a tensor that ends before it begins": lambda: with_header(lambda h, d: first(h).update(data_offsets=[8, 0])),
    "a tensor at -8": lambda: with_header(lambda h, d: first(h).update(data_offsets=[-8, 0])),
    "offsets that overflow": lambda: with_header(lambda h, d: first(h).update(data_offsets=[2**64 - 8, 2**64])),
    "offsets that are texts": lambda: with_header(lambda h, d: first(h).update(data_offsets=["0", "8"])),
    "a tensor of -1 rows": lambda: with_header(lambda h, d: first(h).update(shape=[-1, 16])),
    "a shape that overflows": lambda: with_header(lambda h, d: first(h).update(shape=[2**62, 2**62])),
    "a shape of 1.5 rows": lambda: with_header(lambda h, d: first(h).update(shape=[1.5])),
    "a shape of 100,000 axes": lambda: with_header(lambda h, d: first(h).update(shape=[1] * 100_000)),
    "a type that does not exist": lambda: with_header(lambda h, d: first(h).update(dtype="os.system")),
    "a tensor of 10 TB": lambda: with_header(
        lambda h, d: h.update(huge={"dtype": "F32", "shape": [10**13 // 4], "data_offsets": [len(d), len(d) + 10**13]})
    ),
    "100,000 empty tensors": lambda: with_header(
        lambda h, d: h.update(
            {f"t{i}": {"dtype": "U8", "shape": [0], "data_offsets": [len(d), len(d)]} for i in range(100_000)}
        )
    ),
    "bytes after the end": lambda: with_header(lambda h, d: None, tail=b"\0" * 8),
    "a hole": lambda: with_header(
        lambda h, d: h.update(more={"dtype": "U8", "shape": [1], "data_offsets": [len(d) + 7, len(d) + 8]}), b"\0" * 8
    ),
}
METADATA = {
    "a layer count of a billion": set_config(n_encoder_layers=10**9),
    "512 layers a million wide": set_config(n_encoder_layers=512, n_decoder_layers=512, d_model=10**6, n_heads=1),
    "a table of positions a million long": set_config(positions="learned", max_positions=10**6, d_model=10**6),
    "-1 layers": set_config(n_encoder_layers=-1),
    "1.5 layers": set_config(n_encoder_layers=1.5),
    "endless layers": lambda: with_metadata_text(
        lambda text: text.replace('"n_encoder_layers": 1', '"n_encoder_layers": 1e999')
    ),
    "a step without end": lambda: with_metadata_text(lambda text: text.replace('"step": 7', '"step": 1e999')),
    "a step of 5,000 digits": lambda: with_metadata_text(
        lambda text: text.replace('"step": 7', '"step": ' + "9" * 5000)
    ),
    "a dropout that is no number": lambda: with_metadata_text(
        lambda text: text.replace('"dropout": 0.1', '"dropout": NaN')
    ),
    "an infinite dropout": lambda: with_metadata_text(
        lambda text: text.replace('"dropout": 0.1', '"dropout": Infinity')
    ),
    "a key twice": lambda: with_metadata_text(lambda text: text.replace('"step": 7', '"step": 7, "step": 8')),
    **{f"a config {n} deep": lambda n=n: forged(lambda m: m.update(config=deep(n))) for n in (100, 400, 900)},
    **{f"d_model {n} deep": lambda n=n: forged(lambda m: m["config"].update(d_model=deep(n))) for n in (100, 400, 900)},
    "data 100,000 deep": lambda: with_metadata_text(
        lambda text: text.replace('"data": {', '"data": {"a": ' + "[" * 100_000 + "]" * 100_000 + ",")
    ),
    "a class to build": set_config(_target_="os.system", command=f"touch {CANARY}"),
    "a class to build, below": set_config(norm={"_target_": "os.system", "_args_": [f"touch {CANARY}"]}),
    "a class as name": set_config(name="os.system"),
    "a name of a million letters": set_config(name="x" * 1_000_000),
    "a norm of a million letters": set_config(norm="x" * 1_000_000),
    "a class as norm": set_config(norm="subprocess.Popen"),
    "a class as activation": set_config(activation="torch.hub.load"),
    "an unknown key": set_config(forward="print"),
    **{
        f"the interpolation {text}": set_config(preset=text)
        for text in (
            "${oc.env:HOME}",
            "${oc.env:NO,x}",
            "${oc.decode:'1'}",
            "${hydra:job}",
            "${n_heads}",
            "x${oc.create:{}}",
        )
    },
    "an interpolated number": set_config(d_model="${oc.env:COLUMNS}"),
    "a language that leads elsewhere": set_metadata(target_lang=f"../../{CANARY}"),
    "a language that colours the terminal": set_metadata(source_lang="\x1b[31men"),
    "a language of two lines": set_metadata(source_lang="en\nde"),
    "a format to come": set_metadata(format=2, needs="\x1b]0;9.9\x07\n9"),
    "a format that is a text": set_metadata(format="1"),
    "no config": lambda: forged(lambda m: m.pop("config")),
    "a config that is a list": set_metadata(config=[["d_model", 3]]),
    "a config that is a text": set_metadata(config="os.system"),
    "data that is a text": set_metadata(data="text"),
    "scores that are a number": set_metadata(scores=3),
    "a step that is a list": set_metadata(step=[7]),
    "tokenizers that are a text": set_metadata(tokenizers="tokenizer.source"),
    "tokenizers without a hash": set_metadata(tokenizers={"tokenizer.source": None}),
    "a tokenizer that is not there": set_metadata(tokenizers={"tokenizer.target": "0" * 64}),
    "a hash that is a number": lambda: with_metadata_text(lambda text: text.replace(f'"{NO_HASH}"', "1")),
    "a weight's name for a tokenizer": lambda: with_header(
        lambda h, d: h.update({"\x1b[2J\nweight": h.pop(next(n for n in h if n.endswith("weight")))})
    ),
}
TENSORS = {
    **{
        f"weights of {str(kind).removeprefix('torch.')}": lambda kind=kind: with_weights(kind)
        for kind in (torch.int8, torch.uint8, torch.bool, torch.int64, torch.float64, torch.float16, torch.complex64)
    },
    "a tokenizer of float32": lambda: repacked(
        {**safetensors.torch.load(MODEL), "tokenizer.source": torch.zeros(8)},
        lambda m: m["tokenizers"].update({"tokenizer.source": hashlib.sha256(bytes(32)).hexdigest()}),
    ),
    "an empty tokenizer": lambda: with_tokenizer(b""),
    "a tokenizer of zeros": lambda: with_tokenizer(bytes(1000)),
    "a tokenizer of text": lambda: with_tokenizer(b"not a SentencePiece model"),
    "half a tokenizer": lambda: with_tokenizer(prepared().tokenizers.source.model_bytes[:200]),
}
MODELS = {**CODE, **TABLES, **METADATA, **TENSORS}

# ---- Run directories


def relist(folder: Path, **entries: Any) -> None:
    """A manifest that agrees with the files of a checkpoint, but for `entries`."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    for name in manifest["files"]:
        content = (folder / name).read_bytes()
        manifest["files"][name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps({**manifest, **entries}), encoding="utf-8")


def replaced(name: str, content: bytes) -> Callable[[Path], None]:
    """A checkpoint with another file in place of one of its own, and the manifest to go with it."""

    def damage(folder: Path) -> None:
        (folder / name).write_bytes(content)
        relist(folder)

    return damage


def listed(name: str, **entry: Any) -> Callable[[Path], None]:
    """A checkpoint whose manifest does not fit one file."""

    def damage(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        manifest["files"].setdefault(name, {"size": 1, "sha256": "0" * 64}).update(entry)
        (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")

    return damage


def instead(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    """A checkpoint with something that is no plain file in place of one of its own."""

    def damage(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return damage


def elsewhere(name: str) -> Callable[[Path], None]:
    """A file that lies outside, where a link leads to it."""

    def damage(folder: Path) -> None:
        (folder / name).rename(folder.parent.parent / name)
        (folder / name).symlink_to(folder.parent.parent / name)

    return damage


def optimizer_of(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = safetensors.torch.load((folder / "optimizer.safetensors").read_bytes())
        change(tensors)
        replaced("optimizer.safetensors", safetensors.torch.save(tensors))(folder)

    return damage


def some(tensors: dict[str, torch.Tensor]) -> str:
    return next(name for name in sorted(tensors) if name.startswith("exp_avg/"))


FOUR = ("manifest.json", "model.safetensors", "optimizer.safetensors", "state.json")
MANIFESTS: dict[str, Callable[[Path], None]] = {
    **{f"a manifest with {name}": listed(name) for name in ("../../x", "/etc/passwd", "a/b", "", "\x1b[2Jx", "x\ny")},
    **{
        f"a size of {size}": listed("state.json", size=size)
        for size in (10**13, 2**63, 10**30, -1, 1.5, True, "1e9", None)
    },
    "a hash that is a list": listed("state.json", sha256=["0"]),
    **{
        f"a step of {step!r}": lambda folder, step=step: relist(folder, step=step)
        for step in (3, -4, "x", None, [4], 1e300)
    },
    "files that are a list": lambda folder: relist(folder, files=["state.json"]),
    "a manifest of brackets": lambda folder: (folder / "manifest.json").write_bytes(b"[" * 90_000),
    "a manifest of a gigabyte": lambda folder: os.truncate(folder / "manifest.json", 1 << 30),
    "an endless number": lambda folder: (folder / "manifest.json").write_bytes(b'{"step": 1e999, "files": {}}'),
    **{f"{name} is a link": elsewhere(name) for name in FOUR},
    **{f"{name} is a pipe": instead(name, os.mkfifo) for name in FOUR},
    **{f"{name} is a folder": instead(name, Path.mkdir) for name in FOUR},
    **{f"{name} is a device": instead(name, lambda path: path.symlink_to("/dev/zero")) for name in FOUR},
    **{f"{name} is a pickle": replaced(name, pickle.dumps(Bomb())) for name in FOUR[1:]},
    "the manifest is a pickle": lambda folder: (folder / "manifest.json").write_bytes(pickle.dumps(Bomb())),
}
STATES: dict[str, Callable[[Path], None]] = {
    "a state of brackets": replaced("state.json", b"[" * 100_000),
    "a state that is a list": replaced("state.json", b"[]"),
    "an empty state": replaced("state.json", b"{}"),
    "no state at all": replaced("state.json", b""),
    "a state of a format to come": replaced("state.json", b'{"format": 9, "needs": "\\u001b[2J\\n9"}'),
    "an optimizer that knows another model": optimizer_of(lambda t: t.update({"exp_avg/os.system": t.pop(some(t))})),
    "an optimizer that remembers too much": optimizer_of(
        lambda t: t.update({f"__class__/{some(t)[8:]}": t[some(t)].clone()})
    ),
    "an optimizer that forgot": optimizer_of(lambda t: t.pop(some(t))),
    "an optimizer of another shape": optimizer_of(lambda t: t.update({some(t): torch.zeros(1, 2, 3)})),
    "an optimizer without axes": optimizer_of(lambda t: t.update({some(t): torch.zeros(())})),
    **{
        f"an optimizer of {str(kind).removeprefix('torch.')}": optimizer_of(
            lambda t, kind=kind: t.update({some(t): t[some(t)].to(kind)})  # type: ignore[misc]
        )
        for kind in (torch.int8, torch.float64, torch.bool, torch.complex64)
    },
    **{
        f"progress at step {step}": lambda folder, step=step: replaced(  # type: ignore[misc]
            "state.json",
            (folder / "state.json")
            .read_bytes()
            .replace(b'"step": 4,\n   "n_tokens"', b'"step": %d,\n   "n_tokens"' % step),
        )(folder)
        for step in (-1, 0, 10**30)
    },
    "the model of another config": replaced("model.safetensors", packed(model_file(step=4, n_encoder_layers=2))),
}
YAML = {
    "an object": "a: !!python/object:builtins.object {}\n",
    "a call": f"a: !!python/object/apply:os.system ['touch {CANARY}']\n",
    "a call, new": f"a: !!python/object/new:os.system ['touch {CANARY}']\n",
    "a name": "a: !!python/name:os.system\n",
    "a module": "a: !!python/module:os\n",
    "a tag of its own": "a: !exec print(1)\n",
    "aliases": "a: &a [x]\nb: *a\n",
    "an alias bomb": "a: &a [x,x]\n"
    + "".join(f"{b}: &{b} [*{a},*{a}]\n" for a, b in zip("abcdefghij", "bcdefghijk", strict=True)),
    "a merge": "a: &a {x: 1}\nb:\n  <<: *a\n",
    "a key twice": "seed: 1\nseed: 2\n",
    "brackets": "a: " + "[" * 5_000,
    "a megabyte": "#" * 1_000_001,
    "a tab": "a:\n\t- b\n",
    "no date": "a: 2020-99-99\n",
    "5,000 digits": "a: " + "9" * 5000 + "\n",
    "a NUL": "a: \0\n",
    "an escape": "\x1b[2J: 1\n",
    "a null key": "null: 1\n",
    "a list for a key": "? [a]\n: 1\n",
    "a list": "- seed\n",
    "a class": "model:\n  _target_: os.system\n",
    "the environment": "seed: ${oc.env:HOME}\n",
    "a resolver": "name: ${oc.decode:'x'}\n",
}
CONFIGS = {**YAML, "nothing": "", "bytes": "\udcff\udcfe", "a text": "os.system\n", "a number": "3\n"}
EXPERIMENTS = {
    **YAML,
    "a class, deep": "# @package _global_\nhydra:\n  launcher:\n    - {_target_: os.system}\n",
    "a class for Hydra": "# @package _global_\nhydra:\n  callbacks:\n    x: {_target_: os.system}\n",
    "Hydra's resolver": "# @package _global_\nname: ${hydra:runtime.cwd}\n",
    "a resolver by way of another": "# @package _global_\nname: ${oc.${name}:x}\n",
    "a resolver in a resolver": "# @package _global_\ndata:\n  root: ${oc.decode:${oc.env:HOME}}\n",
    "a choice from the environment": "# @package _global_\ndefaults:\n  - override /model: ${oc.env:HOME}\n",
    "a name from the environment": "# @package _global_\nname: ${oc.env:USER}\n",
    "an address from the environment": "# @package _global_\ndata:\n  downloads:\n    - url: http://x/${oc.env:HOME}\n",
    "the environment, by a reference": "# @package _global_\nname: ${data.cache}\ndata: {cache: '${oc.env:HOME}'}\n",
}


def tar_of(*members: tuple[str, bytes, str]) -> bytes:
    """A tar archive of (name, type, link) members without content, and then of none that was asked for."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = kind, link, 0o4777
            tar.addfile(member)
    return buffer.getvalue()


def zip_member(name: str, mode: int = 0, content: bytes = b"x") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        member = zipfile.ZipInfo(name)
        member.external_attr = mode << 16
        archive.writestr(member, content)
    return buffer.getvalue()


ARCHIVES = {
    **{
        f"{kind} {name}": ("x.tar", lambda name=name, code=code: tar_of((name, code, f"../../{CANARY}")))
        for kind, code in {
            "the link": tarfile.SYMTYPE,
            "the hard link": tarfile.LNKTYPE,
            "the pipe": tarfile.FIFOTYPE,
            "the device": tarfile.CHRTYPE,
            "the disk": tarfile.BLKTYPE,
            "the folder": tarfile.DIRTYPE,
        }.items()
        for name in ("a.en", f"../{CANARY}", f"/tmp/{CANARY}")
    },
    "a tar that ends in its header": ("x.tar", lambda: tar_of(("a.en", tarfile.REGTYPE, ""))[:300]),
    "a tgz that is none": ("x.tgz", lambda: b"\x1f\x8b\x08" + bytes(100)),
    "a tar of tars": ("x.tar", lambda: tar_of(*[("././@LongLink", tarfile.GNUTYPE_LONGNAME, "")] * 3000)),
    "a tgz of zeros": ("x.tgz", lambda: gzip.compress(bytes(200_000_000), 1)),
    "the zipped link": ("x.zip", lambda: zip_member("a.en", stat.S_IFLNK | 0o777, b"/etc/passwd")),
    "the zipped device": ("x.zip", lambda: zip_member("a.en", stat.S_IFCHR)),
    "the zip that leads elsewhere": ("x.zip", lambda: zip_member(f"../{CANARY}")),
    "the zip that is cut": ("x.zip", lambda: zip_member("a.en")[:40]),
    "the zip with escapes": ("x.zip", lambda: zip_member("\x1b[2Ja.en")),
    "a pickle for a zip": ("x.zip", lambda: pickle.dumps(Bomb())),
}

# ---- Mutations of JSON that keep its hashes right

WRONG: list[Any] = [
    None,
    "x",
    [],
    {},
    -1,
    10**30,
    1e300,
    True,
    [[]],
    {"_target_": "os.system"},
    "${oc.env:HOME}",
    "../x",
]


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value in a JSON tree."""
    if path:
        yield path
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, child in children:
        yield from places(child, (*path, name))


def changed(tree: dict[str, Any], seed: int) -> dict[str, Any]:
    """`tree` with one value, anywhere, replaced by one of another kind, or taken out."""
    draw, tree = random.Random(seed), copy.deepcopy(tree)
    *above, name = draw.choice(list(places(tree)))
    node: Any = tree
    for step in above:
        node = node[step]
    if draw.random() < 0.2 and isinstance(node, dict):
        del node[name]
    else:
        node[name] = draw.choice(WRONG)
    return tree


# ---- One child for all of them


@dataclass(frozen=True)
class Job:
    kind: str
    argument: Any
    statuses: tuple[int, ...]
    named: str  # what its one line begins with


@dataclass(frozen=True)
class Outcome:
    job: Job
    status: int | str
    stdout: str
    stderr: str
    seconds: float
    peak_bytes: int


def jobs_in(folder: Path, good: Path, *, n_mutations: int) -> dict[str, Job]:
    """Every hostile file, written below `folder`, and what is to be done with it; `good` is a finished run."""
    jobs = {}
    for i, (name, make) in enumerate(MODELS.items()):
        file = folder / f"{i}.safetensors"
        file.write_bytes(make())
        whole = Job("command", ["translate", "--checkpoint", file.name], (4,), file.name)  # takes longer
        jobs[f"model: {name}"] = whole if name in CODE or i % 4 == 0 else Job("read", file.name, (4,), file.name)
        if i % 8 == 0:
            own = ["evaluate", "--checkpoint", file.name, "--source", "text", "--reference", "text"]
            jobs[f"evaluate: {name}"] = Job("command", own, (4,), file.name)
    for i in range(n_mutations):
        tokenizer = prepared().tokenizers.source.model_bytes
        (folder / f"spm-{i}.safetensors").write_bytes(with_tokenizer(mutated(tokenizer, i)))
        arguments = ["translate", "--checkpoint", f"spm-{i}.safetensors"]
        jobs[f"tokenizer: mutation {i}"] = Job("command", arguments, (0, 4), "")
        (folder / f"metadata-{i}.safetensors").write_bytes(forged(lambda m, i=i: _becomes(m, changed(m, i))))  # type: ignore[misc]
        jobs[f"metadata: mutation {i}"] = Job("read", f"metadata-{i}.safetensors", (0, 4), "")

    def copied(name: str) -> Path:
        shutil.copytree(good, folder / name, symlinks=True)
        return folder / name / "checkpoints" / "step-00000004"

    for i, (name, damage) in enumerate(MANIFESTS.items()):
        damage(copied(f"manifest-{i}"))
        shutil.rmtree(folder / f"manifest-{i}" / "checkpoints" / "step-00000002")
        jobs[f"manifest: {name}"] = Job("read", f"manifest-{i}", (4,), f"manifest-{i}")
    for i, (name, damage) in enumerate(STATES.items()):
        damage(copied(f"state-{i}"))
        shutil.rmtree(folder / f"state-{i}" / "checkpoints" / "step-00000002")
        jobs[f"state: {name}"] = Job("resume", f"state-{i}", (4,), "")
    state = json.loads((good / "checkpoints" / "step-00000004" / "state.json").read_bytes())
    for i in range(n_mutations):
        changed_state = json.dumps(changed(state, i)).encode()
        replaced("state.json", changed_state)(copied(f"json-{i}"))
        jobs[f"state: mutation {i}"] = Job("resume", f"json-{i}", (0, 3, 4), "")
    for i, (name, text) in enumerate(CONFIGS.items()):
        copied(f"config-{i}")
        (folder / f"config-{i}" / "config.yaml").write_bytes(text.encode("utf-8", "surrogateescape"))
        jobs[f"config.yaml: {name}"] = Job("open_run", f"config-{i}", (4,), f"config-{i}/config.yaml")
    copied("config-pipe")
    (folder / "config-pipe" / "config.yaml").unlink()
    os.mkfifo(folder / "config-pipe" / "config.yaml")
    jobs["config.yaml: a pipe"] = Job("open_run", "config-pipe", (4,), "config-pipe/config.yaml")
    for i, (name, content) in enumerate(
        {
            "garbage": b"\xff\0[[{\n" * 50,
            "brackets": b"[" * 100_000,
            "a pickle": pickle.dumps(Bomb()),
            "types": b'{"step": [], "kind": 3}\n3\n"x"\n{"step": 1e999, "kind": "train"}\n',
        }.items()
    ):
        for file in ("metrics.jsonl", "result.json"):
            copied(f"{file}-{i}")
            (folder / f"{file}-{i}" / file).write_bytes(content)
            jobs[f"{file}: {name}"] = Job("resume", f"{file}-{i}", (0,), "")
    for i, (name, text) in enumerate(EXPERIMENTS.items()):
        mine = folder / f"yaml-{i}" / "experiment"
        mine.mkdir(parents=True)
        (mine / "mine.yaml").write_text(text, encoding="utf-8")
        arguments = ["train", "--config-dir", f"yaml-{i}", "experiment=mine", "--cfg"]
        jobs[f"experiment: {name}"] = Job("command", arguments, (2,), "")
    for i, (name, (file_name, make)) in enumerate(ARCHIVES.items()):
        root = folder / f"archive-{i}"
        root.mkdir()
        (root / file_name).write_bytes(make())
        member = f"../{CANARY}" if ".." in name else f"/tmp/{CANARY}" if "/tmp" in name else "a.en"
        own = ["data.source_lang=en", "data.target_lang=de", f"data.root={root.name}", f"data.cache=cache-{i}"]
        arguments = ["prepare", "data=files", *own, f"data.train=['{file_name}::{member}','{file_name}::b']"]
        jobs[f"archive: {name}"] = Job("command", arguments, (3,), "")
    return jobs


def _becomes(tree: dict[str, Any], other: dict[str, Any]) -> None:
    tree.clear()
    tree.update(other)


def run_child(folder: Path, warm_up: list[tuple[str, Any]], jobs: list[Job]) -> tuple[int, list[Outcome], str]:
    """Exit status, what became of each job, and the last words of the child."""
    listed = [*warm_up, None, *((job.kind, job.argument) for job in jobs)]
    (folder / "jobs.json").write_text(json.dumps(listed), encoding="utf-8")
    program = "import sys; from tests.support.hostile_child import main; main(*sys.argv[1:])"
    child = run(["jobs.json", "results.jsonl"], folder, env={"TMPDIR": str(folder)}, program=program)
    results = folder / "results.jsonl"
    lines = results.read_text(encoding="utf-8").split("\n")[:-1] if results.exists() else []
    outcomes = [Outcome(job, **json.loads(line)) for job, line in zip(jobs, lines, strict=False)]
    return child.code, outcomes, child.err.decode()


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """What became of every hostile file, by its name."""
    return run_all(tmp_path_factory.mktemp("hostile"), n_mutations=10)


def run_all(folder: Path, *, n_mutations: int) -> dict[str, Outcome]:
    good = folder / "good"
    train(config(max_steps=4), prepared(), make(good), device=CPU)
    (good / "config.yaml").write_text(to_yaml(config()), encoding="utf-8")
    (folder / "good.safetensors").write_bytes(MODEL)
    (folder / "text").write_text("a b\n", encoding="utf-8")
    (folder / "precious").write_text("precious", encoding="utf-8")
    for name in ("again", "opened"):
        shutil.copytree(good, folder / name, symlinks=True)
    (folder / "plain.tsv").write_text("".join(f"{s}\t{s}\n" for s in sentences(400, seed=3)), encoding="utf-8")
    (folder / "experiment").mkdir()
    shutil.copytree(good, folder / "shipped", symlinks=True)
    (folder / "shipped" / "result.json").unlink()
    jobs = jobs_in(folder, good, n_mutations=n_mutations)
    own = ["data=files", "data.source_lang=en", "data.target_lang=de", "data.tokenizer.vocab_size=20"]
    warm_up = [
        ("command", ["translate", "--checkpoint", "good.safetensors"]),
        ("command", ["evaluate", "--checkpoint", "good.safetensors", "--source", "text", "--reference", "text"]),
        ("command", ["prepare", *own, "data.train=plain.tsv"]),
        ("command", ["train", "--config-dir", "experiment", "--cfg"]),
        ("read", "good"),
        ("resume", "again"),
        ("resume", "shipped"),
        ("resume", "fresh"),
        ("open_run", "opened"),
    ]
    make(folder / "fresh")
    status, outcomes, words = run_child(folder, warm_up, list(jobs.values()))
    named = list(jobs)
    assert status == 0, f"{named[len(outcomes) : len(outcomes) + 1]} ended the child ({status}): {words[-500:]}"
    assert not list(folder.rglob(CANARY)), "something was run"
    assert not Path(f"/tmp/{CANARY}").exists()
    assert (folder / "precious").read_text(encoding="utf-8") == "precious"
    return dict(zip(named, outcomes, strict=True))


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def check(outcome: Outcome) -> None:
    """The contract of a refusal: its status, one line that begins with the file, nothing else, at once."""
    job = outcome.job
    assert outcome.status in job.statuses, outcome
    lines = outcome.stderr.split("\n")[:-1]
    errors = [line for line in lines if line.startswith("tfm: error: ")]
    assert len(errors) == (0 if outcome.status == 0 else 1), outcome
    assert "Traceback" not in outcome.stderr
    assert all(line.isprintable() for line in lines), outcome
    if outcome.status != 0:
        assert errors[0].startswith(f"tfm: error: {job.named}")
        assert len(errors[0]) < 4100
        assert outcome.stdout == ""
    assert outcome.seconds < SECONDS


# How many files there are of each kind, and what they are (rows of the matrix).
KINDS = {
    "model": len(MODELS),  # F1: code, F2: a table of contents that lies, F5: metadata and tensors
    "evaluate": len(range(0, len(MODELS), 8)),
    "manifest": len(MANIFESTS),  # F4
    "state": len(STATES),  # F4, F5
    "tokenizer": 0,  # F10: mutations alone
    "metadata": 0,  # F5: mutations alone
    "experiment": len(EXPERIMENTS),  # F7
    "config.yaml": len(CONFIGS) + 1,  # F7
    "metrics.jsonl": 4,  # F5: what a run writes for people may be anything
    "result.json": 4,
    "archive": len(ARCHIVES),  # F8
}
MUTATED = ("tokenizer", "metadata", "state")


def check_kind(ran: dict[str, Outcome], kind: str, *, n_mutations: int) -> None:
    found = {name: outcome for name, outcome in ran.items() if name.split(":")[0] == kind}
    assert len(found) == KINDS[kind] + n_mutations * (kind in MUTATED)
    for outcome in found.values():
        check(outcome)
        assert kind != "experiment" or os.environ["HOME"] not in outcome.stderr
    assert kind not in MUTATED[:2] or any(outcome.status == 4 for outcome in found.values())


@pytest.mark.parametrize("kind", KINDS)
def test_F1_F2_F4_F5_F7_F8_F10_a_hostile_file_is_refused_in_one_line_and_runs_nothing(
    ran: dict[str, Outcome], kind: str
) -> None:
    check_kind(ran, kind, n_mutations=10)


@pytest.mark.nightly
def test_F10_five_hundred_changes_of_each_kind_end_in_one_line(
    tmp_path: Path, figures: Callable[[str, str], None]
) -> None:
    outcomes = run_all(tmp_path, n_mutations=500)
    for kind in KINDS:
        check_kind(outcomes, kind, n_mutations=500)
    figures("hostile files with mutations", f"{len(outcomes)} read, 0 executed")


def test_every_hostile_file_was_read(ran: dict[str, Outcome], figures: Callable[[str, str], None]) -> None:
    refused = sum(outcome.status != 0 for outcome in ran.values())
    assert len(ran) == sum(KINDS.values()) + 10 * len(MUTATED) > 220
    figures("hostile files", f"{len(ran)} read, 0 executed, {refused} refused in one line, the others harmless")


def test_F3_nothing_that_a_file_claims_takes_memory(ran: dict[str, Outcome]) -> None:
    peaks = [outcome.peak_bytes for outcome in ran.values()]
    assert max(peaks) - peaks[0] < GROWTH


def test_F3_a_file_larger_than_memory_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(MODEL)
    try:
        os.truncate(file, 10**13)  # takes no room on the disk
    except OSError as error:
        pytest.skip(f"no disk for sparse files of this size: {error}")
    with pytest.raises(CheckpointError, match=r"larger than this machine's memory \(10,000,000,000,000 bytes\)"):
        read_model(file)


@pytest.mark.parametrize("name", ["../precious", "/dev/zero", "zero"])
def test_F4_the_manifest_of_a_cache_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    cache = make(tmp_path / "cache")
    (tmp_path / "precious").touch()
    (cache / "zero").symlink_to("/dev/zero")
    (cache / "manifest.json").write_text(json.dumps({"files": {name: {"size": 0, "sha256": "0"}}}), encoding="utf-8")
    ensure_folder(cache, lambda folder: (folder / "ids").touch())
    assert sorted(path.name for path in cache.iterdir()) == ["ids", "manifest.json"]


# ---- The check itself can fail


BAD_LOADERS = {
    "unpickling": "import pickle; pickle.loads(Path('bomb').read_bytes())",
    "running a file": "exec(Path('script').read_text())",
    "evaluating a text": "eval(Path('script').read_text())",
    "YAML that calls": "import yaml; yaml.unsafe_load('!!python/object/apply:os.system [touch canary]')",
    "a shell": "import subprocess; subprocess.run('touch canary', shell=True)",
    "a system call": "os.system('touch canary')",
    "another program": "os.posix_spawn('/usr/bin/touch', ['touch', 'canary'], {})",
    "a fork": "os.fork()",
    "the network": "import socket; socket.socket().connect(('127.0.0.1', 9))",
    "a foreign library": "import ctypes; ctypes.CDLL('libc.so.6')",
    "a module beside the data": "import beside",
    "a file elsewhere": "open('../canary', 'w')",
    "a link that leads elsewhere": "open('away', 'w')",
}


@pytest.mark.parametrize("name", BAD_LOADERS)
def test_F1_the_hook_sees_a_loader_that_is_not_safe(tmp_path: Path, name: str) -> None:
    folder = make(tmp_path / "folder")
    (folder / "bomb").write_bytes(pickle.dumps(Bomb()))
    for file in ("script", "beside.py"):
        (folder / file).write_text("__import__('pathlib').Path('canary').touch()", encoding="utf-8")
    (folder / "away").symlink_to("../canary")
    statuses, there = [], []
    for armed in (True, False):
        loader = "import codecs, ctypes, os, pickle, socket, subprocess, sys, yaml\nfrom pathlib import Path\n"
        loader += f"from tests.support.hostile_child import arm\n{'arm()' if armed else ''}\n{BAD_LOADERS[name]}"
        statuses.append(
            subprocess.run(
                [sys.executable, "-c", loader],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": f"{ROOT}:{folder}"},
                capture_output=True,
                check=False,
                timeout=60,
            ).returncode
        )
        there.append(bool(list(tmp_path.rglob(CANARY))))
    assert statuses[0] == FIRED
    assert statuses[1] != FIRED
    assert not there[0]
    assert there[1] or name in ("a fork", "the network", "a foreign library")  # which leave nothing behind


def test_F1_the_hook_sees_torch_load(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(saved(Bomb()))
    loader = "import torch\nfrom tests.support.hostile_child import arm\n"
    loader += "torch.save({}, 'warm'); torch.load('warm', weights_only=False)\narm()\n"
    loader += "torch.load('model.pt', weights_only=False)"
    ran = run([], tmp_path, program=loader)
    assert ran.code == FIRED, ran.err
    assert b"pickle.find_class" in ran.err
    assert not (tmp_path / CANARY).exists()


# ---- Secrets, the working folder, and planted links


SECRET = "S3cr3t-AKIAIOSFODNN7"


def test_F6_a_value_from_the_environment_is_used_and_never_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(make(tmp_path / "work"))
    monkeypatch.setenv("TFM_SECRET", f"{tmp_path}/{SECRET}/")
    corpus = make(tmp_path / SECRET) / "own.tsv"
    corpus.write_text("".join(f"{s}\t{s}\n" for s in sentences(300, seed=3)), encoding="utf-8")
    arguments = [
        *("train", "name=toy", "data=files", "recipe=files"),
        *("data.root=${oc.env:TFM_SECRET}", "data.cache=${oc.env:TFM_SECRET}/cache"),
        *("data.train=own.tsv", "data.source_lang=en", "data.target_lang=de", "data.tokenizer.vocab_size=20"),
        *("model.d_model=16", "model.d_ff=16", "model.n_heads=2", "model.n_encoder_layers=1"),
        *("model.n_decoder_layers=1", "train.max_steps=2", "train.save_every=1", "train.log_every=1", "device=cpu"),
        *("decode=greedy", "decode.max_extra_length=2", "train.tokens_per_update=300"),
    ]
    assert main(arguments) == 0
    assert (corpus.parent / "cache").is_dir()
    assert main(["evaluate", "decode=greedy", "decode.max_extra_length=2"]) == 0  # reads the run's config.yaml
    assert main([*arguments, "train.max_steps=3"]) == 0
    assert main([*arguments, "--cfg"]) == 0
    assert main([*arguments, "data.train=absent.tsv", "name=other"]) == 3  # says which file is missing
    corpus.unlink()
    corpus.parent.chmod(0o755)
    assert main([*arguments, "train.max_steps=4"]) == 3
    printed = "".join(capfd.readouterr())
    assert "${oc.env:TFM_SECRET}" in printed
    assert SECRET not in printed
    files = [path for path in Path().rglob("*") if path.is_file()]
    assert any(b"${oc.env:TFM_SECRET}" in path.read_bytes() for path in files)
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    monkeypatch.delenv("TFM_SECRET")
    assert main(arguments) == 2
    assert "TFM_SECRET is not set in the environment" in capfd.readouterr().err


@pytest.mark.parametrize("key", ["seed", "name", "data.name", "model.d_model", "data.train", "device", "runs"])
def test_F6_what_would_be_written_down_does_not_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    monkeypatch.setenv("TFM_SECRET", SECRET)
    assert main(["train", f"{key}=${{oc.env:TFM_SECRET}}", "--cfg"]) == 2
    captured = capsys.readouterr()
    assert f"{key}=${{oc.env:TFM_SECRET}}: only data.root and data.cache may come from" in captured.err
    assert SECRET not in captured.out + captured.err


def test_F6_a_model_does_not_read_the_environment(ran: dict[str, Outcome]) -> None:
    outcome = ran["model: the interpolation ${oc.env:HOME}"]
    check(outcome)
    assert "'${oc.env:HOME}' is not supported" in outcome.stderr


def test_F11_no_name_or_text_reaches_the_terminal_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    escape = "\x1b[2J\x07\r\n\u202eevil"
    Path(escape).write_bytes(b"not a model")
    for arguments in (
        ["translate", "--checkpoint", escape],
        ["translate", "--input", f"{escape}x"],
        ["train", f"data.train={escape}"],
        ["train", "--config-dir", escape],
        [escape],
    ):
        assert main(arguments) in (2, 3, 4)
        (line,) = capsys.readouterr().err.split("\n")[:-1]
        assert line.isprintable()
        assert "evil" in line


def test_F12_a_module_beside_the_corpus_is_not_imported(tmp_path: Path) -> None:
    bin_folder, work = make(tmp_path / "bin"), make(tmp_path / "work")
    for name in ("torch", "yaml", "numpy", "sentencepiece", "hydra", "safetensors", "transformer_cli", "json"):
        (work / f"{name}.py").write_text(f"open({CANARY!r}, 'w')", encoding="utf-8")
    (bin_folder / "tfm").write_text(  # what pip installs
        "import sys\nfrom transformer_cli.cli import entry_point\nsys.exit(entry_point())\n", encoding="utf-8"
    )
    (work / "model.safetensors").write_bytes(MODEL)
    child = subprocess.run(
        [sys.executable, str(bin_folder / "tfm"), "translate", "--checkpoint", "model.safetensors"],
        cwd=work,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=b"a b\n",
        capture_output=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert not (work / CANARY).exists()


@pytest.mark.parametrize("name", ["tfm.log", "metrics.jsonl", ".owner", ".lock", "config.yaml", "model.safetensors"])
def test_F13_a_planted_link_is_not_written_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    precious = tmp_path / "precious"
    precious.write_text("precious", encoding="utf-8")
    run_dir = tmp_path / "runs" / "toy"
    run_dir.mkdir(parents=True)
    (run_dir / name).symlink_to(precious)
    toy = replace(config(max_steps=2), name="toy")
    followed = {"tfm.log", ".lock"}  # the others are replaced
    refusal = pytest.raises((TfmError, OSError), match=re.escape(name)) if name in followed else nullcontext()
    with refusal, open_run(toy) as opened:
        train(toy, prepared(), opened, device=CPU)
    assert precious.read_text(encoding="utf-8") == "precious"


def test_F13_a_temporary_folder_that_leads_elsewhere_is_not_emptied(tmp_path: Path) -> None:
    kept = make(tmp_path / "kept") / "precious"
    kept.touch()
    store = CheckpointStore(make(tmp_path / "run"))
    make(store.folder)
    (store.folder / ".tmp-step-00000001").symlink_to(kept.parent)
    with pytest.raises(EnvironmentFault):
        store.sweep()
    assert kept.exists()
