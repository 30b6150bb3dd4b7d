"""Commands for a party on its own machine: `join`, `aggregate`, `collect`, `approve`;
and `count`, on others of its.
"""

import secrets
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli import terminal
from understudy.cli.terminal import (
    Certificate,
    Key,
    Proxied,
    argument,
    option,
    progress_bar,
)
from understudy.cli.terminal import plain as out
from understudy.cli.terminal import plain_err as err
from understudy.data.reading.sources import source_at
from understudy.ground.errors import ConfigError, Effect
from understudy.network.status import Status, WatchedLog

if TYPE_CHECKING:
    from understudy.runtime.contract import Contract, Policy
    from understudy.services.collect.box import Box

    Receiver = Callable[
        [Path, Policy, threading.Event, WatchedLog], AbstractContextManager[Box]
    ]

INVITATION = "The invitation file from the operator of the hub."
PEOPLES_SCHEMA = "The public schema of the rows that people hold."
POLICY = "What may run here (TOML); `join --example` prints one."
Home = Annotated[
    Path | None,
    option("The folder for this party's own files; default: a folder with its name."),
]
Address = Annotated[str | None, option("HOST:PORT, if not the invitation's.")]
Patience = Annotated[
    float, option("How many seconds to keep trying if the server does not answer.")
]
Parts = Annotated[
    str | None,
    option(
        "FOLDER:n: a long table is counted in n parts, by `understudy count FOLDER`."
    ),
]


def join(
    invitation: Annotated[Path | None, argument(INVITATION)] = None,
    table: Annotated[
        Path | None, option("The rows: CSV, Excel, Parquet, or a NAME.source.toml.")
    ] = None,
    schema: Annotated[Path | None, option("Their public schema.")] = None,
    policy: Annotated[Path | None, option("What may run here (TOML).")] = None,
    ledger: Annotated[
        Path | None,
        option("The holder's ledger; default: in its home, by the policy's limits."),
    ] = None,
    home: Home = None,
    address: Address = None,
    noise: Annotated[
        str, option('"fast" is not secure, and the card says so.')
    ] = "secure",
    patience: Patience = 86_400.0,
    parts: Parts = None,
    example: Annotated[
        bool, option("Print a policy to start from.", "--example")
    ] = False,
) -> None:
    """Take part in one run with your own rows: sign its contract if your policy allows
    it, and answer until it ends.
    """
    if example:
        out.print(
            Path(__file__).with_name("example_policy.toml").read_text(encoding="utf-8"),
            end="",
        )
        return
    if invitation is None or table is None or schema is None or policy is None:
        raise typer.BadParameter(
            "An invitation, --table, --schema and --policy are needed (--example "
            "prints a policy)."
        )
    with counted_in(parts):
        _sit_down(
            invitation,
            schema,
            policy,
            ledger,
            home,
            address,
            patience,
            table=table,
            noise=noise,
        )


def aggregate(
    invitation: Annotated[Path, argument(INVITATION)],
    schema: Annotated[Path, option(PEOPLES_SCHEMA)],
    policy: Annotated[Path, option(POLICY)],
    ledger: Annotated[
        Path | None, option("What was released here, and when; default: in the home.")
    ] = None,
    home: Home = None,
    address: Address = None,
    patience: Patience = 86_400.0,
) -> None:
    """Take part in one run without rows, as the second aggregator: add up people's
    shares, and release the sum once.

    It must not be in the hands of those who run the server: the two together could read
    every upload.
    """
    _sit_down(invitation, schema, policy, ledger, home, address, patience)


def collect(
    invitation: Annotated[Path | None, argument(INVITATION)] = None,
    schema: Annotated[Path | None, option(PEOPLES_SCHEMA)] = None,
    policy: Annotated[Path | None, option(POLICY)] = None,
    codes: Annotated[
        Path | None,
        option("Who may upload once: a file with a code a line; default: anybody."),
    ] = None,
    until: Annotated[
        datetime | None, option("When the collection is over, by this machine's clock.")
    ] = None,
    then: Annotated[
        datetime | None,
        option("When the second collection is over, where a run has two."),
    ] = None,
    max_uploads: Annotated[
        int | None, option("Also end the collection after this many uploads.", min=1)
    ] = None,
    listen: Annotated[
        str, option("HOST:PORT for people's devices.")
    ] = "127.0.0.1:8700",
    certificate: Certificate = None,
    key: Key = None,
    proxied: Proxied = False,
    rate: Annotated[float, option("Requests a second for each address.")] = 20.0,
    ledger: Annotated[
        Path | None,
        option("What was passed on here, and its price; default: in the home."),
    ] = None,
    home: Home = None,
    address: Address = None,
    patience: Patience = 86_400.0,
    make_codes: Annotated[
        int, option("Print this many new codes, and exit.", min=0)
    ] = 0,
) -> None:
    """Take part in one run with what people's own devices upload: one upload each,
    which this party cannot read.

    The collection begins with the run. It ends at the time of --until, after
    --max-uploads uploads, or when everybody with a code has uploaded. `one-report` has
    two collections, each for some of the people: the second begins when the first was
    read, and ends at the time of --then. Uploads are on disk before they are
    acknowledged.
    After a stop the same command resumes; --until may then be later. Uploads are
    deleted when the run is over.
    """
    if make_codes:
        out.print("\n".join(secrets.token_hex(18) for _ in range(make_codes)))
        return
    if invitation is None or schema is None or policy is None:
        raise typer.BadParameter("An invitation, --schema and --policy are needed.")
    if codes is None and until is None and max_uploads is None:
        raise typer.BadParameter(
            "Say when the collection is over: --codes, --until or --max-uploads."
        )
    terminal.need("fastapi", "uvicorn")
    where = terminal.host_and_port(listen, 8700)

    @contextmanager
    def receiver(
        folder: Path, rules: "Policy", stopped: threading.Event, log: WatchedLog
    ) -> Iterator["Box"]:
        """A box in the party's home, and a server before it."""
        from understudy.services.collect.app import serving
        from understudy.services.collect.box import MAX_UPLOADS, Box, read_codes
        from understudy.services.web.limits import Limits

        def hear(event: str, facts: Mapping[str, Any]) -> None:
            log.write(event, **facts)
            err.print(_collection_words(event, facts))

        limits = Limits(rate=rate, burst=max(1, round(10 * rate)))
        ends = [None if end is None else end.timestamp() for end in (until, then)]
        box = Box(
            folder / "uploads",
            codes=None if codes is None else read_codes(codes),
            until=ends[0],
            then=ends[1],
            max_uploads=max_uploads or MAX_UPLOADS,
            least=rules.people,
            stopped=stopped,
            watch=hear,
        )
        try:
            with serving(
                box,
                limits=limits,
                certificate=certificate,
                key=key,
                proxied=proxied,
                **where,
            ) as port:
                err.print(f"Listening for people's devices on port {port}.")
                if certificate is None and not proxied:
                    err.print(
                        "Without a certificate this is a try-out: devices on this "
                        "machine alone reach it."
                    )
                yield box
        finally:
            box.close()

    _sit_down(
        invitation, schema, policy, ledger, home, address, patience, receiver=receiver
    )


def _collection_words(event: str, facts: Mapping[str, Any]) -> str:
    if event == "collecting":
        return f"Collecting uploads for {facts['run']}."
    refused = ", ".join(
        f"{count:,} {why}" for why, count in sorted(facts["refused"].items())
    )
    refusals = f"; refused: {refused}." if refused else "."
    return f"The collection is over: {facts['people']:,} uploads{refusals}"


def _sit_down(
    invitation: Path,
    schema: Path,
    policy: Path,
    ledger: Path | None,
    home: Path | None,
    address: str | None,
    patience: float,
    *,
    table: Path | None = None,
    noise: str = "secure",
    receiver: "Receiver | None" = None,
) -> None:
    """Take part in one run until it is over. `receiver` opens a box for people's
    uploads in the party's home.
    """
    terminal.need_grpc()
    from understudy.network.decisions import DecisionQueue
    from understudy.network.holder import (
        aggregator_key,
        build_participant,
        lock_home,
        obtain_identity,
    )
    from understudy.runtime.contract import Policy
    from understudy.runtime.grpc.party import join as take_part
    from understudy.runtime.identity import Invitation

    shown = Invitation.load(invitation)
    rules = Policy.load(policy)
    with lock_home(home or Path(shown.party)) as folder:
        if table is None and receiver is None:
            err.print(
                "Key of this aggregator, for the settings of a run: "
                f"{aggregator_key(folder).public.hex()}"
            )
        log = WatchedLog(folder / "audit.jsonl", _hearer(patience))
        queue = DecisionQueue(
            home=folder,
            show=lambda contract: _show_contract(contract, shown.party),
            prompt=_typed_answer(),
        )
        opened = (
            nullcontext()
            if receiver is None
            else receiver(folder, rules, queue.stopped, log)
        )
        with _interruptible(queue.stopped), progress_bar() as watch, opened as box:
            identity = obtain_identity(
                shown, folder, log=log, address=address, patience=patience
            )
            participant = build_participant(
                identity,
                table=table,
                schema=schema,
                policy=rules,
                home=folder,
                ledger=ledger,
                noise=noise,
                confirm=queue,
                withdraw=queue.withdraw,
                log=log,
                watch=watch,
                box=box,
            )
            book = str((ledger or folder / f"{identity.party}.ledger").resolve())
            facts = {
                "party": identity.party,
                "federation": identity.federation,
                "address": address or identity.address,
            }

            def counts() -> dict[str, Any]:
                return log.counts if box is None else log.counts | box.counts

            with Status(
                folder, more=counts, role="party", book=book, **facts
            ) as status:
                status.update(state="joined")
                take_part(participant, address=address, patience=patience)
                if box is not None:
                    box.forget()
                status.update(state="done")
        out.print(f"The run is over. {participant.ledger.summary()}")


def approve(
    home: Annotated[Path, argument("The party's home.")],
    yes: Annotated[
        bool, option("Accept all waiting contracts without asking.", "--yes")
    ] = False,
    refuse: Annotated[
        bool, option("Refuse all waiting contracts.", "--refuse")
    ] = False,
    contract: Annotated[
        str | None, option("Only the contract of this digest, as it is shown with it.")
    ] = None,
) -> None:
    """Accept or refuse the contracts that wait for a decision (policy: accept =
    "ask").
    """
    from understudy.network.decisions import DecisionQueue, read_party

    queue = DecisionQueue(home=home)
    party = read_party(home)
    waiting = queue.waiting() if contract is None else [queue.find(contract)]
    if not waiting:
        out.print("No contract waits for a decision.")
    for waiting_contract in waiting:
        _show_contract(waiting_contract, party)
        accept = not refuse and (yes or typer.confirm("Accept?"))
        queue.decide(waiting_contract, accept=accept)
        out.print("Accepted." if accept else "Refused.")


def _hearer(patience: float) -> Callable[[str, Mapping[str, Any]], None]:
    """A line for what a holder should see while it waits; the same reason is not said
    twice in a row.
    """
    last = ""

    def hear(event: str, facts: Mapping[str, Any]) -> None:
        nonlocal last
        match event:
            case "enrolled":
                err.print(
                    "The invitation was exchanged. The key was made here and stays "
                    "here."
                )
            case "contract accepted":
                err.print(f"Signed the contract of {facts['run']}.")
            case "contract resumed":
                err.print(f"Resuming {facts['run']}, whose contract was signed before.")
            case "disconnected" if facts["why"] != last:
                err.print(f"No connection ({facts['why']}); trying again.")
                if "nothing listens" in facts["why"]:
                    hours = f"{patience / 3600:.3g} h"
                    err.print(
                        "The server has not begun, or its run is over. Ctrl-C ends; "
                        f"else after {hours}."
                    )
        last = facts["why"] if event == "disconnected" else ""

    return hear


def _show_contract(contract: "Contract", party: str) -> None:
    from understudy.network.decisions import contract_words

    err.print("\nA contract waits for your decision:")
    for label, meaning in contract_words(contract, party):
        err.print(f"  {label:<11} {meaning}")
    if sys.stdin.isatty():
        err.print("Accept? [y/N] ", end="")
    else:
        err.print(
            "Decide with `understudy approve HOME`, or in the browser: `understudy "
            "console HOME`."
        )


def _typed_answer() -> Any:
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
        err.print(
            "Stopped. The same command resumes the run, if the server still waits."
        )
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def counted_in(parts: str | None) -> Iterator[None]:
    """Long tables that are opened within are counted as --parts says, or here. The run
    adds up, and draws noise.
    """
    if parts is None:
        yield
        return
    from understudy.data.reading.spread import counted_by
    from understudy.data.reading.workers import InFolder

    with InFolder.at(parts) as folder, counted_by(folder):
        yield


def count(
    folder: Annotated[Path, argument("The folder that the run names with --parts.")],
    part: Annotated[str, option("Which part, of how many: 1/64 to 64/64.")],
    rows: Annotated[
        Path | None,
        option("Where the run's whole table is on this machine, if elsewhere."),
    ] = None,
    patience: Annotated[
        float, option("How many seconds to wait for the run, or for its next count.")
    ] = 86_400.0,
) -> None:
    """Count a part of a long table for a run of the same user, as long as it lasts: in
    a Slurm array, or a pod each.

    What is counted is sealed, for the run alone, and lies in the folder until the run
    has read it.
    """
    from understudy.data.reading.workers import count_until_over

    number, _, parts = part.partition("/")
    if not (
        number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)
    ):
        raise ConfigError(
            f"--part is i/n, from 1/64 to 64/64, not {part!r}.",
            effect=Effect.NOTHING_COMPUTED,
        )
    count_until_over(
        folder,
        int(number) - 1,
        int(parts),
        None if rows is None else source_at(rows),
        patience,
        say=err.print,
    )
