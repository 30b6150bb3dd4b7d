"""What a pool of generators requires of an offer, and what an offer says of itself.

Lomurno et al., "SGDE: Secure Generative Data Exchange for Cross-Silo Federated
Learning" (AIPR 2022), §III-A: on subscription the server states its requirements
(schema, structure of the generators, the least privacy), and each generator g_k^y that
is pushed comes with its (ε, δ).
Differs from the paper: its "RDP ≥ 9" (§IV-E) is undefined, so an offer states ε, δ, the
accountant and what one person means; no count of rows is asked for or told.

An offer is a `Generator` of one class, or of all where it is sums that a pool adds
(`ADDED`): weights or sums, the public schema (of a table, with the class among its
columns, or of images or series), and a card:

    protocol    "sgde"
    silo        who offers it
    target      the class column
    label       the class that it draws; null: all of them
    epsilon     its price, at `delta`
    delta       of that price
    accountant  how ε was computed
    adjacency   what is protected: `ADJACENCIES`
    network     the description of the network: its `kind` is in `Requirements.networks`
    rehearsal   only where noise or ledger were not real: why; such an offer is refused
    note        a remark, where there is one
    quality     a figure that the silo has paid for, where there is one (`sums`): a part
                of that price

The same checks run at the silo, before it trains or pays, and at the server, when an
offer arrives. That ε is what the silo's ledger says is the silo's word: no server can
verify it, and its people depend on their own silo alone.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self, cast

import torch
from torch import nn

from understudy.data.column import shorten
from understudy.data.encoding.features import Label
from understudy.data.images import ImageSchema
from understudy.data.kinds import (
    FLAT,
    TABLE,
    AnySchema,
    kind_of,
    one_kind_of_row,
    one_label,
    schema_from,
)
from understudy.data.schema import Schema, public_of
from understudy.data.series import SeriesSchema
from understudy.generators.parts import GeneratorParts
from understudy.ground.check import in_range, is_number, one_of, positive, whole
from understudy.ground.errors import (
    ArtefactError,
    ConfigError,
    Effect,
    MessageError,
    PrivacyError,
    SchemaError,
)
from understudy.ground.pack import Shapes, difference
from understudy.models.plan import MOST_NAME, network_class, pieces, plan_of
from understudy.privacy.accounts.budget import ADJACENCIES, ADJACENCY, rehearsal_of
from understudy.privacy.noise import FastRng
from understudy.protocols.papers.sgde.kinds import pooled
from understudy.protocols.papers.sgde.sums import (
    ADDED,
    check_noise,
    check_quality,
    check_sums,
    require,
)

CARD = (
    "protocol",
    "silo",
    "target",
    "label",
    "epsilon",
    "delta",
    "accountant",
    "adjacency",
    "network",
)
MORE = ("note", "rehearsal")  # texts that a card may have, too
FIGURES = ("quality",)  # and figures
MAX_TEXT = 1000  # letters of a text on a card
NETWORKS = ("class-decoder", "class-image-decoder", "mixture", "branched", *ADDED)
_MAX_NUMBERS = 1 << 22  # held at once while looking: 16 MiB
# what its draws must give, on average, to the label that its card names
_MIN_MASS = 0.99


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """What every offer of a pool must keep; `classes`: of images; `target`: empty where
    series have no class.
    """

    schema: Schema | ImageSchema | SeriesSchema
    target: str
    classes: tuple[Label, ...] = ()
    epsilon: float = 1.5
    delta: float = 1e-5
    networks: tuple[str, ...] = NETWORKS
    largest: int = 1 << 24

    def __post_init__(self) -> None:
        object.__setattr__(self, "networks", tuple(self.networks))
        object.__setattr__(self, "classes", tuple(self.classes))
        self.schema.require_public()
        one_label(self.schema, "a pool")
        _ = self.labels  # says what is wrong with them
        positive(epsilon=self.epsilon)
        in_range(0, 1, delta=self.delta)
        whole(largest=self.largest, networks=len(self.networks))

    @property
    def labels(self) -> tuple[Label, ...]:
        return pooled(self.schema).labels(self.schema, self.target, self.classes)

    def to_dict(self) -> dict[str, Any]:
        lists = {"networks": list(self.networks), "classes": list(self.classes)}
        return asdict(self) | {"schema": self.schema.to_dict()} | lists

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`. ConfigError or SchemaError for anything else."""
        try:
            schema = schema_from(dict(values["schema"]))
            if not FLAT.describes(schema):
                raise TypeError(f"a {schema.kind} schema has no classes")
            return cls(**{**values, "schema": schema})
        except (KeyError, TypeError, AttributeError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else error
            raise ConfigError(
                f"these are not requirements of a pool: {reason}."
            ) from None


def offer_card(
    requirements: Requirements,
    *,
    network: Mapping[str, Any],
    unit: str = "person",
    **stated: Any,
) -> dict[str, Any]:
    """The card of an offer. What is `stated` must be public or paid for: it is
    published with the weights. `unit` is what the silo's own schema says that a run
    protects.
    """
    from_pool = {
        "protocol": "sgde",
        "target": requirements.target,
        "adjacency": ADJACENCIES[unit],
    }
    return {**from_pool, "network": dict(network), **stated}


def check_schema(requirements: Requirements, schema: AnySchema) -> None:
    """SchemaError unless the schema has the pool's columns, or images. Who a person is
    and the note may differ.
    """
    pool = requirements.schema
    if TABLE.describes(pool) and TABLE.describes(schema):
        matches = pool.columns == schema.columns
    else:
        matches = public_of(pool) == public_of(schema)
    if not matches:
        raise _schema_error(pool.to_dict(), schema.to_dict())


def read_schema(requirements: Requirements, plain: Any) -> AnySchema:
    """The schema of an offer; its plain form is compared first. SchemaError unless it
    is the pool's.
    """
    pool = json.loads(json.dumps(requirements.schema.to_dict()))
    # of each silo
    text_keys = ("person", "note")
    silo_keys = ("person", "rows_are_people", "note")
    if not isinstance(plain, dict) or _drop_keys(plain, silo_keys) != _drop_keys(
        pool, silo_keys
    ):
        raise _schema_error(pool, plain)
    for key in plain.keys() & {*text_keys}:
        message = (
            f"the {key} of the offer's schema is no text of at most {MAX_TEXT:,} "
            "letters."
        )
        require(
            isinstance(plain[key], str) and len(plain[key]) <= MAX_TEXT,
            message,
            SchemaError,
        )
    return one_kind_of_row(schema_from(plain))


def _drop_keys(schema: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in keys}


def _schema_error(pool: dict[str, Any], plain: Any) -> SchemaError:
    """Where a schema differs from the pool's, in words."""
    pool_columns, offer_columns = (
        [json.dumps(column, sort_keys=True) for column in _columns(schema)]
        for schema in (pool, plain)
    )
    names = {
        str(json.loads(column).get("name", "?"))[:MOST_NAME]
        for column in {*pool_columns} ^ {*offer_columns}
    }
    difference = (
        "is not the pool's" if pool_columns == offer_columns else "has another order"
    )
    if names:
        difference = f"differs from the pool's in {shorten(sorted(names))}"
    return SchemaError(
        f"the offer's schema {difference}.", effect=Effect.NOTHING_EXCHANGED
    )


def _columns(schema: Any) -> list[dict[str, Any]]:
    columns = schema.get("columns", []) if isinstance(schema, dict) else []
    return (
        [column for column in columns if isinstance(column, dict)]
        if isinstance(columns, list)
        else []
    )


def check_price(requirements: Requirements, epsilon: float, delta: float) -> None:
    """PrivacyError unless (ε, δ) is finite and within the pool's limit. δ may be
    smaller, never larger.
    """
    for name, value, limit in (
        ("ε", epsilon, requirements.epsilon),
        ("δ", delta, requirements.delta),
    ):
        message = f"{name}={value!r}, but this pool takes {name} from 0 to {limit:g}."
        require(is_number(value) and 0 <= value <= limit, message, PrivacyError)


def check_offer(
    requirements: Requirements, card: Mapping[str, Any], schema: AnySchema, size: int
) -> None:
    """Whether an offer may stand in the pool, by its card, its schema and the bytes of
    its weights. Edges: a schema with other columns → SchemaError; ε or δ missing, not
    finite or above the limit, or another notion of one person, or a rehearsal →
    PrivacyError; everything else → ConfigError.
    """
    _check_card(card)
    rehearsed = rehearsal_of(card)
    require(not rehearsed, f"the offer is refused. {rehearsed[:500]}", PrivacyError)
    check_schema(requirements, schema)
    check_price(requirements, card["epsilon"], card["delta"])
    adjacency = card["adjacency"]
    target = card["target"]
    pool_adjacency = ADJACENCIES[requirements.schema.unit]
    message = (
        f"the offer's ε is for {adjacency!r}; this pool's is for {pool_adjacency!r}."
    )
    require(adjacency in (pool_adjacency, ADJACENCY), message, PrivacyError)
    one_of(("sgde",), protocol=card["protocol"])
    message = f"the offer's target is {target!r}, the pool's {requirements.target!r}."
    require(target == requirements.target, message, ConfigError)
    kind = card["network"].get("kind") if isinstance(card["network"], Mapping) else None
    one_of(requirements.networks, **{"the offer's network": str(kind)})
    label = card["label"]
    labels = requirements.labels
    if kind in ADDED:
        message = (
            f"sums are offered of all classes, and the offer's label is {label!r}."
        )
        require(label is None, message, ConfigError)
    else:
        message = f"the offer's label {label!r} is none of {list(labels)}."
        require(
            any(_same_label(label_of_pool, label) for label_of_pool in labels),
            message,
            ConfigError,
        )
    check_quality(card)
    compared = "quality" not in card or len(labels) >= 2
    require(
        compared, "a pool without two classes has no figures of quality.", ConfigError
    )
    message = (
        f"the offer's weights take {size:,} bytes, and this pool takes "
        f"{requirements.largest:,}."
    )
    require(size <= requirements.largest, message, ConfigError)


def _check_card(card: Mapping[str, Any]) -> None:
    """All keys of a card and no others, short texts, and nothing nested but the network
    and figures.
    """
    if not isinstance(card, Mapping) or (
        missing := [key for key in CARD if key not in card]
    ):
        fault = (
            f"lacks {', '.join(missing)}"
            if isinstance(card, Mapping)
            else "is no table of keys"
        )
        raise ConfigError(f"the offer's card {fault}.", effect=Effect.NOTHING_EXCHANGED)
    known_keys = (*CARD, *MORE, *FIGURES)
    for key, value in card.items():
        message = (
            f"the offer's card has a key {key!r:.60} that no card has; known: "
            f"{', '.join(known_keys)}."
        )
        require(key in known_keys, message, ConfigError)
        if key not in ("network", *FIGURES):
            is_single = value is None or isinstance(value, str | int | float)
            require(is_single, f"the offer's {key} must be one value.", ConfigError)
        if isinstance(value, str):
            message = (
                f"the offer's {key} has {len(value):,} letters, at most {MAX_TEXT:,}."
            )
            require(len(value) <= MAX_TEXT, message, ConfigError)
        if key in ("silo", "accountant", *MORE):
            message = f"the offer's {key} must be a text, not {value!r:.60}."
            require(
                isinstance(value, str) and bool(value.strip()), message, ConfigError
            )


def check_network(
    requirements: Requirements, card: Mapping[str, Any], shapes: Shapes
) -> None:
    """Whether these tensors are those of the network on the card, and it draws the
    pool's rows. Nothing is built.
    Guarantee: after it, building the network takes memory and time in proportion to the
    tensors. Edges: a network beyond `models/plan`'s limits → ConfigError; other
    tensors, columns or class → ArtefactError.
    """
    schema = requirements.schema
    plan = plan_of(card["network"])
    described = describe_offer(card)
    fits = pooled(schema).fits(schema, plan, card["network"], len(requirements.labels))
    require(fits, f"{described} draws no rows of the pool's schema.")
    if plan.label is not None:
        level = (
            None if card["label"] is None else label_index(requirements, card["label"])
        )
        pool_label = (schema.names.index(requirements.target), level)
        require(plan.label == pool_label, f"{described} draws another class.")
    if plan.shapes != shapes:
        raise ArtefactError(
            "the weights are not those of the network on the card: "
            f"{difference(plan.shapes, shapes)}.",
            effect=Effect.NOTHING_EXCHANGED,
        )


def check_generator(requirements: Requirements, offer: GeneratorParts) -> None:
    """Look at an offer that was rebuilt: it fits the schema, its values are finite, and
    it draws its label. Guarantee: sampling it gives rows of the schema, and of the
    class that the card names (in 99 of 100 draws). Edges: ArtefactError for anything
    else.
    """
    schema = requirements.schema
    network = cast(Any, offer.network)
    described = describe_offer(offer.card)
    if network.kind in ADDED:
        check_sums(offer.card, network, described)
        return  # rows of a fit are cut to the schema, and a fit for every look is slow
    kind = pooled(schema)
    shape = kind_of(schema).shape(schema)
    points = kind.looks
    rng = FastRng(0)
    mass = 0.0
    for count in pieces(network, points, most=points, numbers=_MAX_NUMBERS):
        with torch.no_grad():
            rows = network.rows(rng.normal(count, network.latent))
        valid = rows.shape == (count, *shape) and bool(
            ((rows >= 0) & (rows <= 1 + 1e-6)).all()
        )
        require(valid, f"{described} draws no rows of the pool's schema.")
        label = (
            0
            if offer.card["label"] is None
            else label_index(requirements, offer.card["label"])
        )
        mass += kind.mass(rows, schema, requirements.target, label) / points
    require(
        mass >= _MIN_MASS, f"{described} draws that label in {mass:.1%} of its rows."
    )


def describe_offer(card: Mapping[str, Any]) -> str:
    return (
        f"the offer of {card['silo']} for "
        f"{'all classes' if card['label'] is None else repr(card['label'])}"
    )


def label_index(requirements: Requirements, label: Label) -> int:
    return next(
        index
        for index, label_of_pool in enumerate(requirements.labels)
        if _same_label(label_of_pool, label)
    )


def _same_label(left: Label, right: object) -> bool:
    return type(left) is type(right) and left == right  # True is no 1


# On its way


def pack_offer(card: dict[str, Any], network: nn.Module) -> dict[str, Any]:
    weights = {
        name: value.detach().cpu() for name, value in network.state_dict().items()
    }
    return {"card": card, "weights": weights}


def pushed_offers(pushed: Any) -> list[dict[str, Any]]:
    """What a silo offers (`party.Pushed`), with its figure, if there is one, on the
    card; not checked yet.
    """
    figure = {} if pushed.quality.value is None else {"quality": pushed.quality.value}
    try:
        return [
            {**offer, "card": {**offer["card"], **figure}}
            for offer in pushed.offers.value
        ]
    except (KeyError, TypeError) as error:
        raise MessageError(
            f"an offer cannot be read: {error}.", effect=Effect.NOTHING_EXCHANGED
        ) from None


def unpack_offer(
    requirements: Requirements, offer: Mapping[str, Any], *, priced: bool = True
) -> GeneratorParts:
    """The generator that an offer describes, checked by every requirement.
    `priced=False`: a rehearsal without noise.
    Edges: nothing is built before the card, the schema, the size and the shape of all
    weights were checked; another network than the weights are of → ArtefactError; what
    is no offer → MessageError.
    """
    try:
        card = dict(offer["card"])
        weights = dict(offer["weights"])
        size = sum(value.numel() * value.element_size() for value in weights.values())
        stated = {key: value for key, value in card.items() if key != "rehearsal"}
        if not priced:
            stated["epsilon"] = 0.0
        check_offer(requirements, stated, requirements.schema, size)
        check_network(
            requirements,
            card,
            {
                name: (value.dtype, tuple(value.shape))
                for name, value in weights.items()
            },
        )
        if priced:
            check_noise(card)
        network = network_class(card["network"]["kind"]).from_description(
            card["network"]
        )
        network.load_state_dict(weights)
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise MessageError(
            f"an offer cannot be rebuilt: {error}.", effect=Effect.NOTHING_EXCHANGED
        ) from None
    generator = GeneratorParts(network.eval(), requirements.schema, card)
    check_generator(requirements, generator)
    return generator
