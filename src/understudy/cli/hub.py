"""Commands for a hub: `understudy federation`, and `serve`, which carries out a run
file with holders elsewhere.
"""

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
from understudy.cli.terminal import argument, need_grpc, option, print_table
from understudy.cli.terminal import plain as out
from understudy.cli.terminal import plain_err as err
from understudy.ground.check import plain_names
from understudy.ground.errors import ArtefactError, ConfigError, Effect, PartyAway
from understudy.network.status import FILE, Status, is_alive, read_status
from understudy.runs.runfile import RunFile
from understudy.runtime import DAYS, INVITED_DAYS

if TYPE_CHECKING:
    from understudy.runtime.grpc.server import GrpcParties
    from understudy.runtime.identity import Authority

app = typer.Typer(
    no_args_is_help=True,
    help="A federation of holders on machines of their own: create it, invite "
    "parties, renew, revoke.",
)
FolderOption = Annotated[Path, option("The federation's folder.", "--folder")]
InvitedDays = Annotated[
    int, option("For how many days the invitation is valid.", min=1)
]
FEDERATION = Path("federation")


@app.command("init")
def init(
    name: Annotated[str, argument("What the federation is called.")],
    at: Annotated[
        str, option("The address that parties connect to: HOST:PORT, as they see it.")
    ],
    party: Annotated[
        list[str] | None, option("Also invite this party; may be repeated.")
    ] = None,
    folder: FolderOption = FEDERATION,
    days: Annotated[
        int, option("For how many days certificates are valid.", min=1)
    ] = DAYS,
) -> None:
    """Create a federation: a private authority, the server's certificate, and an
    invitation for each party.
    """
    from understudy.runtime.identity import Authority

    plain_names(party or (), "party")
    authority = Authority.create(folder, name=name, address=at, days=days)
    out.print(
        f"{name} is created in {folder}. ca.key signs invitations: keep it safe, and "
        "offline when all have joined."
    )
    for invited_party in party or ():
        _invited(authority, invited_party, INVITED_DAYS)


@app.command("invite")
def invite(
    party: Annotated[str, argument("The party's name.")],
    folder: FolderOption = FEDERATION,
    days: InvitedDays = INVITED_DAYS,
    finished: Annotated[
        bool, option("With the key: the party never connects to `serve`.", "--finished")
    ] = False,
) -> None:
    """Invite a party. The invitation is exchanged once, for a certificate whose key the
    party makes itself.

    With --finished, the file is the party's identity itself: the party keeps it as
    identity.toml in its home. Anyone who sees it on the way can pose as that party to
    the server.
    """
    authority = _authority(folder)
    if party in authority.roster.parties:
        raise ConfigError(
            f"{party} was invited before. `understudy federation renew {party}` "
            "invites it again, and from then on "
            "refuses its old certificate.",
            effect=Effect.NOTHING_CHANGED,
        )
    if not finished:
        _invited(authority, party, days)
        return
    path = authority.issue(party).save(folder / "invitations" / f"{party}.toml")
    out.print(
        f"Hand {path} to {party} in secret, and delete it here. It is {party}'s "
        "identity, with its key."
    )


@app.command("renew")
def renew(
    party: Annotated[
        str | None, argument("The party that gets a new invitation.")
    ] = None,
    server: Annotated[
        bool, option("Renew the server's own certificate.", "--server")
    ] = False,
    folder: FolderOption = FEDERATION,
    days: InvitedDays = INVITED_DAYS,
) -> None:
    """Renew a party (a new invitation; its old certificate is refused from now on) or
    the server's certificate.
    """
    authority = _authority(folder)
    if server:
        authority.renew_server()
        out.print(
            "The server has a new certificate: restart `understudy serve`. Parties "
            "need to do nothing."
        )
    elif party is None:
        raise typer.BadParameter("Which party? Or --server.")
    elif party not in authority.roster.parties:
        raise ConfigError(
            f"{party} is not on the roster of {authority.roster.name}.",
            effect=Effect.NOTHING_CHANGED,
        )
    else:
        _invited(authority, party, days)


@app.command("revoke")
def revoke(
    party: Annotated[str, argument("The party that is refused from now on.")],
    folder: FolderOption = FEDERATION,
) -> None:
    """Refuse a party from now on, also on a server that is running."""
    _authority(folder).revoke(party)
    out.print(f"{party} is refused from now on.")


@app.command("show")
def show(folder: FolderOption = FEDERATION) -> None:
    """Who is on the roster."""
    roster = _authority(folder).roster
    out.print(f"{roster.name}, at {roster.address}")
    cells = (
        (
            name,
            "invited" if entry.get("once") else "enrolled",
            entry["expires"],
            entry["fingerprint"].removeprefix("sha256:")[:16],
        )
        for name, entry in roster.read()["parties"].items()
    )
    print_table(("party", "is", "until", "certificate"), cells)


def _authority(folder: Path) -> "Authority":
    from understudy.runtime.identity import Authority

    return Authority(folder)


def _invited(authority: "Authority", party: str, days: int) -> None:
    path = authority.invite(party, days=days)
    out.print(
        f"Hand {path} to {party}, over a channel that both trust, within {days} days; "
        "then delete it here."
    )


def serve(
    federation: Annotated[
        Path, argument("The federation's folder, or its federation.toml.")
    ],
    run: Annotated[
        Path, argument("The run file (TOML), without tables: they stay at the holders.")
    ],
    resume: Annotated[
        bool, option("For services: a run that is finished already is no error.")
    ] = False,
    listen: Annotated[
        str | None,
        option("HOST:PORT to listen on; default: the address parties connect to."),
    ] = None,
    patience: Annotated[
        float, option("How many seconds one answer may take.")
    ] = 3600.0,
    away: Annotated[
        float | None,
        option("How many seconds a party may be unconnected; default: as patience."),
    ] = None,
    wait: Annotated[
        float, option("How many seconds to wait until all have joined.")
    ] = 604_800.0,
    hold: Annotated[
        bool,
        option(
            "If a party refuses, wait until it signs or the run file changes.", "--hold"
        ),
    ] = False,
    linger: Annotated[
        float,
        option("Seconds to stay after the end, for who has not heard of it.", min=0),
    ] = 60.0,
) -> None:
    """Carry out a run file with holders on other machines: wait until all have signed,
    train, save.

    Where the output folder holds an unfinished run under the same contract, it resumes
    that one. If a party refuses the contract, all are told why and the run is off; with
    --hold they wait for another contract.
    """
    need_grpc()
    from understudy.network.serve import serve_file

    file = RunFile.load(run, elsewhere=True)
    folder = federation.parent if federation.suffix == ".toml" else federation
    run_folder = file.path(file.out)
    finished = (run_folder / FILE).exists() and read_status(run_folder)[
        "state"
    ] == "done"
    if resume and finished:
        out.print(f"The run in {run_folder} is finished.")
        return
    if is_alive(run_folder):
        raise ArtefactError(
            f"{run_folder} is in use: another `understudy serve` is at work on it.",
            effect=Effect.NOTHING_SENT,
        )
    resumes = (run_folder / "contract.json").exists() and not finished
    if resumes:
        err.print(f"Resuming the run in {run_folder}.")
    signal.signal(signal.SIGTERM, _as_interrupt)  # a service is stopped, not killed
    with ExitStack() as stack:

        def ready(parties: "GrpcParties", status: Status) -> None:
            stack.close()  # of a contract that was offered before
            stack.enter_context(_showing_status(status, parties.names))

        try:
            result, where = serve_file(
                file,
                folder,
                resume=resume or resumes,
                listen=listen,
                patience=patience,
                away=away,
                wait=wait,
                linger=linger,
                changed=_changes(run) if hold else None,
                ready=ready,
            )
        except KeyboardInterrupt:
            stack.close()
            err.print(
                "Stopped. What was finished is saved; the parties wait. The same "
                "command resumes it."
            )
            raise typer.Exit(130) from None
        except PartyAway as gone:
            raise PartyAway(
                f"{gone} What was finished is saved; the parties wait. When it is "
                "back, the same command resumes it."
            ) from None
    out.print(str(result.privacy))
    for name, note in result.artefact.card.get("gone", {}).items():
        err.print(
            f"{name} stayed away: it took part in {note['rounds']} rounds, until "
            f"{note['at']}."
        )
    out.print(
        f"\nWritten to {where}. `understudy report {where} --publish` writes the "
        "report."
    )


def _changes(path: Path) -> Callable[[], RunFile | None]:
    """Looks once a second whether the run file is another one that can be used; what is
    wrong with it is said once.
    """
    last_text = path.read_bytes()
    last_look = time.monotonic()

    def read_change() -> RunFile | None:
        nonlocal last_text, last_look
        if time.monotonic() < last_look + 1 or not path.exists():
            return None
        last_look = time.monotonic()
        text = path.read_bytes()
        if text == last_text:
            return None
        last_text = text
        try:
            file = RunFile.load(path, elsewhere=True)
        except ConfigError as error:
            err.print(f"The run file was changed, and cannot be used: {error}")
            return None
        err.print("The run file was changed: its new contract is offered.")
        return file

    return read_change


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    """As Ctrl-C, also where that is ignored: a shell starts its background jobs so."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        raise KeyboardInterrupt
    handler(number, frame)


@contextmanager
def _showing_status(status: Status, names: tuple[str, ...]) -> Iterator[None]:
    """Live in a terminal; elsewhere a line for each thing that happens."""
    if err.is_terminal:
        from rich.live import Live

        with Live(
            get_renderable=lambda: status_view(status.snapshot()),
            console=err,
            refresh_per_second=2,
        ):
            yield
        return
    stop = threading.Event()

    def follow() -> None:
        last_shown: tuple[Any, ...] = ()
        while not stop.wait(0.2):
            snapshot = status.snapshot()
            signed = tuple(
                name for name in names if snapshot["parties"][name]["signed"]
            )
            missing = ", ".join(name for name in names if name not in signed)
            remark = f": {missing} to sign" if missing else ""
            if snapshot["error"]:
                remark = f": {snapshot['error']}"
            # in the moment before it begins
            waits_for_nobody = snapshot["state"] == "waiting" and not remark
            current = (snapshot["state"], signed)
            if current != last_shown and not waits_for_nobody:
                err.print(f"{snapshot['state']} at port {snapshot['port']}{remark}")
                last_shown = current

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
