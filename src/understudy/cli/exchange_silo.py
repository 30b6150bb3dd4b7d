"""`understudy exchange`, for a silo: join a pool, train for it, push, pull."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from understudy.cli.exchange import At, Authorities, TokenFile, as_member, transfers
from understudy.cli.exchange import app as app
from understudy.cli.terminal import RowsArePeople, argument, option, print_table
from understudy.cli.terminal import plain as out
from understudy.ground.check import file_names, nearest, plain_name
from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.budget import Budget, shown
from understudy.report.words import accuracy_words, at_price, format_bytes, power_of_ten

if TYPE_CHECKING:
    from understudy.protocols.papers.sgde.offer import Requirements

Labels = Annotated[
    list[str] | None, option("Only this class; may be repeated.", "--label")
]
ALL = "all"  # classes together: what is offered of sums
Silos = Annotated[
    list[str] | None, option("Only offers of this silo; may be repeated.", "--silo")
]
MostEpsilon = Annotated[float | None, option("Only at this ε or less.", "--epsilon")]


@app.command()
def subscribe(
    at: At,
    to: Annotated[
        Path | None, option("Write the pool's schema there (TOML).", "--out")
    ] = None,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """Join the pool of this token, and show what it requires of a generator."""
    with as_member(at, token_file, ca) as (client, name, _):
        required = client.subscribe(name)
    out.print(
        f'Subscribed to "{name}": one generator for each class of {required.target} '
        f"({', '.join(map(str, required.labels))}), "
        f"{at_price(required.epsilon, required.delta)} or less, "
        f"weights of {format_bytes(required.largest)} or less, networks "
        f"{', '.join(required.networks)}."
    )
    if to is not None:
        required.schema.save(to)
        out.print(f"The pool's schema is in {to}.")


@app.command()
def train(
    rows: Annotated[
        Path,
        argument("This silo's rows: CSV or Parquet; .npz with `images` and classes."),
    ],
    ledger: Annotated[
        Path, option("This silo's ledger; a new one gets ε and δ as its budget.")
    ],
    at: At,
    to: Annotated[Path, option("A folder for the generators.", "--out")] = Path(
        "offers"
    ),
    epsilon: Annotated[
        float | None, option("The ε to spend; default: the pool's limit.")
    ] = None,
    delta: Annotated[
        float | None, option("The δ of the price; default: the pool's limit.")
    ] = None,
    person: Annotated[
        str | None,
        option(
            "The column, or array, that identifies people; default: the pool's. "
            "If a person has several images, only the first is used."
        ),
    ] = None,
    rows_are_people: RowsArePeople = False,
    steps: Annotated[
        int | None, option("Steps of training; default: by the kind of rows.", min=1)
    ] = None,
    kind: Annotated[
        str | None,
        option(
            "beta-vae: a network for each class; marginals: counts of levels, for "
            "silos with few rows; gram: counts of all pairs of levels; moments: sums "
            "of images or series. A pool adds the last two. Default: moments for "
            "series, else beta-vae."
        ),
    ] = None,
    upright: Annotated[
        bool, option("With --kind moments: turn images upright first.", "--upright")
    ] = False,
    quality_epsilon: Annotated[
        float | None,
        option(
            "With --kind gram or moments: spend so much of ε on a figure that stands "
            "on the offer, how often a classifier made of it is right about this "
            "silo's people. Default: no figure."
        ),
    ] = None,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """Train a generator for each class, as the pool requires. The price is charged to
    the ledger; nothing is sent.
    """
    from understudy.generators.generator import Generator
    from understudy.protocols.papers.sgde.kinds import pooled
    from understudy.protocols.papers.sgde.offer import check_price
    from understudy.protocols.papers.sgde.offering import RECIPES
    from understudy.protocols.papers.sgde.party import train_offers
    from understudy.runs.federation import open_ledger

    with as_member(at, token_file, ca) as (client, name, silo):
        required = client.subscribe(name)
    if to.exists() and any(to.iterdir()):
        raise ConfigError(f"{to} is not empty.", effect=Effect.NOTHING_CHARGED)
    epsilon = required.epsilon if epsilon is None else epsilon
    budget = Budget(epsilon, required.delta if delta is None else delta)
    check_price(required, budget.epsilon, budget.delta)
    schema = required.schema
    if person is not None:
        schema = replace(schema, person=person, rows_are_people=False)
    elif rows_are_people:
        schema = replace(schema, person=None, rows_are_people=True)
    schema.require_unit(f"the schema of {name}")
    silo_rows = pooled(schema).read(rows, schema, required.target, required.labels)
    overrides: dict[str, Any] = {
        "kind": kind,
        "steps": steps,
        "quality_epsilon": quality_epsilon,
    }
    overrides = {key: value for key, value in overrides.items() if value is not None}
    usual = RECIPES[schema.kind]
    recipe = replace(usual, upright=upright or usual.upright, **overrides)
    with open_ledger(ledger, silo, budget) as book:
        offers = train_offers(
            silo,
            silo_rows,
            book,
            required,
            budget=budget,
            run=f"exchange {name}",
            recipe=recipe,
        )
        folders = dict(zip(required.labels, file_names(required.labels), strict=True))
        for offer in offers:
            folder = Generator.from_parts(offer).save(
                to / folders.get(offer.card["label"], ALL)
            )
            out.print(
                f"{folder}: {at_price(offer.card['epsilon'], offer.card['delta'])}"
            )
            figure = offer.card.get("quality")
            if figure:
                out.print(
                    f"A classifier made of it is {accuracy_words(figure)}. "
                    f"This figure alone costs {at_price(figure['epsilon'])}."
                )
        out.print(book.summary())


@app.command()
def push(
    folders: Annotated[list[Path], argument("Generators, each a folder.")],
    at: At,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """Offer generators to the pool of this token. Each is checked here first."""
    from understudy.generators.generator import Generator

    generators = [Generator.load(folder) for folder in folders]
    with as_member(at, token_file, ca) as (client, name, _), transfers() as watch:
        for folder, generator in zip(folders, generators, strict=True):
            offer = client.push(name, generator, watch=watch(str(folder)))
            cost = at_price(offer["epsilon"], offer["delta"])
            out.print(
                f"{folder} is on offer in {name}: {_class_word(offer['label'])}, "
                f"{cost}, {offer['digest'][:12]}"
            )


@app.command("list")
def list_offers(
    at: At,
    label: Labels = None,
    silo: Silos = None,
    epsilon: MostEpsilon = None,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """List the offers of the pool."""
    with as_member(at, token_file, ca) as (client, name, _):
        chosen = _parse_labels(client.subscribe(name), label)
        offers = client.offers(name, labels=chosen, silos=silo or (), epsilon=epsilon)
    cells = (
        (
            _class_word(o["label"]),
            o["silo"],
            shown(o["epsilon"]),
            power_of_ten(o["delta"]),
            o["network"],
            format_bytes(o["bytes"]),
            o["created"][:10],
            o["digest"][:12],
        )
        for o in offers
    )
    print_table(
        ("class", "silo", "ε", "δ", "network", "size", "since", "sha256"), cells
    )


@app.command()
def pull(
    at: At,
    to: Annotated[
        Path, option("A folder for the offers and the generator made of them.", "--out")
    ],
    label: Labels = None,
    silo: Silos = None,
    epsilon: MostEpsilon = None,
    suspects: Annotated[
        bool, option("Also use offers that look poisoned.", "--suspects")
    ] = False,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """Download the offers, and make one generator of them in which all classes are
    equally likely.

    Sums (`--kind moments`) are added up and fitted once; classes are then as frequent
    as the silos have them. Offers that do not look like the rest of the pool are left
    out, unless --suspects is given. Draw rows with `understudy sample`, images with
    their classes with `understudy exchange draw`.
    """
    from understudy.data.kinds import IMAGES
    from understudy.generators.generator import Generator
    from understudy.protocols.papers.sgde.pool import assess_offers
    from understudy.protocols.papers.sgde.pool import pool as pool_of

    with as_member(at, token_file, ca) as (client, name, _), transfers() as watch:
        required = client.subscribe(name)
        offers = client.offers(
            name,
            labels=_parse_labels(required, label),
            silos=silo or (),
            epsilon=epsilon,
        )
        if not offers:
            raise ConfigError("no offer fits this choice.")
        pulled = []
        for o in offers:
            folder = to / "offers" / _offer_folder(o)
            pulled.append(
                client.pull(name, o["digest"], to=folder, watch=watch(folder.name))
            )
    judged = assess_offers(required, pulled)
    cells = (
        (
            _class_word(one.label),
            one.silo,
            shown(o["epsilon"]),
            "" if one.agreement is None else f"{one.agreement:.0%}",
            "suspect" if one.flagged else "",
        )
        for one, o in zip(judged, offers, strict=True)
    )
    print_table(("class", "silo", "ε", "others agree", ""), cells)
    kept = [
        one
        for one, judgement in zip(pulled, judged, strict=True)
        if suspects or not judgement.flagged
    ]
    settings = {
        "protocol": "sgde",
        "exchange": at,
        "pool": name,
        "target": required.target,
        "offers": [offer["digest"] for offer in offers],
    }
    Generator.from_parts(pool_of(kept, required, settings)).save(to / "generator")
    way = (
        f"exchange draw {to} --out images.npz"
        if IMAGES.describes(required.schema)
        else f"sample {to}"
    )
    out.print(
        f"{len(kept)} of {len(pulled)} offers make one generator. Draw from it: "
        f"understudy {way}"
    )


@app.command()
def draw(
    folder: Annotated[
        Path, argument("The folder that `pull` wrote, for a pool of images.")
    ],
    to: Annotated[Path, option("A .npz file.", "--out")],
    rows: Annotated[
        int, option("How many images, over all classes.", "--rows", "-n", min=1)
    ] = 1000,
    seed: Annotated[int | None, option("Draw the same images again.")] = None,
) -> None:
    """Sample images with their classes. Sampling costs no privacy, however many.

    The file holds the arrays `images` and, under the name of the pool's class, the
    class of each.
    """
    import numpy as np

    from understudy.data.kinds import IMAGES
    from understudy.generators.generator import Generator
    from understudy.generators.samplers import labelled_images

    generator = Generator.load(folder)
    if not IMAGES.describes(generator.schema) or "members" not in generator.card:
        raise ConfigError(
            f"{folder} is not a pulled pool of images. For rows of a table: "
            f"understudy sample {folder}."
        )
    if to.suffix != ".npz":
        raise ConfigError(
            f"images are written into a .npz file, not {to.name}.",
            effect=Effect.NOTHING_SAMPLED,
        )
    images, labels = labelled_images(generator, rows, seed=seed)
    target = str(generator.card["target"])
    arrays: dict[str, Any] = {
        target if target not in ("images", "file") else "label": np.array(labels)
    }
    np.savez_compressed(to, images=images, **arrays)
    out.print(f"{rows:,} images and their classes written to {to}")


def _parse_labels(required: "Requirements", words: list[str] | None) -> list[Any]:
    """The classes that these words mean: a class may be a number or a truth value."""
    labels = {str(label): label for label in required.labels}
    unknown = [word for word in words or () if word not in labels]
    if unknown:
        hint = nearest(unknown[0], labels)
        raise ConfigError(
            f"there is no class {unknown[0]!r}; the classes are "
            f"{', '.join(labels)}.{hint}"
        )
    return [labels[word] for word in words or ()]


def _offer_folder(offer: Mapping[str, Any]) -> str:
    """The folder of a pulled offer. What an exchange says of it is not believed to be a
    name.
    """
    plain_name(silo=offer["silo"], digest=offer["digest"], effect=Effect.NOTHING_STORED)
    label = file_names([_class_word(offer["label"])])[0]
    return f"{offer['silo']}-{label}-{offer['digest'][:12]}"


def _class_word(label: Any) -> Any:
    return ALL if label is None else label
