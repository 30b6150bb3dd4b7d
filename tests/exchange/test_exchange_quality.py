"""A figure of quality on the exchange: a silo pays for it, the pages say it in words,
and a lie is refused.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from exchange_cases import Served, generator, served
from test_exchange_cli import run

from understudy.data.samples import toy
from understudy.generators.generator import Generator
from understudy.ground.errors import ConfigError, PrivacyError, UnderstudyError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.papers.sgde.party import FIGURE
from understudy.report import words

pytestmark = pytest.mark.usefixtures("short_fits")


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("quality") / "data") as exchange:
        yield exchange


@pytest.mark.long
def test_a_silo_pays_for_a_figure_and_the_pages_say_it_in_words(
    exchange: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    toy(rows=400, seed=1)[0].to_csv("north.csv", index=False)
    at = exchange.address
    token = exchange.token("north")
    options = (
        "north.csv",
        "--ledger",
        "north.ledger",
        "--kind",
        "gram",
        "--out",
        "north",
    )
    for wrong in (0, -1, math.nan, math.inf, 1e-300, 1.5):
        with pytest.raises((ConfigError, PrivacyError)):
            run(
                "exchange",
                "train",
                *options,
                "--quality-epsilon",
                wrong,
                at=at,
                token=token,
            )
    with Ledger(tmp_path / "north.ledger") as ledger:
        assert not ledger.spend()
    said = run(
        "exchange", "train", *options, "--quality-epsilon", 0.5, at=at, token=token
    )
    made = Generator.load("north/all")
    quality = made.card["quality"]
    assert words.accuracy_words(quality) in said.replace("\n", " ")
    with Ledger(tmp_path / "north.ledger") as ledger:
        assert FIGURE in [entry.description for entry in ledger.entries()]
        assert ledger.spent("anyone") == pytest.approx(made.card["epsilon"])
    assert made.card["epsilon"] <= 1.5
    run("exchange", "push", "north/all", at=at, token=token)
    with exchange.member("south") as member:
        member.push("ward", generator("south"))
    with httpx.Client(
        base_url=at, auth=("north", token), headers={"Accept": "text/html"}, timeout=60
    ) as browser:
        page = browser.get("/pools/ward").text
        own = [
            browser.get(f"/pools/ward/{one}").text
            for one in set(re.findall(r"/ward/(\w{64})", page))
        ]
    assert page.count(words.accuracy_words(quality)) == page.count("no figure") == 1
    (one,) = [text for text in own if "publishes no figure" not in text]
    price = words.at_price(quality["epsilon"])
    assert (
        f"Stated by the silo and paid for with {price}: a classifier made of this "
        "offer is"
    ) in one
    assert f"{words.accuracy_words(quality)}. The exchange cannot check it." in one
    assert len(own) == 2


def test_a_second_figure_for_a_pool_is_refused_and_costs_nothing(
    exchange: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    toy(rows=60, seed=1)[0].to_csv("east.csv", index=False)
    at = exchange.address
    token = exchange.token("east")
    Ledger(tmp_path / "east.ledger", holder="east", budget=Budget(10.0, 1e-5)).close()
    options = (
        "east.csv",
        "--ledger",
        "east.ledger",
        "--kind",
        "gram",
        "--quality-epsilon",
        0.5,
    )
    run("exchange", "train", *options, "--out", "one", at=at, token=token)
    with Ledger(tmp_path / "east.ledger") as ledger:
        spent = ledger.spend()
    with pytest.raises(PrivacyError, match="once in a run"):
        run("exchange", "train", *options, "--out", "two", at=at, token=token)
    with Ledger(tmp_path / "east.ledger") as ledger:
        assert ledger.spend() == spent


def test_a_card_with_a_figure_that_nobody_paid_for_is_refused(exchange: Served) -> None:
    figure = {
        "right": 9,
        "people": 10,
        "noise": 4.0,
        "epsilon": 0.5,
        "delta": 1e-6,
        "accuracy": 0.9,
        "low": 0.8,
    }
    with exchange.member("west") as member:
        for lie in (
            figure,
            figure | {"high": 1.0},
            {},
            "95 %",
            None,
            json.dumps(figure),
        ):
            offer = generator("west")
            with pytest.raises(UnderstudyError, match="quality"):
                member.push("ward", replace(offer, card={**offer.card, "quality": lie}))
