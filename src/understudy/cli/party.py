"""Commands for a party on its own machine: `join` a run with rows, `aggregate` without, and `approve` a contract."""

import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.console import plain as out
from understudy.cli.console import plain_err as err
from understudy.cli.extras import with_grpc
from understudy.cli.training import bar_of

if TYPE_CHECKING:
    from understudy.network.status import WatchedLog
    from understudy.runtime.contract import Contract
    from understudy.runtime.policy import Policy
    from understudy.services.collect.box import Box

    Receiver = Callable[[Path, Policy, threading.Event, WatchedLog], AbstractContextManager[Box]]

HomeOption = Annotated[
    Path | None, typer.Option(help="The folder for this party's own files; default: a folder with its name.")
]
AddressOption = Annotated[str | None, typer.Option(help="HOST:PORT, if not the invitation's.")]
PatienceOption = Annotated[
    float, typer.Option(help="How many seconds to keep trying if the server does not answer.")
]


def join(
    invitation: Annotated[
        Path | None, typer.Argument(help="The invitation file from the operator of the hub.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="The rows: CSV, Excel, Parquet, or a NAME.source.toml.")
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="Their public schema.")] = None,
    policy: Annotated[Path | None, typer.Option(help="What may run here (TOML).")] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(help="The holder's ledger; default: in its home. A new one gets the policy's limits."),
    ] = None,
    home: HomeOption = None,
    address: AddressOption = None,
    noise: Annotated[str, typer.Option(help='"fast" is not secure, and the card says so.')] = "secure",
    patience: PatienceOption = 86_400.0,
    example: Annotated[bool, typer.Option("--example", help="Print a policy to start from.")] = False,
) -> None:
    """Take part in one run with your own rows: sign its contract if your policy allows it, and answer until it ends."""
    if example:
        out.print(_POLICY)
        return
    if invitation is None or table is None or schema is None or policy is None:
        raise typer.BadParameter(
            "An invitation, --table, --schema and --policy are needed (--example prints a policy)."
        )
    sit_down(
        invitation, table=table, schema=schema, policy=policy, ledger=ledger, home=home, noise=noise,
        dial={"address": address, "patience": patience},
    )  # fmt: skip


def aggregate(
    invitation: Annotated[Path, typer.Argument(help="The invitation file from the operator of the hub.")],
    schema: Annotated[Path, typer.Option(help="The public schema of the rows that people hold.")],
    policy: Annotated[Path, typer.Option(help="What may run here (TOML); `join --example` prints one.")],
    ledger: Annotated[
        Path | None, typer.Option(help="What was released here, and when; default: in the home.")
    ] = None,
    home: HomeOption = None,
    address: AddressOption = None,
    patience: PatienceOption = 86_400.0,
) -> None:
    """Take part in one run without rows, as the second aggregator: add up people's shares, and release the sum once.

    It must not be in the hands of those who run the server: the two together could read every upload.
    """
    sit_down(
        invitation, table=None, schema=schema, policy=policy, ledger=ledger, home=home, noise="secure",
        dial={"address": address, "patience": patience},
    )  # fmt: skip


def sit_down(
    invitation: Path,
    *,
    table: Path | None,
    schema: Path,
    policy: Path,
    ledger: Path | None,
    home: Path | None,
    noise: str,
    dial: dict[str, Any],
    receiver: "Receiver | None" = None,
) -> None:
    """Take part in one run until it is over. `receiver` opens a box for people's uploads in the party's home."""
    with_grpc()
    from understudy.network.decisions import Queue
    from understudy.network.holder import aggregator_key, at_home, identity_of, take_seat
    from understudy.network.status import Status, WatchedLog
    from understudy.runtime.grpc.party import join as take_part
    from understudy.runtime.identity import Invitation
    from understudy.runtime.policy import Policy

    shown, rules = Invitation.load(invitation), Policy.load(policy)
    with at_home(home or Path(shown.party)) as folder:
        if table is None and receiver is None:
            err.print(
                f"Key of this aggregator, for the settings of a run: {aggregator_key(folder).public.hex()}"
            )
        log = WatchedLog(folder / "audit.jsonl", _hearer(dial["patience"]))
        queue = Queue(home=folder, show=lambda contract: _show(contract, shown.party), prompt=_answered())
        opened = nullcontext() if receiver is None else receiver(folder, rules, queue.stopped, log)
        with _interruptible(queue.stopped), bar_of() as watch, opened as box:
            mine = identity_of(shown, folder, log=log, **dial)
            seat = take_seat(
                mine, table=table, schema=schema, policy=rules, home=folder, ledger=ledger, noise=noise,
                confirm=queue, withdraw=queue.withdraw, log=log, watch=watch, box=box,
            )  # fmt: skip
            book = str((ledger or folder / f"{mine.party}.ledger").resolve())
            where = dial["address"] or mine.address
            facts = {"party": mine.party, "federation": mine.federation, "address": where}

            def counts() -> dict[str, Any]:
                return log.counts if box is None else log.counts | box.counts

            with Status(folder, more=counts, role="party", book=book, **facts) as status:
                status.say(state="joined")
                take_part(seat, **dial)
                if box is not None:
                    box.forget()
                status.say(state="done")
        out.print(f"The run is over. {seat.ledger.summary()}")


def approve(
    home: Annotated[Path, typer.Argument(help="The party's home.")],
    yes: Annotated[bool, typer.Option("--yes", help="Accept all waiting contracts without asking.")] = False,
    refuse: Annotated[bool, typer.Option("--refuse", help="Refuse all waiting contracts.")] = False,
    contract: Annotated[
        str | None, typer.Option(help="Only the contract of this digest, as it is shown with it.")
    ] = None,
) -> None:
    """Accept or refuse the contracts that wait for a decision (policy: accept = "ask")."""
    from understudy.network.decisions import Queue, known_party

    queue, party = Queue(home=home), known_party(home)
    waiting = queue.waiting() if contract is None else [queue.find(contract)]
    if not waiting:
        out.print("No contract waits for a decision.")
    for one in waiting:
        _show(one, party)
        accept = not refuse and (yes or typer.confirm("Accept?"))
        queue.decide(one, accept=accept)
        out.print("Accepted." if accept else "Refused.")


def _hearer(patience: float) -> Callable[[str, Mapping[str, Any]], None]:
    """A line for what a holder should see while it waits; the same reason is not said twice in a row."""
    last = ""

    def hear(event: str, facts: Mapping[str, Any]) -> None:
        nonlocal last
        match event:
            case "enrolled":
                err.print("The invitation was exchanged. The key was made here and stays here.")
            case "contract accepted":
                err.print(f"Signed the contract of {facts['run']}.")
            case "contract resumed":
                err.print(f"Resuming {facts['run']}, whose contract was signed before.")
            case "disconnected" if facts["why"] != last:
                err.print(f"No connection ({facts['why']}); trying again.")
                if "nothing listens" in facts["why"]:
                    hours = f"{patience / 3600:.3g} h"
                    err.print(
                        f"The server has not begun, or its run is over. Ctrl-C ends; else after {hours}."
                    )
        last = facts["why"] if event == "disconnected" else ""

    return hear


def _show(contract: "Contract", party: str) -> None:
    from understudy.network.decisions import contract_words

    err.print("\nA contract waits for your decision:")
    for what, meaning in contract_words(contract, party):
        err.print(f"  {what:<11} {meaning}")
    if sys.stdin.isatty():
        err.print("Accept? [y/N] ", end="")
    else:
        err.print("Decide with `understudy approve HOME`, or in the browser: `understudy console HOME`.")


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
        err.print("Stopped. The same command resumes the run, if the server still waits.")
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGINT, before)


_POLICY = """\
protocols = ["gram", "verti-gan"]   # which protocols may run here
epsilon_run = 2.0                   # the most that one run may cost a person here
epsilon_total = 8.0                 # the most that all runs may cost
delta = 1e-6
people = 1000                       # with fewer people than this here, every run is refused
accept = "ask"                      # "always": within these limits, sign without asking
partners = ["insurer"]              # who else may take part; leave it out for anybody
people_are_elsewhere = false        # true: other holders of rows may also hold some of these people"""
