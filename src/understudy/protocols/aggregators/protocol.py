"""Two aggregators: all one- and two-way tables of people of whom nobody sees a row, and a mixture fitted to them.

Each person splits their tables into two shares (`secure.table_shares`), one for the server, one for a second aggregator
that does not collude with it. Each of the two adds up what it has and adds its own full noise, and only the two sums
together can be read. Corrigan-Gibbs, Boneh, "Prio" (NSDI 2017), for the model; Boneh et al. (S&P 2021) for the check
that a person's tables are tables (`secure.sketch`); Canonne, Kamath, Steinke (NeurIPS 2020) for the noise; the fit is
that of `gram` (`models/tables/fit_gram.py`).

Guarantee: (ε, δ)-DP for the content of a person's upload, or nothing, against an outsider, the server, and the
second aggregator, in one price that the person's ledger and the second aggregator's hold. A liar has the weight of one
person in each table. Against both aggregators together there is no guarantee, and the statement says so.
Edges: who takes part is known to both; that a liar's tables agree with each other is not checked; either aggregator can
spoil the sum. A person uploads once; who goes away before that costs the others nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from understudy.answers.release import Release as TableRelease
from understudy.answers.release import tables_of
from understudy.answers.rule_boxes import rule_ties
from understudy.answers.rules import with_rules
from understudy.data.described import NoRows
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.population import Population
from understudy.data.schema import Schema
from understudy.data.table import Table
from understudy.generators.parts import GeneratorParts
from understudy.models.device import pick_device
from understudy.models.tables.fit_gram import fit_gram
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.secure.counts import mirrored, movable
from understudy.protocols.aggregators.collected import CollectingParty
from understudy.protocols.aggregators.first import ADJACENCY, card_of, collected
from understudy.protocols.aggregators.host import UploadParty
from understudy.protocols.aggregators.plan import Config, Plan
from understudy.protocols.aggregators.second import SecondAggregator
from understudy.protocols.core import Parties, Watcher
from understudy.protocols.core.loop import Outcome, two_steps
from understudy.protocols.protocol import Protocol


def build_party(
    name: str, table: Table | Population | NoRows, ledger: Ledger, **more: Any
) -> UploadParty | SecondAggregator:
    """A party of this protocol: without rows the second aggregator, or who collects uploads in a box."""
    if isinstance(table, NoRows):
        party = SecondAggregator if table.box is None else CollectingParty
        return party(name, table, ledger, **more)
    return UploadParty(name, table, ledger, **more)


def train(
    config: Config,
    parties: Parties,
    schemas: Mapping[str, Schema],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
) -> Outcome:
    """Collect everybody's upload, release all tables once, and fit a generator to them.

    With a `checkpoint` folder what was released is saved before it is fitted; `resume=True` continues from there. An
    aggregator that goes away before the release ends the run. Over a network, where parties repeat what they have
    answered, a run that is resumed collects nothing twice; in one process, what was paid by then is lost.
    """
    plan = Plan.joint(config, {name: schemas[name] for name in parties.names})
    schema = with_rules(plan.schema, dict.fromkeys(rule for one in schemas.values() for rule in one.rules))
    saved, privacy = collected(plan, parties, schemas, checkpoint, resume=resume)
    look = two_steps(watch, privacy.per_party)
    look(1)
    sizes, device = Codec(plan.schema).sizes, pick_device(config.device)
    gram, spread = plan.matrix(saved["sums"].numpy()), mirrored(plan.matrix(plan.spread))
    network = fit_gram(
        gram.to(device),
        sizes,
        noise=torch.where(movable(sizes), spread, torch.inf).float().to(device),
        people=saved["people"],
        ties=rule_ties(Codec(schema)),
        target=None if config.target is None else schema.names.index(config.target),
        components=config.components,
        steps=config.steps,
        rate=config.rate,
        seed=config.seed,
        watch=lambda step, residual: look(1),
    )
    look(2)
    card = card_of("two-aggregators", plan, saved, privacy)
    card["levels"] = dict(zip(plan.schema.names, sizes, strict=True))
    card["noise"] = {
        "of each aggregator, in tables of middling size": plan.sigma,
        "of a cell, at least": float(plan.spread.min()),
        "of a cell, at most": float(plan.spread.max()),
    }
    found = _release(plan, gram, spread, card)
    card["release"] = found.card
    generator = GeneratorParts(network.cpu().eval(), schema, card, None, found)
    return Outcome(generator, privacy, saved["people"])


def _release(plan: Plan, gram: Tensor, spread: Tensor, card: Mapping[str, Any]) -> TableRelease:
    """All counts as they were released, with what they cost."""
    person, sizes = card["privacy"]["person"], plan.cells.sizes
    about = {
        "adjacency": ADJACENCY,
        "epsilon": person["epsilon"]["outsider"],
        "delta": person["delta"],
        "releases": [list(kind) for kind in plan.kinds],
        "people": card["people"],
    }
    every = torch.ones(len(sizes), len(sizes), dtype=torch.bool)
    kept = tables_of(gram, spread, every, sizes, "pairs")
    return TableRelease.from_tensors(
        Codec(plan.schema), kept | {"sizes": torch.tensor(sizes, dtype=torch.int32)}, about
    )


PROTOCOL = Protocol(
    name="two-aggregators",
    paper=__doc__,
    config=Config,
    party=build_party,
    parties=(UploadParty, SecondAggregator, CollectingParty),
    train=train,
    same_people=False,
    audit="aggregators",
)
