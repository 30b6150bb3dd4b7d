"""What a server or a party shows of itself: one small JSON file, written once a second.

While its process lives, it holds a lock beside the file, which the kernel lets go however the process ends: what was
written by a process that is gone is not taken for the present.

Guarantee: no figure of any row; what is in it are names, counts of messages and bytes, and prices.
"""

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from understudy.ground.durable import own_file, replace_json
from understudy.ground.errors import ArtefactError
from understudy.runtime.journal import AuditLog

if TYPE_CHECKING:
    from understudy.protocols.core import Progress

FILE, LOCK = "status.json", ".status.lock"
STALE = 10.0  # seconds after which a status that is not written any more means that its process is gone
OVER = ("done", "stopped", "failed", "replaced")
GONE = ("silent", "stopped", "failed")  # nobody is there who would know how the others are


class Status:
    """Keeps the file fresh while it is open. `more` adds what has to be looked up at each writing.

    An error that ends it leaves "failed" and its text, or the `state` that it names itself.
    """

    def __init__(self, folder: Path, *, more: Callable[[], Mapping[str, Any]] = dict, **facts: Any) -> None:
        self.file, self._more = folder / FILE, more
        self._facts: dict[str, Any] = {"process": os.getpid(), "state": "starting", "error": "", **facts}
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._beat, name="understudy-status", daemon=True)

    def say(self, **facts: Any) -> None:
        """From now on it says this."""
        with self._lock:
            self._facts |= facts

    def now(self) -> dict[str, Any]:
        """What it would write."""
        with self._lock:
            return {**self._facts, **self._more(), "at": time.time()}

    def __enter__(self) -> Self:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self._held = own_file(self.file.with_name(LOCK), os.O_RDWR)
        fcntl.flock(self._held, fcntl.LOCK_SH)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if error is not None:
            stopped = isinstance(error, KeyboardInterrupt)
            state = getattr(error, "state", "stopped" if stopped else "failed")
            self.say(state=state, error="" if stopped else str(error))
        replace_json(self.file, self.now())
        os.close(self._held)

    def _beat(self) -> None:
        while True:
            replace_json(self.file, self.now())
            if self._stop.wait(1.0):
                return


def read_status(folder: Path) -> dict[str, Any]:
    """The status in a run's or a holder's folder. ArtefactError if there is none."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
        age = time.time() - float(found["at"])
    except FileNotFoundError:
        raise ArtefactError(
            f"{folder} has no status: name the `out` folder of a run at its server, or the home of a party."
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        raise ArtefactError(f"{folder / FILE} cannot be read.") from None
    if (
        found["state"] not in OVER
        and (lives := alive(folder)) is not True
        and (lives is False or age > STALE)
    ):
        gone = f"its process is gone, killed or with its machine; it last wrote {max(0.0, age):.0f} s ago"
        found |= {"state": "silent", "error": "; before that: ".join(filter(None, (gone, found["error"])))}
    return dict(found)


def alive(folder: Path) -> bool | None:
    """Whether a process keeps the status in this folder now; None where that cannot be told."""
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


def party_word(party: Mapping[str, Any], state: str) -> tuple[str, str]:
    """How a party of a run is, as its server has it, in a word; and whether that is "good", "partly" or "poor"."""
    if party["left_out"]:
        return "left out", "poor"
    if party["refusal"]:
        return "refused", "poor"
    if state in GONE:
        return "not known", "partly"
    if party.get("reading"):
        return "reading the contract", "partly"
    if not party["connected"]:
        return "away", "partly"
    return "computing" if party["waiting"] else "connected", "good"


class Prices:
    """A watcher that notes rounds, and now and then what each party has spent: that costs an ask of all."""

    def __init__(self, status: Status) -> None:
        self._status, self._next = status, 0.0

    def __call__(self, progress: "Progress") -> None:
        self._status.say(round=progress.done, rounds=progress.rounds)
        began = time.monotonic()
        if began >= self._next:
            self._status.say(epsilon=dict(progress.epsilon()))
            ended = time.monotonic()
            self._next = ended + max(5.0, 20 * (ended - began))


class WatchedLog(AuditLog):
    """An audit log that also counts for the status, and calls `hear` with each event."""

    def __init__(
        self, path: Path | None, hear: Callable[[str, Mapping[str, Any]], None] | None = None
    ) -> None:
        super().__init__(path)
        self._hear = hear
        self.counts: dict[str, Any] = {
            "asks": 0,
            "down": 0,
            "up": 0,
            "connected": False,
            "run": "",
            "error": "",
        }

    def write(self, event: str, **facts: Any) -> None:
        super().write(event, **facts)
        counts = self.counts
        match event:
            case "ask":
                counts |= {
                    "asks": counts["asks"] + 1,
                    "down": counts["down"] + facts["bytes"],
                    "connected": True,
                }
            case "reply":
                counts["up"] += facts["bytes"]
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
