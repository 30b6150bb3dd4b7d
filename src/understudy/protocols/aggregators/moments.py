"""Shared moments: images or series of people of whom nobody sees a row, and Gaussians fitted to their moments.

The level of trust of `two-aggregators` for what has no columns. Each person splits their class, their row in the public
frame as a vector of whole numbers, and the products of its entries into two shares (`secure.moment_shares`), one for
the server, one for a second aggregator that does not collude with it. Each of the two adds up what it has and adds its
own full noise, and only the two sums together can be read. Sources: as of `two-aggregators`; what is fitted is that
of `moments` (`models/moments/one_release.py`), without histograms, and without cells of a class.

Guarantee: (ε, δ)-DP for the content of a person's upload, or nothing, against an outsider, the server, and the
second aggregator, in one price that the person's ledger and the second aggregator's hold. A liar moves the sums by no
more than an honest person can (`secure.sketch`). Against both aggregators together there is no guarantee, and
the statement says so.
Edges: who takes part is known to both; either aggregator can spoil the sum. A person uploads once; who goes away before
that costs the others nothing. More people than the sums can hold → ConfigError, before anybody is charged.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from understudy.data.arrays import ArrayTable
from understudy.data.described import NoRows
from understudy.generators.parts import GeneratorParts
from understudy.ground.errors import ConfigError
from understudy.models.moments.one_release import fit_one_release
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.aggregators.first import card_of, collected
from understudy.protocols.aggregators.moments_host import MomentsAggregator, MomentsHost
from understudy.protocols.aggregators.moments_plan import Config, MomentsPlan
from understudy.protocols.core import Parties, Watcher
from understudy.protocols.core.loop import Outcome, two_steps
from understudy.protocols.protocol import Protocol

__all__ = ["PROTOCOL", "Config", "train"]


def build_party(
    name: str, rows: ArrayTable[Any] | NoRows, ledger: Ledger, **more: Any
) -> MomentsHost | MomentsAggregator:
    """A party of this protocol: without rows the second aggregator."""
    if not isinstance(rows, NoRows):
        return MomentsHost(name, rows, ledger, **more)
    if rows.box is not None:
        raise ConfigError(f"{name}: uploads of tables alone are collected from devices. Nothing was charged.")
    return MomentsAggregator(name, rows, ledger, **more)


def train(
    config: Config,
    parties: Parties,
    schemas: Mapping[str, Any],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
) -> Outcome:
    """Collect everybody's upload, release all moments once, and fit a generator to them.

    With a `checkpoint` folder what was released is saved before it is fitted; `resume=True` continues from there, as
    `two-aggregators` does.
    """
    plan = MomentsPlan.joint(config, {name: schemas[name] for name in parties.names})
    saved, privacy = collected(plan, parties, schemas, checkpoint, resume=resume)
    look = two_steps(watch, privacy.per_party)
    look(1)
    network = fit_one_release(plan.frame, *plan.read(saved["sums"]))
    look(2)
    noise = zip(("of counts and means", "of second moments"), plan.sigmas, strict=True)
    card = card_of("shared-moments", plan, saved, privacy)
    card |= {
        "noise": {f"of each aggregator, {what}": sigma for what, sigma in noise},
        "directions": network.directions,
    }
    return Outcome(GeneratorParts(network.eval(), plan.schema, card), privacy, saved["people"])


PROTOCOL = Protocol(
    name="shared-moments",
    paper=__doc__,
    config=Config,
    party=build_party,
    parties=(MomentsHost, MomentsAggregator),
    train=train,
    same_people=False,
    kinds=("image", "series"),
    audit="aggregators",
)
