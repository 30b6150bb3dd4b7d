"""Small cases of every protocol. A new protocol adds one entry here and gets the whole
contract.

The rows of a case are made once in a process: holders read them, nobody changes them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from understudy.data.column import Binned
from understudy.data.encoding.population import Population
from understudy.data.images import Images, ImageSchema
from understudy.data.kinds import NoRows
from understudy.data.samples import sines, toy
from understudy.data.schema import Integer, Real, Schema
from understudy.data.series import Series, SeriesSchema
from understudy.data.visits import VisitSchema
from understudy.generators.classifier import Classifier
from understudy.generators.generator import Generator
from understudy.generators.parts import GeneratorParts
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.protocol import Protocol
from understudy.runs.federation import Federation
from understudy.runs.registry import protocol_named
from visit_cases import beside_visits, clinic, frames, split_rows

BUDGET = Budget(epsilon=3.0, delta=1e-5)


@cache
def small_toy(rows: int, *more: str) -> tuple[pd.DataFrame, Schema]:
    """A toy table with a column of every kind of levels, and few of them."""
    frame, schema = toy(rows=rows, seed=3)
    some = ["colour", "grade", "age", "smoker", "joined", *more]
    columns = (
        replace(c, bins=3) if isinstance(c, Binned) else c
        for c in schema.select(some).columns
    )
    return frame[["id", *some]], replace(schema, columns=tuple(columns))


@cache
def vertical(parties: int) -> tuple[dict[str, pd.DataFrame], dict[str, Schema]]:
    """A toy table cut into columns: 24 people whom all parties hold, and two more at
    each, in an order of its own.
    """
    frame, schema = small_toy(24 + 2 * parties)
    names = [f"holder {number}" for number in range(parties)]
    tables = {}
    schemas = {}
    for n, name in enumerate(names):
        schemas[name] = schema.select(
            [c for i, c in enumerate(schema.names) if i % parties == n]
        )
        rows = np.random.default_rng(n).permutation(
            [*range(24), 24 + 2 * n, 25 + 2 * n]
        )
        tables[name] = frame.loc[rows, ["id", *schemas[name].names]].reset_index(
            drop=True
        )
    return tables, schemas


@cache
def horizontal(parties: int) -> tuple[dict[str, pd.DataFrame], dict[str, Schema]]:
    """A toy table of 20 people with three rows each, every person with one party."""
    frame, schema = small_toy(60)
    frame = frame.assign(id=frame["id"] % 20)
    names = [f"host {number}" for number in range(parties)]
    tables = {name: frame[frame["id"] % parties == n] for n, name in enumerate(names)}
    return tables, dict.fromkeys(names, schema)


@cache
def narrow(parties: int) -> tuple[dict[str, pd.DataFrame], dict[str, Schema]]:
    """The same people with three of the columns."""
    tables, schemas = horizontal(parties)
    some = ["colour", "grade", "smoker"]
    return (
        {name: table[["id", *some]] for name, table in tables.items()},
        {name: schema.select(some) for name, schema in schemas.items()},
    )


def aggregated(
    hosts: int, data: Any = None
) -> tuple[dict[str, Any], dict[str, Schema]]:
    """The same people, or those of `data`, and a second aggregator who holds nobody."""
    tables, schemas = data or horizontal(hosts)
    schema = (
        next(iter(schemas.values())) if schemas else next(iter(tables.values())).schema
    )
    return {**tables, "second": NoRows(schema)}, schemas


@cache
def apart(parties: int) -> tuple[dict[str, pd.DataFrame], dict[str, Schema]]:
    """A toy table of 60 people with a row each, every person with one party."""
    frame, schema = small_toy(60)
    names = [f"host {number}" for number in range(parties)]
    return {
        name: frame.iloc[n::parties] for n, name in enumerate(names)
    }, dict.fromkeys(names, schema)


def undeclared(
    data: tuple[dict[str, pd.DataFrame], dict[str, Schema]],
) -> tuple[dict[str, pd.DataFrame], dict[str, Schema]]:
    """The same without the bins of the column "age", if a party has it."""
    tables, schemas = data
    age = Integer(name="age", low=0, high=99)
    return tables, {
        name: replace(
            schema, columns=tuple(age if c.name == "age" else c for c in schema.columns)
        )
        for name, schema in schemas.items()
    }


@cache
def grid() -> tuple[dict[str, pd.DataFrame], dict[str, Schema]]:
    """Two holders of some columns of half of the people each, and one of the other
    columns of all.
    """
    frame, schema = small_toy(24, "visits")
    some = ["colour", "grade", "smoker", "age"]
    columns = {"a0": some, "a1": some, "b": ["visits", "joined"]}
    rows = {"a0": frame.iloc[::2], "a1": frame.iloc[1::2], "b": frame}
    return (
        {name: rows[name][["id", *columns[name]]] for name in columns},
        {name: schema.select(columns[name]) for name in columns},
    )


@cache
def series(parties: int) -> tuple[dict[str, Any], dict[str, Schema]]:
    """Short waves of 20 people with three series each, every person with one party."""
    values, schema = sines(60, length=4, channels=2, seed=3)
    who = np.arange(60) % 20
    hosts = {f"host {number}": who % parties == number for number in range(parties)}
    return {
        name: Series.from_array(values[here], schema, who[here])
        for name, here in hosts.items()
    }, {}


@cache
def many_rows(parties: int, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """People with up to five visits, of which three count; every person with one
    party.
    """
    who, events = frames(40, seed=3)
    hosts = {f"host {number}": number for number in range(parties)}
    tables = {
        name: {
            "people": who[who["patient"] % parties == n],
            "events": events[events["patient"] % parties == n],
        }
        for name, n in hosts.items()
    }
    return tables, dict.fromkeys(hosts, clinic(**more))


@cache
def images(parties: int, rows: int = 60) -> tuple[dict[str, Any], dict[str, Schema]]:
    """Small images of two classes, a bright left or a bright right half; every third
    person has two of them.
    """
    rng = np.random.default_rng(3)
    bright = rng.integers(0, 2, rows)
    pixels = rng.integers(0, 100, (rows, 4, 6))
    pixels[bright == 0, :, :3] += 120
    pixels[bright == 1, :, 3:] += 120
    who = np.where(np.arange(rows) % 3 == 2, np.arange(rows) - 1, np.arange(rows))
    schema = ImageSchema(
        height=4, width=6, person="id", label="side", classes=("left", "right")
    )
    sides = np.array(schema.classes, dtype=object)[bright]
    hosts = {f"host {n}": n for n in range(parties)}
    return {
        name: Images.from_array(pixels[here], schema, who[here], labels=sides[here])
        for name, n in hosts.items()
        for here in [who // 3 % parties == n]
    }, {}


@cache
def labelled_images(
    parties: int, sizes: int
) -> tuple[dict[str, Any], dict[str, Schema]]:
    """The same with a second label of so many classes, which goes with the
    brightness.
    """
    held, _ = images(parties)
    labels = {"side": ("left", "right"), "size": tuple(range(sizes))}
    schema = ImageSchema(height=4, width=6, person="id", labels=labels)

    def beside(table: Any) -> Any:
        size = (table.values.mean((1, 2)) * 1e3).astype(int) % sizes
        named = {"side": np.array(labels["side"])[table.classes], "size": size}
        return Images.from_array(
            schema.unscaled(table.values), schema, table.people, labels=named
        )

    return {name: beside(table) for name, table in held.items()}, {}


@cache
def pictures(parties: int) -> tuple[dict[str, Any], dict[str, Schema]]:
    """The same with their classes by number, as `sgde` takes them."""
    held, _ = images(parties)
    return {
        name: Population.from_arrays(
            table.values, table.classes, classes=2, people=table.people
        )
        for name, table in held.items()
    }, {}


@cache
def mixed() -> tuple[dict[str, Any], dict[str, Schema]]:
    """A table, images of 6 × 5 pixels and series of 4 steps, of partly the same people
    in another order each.
    """
    frame, schema = small_toy(30)
    rng = np.random.default_rng(0)
    ids = frame["id"].to_numpy()
    channels = tuple(Real(name=name, low=0, high=10) for name in ("pulse", "pressure"))
    images = Images.from_array(
        rng.integers(0, 256, (27, 6, 5)),
        ImageSchema(height=6, width=5, person="id"),
        ids[:2:-1].copy(),
    )
    series = Series.from_array(
        10 * rng.random((28, 4, 2)),
        SeriesSchema(length=4, series="stay", person="id", channels=channels),
        rng.permutation(ids[:28]),
    )
    return {"clinic": frame, "radiology": images, "monitor": series}, {"clinic": schema}


@dataclass(frozen=True, eq=False)
class Case:
    """One protocol with settings that finish in a second."""

    name: str
    protocol: str
    settings: Mapping[str, Any]
    data: Callable[[], tuple[dict[str, Any], dict[str, Schema]]]
    budget: Budget = BUDGET
    against: tuple[str, ...] = field(default=("outsider", "anyone"))
    # A party looks, when the run begins, whether its budget covers all of it, and
    # refuses otherwise: no budget ends such a run halfway. Every joint release does so,
    # however many rounds it has, and so does what is paid for in one charge.
    whole_price_at_begin: bool = False

    @property
    def record(self) -> Protocol:
        return protocol_named(self.protocol)

    @property
    def same_people(self) -> bool:
        return self.record.same_people is not False

    def federation(
        self, seed: int | None = 11, budget: Budget | None = None
    ) -> Federation:
        """A fresh rehearsal on tables that were read before."""
        allowed = budget or self.budget
        holders = [
            replace(
                holder,
                budget=allowed,
                ledger=Ledger.rehearsal(holder=name, budget=allowed),
            )
            for name, holder in opened(self, seed).holders.items()
        ]
        return Federation.from_holders(holders, same_people=self.same_people)

    def real(self, ledgers: Path, *, alone: bool = False) -> Federation:
        """The same with ledgers in files; `alone`: of the first holder."""
        tables, schemas = self.data()
        if alone:
            tables = dict(list(tables.items())[:1])
            schemas = {
                name: schema for name, schema in schemas.items() if name in tables
            }
        return Federation(
            tables,
            schemas,
            budget=self.budget,
            ledgers=ledgers,
            same_people=self.same_people,
        )

    def config(self) -> Any:
        return self.record.config(**self.settings)


@cache
def opened(case: Case, seed: int | None) -> Federation:
    tables, schemas = case.data()
    return Federation.rehearsal(
        tables, schemas, budget=case.budget, seed=seed, same_people=case.same_people
    )


class RowsCase(Case):
    """A case whose parties hold different people, of a protocol that can do both."""

    @property
    def same_people(self) -> bool:
        return False


def artefact(outcome: Any) -> Any:
    """What the run trained: a generator or a classifier."""
    trained = outcome.trained
    return (
        Generator.from_parts(trained)
        if isinstance(trained, GeneratorParts)
        else Classifier.from_parts(trained)
    )


def weights(outcome: Any) -> dict[str, Tensor]:
    trained = artefact(outcome)
    if isinstance(trained, Generator):
        return dict(trained.network.state_dict())  # type: ignore[attr-defined]
    return {"weights": trained.weights}


def is_usable(outcome: Any) -> bool:
    """Whether the artefact does what it is for."""
    trained = artefact(outcome)
    if isinstance(trained, Generator) and isinstance(trained.schema, SeriesSchema):
        return len(trained.series(10, seed=0)) == 10
    if isinstance(trained, Generator) and isinstance(trained.schema, VisitSchema):
        people, events = trained.visits(10, seed=0)
        return len(people) == 10 and set(events["patient"]) <= set(people["patient"])
    if isinstance(trained, Generator):
        return len(trained.sample(10, seed=0)) == 10
    answers = trained.predict(toy(rows=10, seed=4)[0])
    return len(answers) == 10 and set(answers) <= set(trained.classes_)


SMALL = {"rounds": 2, "critic_steps": 2, "batch": 8, "device": "cpu"}
VOTED = {
    "rounds": 2,
    "critic_steps": 2,
    "batch": 4,
    "rows": 5,
    "teachers": 6,
    "top": 3,
    "device": "cpu",
}
ALL_ASKED = {  # twice, which costs a person the whole budget
    "rounds": 2,
    "clients_per_round": 20,
    "max_reports": 2,
    "epsilon_total": 3.0,
    "target": "smoker",
    "epochs": 2,
    "learning_rate": 0.1,
    "device": "cpu",
}
ENCODED = {key: value for key, value in ALL_ASKED.items() if key != "target"} | {
    "hidden": 6,
    "latent": 3,
}
AWAKE = {
    key: value
    for key, value in ENCODED.items()
    if key not in ("epochs", "learning_rate")
} | {
    "dreams": 2,
    "first_dreams": 3,
    "dream_batch": 8,
}
MADE_UP = {  # everybody twice, which costs a client the whole budget
    "rounds": 2,
    "clients_per_round": 20,
    "max_reports": 2,
    "epsilon": 3.0,
    "target": "smoker",
    "rows": 3,
    "batch": 2,
    "steps": 2,
    "gan_steps": 2,
    "gan_hidden": 4,
    "hidden": 4,
    "latent": 2,
    "dp_generator": True,
    "device": "cpu",
}
TRADED = {"target": "smoker", "epsilon": 3.0, "steps": 4, "latent": 2, "device": "cpu"}
MOMENTS = {"features": 12}
CHAINS = {"kinds": 3, "states": 2, "steps": 3, "device": "cpu"}
TIED = {"features": 8, "directions": 3, "components": 4, "steps": 4, "chunk": 25}
RECURRENT = ENCODED | {"hidden": 4, "latent": 2}
MIXTURE = {"components": 4, "steps": 4, "chunk": 15, "device": "cpu"}
SPLIT = {
    "aggregator": "second",
    "epsilon": 3.0,
    "delta": 1e-5,
    "min_people": 10,
    "batch": 6,
    "components": 4,
    "steps": 4,
    "device": "cpu",
}
UPLOADED = {
    "aggregator": "second",
    "epsilon": 3.0,
    "delta": 1e-5,
    "min_people": 10,
    "batch": 6,
    "features": 6,
    "bits": 5,
}
PURE = Budget(epsilon=3.0, delta=0.0)
# local reports of so few people are noise alone at any smaller
CLEAR = Budget(epsilon=300.0, delta=0.0)
REPORTED = {"epsilon_total": CLEAR.epsilon, "max_reports": 3}
CASES = [
    Case(
        "VertiGAN, two parties", "verti-gan", SMALL | {"rounds": 3}, lambda: vertical(2)
    ),
    Case(
        "VertiGAN, coupled",
        "verti-gan",
        SMALL | {"coupling": "gram"},
        lambda: vertical(3),
    ),
    Case(
        "VertiGAN, three parties, deep critic, sparse upload",
        "verti-gan",
        SMALL | {"upload": 0.25, "critic_hidden": (6, 4)},
        lambda: vertical(3),
    ),
    Case(
        "VertiGAN, shared batches, outsider's budget",
        "verti-gan",
        SMALL | {"sampling": "shared"},
        lambda: vertical(2),
        Budget(epsilon=3.0, delta=1e-5, against="outsider"),
        ("outsider",),
    ),
    Case(
        "VertiGAN, shared batches, anyone's budget",
        "verti-gan",
        SMALL | {"sampling": "shared"},
        lambda: vertical(2),
        BUDGET,
        ("anyone",),
    ),
    Case(
        "VertiGAN, a table, images and series",
        "verti-gan",
        SMALL | {"critic_steps": 1},
        mixed,
    ),
    Case("Central GAN", "central-gan", SMALL, lambda: vertical(1)),
    Case(
        "VDGAN, DPSGD, two parties",
        "vd-gan-dpsgd",
        SMALL | {"rows": 8},
        lambda: vertical(2),
    ),
    Case(
        "VDGAN, DPSGD, three parties, deep critic, warm-up",
        "vd-gan-dpsgd",
        SMALL | {"rows": 8, "warm_up": 1, "critic_hidden": (6, 4)},
        lambda: vertical(3),
    ),
    Case("VDGAN, PATE, two parties", "vd-gan-pate", VOTED, lambda: vertical(2)),
    Case(
        "VDGAN, PATE, three parties, deep teachers, warm-up",
        "vd-gan-pate",
        VOTED | {"warm_up": 1, "critic_hidden": (6, 4)},
        lambda: vertical(3),
    ),
    Case(
        "SignDS, EM-MDS, two hosts",
        "sign-ds",
        ALL_ASKED | {"chosen": 2},
        lambda: horizontal(2),
    ),
    Case(
        "SignDS, PS, one host",
        "sign-ds",
        ALL_ASKED | {"reporter": "ps"},
        lambda: horizontal(1),
    ),
    Case(
        "SignDS, SubMDS, MLP, Adam, three hosts",
        "sign-ds",
        ALL_ASKED
        | {
            "reporter": "sub-mds",
            "rate": 0.4,
            "share": 0.2,
            "model": "mlp",
            "optimizer": "adam",
        },
        lambda: horizontal(3),
    ),
    Case(
        "SignDS, Duchi",
        "sign-ds",
        ALL_ASKED | {"reporter": "duchi"},
        lambda: horizontal(2),
    ),
    Case(
        "SignDS, FedSel",
        "sign-ds",
        ALL_ASKED | {"reporter": "fedsel"},
        lambda: horizontal(2),
    ),
    Case("DP-Fed-WAE, PS, two hosts", "fed-wae", ENCODED, lambda: horizontal(2)),
    Case(
        "DP-Fed-WAE, EM-MDS, pre-trained, one host",
        "fed-wae",
        ENCODED | {"reporter": "em-mds", "chosen": 2, "pretrain": 3},
        lambda: horizontal(1),
    ),
    Case(
        "DP-Fed-WAE, SubMDS, three hosts",
        "fed-wae",
        ENCODED | {"reporter": "sub-mds", "rate": 0.4, "share": 0.2},
        lambda: horizontal(3),
    ),
    Case("Wake-sleep, two hosts", "wake-sleep", AWAKE, lambda: horizontal(2)),
    Case(
        "Wake-sleep, PS, mean of all models, three hosts",
        "wake-sleep",
        AWAKE | {"reporter": "ps", "average": 1.0},
        lambda: horizontal(3),
    ),
    Case("FedSTDG, two hosts", "fed-stdg", RECURRENT, lambda: series(2)),
    Case(
        "FedSTDG, EM-MDS, fixed rate, one host",
        "fed-stdg",
        RECURRENT | {"reporter": "em-mds", "chosen": 2, "adaptive": False},
        lambda: series(1),
    ),
    Case(
        "DPLT, two parties",
        "dplt",
        {"chunk": 15},
        lambda: vertical(2),
        PURE,
        whole_price_at_begin=True,
    ),
    Case(
        "DPLT+, three parties",
        "dplt",
        {"plus": True},
        lambda: vertical(3),
        PURE,
        whole_price_at_begin=True,
    ),
    Case(
        "LoPub, three reports each, two hosts",
        "lopub",
        REPORTED,
        lambda: horizontal(2),
        CLEAR,
    ),
    Case(
        "LoCop, one report each, exact bound, three hosts",
        "lopub",
        {
            "method": "locop",
            "bound": "exact",
            "epsilon_total": CLEAR.epsilon,
            "batch": 4,
        },
        lambda: horizontal(3),
        CLEAR,
        whole_price_at_begin=True,
    ),
    Case(
        "Two aggregators, two hosts",
        "two-aggregators",
        SPLIT,
        lambda: aggregated(2),
        whole_price_at_begin=True,
    ),
    Case(
        "Two aggregators, one host, one batch",
        "two-aggregators",
        SPLIT | {"batch": 1000},
        lambda: aggregated(1),
        whole_price_at_begin=True,
    ),
    Case(
        "Shared moments, images of two classes, two hosts",
        "shared-moments",
        UPLOADED | {"by_class": True},
        lambda: aggregated(2, images(2, 24)),
        whole_price_at_begin=True,
    ),
    Case(
        "One report each, a target, two hosts",
        "one-report",
        {
            "epsilon_total": 6.0,
            "target": "smoker",
            "share": 0.4,
            "components": 4,
            "steps": 4,
            "batch": 4,
            "device": "cpu",
        },
        lambda: narrow(2),
        Budget(epsilon=6.0, delta=0.0),
        whole_price_at_begin=True,
    ),
    Case(
        "One report each, all pairs, some liars, three hosts",
        "one-report",
        {
            "epsilon_total": 1.0,
            "liars": 0.1,
            "share": 0.5,
            "components": 4,
            "steps": 4,
            "device": "cpu",
        },
        lambda: narrow(3),
        Budget(epsilon=1.0, delta=0.0),
        whole_price_at_begin=True,
    ),
    Case(
        "Class means, images of two classes, three hosts",
        "class-means",
        {"epsilon_total": 3.0, "features": 12, "share": 0.4, "batch": 9},
        lambda: images(3),
        Budget(epsilon=3.0, delta=0.0),
        whole_price_at_begin=True,
    ),
    Case(
        "DP-GenFL, private generators, two hosts",
        "gen-fl",
        MADE_UP,
        lambda: horizontal(2),
    ),
    Case(
        "DP-GenFL, real rows alone, logistic",
        "gen-fl",
        MADE_UP | {"share": 0.0, "model": "logistic"},
        lambda: horizontal(1),
    ),
    Case(
        "SGDE, two silos", "sgde", TRADED, lambda: apart(2), whole_price_at_begin=True
    ),
    Case(
        "SGDE, three silos, people with several rows",
        "sgde",
        TRADED | {"rate": 1.0, "leave_out": "nothing"},
        lambda: horizontal(3),
        whole_price_at_begin=True,
    ),
    Case(
        "SGDE by counts",
        "sgde",
        TRADED | {"kind": "marginals"},
        lambda: apart(3),
        whole_price_at_begin=True,
    ),
    Case(
        "SGDE by pairs",
        "sgde",
        TRADED | {"kind": "gram"},
        lambda: apart(2),
        whole_price_at_begin=True,
    ),
    Case(
        "SGDE by moments",
        "sgde",
        {"kind": "moments", "features": 12, "epsilon": 3.0, "device": "cpu"},
        lambda: pictures(3),
        whole_price_at_begin=True,
    ),
    Case(
        "SGDE by moments with a figure",
        "sgde",
        {
            "kind": "moments",
            "features": 12,
            "epsilon": 3.0,
            "quality_epsilon": 0.3,
            "device": "cpu",
        },
        lambda: pictures(2),
        whole_price_at_begin=True,
    ),
    Case(
        "Gram, columns, three parties",
        "gram",
        MIXTURE | {"products": "dealt"},
        lambda: vertical(3),
        whole_price_at_begin=True,
    ),
    Case(
        "Gram, columns, encrypted products",
        "gram",
        MIXTURE | {"products": "encrypted", "target": "smoker"},
        lambda: vertical(2),
        whole_price_at_begin=True,
    ),
    Case(
        "Gram, columns, a union, encrypted products",
        "gram",
        MIXTURE | {"alignment": "union", "products": "encrypted"},
        lambda: vertical(2),
        # so that few people are made up
        Budget(epsilon=100.0, delta=1e-4),
        whole_price_at_begin=True,
    ),
    RowsCase(
        "Gram, rows, three parties",
        "gram",
        MIXTURE,
        lambda: apart(3),
        whole_price_at_begin=True,
    ),
    Case(
        "Gram, a grid, pairs measured twice, a three-way table",
        "gram",
        MIXTURE | {"remeasured_pairs": 5, "triples": (("colour", "grade", "smoker"),)},
        grid,
        whole_price_at_begin=True,
    ),
    Case(
        "Gram, columns, a target",
        "gram",
        MIXTURE | {"products": "dealt", "target": "smoker"},
        lambda: vertical(2),
        whole_price_at_begin=True,
    ),
    Case(
        "Tied, a table, images and series, a label",
        "tied",
        TIED | {"target": "grade"},
        mixed,
        whole_price_at_begin=True,
    ),
    Case(
        "Tied, a table, images and series, two releases",
        "tied",
        TIED | {"norms": 0.05},
        mixed,
        whole_price_at_begin=True,
    ),
    Case(
        "Moments, images of two classes, three parties",
        "moments",
        MOMENTS,
        lambda: images(3),
        whole_price_at_begin=True,
    ),
    Case(
        "Moments, cells by two signs, one party",
        "moments",
        MOMENTS | {"bits": 2},
        lambda: images(1),
        whole_price_at_begin=True,
    ),
    Case(
        "Moments, two labels, every combination",
        "moments",
        MOMENTS,
        lambda: labelled_images(2, 3),
        whole_price_at_begin=True,
    ),
    Case(
        "Moments, two labels, by their classes",
        "moments",
        MOMENTS,
        lambda: labelled_images(1, 33),
        whole_price_at_begin=True,
    ),
    Case(
        "Moments, series, two releases and a bought norm",
        "moments",
        MOMENTS | {"norms": 0.05, "shares": (0.4, 0.6, 0.0)},
        lambda: series(2),
        whole_price_at_begin=True,
    ),
    RowsCase(
        "Visits, rows, three parties",
        "visits",
        CHAINS,
        lambda: many_rows(3),
        whole_price_at_begin=True,
    ),
    RowsCase(
        "Visits, one party, events that are drawn",
        "visits",
        CHAINS,
        lambda: many_rows(1, cut="draw"),
        whole_price_at_begin=True,
    ),
    Case(
        "Visits, columns, two tables and events that are drawn",
        "visits",
        CHAINS | {"chunk": 16},
        lambda: beside_visits(30, cut="draw"),
        whole_price_at_begin=True,
    ),
    Case(
        "Visits, columns, encrypted products",
        "visits",
        CHAINS | {"chunk": 16, "products": "encrypted"},
        lambda: beside_visits(30, cut="draw"),
        whole_price_at_begin=True,
    ),
    Case(
        "Visits, a grid, events that are drawn",
        "visits",
        CHAINS | {"chunk": 16},
        lambda: split_rows(*beside_visits(30, cut="draw"), clinic=2, bank=2),
        whole_price_at_begin=True,
    ),
    RowsCase(
        "Gram, rows, one party",
        "gram",
        MIXTURE,
        lambda: apart(1),
        whole_price_at_begin=True,
    ),
    RowsCase(
        "Gram, rows, levels bought, threes searched",
        "gram",
        MIXTURE | {"searched_triples": 2},
        lambda: undeclared(apart(2)),
        whole_price_at_begin=True,
    ),
    Case(
        "Gram, columns, levels bought, a target",
        "gram",
        # answers under encryption have a price by the levels that were chosen
        MIXTURE | {"products": "dealt", "target": "smoker", "target_triples": 2},
        # tables are chosen
        lambda: undeclared(vertical(2)),
        Budget(epsilon=80.0, delta=1e-5),
        whole_price_at_begin=True,
    ),
    Case(
        "Gram, a grid, levels bought, a three-way table",
        "gram",
        MIXTURE | {"triples": (("colour", "grade", "age"),)},
        lambda: undeclared(grid()),
        whole_price_at_begin=True,
    ),
]
