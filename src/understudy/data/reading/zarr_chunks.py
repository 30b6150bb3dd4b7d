"""Zarr stores on disk whose chunks unpack to what they state, and to no more.

A chunk states its size by the shape of all chunks and the type of their values. What it
unpacks to is up to its bytes: 33 kB can become a gigabyte. And Blosc's unpacker
believes the length that a chunk states of itself: of a chunk that is cut off it reads
whatever lies behind it in memory.

Guarantee: a chunk reaches its unpacker only if it unpacks to no more than it may, and
is as long as it says.
Edges: any other → SchemaError. So are arrays in shards and arrays that are packed
twice: where the inner chunks are, and how long, stands in the chunks themselves.
"""

import asyncio
import bz2
import gzip
import io
import math
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import zarr
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, WrapperStore

from understudy.ground.errors import Effect, SchemaError

MOST_ROWS = 1 << 28  # of an array: whose each of them is, is held
_MOST_BYTES = 1 << 31  # of a chunk
_TEXT = 1 << 10  # bytes of a text that is a person's or a class's name, on average
_SLACK = 1 << 10  # bytes of a chunk beside its values
_PIECE = 1 << 20  # bytes that are unpacked at a time to see how many there are
# codecs that do not pack
_PLAIN = {"bytes", "delta", "shuffle", "transpose", "vlen-utf8"}
_DESCRIPTIONS = {"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}


def checked_arrays(path: Path) -> dict[str, Any]:
    """The arrays of a store by their names, or the only one by the name "". Nothing of
    their chunks is read yet.
    """
    store = _CheckedStore(LocalStore(path, read_only=True))
    opened = zarr.open(store, mode="r")
    arrays: dict[str, Any] = (
        {"": opened} if isinstance(opened, zarr.Array) else dict(opened.arrays())
    )
    for name, array in arrays.items():
        store.chunks[name] = _Chunk.from_array(array, path.name)
    return arrays


@dataclass(frozen=True)
class _Chunk:
    """What each chunk of one array may be. `packer`: the codec that packs it, "" for
    none.
    """

    source: str
    packer: str
    limit: int  # bytes when it is unpacked

    @classmethod
    def from_array(cls, array: Any, source: str) -> "_Chunk":
        codecs = _codec_names(array)
        packers = [name for name in codecs if name in _UNPACKED]
        readable = set(codecs) <= _PLAIN | {*_UNPACKED} and packers in ([], codecs[-1:])
        values = math.prod(array.chunks)
        item_bytes = _TEXT if "vlen-utf8" in codecs else max(8, array.dtype.itemsize)
        if not readable or not array.shape or values * item_bytes > _MOST_BYTES:
            raise SchemaError(
                f"{source}: an array has codecs or chunks that are not read here.",
                effect=Effect.NOTHING_READ,
            )
        if array.shape[0] > MOST_ROWS:
            raise SchemaError(
                f"{source}: an array has more than {MOST_ROWS:,} rows.",
                effect=Effect.NOTHING_READ,
            )
        return cls(source, packers[0] if packers else "", values * item_bytes + _SLACK)

    def check(self, data: bytes) -> None:
        unpacked = (
            _UNPACKED[self.packer](data, self.limit) if self.packer else len(data)
        )
        if unpacked > self.limit:
            raise SchemaError(
                f"{self.source}: a chunk unpacks to more than the {self.limit:,} bytes "
                "that it may have.",
                effect=Effect.NOTHING_READ_FURTHER,
            )


class _CheckedStore(WrapperStore[LocalStore]):
    """A store on disk that looks at each chunk before it hands it on. `chunks`: of each
    array, by its name.
    """

    def __init__(self, store: LocalStore) -> None:
        super().__init__(store)
        self.chunks: dict[str, _Chunk] = {}

    async def get(
        self,
        key: str,
        prototype: BufferPrototype,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        data = await super().get(key, prototype, byte_range)
        folder, _, file = key.rpartition("/")
        if data is None or file in _DESCRIPTIONS:
            return data
        chunk = (
            self.chunks[""]
            if "" in self.chunks
            else self.chunks[folder.partition("/")[0]]
        )
        await asyncio.to_thread(chunk.check, data.to_bytes())
        return data

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, ByteRequest | None]],
    ) -> list[Buffer | None]:
        return [
            await self.get(key, prototype, byte_range) for key, byte_range in key_ranges
        ]


def _codec_names(array: Any) -> list[str]:
    """In the order in which they are applied to what is written."""
    if array.metadata.zarr_format == 2:
        return [codec.codec_id for codec in (*array.filters, *array.compressors)]
    return [
        str(codec.to_dict()["name"]).removeprefix("numcodecs.")
        for codec in array.metadata.codecs
    ]


# How many bytes a chunk unpacks to, or any number above the limit


def _counted(stream: Any, limit: int) -> int:
    count = 0
    while count <= limit:
        piece = stream.read(_PIECE)
        if not piece:
            break
        count += len(piece)
    return count


def _gzip(data: bytes, limit: int) -> int:
    return _counted(gzip.GzipFile(fileobj=io.BytesIO(data)), limit)


def _bz2(data: bytes, limit: int) -> int:
    return _counted(bz2.BZ2File(io.BytesIO(data)), limit)


def _zstd(data: bytes, limit: int) -> int:
    return _counted(pa.CompressedInputStream(pa.BufferReader(data), "zstd"), limit)


def _zlib(data: bytes, limit: int) -> int:
    return len(zlib.decompressobj().decompress(data, limit + 1))


def _lz4(data: bytes, limit: int) -> int:
    """As numcodecs writes it: the size comes first, and no more than that is
    unpacked.
    """
    return int.from_bytes(data[:4], "little")


def _blosc(data: bytes, limit: int) -> int:
    """Its header has the unpacked and the packed size."""
    unpacked = int.from_bytes(data[4:8], "little")
    packed = int.from_bytes(data[12:16], "little")
    if len(data) < 16 or packed != len(data):
        raise ValueError("cut off")
    return unpacked


_UNPACKED: dict[str, Callable[[bytes, int], int]] = {
    "blosc": _blosc,
    "bz2": _bz2,
    "gzip": _gzip,
    "lz4": _lz4,
    "zlib": _zlib,
    "zstd": _zstd,
}
