"""Tied: one party has images, another a table, a third series of the same people; all are measured together, once.

What a table says about images and series that others hold is in the second moments of the joint vector of a person: the
levels of the tables, and the frequencies of the rest in a public frame. Within a holder they are sums, across holders
products (`privacy/secure/product.py`). They are released under whole-number noise at one price, and everything after is
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

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from understudy.data.kinds import side_by_side
from understudy.generators.parts import GeneratorParts
from understudy.ground.check import a_seed, whole
from understudy.models.tied.fit import Joint, Tied, fit_tied
from understudy.models.tied.network import Part
from understudy.privacy.accounts.accounting import Spend
from understudy.privacy.accounts.statement import OUTSIDE, PrivacyStatement
from understudy.privacy.secure.moments import moments_event
from understudy.protocols.core import Parties, Watcher, settled
from understudy.protocols.core.agreeing import stated_prices
from understudy.protocols.core.checkpoint import Checkpoint
from understudy.protocols.core.loop import two_steps
from understudy.protocols.core.outcome import Outcome
from understudy.protocols.gram.party import DEALT
from understudy.protocols.protocol import Protocol, agree_on
from understudy.protocols.tied.forecast import forecast as forecast
from understudy.protocols.tied.layout import SETTLED, Layout, check_settings
from understudy.protocols.tied.messages import Begin
from understudy.protocols.tied.party import TiedParty
from understudy.protocols.tied.releases import NAMES, Released, Server, release

SAVED = "released"


@dataclass(frozen=True, kw_only=True)
class Config:
    """`features`: the most coefficients of each frame to measure, from the lowest frequency on.

    `norms`: share of the budget that buys the bound on a row's norm, at each holder of images or series; 0: the
    schema's, or the largest possible.
    `target`: a column of a table whose levels are classes: of each array every class has its own covariance then.
    `directions`: the most leading directions of them; what a holder of images or series sends grows with their square.
    `shares`: parts of the budget for the means, for all second moments, and for those by class; without a target the
    first two have all of it.
    `components` and `steps` are those of the tables' fit. `chunk`: people per message.
    """

    features: int = 300
    norms: float = 0.0
    target: str | None = None
    directions: int = 24
    shares: tuple[float, float, float] = (0.08, 0.57, 0.35)
    components: int = 128
    steps: int = 600
    chunk: int = 1 << 15
    private: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        whole(components=self.components, steps=self.steps, chunk=self.chunk)
        a_seed(seed=self.seed)
        check_settings(asdict(self))
        object.__setattr__(self, "shares", tuple(map(float, self.shares)))


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
    schemas = {name: schemas[name] for name in parties.names}
    layout = Layout(schemas, config.features, config.target, config.norms)
    store = None if checkpoint is None else Checkpoint(checkpoint, parties)
    made: dict[str, Tied] = {}

    def tie(joint: Joint) -> Tied:
        if "tied" not in made:
            made["tied"] = Tied.of(joint, components=config.components, steps=config.steps, seed=config.seed)
        return made["tied"]

    server = Server(
        parties,
        layout,
        config.directions,
        config.chunk,
        os.urandom(32) if store is None else store.secret(resume=resume),
        tie,
    )
    told = json.loads(json.dumps({key: getattr(config, key) for key in SETTLED}))
    saved = store.measured(SAVED, told) if store is not None and resume else None
    done = release(
        server,
        Begin(config=asdict(config), schemas={name: schema.to_dict() for name, schema in schemas.items()}),
        first=None if saved is None else Released(**saved),
        keep=lambda one: None if store is None else store.note(SAVED, dict(vars(one)) | {"plan": told}),
    )
    norms = done.multipliers[layout.releases :]
    privacy = _statement(done, norms, settled(parties, done.begun, at_least=0 if done.ended else None))
    look = two_steps(watch, privacy.per_party)
    look(1)
    tied = tie(server.joint(done))
    shades = {
        name: (first["shades"], float(first["shades_noise"]))
        for name in layout.frames
        for first in [server.first(done, name)]
    }
    parts: dict[str, Part | None] = {name: layout.sizes.get(name) for name in layout.names}
    place = None if layout.label is None else layout.label.place
    network, matched = fit_tied(tied, parts, label=place, classwise=server.classwise(done), shades=shades)
    look(2)
    card: dict[str, Any] = {
        "protocol": "tied",
        "config": asdict(config),
        "partition": "columns",
        "rounds": 1,
        "ended": f"after {done.made} of {layout.releases} releases: {done.ended}"
        if done.ended
        else "after all releases",
        "people": done.people,
        "noise": dict(zip(NAMES, done.multipliers[: done.made], strict=False))
        | ({"norms": norms[0]} if norms else {}),
        "norm": {name: server.framed(done, name).norm for name in layout.frames},
        "directions": {name: len(kept.values) for name, kept in tied.kept.items()},
        "histograms": matched,
        "privacy": privacy.to_dict(),
    }
    return Outcome(GeneratorParts(network, side_by_side(schemas), card), privacy, done.people)


def _statement(
    done: Released, norms: Sequence[float], spends: Mapping[str, Mapping[str, Spend]]
) -> PrivacyStatement:
    """What the run cost, by the parties' ledgers; of a party that went away, the price of all it was asked for."""
    asked = Counter(map(moments_event, [*done.multipliers[: done.made + done.lost], *norms]))
    missing = (
        (
            f"the last release, which did not take place ({done.ended}): who had answered by then has paid for it",
        )
        if done.ended
        else ()
    )
    return PrivacyStatement(
        parties=stated_prices(done.begun, spends, asked),
        same_people=True,
        one_release=True,
        outside=OUTSIDE + missing,
        unguarded=DEALT,
    )


PROTOCOL = Protocol(
    name="tied",
    paper=__doc__,
    config=Config,
    party=TiedParty,
    train=train,
    same_people=True,
    kinds=("table", "image", "series"),
    one_release=True,
    agreed=agree_on(SETTLED),
    forecast=forecast,
    audit="tied",
)
