"""SGDE: silos trade generators, one per class, instead of rows or gradients.

Lomurno et al., "SGDE: Secure Generative Data Exchange for Cross-Silo Federated
Learning" (AIPR 2022), §III-A, §IV-C, §IV-E.
Paper → code: K clients → parties ("silos"), Subscribe, Push, Pull → `party`, 𝒴 →
`target`'s labels, (ε, δ) → `epsilon`, `delta`, the synthetic dataset → rows of the
pool's generator, as many of each class.
Differs from the paper: its RDP bound is undefined, so ε is computed, stated and
charged; sampling rates do not follow the private class counts (`training`); what looks
poisoned is left out by a rule (`pool`). The server, not each silo for itself, builds
the one generator that a run returns; each silo gets the whole pool.

The guarantee stands in `party`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from understudy.data.encoding.features import Features, Label, TableFeatures
from understudy.data.kinds import ARRAYS, IMAGES, AnySchema, one_label, protected_unit
from understudy.data.schema import public_of
from understudy.generators.parts import GeneratorParts
from understudy.ground.errors import ConfigError, Effect
from understudy.ground.settings import (
    A_LIST,
    NOT_NEGATIVE,
    POSITIVE,
    WHOLE,
    between,
    choice,
    setting,
)
from understudy.privacy.accounts.accounting import Spend, planned_gaussians
from understudy.privacy.accounts.budget import ADJACENCIES, Budget, shown
from understudy.privacy.accounts.statement import PartyPrivacy, PrivacyStatement
from understudy.protocols.core import Parties, Progress, Watcher, public_values, settled
from understudy.protocols.core import settings as usual
from understudy.protocols.core.common_rule import all_alike, common_features
from understudy.protocols.core.loop import Checkpoint, Outcome, Present, card_of
from understudy.protocols.papers.sgde.kinds import image_schema, pooled
from understudy.protocols.papers.sgde.offer import (
    NETWORKS,
    Requirements,
    pushed_offers,
    unpack_offer,
)
from understudy.protocols.papers.sgde.offering import Recipe
from understudy.protocols.papers.sgde.party import (
    LIES,
    LIMITS,
    Pull,
    Push,
    SgdeParty,
    Subscribe,
)
from understudy.protocols.papers.sgde.pool import OfferAssessment, assess_offers, pool
from understudy.protocols.papers.sgde.sums import ADDED
from understudy.protocols.protocol import Protocol

OUTSIDE = (
    "the schema: columns, levels, bounds and classes are public",
    "the size and the timing of messages; training takes longer where there are "
    "more rows",
)
UNGUARDED_WITHOUT_NOISE = ("every generator: the run was asked to train without noise",)
ROUNDS = 3  # subscribe, push, pull


@dataclass(frozen=True, kw_only=True)
class Config(Recipe, usual.PeopleApart):
    """`epsilon` and `delta` are the most that the pool allows. The prices of a person's
    `max_holders_per_person` compose.
    """

    target: str | None = usual.target()
    epsilon: float = setting(
        1.5, POSITIVE, "the most that a generator in the pool may cost"
    )
    delta: float = setting(1e-5, between(0, 1), "δ of the price")
    networks: tuple[str, ...] = setting(
        NETWORKS, A_LIST, "kinds of networks that the pool takes"
    )
    largest: int = setting(1 << 24, WHOLE, "the most bytes of an offer")
    labels: tuple[Label, ...] = setting(
        (), A_LIST, "pull: only these classes; empty for all"
    )
    silos: tuple[str, ...] = setting(
        (), A_LIST, "pull: only offers of these silos; empty for all"
    )
    cheapest: float | None = setting(
        None, NOT_NEGATIVE, "pull: only offers with at most this ε"
    )
    leave_out: str = setting(
        "flagged",
        choice("flagged", "nothing"),
        "pull: leave out offers that look poisoned",
    )
    rows: int = setting(10_000, WHOLE, "rows that are drawn when a run is saved")
    poison: str = setting("none", choice(*LIES), "a simulation: silos that lie")
    poison_share: float = setting(0.2, between(0, 1), "share of the silos that lie")

    @property
    def recipe(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(Recipe)}


@dataclass(frozen=True)
class PoolOutcome(Outcome):
    offers: tuple[GeneratorParts, ...]
    assessments: tuple[OfferAssessment, ...]


def _agreed(config: Config) -> dict[str, Any]:
    """What a holder who knows the settings agrees to: how it trains, and the pool's
    limits.
    """
    settings = {name: getattr(config, name) for name in (*LIMITS, "poison")}
    return {
        "agreed": config.recipe
        | {name: value for name, value in settings.items() if value is not None}
    }


def _spends(config: Config, budget: Budget) -> Spend | None:
    """What a silo's offers spend that use up what it and the pool both allow, with a
    figure of quality as a part.
    """
    if not config.private:
        return None
    limit = Budget(min(budget.epsilon, config.epsilon), min(budget.delta, config.delta))
    if config.kind != "beta-vae":
        return planned_gaussians(limit.epsilon, limit.delta)

    # which loads networks
    from understudy.protocols.papers.sgde.training import needed_multiplier

    recipe = Recipe(**config.recipe)
    return recipe.spend(needed_multiplier(recipe, limit))


def train(
    config: Config,
    parties: Parties,
    schemas: Mapping[str, AnySchema | Features],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
) -> PoolOutcome:
    """Subscribe, push, pull. With a `checkpoint` folder a resumed run has its offers
    already, and nobody pays twice.
    """
    schemas = {name: schemas[name] for name in parties.names}
    requirements = build_requirements(config, schemas)
    parties = present = Present(parties, config.min_holders)
    store = None if checkpoint is None else Checkpoint(checkpoint, parties)

    def look(done: int) -> None:
        if watch is not None:
            watch(
                Progress(
                    done,
                    ROUNDS,
                    lambda: _statement(state, present, config, schemas).per_party(),
                )
            )

    saved = store.load() if store is not None and resume else None
    state: dict[str, Any] = {} if saved is None else saved[1]
    if saved is None:
        state["subscribed"] = _subscribe(config, requirements, parties)
        look(1)
        present.round = 1
        replies = parties.ask(Push())
        state["offers"] = [
            offer for reply in replies.values() for offer in pushed_offers(reply)
        ]
        state["pushed"], present.round = list(replies), 2
        if store is not None:
            store.save(2, state)
        look(2)
    offers = [
        unpack_offer(requirements, offer, priced=config.private)
        for offer in state["offers"]
    ]
    _check_offered_labels(offers, state["pushed"], requirements)
    parties.ask(Pull(offers=state["offers"]))
    assessments = assess_offers(requirements, offers, seed=config.seed)
    excluded = {
        index
        for index, assessment in enumerate(assessments)
        if assessment.flagged and config.leave_out == "flagged"
    }
    chosen = choose(config, offers, excluded)
    privacy = _statement(state, present, config, schemas)
    look(3)
    assessed = [
        vars(assessment)
        | {key: offer.card[key] for key in ("epsilon", "delta")}
        | {"taken": index in chosen}
        for index, (assessment, offer) in enumerate(
            zip(assessments, offers, strict=True)
        )
    ]
    stated = {
        "requirements": requirements.to_dict(),
        "gone": present.gone,
        "offers": assessed,
    }
    card = card_of("sgde", config, 1, "after the one push", privacy, **stated)
    generator = pool([offers[index] for index in chosen], requirements, card)
    return PoolOutcome(
        generator, privacy, config.rows, tuple(offers), tuple(assessments)
    )


def build_requirements(
    config: Config, schemas: Mapping[str, AnySchema | Features]
) -> Requirements:
    """What the pool requires, for silos that all describe their rows alike. ConfigError
    where they do not.
    """
    limits = {
        key: getattr(config, key) for key in ("epsilon", "delta", "networks", "largest")
    }
    arrays = ARRAYS.among(schemas)
    if arrays and len(arrays) < len(schemas):
        name, schema_of_silo = next(iter(arrays.items()))
        raise ConfigError(
            f"{name} holds {schema_of_silo.kind}s, and others do not.",
            effect=Effect.NOTHING_CHARGED,
        )
    if not arrays:
        rule = common_features(schemas, config.target)  # type: ignore[arg-type]
        if isinstance(rule, TableFeatures):
            return Requirements(schema=rule.schema, target=rule.target, **limits)
        target = config.target or "label"
        return Requirements(
            schema=image_schema(rule), target=target, classes=rule.labels, **limits
        )
    all_alike(
        {name: public_of(schema_of_silo) for name, schema_of_silo in arrays.items()}
    )
    schema = next(iter(arrays.values()))
    one_label(schema, "a pool")
    if config.target not in (None, schema.label):
        raise ConfigError(
            f'target is "{config.target}", and the schema of these rows names '
            f"{schema.label or 'no class'}.",
            effect=Effect.NOTHING_CHARGED,
        )
    if IMAGES.describes(schema) and schema.label is None:
        raise ConfigError(
            "the schema of these images names no class, and SGDE needs one: label and "
            "classes.",
            effect=Effect.NOTHING_CHARGED,
        )
    public = pooled(schema).public(schema)
    classes = schema.classes if IMAGES.describes(schema) else ()
    return Requirements(
        schema=public, target=schema.label or "", classes=classes, **limits
    )


def choose(
    config: Config, offers: Sequence[GeneratorParts], exclude: Iterable[int] = ()
) -> list[int]:
    """The indices of the offers of chosen classes and silos (none named: all) and at
    most `cheapest`, but those to `exclude`.
    """
    excluded = set(exclude)
    max_epsilon = config.cheapest
    chosen = [
        index
        for index, card in enumerate(offer.card for offer in offers)
        if index not in excluded
        # sums of all classes are of none by itself
        and (not config.labels or card["label"] in config.labels)
        and (not config.silos or card["silo"] in config.silos)
        and (
            max_epsilon is None
            or (card["epsilon"] is not None and card["epsilon"] <= max_epsilon)
        )
    ]
    if not chosen:
        raise ConfigError(
            "no offer of the pool is left by this choice. What was pushed stays in "
            "the pool."
        )
    return chosen


def _subscribe(
    config: Config, requirements: Requirements, parties: Parties
) -> dict[str, Any]:
    names = parties.names
    settings: dict[str, Any] = {
        "requirements": requirements.to_dict(),
        "config": asdict(config),
    }
    asks = dict.fromkeys(names, Subscribe(**settings))
    if config.poison != "none":
        order = np.random.default_rng((config.seed, len(names))).permutation(len(names))
        liars = [
            names[position]
            for position in order[: round(config.poison_share * len(order))]
        ]
        asks |= dict.fromkeys(liars, Subscribe(**settings, poison=config.poison))
    return public_values(parties.ask(asks))


def _check_offered_labels(
    offers: Sequence[GeneratorParts], names: Sequence[str], requirements: Requirements
) -> None:
    """Each silo has pushed one offer of each class, or one of all, in its own name."""
    offered = [(offer.card["silo"], offer.card["label"]) for offer in offers]
    added = all(offer.card["network"]["kind"] in ADDED for offer in offers)
    if offered != [
        (name, label)
        for name in names
        for label in ((None,) if added else requirements.labels)
    ]:
        raise ConfigError(
            "a silo has pushed offers of other classes, or for another.",
            effect=Effect.NOTHING_COMPUTED,
        )


def _statement(
    state: Mapping[str, Any],
    parties: Present,
    config: Config,
    schemas: Mapping[str, Any],
) -> PrivacyStatement:
    """What the ledgers say, beside what the silos stated when they subscribed. A silo
    that went away is named.
    """
    spends = settled(parties)
    subscribed = state["subscribed"]
    remarks = []
    for name in filter(subscribed.__contains__, parties.gone):
        when = "before it had pushed, and only its own ledger says"
        if name in state.get("pushed", ()):
            epsilon, delta = subscribed[name]["price"]
            price = (
                "no guarantee"
                if epsilon is None
                else f"ε={shown(epsilon)} at δ={delta:g}"
            )
            when = f"after it had pushed, and its offers state {price}"
        remarks.append(f"what {name} has charged: it went away {when}")
    parts = (
        PartyPrivacy.stated(name, info, spends[name])
        for name, info in subscribed.items()
        if name in spends
    )
    return PrivacyStatement(
        parties=tuple(parts),
        same_people=False,
        max_holders_per_person=config.max_holders_per_person,
        adjacency=ADJACENCIES[protected_unit(schemas)],
        outside=(*OUTSIDE, *remarks),
        unguarded=() if config.private else UNGUARDED_WITHOUT_NOISE,
    )


PROTOCOL = Protocol(
    name="sgde",
    paper=__doc__,
    config=Config,
    party=SgdeParty,
    train=train,
    same_people=False,
    kinds=("table", "image", "series"),
    agreed=_agreed,
    spends=_spends,
)
