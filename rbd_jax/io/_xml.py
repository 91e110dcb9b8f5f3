"""Reading the XML of robot descriptions: lenient with harmless faults, without outside access."""

import os
import re
from pathlib import Path
from typing import Any, NoReturn, Protocol, runtime_checkable

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from ..model import RobotDescriptionError


@runtime_checkable
class Readable(Protocol):
    """An open file, in text or binary mode."""

    def read(self) -> Any:
        """All of it."""


Source = str | bytes | os.PathLike | Readable
_SKIPPED = re.compile(r"<!\[CDATA\[.*?\]\]>|<!--.*?-->", re.DOTALL)
_PREFIXES = re.compile(r"[<\s/]([A-Za-z_][\w.-]*):[A-Za-z_]")
_BLANK = "\ufeff\0 \t\r\n"
_ROOT = re.compile(r"<[A-Za-z_][^\s/>]*")


def fail(where: str, text: str) -> NoReturn:
    """Raise a :class:`RobotDescriptionError` that starts with ``where`` (file and line)."""
    raise RobotDescriptionError(f"{where}: {text}")


def read_source(source: Source) -> tuple[str, str]:
    """The text of a description and the name to call it by in messages.

    Args:
        source: a path, an XML string (its first character that is not blank is ``<``), bytes of
            XML, or an open file.

    Raises:
        RobotDescriptionError: if there is no such file, or it cannot be read or decoded.
    """
    if isinstance(source, str) and source.strip(_BLANK)[:1] in ("", "<"):
        return source, "<string>"
    if isinstance(source, bytes):
        return _decode(source, "<bytes>"), "<bytes>"
    if not isinstance(source, (str, os.PathLike)):
        if not isinstance(source, Readable):
            raise TypeError(
                f"source is a {type(source).__name__}; give a path, an XML string or an open file"
            )
        data, where = source.read(), str(getattr(source, "name", "<file>"))
        return (data if isinstance(data, str) else _decode(data, where)), where
    path = Path(os.fsdecode(source))
    if path.is_dir():
        fail(str(path), "is a directory; give the path of the URDF file in it")
    try:
        return _decode(path.read_bytes(), str(path)), str(path)
    except (OSError, ValueError) as error:
        if isinstance(error, RobotDescriptionError):
            raise
        reason = getattr(error, "strerror", None) or error
        text = f"cannot be read ({reason}); check the path (an XML string starts with '<')"
        raise RobotDescriptionError(f"{str(path)[:200]!r}: {text}") from None


def _decode(data: bytes, where: str) -> str:
    """Text of the bytes, by byte order mark or XML declaration; UTF-8 if neither says more."""
    declared = re.match(rb"\s*<\?xml[^>]*encoding\s*=\s*[\"']([\w.-]+)", data[:200])
    encoding = declared.group(1).decode() if declared else "utf-8"
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    try:
        return data.decode("utf-8-sig" if encoding.lower() == "utf-8" else encoding)
    except (UnicodeDecodeError, LookupError) as error:
        fail(where, f"is not {encoding} text ({error}); save it as UTF-8")


def _clean(text: str) -> str:
    """The text without the faults that other readers accept; every line keeps its number."""
    text = text.replace("\r\n", "\n").lstrip("\ufeff").rstrip("\0 \t\r\n")
    text = _SKIPPED.sub(lambda m: "\n" * m.group().count("\n"), text)
    declaration = re.match(r"\s*<\?xml.*?\?>", text, re.DOTALL)
    if declaration:
        text = "\n" * declaration.group().count("\n") + text[declaration.end() :]
    used = set(_PREFIXES.findall(text)) - {"xml", "xmlns"}
    missing = [p for p in sorted(used) if not re.search(rf"xmlns:{re.escape(p)}\s*=", text)]
    declare = "".join(f' xmlns:{p}="urn:undeclared:{p}"' for p in missing)
    return _ROOT.sub(lambda m: m.group() + declare, text, count=1)


def parse_xml(source: Source) -> tuple[Any, str]:
    """The root element of a description, and the name to call the source by in messages.

    Like other readers, it accepts blank lines before the XML declaration, a byte order mark, NUL
    bytes at the end, ``--`` inside a comment, and undeclared namespace prefixes. Nothing outside
    the text is ever fetched: a DOCTYPE, which can define entities, is refused.

    Raises:
        RobotDescriptionError: for an unreadable source, an empty one, a DOCTYPE, broken XML.
    """
    text, where = read_source(source)
    if not text.strip(_BLANK):
        fail(where, "is empty; a robot description starts with <robot name='...'>")
    text = _clean(text)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        line = text[: re.search("<!(DOCTYPE|ENTITY)", text).start()].count("\n") + 1  # pyright: ignore
        fail(f"{where}:{line}", "has a DOCTYPE or an entity, which is refused; remove it")
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        return etree.fromstring(text.encode(), parser), where
    except etree.XMLSyntaxError as error:
        fail(f"{where}:{error.lineno}", f"is not well-formed XML: {error.msg}")
    except UnicodeEncodeError as error:
        fail(where, f"holds text that no encoding can write ({error}); save it as UTF-8")
