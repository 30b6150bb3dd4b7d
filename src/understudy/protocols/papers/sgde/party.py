"""The silo's side of SGDE: it trains one generator per class, or counts sums of all,
offers them, and takes the pool.

Guarantee: a silo's offers together are (ε, δ)-DP for each of its people, against
everyone who reads the pool, the server included. A person counts with one row (the
first, where several are theirs), and a row is of one class, so the classes' networks
are trained on disjoint people: all of them cost what one costs. Labels are part of the
row. In sums of moments a person with several rows counts with their average. A figure
of quality (`sums`) is a part of that (ε, δ), and is charged once in a run, before the
offer. Nothing tells how many rows, or how many of a class, a silo has: not the sampling
rate, not a divisor, not a missing class.
Edges: a budget that cannot pay, or requirements that the silo cannot keep → refused at
`Subscribe`, before anything is charged; lies (`poison`) are for rehearsals, and refused
where the ledger is real.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from torch import nn

from understudy.data.encoding.population import Population
from understudy.data.kinds import TABLE, protected_unit
from understudy.generators.parts import GeneratorParts
from understudy.ground.check import one_of
from understudy.ground.durable import own_folder
from understudy.ground.errors import Effect, MessageError, PartyError, SchemaError
from understudy.privacy.accounts.accounting import ACCOUNTANTS, DpEvent, Spend, epsilon
from understudy.privacy.accounts.budget import ADJACENCIES, Budget, rehearsed
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.secure.counts import composed, spend_of
from understudy.protocols.core import Ask, Message, Opening, Paid, Party, Public, Reply
from understudy.protocols.papers.sgde import offer as offered
from understudy.protocols.papers.sgde.kinds import SiloData, SiloRows, pooled
from understudy.protocols.papers.sgde.offer import (
    Requirements,
    check_price,
    check_schema,
    offer_card,
)
from understudy.protocols.papers.sgde.offering import Recipe, offering_class
from understudy.protocols.papers.sgde.sums import (
    ADDED,
    FIGURE_COUNTS,
    check_noise,
    quality_figure,
)

FIGURE = (
    "a figure of quality: about how many of its people a classifier made of the offer "
    "is right"
)
LIES = ("none", "flip", "random")
# of a pool, as they stand in a run's settings
LIMITS = ("target", "epsilon", "delta", "networks", "largest")


class Subscribe(Opening, kind="sgde.subscribe"):
    """The settings for a silo's training, and what the pool requires. `poison` makes
    this silo lie, in a rehearsal.
    """

    requirements: dict[str, Any]
    poison: str = "none"


class Subscribed(Reply, kind="sgde.subscribed"):
    """What the silo's holder allows, its source of noise, and the (ε, δ) that its
    offers will have.
    """

    budget: Public
    noise: Public
    price: Public


class Push(Ask, kind="sgde.push"):
    """Train one generator per class, and send them."""


class Pushed(Reply, kind="sgde.pushed"):
    """An offer for each class: its card and its weights. A figure of quality has a
    receipt of its own.
    """

    offers: Paid
    quality: Paid | Public = Public(None, "no figure of quality was asked for")


class Pull(Ask, kind="sgde.pull"):
    """The pool: cards and weights of every offer that was taken in."""

    offers: list[dict[str, Any]]


class Pulled(Reply, kind="sgde.pulled"):
    """How many of them passed this silo's own check."""

    sound: Public


class SgdeParty(Party):
    """A silo: rows with a class each, in a table or as images, or series with one or
    without. `agreed` are the settings that the holder agreed to: a pool that asks for
    others → MessageError, and nothing is charged.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        *Party.messages,
        Subscribe,
        Subscribed,
        Push,
        Pushed,
        Pull,
        Pulled,
    )

    def __init__(
        self,
        name: str,
        data: SiloData,
        ledger: Ledger,
        *,
        budget: Budget,
        agreed: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(name, ledger, **more)
        self.terms = dict(agreed or {})
        if not isinstance(data, Population):
            data.schema.require_public(f"the schema of {name}")
            data.schema.require_unit(f"the schema of {name}")
        self.unit = protected_unit(
            {name: data.features if isinstance(data, Population) else data.schema}
        )
        # before anybody asks: a refusal that follows from rows is no answer
        self.silo = SiloRows.from_held(data)
        self.budget = budget
        self.subscribed: Subscribe | None = None
        self.pushed = False

    def respond(self, ask: Ask) -> Reply:
        match ask:
            case Subscribe() if self.subscribed is None:
                return self._subscribe(ask)
            case Push() if self.subscribed is not None and not self.pushed:
                # twice costs twice the stated ε
                return self._push()
            case Pull() if self.subscribed is not None:
                return self._pull(ask)
        raise self.unexpected(ask)

    # Subscribe

    def _subscribe(self, ask: Subscribe) -> Subscribed:
        one_of(LIES, poison=ask.poison)
        if ask.poison != "none" and self.ledger.real:
            raise PartyError(
                f"{self.name}: poisoned offers are for rehearsals, and this ledger is "
                "real.",
                effect=Effect.NOTHING_CHARGED,
            )
        self._take_up(ask)
        price, delta = self.price
        if self.recipe.private:
            check_price(self.requirements, price, delta)
        if self.offering.figure:  # what whoever takes the offer will look at
            quality = {"noise": self.offering.figure}
            network = self.offering.describe()
            check_noise(
                {
                    "network": network,
                    "epsilon": price,
                    "delta": delta,
                    "quality": quality,
                }
            )
        self.ledger.afford(*_as_one_event(self.spend))
        self.subscribed = ask
        limit = None if self.budget.epsilon == math.inf else self.budget.to_dict()
        stated = [price if math.isfinite(price) else None, delta]
        price_stated = Public(
            stated, "it follows from the budget, the requirements and the settings"
        )
        return Subscribed(
            budget=Public(limit, "the holder's own choice"),
            noise=self.stated_noise(),
            price=price_stated,
        )

    def _take_up(self, ask: Subscribe) -> None:
        """Open what the ask says: the same from a fresh one and from a saved state."""
        settings = ask.config
        self.requirements = Requirements.from_dict(ask.requirements)
        self.recipe = Recipe(
            **{
                key: settings[key]
                for key in Recipe.__dataclass_fields__
                if key in settings
            }
        )
        self.poison = ask.poison
        requested = vars(self.requirements) | vars(self.recipe)
        limits = {key: settings[key] for key in LIMITS if settings.get(key) is not None}
        terms = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in limits.items()
        }
        differing = [
            key
            for key, value in (terms | self.terms).items()
            if key != "poison" and requested[key] != value
        ]
        if differing or ask.poison not in (
            "none",
            self.terms.get("poison", ask.poison),
        ):
            raise MessageError(
                f"{self.name}: the pool asks for another "
                f"{differing[0] if differing else 'poison'} than was agreed to.",
                effect=Effect.NOTHING_CHARGED,
            )
        check_schema(
            self.requirements, self.silo.schema_beside(self.requirements.schema)
        )
        limit = Budget(min(self.budget.epsilon, self.requirements.epsilon), self._delta)
        allowed = limit if self.recipe.private else None
        self.offering = offering_class(self.recipe.kind)(
            self.requirements, self.recipe, allowed
        )
        self.offering.require_offerable()
        if (
            not TABLE.holds(self.silo.rows)
            and self.requirements.labels != self.silo.labels
        ):
            # With fewer classes, training would fail where a row is of a missing one,
            # and so tell that there is one.
            raise SchemaError(
                f"{self.name}: the pool's classes are not those of these rows.",
                effect=Effect.NOTHING_CHARGED,
            )

    @property
    def _figure_spend(self) -> Counter[DpEvent]:
        return (
            spend_of([(self.offering.figure, FIGURE_COUNTS)])
            if self.offering.figure
            else Counter()
        )

    @property
    def spend(self) -> Spend:
        """What the offers and their figure cost: as much as this holder and the pool
        both allow.
        """
        return self.offering.spend + self._figure_spend

    @property
    def price(self) -> tuple[float, float]:
        return epsilon(self.spend, self._delta), self._delta

    @property
    def _delta(self) -> float:
        # a rehearsal that says nothing of δ
        if self.budget.epsilon == math.inf and not self.budget.delta:
            return self.requirements.delta
        return min(self.budget.delta, self.requirements.delta)

    # Push

    def _push(self) -> Pushed:
        required = self.requirements
        kind = self.recipe.kind
        # first, and both are afforded: a refusal leaves everything as it was
        if self.offering.figure:
            self.ledger.afford(*_as_one_event(self.spend))
            ((event, counts),) = self._figure_spend.items()
            figured = self.charge(event, count=counts, description=FIGURE, once=True)
        event, uses = _as_one_event(self.offering.spend)
        receipt = self.charge(
            event,
            count=uses,
            description=f"{self.offering.words} of {len(required.labels)} classes, on "
            "disjoint people",
        )
        networks = self._networks()
        price, delta = self.price
        rehearsal = rehearsed({self.name: self.rehearsal})
        remarks: dict[str, Any] = {"rehearsal": rehearsal} if rehearsal else {}
        paid = (
            {"quality": Paid(self._quality(networks[0]), figured)}
            if self.offering.figure
            else {}
        )
        offers = []
        for label, network in zip(
            (None,) if kind in ADDED else required.labels, networks, strict=True
        ):
            card = offer_card(
                required,
                silo=self.name,
                label=label,
                epsilon=price,
                delta=delta,
                unit=self.unit,
                accountant=ACCOUNTANTS["pld"],
                network=network.describe(),  # type: ignore[operator]
                **remarks,
            )
            offers.append(
                offered.pack_offer(
                    card if math.isfinite(price) else card | {"epsilon": None}, network
                )
            )
        self.pushed = True
        return Pushed(offers=Paid(offers, receipt), **paid)

    def composition(self) -> dict[str, Any]:
        settings = {} if self.subscribed is None else self.subscribed.config
        max_holders_per_person = int(settings.get("max_holders_per_person", 1))
        return {
            "same_people": False,
            "max_holders_per_person": max_holders_per_person,
            "adjacency": ADJACENCIES[self.unit],
        }

    def _networks(self) -> Sequence[nn.Module]:
        """The networks, or lies: of swapped classes, or with weights drawn blindly.
        They have been paid for.
        """
        rows = self.silo.rows
        required = self.requirements
        if self.poison == "flip":
            rows = pooled(rows.schema).flipped(rows, required.target, required.labels)
        networks = self.offering.make(rows, self.rng)
        if self.poison == "random":
            for part in [part for network in networks for part in network.parameters()]:
                part.copy_(
                    self.rng.normal(*part.shape)
                    * (1.0 if part.is_floating_point() else 1e6)
                )
        return networks

    def _quality(self, offer: Any) -> dict[str, Any]:
        """The figure of the card. It has been paid for."""
        from understudy.protocols.papers.sgde.counted import release_figure

        sigma = self.offering.figure
        right, people = release_figure(
            offer, self.silo.rows, self.requirements, sigma, self.rng
        )
        cost = epsilon(self._figure_spend, self._delta)
        return quality_figure(
            right, people, noise=sigma, epsilon=cost, delta=self._delta
        )

    # Pull

    def _pull(self, ask: Pull) -> Pulled:
        offers = [
            offered.unpack_offer(self.requirements, offer, priced=self.recipe.private)
            for offer in ask.offers
        ]
        if self.folder is not None:
            from understudy.generators.generator_file import write_generator

            pool = own_folder(self.folder / "pool")
            for number, offer in enumerate(offers):
                write_generator(pool / f"{number:04}", offer)
        return Pulled(sound=Public(len(offers), "a count of the server's own offers"))

    # What outlives a message

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict() | {"pushed": self.pushed}
        return (
            state
            if self.subscribed is None
            else state | {"subscribed": asdict(self.subscribed)}
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.subscribed = None
        self.pushed = bool(state.get("pushed", False))
        if "subscribed" in state:
            self.subscribed = Subscribe(**state["subscribed"])
            self._take_up(self.subscribed)


def _as_one_event(spend: Spend) -> tuple[DpEvent, int]:
    first, *further = spend.items()
    return (composed(spend), 1) if further else first


def train_offers(
    silo: str,
    data: SiloData,
    ledger: Ledger,
    requirements: Requirements,
    *,
    recipe: Recipe | None = None,
    **more: Any,
) -> list[GeneratorParts]:
    """A silo's generators, one per class, for a pool elsewhere. Charged to the ledger
    before rows are touched.
    """
    party = SgdeParty(silo, data, ledger, **more)
    party.answer(
        Subscribe(
            requirements=requirements.to_dict(), config=asdict(recipe or Recipe())
        )
    )
    pushed = offered.pushed_offers(party.answer(Push()))
    return [offered.unpack_offer(requirements, offer) for offer in pushed]
