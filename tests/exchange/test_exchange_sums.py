"""Sums on the exchange: silos count images of all classes, a pull adds them up, and
draws from one fit.
"""

import base64
import io
import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pytest
from exchange_cases import POOL as TABLES
from exchange_cases import Served, forked, served
from exchange_cases import halves as bright_halves
from PIL import Image
from test_exchange_cli import run

from understudy.data.encoding.population import Population
from understudy.data.images import ImageSchema
from understudy.data.samples import toy
from understudy.data.table import read_table
from understudy.generators.generator import Generator
from understudy.ground.errors import UnderstudyError
from understudy.models.moments.gaussians import CellGaussians
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.papers.sgde.offer import Requirements
from understudy.protocols.papers.sgde.offering import Recipe
from understudy.protocols.papers.sgde.party import FIGURE, train_offers
from understudy.report.words import accuracy_words
from understudy.services.exchange import checker
from understudy.services.exchange.offer_file import seal
from understudy.services.exchange.serve import read_pool

pytestmark = pytest.mark.usefixtures("short_fits")

BUDGET = Budget(8.0, 1e-5)
SIDE = 12
POOL = Requirements(
    schema=ImageSchema(height=SIDE, width=SIDE),
    target="half",
    classes=(0, 1),
    epsilon=8.0,
    networks=("moments",),
)


halves = partial(bright_halves, n=400, dark=60)


def sums(silo: str, seed: int) -> Generator:
    """The offer of a silo, as of a real ledger, but repeatable."""
    x, y = halves(seed)
    (offer,) = train_offers(
        silo,
        Population.from_arrays(x, y, classes=2),
        Ledger.rehearsal(silo, BUDGET),
        POOL,
        budget=BUDGET,
        run="r",
        recipe=Recipe(kind="moments", features=20),
        rng=SecureRng.from_seed(seed),
    )
    told = {key: value for key, value in offer.card.items() if key != "rehearsal"}
    return replace(offer, card=told)


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Three silos have each pushed their sums."""
    with served(tmp_path_factory.mktemp("sums") / "data") as exchange:
        with exchange.admin() as admin:
            admin.create_pool("halves", POOL)
        for seed, silo in enumerate(("north", "south", "west")):
            with exchange.member(silo, "halves") as member:
                member.push("halves", sums(silo, seed))
        yield exchange


@pytest.fixture
def silo_east(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its images in the folder in which commands run."""
    monkeypatch.chdir(tmp_path)
    x, y = halves(7)
    np.savez("east.npz", images=x, half=y)


@pytest.mark.usefixtures("silo_east")
def test_a_silo_of_images_pays_for_a_figure_and_its_page_says_it(
    exchange: Served, tmp_path: Path
) -> None:
    at = exchange.address
    token = exchange.token("east", "halves")
    words = (
        "--ledger",
        "east.ledger",
        "--kind",
        "moments",
        "--quality-epsilon",
        2.0,
        "--out",
        "east",
    )
    said = run("exchange", "train", "east.npz", *words, at=at, token=token).replace(
        "\n", " "
    )
    made = Generator.load("east/all")
    figure = accuracy_words(made.card["quality"])
    assert figure in said
    assert made.card["quality"]["low"] > 0.9
    with Ledger(tmp_path / "east.ledger") as ledger:
        assert ledger.spent("anyone") == pytest.approx(made.card["epsilon"])
        assert [entry.description for entry in ledger.entries()].count(FIGURE) == 1
    with exchange.member("east", "halves") as member:
        digest = member.push("halves", made)["digest"]
        with httpx.Client(
            base_url=at,
            auth=("east", token),
            headers={"Accept": "text/html"},
            timeout=60,
        ) as browser:
            assert browser.get("/pools/halves").text.count(figure) == 1
            assert (
                f"{figure}. The exchange cannot check it."
                in browser.get(f"/pools/halves/{digest}").text
            )
        member.withdraw("halves", digest)


def test_a_pull_adds_the_sums_and_draws_images_with_their_classes(
    exchange: Served, tmp_path: Path
) -> None:
    at = exchange.address
    token = exchange.token("south", "halves")
    to = tmp_path / "pool"
    said = run("exchange", "list", at=at, token=token)
    assert said.count(" all ") == 3
    said = run("exchange", "pull", "--out", to, at=at, token=token)
    assert "3 of 3 offers make one generator" in said
    generator = Generator.load(to)
    assert isinstance(generator.network, CellGaussians)
    assert generator.card["members"] == [{"silo": "north, south, west", "label": None}]
    run(
        "exchange",
        "draw",
        to,
        "--rows",
        100,
        "--seed",
        1,
        "--out",
        tmp_path / "set.npz",
    )
    with np.load(tmp_path / "set.npz") as drawn:
        images = drawn["images"].astype(float)
        labels = drawn["half"]
    upper = images[:, : SIDE // 2].mean((1, 2))
    lower = images[:, SIDE // 2 :].mean((1, 2))
    assert ((lower > upper) == (labels == 1)).mean() > 0.95


@pytest.mark.usefixtures("silo_east")
def test_a_silo_counts_and_pushes_from_the_command_line(
    exchange: Served, tmp_path: Path
) -> None:
    at = exchange.address
    token = exchange.token("east", "halves")
    words = (
        "--ledger",
        "east.ledger",
        "--epsilon",
        1.0,
        "--kind",
        "moments",
        "--out",
        "east",
    )
    run("exchange", "train", "east.npz", *words, at=at, token=token)
    with Ledger(tmp_path / "east.ledger") as ledger:
        assert 0.99 < ledger.spent("anyone") <= 1.0
    said = run("exchange", "push", "east/all", at=at, token=token)
    assert "is on offer in halves: all, " in said
    with exchange.member("east", "halves") as member:
        (mine,) = member.offers("halves", silos=["east"])
        member.withdraw("halves", mine["digest"])


def test_the_pages_show_a_line_of_images_for_each_class(exchange: Served) -> None:
    with httpx.Client(
        base_url=exchange.address,
        auth=("north", exchange.token("north", "halves")),
        headers={"Accept": "text/html"},
        timeout=60,
    ) as browser:
        page = browser.get("/pools/halves").text
        digest = re.search(r"/pools/halves/(\w{64})", page)
        assert digest
        own = browser.get(f"/pools/halves/{digest[1]}").text
        front = browser.get("/").text
    assert "2 of 2" in front
    assert re.findall(r"silos in all</th><td[^>]*>(\w+)</td><td[^>]*>(\w+)<", page) == [
        ("3", "3")
    ]
    assert "all classes" in own
    assert "A line for each class, from above: 0, 1." in own
    assert "understudy exchange pull --silo north --out pool" in own
    told = re.search(
        r'<td class="n">(\d+)</td><td class="n">(\d+)</td></tr></tbody></table></div>\n</section>',
        own,
    )
    assert told
    assert 300 < int(told[1]) + int(told[2]) < 500  # of 400 people, under noise
    assert "The silo publishes no figure." in own
    (sheet,) = re.findall(
        r'<img class="sheet" src="data:image/png;base64,([^"]+)"', own
    )
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(sheet)))).astype(float)
    first = pixels[:SIDE]
    second = pixels[SIDE + 1 : 2 * SIDE + 1]
    assert first[: SIDE // 2].mean() > first[SIDE // 2 :].mean() + 60
    assert second[SIDE // 2 :].mean() > second[: SIDE // 2].mean() + 60


def test_a_look_at_sums_holds_no_accountant_and_ends_the_process_of_no_damaged_file(
    tmp_path: Path,
) -> None:
    data = bytearray(seal(sums("north", 0)))
    rng = random.Random(0)
    head = int.from_bytes(data[:8], "little")
    good = checker.checkers()
    file = tmp_path / "offer"
    file.write_bytes(data)
    assert "card" in good.look(file, POOL, seed=1)
    maps = Path(f"/proc/{forked(good)[-1]}/maps").read_text()
    assert "/scipy/" not in maps
    for _ in range(40):
        broken = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            place = (
                rng.randrange(8 + head)
                if rng.random() < 0.5
                else rng.randrange(8 + head, len(data))
            )
            broken[place] = rng.randrange(256)
        file.write_bytes(broken)
        answer = good.look(file, POOL, seed=1)
        assert "card" in answer or answer["refused"]["text"], answer


def pairs(silo: str, seed: int) -> Generator:
    """Counts of all pairs of a toy table, as of a real ledger, but repeatable."""
    (offer,) = train_offers(
        silo,
        read_table(*toy(rows=300, seed=seed)),
        Ledger.rehearsal(silo, Budget(1.5, 1e-5)),
        TABLES,
        budget=Budget(1.5, 1e-5),
        run="r",
        recipe=Recipe(kind="gram"),
        rng=SecureRng.from_seed(seed),
    )
    return replace(
        offer,
        card={key: value for key, value in offer.card.items() if key != "rehearsal"},
    )


def test_counts_of_pairs_are_pushed_shown_and_added(
    exchange: Served, tmp_path: Path
) -> None:
    for seed, silo in enumerate(("north", "south")):
        with exchange.member(silo) as member:
            said = member.push("ward", pairs(silo, seed))
    assert said["label"] is None
    assert said["network"] == "gram"
    assert len(said["preview"]["rows"]) == 12
    assert len(said["preview"]["people"]) == 2
    token = exchange.token("north")
    to = tmp_path / "pool"
    assert "2 of 2 offers make one generator" in run(
        "exchange", "pull", "--out", to, at=exchange.address, token=token
    )
    drawn = Generator.load(to).sample(50, seed=0)
    assert list(drawn.columns) == list(TABLES.schema.names)
    assert Generator.load(to).card["members"] == [
        {"silo": "north, south", "label": None}
    ]


def test_sums_of_other_classes_than_the_pools_are_refused(exchange: Served) -> None:
    other = replace(POOL, classes=(0, 1, 2))
    with exchange.admin() as admin:
        admin.create_pool("three", other)
    with (
        exchange.member("north", "three") as member,
        pytest.raises(UnderstudyError, match="draws no rows"),
    ):
        member.push("three", sums("north", 0))


def test_a_pool_file_can_ask_for_series_by_the_class_of_their_schema(
    tmp_path: Path,
) -> None:
    (tmp_path / "waves.toml").write_text(
        'kind = "series"\nlength = 8\nseries = "id"\nlabel = "fast"\nclasses = ["no", '
        '"yes"]\n'
        "[channels.a]\nlow = 0\nhigh = 1\n"
    )
    (tmp_path / "pool.toml").write_text(
        'schema = "waves.toml"\ntarget = "fast"\nnetworks = ["moments"]\n'
    )
    _, required = read_pool(tmp_path / "pool.toml")
    assert required.labels == ("no", "yes")
    assert (
        Requirements.from_dict(json.loads(json.dumps(required.to_dict()))) == required
    )
    (tmp_path / "pool.toml").write_text('schema = "waves.toml"\ntarget = "slow"\n')
    with pytest.raises(UnderstudyError, match="the class that their schema names"):
        read_pool(tmp_path / "pool.toml")
