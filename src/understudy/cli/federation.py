"""`understudy federation`: create one of many machines, invite parties, renew, revoke.

The class `Federation` is another thing: holders in one process.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.terminal import argument, option, print_table
from understudy.cli.terminal import plain as out
from understudy.ground.check import plain_names
from understudy.ground.errors import ConfigError
from understudy.runtime.lifetimes import DAYS, INVITED_DAYS

if TYPE_CHECKING:
    from understudy.runtime.identity import Authority

app = typer.Typer(
    no_args_is_help=True,
    help="A federation of holders on machines of their own: create it, invite parties, renew, revoke.",
)
FolderOption = Annotated[Path, option("The federation's folder.", "--folder")]
FEDERATION = Path("federation")


@app.command("init")
def init(
    name: Annotated[str, argument("What the federation is called.")],
    at: Annotated[str, option("The address that parties connect to: HOST:PORT, as they see it.")],
    party: Annotated[list[str] | None, option("Also invite this party; may be repeated.")] = None,
    folder: FolderOption = FEDERATION,
    days: Annotated[int, option("For how many days certificates are valid.", min=1)] = DAYS,
) -> None:
    """Create a federation: a private authority, the server's certificate, and an invitation for each party."""
    from understudy.runtime.identity import Authority

    plain_names(party or (), "party")
    authority = Authority.found(folder, name=name, address=at, days=days)
    out.print(
        f"{name} is created in {folder}. ca.key signs invitations: keep it safe, and offline when all have joined."
    )
    for one in party or ():
        _invited(authority, one, INVITED_DAYS)


@app.command("invite")
def invite(
    party: Annotated[str, argument("The party's name.")],
    folder: FolderOption = FEDERATION,
    days: Annotated[int, option("For how many days the invitation is valid.", min=1)] = INVITED_DAYS,
    finished: Annotated[
        bool, option("Include the key, for a party that never connects to `understudy serve`.", "--finished")
    ] = False,
) -> None:
    """Invite a party. The invitation is exchanged once, for a certificate whose key the party makes itself.

    With --finished, the file is the party's identity itself: the party keeps it as identity.toml in its home. Anyone
    who sees it on the way can pose as that party to the server.
    """
    from understudy.runtime.identity import Authority

    authority = Authority(folder)
    if party in authority.roster.parties:
        raise ConfigError(
            f"{party} was invited before. `understudy federation renew {party}` invites it again, and from then on "
            "refuses its old certificate. Nothing was changed."
        )
    if finished:
        path = authority.issue(party).save(folder / "invitations" / f"{party}.toml")
        out.print(
            f"Hand {path} to {party} in secret, and delete it here. It is {party}'s identity, with its key."
        )
        return
    _invited(authority, party, days)


@app.command("renew")
def renew(
    party: Annotated[str | None, argument("The party that gets a new invitation.")] = None,
    server: Annotated[bool, option("Renew the server's own certificate.", "--server")] = False,
    folder: FolderOption = FEDERATION,
    days: Annotated[int, option("For how many days the invitation is valid.", min=1)] = INVITED_DAYS,
) -> None:
    """Renew a party (a new invitation; its old certificate is refused from now on) or the server's certificate."""
    from understudy.runtime.identity import Authority

    authority = Authority(folder)
    if server:
        authority.renew_server()
        out.print("The server has a new certificate: restart `understudy serve`. Parties need to do nothing.")
    elif party is None:
        raise typer.BadParameter("Which party? Or --server.")
    elif party not in authority.roster.parties:
        raise ConfigError(f"{party} is not on the roster of {authority.roster.name}. Nothing was changed.")
    else:
        _invited(authority, party, days)


@app.command("revoke")
def revoke(
    party: Annotated[str, argument("The party that is refused from now on.")],
    folder: FolderOption = FEDERATION,
) -> None:
    """Refuse a party from now on, also on a server that is running."""
    from understudy.runtime.identity import Authority

    Authority(folder).revoke(party)
    out.print(f"{party} is refused from now on.")


@app.command("show")
def show(folder: FolderOption = FEDERATION) -> None:
    """Who is on the roster."""
    from understudy.runtime.identity import Authority

    roster = Authority(folder).roster
    out.print(f"{roster.name}, at {roster.address}")
    cells = (
        (name, "invited" if entry.get("once") else "enrolled", entry["expires"],
         entry["fingerprint"].removeprefix("sha256:")[:16])
        for name, entry in roster.read()["parties"].items()
    )  # fmt: skip
    print_table(("party", "is", "until", "certificate"), cells)


def _invited(authority: "Authority", party: str, days: int) -> None:
    path = authority.invite(party, days=days)
    out.print(
        f"Hand {path} to {party}, over a channel that both trust, within {days} days; then delete it here."
    )
