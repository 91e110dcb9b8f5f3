"""What a browser is told: a client of viser's websocket, and a reader of its recordings."""

import base64
import re
import time
from typing import Any

import msgspec
import numpy as np
import zstandard


def _arrays(message: Any, blob: bytes, starts: list[int], lengths: list[int]) -> Any:
    """The message with its arrays, flat, in place of their numbers."""
    if isinstance(message, dict):
        if "__binary_index" in message:
            k = message["__binary_index"]
            return np.frombuffer(blob[starts[k] : starts[k] + lengths[k]], message["dtype"])
        return {key: _arrays(x, blob, starts, lengths) for key, x in message.items()}
    if isinstance(message, list | tuple):
        return [_arrays(x, blob, starts, lengths) for x in message]
    return message


def _unpacked(packed: bytes, blob: bytes, offset: int) -> dict:
    """The payload, its arrays taken from ``blob``, where they start at multiples of eight."""
    payload = msgspec.msgpack.decode(packed)
    lengths, starts = payload["binaryBufferLengths"], []
    for length in lengths:
        offset += -offset % 8
        starts.append(offset)
        offset += length
    return _arrays(payload, blob, starts, lengths)


class Scene:
    """The nodes of a scene, after all messages that were applied."""

    def __init__(self):
        self.nodes: dict[str, dict] = {}

    def apply(self, message: dict) -> None:
        name = message.get("name")
        if "props" in message:
            self.nodes[name] = dict(message["props"])
        elif "updates" in message and name in self.nodes:
            self.nodes[name] |= message["updates"]

    def pose(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        node = self.nodes[name]
        return (
            node["batched_wxyzs"].reshape(-1, 4).astype(float),
            node["batched_positions"].reshape(-1, 3).astype(float),
        )


class Client(Scene):
    """A client that is connected to a viewer, in the place of a browser."""

    def __init__(self, url: str):
        import viser
        from websockets.sync.client import connect

        super().__init__()
        address = url.replace("http", "ws", 1)
        protocol: Any = f"viser-v{viser.__version__}"
        self._socket = connect(address, subprotocols=[protocol], max_size=None)

    def listen(self, until, seconds: float = 20.0) -> None:
        """Apply messages until ``until(self)`` holds."""
        end = time.monotonic() + seconds
        while not until(self):
            raw = self._socket.recv(timeout=max(end - time.monotonic(), 0.01))
            size = int.from_bytes(raw[8:16], "little")
            packed = zstandard.ZstdDecompressor().decompress(raw[16 : 16 + size])
            for message in _unpacked(packed, raw, 16 + size)["messages"]:
                self.apply(message)

    def close(self) -> None:
        self._socket.close()


def recorded(page: str) -> list[tuple[float, dict]]:
    """The messages of a static page with their times."""
    data = base64.b64decode(re.search(r'__VISER_EMBED_DATA__="([^"]*)"', page)[1])
    inner = zstandard.ZstdDecompressor().decompress(data[8:])
    size = int.from_bytes(inner[:8], "little")
    return _unpacked(inner[8 : 8 + size], inner, 8 + size)["messages"]
