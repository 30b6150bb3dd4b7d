"""SGDE by sums of images and series: what they cost, that they add, and what is
refused.
"""

import math
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent
from numpy.typing import NDArray

from understudy.api.train import train
from understudy.data.arrays import ArrayTable
from understudy.data.column import Real
from understudy.data.encoding.frame import Frame
from understudy.data.encoding.population import Population
from understudy.data.images import ImageSchema
from understudy.data.samples import toy
from understudy.data.series import SeriesSchema
from understudy.data.table import read_table
from understudy.generators.generator import Generator
from understudy.generators.samplers import labelled_images
from understudy.ground.errors import (
    ArtefactError,
    ConfigError,
    PrivacyError,
    SchemaError,
)
from understudy.models.moments.fit import centres
from understudy.models.moments.gaussians import CellGaussians
from understudy.models.offered import VEIL, OfferedMoments
from understudy.models.plan import Pool
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.gaussian import closed_form_epsilon
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import Rng, SecureRng
from understudy.privacy.secure.counts import noise_on
from understudy.protocols.joint import pricing
from understudy.protocols.moments.stages import ArrayRows, First, Pooled, Within
from understudy.protocols.papers.sgde.counted import MomentSums
from understudy.protocols.papers.sgde.kinds import SiloRows
from understudy.protocols.papers.sgde.offer import (
    Requirements,
    pack_offer,
    unpack_offer,
)
from understudy.protocols.papers.sgde.offering import Recipe
from understudy.protocols.papers.sgde.party import train_offers
from understudy.protocols.papers.sgde.pool import assess_offers, pool
from understudy.runs.federation import Federation

BUDGET = Budget(8.0, 1e-5)
SIDE = 6
POOL = Requirements(
    schema=ImageSchema(height=SIDE, width=SIDE),
    target="half",
    classes=(0, 1),
    epsilon=8.0,
)
RECIPE = Recipe(kind="moments", features=12)


def halves(
    n: int, seed: int = 0, shift: float = 0.0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Images that are bright in the half that their class says: 0 above, 1 below."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    x = 0.1 + 0.2 * rng.random((n, SIDE, SIDE)) + shift
    x[y == 0, : SIDE // 2] += 0.5
    x[y == 1, SIDE // 2 :] += 0.5
    return x.astype(np.float32), y


def people(n: int, seed: int = 0, **more: Any) -> Population:
    x, y = halves(n, seed, more.pop("shift", 0.0))
    return Population.from_arrays(x, y, classes=2, **more)


def offers(
    data: Any,
    silo: str = "s",
    *,
    budget: Budget = BUDGET,
    required: Requirements = POOL,
    seed: int = 1,
) -> tuple[list[Generator], Ledger]:
    ledger = Ledger.rehearsal(silo, budget)
    made = train_offers(
        silo,
        data,
        ledger,
        required,
        budget=budget,
        run="r",
        recipe=RECIPE,
        rng=SecureRng.from_seed(seed),
    )
    return made, ledger


def offer(n: int = 300, silo: str = "s", seed: int = 1, **more: Any) -> Generator:
    return offers(people(n, seed, **more), silo, seed=seed)[0][0]


def test_a_silo_pays_for_its_three_releases_as_one_gaussian_and_offers_all_classes_in_one():
    made, ledger = offers(people(200))
    ((event, count),) = ledger.spend().items()
    assert count == 1
    assert [one.card["label"] for one in made] == [None]
    assert made[0].card["epsilon"] == pytest.approx(epsilon({event: 1}, 1e-5))
    assert 7.9 < made[0].card["epsilon"] <= 8.0
    network = made[0].network
    assert isinstance(network, OfferedMoments)
    # What a person moves, over σ, squared and added up, is what one Gaussian of the
    # charged multiplier spends.
    reaches = (
        4096 * math.sqrt(19 / 16),
        *(scale**2 / math.sqrt(2) for scale in network.scales),
    )
    spent = sum(
        (reach / sigma) ** 2
        for reach, sigma in zip(reaches, network.noise, strict=True)
    )
    assert spent <= 1 / event.noise_multiplier**2
    assert spent == pytest.approx(1 / event.noise_multiplier**2, rel=1e-3)


def test_the_noise_that_is_drawn_is_the_noise_that_is_stated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[tuple[float, int]] = []

    def noted(cells: torch.Tensor, scale: Fraction, rng: Rng) -> torch.Tensor:
        drawn.append((float(scale), int(cells.sum())))
        return noise_on(cells, scale, rng)

    monkeypatch.setattr(pricing, "noise_on", noted)
    network = offer().network
    assert isinstance(network, OfferedMoments)
    d = 12
    bins = 32
    wanted = []
    for sigma, diagonal, beside in (
        (network.noise[0], 0, 2 * (1 + d) + 1 + bins),
        (network.noise[1], d, d * (d - 1) // 2),
        (network.noise[2], 2 * d, d * (d - 1)),
    ):
        wanted += [
            (sigma, beside),
            (pytest.approx(math.sqrt(2) * sigma, rel=1e-3), diagonal),
        ]
    assert drawn == wanted


def test_the_epsilon_of_a_gaussian_in_closed_form_is_the_accountants() -> None:
    for multiplier in (0.5, 2.7, 40.0):
        assert closed_form_epsilon(multiplier, 1e-5) == pytest.approx(
            epsilon({GaussianDpEvent(multiplier): 1}, 1e-5), rel=1e-6
        )
    assert closed_form_epsilon(0.01, 1e-5) == math.inf
    assert closed_form_epsilon(1.0, 0.0) == math.inf


def in_frame(data: Population, frame: Frame) -> ArrayRows:
    return ArrayRows.framed(SiloRows.from_held(data).rows, frame)  # type: ignore[arg-type]


def exact(data: Population) -> OfferedMoments:
    """The sums of a silo without noise."""
    (offer,) = MomentSums(POOL, RECIPE, None).make(
        SiloRows.from_held(data).rows, SecureRng.from_seed(0)
    )
    assert isinstance(offer, OfferedMoments)
    return offer


def test_sums_of_silos_about_their_own_centres_give_the_covariance_of_all_their_rows_together():
    silos = [people(150, 1), people(250, 2), people(100, 3, shift=0.15)]
    parts = [exact(silo) for silo in silos]
    assert len({tuple(part.centre.tolist()) for part in parts}) == 3
    frame = parts[0].frame
    rows = np.concatenate([in_frame(silo, frame).coefficients for silo in silos])
    codes = np.concatenate([silo.codes.numpy() for silo in silos])
    fit = OfferedMoments.added(parts)
    for code in (0, 1):
        own = rows[codes == code]
        np.testing.assert_allclose(fit.means[code].numpy(), own.mean(0), atol=2.0)
        found = (
            fit.basis @ fit.factors[code] @ fit.factors[code].T @ fit.basis.T
            + fit.tail.square().diag()
        )
        wanted = np.cov(own.T, bias=True)
        apart = np.linalg.norm(found.numpy() - wanted) / np.linalg.norm(wanted)
        assert apart < 0.15, (code, apart)


def test_a_pool_of_sums_is_one_fit_that_is_worth_more_than_any_of_them() -> None:
    budget = Budget(1.0, 1e-5)
    made = [
        offers(people(400, seed), f"s{seed}", budget=budget, seed=seed)[0][0]
        for seed in range(8)
    ]
    generator = Generator.from_parts(pool(made, POOL, {"protocol": "sgde"}))
    assert isinstance(generator.network, CellGaussians)
    x, y = halves(500, 99)
    model = generator.classifier()
    assert (np.asarray(model.predict(255 * x)) == y).mean() > 0.95
    images, labels = labelled_images(generator, 60, seed=0)
    assert images.shape == (60, SIDE, SIDE)
    assert set(labels) == {0, 1}
    truth = np.stack([x[y == code].mean(0) for code in (0, 1)])

    def apart(network: Any) -> float:
        means = 0.5 + network.means.numpy() @ network.frame.matrix()
        return float(np.abs(means.reshape(2, SIDE, SIDE) - truth).mean())

    assert apart(generator.network) < min(apart(one.network.fit) for one in made)  # type: ignore[attr-defined]


def test_classes_of_a_pool_of_sums_are_as_frequent_as_the_silos_have_them() -> None:
    x, y = halves(900, 5)
    few = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:100]])
    data = Population.from_arrays(x[few], y[few], classes=2)
    generator = Generator.from_parts(pool(offers(data)[0], POOL, {}))
    share = float(generator.network.shares[1])  # type: ignore[union-attr, index]
    assert share == pytest.approx(100 / len(few), abs=0.05)


def test_decoders_and_sums_in_one_pool_are_drawn_side_by_side_every_class_and_offer_alike():
    recipe = Recipe(latent=2, channels=(2,), steps=1, device="cpu")
    decoders = train_offers(
        "north",
        people(40),
        Ledger.rehearsal("north", BUDGET),
        POOL,
        budget=BUDGET,
        run="r",
        recipe=recipe,
        rng=SecureRng.from_seed(0),
    )
    mixed = Generator.from_parts(
        pool([*decoders, offer(silo="a", seed=1), offer(silo="b", seed=2)], POOL, {})
    )
    assert isinstance(mixed.network, Pool)
    assert mixed.card["members"][-1] == {"silo": "a, b", "label": None}
    assert mixed.network.shares == pytest.approx((1 / 3, 1 / 3, 4 / 3))
    images, labels = labelled_images(mixed, 200, seed=0)
    assert len(images) == 200
    assert 60 < sum(labels) < 140


def test_sums_of_other_settings_are_no_common_sum() -> None:
    other = train_offers(
        "b",
        people(50),
        Ledger.rehearsal("b", BUDGET),
        POOL,
        budget=BUDGET,
        run="r",
        recipe=replace(RECIPE, features=9),
        rng=SecureRng.from_seed(0),
    )
    both = Generator.from_parts(pool([offer(silo="a"), *other], POOL, {}))
    assert [member["silo"] for member in both.card["members"]] == ["a", "b"]
    with pytest.raises(ConfigError, match="cannot be added"):
        OfferedMoments.added([offer().network, other[0].network])  # type: ignore[list-item]


@cache
def sent() -> dict[str, Any]:
    one = offer()
    return pack_offer(dict(one.card), one.network)  # type: ignore[arg-type]


def tampered(change: Any) -> dict[str, Any]:
    packed_up = deepcopy(sent())
    change(packed_up)
    return packed_up


def stated(**changes: Any) -> Any:
    def change(one: dict[str, Any]) -> None:
        one["card"]["network"] |= changes

    return change


def numbers(name: str, place: Any, value: int) -> Any:
    def change(one: dict[str, Any]) -> None:
        one["weights"][name] = one["weights"][name].clone()
        one["weights"][name][place] = value

    return change


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda one: one["card"].update(epsilon=1.0), PrivacyError, "is worth ε="),
        (lambda one: one["card"].update(delta=1e-9), PrivacyError, "is worth ε="),
        (stated(noise=[1e6, 1e5, 1e5]), PrivacyError, "is worth ε="),
        (stated(noise=[0.0, 0.0, 0.0]), PrivacyError, "is worth ε=inf"),
        (stated(noise=[float("nan")] * 3), ConfigError, "noise"),
        (stated(noise=[1e3, 1e3, 1e200]), ConfigError, "noise"),
        (stated(noise=[1e3, 1e3]), ConfigError, "the noise of three"),
        (stated(scales=[0, 128]), ConfigError, "scales"),
        (stated(scales=[1 << 40, 128]), ConfigError, "a scale of at most"),
        (stated(features=1 << 30), ConfigError, "too large"),
        (stated(features=13), ArtefactError, "weights are not those"),
        (stated(classes=3), ArtefactError, "draws no rows of the pool's schema"),
        (stated(sides=1), ArtefactError, "draws no rows of the pool's schema"),
        (stated(shape=[4096, 4096]), ConfigError, "too large"),
        (stated(shape=[SIDE, SIDE + 1]), ArtefactError, "draws no rows"),
        (
            lambda one: one["card"].update(label=0),
            ConfigError,
            "sums are offered of all classes",
        ),
        (numbers("first", 0, -(10**9)), ArtefactError, "fewer people than none"),
        (
            numbers("first", 1, 10**9),
            ArtefactError,
            "sums are more than its people can have",
        ),
        (numbers("first", 1, -(1 << 63)), ArtefactError, "beyond 2⁵²"),
        (numbers("first", 26, 10**9), ArtefactError, "energy are more"),
        (numbers("first", 26, -(10**9)), ArtefactError, "energy"),
        (numbers("first", -1, -(10**9)), ArtefactError, "histogram"),
        (numbers("pooled", 3, 10**12), ArtefactError, "second moments are more"),
        (numbers("cells", (1, 3), 10**12), ArtefactError, "second moments of a class"),
        (numbers("centre", 0, 10**9), ArtefactError, "centre"),
        (numbers("radius", 0, 0), ArtefactError, "radius"),
        (numbers("radius", 0, 10**9), ArtefactError, "radius"),
    ],
)
def test_an_offer_of_sums_that_people_cannot_have_or_whose_noise_is_not_its_price_is_refused(
    change: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        unpack_offer(POOL, tampered(change))


def test_an_offer_of_sums_that_nobody_changed_is_taken() -> None:
    assert (
        unpack_offer(POOL, tampered(lambda one: None)).card["silo"]
        == offer().card["silo"]
    )


def test_floats_in_place_of_whole_numbers_are_refused() -> None:
    with pytest.raises(ArtefactError, match="weights are not those"):
        unpack_offer(
            POOL,
            tampered(
                lambda one: one["weights"].update(
                    first=one["weights"]["first"].double()
                )
            ),
        )


@pytest.mark.parametrize("count", [1, 2])
def test_a_silo_with_one_person_or_an_empty_class_offers_as_any_other_does(
    count: int,
) -> None:
    x, _ = halves(count)
    data = Population.from_arrays(x, np.zeros(count, dtype=np.int64), classes=2)
    (made,), _ = offers(data, budget=Budget(0.5, 1e-5))
    assert Generator.from_parts(made).images(3, seed=0).shape == (3, SIDE, SIDE)


def test_a_person_with_many_images_counts_once() -> None:
    x, y = halves(50)
    one, many = (
        exact(
            Population.from_arrays(
                np.repeat(x, k, 0), np.repeat(y, k), classes=2, rows_per_person=k
            )
        )
        for k in (1, 7)
    )
    torch.testing.assert_close(one.first, many.first, rtol=0, atol=60)
    assert int(one.first[0]) == int(many.first[0])


def test_what_another_person_adds_is_within_what_was_paid_for() -> None:
    x, y = halves(30, 3)
    extreme = np.concatenate([x, np.ones((1, SIDE, SIDE), dtype=np.float32)])
    without = Population.from_arrays(x, y, classes=2)
    beside = Population.from_arrays(extreme, np.append(y, 1), classes=2)
    blank = MomentSums(POOL, RECIPE, None).blank
    rows = [in_frame(each, blank.frame) for each in (without, beside)]
    centre = exact(without).centre.expand(2, -1)
    basis = 4096 * torch.eye(12, dtype=torch.int64)
    for stage in (
        First(blank.frame, 2),
        Pooled(centre, 500, 12, 181),
        Within(centre, basis, 500, 0, 181),
    ):
        moved = (stage.sums(rows[1]) - stage.sums(rows[0])).double()
        weights = torch.where(stage.diagonal, math.sqrt(0.5), 1.0)
        assert float((moved * weights).norm()) <= stage.sensitivity


def test_tables_have_no_moments_and_series_no_decoders() -> None:
    frame, schema = toy(rows=20, seed=0)
    with pytest.raises(ConfigError, match="for images and series"):
        offers(
            read_table(frame, schema),
            required=Requirements(schema=schema, target="smoker", epsilon=8.0),
        )
    series = waves(10, 0)
    required = SERIES
    with pytest.raises(ConfigError, match='kind="moments" alone'):
        train_offers(
            "s",
            series,
            Ledger.rehearsal("s", BUDGET),
            required,
            budget=BUDGET,
            run="r",
            recipe=Recipe(),
        )


SERIES = Requirements(
    schema=SeriesSchema(
        channels=(Real(name="a", low=-1, high=1),),
        length=16,
        series="id",
        label="fast",
        classes=("no", "yes"),
    ),
    target="fast",
    epsilon=8.0,
)


def waves(n: int, seed: int, schema: Any = SERIES.schema) -> ArrayTable[Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    at = np.arange(16) / 16 * 2 * np.pi * (1 + 2 * y[:, None])
    x = 0.7 * np.sin(at) + 0.1 * rng.standard_normal((n, 16)).clip(-2, 2)
    return ArrayTable.from_array(
        x[:, :, None], schema, labels=np.array(["no", "yes"])[y]
    )


def test_series_are_offered_and_added_too_with_a_class_or_without() -> None:
    made = [
        offers(waves(400, seed), f"s{seed}", required=SERIES, seed=seed)[0][0]
        for seed in range(3)
    ]
    generator = Generator.from_parts(pool(made, SERIES, {}))
    drawn, classes = generator.labelled(200, seed=0)
    swings = np.abs(np.diff(drawn[:, :, 0], axis=1)).sum(1)
    assert swings[classes == "yes"].mean() > 1.5 * swings[classes == "no"].mean()
    bare = replace(SERIES.schema, label=None, classes=())  # type: ignore[type-var]
    required = Requirements(schema=bare, target="", epsilon=8.0)
    table = ArrayTable.from_array(generator.series(100, seed=1), bare)
    (one,), _ = offers(table, required=required)
    assert Generator.from_parts(pool([one], required, {})).series(3).shape == (3, 16, 1)
    with pytest.raises(SchemaError, match="is not the pool's"):
        offers(table, required=SERIES)


def test_swapped_classes_show_in_a_pool_of_sums() -> None:
    made = [offer(silo=f"s{seed}", seed=seed) for seed in range(4)]
    x, y = halves(300, 9)
    liar = offers(Population.from_arrays(x, 1 - y, classes=2), "liar")[0]
    judged = assess_offers(POOL, [*made, *liar])
    assert [one.flagged for one in judged] == [False] * 4 + [True]
    assert judged[0].label is None


def test_a_run_of_sums_is_one_generator_with_what_every_silo_paid() -> None:
    held = {name: people(200, seed) for seed, name in enumerate(("north", "south"))}
    federation = Federation.rehearsal(held, budget=BUDGET, seed=0, same_people=False)
    result = train("sgde", federation, kind="moments", features=12, epsilon=8.0)
    assert isinstance(result.generator.network, CellGaussians)
    assert [one["label"] for one in result.generator.card["offers"]] == [None, None]
    assert len(result.generator.labelled(10, seed=0)[0]) == 10
    assert [one["epsilon"] for one in result.generator.card["offers"]] == pytest.approx(
        [8.0] * 2, rel=1e-2
    )


@pytest.mark.parametrize(
    ("required", "budget", "recipe", "said"),
    [
        (replace(POOL, networks=("class-image-decoder",)), BUDGET, RECIPE, "network"),
        (
            replace(POOL, networks=("moments",)),
            BUDGET,
            Recipe(channels=(2,), device="cpu"),
            "network",
        ),
        (POOL, Budget(0.001, 1e-5), RECIPE, "more than can be drawn"),
        (replace(POOL, largest=1000), BUDGET, RECIPE, "takes 1,000"),
    ],
)
def test_what_could_be_offered_to_nobody_is_not_charged(
    required: Requirements, budget: Budget, recipe: Recipe, said: str
) -> None:
    ledger = Ledger.rehearsal("s", budget)
    with pytest.raises(ConfigError, match=said):
        train_offers(
            "s", people(20), ledger, required, budget=budget, run="r", recipe=recipe
        )
    assert not ledger.spend()


def rehearsed(held: dict[str, Any]) -> Federation:
    return Federation.rehearsal(held, {}, budget=BUDGET, seed=1, same_people=False)


def test_series_and_images_of_a_schema_are_pooled_in_one_process() -> None:
    bare = replace(SERIES.schema, label=None, classes=())
    drawn = waves(90, 3).values
    schema = waves(90, 3).schema
    result = train(
        "sgde",
        rehearsed(
            {
                f"s{n}": ArrayTable.from_array(schema.unscaled(drawn[n::3]), bare)
                for n in range(3)
            }
        ),
        kind="moments",
        features=8,
        epsilon=8.0,
    )
    assert result.generator.series(5).shape == (5, 16, 1)
    x, y = halves(300)
    labelled = ImageSchema(
        height=SIDE, width=SIDE, low=0, high=1.5, label="half", classes=(0, 1)
    )
    colour = replace(labelled, channels=3)
    for own, pixels in ((labelled, x), (colour, np.repeat(x[..., None], 3, 3))):
        silos = {
            f"s{n}": ArrayTable.from_array(pixels[n::3], own, labels=y[n::3])
            for n in range(3)
        }
        generator = train(
            "sgde", rehearsed(silos), kind="moments", features=36, epsilon=8.0
        ).generator
        images, labels = generator.labelled(200, seed=1)
        assert images.shape == (200, *own.shape)
        assert (
            images[labels == 0][:, : SIDE // 2].mean()
            > images[labels == 1][:, : SIDE // 2].mean() + 0.2
        )


@pytest.mark.parametrize(
    ("schema", "settings", "words"),
    [
        (
            {},
            {"kind": "moments", "target": "side"},
            'target is "side", and the schema of these rows names half',
        ),
        (
            {"label": None, "classes": ()},
            {"kind": "moments"},
            "names no class, and SGDE needs one",
        ),
        ({"channels": 3}, {}, "takes grey images, and these are in colour"),
        ({}, {"kind": "gram"}, "table"),
        ({}, {"kind": "marginals"}, "table"),
    ],
)
def test_what_cannot_be_pooled_is_refused_before_anything_is_charged(
    schema: dict[str, Any], settings: dict[str, Any], words: str
) -> None:
    own = replace(
        ImageSchema(height=SIDE, width=SIDE, high=2, label="half", classes=(0, 1)),
        **schema,
    )
    x, y = halves(20)
    pixels = x if own.channels == 1 else np.repeat(x[..., None], 3, 3)
    fed = rehearsed(
        {"s": ArrayTable.from_array(pixels, own, labels=y if own.label else None)}
    )
    with pytest.raises(ConfigError, match=words):
        train("sgde", fed, epsilon=8.0, **settings)
    assert not fed.holders["s"].ledger.spend()


def test_images_of_a_schema_train_the_same_decoders_as_those_of_a_population() -> None:
    x, y = halves(40)
    own = ImageSchema(
        height=SIDE, width=SIDE, low=0, high=1, label="label", classes=(0, 1)
    )
    found = []
    for data in (
        ArrayTable.from_array(x.clip(0, 1), own, labels=y),
        Population.from_arrays(x.clip(0, 1), y, classes=2),
    ):
        result = train(
            "sgde",
            rehearsed({"s": data}),
            steps=2,
            latent=2,
            channels=(2, 2),
            epsilon=8.0,
            device="cpu",
        )
        found.append(result.generator.network.state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def leaning_bars(n: int, seed: int) -> Population:
    """A bar that leans, each in its own way; class 1 has a second one across."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    lean = rng.uniform(-0.5, 0.5, n)
    lines = np.arange(12) - 5.5
    x = np.clip(1.5 - np.abs(lines - lean[:, None, None] * lines[:, None]), 0, 1)
    x[:, (0, 1, 10, 11)] = 0
    x[y == 1, 5:7, 3:9] = 1.0
    return Population.from_arrays(x.astype(np.float32), y, classes=2)


def test_offers_of_upright_images_are_added_to_each_other_alone_and_draw_what_leans():
    pool_of = replace(POOL, schema=ImageSchema(height=12, width=12))
    turned = replace(RECIPE, features=36, upright=True)
    made = [
        train_offers(
            f"s{n}",
            leaning_bars(400, n),
            Ledger.rehearsal(f"s{n}", BUDGET),
            pool_of,
            budget=BUDGET,
            run="r",
            recipe=replace(turned, upright=n < 2),
            rng=SecureRng.from_seed(n),
        )[0]
        for n in range(3)
    ]
    sent = [unpack_offer(pool_of, pack_offer(one.card, one.network)) for one in made]
    first = sent[0].network
    assert isinstance(first, OfferedMoments)
    assert first.frame.poses == 3
    assert first.describe() == made[0].network.describe()  # type: ignore[operator]
    assert "upright" not in sent[2].card["network"]
    together = Generator.from_parts(pool(sent[:2], pool_of, {}))
    assert isinstance(together.network, CellGaussians)
    x = leaning_bars(200, 9)
    said = np.asarray(
        together.classifier().predict(255 * x.rows.view(-1, 12, 12).numpy())
    )
    assert (said == x.codes.numpy()).mean() > 0.9
    with pytest.raises(ConfigError, match="another frame"):
        OfferedMoments.added([one.network for one in sent])  # type: ignore[misc]
    assert len(Generator.from_parts(pool(sent, pool_of, {})).card["members"]) == 2
    lied = made[0].card | {"network": made[0].card["network"] | {"upright": False}}
    with pytest.raises((ArtefactError, ConfigError)):
        unpack_offer(pool_of, pack_offer(lied, made[0].network))
    with pytest.raises(ConfigError, match="alone"):
        replace(turned, kind="gram")


def test_images_vary_by_more_than_noise_has_left_in_the_means_of_their_classes():
    sums = [offer(400, f"s{n}", n).network for n in range(2)]
    read = [one.read() for one in sums]  # type: ignore[operator]
    first = {
        key: sum(each[0][key] for each in read)
        if not key.endswith("_noise")
        else math.sqrt(2) * read[0][0][key]
        for key in read[0][0]
    }
    marks = centres(first, sums[0].frame).marks  # type: ignore[arg-type]
    fit = OfferedMoments.added(sums)  # type: ignore[arg-type]
    assert marks.max() > 0.5 * float(first["sums_noise"] / first["people"].max()) ** 2
    assert (fit.tail.double().square() >= 0.999 * VEIL * marks).all()
