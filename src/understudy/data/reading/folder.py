"""Parts of a count by way of a folder: for machines of a holder that share a disk and nothing else.

A run writes what is asked for, and waits until every part is there; whoever has part i (a task of a Slurm array, a pod
of a Kubernetes Job) looks into the folder for as long as it is there.

    understudy synthesize rows.parquet --schema rows.toml --epsilon 1 --parts /scratch/parts:64
    understudy count /scratch/parts --part 7/64

Guarantee: tasks, which hold the key, and parts, which it seals, are files for their owner alone, whole or not there,
and gone once they were read; so is the folder, after the run. A folder into which others can look, or a task that is
another's, is refused on either side: whoever could write one would have exact counts under a key of their own. What a
part may be is for `spread` to judge.
Edges: parts that do not come in time → PartyError, and nothing was charged or sent.
"""

import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from understudy.data.reading.sources import TableSource
from understudy.data.reading.spread import Task, answer_of
from understudy.ground.durable import own_folder, replace
from understudy.ground.errors import ConfigError, PartyError

_LOOK = 0.2  # seconds between two looks
_TASK = ".task"


@dataclass
class InFolder:
    """Who counts parts (`spread.counted_by`): whoever looks into this folder, which is made for a run and goes with it.
    `patience`: seconds, for all parts."""

    folder: Path
    of: int
    patience: float = 86_400.0

    @classmethod
    def at(cls, place: str) -> "InFolder":
        """FOLDER:n. Edges: anything else → ConfigError."""
        if (told := re.fullmatch(r"(.+):([1-9]\d{0,5})", place)) is None:
            raise ConfigError(f"parts are FOLDER:n, as /scratch/parts:64, not {place!r}. Nothing was read.")
        return cls(Path(told[1]), int(told[2]))

    def __enter__(self) -> "InFolder":
        _require_own(own_folder(self.folder))
        if any(self.folder.iterdir()):
            raise ConfigError(f"{self.folder} is not empty: it is of another run, or of one that was ended. {_NOTHING}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)  # so whoever waits hears that it is over

    def __call__(self, task: Task) -> Iterator[bytes]:
        name, end = str(task.head["task"])[:32], time.monotonic() + self.patience
        _require_own(own_folder(self.folder))
        parts = [self.folder / f"{name}.part{number}" for number in range(task.of)]
        asked = replace(self.folder / f"{name}{_TASK}", task.to_bytes())
        try:
            for number, part in enumerate(parts):
                while not part.exists():
                    if time.monotonic() > end:
                        raise task.refusal(f"part {number + 1} of {task.of} did not come in {self.patience:,.0f} s.")
                    time.sleep(_LOOK)
                yield part.read_bytes()
        finally:
            for file in (asked, *parts):
                file.unlink(missing_ok=True)


def count_in_folder(folder: Path, number: int, of: int, rows: TableSource | None = None) -> int:
    """Answer every task in the folder for part `number`, from 0, where that lacks; how many these were. `rows`: where
    they are, if not where the run has them."""
    _require_own(folder)
    counted = 0
    for asked in sorted(folder.glob(f"*{_TASK}")):
        part = asked.with_suffix(f".part{number}")
        with suppress(FileNotFoundError):  # answered meanwhile by another
            if not part.exists():
                task = _own_bytes(asked)
                if (wanted := Task.from_bytes(task).of) != of:
                    raise ConfigError(f"{folder}: the run wants {wanted} parts, not {of}. Nothing was counted.")
                made = answer_of(task, number, rows)
                if asked.exists():
                    replace(part, made)
                    counted += 1
    return counted


def count_until_over(
    folder: Path, number: int, of: int, rows: TableSource | None, patience: float, say: Callable[[str], None]
) -> None:
    """The same for as long as the folder is there. Edges: nothing to do for so many seconds → PartyError."""
    seen, last = False, time.monotonic()
    while time.monotonic() - last < patience:
        if folder.is_dir():
            with suppress(FileNotFoundError):  # gone meanwhile
                if counted := count_in_folder(folder, number, of, rows):
                    last = time.monotonic()
                    say(f"Part {number + 1} of {of}: counted{f' {counted} times' * (counted > 1)}.")
                seen = True
        elif seen:
            say("The run is over.")
            return
        time.sleep(_LOOK)
    raise PartyError(f"{folder}: there was nothing to count for {patience:,.0f} s.")


_NOTHING = "Nothing was read."


def _require_own(folder: Path) -> None:
    about = folder.stat()
    if about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise ConfigError(
            f"{folder} is not for you alone: take a folder of your own, which the run makes (mode 0700). {_NOTHING}"
        )


def _own_bytes(file: Path) -> bytes:
    """Edges: a file of another, that others can read, or a link → PartyError."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError:
        raise PartyError(f"{file.name} is no file of yours. Nothing was counted.") from None
    with os.fdopen(handle, "rb") as opened:
        about = os.fstat(handle)
        if about.st_uid != os.geteuid() or about.st_mode & 0o077 or not stat.S_ISREG(about.st_mode):
            raise PartyError(f"{file.name} is not of your own run, or others can read it. Nothing was counted.")
        return opened.read()
