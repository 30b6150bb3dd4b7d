"""`understudy collect`: take part in one run with what people's own devices upload."""

import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.console import plain as out
from understudy.cli.console import plain_err as err
from understudy.cli.extras import need
from understudy.cli.party import AddressOption, HomeOption, PatienceOption, sit_down
from understudy.ground.errors import ConfigError

if TYPE_CHECKING:
    from understudy.network.status import WatchedLog
    from understudy.runtime.policy import Policy
    from understudy.services.collect.box import Box


def collect(
    invitation: Annotated[
        Path | None, typer.Argument(help="The invitation file from the operator of the hub.")
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="The public schema of the rows that people hold.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="What may run here (TOML); `join --example` prints one.")
    ] = None,
    codes: Annotated[
        Path | None,
        typer.Option(
            help="Who may upload, each once: a text file with a code on each line. Default: anybody."
        ),
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(help="When the collection is over, by this machine's clock.")
    ] = None,
    then: Annotated[
        datetime | None, typer.Option(help="When the second collection is over, where a run has two.")
    ] = None,
    most: Annotated[
        int | None, typer.Option(min=1, help="Also end the collection after this many uploads.")
    ] = None,
    listen: Annotated[str, typer.Option(help="HOST:PORT for people's devices.")] = "127.0.0.1:8700",
    certificate: Annotated[Path | None, typer.Option(help="For TLS, with its key.")] = None,
    key: Annotated[Path | None, typer.Option(help="The certificate's key.")] = None,
    proxied: Annotated[bool, typer.Option(help="A proxy in front speaks TLS.")] = False,
    rate: Annotated[float, typer.Option(help="Requests a second for each address.")] = 20.0,
    ledger: Annotated[
        Path | None, typer.Option(help="What was passed on here, and its price; default: in the home.")
    ] = None,
    home: HomeOption = None,
    address: AddressOption = None,
    patience: PatienceOption = 86_400.0,
    make_codes: Annotated[int, typer.Option(min=0, help="Print this many new codes, and exit.")] = 0,
) -> None:
    """Take part in one run with what people's own devices upload: one upload each, which this party cannot read.

    The collection begins with the run. It ends at the time of --until, after --most uploads, or when everybody with a
    code has uploaded. `one-report` has two collections, each for some of the people: the second begins when the first
    was read, and ends at the time of --then. Uploads are on disk before they are acknowledged. After a stop the same
    command resumes; --until may then be later. Uploads are deleted when the run is over.
    """
    if make_codes:
        out.print("\n".join(secrets.token_hex(18) for _ in range(make_codes)))
        return
    if invitation is None or schema is None or policy is None:
        raise typer.BadParameter("An invitation, --schema and --policy are needed.")
    if codes is None and until is None and most is None:
        raise typer.BadParameter("Say when the collection is over: --codes, --until or --most.")
    need("fastapi", "uvicorn")
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"--listen looks like 127.0.0.1:8700, not {listen!r}.")
    opened = partial(
        _opened, codes=codes, until=until, then=then, most=most, host=host.strip("[]"), port=int(port),
        certificate=certificate, key=key, proxied=proxied, rate=rate,
    )  # fmt: skip
    sit_down(
        invitation, table=None, schema=schema, policy=policy, ledger=ledger, home=home, noise="secure",
        dial={"address": address, "patience": patience}, receiver=opened,
    )  # fmt: skip


@contextmanager
def _opened(
    folder: Path,
    rules: "Policy",
    stopped: threading.Event,
    log: "WatchedLog",
    *,
    codes: Path | None,
    until: datetime | None,
    then: datetime | None,
    most: int | None,
    rate: float,
    **where: Any,
) -> Iterator["Box"]:
    """A box in the party's home, and a server before it."""
    from understudy.services.collect.box import MOST, Box, read_codes
    from understudy.services.collect.serve import serving
    from understudy.services.web.limits import Limits

    limits = Limits(rate=rate, burst=max(1, round(10 * rate)))

    def hear(event: str, facts: Mapping[str, Any]) -> None:
        log.write(event, **facts)
        err.print(_words(event, facts))

    box = Box(
        folder / "uploads",
        codes=None if codes is None else read_codes(codes),
        until=None if until is None else until.timestamp(),
        then=None if then is None else then.timestamp(),
        most=most or MOST,
        least=rules.people,
        stopped=stopped,
        watch=hear,
    )
    try:
        with serving(box, limits=limits, **where) as port:
            err.print(f"Listening for people's devices on port {port}.")
            yield box
    finally:
        box.close()


def _words(event: str, facts: Mapping[str, Any]) -> str:
    if event == "collecting":
        return f"Collecting uploads for {facts['run']}."
    refused = ", ".join(f"{count:,} {why}" for why, count in sorted(facts["refused"].items()))
    return f"The collection is over: {facts['people']:,} uploads" + (
        f"; refused: {refused}." if refused else "."
    )
