"""NVIDIA's assembler of PTX: where it is, whether it accepts a text, and what it says of it.

It needs no GPU. It comes with the CUDA toolkit and with a wheel: ``pip install nvidia-cuda-nvcc``.
The disassembler, which is not required, lists the instructions of the GPU: ``pip install
nvidia-cuda-nvdisasm``.
"""

import importlib.metadata
import re
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

_WHEELS = {
    "ptxas": ("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu13", "nvidia-cuda-nvcc-cu12"),
    "nvdisasm": ("nvidia-cuda-nvdisasm",),
}
"""Tool -> the wheels that may have it."""


class Usage(NamedTuple):
    """What a thread of an entry takes: registers of 32 bits, and bytes; seconds for all entries.

    ``sass``: the instructions of the GPU in its text; None without the disassembler.
    """

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    seconds: float
    sass: int | None


@cache
def path(tool: str = "ptxas") -> str | None:
    """Where the assembler or the disassembler is, that of a wheel first, or None."""
    for wheel in _WHEELS[tool]:
        try:
            files = importlib.metadata.files(wheel) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == tool:
                return str(file.locate())
    return shutil.which(tool)


def version() -> str:
    """The release of the assembler."""
    said = subprocess.run([path() or "ptxas", "--version"], capture_output=True, text=True).stdout
    found = re.search(r"V([\d.]+)", said)
    return found[1] if found else "unknown"


def assemble(text: str, entry: str, cpu: str = "sm_90") -> Usage:
    """Assemble PTX, and read what one of its entries takes.

    Raises:
        RuntimeError: the assembler is missing, or does not accept the text.
    """
    tool = path()
    if tool is None:
        raise RuntimeError("ptxas is missing: pip install nvidia-cuda-nvcc")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(text)
        binary = str(source.with_suffix(".cubin"))
        command = [tool, f"-arch={cpu}", "-v", str(source), "-o", binary]
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - start
        sass = None if done.returncode else _instructions(binary, entry)
    said = done.stdout + done.stderr
    if done.returncode:
        raise RuntimeError(f"ptxas does not accept the text: {said.strip()}")
    _, _, own = said.partition(f"Compiling entry function '{entry}'")
    own = own.partition("Compiling entry function")[0]
    kinds = (
        r"Used (\d+) registers",
        r"(\d+) bytes stack",
        r"(\d+) bytes spill s",
        r"(\d+) bytes spill l",
    )
    return Usage(*(int(_number(kind, own)) for kind in kinds), seconds, sass)


def _instructions(binary: str, entry: str) -> int | None:
    """How many instructions an entry has, where the disassembler is."""
    tool = path("nvdisasm")
    if tool is None:
        return None
    done = subprocess.run([tool, "-c", binary], capture_output=True, text=True, check=True)
    return instructions_in(done.stdout, entry)


def instructions_in(listing: str, entry: str) -> int:
    """The instructions of an entry in what the disassembler writes, without the padding."""
    own = listing.partition(f"\n.text.{entry}:\n")[2].partition("//--------")[0]
    return len(re.findall(r"^ +/\*[0-9a-f]+\*/ +(?! |NOP)", own, re.M))


def _number(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else "0"
