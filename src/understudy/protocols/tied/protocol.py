"""Tied: one party has images, another a table, a third series of the same people; all are measured together, once.

What a table says about images and series that others hold is in the second moments of the joint vector of a person: the
levels of the tables, and the frequencies of the rest in a public frame. Within a holder they are sums, across holders
products (`privacy/secure/sums.py`). They are released under whole-number noise at one price, and everything after is
free: a mixture is fitted to the tables, and Gaussians given its levels to the rest (`models/tied`).

A label among the tables' columns has its classes' own covariances, too: the triangle of w wᵀ is a vector that an
array's holder makes alone, so that its sums by class are a product of two holders, not of three.

Sources: products by Beaver 1991, noise by Canonne, Kamath, Steinke 2020, noise on second moments as in Dwork et al.,
"Analyze Gauss" (STOC 2014), the frame as `moments`. The protocol that joins them is our own.

Guarantee: (ε, δ)-DP for a person with the rows at all parties, in one price, against the server, against any party, and
against an outsider. Each party's ledger is charged that whole price; a person pays it once.
Edges: the server deals the masks of products, so it must not pool what it knows with a holder.
docs/secure_products.md says who sees what, docs/tied.md what is fitted.
"""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from understudy.data.kinds import side_by_side
from understudy.generators.parts import GeneratorParts
from understudy.models.tied.fit import fit_tied
from understudy.models.tied.network import Part
from understudy.protocols.core import Parties, Watcher
from understudy.protocols.core.loop import Outcome, two_steps
from understudy.protocols.joint.found import ended, statement
from understudy.protocols.joint.party import AlignedJointParty
from understudy.protocols.joint.server import measure
from understudy.protocols.protocol import Protocol, agree_on
from understudy.protocols.tied.forecast import forecast
from understudy.protocols.tied.reading import classwise_of
from understudy.protocols.tied.settings import Config
from understudy.protocols.tied.study import TiedStudy


def train(
    config: Config,
    parties: Parties,
    schemas: Mapping[str, Any],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
) -> Outcome:
    """Release the joint moments, and fit one generator of all parties' rows to them.

    With a `checkpoint` folder each release is saved before anything else is asked or fitted; `resume=True` continues
    from there: nothing is measured, or charged, twice. Where the last release does not take place, what there is is
    fitted, and card and statement say so.
    """
    study = TiedStudy(config, {name: schemas[name] for name in parties.names})
    found = measure(study, parties, chunk=config.chunk, checkpoint=checkpoint, resume=resume)
    record, names = found.record, study.names
    privacy = statement(found, parties, at_least=0 if record.ended else None)
    look = two_steps(watch, privacy.per_party)
    look(1)
    tied = study.tied(found)
    shades = {
        names[group]: (first["shades"], float(first["shades_noise"]))
        for group, first in found["means"].items()
    }
    parts: dict[str, Part | None] = {name: study.sizes.get(group) for group, name in enumerate(names)}
    place = None if study.label is None else study.label.place
    network, matched = fit_tied(tied, parts, label=place, classwise=classwise_of(study, found), shades=shades)
    look(2)
    people = record.people or 0
    card: dict[str, Any] = {
        "protocol": "tied",
        "config": asdict(config),
        "partition": "columns",
        "rounds": 1,
        "ended": ended(found),
        "people": people,
        "noise": {name: found.noise(name) for name in found},
        "norm": {names[group]: frame.norm for group, frame in study.framed(found).items()},
        "directions": {name: len(kept.values) for name, kept in tied.kept.items()},
        "histograms": matched,
        "privacy": privacy.to_dict(),
    }
    return Outcome(GeneratorParts(network, side_by_side(study.schemas), card), privacy, people)


PROTOCOL = Protocol(
    name="tied",
    paper=__doc__,
    config=Config,
    party=partial(AlignedJointParty, TiedStudy),
    parties=(AlignedJointParty,),
    train=train,
    same_people=True,
    kinds=("table", "image", "series"),
    one_release=True,
    agreed=agree_on(TiedStudy.settled),
    forecast=forecast,
    study=TiedStudy,
    audit="joint",
)
