"""From LLVM text to running code, and the cache of object code on disk."""

import ctypes
import gc
import hashlib
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")

from support.lane_kernels import handler  # noqa: E402

from rbd_jax.lanes.llvm import _compiler, _object_cache  # noqa: E402

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
    texts, optimized = [], _compiler._optimized
    note = lambda text, opt: texts.append((text, opt)) or optimized(text, opt)  # noqa: E731
    monkeypatch.setattr(_compiler, "_optimized", note)
    return texts


def sine(obj: bytes) -> float:
    return value(_compiler.Code(obj))


def value(code: _compiler.Code) -> float:
    """The sine of one."""
    return ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(code.address("sine"))(1.0)


def test_code_runs(folder):
    """Functions of the C library are those of this process; what is missing is an error."""
    assert sine(_compiler.compile(SINE)) == pytest.approx(0.8414709848078965, abs=1e-15)
    code = _compiler.load(SINE, "sine")
    with pytest.raises(RuntimeError, match="cosine"):
        code.address("cosine")
    assert code.address("sine") == code.address("sine")
    with pytest.raises(RuntimeError, match="expected"):
        _compiler.compile("define nonsense")
    with pytest.raises(RuntimeError, match="sine"):
        _compiler.load(SINE.replace("@sin(", "@nowhere("), "sine")
    with pytest.raises(RuntimeError, match="cosine"):
        _compiler.load(SINE, "cosine")


def test_assembly():
    """Loops stay scalar, vectors are as wide as the text says."""
    assert "sine" in _compiler.assembly(SINE)
    scalar = _compiler.assembly(SUM, opt=3)
    assert "xmm" not in scalar and "ymm" not in scalar and ".2d" not in scalar
    if "+avx512f" in _compiler._host()[1]:
        assert "zmm" in _compiler.assembly(ADD)


def test_cache_hit(folder, emitted):
    """The second time nothing is compiled; another text or level is something else."""
    first = _compiler.compile(SINE)
    assert _compiler.compile(SINE) == first and len(emitted) == 1
    assert len(list(folder.iterdir())) == 1
    _compiler.compile(SINE, opt=1)
    _compiler.compile(ADD)
    assert len(emitted) == 3 and len(list(folder.iterdir())) == 3


@pytest.mark.parametrize("damage", [b"", b"x", b"x" * 5000, "cut", "flipped"])
def test_cache_damaged(folder, emitted, damage):
    """A damaged file is compiled again and replaced."""
    good = _compiler.compile(SINE)
    (path,) = folder.iterdir()
    content = path.read_bytes()
    changed = {"cut": content[:-1], "flipped": content[:-9] + b"?" + content[-8:]}
    path.write_bytes(changed.get(damage, damage))
    assert sine(_compiler.compile(SINE)) == sine(good) and len(emitted) == 2
    assert path.read_bytes() == content and len(list(folder.iterdir())) == 1


def signed(path: Path, obj: bytes) -> bytes:
    """Content with the right digest for a file of the cache."""
    return hashlib.sha256(bytes.fromhex(path.stem) + obj).digest() + obj


@pytest.mark.parametrize("wrong", ["noise", "empty", "cut", "32 bits", "machine", "symbols"])
def test_cache_with_wrong_code(folder, emitted, capfd, wrong):
    """Where the digest is right and the code is not, it is compiled again and replaced."""
    good = _compiler.compile(SINE)
    (path,) = folder.iterdir()
    content = path.read_bytes()
    assert content == signed(path, good)
    other = _compiler.compile(SUM)
    objects = {"noise": bytes(range(256)) * 20, "empty": b"", "cut": good[: len(good) // 2]}
    objects |= {"symbols": other, "32 bits": good[:4] + b"\1" + good[5:]}
    objects |= {"machine": good[:18] + b"\xf3\0" + good[20:]}  # ELF's e_machine: RISC-V
    path.write_bytes(signed(path, objects[wrong]))
    assert value(_compiler.load(SINE, "sine")) == sine(good) and len(emitted) == 3
    assert path.read_bytes() == content and capfd.readouterr().err == ""


def test_cache_binds_code_to_its_name(folder, emitted):
    """A good file under the name of another one is compiled again."""
    _compiler.compile(SINE)
    (sine_path,) = folder.iterdir()
    other = _compiler.compile(SUM)
    (sum_path,) = set(folder.iterdir()) - {sine_path}
    shutil.copy(sine_path, sum_path)
    assert _compiler.compile(SUM) == other and len(emitted) == 3


posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes are those of POSIX")
as_root = pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0, reason="only root gives files away"
)


@posix
@pytest.mark.parametrize(
    "folder_mode, file_mode",
    [(0o777, 0o600), (0o770, 0o600), (0o1777, 0o600), (0o700, 0o666), (0o700, 0o620)],
)
def test_cache_that_others_may_write(folder, emitted, folder_mode, file_mode):
    """Neither used nor written, with one warning that says what is wrong and what to do."""
    _compiler.compile(SINE)
    (path,) = folder.iterdir()
    path.chmod(file_mode)
    folder.chmod(folder_mode)
    wrong = folder if folder_mode != 0o700 else path
    text = rf"{wrong} .*mode 0?{wrong.stat().st_mode & 0o7777:o}.*chmod go-w.*RBD_JAX_CACHE_DIR"
    with pytest.warns(RuntimeWarning, match=text) as caught:
        _compiler.compile(SINE)
        _compiler.compile(SINE, opt=1)
    assert len(caught) == 1
    if wrong is folder:
        assert len(emitted) == 3 and list(folder.iterdir()) == [path]
    else:  # replaced, as the folder is ours
        assert _compiler.compile(SINE) and len(emitted) == 3
        assert path.stat().st_mode & 0o777 == 0o600


@as_root
@pytest.mark.parametrize("whose", ["folder", "file"])
def test_cache_of_another_user(folder, emitted, whose):
    """Root does not run what another user may have written."""
    _compiler.compile(SINE)
    (path,) = folder.iterdir()
    os.chown(folder if whose == "folder" else path, 12345, 12345)
    with pytest.warns(RuntimeWarning, match="belongs to the user 12345, and this process runs as"):
        _compiler.compile(SINE)
    assert len(emitted) == 2
    assert list(folder.iterdir()) == [path] and path.stat().st_uid == 0


@as_root
def test_cache_of_root(folder, monkeypatch):
    """A user runs what root has put there, also where it may only be read."""
    obj = _compiler.compile(SINE)
    (path,) = folder.iterdir()
    key, owner = path.stem, path.stat().st_uid
    for x, mode in (folder, 0o755), (path, 0o644):
        x.chmod(mode)
    for x in folder.parents:  # the user has to come here
        if x.stat().st_uid == owner and x != Path(x.anchor):
            x.chmod(x.stat().st_mode | 0o011)
    program = f"""if True:
        import os, sys
        sys.path.insert(0, {str(Path(_object_cache.__file__).parent)!r})
        import _object_cache
        os.setgid(12345); os.setuid(12345)
        assert not os.access({str(folder)!r}, os.W_OK)
        sys.stdout.buffer.write(_object_cache.read({key!r}))
        _object_cache.write({"1" * 64!r}, b"no")
    """
    command = [sys.executable, "-W", "error", "-c", program]
    assert subprocess.run(command, check=True, capture_output=True, timeout=60).stdout == obj
    assert list(folder.iterdir()) == [path]


@posix
def test_cache_follows_no_links(folder, emitted, tmp_path):
    """A link in the place of a file is a miss, and so is a pipe; a link to the folder is fine."""
    _compiler.compile(SINE)
    (path,) = folder.iterdir()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    _compiler.compile(SINE)
    assert len(emitted) == 2 and not path.is_symlink()
    path.unlink()
    os.mkfifo(path)
    _compiler.compile(SINE)
    assert len(emitted) == 3 and path.is_file()
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    _compiler.compile(SINE)
    assert len(emitted) == 3


def test_cache_that_may_only_be_read(folder, emitted, monkeypatch):
    """Code is found although the time of its use cannot be written down."""

    def utime(*args, **kwargs):
        raise OSError(30, "Read-only file system")

    obj = _compiler.compile(SINE)
    monkeypatch.setattr(os, "utime", utime)
    assert _compiler.compile(SINE) == obj and len(emitted) == 1


def test_cache_off(folder, emitted, monkeypatch):
    """An empty name turns the cache off; a folder that cannot be made is no error."""
    monkeypatch.setenv("RBD_JAX_CACHE_DIR", "")
    assert _compiler.compile(SINE) == _compiler.compile(SINE)
    folder.parent.mkdir()
    folder.write_text("a file")
    monkeypatch.setenv("RBD_JAX_CACHE_DIR", str(folder))
    assert _compiler.compile(SINE) and len(emitted) == 3
    assert folder.read_text() == "a file"


def test_cache_default(monkeypatch, tmp_path):
    """Without the variable, the cache is where the platform keeps such things."""
    monkeypatch.delenv("RBD_JAX_CACHE_DIR", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _object_cache.folder() == tmp_path / "rbd_jax" / "lanes"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert _object_cache.folder() == Path.home() / ".cache" / "rbd_jax" / "lanes"


def old(folder: Path, age: int) -> Path:
    return folder / f"{age:064x}.o"


def test_cache_is_bounded(folder, monkeypatch):
    """The files used longest ago go first, a hit counts as use, and files of others stay."""
    size = len(_compiler.compile(SINE)) + 32
    (used,) = folder.iterdir()
    for age in range(1, 6):
        old(folder, age).write_bytes(b"x" * size)
        os.utime(old(folder, age), (1e9 - age, 1e9 - age))
    (folder / "data.o").write_bytes(b"x" * 10 * size)
    os.utime(folder / "data.o", (1e9 - 20, 1e9 - 20))
    os.utime(used, (1e9 - 10, 1e9 - 10))
    _compiler.compile(SINE)
    monkeypatch.setattr(_object_cache, "BYTES", 3 * size)
    _object_cache.trim(folder)
    assert {p.name for p in folder.iterdir()} == {
        used.name, old(folder, 1).name, old(folder, 2).name, "data.o",
    }  # fmt: skip


def test_cache_is_bounded_while_others_remove_files(folder, monkeypatch):
    """A file that is listed but gone a moment later does not stop the cleaning."""
    folder.mkdir(parents=True)
    for age in range(3):
        old(folder, age).write_bytes(b"x" * 10)
        os.utime(old(folder, age), (1e9 - age, 1e9 - age))
    real = os.scandir

    @contextmanager
    def scandir(path):
        with real(path) as entries:
            found = list(entries)
        old(folder, 1).unlink()
        yield found

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(_object_cache, "BYTES", 10)
    _object_cache.trim(folder)
    monkeypatch.undo()
    assert {p.name for p in folder.iterdir()} == {old(folder, 0).name}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="counts memory by /proc")
def test_dropped_code_is_freed(folder):
    """Three hundred kernels of 1 MiB, loaded and dropped, leave less than 10 MiB behind."""
    text = TRIVIAL.format("x" * 2**20) + handler()
    obj = _compiler.compile(text)
    assert len(obj) > 2**20

    def pages() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1])

    def load() -> None:
        code = _compiler.Code(obj)
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
        _compiler.compile(SUM.replace("i64 0", f"i64 {k}"))
    assert (pages() - before) * 4096 < 2**20


def test_import_is_lazy():
    """Importing the modules neither needs llvmlite nor starts it, and says if it is missing."""
    program = """if True:
        import sys
        from rbd_jax.lanes.xla import _kernel_table
        from rbd_jax.lanes.llvm import _compiler
        assert "llvmlite" not in sys.modules and _compiler.available()
        assert "llvmlite" not in sys.modules
        import importlib.util
        importlib.util.find_spec = lambda name: None
        _compiler.available.cache_clear()
        assert not _compiler.available()
    """
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
