"""Moments: holders of images or series release means and second moments, privately, and Gaussians are fitted to them.

What Gram is for tables, this is for what has no columns. Rows become vectors of whole numbers by a public transform
(`data.encoding.frame`); three small sets of sums over people are released, each about what the one before it gave
(`stages`); everything after is free (`models/moments/fit.py`). Labels beside the rows are optional: one, or several,
which are drawn with the row (`models/moments/labels.py`).

Sources: private moments in a basis that no row chose are the idea of DP-MERF (Harder, Adamczewski, Park, AISTATS 2021);
noise by Canonne, Kamath, Steinke 2020; sums by Bonawitz et al. 2017 (`privacy/secure/sums.py`); noise on second moments
as in Dwork et al., "Analyze Gauss" (STOC 2014). What is released, and in which order, is our own. It has a name of
its own beside Gram because a run's settings are one list, which a contract signs before rows are seen, and no setting
of the one means anything to the other.

Guarantee: (ε, δ)-DP for a person with all rows at a holder (or at up to `most_holders` of them), against the server,
an outsider, and up to `colluding` other holders, who may pool what they know with the server.
Edges: a person counts once, by the average of the person's rows. docs/secure_products.md says who sees what.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from understudy.data.arrays import ArrayTable
from understudy.data.encoding.frame import MOST_FEATURES, Frame
from understudy.generators.parts import GeneratorParts
from understudy.ground.check import a_seed, in_range, not_negative, whole
from understudy.ground.errors import ConfigError
from understudy.models.moments import fit_cells, match_shades
from understudy.privacy.accounts.accounting import Spend
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.accounts.statement import PrivacyStatement
from understudy.privacy.secure.moments import moments_event
from understudy.protocols.core import Checkpoint, Outcome, Parties, Watcher, settled, two_steps
from understudy.protocols.core.agreeing import stated_prices
from understudy.protocols.moments.forecast import forecast as forecast
from understudy.protocols.moments.messages import Begin
from understudy.protocols.moments.party import (
    SETTLED,
    MomentsParty,
    check_norms,
    check_shares,
    common,
    labels_of,
)
from understudy.protocols.moments.releases import Released, Server, release
from understudy.protocols.moments.stages import MOST_BITS, releases

SAME_PEOPLE = False
KINDS = ("image", "series")
OUTSIDE = (
    "the schema: sizes, bounds and classes are public",
    "the size and the timing of messages; the number of people is counted within ε",
)
SAVED = "released"


@dataclass(frozen=True, kw_only=True)
class Config:
    """`features`: the most coefficients of the frame to measure, from the lowest frequency on.

    `upright`: images are first turned upright and centred, by a rule that reads each image alone; how they were
    turned is measured, too (`data/encoding/upright.py`). It is for what leans, and lies, each in its own way on
    an even ground, as handwriting does; series, and images with a declared `norm`, are taken as they are.
    `norms`: share of the budget that buys the bound on a row's norm; 0: the schema's, or the largest possible.
    `shares`: parts of the budget for the counts and means, for the second moments of all rows, and for those of the
    classes; the third may be 0, and all classes then have one covariance.
    `bits`: each class is cut into cells by the signs of this many leading directions, and each cell has a mean and a
    covariance; None: as many as the noise allows.
    `most_holders`: how many holders may hold the same person; the noise hides such a person, too.
    ε holds when up to `colluding` of the holders pool what they know. The run continues without parties that go away
    before the first release as long as `at_least` are left (None: all must stay).
    """

    features: int = 300
    upright: bool = False
    norms: float = 0.0
    shares: tuple[float, float, float] = (0.3, 0.3, 0.4)
    bits: int | None = None
    colluding: int = 1
    at_least: int | None = None
    most_holders: int = 1
    private: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        whole(features=self.features, colluding=self.colluding, most_holders=self.most_holders)
        in_range(1, MOST_FEATURES, features=self.features)
        if self.at_least is not None:
            whole(at_least=self.at_least)
        if self.bits is not None:
            not_negative(bits=self.bits)
            in_range(0, MOST_BITS, bits=self.bits)
        a_seed(seed=self.seed)
        check_norms(self.norms)
        check_shares(self.shares)
        object.__setattr__(self, "shares", tuple(map(float, self.shares)))
        for name, value in (("private", self.private), ("upright", self.upright)):
            if type(value) is not bool:
                raise ConfigError(f"{name} is true or false, not {value!r}.")


def build_party(name: str, rows: ArrayTable[Any], ledger: Ledger, **more: Any) -> MomentsParty:
    """A party of this protocol."""
    if not isinstance(rows, ArrayTable):
        raise ConfigError(
            f"{name} holds no images and no series, and moments takes nothing else: gram is for tables. "
            "Nothing was charged."
        )
    return MomentsParty(name, rows, ledger, **more)


def agreed(config: Config) -> dict[str, Any]:
    """What a holder who knows the settings agrees to, for its `build_party`."""
    return {"agreed": {key: getattr(config, key) for key in SETTLED}}


def train(
    config: Config,
    parties: Parties,
    schemas: Mapping[str, Any],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
) -> Outcome:
    """Release the moments, and fit Gaussians to them.

    With a `checkpoint` folder each release is saved before anything else is asked or fitted; `resume=True` continues
    from there: nothing is measured, or charged, twice. Where a further release does not take place, what there is is
    fitted, and card and statement say so.
    """
    schemas = {name: schemas[name] for name in parties.names}
    schema = common(schemas)
    frame = Frame.declared(schema, config.features, upright=config.upright)
    server = Server(
        parties,
        frame,
        labels_of(schema),
        releases(config.norms, config.shares[2]),
        config.most_holders,
        config.colluding,
        config.bits,
    )
    told = json.loads(json.dumps({key: getattr(config, key) for key in SETTLED}))
    store = None if checkpoint is None else Checkpoint(checkpoint, parties)
    saved = store.measured(SAVED, told) if store is not None and resume else None
    done = release(
        server,
        Begin(config=asdict(config), schemas={name: schema.to_dict() for name, schema in schemas.items()}),
        at_least=config.at_least,
        first=None if saved is None else Released(**saved),
        keep=lambda one: None if store is None else store.note(SAVED, dict(vars(one)) | {"plan": told}),
    )
    there = [name for name in done.begun if name not in done.gone]
    privacy = _statement(done, settled(parties, there, at_least=config.at_least), config.most_holders)
    look = two_steps(watch, privacy.per_party)
    look(1)
    if "pooled" not in done.found:
        words = "counts and means" if "means" in done.found else "norms"
        raise ConfigError(f"only {words} were released ({done.ended}): nothing can be drawn from them.")
    centre = server.centres(done)
    kept = server.directions(done, centre)
    network = fit_cells(frame, centre, kept, done.found.get("cells"), bits=done.bits)
    first = done.found["means"]
    matched = match_shades(network, first["shades"], float(first["shades_noise"]), float(centre.people.sum()))
    look(2)
    people = max(1, round(float(centre.people.sum())))
    card: dict[str, Any] = {
        "protocol": "moments",
        "config": asdict(config),
        "partition": "rows",
        "rounds": 1,
        "ended": f"after {done.made} of {len(server.releases)} releases: {done.ended}"
        if done.ended
        else "after all releases",
        "left_out": [name for name in parties.names if name not in done.begun],
        "people": people,
        "noise": dict(zip(done.found, done.multipliers, strict=False)),
        "norm": server.framed(done).norm,
        "directions": len(kept.values),
        "cells": network.cells,
        "histograms": matched,
        "privacy": privacy.to_dict(),
    }
    return Outcome(GeneratorParts(network.eval(), schema, card), privacy, people)


def _statement(
    done: Released, spends: Mapping[str, Mapping[str, Spend]], most_holders: int
) -> PrivacyStatement:
    """What the run cost, by the parties' ledgers; of a party that went away, the price of all it was asked for."""
    asked = Counter(map(moments_event, done.multipliers[: done.made + done.lost]))
    missing = (
        (
            f"a further release, which did not take place ({done.ended}): who had answered by then has paid for it",
        )
        if done.ended
        else ()
    )
    return PrivacyStatement(
        parties=stated_prices(done.begun, spends, asked),
        same_people=False,
        most_holders=most_holders,
        one_release=most_holders > 1,
        outside=OUTSIDE + missing,
    )
