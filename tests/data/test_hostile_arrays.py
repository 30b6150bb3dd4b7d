"""Hostile images and Zarr stores: what unpacks beyond what it states, is cut off, huge
or not a number.
"""

import bz2
import gzip
import io
import json
import shutil
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from PIL import Image

from refusals import raises
from understudy.data import array_folder
from understudy.data.images import ImageSchema, png, read_images
from understudy.data.reading import files
from understudy.ground.errors import Effect, PartyError, SchemaError

SCHEMA = ImageSchema(height=4, width=3)
PIXELS = np.random.default_rng(0).integers(0, 256, (12, 4, 3)).astype(np.uint8)
BEYOND = 1 << 27  # bytes that a hostile chunk unpacks to
# bytes of memory that reading it may take, beside what reading an honest one takes
ROOM = 1 << 26

NEW: dict[str, Any] = {
    "zstd": zarr.codecs.ZstdCodec(),
    "gzip": zarr.codecs.GzipCodec(),
    "blosc": zarr.codecs.BloscCodec(),
}
OLD: dict[str, Any] = {
    "blosc": numcodecs.Blosc(),
    "bz2": numcodecs.BZ2(),
    "gzip": numcodecs.GZip(),
    "lz4": numcodecs.LZ4(),
    "zlib": numcodecs.Zlib(),
    "zstd": numcodecs.Zstd(),
}
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "blosc": lambda data: bytes(
        numcodecs.Blosc().encode(np.frombuffer(data, np.uint8))
    ),
    "bz2": bz2.compress,
    "gzip": gzip.compress,
    "lz4": lambda data: bytes(numcodecs.LZ4().encode(data)),
    "zlib": zlib.compress,
    "zstd": lambda data: bytes(numcodecs.Zstd().encode(data)),
}
FORMATS = [(3, name) for name in NEW] + [(2, name) for name in OLD]
every_format = pytest.mark.parametrize(("form", "codec"), FORMATS)


def stored(path: Path, form: int, codec: str, images: Any = PIXELS) -> Path:
    """A store of images, and the first of its chunks."""
    group = zarr.open_group(path, mode="w", zarr_format=form)
    compressor = NEW[codec] if form == 3 else OLD[codec]
    group.create_array("images", data=images, chunks=(5, 4, 3), compressors=compressor)
    return path / "images" / ("c/0/0/0" if form == 3 else "0.0.0")


@every_format
def test_a_chunk_of_any_codec_is_read_as_it_was_written(
    form: int, codec: str, tmp_path: Path
) -> None:
    stored(tmp_path / "a.zarr", form, codec)
    found = read_images(tmp_path / "a.zarr", SCHEMA)
    assert np.array_equal(SCHEMA.unscaled(found.values), PIXELS)


_READ = """
import resource, sys
from understudy.data.images import ImageSchema, read_images
from understudy.ground.errors import SchemaError
schema = ImageSchema(height=4, width=3)
read_images(sys.argv[1], schema)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_images(sys.argv[2], schema)
except SchemaError as error:
    print(error)
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""


@pytest.mark.long
@pytest.mark.parametrize(("form", "codec"), [(3, "zstd"), (2, "bz2")])
def test_a_chunk_that_unpacks_beyond_its_stated_size_takes_no_memory(
    form: int, codec: str, tmp_path: Path
) -> None:
    stored(tmp_path / "good.zarr", form, codec)
    stored(tmp_path / "bad.zarr", form, codec).write_bytes(PACKED[codec](bytes(BEYOND)))
    words = [
        sys.executable,
        "-c",
        _READ,
        str(tmp_path / "good.zarr"),
        str(tmp_path / "bad.zarr"),
    ]
    said, more = subprocess.run(
        words, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "unpacks to more than" in said
    assert int(more) < ROOM


@every_format
def test_a_chunk_that_unpacks_beyond_its_stated_size_is_refused_before_it_is(
    form: int, codec: str, tmp_path: Path
) -> None:
    chunk = stored(tmp_path / "a.zarr", form, codec)
    chunk.write_bytes(PACKED[codec](bytes(1 << 20)))
    with raises(
        SchemaError, effect=Effect.NOTHING_READ_FURTHER, match="unpacks to more than"
    ):
        read_images(tmp_path / "a.zarr", SCHEMA)


def test_a_chunk_that_is_exchanged_later_for_a_larger_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LONG", 40)
    chunk = stored(tmp_path / "a.zarr", 3, "zstd")
    opened = read_images(tmp_path / "a.zarr", SCHEMA)
    chunk.write_bytes(PACKED["zstd"](bytes(1 << 20)))
    with pytest.raises(PartyError, match="not as it was when the folder was opened"):
        [*opened.parts()]


@every_format
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_chunk_that_is_cut_off_is_refused(
    form: int, codec: str, share: float, tmp_path: Path
) -> None:
    chunk = stored(tmp_path / "a.zarr", form, codec)
    data = chunk.read_bytes()
    chunk.write_bytes(data[: int(share * len(data))])
    with pytest.raises(SchemaError, match="cannot be read"):
        read_images(tmp_path / "a.zarr", SCHEMA)


def packed(path: Path, name: str, first: bytes, zeros: int) -> None:
    """A zip of one member: these bytes and then so many MiB of zeros, a kilobyte of the
    file for each.
    """
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = packer.compress(first) + packer.flush(zlib.Z_FULL_FLUSH)
    mebibyte = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        file.writestr(name, body + zeros * mebibyte + packer.flush(zlib.Z_FINISH))
        (member,) = file.filelist
        member.compress_type = zipfile.ZIP_DEFLATED
        member.file_size = len(first) + (zeros << 20)


def array_header(shape: tuple[int, ...]) -> bytes:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": shape}
    )
    return header.getvalue()


BOMBS: dict[str, tuple[str, bytes]] = {
    "an array that is as large as it states": (
        "images.npy",
        array_header((1 << 28, 4, 3)),
    ),
    "more than an array states": ("images.npy", array_header((12, 4, 3))),
    "no array": ("images.npy", b"no header"),
    "a member that is called otherwise": ("images", array_header((1 << 28, 4, 3))),
    "a header without end": ("images.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xbf"),
}


@pytest.mark.long
@pytest.mark.parametrize("what", BOMBS)
def test_a_zip_that_unpacks_to_gigabytes_is_refused_before_it_does(
    what: str, tmp_path: Path
) -> None:
    np.savez_compressed(tmp_path / "good.npz", images=PIXELS)
    name, first = BOMBS[what]
    packed(tmp_path / "bad.npz", name, first, 3 << 10)
    assert (tmp_path / "bad.npz").stat().st_size < 1 << 22
    words = [
        sys.executable,
        "-c",
        _READ,
        str(tmp_path / "good.npz"),
        str(tmp_path / "bad.npz"),
    ]
    said, more = subprocess.run(
        words, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "Nothing was read" in said
    assert int(more) < ROOM


@pytest.mark.parametrize("form", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_that_numpy_does_not_write_is_refused(form: int, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", form) as file:
        file.writestr("images.npy", array_header((12, 4, 3)) + PIXELS.tobytes())
    with pytest.raises(SchemaError, match="cannot be read"):
        read_images(tmp_path / "a.npz", SCHEMA)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_file_of_arrays_beyond_the_limit_is_read_where_it_is_hardly_packed(
    save: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array_folder, "_UNPACKED", 100)
    save(tmp_path / "a.npz", images=PIXELS)
    assert np.array_equal(
        SCHEMA.unscaled(read_images(tmp_path / "a.npz", SCHEMA).values), PIXELS
    )
    np.savez_compressed(tmp_path / "b.npz", images=np.zeros((10_000, 4, 3), np.uint8))
    with raises(SchemaError, effect=Effect.NOTHING_READ, match=r"120,\d+ bytes"):
        read_images(tmp_path / "b.npz", SCHEMA)


def described(path: Path, **changes: Any) -> None:
    """Other words in the description of the images, or in that of their chunks."""
    file = path / "images" / "zarr.json"
    told = json.loads(file.read_text())
    chunks = changes.pop("chunks", None)
    if chunks is not None:
        told["chunk_grid"]["configuration"]["chunk_shape"] = chunks
    file.write_text(json.dumps(told | changes))


HOSTILE: dict[str, dict[str, Any]] = {
    "more rows than can be held": {"shape": [1 << 40, 4, 3]},
    "one chunk of them": {"shape": [1 << 40, 4, 3], "chunks": [1 << 40, 4, 3]},
    "a chunk of many": {"chunks": [1 << 28, 4, 3]},
    "a row of many": {"shape": [12, 1 << 20, 1 << 20]},
    "no rows": {"shape": [0, 4, 3]},
    "long texts": {
        "data_type": {
            "name": "fixed_length_utf32",
            "configuration": {"length_bytes": 4 << 28},
        },
        "fill_value": "",
    },
    "a filter that is not known": {
        "codecs": [{"name": "numcodecs.packbits"}, {"name": "bytes"}]
    },
    "packed twice": {
        "codecs": [
            {"name": "bytes"},
            *2 * [{"name": "gzip", "configuration": {"level": 5}}],
        ]
    },
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("what", HOSTILE)
def test_a_store_that_states_what_cannot_be_is_refused(
    what: str, tmp_path: Path
) -> None:
    stored(tmp_path / "a.zarr", 3, "zstd")
    described(tmp_path / "a.zarr", **HOSTILE[what])
    with pytest.raises(SchemaError):
        read_images(tmp_path / "a.zarr", SCHEMA)


def test_an_array_in_shards_is_refused(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("images", data=PIXELS, chunks=(3, 4, 3), shards=(6, 4, 3))
    with pytest.raises(SchemaError, match="codecs or chunks that are not read here"):
        read_images(tmp_path / "a.zarr", SCHEMA)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300, -1.0])
@pytest.mark.parametrize(
    "missing", [False, True], ids=["a value", "the fill of a missing chunk"]
)
def test_a_value_that_is_no_pixel_is_refused(
    value: float, missing: bool, tmp_path: Path
) -> None:
    images = PIXELS.astype(np.float64)
    if not missing:
        images[7, 1, 1] = value
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    made = group.create_array("images", data=images, chunks=(5, 4, 3), fill_value=value)
    if missing:
        shutil.rmtree(tmp_path / "a.zarr" / "images" / "c" / "1")
    assert made.fill_value == value or np.isnan(value)
    with pytest.raises(SchemaError, match=r"not finite|outside|below|above|is no"):
        read_images(tmp_path / "a.zarr", SCHEMA)


# Images


def chunk_of(kind: bytes, data: bytes) -> bytes:
    return (
        struct.pack(">I", len(data))
        + kind
        + data
        + struct.pack(">I", zlib.crc32(kind + data))
    )


def png_of(*chunks: bytes, size: tuple[int, int] = (3, 4)) -> bytes:
    head = chunk_of(b"IHDR", struct.pack(">IIBBBBB", *size, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunks) + chunk_of(b"IEND", b"")


ROWS = b"".join(b"\0" + row.tobytes() for row in PIXELS[0])
HIDDEN = zlib.compress(bytes(BEYOND))  # beside the pixels, or behind them
HIDING: dict[str, bytes] = {
    "rows behind the last": png_of(
        chunk_of(b"IDAT", zlib.compress(ROWS + bytes(BEYOND)))
    ),
    "a packed text": png_of(
        chunk_of(b"zTXt", b"a\0\0" + HIDDEN), chunk_of(b"IDAT", zlib.compress(ROWS))
    ),
    "an international text": png_of(
        chunk_of(b"iTXt", b"a\0\1\0\0\0" + HIDDEN),
        chunk_of(b"IDAT", zlib.compress(ROWS)),
    ),
    "a colour profile": png_of(
        chunk_of(b"iCCP", b"a\0\0" + HIDDEN), chunk_of(b"IDAT", zlib.compress(ROWS))
    ),
}
_LOOK = _READ.replace(
    "4, width=3)", "4, width=3)\nimport warnings\nwarnings.simplefilter('ignore')"
)


@pytest.mark.long
@pytest.mark.parametrize("what", HIDING)
def test_an_image_that_hides_a_flood_beside_its_pixels_takes_no_memory(
    what: str, tmp_path: Path
) -> None:
    for name, data in {"good": png(PIXELS[0]), "bad": HIDING[what]}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(data)
    words = [sys.executable, "-c", _LOOK, str(tmp_path / "good"), str(tmp_path / "bad")]
    *said, more = subprocess.run(
        words, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert int(more) < ROOM, said


def jpeg(folder: Path) -> bytes:
    Image.fromarray(PIXELS[0]).save(folder / "made.jpeg")
    data = (folder / "made.jpeg").read_bytes()
    (folder / "made.jpeg").unlink()
    return data


def test_every_image_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    whole = {"a.png": png(PIXELS[0]), "a.jpeg": jpeg(tmp_path)}
    for name, data in whole.items():
        for size in range(0, len(data) - 20, 7 if name == "a.png" else 29):
            (tmp_path / name).write_bytes(data[:size])
            with pytest.raises(SchemaError, match="cannot be read"):
                read_images(tmp_path, SCHEMA)
        (tmp_path / name).unlink()


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [0, 5, 10_000, 10**5, 2**31 - 1, 2**32 - 1])
def test_an_image_of_other_dimensions_is_refused_by_its_header(
    side: int, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(
        png_of(chunk_of(b"IDAT", zlib.compress(ROWS)), size=(side, side))
    )
    with pytest.raises(SchemaError, match=r"cannot be read|by the schema"):
        read_images(tmp_path, SCHEMA)
