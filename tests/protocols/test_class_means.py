"""Class means: a classifier of images and series from one report each, and what is
refused.
"""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from odd_servers import Spoiling, resumed

from refusals import raises
from understudy.api.train import train as run
from understudy.data.images import Images, ImageSchema
from understudy.data.samples import toy
from understudy.data.schema import Real
from understudy.data.series import Series, SeriesSchema
from understudy.ground.errors import (
    BudgetExceeded,
    ConfigError,
    Effect,
    MessageError,
    PartyError,
    SchemaError,
)
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.local.naming import NearestCodes
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.class_means.protocol import (
    PROTOCOL,
    BeginMeans,
    ClassMeansParty,
    Config,
    MeansRound,
    train,
)
from understudy.protocols.cross_device.host import Reported
from understudy.runs.federation import Federation

SCHEMA = ImageSchema(
    height=4, width=6, person="id", label="side", classes=("left", "right")
)


def halves(
    people: int, seed: int = 0
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Images with a bright left or a bright right half, and which it is."""
    rng = np.random.default_rng(seed)
    right = rng.integers(0, 2, people)
    pixels = rng.integers(0, 120, (people, 4, 6))
    pixels[right == 0, :, :3] += 100
    pixels[right == 1, :, 3:] += 100
    return pixels, np.array(SCHEMA.classes, dtype=object)[right]


def rehearsed(epsilon: float, people: int, hosts: int = 2, **more: Any) -> Any:
    pixels, sides = halves(people)
    parties = {
        f"host {n}": Images.from_array(pixels[n::hosts], SCHEMA, labels=sides[n::hosts])
        for n in range(hosts)
    }
    federation = Federation.rehearsal(
        parties, budget=Budget(epsilon, 0.0), seed=0, same_people=False
    )
    return run("class-means", federation, epsilon_total=epsilon, features=12, **more)


@pytest.mark.parametrize(
    ("epsilon", "people", "good"), [(1.0, 3000, 0.9), (8.0, 300, 0.9)]
)
def test_enough_reports_make_a_classifier(
    epsilon: float, people: int, good: float
) -> None:
    result = rehearsed(epsilon, people)
    images, sides = halves(500, seed=1)
    assert result.model.score(images, sides) > good
    assert list(result.model.classes_) == ["left", "right"]
    card = result.model.card
    assert card["reports"] == {"all": people, "refused": 0, "of the busiest person": 1}
    assert card["bytes"] == 2 * people
    assert result.privacy.epsilon(against="server") == epsilon


def test_series_of_two_kinds_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    channels = tuple(Real(name=name, low=0, high=1) for name in "ab")
    schema = SeriesSchema(
        length=8, channels=channels, series="id", label="kind", classes=("up", "down")
    )
    down = rng.integers(0, 2, 400)
    slope = np.linspace(0.2, 0.8, 8)[None, :, None] * np.ones(2)
    values = np.where(down[:, None, None] == 1, slope[:, ::-1], slope) + rng.uniform(
        -0.2, 0.2, (400, 8, 2)
    )
    kinds = np.array(schema.classes, dtype=object)[down]
    rows = Series.from_array(values[:300], schema, labels=kinds[:300])
    federation = Federation.rehearsal(
        {"phones": rows}, budget=Budget(8.0, 0.0), same_people=False
    )
    model = run("class-means", federation, epsilon_total=8.0, features=8).model
    assert model.score(values[300:], kinds[300:]) > 0.9


def party(
    rows: Images | None = None,
    epsilon: float = 2.0,
    budget: float = 2.0,
    name: str = "a",
) -> ClassMeansParty:
    if rows is None:
        pixels, sides = halves(40)
        rows = Images.from_array(pixels, SCHEMA, labels=sides)
    allowed = Budget(budget, 0.0)
    ledger = Ledger.rehearsal(holder=name, budget=allowed)
    return PROTOCOL.build(
        name, rows, ledger, run="r", budget=allowed, rng=SecureRng.from_seed(0)
    )


BEGIN = BeginMeans(
    config=asdict(Config(epsilon_total=2.0, features=12)), schema=SCHEMA.to_dict()
)


def round_of(people: list[int], **more: Any) -> MeansRound:
    centre = torch.zeros(12, dtype=torch.int64)
    return MeansRound(
        **{
            "round": 1,
            "people": torch.tensor(people),
            "directions": True,
            "centre": centre,
        }
        | more
    )


BAD: list[Callable[[], MeansRound]] = [
    lambda: round_of([1, 1]),
    lambda: round_of([40]),
    lambda: round_of([1], centre=torch.zeros(11, dtype=torch.int64)),
    lambda: round_of([1], centre=torch.zeros(12)),
    lambda: round_of([1], centre=torch.full((12,), 2**62)),
    lambda: round_of([1], centre=torch.full((12,), -(2**63))),
    lambda: round_of([1], directions=1),
]


@pytest.mark.parametrize("ask", BAD)
def test_an_ask_that_makes_no_sense_is_refused_before_anybody_is_charged(
    ask: Callable[[], MeansRound],
) -> None:
    host = party()
    host.answer(BEGIN)
    with raises((MessageError, PartyError), effect=Effect.NOTHING_CHARGED_OR_SENT):
        host.answer(ask())
    assert host.ledger.spent() == 0


def test_nobody_reports_twice_whatever_they_are_asked_about() -> None:
    host = party()
    host.answer(BEGIN)
    reply: Any = host.answer(round_of([3, 4], directions=False))
    assert len(reply.reports.value) == 4
    assert host.ledger.spent() == 2.0
    with pytest.raises(PartyError, match="which is the most in this run"):
        host.answer(round_of([4, 5]))
    assert host.ledger.spent() == 2.0


def test_a_server_that_puts_the_centre_anywhere_gets_reports_of_the_law_that_was_paid_for():
    """A centre on the person's own row, or far out: the report is of as many near
    codewords as any other's.
    """
    pixels, sides = halves(1)
    people = 2000
    rows = Images.from_array(
        np.repeat(pixels, people, axis=0), SCHEMA, labels=np.repeat(sides, people)
    )
    host = party(rows)
    host.answer(BEGIN)
    own = torch.from_numpy(host.terms.frame.coefficients(rows.values[:1]))[0].long()
    mechanism = NearestCodes.best(2.0)
    centres = (own, own + 1, torch.full((12,), 1 << 20), torch.full((12,), -(1 << 20)))
    for number, centre in enumerate(centres):
        here = list(range(number * 500, (number + 1) * 500))
        reply: Any = host.answer(round_of(here, centre=centre))
        named = reply.reports.value.numpy().copy().view(">u2").astype(int)
        assert named.max() < mechanism.codes
        beside = (own - centre).numpy() / max(
            np.linalg.norm((own - centre).numpy().astype(float)), 1.0
        )
        vector = np.zeros(host.terms.width, dtype=np.float32)
        vector[:12] = beside
        book = host.terms.codebook("a", directions=True)
        block = int(rows.classes[0])  # type: ignore[index]
        ranks = [
            int(
                (book.block(place, block) @ vector)
                .argsort(kind="stable")[::-1]
                .tolist()
                .index(code)
            )
            for place, code in zip(here, named.tolist(), strict=True)
        ]
        if np.any(beside):
            share = mechanism.kept_reports / 2**62
            found = np.mean(np.array(ranks) < mechanism.near)
            assert found == pytest.approx(
                share, abs=5 * np.sqrt(share * (1 - share) / 500)
            )


def test_who_has_no_row_reports_like_any_other_and_about_nobody_elses() -> None:
    pixels, sides = halves(3)
    rows = Images.from_array(pixels, SCHEMA, people=[0, 1, 2], labels=sides)
    empty = Images(
        rows.values,
        np.array([7, 0, 1, 8, 2, 9]),
        np.array([0, 0, 1, 2, 2, 3, 3]),
        SCHEMA,
        "x",
        rows.classes,
    )
    host = party(empty)
    host.answer(BEGIN)
    vectors, blocks = host._vectors(round_of([0, 3, 5]))
    assert not vectors.any()
    assert blocks.tolist() == [0, 0, 0]
    vectors, blocks = host._vectors(round_of([1, 2, 4]))
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert blocks.tolist() == rows.classes.tolist()  # type: ignore[union-attr]


def test_of_several_rows_one_is_drawn_by_the_person() -> None:
    pixels, sides = halves(2)
    rows = Images.from_array(pixels, SCHEMA, people=[5, 5], labels=sides)
    host = party(rows)
    host.answer(BEGIN)
    seen = {
        tuple(host._vectors(round_of([0], directions=False))[0][0].tolist())
        for _ in range(40)
    }
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("spoil", "refused"),
    [
        (lambda sent: sent[:-1], 20),
        (lambda sent: sent.repeat(2), 20),
        (lambda sent: sent.long(), 20),
        (lambda sent: "nothing", 20),
        (
            lambda sent: torch.cat(
                [torch.full((4,), 255, dtype=torch.uint8), sent[4:]]
            ),
            2,
        ),
    ],
)
def test_what_is_no_report_is_refused_and_counted_and_the_others_stay(
    spoil: Callable[[torch.Tensor], Any], refused: int
) -> None:
    pixels, sides = halves(40)
    hosts = {
        name: Images.from_array(pixels[n::2], SCHEMA, labels=sides[n::2])
        for n, name in enumerate("ab")
    }
    federation = Federation.rehearsal(hosts, budget=Budget(2.0, 0.0), same_people=False)
    config = Config(epsilon_total=2.0, features=12, share=0.0)
    inside = federation.parties("class-means", run="r", config=config)
    parties = Spoiling(inside, Reported, {"b": spoil})
    card = train(config, parties, federation.schemas).trained.card
    assert card["reports"] == {
        "all": 40 - refused,
        "refused": refused,
        "of the busiest person": 1,
    }


def test_a_run_that_was_cut_off_keeps_the_reports_that_it_has(tmp_path: Path) -> None:
    pixels, sides = halves(40)
    hosts = {
        name: Images.from_array(pixels[n::2], SCHEMA, labels=sides[n::2])
        for n, name in enumerate("ab")
    }
    federation = Federation.rehearsal(hosts, budget=Budget(4.0, 0.0), same_people=False)
    config = Config(epsilon_total=2.0, features=12, share=0.5, batch=6)

    def parties() -> Any:
        return federation.parties(
            "class-means", run="r", folder=tmp_path / "parties", config=config
        )

    outcome = resumed(
        train,
        config,
        parties,
        federation.schemas,
        tmp_path / "server",
        after=(MeansRound, 3),
    )
    assert outcome.trained.card["ended"] == "after all rounds"
    assert outcome.trained.card["reports"]["all"] == 40
    assert outcome.privacy.epsilon("a") == 4.0  # what was cut off was paid for, too


def test_people_who_have_too_little_left_are_left_out_and_the_others_codewords_are_their_own():
    """The server counts those who take part, and the host all: both must mean the same
    codebook.
    """
    pixels, sides = halves(300)
    rows = Images.from_array(pixels, SCHEMA, labels=sides)
    federation = Federation.rehearsal(
        {"a": rows}, budget=Budget(8.0, 0.0), same_people=False
    )
    spent = federation.holders["a"].ledger
    spent.charge(
        PureDp(8.0), people=rows.ids[:100], run="before", description="another run"
    )
    result = run("class-means", federation, epsilon_total=8.0, features=12)
    images, named = halves(500, seed=1)
    assert result.model.card["left_out"] == {"a": 100}
    assert result.model.card["reports"]["all"] == 200
    assert result.model.score(images, named) > 0.85


def test_rows_without_a_label_other_schemas_and_too_small_a_budget_are_refused():
    frame, schema = toy(rows=20, seed=0)
    federation = Federation.rehearsal(
        {"a": frame}, {"a": schema}, budget=Budget(2.0, 0.0), same_people=False
    )
    with pytest.raises(ConfigError, match="image"):
        run("class-means", federation, epsilon_total=2.0)
    plain = ImageSchema(height=4, width=6)
    images = Images.from_array(halves(5)[0], plain)
    federation = Federation.rehearsal(
        {"a": images}, budget=Budget(2.0, 0.0), same_people=False
    )
    with pytest.raises(ConfigError, match="no two classes"):
        run("class-means", federation, epsilon_total=2.0)
    other = ImageSchema(height=4, width=6, label="side", classes=("right", "left"))
    with pytest.raises(SchemaError, match="another schema"):
        party().answer(BeginMeans(config=BEGIN.config, schema=other.to_dict()))
    with raises(BudgetExceeded, effect=Effect.NOTHING_SENT):
        party(budget=1.0).answer(BEGIN)


@pytest.mark.parametrize(
    "bad",
    [
        {"epsilon_total": 0.0},
        {"epsilon_total": float("nan")},
        {"features": 0},
        {"features": 2000},
        {"share": -0.1},
        {"share": 1.0},
        {"batch": 0},
        {"min_holders": 0},
        {"max_holders_per_person": 0},
        {"seed": -1},
    ],
)
def test_settings_without_sense_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Config(**bad)
