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

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from understudy.generators.parts import GeneratorParts
from understudy.ground.errors import ConfigError
from understudy.models.moments.fit import fit_cells
from understudy.models.moments.gaussians import match_shades
from understudy.protocols.core import Parties, Watcher
from understudy.protocols.core.loop import Outcome, two_steps
from understudy.protocols.joint.found import ended, statement
from understudy.protocols.joint.party import JointParty
from understudy.protocols.joint.server import measure
from understudy.protocols.moments.forecast import forecast as forecast
from understudy.protocols.moments.settings import Config as Config
from understudy.protocols.moments.study import Moments
from understudy.protocols.protocol import Protocol, agree_on


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
    study = Moments(config, {name: schemas[name] for name in parties.names})
    found = measure(study, parties, at_least=config.at_least, checkpoint=checkpoint, resume=resume)
    record, privacy = found.record, statement(found, parties, at_least=config.at_least)
    look = two_steps(watch, privacy.per_party)
    look(1)
    if "pooled" not in found:
        words = "counts and means" if "means" in found else "norms"
        raise ConfigError(f"only {words} were released ({record.ended}): nothing can be drawn from them.")
    centre, kept, first = study.centres(found), study.directions(found), found["means"]
    bits = int(record.terms["cells"]["bits"]) if "cells" in found else 0
    network = fit_cells(study.frame, centre, kept, found.get("cells"), bits=bits)
    matched = match_shades(network, first["shades"], float(first["shades_noise"]), float(centre.people.sum()))
    look(2)
    people = max(1, round(float(centre.people.sum())))
    card: dict[str, Any] = {
        "protocol": "moments",
        "config": asdict(config),
        "partition": "rows",
        "rounds": 1,
        "ended": ended(found),
        "left_out": [name for name in parties.names if name not in record.begun],
        "people": people,
        "noise": {name: found.noise(name) for name in found},
        "norm": study.framed(found).norm,
        "directions": len(kept.values),
        "cells": network.cells,
        "histograms": matched,
        "privacy": privacy.to_dict(),
    }
    return Outcome(GeneratorParts(network.eval(), study.schema, card), privacy, people)


PROTOCOL = Protocol(
    name="moments",
    paper=__doc__,
    config=Config,
    party=partial(JointParty, Moments),
    parties=(JointParty,),
    train=train,
    same_people=False,
    kinds=("image", "series"),
    agreed=agree_on(Moments.settled),
    forecast=forecast,
    study=Moments,
    audit="joint",
)
