"""Commands for holders on their own machines: `federation`, `serve`, `join`, `approve`, `status`."""

import importlib.util
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table as Grid

from understudy.cli.status import status_view
from understudy.errors import ConfigError, PartyAway
from understudy.privacy.ledger import Ledger
from understudy.runfile import RunFile
from understudy.runtime.authority import DAYS, INVITED_DAYS, Authority
from understudy.runtime.contract import Contract
from understudy.runtime.identity import Invitation
from understudy.runtime.policy import Policy

if TYPE_CHECKING:
    from understudy.network.status import Status
    from understudy.runtime.grpc.server import GrpcParties

federation_app = typer.Typer(
    no_args_is_help=True, help="A federation of holders: found it, invite parties, renew, revoke."
)
out = Console(highlight=False, soft_wrap=True, markup=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
FolderOption = Annotated[Path, typer.Option("--folder", help="The federation's folder.")]
FEDERATION = Path("federation")


def mount(app: typer.Typer) -> None:
    """Add the commands to the `understudy` command."""
    app.add_typer(federation_app, name="federation")
    for command in (serve, join, approve, status):
        app.command()(command)


# The federation


@federation_app.command("init")
def federation_init(
    name: Annotated[str, typer.Argument(help="What the federation is called.")],
    at: Annotated[str, typer.Option(help="Where parties dial: HOST:PORT, as they see it.")],
    party: Annotated[list[str] | None, typer.Option(help="Invite this party, too.")] = None,
    folder: FolderOption = FEDERATION,
    days: Annotated[int, typer.Option(min=1, help="How long certificates are good.")] = DAYS,
) -> None:
    """Found a federation: a private authority, the server's certificate, and an invitation for each party."""
    authority = Authority.found(folder, name=name, address=at, days=days)
    out.print(
        f"{name} is founded in {folder}. ca.key signs invitations: keep it safe, and offline when all have joined."
    )
    for one in party or ():
        _invited(authority, one, INVITED_DAYS)


@federation_app.command("invite")
def federation_invite(
    party: Annotated[str, typer.Argument(help="The party's name.")],
    folder: FolderOption = FEDERATION,
    days: Annotated[int, typer.Option(min=1, help="How long the invitation is good.")] = INVITED_DAYS,
    finished: Annotated[
        bool,
        typer.Option("--finished", help="With its key, for a party that never dials `understudy serve`."),
    ] = False,
) -> None:
    """Invite a party. The invitation is exchanged once, for a certificate whose key the party makes itself.

    A finished one is the party's identity already, to be kept as identity.toml in its home: whoever sees it on its
    way can pose as that party to the server.
    """
    authority = Authority(folder)
    if party in authority.roster.parties:
        raise ConfigError(
            f"{party} was invited before. `understudy federation renew {party}` invites it again, and from then on "
            "refuses the certificate that it has. Nothing was changed."
        )
    if finished:
        path = authority.issue(party).save(folder / "invitations" / f"{party}.toml")
        out.print(
            f"Hand {path} to {party} in secret, and delete it here. It is {party}'s identity, with its key."
        )
        return
    _invited(authority, party, days)


@federation_app.command("renew")
def federation_renew(
    party: Annotated[str | None, typer.Argument(help="The party that gets a new invitation.")] = None,
    server: Annotated[bool, typer.Option("--server", help="Renew the server's own certificate.")] = False,
    folder: FolderOption = FEDERATION,
    days: Annotated[int, typer.Option(min=1, help="How long the invitation is good.")] = INVITED_DAYS,
) -> None:
    """Renew a party (a new invitation; what it had is refused from now on) or the server's certificate."""
    authority = Authority(folder)
    if server:
        authority.renew_server()
        out.print("The server has a new certificate: restart `understudy serve`. Parties notice nothing.")
    elif party is None:
        raise typer.BadParameter("Which party? Or --server.")
    elif party not in authority.roster.parties:
        raise ConfigError(f"{party} is not on the roster of {authority.roster.name}. Nothing was changed.")
    else:
        _invited(authority, party, days)


@federation_app.command("revoke")
def federation_revoke(
    party: Annotated[str, typer.Argument(help="The party that is refused from now on.")],
    folder: FolderOption = FEDERATION,
) -> None:
    """Refuse a party from now on, also on a server that is running."""
    Authority(folder).revoke(party)
    out.print(f"{party} is refused from now on.")


@federation_app.command("show")
def federation_show(folder: FolderOption = FEDERATION) -> None:
    """Who is on the roster."""
    roster = Authority(folder).roster
    grid = Grid(title=f"{roster.name}, at {roster.address}", box=SIMPLE_HEAD, title_justify="left")
    for column in ("party", "is", "until", "certificate"):
        grid.add_column(column)
    for name, entry in roster.read()["parties"].items():
        kind = "invited" if entry.get("once") else "enrolled"
        grid.add_row(name, kind, entry["expires"], entry["fingerprint"].removeprefix("sha256:")[:16])
    out.print(grid, soft_wrap=False)


# The server


def serve(
    federation: Annotated[Path, typer.Argument(help="The federation's folder, or its federation.toml.")],
    run: Annotated[Path, typer.Argument(help="The run file (TOML), without tables: those are the holders'.")],
    resume: Annotated[
        bool, typer.Option(help="Go on with the run in the output folder, if one was begun there.")
    ] = False,
    listen: Annotated[
        str | None, typer.Option(help="HOST:PORT to listen on; default: where parties dial.")
    ] = None,
    patience: Annotated[float, typer.Option(help="Seconds that one answer may take.")] = 3600.0,
    wait: Annotated[float, typer.Option(help="Seconds until all have to have joined.")] = 604_800.0,
) -> None:
    """Carry out a run file with holders elsewhere: wait until all have signed, train, save."""
    _with_grpc()
    from understudy.network.serve import serve_file
    from understudy.network.status import FILE, read_status

    file = RunFile.load(run, elsewhere=True)
    folder = federation.parent if federation.suffix == ".toml" else federation
    if (
        resume
        and (file.path(file.out) / FILE).exists()
        and read_status(file.path(file.out))["state"] == "done"
    ):
        out.print(f"The run in {file.path(file.out)} is finished.")
        return
    signal.signal(signal.SIGTERM, _as_interrupt)  # a service is stopped, not killed
    with ExitStack() as stack:

        def ready(parties: "GrpcParties", status: "Status") -> None:
            stack.enter_context(_shown(status, parties.names))

        try:
            result, where = serve_file(
                file, folder, resume=resume, listen=listen, patience=patience, wait=wait, ready=ready
            )
        except KeyboardInterrupt:
            stack.close()
            err.print("Stopped. What was finished is saved; the parties wait. Go on with --resume.")
            raise typer.Exit(130) from None
        except PartyAway as away:
            raise PartyAway(
                f"{away} What was finished is saved; the parties wait. When it is back, go on with --resume."
            ) from None
    out.print(str(result.privacy))
    for name, note in result.artefact.card.get("gone", {}).items():
        err.print(f"{name} stayed away: it took part in {note['rounds']} rounds, until {note['at']}.")
    out.print(f"\nWritten to {where}. `understudy report {where} --publish` makes the page.")


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
        with Live(get_renderable=lambda: status_view(status.now()), console=err, refresh_per_second=2):
            yield
        return
    stop = threading.Event()

    def follow() -> None:
        said: tuple[Any, ...] = ()
        while not stop.wait(0.2):
            now = status.now()
            signed = tuple(name for name in names if now["parties"][name]["signed"])
            if (fresh := (now["state"], signed)) != said:
                missing = ", ".join(name for name in names if name not in signed)
                err.print(
                    f"{now['state']} at port {now['port']}" + (f": {missing} to sign" if missing else "")
                )
                said = fresh

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


# A party


def join(
    invitation: Annotated[Path | None, typer.Argument(help="What the operator handed over.")] = None,
    table: Annotated[Path | None, typer.Option(help="The rows (CSV or Parquet).")] = None,
    schema: Annotated[Path | None, typer.Option(help="Their public schema.")] = None,
    policy: Annotated[Path | None, typer.Option(help="What may run here (TOML).")] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(help="The holder's ledger; default: in its home. A new one gets the policy's limits."),
    ] = None,
    home: Annotated[
        Path | None,
        typer.Option(help="Where this party keeps what is its own; default: a folder of its name."),
    ] = None,
    address: Annotated[str | None, typer.Option(help="HOST:PORT, if not the invitation's.")] = None,
    noise: Annotated[str, typer.Option(help='"fast": not secure, and named in the card.')] = "secure",
    patience: Annotated[float, typer.Option(help="Seconds to try while no server is there.")] = 86_400.0,
    example: Annotated[bool, typer.Option("--example", help="Print a policy to start from.")] = False,
) -> None:
    """Take part in one run with your own rows: sign its contract if your policy allows it, answer until it ends."""
    if example:
        out.print(_POLICY)
        return
    _with_grpc()
    from understudy.network.holder import Queue, at_home, identity_of, take_seat
    from understudy.network.status import Status, WatchedLog
    from understudy.runtime.grpc.party import join as take_part

    if invitation is None or table is None or schema is None or policy is None:
        raise typer.BadParameter(
            "An invitation, --table, --schema and --policy are needed (--example prints a policy)."
        )
    shown, rules = Invitation.load(invitation), Policy.load(policy)
    with at_home(home or Path(shown.party)) as folder:
        log = WatchedLog(folder / "audit.jsonl", _heard)
        dial: dict[str, Any] = {"address": address, "patience": patience}
        queue = Queue(home=folder, show=lambda contract: _show(contract, shown.party), prompt=_answered())
        with _interruptible(queue.stopped):
            mine = identity_of(shown, folder, log=log, **dial)
            seat = take_seat(
                mine, table=table, schema=schema, policy=rules, home=folder, ledger=ledger, noise=noise,
                confirm=queue, log=log,
            )  # fmt: skip
            book = str((ledger or folder / f"{mine.party}.ledger").resolve())
            facts = {"party": mine.party, "federation": mine.federation, "address": address or mine.address}
            with Status(folder, more=lambda: log.counts, role="party", book=book, **facts) as status:
                status.say(state="joined")
                take_part(seat, **dial)
                status.say(state="done")
        out.print(f"The run is over. {seat.ledger.summary()}")


def approve(
    home: Annotated[Path, typer.Argument(help="The party's home.")],
    yes: Annotated[bool, typer.Option("--yes", help="Accept what waits, without asking.")] = False,
    refuse: Annotated[bool, typer.Option("--refuse", help="Refuse what waits.")] = False,
) -> None:
    """Decide about the contracts that wait at a party whose policy says "ask"."""
    _with_grpc()
    from understudy.network.holder import Queue, known_party

    queue, party = Queue(home=home), known_party(home)
    waiting = queue.waiting()
    if not waiting:
        out.print("Nothing waits.")
    for contract in waiting:
        _show(contract, party)
        accept = not refuse and (yes or typer.confirm("Accept?"))
        queue.decide(contract, accept=accept)
        out.print("Accepted." if accept else "Refused.")


def status(
    folder: Annotated[Path, typer.Argument(help="A run's output folder at its server, or a party's home.")],
    once: Annotated[bool, typer.Option("--once", help="Print it and end.")] = False,
) -> None:
    """Parties, round, ε spent, bytes and the last error; live in a terminal until the run ends."""
    from understudy.network.status import OVER, read_status

    def now() -> dict[str, Any]:
        found = read_status(folder)
        if found["role"] == "party" and Path(found["book"]).exists():
            with Ledger(found["book"]) as book:
                found["ledger"] = book.summary()
        return found

    if once or not out.is_terminal:
        out.print(status_view(now()))
        return
    with Live(status_view(shown := now()), console=out, auto_refresh=False) as live:
        while shown["state"] not in (*OVER, "silent"):
            time.sleep(1)
            live.update(status_view(shown := now()), refresh=True)


def _with_grpc() -> None:
    os.environ.setdefault(
        "GRPC_VERBOSITY", "NONE"
    )  # its own log would come before our words; set it to see that
    if importlib.util.find_spec("grpc") is None:
        raise ConfigError(
            "The network needs grpcio: pip install 'understudy[network]'. Nothing was read or sent."
        )


def _invited(authority: Authority, party: str, days: int) -> None:
    path = authority.invite(party, days=days)
    out.print(
        f"Hand {path} to {party}, over a channel that both trust, within {days} days; then delete it here."
    )


def _heard(event: str, facts: Mapping[str, Any]) -> None:
    """A line for what a holder should see while it waits."""
    match event:
        case "enrolled":
            err.print("The invitation was exchanged. The key was made here and stays here.")
        case "contract accepted":
            err.print(f"Signed the contract of {facts['run']}.")
        case "disconnected":
            err.print(f"No connection ({facts['why']}); trying again.")


def _show(contract: Contract, party: str) -> None:
    from understudy.network.holder import contract_words

    err.print("\nA contract waits for your decision:")
    for what, meaning in contract_words(contract, party):
        err.print(f"  {what:<11} {meaning}")
    if sys.stdin.isatty():
        err.print("Accept? [y/N] ", end="")
    else:
        err.print("`understudy approve HOME` decides.")


def _answered() -> Any:
    """What a person at this terminal has typed, if there is one."""
    if not sys.stdin.isatty():
        return None

    def look() -> bool | None:
        ready, _, _ = select.select([sys.stdin], [], [], 0)
        return sys.stdin.readline().strip().lower() in ("y", "yes") if ready else None

    return look


@contextmanager
def _interruptible(stopped: threading.Event) -> Iterator[None]:
    """Ctrl-C ends in words, also while a contract waits for its decision."""

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    except KeyboardInterrupt:
        err.print("Stopped. The same command goes on with the run, if the server still waits.")
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGINT, before)


_POLICY = """\
protocols = ["gram", "verti-gan"]   # which systems may run here
epsilon_run = 2.0                   # the most that one run may cost a person here
epsilon_total = 8.0                 # the most that all runs may cost
delta = 1e-6
people = 1000                       # fewer people than this are not enough to hide among
accept = "ask"                      # "always": within these limits, sign without asking
partners = ["insurer"]              # who else may take part; leave it out for anybody"""
