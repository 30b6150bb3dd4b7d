"""Files on disk under the SHA-256 of their bytes: whole or not at all, and never changed.

An upload grows in `incoming/` while its digest is computed. `keep` syncs it, renames it to its place and syncs the
folder; the database learns of it afterwards. So whatever the database names is there and whole, and a crash
leaves at most a file that nobody names, which `sweep` removes at the next start.
"""

import fcntl
import hashlib
import os
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from understudy.ground.durable import own_file, own_folder, sync_folder
from understudy.ground.errors import ArtefactError, ExchangeError
from understudy.services.exchange.offer_file import SUFFIX
from understudy.services.web.limits import Limits

_SECONDS = 5.0


class Store:
    """A folder of immutable files. One process at a time may serve it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._incoming, self._offers = self.folder / "incoming", self.folder / "offers"
        for place in (self.folder, self._incoming, self._offers):
            own_folder(place)
        self._counting, self._under_way = threading.Lock(), Counter[str]()  # uploads by silo
        self._lock = own_file(self.folder / "lock", os.O_RDWR)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel lets go when the process dies
        except OSError:
            os.close(self._lock)
            raise ArtefactError(f"{self.folder} is being served by another process.") from None

    def close(self) -> None:
        os.close(self._lock)

    def path(self, digest: str) -> Path:
        return self._offers / digest[:2] / f"{digest}{SUFFIX}"

    @contextmanager
    def receive(self, silo: str, most: int, limits: Limits) -> Iterator["Upload"]:
        """A new upload of this silo, of at most so many bytes. 429 or 503 where too many are under way."""
        wait = "the most: try again when one is done. Nothing was stored."
        with self._counting:
            mine, everybody = self._under_way[silo], self._under_way.total()
            if mine >= limits.uploads:
                raise ExchangeError(429, f'"{silo}" has {mine} uploads under way, {wait}', retry_after=_SECONDS)
            if everybody >= limits.uploads_in_all:
                raise ExchangeError(503, f"{everybody} uploads are under way in all, {wait}", retry_after=_SECONDS)
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
        """Delete what a crash left behind: torn uploads, and files that the database never learned of."""
        keep = {self.path(digest) for digest in named}
        leftovers = [*self._incoming.iterdir(), *(set(self._offers.glob(f"*/*{SUFFIX}")) - keep)]
        for path in leftovers:
            path.unlink()
        return len(leftovers)


class Upload:
    """A file on its way in. Leaving the `with` block without `keep` leaves nothing behind."""

    def __init__(self, store: Store, path: Path, most: int) -> None:
        self._store, self.path, self._most = store, path, most
        self._hash, self.size = hashlib.sha256(), 0

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
            raise ExchangeError(413, f"A generator here has at most {most:,} bytes. Nothing was stored.")
        self._hash.update(chunk)
        self._file.write(chunk)

    def finish(self, digest: str) -> None:
        """All bytes are here: they are those of this digest, or 422."""
        self._file.flush()
        if (found := self._hash.hexdigest()) != digest:
            raise ExchangeError(422, f"The bytes that came have the SHA-256 {found}, not {digest}. Nothing was stored.")

    def keep(self, digest: str) -> None:
        """Put the file in its place for good; on return it survives a power cut."""
        os.fsync(self._file.fileno())
        place = self._store.path(digest)
        own_folder(place.parent)
        os.replace(self.path, place)
        for folder in (place.parent, place.parent.parent):
            sync_folder(folder)
