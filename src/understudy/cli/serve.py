"""`understudy serve`: carry out a run file with holders elsewhere."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.status import status_view
from understudy.cli.terminal import argument, need_grpc, option
from understudy.cli.terminal import plain as out
from understudy.cli.terminal import plain_err as err
from understudy.ground.errors import ArtefactError, ConfigError, PartyAway
from understudy.runs.runfile import RunFile

if TYPE_CHECKING:
    from understudy.network.status import Status
    from understudy.runtime.grpc.server import GrpcParties


def serve(
    federation: Annotated[Path, argument("The federation's folder, or its federation.toml.")],
    run: Annotated[Path, argument("The run file (TOML), without tables: they stay at the holders.")],
    resume: Annotated[bool, option("For services: a run that is finished already is no error.")] = False,
    listen: Annotated[
        str | None, option("HOST:PORT to listen on; default: the address that parties connect to.")
    ] = None,
    patience: Annotated[float, option("How many seconds one answer may take.")] = 3600.0,
    away: Annotated[
        float | None, option("How many seconds a party may be without a connection; default: as patience.")
    ] = None,
    wait: Annotated[float, option("How many seconds to wait until all have joined.")] = 604_800.0,
    hold: Annotated[
        bool,
        option("If a party refuses the contract: wait until it signs, or the run file changes.", "--hold"),
    ] = False,
    linger: Annotated[
        float, option("How many seconds to stay after the end, for parties that have not heard of it.", min=0)
    ] = 60.0,
) -> None:
    """Carry out a run file with holders on other machines: wait until all have signed, train, save.

    Where the output folder holds an unfinished run under the same contract, it resumes that one. If a party refuses the
    contract, all are told why and the run is off; with --hold they wait for another contract.
    """
    need_grpc()
    from understudy.network.serve import serve_file
    from understudy.network.status import FILE, alive, read_status

    file = RunFile.load(run, elsewhere=True)
    folder = federation.parent if federation.suffix == ".toml" else federation
    place = file.path(file.out)
    finished = (place / FILE).exists() and read_status(place)["state"] == "done"
    if resume and finished:
        out.print(f"The run in {place} is finished.")
        return
    if alive(place):
        raise ArtefactError(
            f"{place} is in use: another `understudy serve` is at work on it. Nothing was sent."
        )
    begun = (place / "contract.json").exists() and not finished
    if begun:
        err.print(f"Resuming the run in {place}.")
    signal.signal(signal.SIGTERM, _as_interrupt)  # a service is stopped, not killed
    with ExitStack() as stack:

        def ready(parties: "GrpcParties", status: "Status") -> None:
            stack.close()  # of a contract that was offered before
            stack.enter_context(_shown(status, parties.names))

        try:
            result, where = serve_file(
                file, folder, resume=resume or begun, listen=listen, patience=patience, away=away, wait=wait,
                linger=linger, changed=_changes(run) if hold else None, ready=ready,
            )  # fmt: skip
        except KeyboardInterrupt:
            stack.close()
            err.print("Stopped. What was finished is saved; the parties wait. The same command resumes it.")
            raise typer.Exit(130) from None
        except PartyAway as gone:
            raise PartyAway(
                f"{gone} What was finished is saved; the parties wait. When it is back, the same command resumes it."
            ) from None
    out.print(str(result.privacy))
    for name, note in result.artefact.card.get("gone", {}).items():
        err.print(f"{name} stayed away: it took part in {note['rounds']} rounds, until {note['at']}.")
    out.print(f"\nWritten to {where}. `understudy report {where} --publish` makes the page.")


def _changes(path: Path) -> Callable[[], RunFile | None]:
    """Looks once a second whether the run file is another one that can be used; what is wrong with it is said once."""
    seen, then = path.read_bytes(), time.monotonic()

    def look() -> RunFile | None:
        nonlocal seen, then
        if time.monotonic() < then + 1 or not path.exists():
            return None
        then = time.monotonic()
        if (found := path.read_bytes()) == seen:
            return None
        seen = found
        try:
            file = RunFile.load(path, elsewhere=True)
        except ConfigError as error:
            err.print(f"The run file was changed, and cannot be used: {error}")
            return None
        err.print("The run file was changed: its new contract is offered.")
        return file

    return look


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    """As Ctrl-C, also where that is ignored: a shell starts its background jobs so."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        raise KeyboardInterrupt
    handler(number, frame)


@contextmanager
def _shown(status: "Status", names: tuple[str, ...]) -> Iterator[None]:
    """Live in a terminal; elsewhere a line for each thing that happens."""
    if err.is_terminal:
        from rich.live import Live

        with Live(get_renderable=lambda: status_view(status.now()), console=err, refresh_per_second=2):
            yield
        return
    stop = threading.Event()

    def follow() -> None:
        said: tuple[Any, ...] = ()
        while not stop.wait(0.2):
            now = status.now()
            signed = tuple(name for name in names if now["parties"][name]["signed"])
            missing = ", ".join(name for name in names if name not in signed)
            rest = f": {now['error']}" if now["error"] else f": {missing} to sign" if missing else ""
            waits_for_nobody = now["state"] == "waiting" and not rest  # in the moment before it begins
            if (fresh := (now["state"], signed)) != said and not waits_for_nobody:
                err.print(f"{now['state']} at port {now['port']}{rest}")
                said = fresh

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
