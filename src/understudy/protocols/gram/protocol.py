"""Gram: holders measure all two-way tables of their joint data once, privately, and a generator is fitted to them.

One-hot rows x ∈ {0,1}ᴰ of m columns. The Gram matrix G = Σ x xᵀ holds every one-way table (on its diagonal) and every
two-way table, across holders too. Over rows it adds up; over columns its blocks are products X_iᵀX_k; where both are
split (`data.grid`) its blocks are sums of products. It is released once, under whole-number noise, and everything
after that is free: `models/tables/fit_gram.py` fits a mixture to it.

Sources: the measurements of McKenna, Miklau, Sheldon, "Winning the NIST contest" (JPC 2021), all pairs at once;
products by Beaver 1991 (`privacy/secure/sums.py`), sums by Bonawitz et al. 2017 (`privacy/secure/sums.py`), noise by
Canonne, Kamath, Steinke 2020. The protocol that joins them is our own.

Guarantee: (ε, δ)-DP for a person with all their columns at all parties, in one price, against the server, against any
party, and against an outsider. Each party's ledger is charged that whole price; a person pays it once.
Edges: the server deals the masks of products, so where columns are split it must not pool what it knows with a holder;
over rows it may, with up to `colluding` of them. docs/secure_products.md says who sees what.
"""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from understudy.answers.release import Release
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.levels import Levels
from understudy.data.schema import Schema
from understudy.generators.parts import GeneratorParts
from understudy.models.tables.merged_levels import levels_of_none, never_drawn
from understudy.protocols.core import Parties, Watcher
from understudy.protocols.core.loop import Outcome, two_steps
from understudy.protocols.gram.choosing import ServerGram
from understudy.protocols.gram.forecast import expectation
from understudy.protocols.gram.forecast import forecast as forecast
from understudy.protocols.gram.measured import Measured
from understudy.protocols.gram.settings import Config as Config
from understudy.protocols.gram.study import Gram
from understudy.protocols.joint.found import ended, statement
from understudy.protocols.joint.party import AlignedJointParty
from understudy.protocols.joint.server import measure
from understudy.protocols.protocol import Protocol, agree_on

_WORDS = {"fine": "fine tables", "pairs": "pairs", "again": "pairs once more"}


def train(
    config: Config,
    parties: Parties,
    schemas: Mapping[str, Schema],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
) -> Outcome:
    """Measure the joint Gram matrix, once, and fit a generator to it.

    With a `checkpoint` folder each release is saved before anything else is asked or fitted; `resume=True` continues
    from there: nothing is measured, or charged, twice. Where a second release was due and does not take place, the
    first is what is fitted, and card and statement say so.
    """
    study = ServerGram(config, {name: schemas[name] for name in parties.names})
    found = measure(
        study, parties, at_least=config.at_least, chunk=config.chunk, checkpoint=checkpoint, resume=resume
    )
    record, privacy = found.record, statement(found, parties, at_least=config.at_least)
    look = two_steps(watch, privacy.per_party)
    look(1)
    measured, schema = Measured.of(found), study.schema
    network = study.chooser.fit(measured, watch=lambda step, residual: look(1))
    look(2)
    people, codec = _people(measured, len(schema.columns)), study.chooser.codec(measured)
    never_drawn(
        network, levels_of_none(schema, codec.sizes, measured.gram.diagonal(), measured.noise.diagonal())
    )
    card: dict[str, Any] = {
        "protocol": "gram",
        "config": asdict(config),
        "partition": study.grid.partition,
        "rounds": 1,
        "ended": ended(found),
        "left_out": [name for name in parties.names if name not in record.begun],
        "people": people,
        "releases": measured.releases,
        "noise": {_WORDS[name]: found.noise(name) for name in found},
        "levels": dict(zip(schema.names, codec.sizes, strict=True)),
        "privacy": privacy.to_dict(),
    }
    made = record.noise[: record.made]
    card |= expectation(schema, people, privacy.epsilon(), made, measured.levels is not None)
    if study.grid.partition != "rows":
        first = study.grid.one_each(study.schemas)
        card["owners"] = {column: name for name, held in first.items() for column in held.names}
    bought = codec if isinstance(codec, Levels) else None
    release = _release(measured, codec, card)
    card["release"] = release.card
    return Outcome(GeneratorParts(network.cpu().eval(), schema, card, bought, release), privacy, people)


def _release(measured: Measured, codec: Codec | Levels, card: Mapping[str, Any]) -> Release:
    """All counts as they were released, with what they cost."""
    about = {
        "adjacency": card["privacy"]["adjacency"],
        "epsilon": card["privacy"]["person"]["epsilon"]["outsider"],
        "delta": card["privacy"]["person"]["delta"],
    } | {key: card[key] for key in ("releases", "partition", "people")}
    sizes = torch.tensor(codec.sizes, dtype=torch.int32)
    return Release.from_tensors(codec, measured.kept | {"sizes": sizes}, about)


def _people(measured: Measured, columns: int) -> int:
    """Their number: disclosed by alignment, or what the noisy one-way tables say."""
    if measured.people is not None:
        return measured.people
    return max(1, round(float(measured.gram.diagonal().sum()) / columns))


PROTOCOL = Protocol(
    name="gram",
    paper=__doc__,
    config=Config,
    party=partial(AlignedJointParty, Gram),
    parties=(AlignedJointParty,),
    train=train,
    same_people=None,
    agreed=agree_on(Gram.settled),
    forecast=forecast,
    study=ServerGram,
    audit="gram",
)
