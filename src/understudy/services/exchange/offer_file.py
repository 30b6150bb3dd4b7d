"""One generator as one file (safetensors, with card and schema as JSON in its
metadata), and the folder of such files.

The file's SHA-256 is the generator's name everywhere: equal bytes are one offer, and an
offer never changes. `seal` writes equal bytes for equal generators.

Guarantee: reading runs no code of the sender. The network is rebuilt by name from the
list in `generator`, and only after every key of the card, the schema, and every name,
shape and dtype in the header was compared with what the pool requires and the card's
network has by arithmetic. So a small file cannot ask for a large network.
Edges: a header above 1 MiB, values that are not finite, keys or tensors too many, too
few or twice, and text that is no Unicode are refused; nothing is loaded then.

In the folder files lie under the SHA-256 of their bytes: whole or not at all, and never
changed. An upload grows in `incoming/` while its digest is computed. `keep` syncs it,
renames it to its place and syncs the folder; the database learns of it afterwards. So
whatever the database names is there and whole, and a crash leaves at most a file that
nobody names, which `sweep` removes at the next start.
"""

import fcntl
import hashlib
import json
import math
import os
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from understudy.data.kinds import AnySchema
from understudy.generators.generator import Generator
from understudy.generators.parts import GeneratorParts
from understudy.ground.durable import own_file, own_folder, sync_folder
from understudy.ground.errors import ArtefactError, Effect, ExchangeError
from understudy.ground.pack import read_header
from understudy.models.plan import network_class
from understudy.protocols.papers.sgde.offer import (
    Requirements,
    check_network,
    check_offer,
    read_schema,
)
from understudy.protocols.papers.sgde.sums import check_noise
from understudy.services.web.limits import Limits

SUFFIX = ".safetensors"
_KEY = "understudy"
_SECONDS = 5.0  # to wait where too many uploads are under way


def seal(generator: GeneratorParts) -> bytes:
    network = generator.network
    if generator.levels is not None:
        raise ArtefactError(
            "levels that were bought have no place in an offer.",
            effect=Effect.NOTHING_SENT,
        )
    if not isinstance(network, nn.Module):
        raise TypeError("a generator's network is a torch module")
    state = {
        name: value.detach().cpu().contiguous()
        for name, value in network.state_dict().items()
    }
    card = {**generator.card, "network": network.describe()}
    try:
        text = json.dumps(
            {"card": card, "schema": generator.schema.to_dict()},
            sort_keys=True,
            allow_nan=False,
        )
    except (TypeError, ValueError) as error:
        raise ArtefactError(
            f"this card cannot be written down: {error}.", effect=Effect.NOTHING_SENT
        ) from None
    return save(state, metadata={_KEY: text})


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class OfferFile:
    """What the header of an offer says, and that it fits the pool. The weights are
    still on disk.
    """

    path: Path
    size: int  # of the file
    card: Mapping[str, Any]
    schema: AnySchema

    @classmethod
    def read(cls, path: str | Path, requirements: Requirements) -> "OfferFile":
        """The header alone, compared with what the pool requires. ArtefactError for
        what `seal` does not write.
        """
        path = Path(path)
        try:
            header = read_header(path)
            parts = _read_json(header.metadata[_KEY])
            if (
                not isinstance(parts, dict)
                or parts.keys() != {"card", "schema"}
                or len(header.metadata) != 1
            ):
                raise TypeError(
                    "it holds something other than a card, a schema and weights"
                )
        except OSError as error:
            raise ArtefactError(
                f"{path.name} cannot be read ({error.strerror})."
            ) from None
        except (
            KeyError,
            TypeError,
            ValueError,
            OverflowError,
            RecursionError,
        ) as error:
            raise ArtefactError(
                f"this file is not an offered generator: {_words(error)}"
            ) from None
        card = parts["card"]
        schema = read_schema(requirements, parts["schema"])
        check_offer(requirements, card, schema, header.size - header.begin)
        check_network(requirements, card, header.shapes)
        check_noise(card)
        try:
            json.dumps([card, parts["schema"]], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ArtefactError("half a surrogate pair is no text.") from None
        return cls(path, header.size, card, schema)

    def generator(self) -> Generator:
        description = self.card["network"]
        try:
            state = load_file(self.path)
            floats = {
                name: value
                for name, value in state.items()
                if value.is_floating_point()
            }
            strange = [
                name
                for name, value in floats.items()
                if not torch.isfinite(value).all()
            ]
            if strange:
                raise ArtefactError(
                    f'weights "{strange[0]}" hold values that are not finite.'
                )
            network = network_class(description["kind"]).from_description(description)
            network.load_state_dict(state)
        except (
            KeyError,
            TypeError,
            ValueError,
            RuntimeError,
            OverflowError,
            SafetensorError,
        ) as error:
            raise ArtefactError(
                f"this file is not an offered generator: {_words(error)}"
            ) from None
        return Generator(network.eval(), self.schema, self.card)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key appears twice in its card or schema.")
    return values


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number.")
    return value


_read_json = json.JSONDecoder(
    object_pairs_hook=_once, parse_constant=_finite, parse_float=_finite
).decode


def _words(error: Exception) -> str:
    text = f"{error!s} is missing" if isinstance(error, KeyError) else str(error)
    return text if text.endswith(".") else f"{text}."


class OfferStore:
    """A folder of immutable files. One process at a time may serve it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._incoming, self._offers = self.folder / "incoming", self.folder / "offers"
        for part in (self.folder, self._incoming, self._offers):
            own_folder(part)
        # uploads by silo
        self._counting = threading.Lock()
        self._under_way = Counter[str]()
        self._lock = own_file(self.folder / "lock", os.O_RDWR)
        try:
            # the kernel lets go when the process dies
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise ArtefactError(
                f"{self.folder} is being served by another process."
            ) from None

    def close(self) -> None:
        os.close(self._lock)

    def path(self, digest: str) -> Path:
        return self._offers / digest[:2] / f"{digest}{SUFFIX}"

    @contextmanager
    def receive(self, silo: str, most: int, limits: Limits) -> Iterator["Upload"]:
        """A new upload of this silo, of at most so many bytes. 429 or 503 where too
        many are under way.
        """
        wait = "the most: try again when one is done."
        with self._counting:
            mine = self._under_way[silo]
            everybody = self._under_way.total()
            if mine >= limits.uploads:
                raise ExchangeError(
                    429,
                    f'"{silo}" has {mine} uploads under way, {wait}',
                    effect=Effect.NOTHING_STORED,
                    retry_after=_SECONDS,
                )
            if everybody >= limits.uploads_in_all:
                raise ExchangeError(
                    503,
                    f"{everybody} uploads are under way in all, {wait}",
                    effect=Effect.NOTHING_STORED,
                    retry_after=_SECONDS,
                )
            self._under_way[silo] += 1
        try:
            with Upload(self, self._incoming / uuid.uuid4().hex, most) as upload:
                yield upload
        finally:
            with self._counting:
                self._under_way -= Counter([silo])

    def remove(self, digest: str) -> None:
        self.path(digest).unlink(missing_ok=True)

    def sweep(self, named: Iterable[str]) -> int:
        """Delete what a crash left behind: torn uploads, and files that the database
        never learned of.
        """
        keep = {self.path(digest) for digest in named}
        leftovers = [
            *self._incoming.iterdir(),
            *(set(self._offers.glob(f"*/*{SUFFIX}")) - keep),
        ]
        for path in leftovers:
            path.unlink()
        return len(leftovers)


class Upload:
    """A file on its way in. Leaving the `with` block without `keep` leaves nothing
    behind.
    """

    def __init__(self, store: OfferStore, path: Path, most: int) -> None:
        self._store = store
        self.path = path
        self._most = most
        self._hash = hashlib.sha256()
        self.size = 0

    def __enter__(self) -> Self:
        self._file = os.fdopen(own_file(self.path, os.O_WRONLY | os.O_EXCL), "wb")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)

    def write(self, chunk: bytes) -> None:
        """Take more bytes; 413 as soon as they are too many."""
        self.size += len(chunk)
        if self.size > (most := self._most):
            raise ExchangeError(
                413,
                f"A generator here has at most {most:,} bytes.",
                effect=Effect.NOTHING_STORED,
            )
        self._hash.update(chunk)
        self._file.write(chunk)

    def finish(self, digest: str) -> None:
        """All bytes are here: they are those of this digest, or 422."""
        self._file.flush()
        arrived = self._hash.hexdigest()
        if arrived != digest:
            raise ExchangeError(
                422,
                f"The bytes that came have the SHA-256 {arrived}, not {digest}.",
                effect=Effect.NOTHING_STORED,
            )

    def keep(self, digest: str) -> None:
        """Put the file in its place for good; on return it survives a power cut."""
        os.fsync(self._file.fileno())
        destination = self._store.path(digest)
        own_folder(destination.parent)
        os.replace(self.path, destination)
        for folder in (destination.parent, destination.parent.parent):
            sync_folder(folder)
