"""`understudy exchange`: run a generator exchange, and trade on one.

What needs the web libraries is imported when it is used: everybody else's commands work without them.
"""

import typer

from understudy.cli import exchange_host as host
from understudy.cli import exchange_silo as silo

exchange_app = typer.Typer(
    no_args_is_help=True,
    help="Trade generators instead of rows: one silo runs the exchange, and all silos push and pull.\n\n"
    "A silo's commands take the address from --at or UNDERSTUDY_EXCHANGE, and the token from UNDERSTUDY_TOKEN or "
    "--token-file.",
)
exchange_app.add_typer(host.token_app, name="token")
exchange_app.command()(host.serve)
exchange_app.command()(host.log)
exchange_app.command()(silo.subscribe)
exchange_app.command()(silo.train)
exchange_app.command()(silo.push)
exchange_app.command("list")(silo.list_offers)
exchange_app.command()(silo.pull)
exchange_app.command()(silo.draw)


def mount(app: typer.Typer) -> None:
    """Add the commands to the `understudy` command."""
    app.add_typer(exchange_app, name="exchange")
