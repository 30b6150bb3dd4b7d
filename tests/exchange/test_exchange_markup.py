"""Names and texts of pools and silos, however they are written, are texts on every page
of the exchange.
"""

from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
import torch
from exchange_cases import Served, served

from structure import HOSTILE, PLAIN, same_page
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Boolean, Categorical, Schema
from understudy.generators.generator import Generator
from understudy.ground.errors import ConfigError, ExchangeError
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.protocols.papers.sgde.offer import Requirements, offer_card
from understudy.services.exchange.serve import OPERATOR


def pool_of(words: tuple[str, ...]) -> Requirements:
    """A pool all of whose names and texts are these words."""
    target = Categorical(name=words[0], categories=words[1:4])
    columns = (
        target,
        Categorical(name=words[4], categories=words[5:8]),
        Boolean(name=words[8]),
    )
    schema = Schema(columns=columns, person=words[9], note=words[10] + words[11])
    return Requirements(schema=schema, target=words[0], epsilon=1.5, delta=1e-5)


def offer_of(pool: Requirements, words: tuple[str, ...]) -> Generator:
    codec = Codec(pool.schema)  # type: ignore[arg-type]
    network = MixtureOfProducts(codec.sizes, 2)
    with torch.no_grad():
        network.logits.zero_()
        network.logits[:, codec.blocks[0]] = -20.0
        network.logits[:, codec.blocks[0].start] = 20.0
    card = offer_card(
        pool,
        silo="north",
        label=words[1],
        epsilon=1.0,
        delta=1e-6,
        accountant=words[2],
        network=network.describe(),
        note=words[3],
    )
    return Generator(network.eval(), pool.schema, card)


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("markup")) as exchange:
        for name, words in (("hostile", HOSTILE), ("plain", PLAIN)):
            exchange.exchange.add_pool(OPERATOR, name, pool_of(words))
            with exchange.member("north", name) as north:
                north.push(name, offer_of(pool_of(words), words))
        yield exchange


def pages(exchange: Served, pool: str) -> httpx.Client:
    with exchange.member("reader", pool):
        auth = ("reader", exchange.token("reader", pool))
    return httpx.Client(
        base_url=exchange.address,
        auth=auth,
        headers={"Accept": "text/html"},
        timeout=60,
    )


def test_hostile_names_make_the_same_pages_as_plain_ones(exchange: Served) -> None:
    with pages(exchange, "hostile") as theirs, pages(exchange, "plain") as ours:
        for place in ("/", "/pools/{pool}", "/pools/{pool}/{digest}"):
            answers = []
            for client, pool in ((theirs, "hostile"), (ours, "plain")):
                (offer,) = exchange.exchange.offers(OPERATOR, pool)
                answers.append(client.get(place.format(pool=pool, digest=offer.digest)))
            same_page(*answers)
            assert answers[0].status_code == 200


@pytest.mark.long
@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_what_a_visitor_asks_for_comes_back_as_text(
    exchange: Served, hostile: str
) -> None:
    with pages(exchange, "plain") as reader:
        for key in ("label", "silo", "epsilon"):
            same_page(
                *(
                    reader.get("/pools/plain", params={key: text[:32]})
                    for text in (hostile, "x7")
                )
            )
        for place in ("/pools/{}", "/pools/plain/{}", "/{}"):
            same_page(
                *(
                    reader.get(place.format(quote(text, safe="")))
                    for text in (hostile, "nothing here")
                )
            )


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_no_pool_and_no_silo_has_a_name_with_marks(
    exchange: Served, hostile: str
) -> None:
    with pytest.raises(ExchangeError, match="a pool's name is made of"):
        exchange.exchange.add_pool(OPERATOR, hostile, pool_of(PLAIN))
    with pytest.raises(ConfigError, match="a silo's name is made of"):
        exchange.exchange.add_token(OPERATOR, hostile, pool="plain")


def test_a_refusal_for_programs_says_that_it_is_no_page(exchange: Served) -> None:
    """It may quote what came."""
    with exchange.member("north", "plain"):
        token = exchange.token("north", "plain")
    answer = httpx.put(
        f"{exchange.address}/v1/pools/plain/offers/{'0' * 64}",
        content=HOSTILE[0].encode(),
        headers={"Authorization": f"Bearer {token}"},
    )
    assert answer.status_code == 422
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.headers["x-content-type-options"] == "nosniff"
