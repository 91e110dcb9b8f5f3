"""From LLVM text to running code, and the cache of object code on disk."""

import ctypes
import gc
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")

from support.lane_kernels import handler  # noqa: E402

from rbd_jax.lanes import _machine  # noqa: E402

SINE = """
declare double @sin(double)
define double @sine(double %x) {
  %y = call double @sin(double %x)
  ret double %y
}
"""
ADD = """
define void @add(ptr %p) "prefer-vector-width"="512" "min-legal-vector-width"="512" {
  %x = load <16 x float>, ptr %p
  %y = fadd <16 x float> %x, %x
  store <16 x float> %y, ptr %p
  ret void
}
"""
# A sum over an array, which LLVM would like to compute with vectors.
SUM = """
define i64 @sum(ptr %p, i64 %n) {
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k.next, %loop ]
  %s = phi i64 [ 0, %entry ], [ %s.next, %loop ]
  %at = getelementptr i64, ptr %p, i64 %k
  %x = load i64, ptr %at
  %s.next = add i64 %s, %x
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %n
  br i1 %more, label %loop, label %end
end:
  ret i64 %s.next
}
"""
TRIVIAL = """
@table = global [1048576 x i8] c"{}"
define internal void @prologue(ptr %args, ptr %shared) {{
  ret void
}}
define internal void @block(ptr %args, ptr %rets, ptr %shared, ptr %scratch, i64 %first) {{
  ret void
}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache of its own, that does not exist yet."""
    monkeypatch.setenv("RBD_JAX_CACHE_DIR", str(tmp_path / "a" / "cache"))
    return tmp_path / "a" / "cache"


@pytest.fixture
def emitted(monkeypatch):
    """The texts that LLVM had to compile."""
    texts, optimized = [], _machine._optimized
    note = lambda text, opt: texts.append((text, opt)) or optimized(text, opt)  # noqa: E731
    monkeypatch.setattr(_machine, "_optimized", note)
    return texts


def sine(obj: bytes) -> float:
    code = _machine.load(obj)
    return ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(code.address("sine"))(1.0)


def test_code_runs(folder):
    """Functions of the C library are those of this process; what is missing is an error."""
    assert sine(_machine.compile(SINE)) == pytest.approx(0.8414709848078965, abs=1e-15)
    code = _machine.load(_machine.compile(SINE))
    with pytest.raises(RuntimeError, match="cosine"):
        code.address("cosine")
    assert code.address("sine") == code.address("sine")
    with pytest.raises(RuntimeError, match="expected"):
        _machine.compile("define nonsense")
    with pytest.raises(RuntimeError, match="nowhere"):
        _machine.load(_machine.compile(SINE.replace("@sin(", "@nowhere("))).address("nowhere")


def test_assembly():
    """Loops stay scalar, vectors are as wide as the text says."""
    assert "sine" in _machine.assembly(SINE)
    scalar = _machine.assembly(SUM, opt=3)
    assert "xmm" not in scalar and "ymm" not in scalar and ".2d" not in scalar
    if "+avx512f" in _machine._host()[1]:
        assert "zmm" in _machine.assembly(ADD)


def test_cache_hit(folder, emitted):
    """The second time nothing is compiled; another text or level is something else."""
    first = _machine.compile(SINE)
    assert _machine.compile(SINE) == first and len(emitted) == 1
    assert len(list(folder.iterdir())) == 1
    _machine.compile(SINE, opt=1)
    _machine.compile(ADD)
    assert len(emitted) == 3 and len(list(folder.iterdir())) == 3


@pytest.mark.parametrize("damage", [b"", b"x", b"x" * 5000, "cut", "flipped"])
def test_cache_damaged(folder, emitted, damage):
    """A damaged file is compiled again and replaced."""
    good = _machine.compile(SINE)
    (path,) = folder.iterdir()
    content = path.read_bytes()
    changed = {"cut": content[:-1], "flipped": content[:-9] + b"?" + content[-8:]}
    path.write_bytes(changed.get(damage, damage))
    assert sine(_machine.compile(SINE)) == sine(good) and len(emitted) == 2
    assert path.read_bytes() == content and len(list(folder.iterdir())) == 1


def test_cache_off(folder, emitted, monkeypatch):
    """An empty name turns the cache off; a folder that cannot be made is no error."""
    monkeypatch.setenv("RBD_JAX_CACHE_DIR", "")
    assert _machine.compile(SINE) == _machine.compile(SINE)
    folder.parent.mkdir()
    folder.write_text("a file")
    monkeypatch.setenv("RBD_JAX_CACHE_DIR", str(folder))
    assert _machine.compile(SINE) and len(emitted) == 3
    assert folder.read_text() == "a file"


def test_cache_default(monkeypatch, tmp_path):
    """Without the variable, the cache is where the platform keeps such things."""
    monkeypatch.delenv("RBD_JAX_CACHE_DIR", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _machine._folder() == tmp_path / "rbd_jax" / "lanes"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert _machine._folder() == Path.home() / ".cache" / "rbd_jax" / "lanes"


def test_cache_is_bounded(folder, monkeypatch):
    """The files used longest ago go first, and a hit counts as use."""
    size = len(_machine.compile(SINE)) + 32
    (used,) = folder.iterdir()
    for age in range(1, 6):
        (folder / f"old{age}.o").write_bytes(b"x" * size)
        os.utime(folder / f"old{age}.o", (1e9 - age, 1e9 - age))
    os.utime(used, (1e9 - 10, 1e9 - 10))
    _machine.compile(SINE)
    monkeypatch.setattr(_machine, "CACHE_BYTES", 3 * size)
    _machine._trim(folder)
    assert {p.name for p in folder.iterdir()} == {used.name, "old1.o", "old2.o"}


def test_cache_is_bounded_while_others_remove_files(folder, monkeypatch):
    """A file that is listed but gone a moment later does not stop the cleaning."""
    folder.mkdir(parents=True)
    for age in range(3):
        (folder / f"old{age}.o").write_bytes(b"x" * 10)
        os.utime(folder / f"old{age}.o", (1e9 - age, 1e9 - age))
    real = os.scandir

    @contextmanager
    def scandir(path):
        with real(path) as entries:
            found = list(entries)
        (folder / "old1.o").unlink()
        yield found

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(_machine, "CACHE_BYTES", 10)
    _machine._trim(folder)
    monkeypatch.undo()
    assert {p.name for p in folder.iterdir()} == {"old0.o"}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="counts memory by /proc")
def test_dropped_code_is_freed(folder):
    """Three hundred kernels of 1 MiB, loaded and dropped, leave less than 10 MiB behind."""
    text = TRIVIAL.format("x" * 2**20) + handler()
    obj = _machine.compile(text)
    assert len(obj) > 2**20

    def pages() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1])

    def load() -> None:
        code = _machine.load(obj)
        assert ctypes.string_at(code.address("table"), 2**20).count(b"x") == 2**20
        assert code.address("handler")

    for _ in range(5):
        load()
    before = pages()
    for _ in range(300):
        load()
    assert (pages() - before) * 4096 < 10 * 2**20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="counts memory by /proc")
def test_compiling_leaves_nothing(monkeypatch):
    """A hundred modules compiled one after the other, none of them from the cache."""
    monkeypatch.setenv("RBD_JAX_CACHE_DIR", "")

    def pages() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1])

    for k in range(120):
        if k == 20:
            before = pages()
        _machine.compile(SUM.replace("i64 0", f"i64 {k}"))
    assert (pages() - before) * 4096 < 2**20


def test_import_is_lazy():
    """Importing the modules neither needs llvmlite nor starts it, and says if it is missing."""
    program = """if True:
        import sys
        from rbd_jax.lanes import _handler, _machine
        assert "llvmlite" not in sys.modules and _machine.available()
        assert "llvmlite" not in sys.modules
        import importlib.util
        importlib.util.find_spec = lambda name: None
        _machine.available.cache_clear()
        assert not _machine.available()
    """
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
