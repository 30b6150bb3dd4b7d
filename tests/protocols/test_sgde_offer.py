"""What a pool of generators takes in, and what it refuses."""

import json
import math
from typing import Any

import pytest
import torch

from understudy.data.encoding.codec import Codec
from understudy.data.samples import toy
from understudy.generators.generator import Generator
from understudy.ground.errors import (
    ArtefactError,
    ConfigError,
    PrivacyError,
    SchemaError,
    UnderstudyError,
)
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.protocols.papers.sgde.offer import (
    Requirements,
    check_generator,
    check_offer,
    label_index,
    offer_card,
)

SCHEMA = toy(rows=4, seed=0)[1]
POOL = Requirements(
    schema=SCHEMA, target="smoker", epsilon=1.5, delta=1e-5, largest=10_000
)


def card(**changes: Any) -> dict[str, Any]:
    told = offer_card(
        POOL,
        silo="north",
        label=POOL.labels[0],
        epsilon=1.4,
        delta=1e-6,
        accountant="PLD",
        network={
            "kind": "mixture",
            "components": 1,
            "sizes": list(Codec(SCHEMA).sizes),
        },
    )
    return told | changes


def offer(label: Any, drawn: Any) -> Generator:
    """A generator whose card says `label` and whose rows say `drawn`."""
    codec = Codec(SCHEMA)
    network = MixtureOfProducts(codec.sizes, 1)
    block = codec.blocks[SCHEMA.names.index("smoker")]
    with torch.no_grad():
        network.logits[0, block.start + label_index(POOL, drawn)] = 20.0
    return Generator(network, SCHEMA, card(label=label))


def test_requirements_come_back_from_json_as_they_were() -> None:
    assert Requirements.from_dict(json.loads(json.dumps(POOL.to_dict()))) == POOL


def test_an_offer_within_the_requirements_is_taken() -> None:
    check_offer(POOL, card(), SCHEMA, 10_000)
    check_offer(POOL, card(epsilon=1.5, delta=1e-5), SCHEMA, 1)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"epsilon": 1.5000001}, PrivacyError),
        ({"epsilon": math.inf}, PrivacyError),
        ({"epsilon": math.nan}, PrivacyError),
        ({"epsilon": "1.0"}, PrivacyError),
        ({"epsilon": True}, PrivacyError),
        ({"epsilon": -1.0}, PrivacyError),
        ({"delta": 1.1e-5}, PrivacyError),
        ({"delta": None}, PrivacyError),
        ({"adjacency": "replace one row"}, PrivacyError),
        ({"protocol": "gram"}, ConfigError),
        ({"silo": " "}, ConfigError),
        ({"accountant": 3}, ConfigError),
        ({"target": "age"}, ConfigError),
        ({"label": "maybe"}, ConfigError),
        ({"network": {"kind": "pickle"}}, ConfigError),
        ({"network": "mixture"}, ConfigError),
        ({"network": {"kind": ["mixture"]}}, ConfigError),
    ],
)
def test_every_requirement_is_held(
    changes: dict[str, Any], error: type[UnderstudyError]
) -> None:
    with pytest.raises(error):
        check_offer(POOL, card(**changes), SCHEMA, 10)


@pytest.mark.parametrize("key", ["silo", "label", "epsilon", "network"])
def test_a_card_that_lacks_a_key_is_refused(key: str) -> None:
    told = card()
    del told[key]
    with pytest.raises(ConfigError, match=key):
        check_offer(POOL, told, SCHEMA, 10)


def test_weights_above_the_size_limit_are_refused() -> None:
    with pytest.raises(ConfigError, match="10,001"):
        check_offer(POOL, card(), SCHEMA, 10_001)


def test_another_schema_is_refused_by_the_column_that_differs() -> None:
    with pytest.raises(SchemaError, match="age"):
        check_offer(POOL, card(), SCHEMA.drop(["age"]), 10)
    with pytest.raises(SchemaError, match="order"):
        check_offer(POOL, card(), SCHEMA.select(SCHEMA.names[::-1]), 10)


def test_a_truth_value_is_not_a_number_one() -> None:
    labels = POOL.labels
    other = [int(label) if isinstance(label, bool) else f"{label} " for label in labels]
    with pytest.raises(ConfigError, match="label"):
        check_offer(POOL, card(label=other[1]), SCHEMA, 10)


def test_a_generator_must_draw_the_class_that_its_card_names() -> None:
    one, two = POOL.labels[:2]
    check_generator(POOL, offer(one, one))
    with pytest.raises(ArtefactError, match="draws that label"):
        check_generator(POOL, offer(one, two))


def test_a_generator_of_another_width_is_refused() -> None:
    with pytest.raises(ArtefactError, match="schema"):
        check_generator(POOL, Generator(MixtureOfProducts([2, 3], 1), SCHEMA, card()))


def test_requirements_without_a_class_are_refused() -> None:
    with pytest.raises(ConfigError, match="target"):
        Requirements(schema=SCHEMA, target="age")
    with pytest.raises(ConfigError):
        Requirements.from_dict({"target": "smoker"})
