"""From the LLVM text of a module to code that runs, with a cache of object code on disk.

``llvmlite`` is a plain wheel with LLVM inside. It is imported and initialized at the first use.
"""

import hashlib
import importlib.metadata
import importlib.util
import itertools
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

CACHE_BYTES = 512 * 2**20
"""The cache on disk is cut back to this size now and then, the least recently used code first."""

OLDEST = (0, 45)
"""The oldest version of llvmlite that works: LLVM 20."""

BITS = 256
"""The length of the vectors that kernels use, on every CPU that is not in the next table."""

LONG_VECTORS = {"znver5": 512}
"""CPUs, by LLVM's names, on which longer vectors were measured to be faster."""

_FORMAT = b"rbd_jax lanes 1"  # changes when cached files of before are not to be used any more
_DIGEST = hashlib.sha256().digest_size
_names = itertools.count()


class Code:
    """Object code in memory, ready to run; it is freed when the last reference is dropped.

    Whoever calls it, or registers its addresses anywhere, must keep this object.
    """

    def __init__(self, obj: bytes):
        llvm = bindings()
        self._symbols: dict[str, Any] = {}
        self._name = f"lanes{next(_names)}"
        # An engine of its own: one for all would remember the name of every library for good.
        self._engine = llvm.create_lljit_compiler(_target(2), use_jit_link=True)
        builder = llvm.JITLibraryBuilder().add_object_img(obj).add_current_process()
        self._library = builder.link(self._engine, self._name)

    def address(self, symbol: str) -> int:
        """Address of a function or variable that is visible outside its module.

        Raises:
            RuntimeError: there is none of this name, or it needs one that the process lacks.
        """
        if symbol not in self._symbols:
            self._symbols[symbol] = self._engine.lookup(self._name, symbol)
        return self._symbols[symbol][symbol]

    def __del__(self):
        # The order matters: the engine goes last.
        owned = (*getattr(self, "_symbols", {}).values(), getattr(self, "_library", None))
        for part in (*owned, getattr(self, "_engine", None)):
            if part is not None and not sys.is_finalizing():
                part.close()


@cache
def available() -> bool:
    """Whether llvmlite is installed, in a version whose LLVM knows the text that is written."""
    if importlib.util.find_spec("llvmlite") is None:
        return False
    numbers = importlib.metadata.version("llvmlite").split(".")[:2]
    return tuple(map(int, numbers)) >= OLDEST


def compile(text: str, opt: int | None = None) -> bytes:
    """Object code for this machine's CPU of a module in LLVM text, from the cache if it is there.

    Args:
        text: the module. Where it wants vectors wider than LLVM likes to use on this CPU, its
            functions say so (``"prefer-vector-width"="512"``).
        opt: how much to optimize, 0 to 3; by default the environment variable RBD_JAX_LANES_OPT,
            or 2. Loops are never vectorized: lanes already are.
    """
    opt = int(os.environ.get("RBD_JAX_LANES_OPT", "2")) if opt is None else opt
    path = _cached(text, opt)
    found = _read(path) if path else None
    if found is None:
        found = _target(opt).emit_object(_optimized(text, opt))
        if path:
            _write(path, found)
    return found


def load(obj: bytes) -> Code:
    """Object code put into memory, its symbols of the C library resolved from this process."""
    return Code(obj)


def assembly(text: str, opt: int = 2) -> str:
    """What :func:`compile` makes of a module, to look at."""
    return _target(opt).emit_assembly(_optimized(text, opt))


@cache
def bindings() -> Any:
    """The bindings of LLVM, initialized for this machine."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@cache
def _host() -> tuple[str, str]:
    """Name and features of the CPU."""
    llvm = bindings()
    try:
        features = llvm.get_host_cpu_features().flatten()
    except RuntimeError:  # LLVM cannot tell on some platforms
        features = ""
    return llvm.get_host_cpu_name(), features


def vector_bits() -> int:
    """The longest vectors that are fast on this CPU."""
    return LONG_VECTORS.get(_host()[0], BITS)


def _target(opt: int) -> Any:
    """A machine to compile for; position independent, as all of a module is loaded in one piece."""
    cpu, features = _host()
    return (
        bindings()
        .Target.from_default_triple()
        .create_target_machine(
            cpu=cpu, features=features, opt=opt, reloc="pic", codemodel="small", jit=True
        )
    )


def _optimized(text: str, opt: int) -> Any:
    """The module after LLVM's passes, for this machine."""
    return optimized(text, _target(opt), opt)


def optimized(text: str, target: Any, opt: int) -> Any:
    """The module after LLVM's passes, for a machine."""
    llvm = bindings()
    module = llvm.parse_assembly(text)
    module.triple = target.triple
    module.data_layout = str(target.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=opt)
    options.loop_vectorization = False
    # a kernel of one sample has no vectors yet: rows of a product become some
    options.slp_vectorization = " x double>" not in text and " x float>" not in text
    builder = llvm.create_pass_builder(target, options)
    passes = builder.getModulePassManager()
    passes.run(module, builder)
    _free(passes)
    return module


def _free(passes: Any) -> None:
    """Free a list of passes, 74 KiB, which llvmlite up to 0.50 does not do by itself."""
    ffi = bindings().ffi
    free = getattr(ffi.lib, "LLVMPY_DisposeNewModulePassManger", None)
    if free is not None and type(passes)._dispose is ffi.ObjectRef._dispose:
        free(passes)


def _cached(text: str, opt: int) -> Path | None:
    """Where the object code of a module is on disk, or None if there is no cache."""
    folder = _folder()
    if folder is None:
        return None
    import llvmlite

    version = ".".join(map(str, bindings().llvm_version_info))
    parts = (
        text,
        str(opt),
        *_host(),
        bindings().get_process_triple(),
        llvmlite.__version__,
        version,
    )
    digest = hashlib.sha256(_FORMAT)
    for part in parts:
        digest.update(f"\n{len(part)}\n{part}".encode())
    return folder / f"{digest.hexdigest()}.o"


def _folder() -> Path | None:
    """The folder of the cache: ``RBD_JAX_CACHE_DIR``, or where this platform keeps caches."""
    named = os.environ.get("RBD_JAX_CACHE_DIR")
    if named is not None:
        return Path(named) if named else None
    try:
        if sys.platform == "win32":
            base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
        elif sys.platform == "darwin":
            base = Path.home() / "Library" / "Caches"
        else:
            base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # nobody's home
        return None
    return Path(base) / "rbd_jax" / "lanes"


def _read(path: Path) -> bytes | None:
    """The object code in a file of the cache, or None if it is missing or damaged."""
    try:
        content = path.read_bytes()
        os.utime(path)  # used just now
    except OSError:
        return None
    obj = content[_DIGEST:]
    return obj if hashlib.sha256(obj).digest() == content[:_DIGEST] else None


def _write(path: Path, obj: bytes) -> None:
    """Put object code into the cache, all of it or nothing. A cache that fails is no error."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(obj).digest() + obj)
            os.replace(draft, path)
        except BaseException:
            os.unlink(draft)
            raise
        if int(path.stem[:2], 16) < 8:  # one name in 32
            _trim(path.parent)
    except OSError:
        pass


def _trim(folder: Path) -> None:
    """Remove the files used longest ago until the cache has its size."""
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if entry.is_file(follow_symlinks=False):
                    files.append((entry.stat().st_mtime, entry.stat().st_size, entry.path))
            except FileNotFoundError:  # another process has moved or removed it meanwhile
                continue
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= CACHE_BYTES:
            break
        Path(path).unlink(missing_ok=True)
        total -= size
