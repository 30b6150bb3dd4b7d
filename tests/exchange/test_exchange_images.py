"""Images on the exchange: silos train decoders, offer them, and draw a balanced set
from everybody's.
"""

import base64
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pytest
from exchange_cases import Served, served
from exchange_cases import halves as bright_halves
from PIL import Image
from test_exchange_cli import run

from understudy.data.encoding.population import read_labelled_images
from understudy.data.images import ImageSchema
from understudy.generators.generator import Generator
from understudy.generators.samplers import labelled_images
from understudy.ground.errors import ArtefactError, ConfigError, SchemaError
from understudy.models.nets.beta_vae import ClassImageDecoder
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.papers.sgde.offer import Requirements, offer_card
from understudy.protocols.papers.sgde.offering import Recipe
from understudy.protocols.papers.sgde.party import train_offers
from understudy.protocols.papers.sgde.pool import pool
from understudy.services.exchange.serve import read_pool

# of an image, in pixels
SIDE = 12
HALF = 6
POOL = Requirements(
    schema=ImageSchema(height=SIDE, width=SIDE),
    target="half",
    classes=(0, 1),
    epsilon=40.0,
    networks=("class-image-decoder",),
)
RECIPE = Recipe(
    latent=2, channels=(4, 4), steps=25, rate=0.5, learning_rate=0.05, device="cpu"
)


halves = partial(bright_halves, n=60, dark=40)


@dataclass
class Trade:
    exchange: Served
    tokens: dict[str, str]
    folder: Path


@pytest.fixture(scope="module")
def trade(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trade]:
    """Three silos have each pushed a decoder for each class."""
    folder = tmp_path_factory.mktemp("images")
    with served(folder / "data") as exchange:
        with exchange.admin() as admin:
            admin.create_pool("halves", POOL)
        tokens = {
            silo: exchange.token(silo, "halves") for silo in ("north", "south", "west")
        }
        for seed, silo in enumerate(tokens):
            x, y = halves(seed)
            np.savez(folder / f"{silo}.npz", images=x, half=y)
            rows = read_labelled_images(
                folder / f"{silo}.npz",
                POOL.schema,
                target="half",
                labels=POOL.labels,  # type: ignore[arg-type]
            )
            offers = train_offers(
                silo,
                rows,
                Ledger.rehearsal(silo, Budget(40.0, 1e-5)),
                POOL,
                budget=Budget(40.0, 1e-5),
                run="r",
                recipe=RECIPE,
                rng=SecureRng.from_seed(seed),
            )
            with exchange.member(silo, "halves") as member:
                for offer in offers:
                    told = {
                        key: value
                        for key, value in offer.card.items()
                        if key != "rehearsal"
                    }
                    # as of a real ledger, but repeatable
                    member.push("halves", replace(offer, card=told))
        yield Trade(exchange, tokens, folder)


@pytest.mark.long
def test_the_service_rebuilds_convolutional_decoders_and_a_pull_draws_a_balanced_set(
    trade: Trade,
) -> None:
    at = trade.exchange.address
    token = trade.tokens["south"]
    to = trade.folder / "pool"
    said = run("exchange", "pull", "--out", to, at=at, token=token)
    assert (
        f"6 of 6 offers make one generator. Draw from it: understudy exchange draw {to}"
        in said
    )
    run(
        "exchange",
        "draw",
        to,
        "--rows",
        400,
        "--seed",
        1,
        "--out",
        trade.folder / "set.npz",
    )
    with np.load(trade.folder / "set.npz") as drawn:
        images = drawn["images"]
        labels = drawn["half"]
    assert images.shape == (400, SIDE, SIDE)
    assert images.dtype == np.uint8
    assert 150 < (labels == 0).sum() < 250
    for label, bright, dark in (
        (0, np.s_[:, :HALF], np.s_[:, HALF:]),
        (1, np.s_[:, HALF:], np.s_[:, :HALF]),
    ):
        own = images[labels == label].astype(float)
        assert own[bright].mean() > own[dark].mean() + 20, label


def test_the_pages_show_a_sheet_of_synthetic_images_for_each_class(
    trade: Trade,
) -> None:
    with httpx.Client(
        base_url=trade.exchange.address,
        auth=("north", trade.tokens["north"]),
        headers={"Accept": "text/html"},
        timeout=60,
    ) as browser:
        page = browser.get("/pools/halves").text
        digest = re.search(r"/pools/halves/(\w{64})", page)
        assert digest
        own = browser.get(f"/pools/halves/{digest[1]}").text
    sheets = re.findall(r'<img class="sheet" src="data:image/png;base64,([^"]+)"', page)
    assert len(sheets) == 2
    assert "Synthetic images" in page
    assert "Synthetic images" in own
    assert "people do not exist" not in page + own
    for label, sheet in enumerate(sheets):
        pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(sheet)))).astype(
            float
        )
        # of the first line
        upper = pixels[:HALF].mean()
        lower = pixels[HALF:SIDE].mean()
        assert (upper > lower + 10) if label == 0 else (lower > upper + 10)
    counts = re.search(r"silos in all</th>(.*?)</tr>", page)
    assert counts
    assert re.findall(r">(\w+)</td>", counts[1]) == ["3", "3"]


def test_a_silo_trains_for_a_pool_of_images_from_the_command_line(
    trade: Trade, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trade.folder)
    words = ("--ledger", "new.ledger", "--epsilon", 1.0, "--steps", 1, "--out", "new")
    run(
        "exchange",
        "train",
        "north.npz",
        *words,
        at=trade.exchange.address,
        token=trade.tokens["north"],
    )
    with Ledger(trade.folder / "new.ledger") as ledger:
        assert 0 < ledger.spent("anyone") <= 1.0
    offer = Generator.load("new/0")
    assert offer.card["network"]["kind"] == "class-image-decoder"
    assert offer.images(2, seed=0).shape == (2, SIDE, SIDE)
    with pytest.raises(ConfigError, match="not a pulled pool of images"):
        run("exchange", "draw", "new/0", "--out", "set.npz")


def test_an_image_decoder_of_another_size_or_with_other_weights_is_refused(
    trade: Trade,
) -> None:
    small = ClassImageDecoder(2, (4,), (HALF, HALF))
    card = offer_card(
        POOL,
        silo="north",
        label=0,
        epsilon=1.0,
        delta=1e-6,
        accountant="PLD",
        network=small.describe(),
    )
    with trade.exchange.member("north", "halves") as north:
        with pytest.raises(SchemaError, match="schema"):
            north.push(
                "halves", Generator(small, ImageSchema(height=HALF, width=HALF), card)
            )
        with pytest.raises(ArtefactError, match="draws no rows of the pool's schema"):
            north.push("halves", Generator(small, POOL.schema, card))
    broken = ClassImageDecoder(2, (4,), (SIDE, SIDE))
    broken.parts[0].fill_(float("nan"))
    with (
        trade.exchange.member("north", "halves") as north,
        pytest.raises(ArtefactError, match="not finite"),
    ):
        north.push("halves", Generator(broken, POOL.schema, card))


def test_a_pool_file_can_ask_for_images(tmp_path: Path) -> None:
    POOL.schema.save(tmp_path / "images.toml")
    (tmp_path / "pool.toml").write_text(
        'name = "halves"\nschema = "images.toml"\ntarget = "half"\nclasses = [0, '
        "1]\nepsilon = 40.0\n"
        'networks = ["class-image-decoder"]\n'
    )
    assert read_pool(tmp_path / "pool.toml") == ("halves", POOL)


def test_a_file_of_labelled_images_is_read_whole_or_refused_in_words(
    tmp_path: Path,
) -> None:
    x, y = halves(0, n=6)
    file = tmp_path / "x.npz"
    schema = ImageSchema(height=SIDE, width=SIDE, person="who")

    def read(**arrays: object) -> object:
        np.savez(file, **arrays)  # type: ignore[arg-type]
        return read_labelled_images(file, schema, target="half", labels=POOL.labels)

    people = read(images=x, half=y, who=[1, 1, 2, 2, 3, 3])
    assert people.people == 3  # type: ignore[attr-defined]
    for arrays, said in (
        ({"images": x, "who": range(6)}, 'no array "half"'),
        ({"images": x, "half": y}, 'no array "who"'),
        ({"images": x, "half": y[:5], "who": range(6)}, "6 rows have 5 labels"),
        ({"images": x[:, :5], "half": y, "who": range(6)}, "shape"),
        (
            {"images": x.astype(float) * 3, "half": y, "who": range(6)},
            "outside the declared 0 to 255",
        ),
        ({"images": x, "half": y + 1, "who": range(6)}, "declared classes"),
        ({"images": x, "half": y.astype(object), "who": range(6)}, "holds objects"),
    ):
        with pytest.raises(SchemaError, match=said):
            read(**arrays)
    file.write_bytes(b"PK no")
    with pytest.raises(SchemaError, match="is damaged"):
        read_labelled_images(file, schema, target="half", labels=POOL.labels)
    with pytest.raises(SchemaError, match="cannot be read"):
        read_labelled_images(
            tmp_path / "none.npz", schema, target="half", labels=POOL.labels
        )


def test_pixels_of_other_bounds_are_a_pools_own_matter(tmp_path: Path) -> None:
    x, y = halves(0, n=8)
    schema = ImageSchema(height=SIDE, width=SIDE, low=0, high=1)
    required = Requirements(schema=schema, target="half", classes=POOL.classes)
    np.savez(tmp_path / "x.npz", images=x / 255, half=y)
    rows = read_labelled_images(
        tmp_path / "x.npz", schema, target="half", labels=POOL.labels
    )
    offers = train_offers(
        "north",
        rows,
        Ledger.rehearsal("north", Budget(1.5, 1e-5)),
        required,
        budget=Budget(1.5, 1e-5),
        run="r",
        recipe=Recipe(latent=2, channels=(2,), steps=1, device="cpu"),
    )
    drawn, labels = labelled_images(
        Generator.from_parts(pool(offers, required, {})), 10, seed=0
    )
    assert 0 <= drawn.min() <= drawn.max() <= 1
    assert set(labels) <= set(POOL.classes)
    assert json.dumps(labels)
