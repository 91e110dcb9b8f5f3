"""From the LLVM text of a module to code that runs, with object code from :mod:`._object_cache`.

``llvmlite`` is a plain wheel with LLVM inside. It is imported and initialized at the first use.

llvmlite holds a lock during every call of LLVM, so that only one thread could compile at a time.
LLVM needs no such lock for modules of different contexts, so each module here has a context of its
own, and the two long calls, the passes and the emission of code, go to LLVM without the lock.
"""

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import itertools
import os
import re
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from .._progress import phase
from . import _object_cache

OLDEST = (0, 45)
"""The oldest version of llvmlite that works: LLVM 20."""

BITS = 256
"""The length of the vectors that kernels use, on every CPU that is not in the next table."""

LONG_VECTORS = {"znver5": 512}
"""CPUs, by LLVM's names, on which longer vectors were measured to be faster."""

LONG_TEXT = 10_000
"""Kernels of vectors with more lines than this go through :data:`FEW_PASSES` alone.

LLVM's usual passes, which take two and a half times as long, made no such kernel faster by more
than the noise of a few percent; some became slower. Shorter kernels have loops that the usual
passes improve.

A kernel of one sample becomes vectors in the usual passes, which makes it up to 1.4 times as fast.
With more lines than this it goes through the passes of LLVM's first level, which do the same. They
take four fifths of the time, and steps of scenes run as fast.
"""

UNROLLED_TEXT = 4_000
"""In kernels with more lines than this LLVM unrolls no loop.

Lanes unrolls short loops while it writes them. That LLVM unrolls others made no such kernel faster,
and its search for addresses in what it had unrolled took up to nine tenths of the time of a kernel.
"""

WITHOUT_ROWS = '"lanes-rows"="none"'
"""By this attribute of functions a text says that LLVM shall not look for rows to make vectors of.

The writer of a kernel decides it, by the rule in ``ir/_row_work``. It stands in the text, so that
each choice has object code of its own in the cache.
"""

FEW_PASSES = ("instruction_combine", "simplify_cfg")
"""LLVM's passes for long kernels, in their order, as llvmlite names them.

``dead_store_elimination`` is left out: it makes no kernel faster, and took 4.5 s for a step of a
hand that holds a block. ``new_gvn``, which finds equal values, is left out too: it makes no kernel
faster, and it fails on very long ones, with an assertion that ends the process.
"""

_FORMAT = b"rbd_jax lanes 5"  # changes when cached files of before are not to be used any more
_names = itertools.count()
_DECLARED = re.compile(r"^declare [^@]*@([\w.]+)\(", re.MULTILINE)


class Code:
    """Object code in memory, ready to run; it is freed when the last reference is dropped.

    Whoever calls it, or registers its addresses anywhere, must keep this object. What LLVM says to
    errors is printed, unless it shall be ``quiet``.
    """

    def __init__(self, obj: bytes, quiet: bool = False):
        llvm = bindings()
        self._symbols: dict[str, Any] = {}
        self._name = f"lanes{next(_names)}"
        # An engine of its own: one for all would remember the name of every library for good.
        self._engine = llvm.create_lljit_compiler(
            _target(2), use_jit_link=True, suppress_errors=quiet
        )
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
    opt = _level(opt)
    key = _key(text, opt)
    found = _object_cache.read(key)
    return _made(text, opt, key) if found is None else found


def load(text: str, *symbols: str, opt: int | None = None) -> Code:
    """A module in LLVM text, compiled and put into memory.

    Object code from the cache that cannot be loaded, or that lacks a symbol, is compiled again.

    Args:
        text: the module. Its symbols of the C library are resolved from this process.
        symbols: names that the module defines, visible outside.
        opt: as for :func:`compile`.

    Raises:
        RuntimeError: the text is wrong, or it lacks a symbol, or it needs one that the process
            lacks.
    """
    opt = _level(opt)
    key = _key(text, opt)
    found = _object_cache.read(key)
    if found is not None:
        with suppress(RuntimeError):
            return _with(symbols, found, quiet=True)
    return _with(symbols, _made(text, opt, key))


def load_later(text: str, *symbols: str) -> Callable[[], Code] | None:
    """A function that gives what :func:`load` gives, and that another thread may call.

    It is None where :func:`load` is better called at once: the code is in the cache, or the process
    seems to lack a symbol.

    Raises:
        RuntimeError: the text is wrong.
    """
    opt = _level(None)
    key = _key(text, opt)
    names = [name for name in _DECLARED.findall(text) if not name.startswith("llvm.")]
    if _object_cache.has(key) or None in map(bindings().address_of_symbol, names):
        return None
    target = _target(opt)
    module = _parsed(text, target)

    def finish() -> Code:
        with phase("compile"):
            obj = _emitted(_passed(module, text, target, opt), target)
        _object_cache.write(key, obj)
        return _with(symbols, obj)

    return finish


def _with(symbols: tuple[str, ...], obj: bytes, quiet: bool = False) -> Code:
    """Object code in memory, which has these symbols."""
    code = Code(obj, quiet)
    for symbol in symbols:
        code.address(symbol)
    return code


def _made(text: str, opt: int, key: str) -> bytes:
    """Object code that LLVM makes, put into the cache."""
    with phase("compile"):
        obj = _emitted(_optimized(text, opt), _target(opt))
    _object_cache.write(key, obj)
    return obj


def _level(opt: int | None) -> int:
    return int(os.environ.get("RBD_JAX_LANES_OPT", "2")) if opt is None else opt


def _key(text: str, opt: int) -> str:
    """What the object code of a module on this machine is called in the cache."""
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
    return digest.hexdigest()


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
    return _passed(_parsed(text, target), text, target, opt)


def _parsed(text: str, target: Any) -> Any:
    """The module of a text, which LLVM has found to be right."""
    llvm = bindings()
    context = llvm.create_context()
    module = llvm.parse_assembly(text, context)
    # the module goes before its context, which the collector of cycles would not see to
    module._owned = context._owned = True
    weakref.finalize(module, _freed, module._ptr, context._ptr).atexit = False
    module.triple = target.triple
    module.data_layout = str(target.target_data)
    module.verify()
    return module


def _freed(module: Any, context: Any) -> None:
    library = bindings().ffi.lib
    library.LLVMPY_DisposeModule(module)
    library.LLVMPY_ContextDispose(context)


def _passed(module: Any, text: str, target: Any, opt: int) -> Any:
    """The module after LLVM's passes."""
    llvm = bindings()
    lines = text.count("\n")
    of_vectors = " x double>" in text or " x float>" in text
    level = min(opt, 1) if lines > LONG_TEXT and not of_vectors else opt
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = False
    options.loop_unrolling = lines <= UNROLLED_TEXT
    # a kernel of one sample has no vectors yet: rows of a product become some
    options.slp_vectorization = not of_vectors and WITHOUT_ROWS not in text
    builder = llvm.create_pass_builder(target, options)
    if of_vectors and opt > 1 and lines > LONG_TEXT:
        passes = llvm.create_new_module_pass_manager()
        for name in FEW_PASSES:
            getattr(passes, f"add_{name}_pass")()
    else:
        passes = builder.getModulePassManager()
    _unlocked().LLVMPY_RunNewModulePassManager(passes, module, builder)
    _free(passes)
    return module


def _emitted(module: Any, target: Any) -> bytes:
    """The object code of a module."""
    library, error = _unlocked(), ctypes.c_char_p()
    made = library.LLVMPY_TargetMachineEmitToMemory(target, module, 1, ctypes.byref(error))
    if not made:
        raise RuntimeError((error.value or b"LLVM emits no code").decode(errors="replace"))
    buffer = ctypes.c_void_p(made)
    try:
        start, size = library.LLVMPY_GetBufferStart(buffer), library.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(start, size)
    finally:
        library.LLVMPY_DisposeMemoryBuffer(buffer)


@cache
def _unlocked() -> ctypes.CDLL:
    """LLVM's functions as llvmlite has them, without its lock."""
    library = ctypes.CDLL(bindings().ffi.lib._name)
    library.LLVMPY_RunNewModulePassManager.restype = None
    library.LLVMPY_TargetMachineEmitToMemory.restype = ctypes.c_void_p
    library.LLVMPY_GetBufferStart.restype = ctypes.c_void_p
    library.LLVMPY_GetBufferSize.restype = ctypes.c_size_t
    library.LLVMPY_DisposeMemoryBuffer.restype = None
    return library


def _free(passes: Any) -> None:
    """Free a list of passes, 74 KiB, which llvmlite up to 0.50 does not do by itself."""
    ffi = bindings().ffi
    free = getattr(ffi.lib, "LLVMPY_DisposeNewModulePassManger", None)
    if free is not None and type(passes)._dispose is ffi.ObjectRef._dispose:
        free(passes)
