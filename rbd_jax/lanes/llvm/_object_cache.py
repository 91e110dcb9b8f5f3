"""The cache on disk of object code, and of what says which object code a program takes.

What is read here is executed. So the rules are those of OpenSSH for keys: the folder and the file
belong to this user or to root, and nobody else may write to them. Both are opened first, and then
the open descriptor is asked, so that nothing can be exchanged in between. The folders above are
not asked: whoever may write there can put another folder in place of this one, but only one of
this user, with files of this user. A file says in its first bytes what its name and its content
are, so that a file under another name is a miss. On Windows, where the folder lies in the user's
profile, which the system keeps from others, only that is checked.
"""

import hashlib
import os
import re
import stat
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BYTES = 512 * 2**20
"""The cache is cut back to this size now and then, the least recently used code first."""

_DIGEST = hashlib.sha256().digest_size
_POSIX = os.name == "posix"
_OURS = re.compile(r"[0-9a-f]{64}\.(o|kernel)|lanes-.*\.draft")
"""Names of files that this module writes. Others in the folder are left alone."""
_warned: set[Path] = set()
"""The folders of which a warning has been given."""


def folder() -> Path | None:
    """The folder of the cache: ``RBD_JAX_CACHE_DIR``, or where this platform keeps caches.

    It is None if there is no cache, as with an empty ``RBD_JAX_CACHE_DIR``.
    """
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


def read(key: str, kind: str = "o") -> bytes | None:
    """What was written under a key of 64 hexadecimal digits.

    It is None if it is missing, if it is damaged, or if others may have written it.

    Args:
        key: the name.
        kind: ``"o"`` for object code, ``"kernel"`` for LLVM text.
    """
    place = folder()
    if place is None:
        return None
    name = f"{key}.{kind}"
    try:
        with _opened(place) as at, os.fdopen(_file(place, at, name), "rb") as file:
            content = file.read()
            with suppress(OSError):  # a cache that may only be read
                os.utime(file.fileno() if os.utime in os.supports_fd else place / name)
    except OSError:
        return None
    obj = content[_DIGEST:]
    return obj if _digest(key, obj) == content[:_DIGEST] else None


def has(key: str, kind: str = "o") -> bool:
    """Whether there is a file of this name. What it contains may still be of no use."""
    place = folder()
    return place is not None and (place / f"{key}.{kind}").exists()


def write(key: str, obj: bytes, kind: str = "o") -> None:
    """Put something into the cache, all of it or nothing. A cache that fails is no error."""
    place = folder()
    if place is None:
        return
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _opened(place):
            handle, draft = tempfile.mkstemp(dir=place, prefix="lanes-", suffix=".draft")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(key, obj) + obj)
            os.replace(draft, place / f"{key}.{kind}")
        except BaseException:
            os.unlink(draft)
            raise
        if int(key[:2], 16) < 8:  # one key in 32
            trim(place)
    except OSError:
        pass


def trim(place: Path) -> None:
    """Remove the files used longest ago until the cache has its size."""
    files = []
    with os.scandir(place) as entries:
        for entry in entries:
            try:
                if _OURS.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    files.append((entry.stat().st_mtime, entry.stat().st_size, entry.path))
            except FileNotFoundError:  # another process has moved or removed it meanwhile
                continue
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= BYTES:
            break
        Path(path).unlink(missing_ok=True)
        total -= size


def _digest(key: str, obj: bytes) -> bytes:
    return hashlib.sha256(bytes.fromhex(key) + obj).digest()


@contextmanager
def _opened(place: Path) -> Iterator[int | None]:
    """A descriptor of the folder, which is safe to use; None on Windows.

    Raises:
        OSError: there is no such folder, or others may write to it.
    """
    if not _POSIX:
        yield None
        return
    handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _check(place, handle)
        yield handle
    finally:
        os.close(handle)


def _file(place: Path, at: int | None, name: str) -> int:
    """A descriptor of a file, which is safe to read.

    Raises:
        OSError: there is no such file, or it is none, or others may write to it.
    """
    if at is None:
        return os.open(place / name, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    # without O_NONBLOCK, a pipe of this name would wait for somebody who writes
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    try:
        _check(place / name, handle)
    except OSError:
        os.close(handle)
        raise
    return handle


def _check(path: Path, handle: int) -> None:
    """Raise where others than this user and root may have written what is open.

    One warning for each folder says why.
    """
    status = os.fstat(handle)
    kind = "folder" if stat.S_ISDIR(status.st_mode) else "file"
    if kind == "file" and not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path} is no file")
    user = os.geteuid()
    if status.st_uid not in (0, user):
        why = f"it belongs to the user {status.st_uid}, and this process runs as {user}"
        remedy = "Let"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = f"others than its owner may write to it (mode {stat.S_IMODE(status.st_mode):04o})"
        remedy = f"If nobody has done so, `chmod go-w {path}` is enough; otherwise let"
    else:
        return
    folder = path if kind == "folder" else path.parent
    if folder not in _warned:
        _warned.add(folder)
        warnings.warn(
            f"the {kind} {path} of the cache of compiled code is not used: {why}, and code from "
            f"there would be executed. {remedy} RBD_JAX_CACHE_DIR name a folder of your own, or "
            f"be empty for no cache.",
            RuntimeWarning,
            stacklevel=2,
        )
    raise PermissionError(why)
