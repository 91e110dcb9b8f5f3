"""Kernels that another process has written, found by what their programs compute.

Reading a program and writing its kernel takes about as long as LLVM does. So the text is kept on
disk beside the object code that was made of it. Its name says everything that it depends on: the
program, which operands all samples share, the vectors of this machine, the settings and the version
of JAX, and our own code.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .._jax_internals import trace_context
from ..frontend._fingerprint import fingerprint
from ..llvm import _compiler, _object_cache
from ._kernel import Text

_KIND = "kernel"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def found_or_made(closed, how: Any, make: Callable[[], tuple[Text, int]]) -> tuple[Text, int]:
    """The text of a program and its width, from the cache if it is there.

    Args:
        closed: the program.
        how: what else the text depends on, whose ``repr`` is the same in every process.
        make: the function that writes it.
    """
    name = _name(closed, how)
    if name is None:
        return make()
    stored = _object_cache.read(name, _KIND)
    if stored is not None:
        head, _, text = stored.partition(b"\n")
        width, *rest = json.loads(head)
        return Text(zlib.decompress(text).decode(), *rest), width
    made, width = make()
    head = json.dumps([width, made.symbol, made.shared_bytes, made.scratch_bytes]).encode()
    _object_cache.write(name, head + b"\n" + zlib.compress(made.text.encode(), 1), _KIND)
    return made, width


def _name(closed, how: Any) -> str | None:
    """Under which name a text is kept; None if it is not."""
    sources = _sources()
    if _object_cache.folder() is None or sources is None:
        return None
    program = fingerprint(closed)
    if program is None:
        return None
    settings = _ADDRESS.sub("", repr(trace_context()))
    versions = jax.__version__, np.__version__, sources
    parts = program, how, _compiler.vector_bits(), settings, versions
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@cache
def _sources() -> str | None:
    """A digest of the code of lanes; None where there is no such folder, as in an archive."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest() if files else None
