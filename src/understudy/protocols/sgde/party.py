"""The silo's side of SGDE: it trains one generator per class, or counts sums of all, offers them, and takes the pool.

Lomurno et al., "SGDE" (AIPR 2022), §III-A; the messages stand in `messages`.

Guarantee: a silo's offers together are (ε, δ)-DP for each of its people, against everyone who reads the pool, the
server included. A person counts with one row (the first, where several are theirs), and a row is of one class, so the
classes' networks are trained on disjoint people: all of them cost what one costs. Labels are part of the row. In sums
of moments a person with several rows counts with their average. A figure of quality (`quality`) is a part of that
(ε, δ), and is charged once in a run, before the offer. Nothing
tells how many rows, or how many of a class, a silo has: not the sampling rate, not a divisor, not a missing class.
Edges: a budget that cannot pay, or requirements that the silo cannot keep → refused at `Subscribe`, before anything
is charged; lies (`poison`) are for rehearsals, and refused where the ledger is real.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from understudy.data.encoding.population import Population
from understudy.data.kinds import TABLE
from understudy.generators.generator_file import write_generator
from understudy.generators.parts import GeneratorParts
from understudy.ground.check import one_of
from understudy.ground.durable import own_folder
from understudy.ground.errors import MessageError, PartyError, SchemaError
from understudy.models.device import pick_device
from understudy.models.moments.offered import OfferedMoments
from understudy.models.tables.offered import OfferedGram
from understudy.privacy.accounts.accounting import ACCOUNTANTS, DpEvent, Spend, epsilon
from understudy.privacy.accounts.budget import Budget, rehearsed
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import Rng
from understudy.privacy.secure.counts import spend_of
from understudy.protocols.core import Ask, Message, Paid, Party, Public, Reply
from understudy.protocols.joint.pricing import composed
from understudy.protocols.sgde import gram as sgde_gram
from understudy.protocols.sgde import marginals as sgde_marginals
from understudy.protocols.sgde import moments as sgde_moments
from understudy.protocols.sgde.figure import figure, figure_noise
from understudy.protocols.sgde.fit import fit
from understudy.protocols.sgde.kinds import pooled
from understudy.protocols.sgde.messages import Pull, Pulled, Push, Pushed, Subscribe, Subscribed
from understudy.protocols.sgde.offer import (
    ADDED,
    Requirements,
    check_price,
    check_schema,
    offer_card,
)
from understudy.protocols.sgde.packing import pack_offer, pushed_offers, unpack_offer
from understudy.protocols.sgde.quality import MOVED, quality_of
from understudy.protocols.sgde.recipe import Recipe, needed_noise
from understudy.protocols.sgde.rows import (
    Held,
    decoder_description,
    decoder_of,
    described,
    labelled_rows,
    labels_of,
    require_bounds,
    require_offerable,
)
from understudy.protocols.sgde.sums import check_noise

OFFERED = {
    "beta-vae": "a generator for each",
    "marginals": "counts of levels for each",
    "moments": "counts, means and second moments",
    "gram": "counts of all pairs of levels, and so",
}
FIGURE = "a figure of quality: about how many of its people a classifier made of the offer is right"
LIES = ("none", "flip", "random")
LIMITS = ("target", "epsilon", "delta", "networks", "largest")  # of a pool, as they stand in a run's settings


class SgdeParty(Party):
    """A silo: rows with a class each, in a table or as images, or series with one or without.

    With a folder the pool is kept in it.

    Guarantee: a push is charged before a row is touched, once. `agreed` are the settings that the holder agreed to: a
    pool that asks for others → MessageError, and nothing is charged.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        *Party.messages, Subscribe, Subscribed, Push, Pushed, Pull, Pulled,
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        data: Held,
        ledger: Ledger,
        *,
        run: str,
        budget: Budget,
        rng: Rng | None = None,
        folder: Path | None = None,
        agreed: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name, ledger, run=run, rng=rng, folder=folder)
        self.terms = dict(agreed or {})
        if not isinstance(data, Population):
            data.schema.require_public(f"the schema of {name}")
        require_bounds(data)  # before anybody asks: a refusal that follows from rows is no answer
        self.data, self.budget = data, budget
        self.subscribed: Subscribe | None = None
        self.pushed = False

    def respond(self, ask: Ask) -> Reply:
        match ask:
            case Subscribe() if self.subscribed is None:
                return self._subscribe(ask)
            case Push() if self.subscribed is not None and not self.pushed:  # twice costs twice the stated ε
                return self._push()
            case Pull() if self.subscribed is not None:
                return self._pull(ask)
        raise self.unexpected(ask)

    # Subscribe

    def _subscribe(self, ask: Subscribe) -> Subscribed:
        one_of(LIES, poison=ask.poison)
        if ask.poison != "none" and self.ledger.real:
            raise PartyError(
                f"{self.name}: poisoned offers are for rehearsals, and this ledger is real. Nothing was charged."
            )
        self._take_up(ask)
        price, delta = self.price
        if self.recipe.private:
            check_price(self.requirements, price, delta)
        if self._figure_noise:  # what whoever takes the offer will look at
            check_noise(
                {
                    "network": self._described(), "epsilon": price, "delta": delta,
                    "quality": {"noise": self._figure_noise},
                }
            )  # fmt: skip
        self.ledger.afford(*self._uses)
        self.subscribed = ask
        limit = None if self.budget.epsilon == math.inf else self.budget.to_dict()
        stated = [price if math.isfinite(price) else None, delta]
        return Subscribed(
            budget=Public(limit, "the holder's own choice"),
            noise=self.stated_noise(),
            price=Public(stated, "it follows from the budget, the requirements and the settings"),
        )

    def _take_up(self, ask: Subscribe) -> None:
        """Open what the ask says: the same from a fresh one and from a saved state."""
        settings = ask.config
        self.requirements = Requirements.from_dict(ask.requirements)
        self.recipe = Recipe(**{key: settings[key] for key in Recipe.__dataclass_fields__ if key in settings})
        self.poison = ask.poison
        told = vars(self.requirements) | vars(self.recipe)
        limits = {key: settings[key] for key in LIMITS if settings.get(key) is not None}
        terms = {key: tuple(value) if isinstance(value, list) else value for key, value in limits.items()}
        wrong = [key for key, value in (terms | self.terms).items() if key != "poison" and told[key] != value]
        if wrong or ask.poison not in ("none", self.terms.get("poison", ask.poison)):
            raise MessageError(
                f"{self.name}: the pool asks for another {wrong[0] if wrong else 'poison'} than was agreed to. "
                "Nothing was charged."
            )
        check_schema(self.requirements, described(self.data, self.requirements.schema))
        require_offerable(self.requirements, self._described())
        if not TABLE.holds(self.data) and self.requirements.labels != labels_of(self.data):
            # With fewer classes, training would fail where a row is of a missing one, and so tell that there is one.
            raise SchemaError(
                f"{self.name}: the pool's classes are not those of these rows. Nothing was charged."
            )

    @property
    def spend(self) -> Spend:
        """What the offers cost: as much as this holder and the pool both allow."""
        most = min(self.budget.epsilon, self.requirements.epsilon)
        if self.recipe.kind == "marginals":
            budget = Budget(most, self._delta) if self.recipe.private else None
            return sgde_marginals.price(self.requirements, budget)
        if self.recipe.kind == "gram":
            return sgde_gram.price(self._blank_gram) + self._figure_spend
        if self.recipe.kind == "moments":
            return sgde_moments.price(self._multiplier) + self._figure_spend
        if not self.recipe.private:
            return self.recipe.spend(0.0)
        return self.recipe.spend(needed_noise(self.recipe, most, self._delta))

    @property
    def _blank_gram(self) -> OfferedGram:
        most = min(self.budget.epsilon, self.requirements.epsilon)
        budget = Budget(most, self._delta) if self.recipe.private else None
        return sgde_gram.blank(self.requirements, budget, self._figure_noise)

    @property
    def _figure_noise(self) -> float:
        """The σ of the figure of quality; 0: there is none."""
        if self.recipe.quality_epsilon is None:
            return 0.0
        most = min(self.budget.epsilon, self.requirements.epsilon)
        return figure_noise(self.recipe.quality_epsilon, Budget(most, self._delta), self.requirements)

    @property
    def _figure_spend(self) -> Counter[DpEvent]:
        return spend_of([(self._figure_noise, MOVED)]) if self._figure_noise else Counter()

    @property
    def _multiplier(self) -> float:
        """The noise multiplier of sums of moments."""
        most = min(self.budget.epsilon, self.requirements.epsilon)
        budget = Budget(most, self._delta) if self.recipe.private else None
        return sgde_moments.multiplier_within(budget, self._figure_noise)

    @property
    def _blank_moments(self) -> OfferedMoments:
        recipe = self.recipe
        return sgde_moments.blank(
            self.requirements, recipe.features, self._multiplier, upright=recipe.upright
        )

    def _described(self) -> dict[str, Any]:
        """What an offer will be, as far as it is known before it is paid for."""
        match self.recipe.kind:
            case "moments":
                return self._blank_moments.describe()
            case "gram":
                return self._blank_gram.describe()
            case "marginals":
                sgde_marginals.price(self.requirements, None)  # of a table
                return decoder_description(self.requirements, 1, (), ())
        return decoder_description(self.requirements, self.recipe.latent, self.recipe.channels)

    @property
    def _uses(self) -> tuple[DpEvent, int]:
        """The spend as one event, and how often."""
        return _as_one(self.spend)

    @property
    def _offer_uses(self) -> tuple[DpEvent, int]:
        """That of the offers without their figure."""
        if not self._figure_noise:
            return self._uses
        if self.recipe.kind == "moments":
            return _as_one(sgde_moments.price(self._multiplier))
        return _as_one(sgde_gram.price(self._blank_gram))

    @property
    def price(self) -> tuple[float, float]:
        """(ε, δ) of the offers."""
        return epsilon(self.spend, self._delta), self._delta

    @property
    def _delta(self) -> float:
        if self.budget.epsilon == math.inf and not self.budget.delta:  # a rehearsal that says nothing of δ
            return self.requirements.delta
        return min(self.budget.delta, self.requirements.delta)

    # Push

    def _push(self) -> Pushed:
        if self._figure_noise:  # first, and both are afforded: a refusal leaves everything as it was
            self.ledger.afford(*self._uses)
            ((event, counts),) = self._figure_spend.items()
            figured = self.ledger.charge(event, count=counts, run=self.run, what=FIGURE, once=True)
        event, uses = self._offer_uses
        receipt = self.ledger.charge(
            event, count=uses, run=self.run,
            what=f"{OFFERED[self.recipe.kind]} of {len(self.requirements.labels)} classes, on disjoint people",
        )  # fmt: skip
        networks = [self._counted()] if self.recipe.kind in ADDED else self._train()
        labels = (None,) if self.recipe.kind in ADDED else self.requirements.labels
        price, delta = self.price
        said = rehearsed({self.name: self.rehearsal})
        more: dict[str, Any] = {"rehearsal": said} if said else {}
        paid = {"quality": Paid(self._quality(networks[0]), figured)} if self._figure_noise else {}
        offers = []
        for label, network in zip(labels, networks, strict=True):
            card = offer_card(
                self.requirements, silo=self.name, label=label, epsilon=price, delta=delta,
                accountant=ACCOUNTANTS["pld"], network=network.describe(), **more,  # type: ignore[operator]
            )  # fmt: skip
            offers.append(pack_offer(card if math.isfinite(price) else card | {"epsilon": None}, network))
        self.pushed = True
        return Pushed(offers=Paid(offers, receipt), **paid)

    def _quality(self, offer: nn.Module) -> dict[str, Any]:
        """The figure of the card. It has been paid for."""
        assert isinstance(offer, OfferedGram | OfferedMoments)
        sigma = self._figure_noise
        right, people = figure(offer, self.data, self.requirements, sigma, self.rng)
        cost = epsilon(self._figure_spend, self._delta)
        return quality_of(right, people, noise=sigma, epsilon=cost, delta=self._delta)

    def _counted(self) -> nn.Module:
        """Sums of all classes. They have been paid for."""
        if self.recipe.kind == "gram":
            (found,) = self._lied([self._counts_of_pairs()])
            return found
        offer = self._blank_moments
        rows = sgde_moments.rows_in(offer.frame, self.data)
        if self.poison == "flip":
            rows = replace(rows, classes=(rows.classes + 1) % offer.classes)
        (made,) = self._lied([sgde_moments.counted(offer, rows, self.rng)])
        return made

    def _counts_of_pairs(self) -> nn.Module:
        held = self.data
        if self.poison == "flip" and TABLE.holds(held):
            place, labels = self.requirements.target, list(self.requirements.labels)
            swapped = dict(zip(labels, labels[1:] + labels[:1], strict=True))
            column = held.frame[place].map(swapped).astype(held.frame[place].dtype)
            held = replace(held, frame=held.frame.assign(**{place: column}))
        return sgde_gram.counted(self._blank_gram, held, self.requirements, self.rng)

    def _train(self) -> Sequence[nn.Module]:
        """One private decoder per class. It has been paid for."""
        recipe, device = self.recipe, pick_device(self.recipe.device)
        rows, codes = labelled_rows(self.data, self.requirements)
        classes = len(self.requirements.labels)
        if self.poison == "flip":
            codes = (codes + 1) % classes
        ((event, steps),) = self.spend.items()
        if recipe.kind == "marginals":
            sigma = event.sigma if recipe.private else 0.0
            return self._lied(sgde_marginals.decoders(self.requirements, rows, codes, sigma, self.rng))
        kind, schema = pooled(self.requirements.schema), self.requirements.schema
        given = {"channels": recipe.channels, "seed": recipe.seed}
        vae = kind.vae(schema, self.requirements.target, classes, recipe.latent, **given).to(device)
        noise = event.event.noise_multiplier if recipe.private else 0.0
        fit(
            vae, rows.to(device), codes, steps=steps, rate=recipe.rate, clip_norm=recipe.clip_norm,
            noise_multiplier=noise, beta=recipe.beta, learning_rate=recipe.learning_rate, rng=self.rng,
        )  # fmt: skip
        vae = vae.to(torch.device("cpu"))
        return self._lied([decoder_of(vae, self.requirements, place) for place in range(classes)])

    def _lied(self, networks: Sequence[nn.Module]) -> Sequence[nn.Module]:
        """The networks; with weights drawn blindly, where this silo is to lie so."""
        if self.poison == "random":
            for part in [part for network in networks for part in network.parameters()]:
                part.copy_(self.rng.normal(*part.shape) * (1.0 if part.is_floating_point() else 1e6))
        return networks

    # Pull

    def _pull(self, ask: Pull) -> Pulled:
        offers = [unpack_offer(self.requirements, offer, priced=self.recipe.private) for offer in ask.offers]
        if self.folder is not None:
            pool = own_folder(self.folder / "pool")
            for number, offer in enumerate(offers):
                write_generator(pool / f"{number:04}", offer)
        return Pulled(sound=Public(len(offers), "a count of the server's own offers"))

    # What outlives a message

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict() | {"pushed": self.pushed}
        return state if self.subscribed is None else state | {"subscribed": asdict(self.subscribed)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.subscribed, self.pushed = None, bool(state.get("pushed", False))
        if "subscribed" in state:
            self.subscribed = Subscribe(**state["subscribed"])
            self._take_up(self.subscribed)


def _as_one(spend: Spend) -> tuple[DpEvent, int]:
    first, *others = spend.items()
    return (composed(spend), 1) if others else first


def train_offers(
    silo: str,
    data: Held,
    ledger: Ledger,
    requirements: Requirements,
    *,
    budget: Budget,
    run: str,
    recipe: Recipe | None = None,
    rng: Rng | None = None,
) -> list[GeneratorParts]:
    """A silo's generators, one per class, for a pool elsewhere. Charged to the ledger before rows are touched."""
    party = SgdeParty(silo, data, ledger, run=run, budget=budget, rng=rng)
    settings = asdict(recipe or Recipe())
    party.answer(Subscribe(requirements=requirements.to_dict(), config=settings))
    pushed = party.answer(Push())
    assert isinstance(pushed, Pushed)
    return [unpack_offer(requirements, offer) for offer in pushed_offers(pushed)]
