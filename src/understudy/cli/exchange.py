"""`understudy exchange`: run a generator exchange, and trade on one.

What needs the web libraries is imported when it is used: everybody else's commands work without them.
"""

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.table import Table as Grid

from understudy.check import nearest
from understudy.data.images import ImageSchema
from understudy.data.labelled import read_labelled_images
from understudy.data.population import Population
from understudy.data.table import Table, read_table
from understudy.errors import ConfigError
from understudy.federation import open_ledger
from understudy.generator import Generator
from understudy.privacy.budget import Budget
from understudy.protocols.sgde import labelled_images
from understudy.protocols.sgde import pool as pool_of
from understudy.protocols.sgde_check import suspicions
from understudy.protocols.sgde_offer import Requirements, check_price
from understudy.protocols.sgde_party import FOR_IMAGES, Recipe, train_offers
from understudy.report.words import at_price, chance, price, size

if TYPE_CHECKING:
    from understudy.exchange.client import Client

exchange_app = typer.Typer(
    no_args_is_help=True,
    help="Trade generators instead of rows: one silo runs the exchange, all push and pull.\n\n"
    "A member's commands take the address from --at or UNDERSTUDY_EXCHANGE, and the token from UNDERSTUDY_TOKEN or "
    "--token-file.",
)
token_app = typer.Typer(no_args_is_help=True, help="Who may call: issue, list, revoke (administrators).")
exchange_app.add_typer(token_app, name="token")
out = Console(highlight=False, soft_wrap=True, markup=False)
wide = Console(highlight=False, markup=False, width=500)  # for tables: a long line is better than a cut one
err = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)

At = Annotated[str, typer.Option("--at", envvar="UNDERSTUDY_EXCHANGE", help="The exchange's address.")]
TokenFile = Annotated[Path | None, typer.Option(help="A file with the token; else UNDERSTUDY_TOKEN.")]
Authorities = Annotated[
    Path | None,
    typer.Option("--ca", envvar="UNDERSTUDY_CA", help="A certificate to trust besides the usual ones."),
]
Labels = Annotated[list[str] | None, typer.Option("--label", help="Only this class; may be repeated.")]
Silos = Annotated[list[str] | None, typer.Option("--silo", help="Only of this silo; may be repeated.")]
MostEpsilon = Annotated[float | None, typer.Option("--epsilon", help="Only at this ε or less.")]


def mount(app: typer.Typer) -> None:
    """Add the commands to the `understudy` command."""
    app.add_typer(exchange_app, name="exchange")


# Who runs it


@exchange_app.command()
def serve(
    data: Annotated[Path, typer.Option(help="The exchange's folder; made if it is not there.")],
    pool: Annotated[list[Path] | None, typer.Option(help="A pool to found (TOML); may be repeated.")] = None,
    listen: Annotated[str, typer.Option(help="HOST:PORT.")] = "127.0.0.1:8600",
    database: Annotated[
        str | None,
        typer.Option(envvar="UNDERSTUDY_DATABASE", help="A database URL; default: SQLite in the folder."),
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="For TLS, with its key.")] = None,
    key: Annotated[Path | None, typer.Option(help="The certificate's key.")] = None,
    proxied: Annotated[bool, typer.Option(help="A proxy in front speaks TLS.")] = False,
    rate: Annotated[float, typer.Option(help="Requests a second for each token.")] = 20.0,
    largest: Annotated[int, typer.Option(help="Bytes of a generator at most, in any pool.")] = 1 << 26,
    new_admin: Annotated[
        bool, typer.Option(help="Write another administrator's token: the last is lost.")
    ] = False,
) -> None:
    """Serve an exchange. The first start writes an administrator's token into the folder."""
    _need("fastapi", "uvicorn", "sqlalchemy")
    from understudy.exchange.limits import Limits
    from understudy.exchange.pool_file import read_pool
    from understudy.exchange.serve import open_exchange, server_for

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"--listen looks like 127.0.0.1:8600, not {listen!r}.")
    limits = Limits(rate=rate, burst=max(1, round(10 * rate)), largest=largest)
    founded = dict(map(read_pool, pool or ()))
    exchange = open_exchange(data, database=database, pools=founded, limits=limits, new_admin=new_admin)
    try:
        server = server_for(
            exchange, host=host.strip("[]"), port=int(port), certificate=certificate, key=key, proxied=proxied
        )
        scheme = "http" if certificate is None else "https"
        out.print(f"Serving {data} at {scheme}://{listen}. Administrator's token: {data / 'admin.token'}")
        server.run()
    finally:
        exchange.close()


@token_app.command("new")
def token_new(
    silo: Annotated[str, typer.Argument(help="For whom.")],
    at: At,
    pool: Annotated[str | None, typer.Option(help="The pool that it is for.")] = None,
    admin: Annotated[bool, typer.Option(help="For an administrator, of no pool.")] = False,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """Print a new token. It is shown this once: hand it over by a way that both trust."""
    with _client(at, token_file, ca) as client:
        out.print(client.issue(silo, pool=pool, role="admin" if admin else "member"))


@token_app.command("list")
def token_list(at: At, token_file: TokenFile = None, ca: Authorities = None) -> None:
    """All tokens, without their secrets."""
    with _client(at, token_file, ca) as client:
        rows = client.tokens()
    keys = ("id", "silo", "role", "pool", "created", "revoked")
    _table(keys, ([row[key] or "" for key in keys] for row in rows))


@token_app.command("revoke")
def token_revoke(
    id: Annotated[str, typer.Argument(help="The token's id, from `token list`.")],
    at: At,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """End a token, from the next request on."""
    with _client(at, token_file, ca) as client:
        out.print(f"The token {id} of {client.revoke(id)['silo']} is ended.")


@exchange_app.command()
def log(
    at: At,
    after: Annotated[int, typer.Option(help="Only lines after this one.")] = 0,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """Every push and pull, done or refused (administrators)."""
    with _client(at, token_file, ca) as client:
        rows = client.events(after=after)
    keys = ("id", "at", "silo", "action", "status", "pool")
    _table(
        (*keys, "sha256"), ([*(row[key] or "" for key in keys), (row["digest"] or "")[:12]] for row in rows)
    )


# A silo


@exchange_app.command()
def subscribe(
    at: At,
    to: Annotated[Path | None, typer.Option("--out", help="Write the pool's schema there (TOML).")] = None,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """Join the pool of this token: what a generator must fulfil there."""
    with _client(at, token_file, ca) as client:
        name, _ = _membership(client)
        required = client.subscribe(name)
    out.print(
        f'Subscribed to "{name}": one generator for each class of {required.target} '
        f"({', '.join(map(str, required.labels))}), {at_price(required.epsilon, required.delta)} or less, "
        f"weights of {size(required.largest)} or less, networks {', '.join(required.networks)}."
    )
    if to is not None:
        required.schema.save(to)
        out.print(f"The pool's schema is in {to}.")


@exchange_app.command()
def train(
    rows: Annotated[
        Path,
        typer.Argument(
            help="This silo's rows: CSV or Parquet; .npz with `images` and classes for a pool of images."
        ),
    ],
    ledger: Annotated[Path, typer.Option(help="This silo's ledger; a new one gets ε and δ as its budget.")],
    at: At,
    to: Annotated[Path, typer.Option("--out", help="A folder for the generators.")] = Path("offers"),
    epsilon: Annotated[float | None, typer.Option(help="What to spend; default: the pool's limit.")] = None,
    delta: Annotated[float | None, typer.Option(help="At which δ; default: the pool's limit.")] = None,
    person: Annotated[
        str | None,
        typer.Option(
            help="The column, or array, that identifies people; default: the pool's. "
            "Of several images of one, the first counts."
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of training; default: by the kind of rows.")
    ] = None,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """Train a generator for each class by the pool's requirements. Paid from the ledger; nothing is sent."""
    with _client(at, token_file, ca) as client:
        name, silo = _membership(client)
        required = client.subscribe(name)
    if to.exists() and any(to.iterdir()):
        raise ConfigError(f"{to} is not empty. Nothing was charged.")
    epsilon = required.epsilon if epsilon is None else epsilon
    budget = Budget(epsilon, required.delta if delta is None else delta)
    check_price(required, budget.epsilon, budget.delta)
    held, recipe = _read(rows, required, person)
    if steps is not None:
        recipe = replace(recipe, steps=steps)
    with open_ledger(ledger, silo, budget) as book:
        offers = train_offers(
            silo, held, book, required, budget=budget, run=f"exchange {name}", recipe=recipe
        )
        for offer in offers:
            folder = offer.save(to / _file_name(offer.card["label"]))
            out.print(f"{folder}: {at_price(offer.card['epsilon'], offer.card['delta'])}")
        out.print(book.summary())


@exchange_app.command()
def push(
    folders: Annotated[list[Path], typer.Argument(help="Generators, each a folder.")],
    at: At,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """Offer generators to the pool of this token. Each is checked here first."""
    generators = [Generator.load(folder) for folder in folders]
    with _client(at, token_file, ca) as client, _bar() as watch:
        name, _ = _membership(client)
        for folder, generator in zip(folders, generators, strict=True):
            said = client.push(name, generator, watch=watch(str(folder)))
            cost = at_price(said["epsilon"], said["delta"])
            out.print(f"{folder} is on offer in {name}: {said['label']}, {cost}, {said['digest'][:12]}")


@exchange_app.command("list")
def list_offers(
    at: At,
    label: Labels = None,
    silo: Silos = None,
    epsilon: MostEpsilon = None,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """What is on offer."""
    with _client(at, token_file, ca) as client:
        name, _ = _membership(client)
        chosen = _chosen(client.subscribe(name), label)
        offers = client.offers(name, labels=chosen, silos=silo or (), epsilon=epsilon)
    cells = (
        (o["label"], o["silo"], price(o["epsilon"]), chance(o["delta"]), o["network"], size(o["bytes"]),
         o["created"][:10], o["digest"][:12])
        for o in offers
    )  # fmt: skip
    _table(("class", "silo", "ε", "δ", "network", "size", "since", "sha256"), cells)


@exchange_app.command()
def pull(
    at: At,
    to: Annotated[Path, typer.Option("--out", help="A folder for the generators and the pool of them.")],
    label: Labels = None,
    silo: Silos = None,
    epsilon: MostEpsilon = None,
    suspects: Annotated[
        bool, typer.Option("--suspects", help="Also take offers that look poisoned into the pool.")
    ] = False,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """Take what is on offer, and make one generator of it in which every class is as likely as any other.

    Offers that the rest of the pool does not recognise are left out of it, unless --suspects. Draw rows with
    `understudy sample`, images with their classes with `understudy exchange draw`.
    """
    with _client(at, token_file, ca) as client, _bar() as watch:
        name, _ = _membership(client)
        required = client.subscribe(name)
        offers = client.offers(name, labels=_chosen(required, label), silos=silo or (), epsilon=epsilon)
        if not offers:
            raise ConfigError("nothing is on offer that fits this choice.")
        pulled = []
        for o in offers:
            folder = to / "offers" / f"{o['silo']}-{_file_name(o['label'])}-{o['digest'][:12]}"
            pulled.append(client.pull(name, o["digest"], to=folder, watch=watch(folder.name)))
    judged = suspicions(required, pulled)
    cells = (
        (one.label, one.silo, price(o["epsilon"]), "" if one.agreement is None else f"{one.agreement:.0%}",
         "suspect" if one.flagged else "")
        for one, o in zip(judged, offers, strict=True)
    )  # fmt: skip
    _table(("class", "silo", "ε", "others agree", ""), cells)
    kept = [one for one, judgement in zip(pulled, judged, strict=True) if suspects or not judgement.flagged]
    told = {"protocol": "sgde", "exchange": at, "pool": name, "target": required.target,
            "offers": [offer["digest"] for offer in offers]}  # fmt: skip
    pool_of(kept, required, told).save(to / "generator")
    way = (
        f"exchange draw {to} --out images.npz" if isinstance(required.schema, ImageSchema) else f"sample {to}"
    )
    out.print(f"{len(kept)} of {len(pulled)} offers make one generator. Draw from it: understudy {way}")


@exchange_app.command()
def draw(
    folder: Annotated[Path, typer.Argument(help="What `pull` wrote, of a pool of images.")],
    to: Annotated[Path, typer.Option("--out", help="A .npz file.")],
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="How many, over all classes.")] = 1000,
    seed: Annotated[int | None, typer.Option(help="Draw the same images again.")] = None,
) -> None:
    """Draw images with their classes, every class as likely as any other. Drawing costs no privacy, however many.

    The file holds the arrays `images` and, under the name of the pool's class, the class of each.
    """
    generator = Generator.load(folder)
    if not isinstance(generator.schema, ImageSchema) or "members" not in generator.card:
        raise ConfigError(
            f"{folder} is no pulled pool of images. Rows of a table: understudy sample {folder}."
        )
    if to.suffix != ".npz":
        raise ConfigError(f"images are written into a .npz file, not {to.name}. Nothing was drawn.")
    images, labels = labelled_images(generator, rows, seed=seed)
    target = str(generator.card["target"])
    arrays: dict[str, Any] = {target if target not in ("images", "file") else "label": np.array(labels)}
    np.savez_compressed(to, images=images, **arrays)
    out.print(f"{rows:,} images and their classes written to {to}")


# Words and ways


def _read(path: Path, required: Requirements, person: str | None) -> tuple[Table | Population, Recipe]:
    """A silo's rows by the pool's schema, and how such rows are trained on."""
    schema = required.schema if person is None else replace(required.schema, person=person)
    if isinstance(schema, ImageSchema):
        return read_labelled_images(path, schema, target=required.target, labels=required.labels), FOR_IMAGES
    return read_table(path, schema), Recipe()


def _client(at: str, token_file: Path | None, ca: Path | None) -> "Client":
    _need("httpx")
    from understudy.exchange.client import Client

    token = token_file.read_text() if token_file is not None else os.environ.get("UNDERSTUDY_TOKEN", "")
    if not token.strip():
        raise ConfigError("which token? Give --token-file, or set UNDERSTUDY_TOKEN.")
    return Client(at, token, ca=ca)


def _membership(client: "Client") -> tuple[str, str]:
    """The pool and the silo of a member's token."""
    me = client.me()
    if me["pool"] is None:
        raise ConfigError("this token is an administrator's: use a member's.")
    return str(me["pool"]), str(me["silo"])


def _chosen(required: Requirements, words: list[str] | None) -> list[Any]:
    """The classes that these words mean: a class may be a number or a truth value."""
    known = {str(label): label for label in required.labels}
    if strange := [word for word in words or () if word not in known]:
        hint = nearest(strange[0], known)
        raise ConfigError(f"there is no class {strange[0]!r}; the classes are {', '.join(known)}.{hint}")
    return [known[word] for word in words or ()]


def _file_name(label: object) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in str(label)) or "_"


def _table(heads: tuple[str, ...], rows: Any) -> None:
    grid = Grid(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        grid.add_column(head, no_wrap=True)
    for row in rows:
        grid.add_row(*map(str, row))
    wide.print(grid)


@contextmanager
def _bar() -> Iterator[Callable[[str], Callable[[int, int], None] | None]]:
    """A bar for each transfer; quiet when not in a terminal."""
    if not err.is_terminal:
        yield lambda name: None
        return
    with Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), console=err, transient=True
    ) as bar:

        def watch(name: str) -> Callable[[int, int], None]:
            task = bar.add_task(name, total=None)
            return lambda done, total: bar.update(task, completed=done, total=total)

        yield watch


def _need(*modules: str) -> None:
    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        raise ConfigError(f"this needs {', '.join(missing)}: pip install 'understudy[exchange]'.")
