"""What a server or a party shows of itself: one small JSON file, written once a second.

While its process lives, it holds a lock beside the file, which the kernel lets go
however the process ends: what was written by a process that is gone is not taken for
the present.

Guarantee: no figure of any row; what is shown are names, counts of messages and bytes,
and prices.
Edges: of a log above `MAX_LOG_BYTES` the end alone is read; runs from before are not in
it, or not whole.
"""

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from understudy.ground.durable import own_file, replace_json
from understudy.ground.errors import ArtefactError
from understudy.runtime.journal import AuditLog

if TYPE_CHECKING:
    from understudy.protocols.core import Progress

FILE = "status.json"
LOCK = ".status.lock"
# seconds after which a status that is not written any more means that its process is
# gone
STALE = 10.0
MAX_LOG_BYTES = 1 << 26  # bytes of a log that are read
FINAL_STATES = ("done", "stopped", "failed", "replaced")
# nobody is there who would know how the others are
STATES_WITHOUT_NEWS = ("silent", "stopped", "failed")


class Status:
    """Keeps the file fresh while open, with `more`; an error leaves "failed" and its
    text, or the `state` it names.
    """

    def __init__(
        self,
        folder: Path,
        *,
        more: Callable[[], Mapping[str, Any]] = dict,
        **facts: Any,
    ) -> None:
        self.file = folder / FILE
        self._more = more
        self._facts: dict[str, Any] = {
            "process": os.getpid(),
            "state": "starting",
            "error": "",
            **facts,
        }
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._beat, name="understudy-status", daemon=True
        )

    def update(self, **facts: Any) -> None:
        with self._lock:
            self._facts |= facts

    def snapshot(self) -> dict[str, Any]:
        with self._lock:
            return {**self._facts, **self._more(), "at": time.time()}

    def __enter__(self) -> Self:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self._lock_handle = own_file(self.file.with_name(LOCK), os.O_RDWR)
        fcntl.flock(self._lock_handle, fcntl.LOCK_SH)
        self._thread.start()
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, trace: object
    ) -> None:
        self._stop.set()
        self._thread.join()
        if error is not None:
            stopped = isinstance(error, KeyboardInterrupt)
            state = getattr(error, "state", "stopped" if stopped else "failed")
            self.update(state=state, error="" if stopped else str(error))
        replace_json(self.file, self.snapshot())
        os.close(self._lock_handle)

    def _beat(self) -> None:
        while True:
            replace_json(self.file, self.snapshot())
            if self._stop.wait(1.0):
                return


def read_status(folder: Path) -> dict[str, Any]:
    """The status in a run's or a holder's folder. ArtefactError if there is none."""
    try:
        status = json.loads((folder / FILE).read_text(encoding="utf-8"))
        age = time.time() - float(status["at"])
    except FileNotFoundError:
        raise ArtefactError(
            f"{folder} has no status: name the `out` folder of a run at its server, "
            "or the home of a party."
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        raise ArtefactError(f"{folder / FILE} cannot be read.") from None
    lives = status["state"] in FINAL_STATES or is_alive(folder)
    if lives is False or (lives is None and age > STALE):
        words = (
            "its process is gone, killed or with its machine; it last wrote "
            f"{max(0.0, age):.0f} s ago"
        )
        status |= {
            "state": "silent",
            "error": "; before that: ".join(filter(None, (words, status["error"]))),
        }
    return dict(status)


def is_alive(folder: Path) -> bool | None:
    """Whether a process keeps the status in this folder now; None where that cannot be
    told.
    """
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    else:
        return False
    finally:
        os.close(handle)


def party_state(party: Mapping[str, Any], state: str) -> tuple[str, str]:
    """How a party of a run is, as its server has it, in a word; and whether that is
    "good", "partly" or "poor".
    """
    if party["left_out"]:
        return "left out", "poor"
    if party["refusal"]:
        return "refused", "poor"
    if state in STATES_WITHOUT_NEWS:
        return "not known", "partly"
    if party.get("reading"):
        return "reading the contract", "partly"
    if not party["connected"]:
        return "away", "partly"
    return "computing" if party["waiting"] else "connected", "good"


class PriceWatcher:
    """A watcher that notes rounds, and now and then what each party has spent: that
    costs an ask of all.
    """

    def __init__(self, status: Status) -> None:
        self._status = status
        self._next = 0.0

    def __call__(self, progress: "Progress") -> None:
        if progress.stage != "training":
            return
        self._status.update(round=progress.done, rounds=progress.rounds)
        started = time.monotonic()
        if started >= self._next:
            self._status.update(epsilon=dict(progress.epsilon()))
            finished = time.monotonic()
            self._next = finished + max(5.0, 20 * (finished - started))


class WatchedLog(AuditLog):
    """An audit log that also counts for the status, and calls `hear` with each
    event.
    """

    def __init__(
        self,
        path: Path | None,
        hear: Callable[[str, Mapping[str, Any]], None] | None = None,
    ) -> None:
        super().__init__(path)
        self._hear = hear
        self.counts: dict[str, Any] = dict.fromkeys(("asks", "down", "up"), 0)
        self.counts |= {"connected": False, "run": "", "error": ""}

    def write(self, event: str, **facts: Any) -> None:
        super().write(event, **facts)
        counts = self.counts
        match event:
            case "ask":
                counts["asks"] += 1
                counts["down"] += facts["bytes"]
                counts["connected"] = True
            case "reply":
                counts["up"] += facts["bytes"]
            case "connected":
                counts |= {"connected": True, "error": ""}
            case "contract accepted" | "contract resumed":
                counts |= {"run": facts["run"], "connected": True, "error": ""}
            case "disconnected":
                counts |= {"connected": False, "error": facts["why"]}
            case "ended":
                counts |= {"connected": False, "error": ""}
            case "contract refused" | "failed":
                counts["error"] = str(facts.get("why") or facts.get("kind"))
        if self._hear is not None:
            self._hear(event, facts)


@dataclass(kw_only=True)
class Traffic:
    """One run at one holder: asks that came and answers that went, with their bytes;
    `last`: when (UTC), as text.
    """

    asks: int = 0
    answers: int = 0
    refusals: int = 0
    down: int = 0
    up: int = 0
    last: str = ""
    ended: bool = False


def read_traffic(log: Path) -> dict[str, Traffic]:
    """Run → what crossed for it, in the order in which runs were signed."""
    try:
        return _count_traffic(log, log.stat().st_size)
    except FileNotFoundError:
        return {}


@lru_cache(maxsize=4)
def _count_traffic(log: Path, size: int) -> dict[str, Traffic]:
    by_run: dict[str, Traffic] = {}
    run: Traffic | None = None
    with log.open("rb") as file:
        if size > MAX_LOG_BYTES:
            file.seek(size - MAX_LOG_BYTES)
            file.readline()
        for text in file:
            if not text.endswith(b"\n"):
                break  # it is being written
            line = json.loads(text)
            event = line["event"]
            if event in ("contract accepted", "contract resumed"):
                run = by_run.setdefault(line["run"], Traffic())
            elif event == "contract refused":
                run = None
            if run is not None:
                _count_event(run, event, line)
    return by_run


def _count_event(run: Traffic, event: str, line: dict[str, object]) -> None:
    run.last = str(line["at"])
    match event, line.get("bytes"):
        case "ask", int(size):
            run.asks, run.down = run.asks + 1, run.down + size
        case (("reply" | "refusal"), int(size)):
            run.answers, run.up = run.answers + 1, run.up + size
            run.refusals += event == "refusal"
        case "ended", _:
            run.ended = True


def note_served(federation: Path, run: str, out: Path) -> None:
    """Remember where this run lies. Edges: a federation's folder that cannot be written
    to → it is not remembered.
    """
    # a folder that only the operator may change is no reason not to serve
    with suppress(OSError):
        replace_json(
            federation / "served" / f"{run}.json", {"run": run, "out": str(out)}
        )


def list_served(federation: Path) -> list[tuple[str, Path]]:
    """Each run with its output folder, the newest first."""
    files = sorted(
        (federation / "served").glob("*.json"), key=lambda file: -file.stat().st_mtime
    )
    records = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return [(str(record["run"]), Path(record["out"])) for record in records]
