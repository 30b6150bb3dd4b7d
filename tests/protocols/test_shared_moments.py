"""Shared moments: the moments of all who are honest, once, for neither of two
aggregators alone.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from refusals import raises
from understudy.data.arrays import ArrayTable
from understudy.data.images import Images, ImageSchema
from understudy.data.kinds import NoRows
from understudy.data.samples import toy
from understudy.generators.generator import Generator
from understudy.ground.errors import (
    BudgetExceeded,
    ConfigError,
    Effect,
    PartyError,
    SchemaError,
)
from understudy.ground.pack import pack, unpack
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import SecureRng
from understudy.privacy.secure.moments import bounded, moments_event
from understudy.privacy.secure.sums import KeyPair
from understudy.protocols.aggregators import moments, upload
from understudy.protocols.aggregators.moments import Config, MomentsPlan
from understudy.protocols.aggregators.second import Open, UploadBatch
from understudy.protocols.aggregators.terms import BeginUploads, Upload
from understudy.protocols.core.base import Party
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties

PEOPLE = 30
BUDGET = Budget(3.0, 1e-5)
SETTINGS: dict[str, Any] = {
    "aggregator": "second",
    "epsilon": 3.0,
    "delta": 1e-5,
    "min_people": 10,
    "batch": 7,
    "features": 6,
    "bits": 6,
}
SCHEMA = ImageSchema(
    height=4, width=6, person="id", label="side", classes=("left", "right", "both")
)
RNG = np.random.default_rng(3)
SIDES = RNG.integers(0, 3, PEOPLE)
PIXELS = RNG.integers(0, 100, (PEOPLE, 4, 6))
PIXELS[SIDES != 1, :, :3] += 120
PIXELS[SIDES != 0, :, 3:] += 120
NAMES = np.array(SCHEMA.classes, dtype=object)[SIDES]


def images(people: Any) -> ArrayTable[Any]:
    return Images.from_array(
        PIXELS[people], SCHEMA, np.arange(PEOPLE)[people], labels=NAMES[people]
    )


def federation(
    hosts: int = 2, *, budget: Budget = BUDGET, seed: int | None = 1
) -> Federation:
    rows: dict[str, Any] = {
        f"host {n}": images(slice(n, None, hosts)) for n in range(hosts)
    }
    return Federation.rehearsal(
        rows | {"second": NoRows(SCHEMA)},
        {},
        budget=budget,
        seed=seed,
        same_people=False,
    )


def parties(whole: Federation, **changes: Any) -> dict[str, Party]:
    return whole.parties("shared-moments", run="r", config=Config(**SETTINGS | changes))


def run(whole: Federation, **changes: Any) -> Any:
    return moments.train(
        Config(**SETTINGS | changes),
        LocalParties(parties(whole, **changes)),
        whole.schemas,
    )


def plan(**changes: Any) -> MomentsPlan:
    return MomentsPlan.joint(
        Config(**SETTINGS | changes), {"a": SCHEMA, "b": SCHEMA, "second": SCHEMA}
    )


def test_noise_and_price_are_those_of_the_joint_engine_with_one_aggregator_left() -> (
    None
):
    terms = plan()
    assert terms.sigmas == (88.5, 1092.0)
    assert terms.price == {moments_event(noise): 1 for noise in terms.noises}
    assert all(terms.pricing.share(sigma, 2) == sigma for sigma in terms.sigmas)


def everybody(terms: MomentsPlan, people: Any = slice(None)) -> Tensor:
    """What is counted of these people, in the clear."""
    frame = terms.frame
    q = bounded(
        frame.coefficients(images(people).values),
        float(frame.reach),
        terms.cells.radius,
    )
    counted = terms.cells.counted(SIDES[people], q.astype(np.int64)).sum(0)
    return torch.from_numpy(counted) * terms.weights


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise, so that sums can be counted."""
    none = lambda self, rng: torch.zeros(self.cells.count, dtype=torch.int64)  # noqa: E731
    monkeypatch.setattr(MomentsPlan, "noise", none)


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The sums that were read."""
    seen: list[Tensor] = []
    real = MomentsPlan.read

    def read(self: MomentsPlan, total: Tensor) -> Any:
        seen.append(total)
        return real(self, total)

    monkeypatch.setattr(MomentsPlan, "read", read)
    return seen


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("by_class", [False, True], ids=["pooled", "by class"])
def test_what_is_released_is_what_all_people_together_have_and_it_says_so_in_steps(
    by_class: bool, released: list[Tensor]
) -> None:
    outcome = run(federation(), by_class=by_class)
    terms = plan(by_class=by_class)
    assert torch.equal(released[0], everybody(terms))
    assert (outcome.people, outcome.trained.card["refused"]) == (PEOPLE, 0)
    first, second = terms.read(released[0])
    assert torch.equal(
        first["people"], torch.from_numpy(np.bincount(SIDES).astype(float))
    )
    rows = terms.frame.coefficients(images(slice(None)).values)
    step = terms.frame.reach / terms.cells.radius
    for one in range(3):
        here = rows[one == SIDES]
        assert np.allclose(first["sums"][one], here.sum(0), atol=len(here) * step / 2)
    exact = rows.T @ rows
    assert np.allclose(second["moments"].sum(0), exact, atol=0.05 * np.abs(exact).max())
    assert float(first["energy"]) == pytest.approx(
        float(second["moments"].sum(0).trace())
    )


@pytest.mark.usefixtures("quiet")
def test_a_person_without_rows_uploads_like_any_other_and_counts_nothing(
    released: list[Tensor],
) -> None:
    """As a person whose series is shorter than a window: an error, or another's row,
    would tell it.
    """
    whole = images(slice(None))
    ids = np.insert(whole.ids, 4, 99)
    starts = np.insert(whole.starts, 4, whole.starts[4])
    rows = {"host": replace(whole, ids=ids, starts=starts), "second": NoRows(SCHEMA)}
    outcome = run(
        Federation.rehearsal(rows, {}, budget=BUDGET, seed=1, same_people=False)
    )
    assert torch.equal(released[0], everybody(plan()))
    assert (outcome.people, outcome.trained.card["refused"]) == (PEOPLE + 1, 0)


@pytest.mark.long
def test_both_aggregators_add_their_full_noise_and_the_diagonal_has_more(
    released: list[Tensor],
) -> None:
    terms = plan()
    rng = SecureRng.from_seed(5)
    head = 3 * (1 + terms.frame.features)
    drawn = torch.stack([terms.noise(rng) for _ in range(20)]).double()
    ones = torch.cat([torch.zeros(head, dtype=torch.bool), terms._diagonal])
    first, second = terms.sigmas
    for part, due in (
        (drawn[:, :head], first),
        (drawn[:, ones], 2**0.5 * second),
        (drawn[:, head:][:, ~ones[head:]], second),
    ):
        assert 0.75 < float(part.var()) / due**2 < 1.3
    for _ in range(6):
        run(federation(seed=None))
    noise = (torch.stack(released) - everybody(terms)).double()[:, :head]
    assert 0.6 < float(noise.var()) / (2 * first**2) < 1.6
    assert len({tuple(one.tolist()) for one in noise}) == 6


def test_the_price_is_what_the_settings_say_and_nothing_holds_against_both() -> None:
    outcome = run(federation())
    for against in ("outsider", "server", "another_party"):
        assert 2.97 < outcome.privacy.epsilon(None, against) <= 3.0
    text = str(outcome.privacy)
    table = text.split("A person over all parties")[1].split("Assumed")[0]
    rows = [line.rsplit("  ", 1) for line in table.splitlines() if "  " in line.strip()]
    assert [who.strip() for who, _ in rows[1:]] == [
        "an outsider who sees the release",
        "the server",
        "another party",
        "the server and second together",
    ]
    assert rows[-1][1].strip() == "no guarantee"
    twice = plan(max_holders_per_person=2)
    assert twice.sigmas[1] == pytest.approx(2 * plan().sigmas[1], rel=1e-3)
    with raises(BudgetExceeded, effect=Effect.NOTHING_SENT):
        run(federation(budget=Budget(2.9, 1e-5)))


def test_no_person_moves_the_release_by_more_than_its_price_is_for() -> None:
    """Rows at the ends of their bounds, and one that a declared norm pulls in."""
    for norm in (None, 0.05):
        terms = MomentsPlan.joint(
            Config(**SETTINGS),
            dict.fromkeys(("a", "second"), replace(SCHEMA, norm=norm)),
        )
        ends = np.stack(
            [np.zeros((4, 6)), np.ones((4, 6)), np.eye(4, 6), np.full((4, 6), 0.5)]
        )
        frame = terms.frame
        cells = terms.cells
        q = bounded(frame.coefficients(ends), float(frame.reach), cells.radius).astype(
            np.int64
        )
        moved = (
            torch.from_numpy(cells.counted(np.zeros(4, np.int64), q)) * terms.weights
        )
        head, (first, second) = 3 * (1 + frame.features), terms.sigmas
        own = moved[:, :head].double().norm(dim=1)
        ones = torch.where(terms._diagonal, 2**0.5, 1.0)
        beside = (moved[:, head:] / ones).double().norm(dim=1)
        for reach, sigma, multiplier in ((own, first, 0), (beside, second, 1)):
            assert (
                float(reach.max()) <= (sigma**2 - 9) ** 0.5 / terms.noises[multiplier]
            )


def test_what_is_drawn_from_it_has_classes_and_the_look_of_them() -> None:
    budget = Budget(300.0, 1e-5)
    outcome = run(federation(1, budget=budget), epsilon=300.0, by_class=True)
    rows = Generator.from_parts(outcome.trained).sample(200, seed=0)
    left = (
        rows[rows["side"] == "left"].filter(like="pixel").to_numpy().reshape(-1, 4, 6)
    )
    assert left[:, :, :3].mean() > left[:, :, 3:].mean() + 50
    card = outcome.trained.card
    assert card["upload_bytes"] == plan(by_class=True).format.size
    assert card["protocol"] == "shared-moments"


# People who lie, and servers that depart


@pytest.mark.usefixtures("quiet")
def test_a_liar_is_left_out_and_everybody_else_is_counted(
    monkeypatch: pytest.MonkeyPatch, released: list[Tensor]
) -> None:
    real = upload.moment_shares.split_moments

    def lie(cells: Any, classes: Any, q: Any, *more: Any) -> Any:
        q = q.copy()
        q[0, 0] = 10 * cells.radius
        return real(cells, classes, q, *more)

    monkeypatch.setattr(upload.moment_shares, "split_moments", lie)
    outcome = run(federation(1), batch=1000)
    assert (outcome.people, outcome.trained.card["refused"]) == (PEOPLE - 1, 1)
    assert torch.equal(released[0], everybody(plan(), slice(1, None)))


def told(**changes: Any) -> dict[str, Any]:
    names = ("host 0", "second")
    return {
        "config": asdict(Config(**SETTINGS | changes)),
        "schemas": dict.fromkeys(names, SCHEMA.to_dict()),
    }


def test_uploads_for_other_settings_do_not_open_and_a_host_says_the_same_again():
    whole = federation(1, budget=Budget(30.0, 1e-5))
    inside: Any = parties(whole)
    key = inside["second"].answer(Open(**told())).key.value
    host = inside["host 0"]
    host.answer(BeginUploads(key=key, **told(epsilon=0.5)))
    before = pack(host.state_dict())
    made = []
    for places in (torch.arange(5), torch.tensor([3, 1])):
        host.load_state_dict(unpack(before))
        made.append(host.answer(Upload(round=1, people=places)).reports.value)
    assert torch.equal(made[1], made[0][[3, 1]]), "the same upload, at a new price"
    head = made[0][:, : plan().format.head].contiguous()
    assert (
        not inside["second"]
        .answer(UploadBatch(batch=0, uploads=head))
        .opened.value.any()
    )
    with pytest.raises(PartyError, match="no aggregator"):
        parties(federation(1))["host 0"].answer(BeginUploads(key=b"", **told()))


def test_a_key_that_the_settings_name_is_the_only_one_that_people_seal_to() -> None:
    key = KeyPair(bytes(range(32))).public.hex()
    with pytest.raises(PartyError, match="another key than the run's settings name"):
        parties(federation(1), key=key)["host 0"].answer(
            BeginUploads(key=bytes(range(32)), **told(key=key))
        )


# Settings


def test_more_people_than_the_sums_can_hold_are_refused_before_anybody_is_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert plan(bits=7, features=24).most_people > 500_000
    monkeypatch.setattr(MomentsPlan, "most_people", PEOPLE - 1)
    whole = federation()
    with raises(
        ConfigError,
        effect=Effect.NOTHING_CHARGED_OR_SENT,
        match="30 people are more than 29",
    ):
        run(whole)
    assert not any(
        entry.count
        for name in whole.holders
        for entry in whole.holders[name].ledger.entries()
    )


REFUSED: list[dict[str, Any]] = [
    {"epsilon": 0},
    {"delta": 0.0},
    {"batch": 2**17},
    {"key": "ab"},
    {"bits": 2},
    {"bits": 10},
    {"features": 0},
    {"features": 10**9},
    {"share": float("nan")},
    {"share": 1.0},
    {"by_class": 1},
    {"bits": 5.5},
]


@pytest.mark.parametrize("changes", REFUSED, ids=str)
def test_settings_that_are_none_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Config(**SETTINGS | changes)


def test_all_have_the_same_images_or_series_and_tables_are_another_protocols() -> None:
    config = Config(**SETTINGS)
    table = toy(rows=4, seed=0)[1]
    other = replace(SCHEMA, height=5)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"a": SCHEMA}, "aggregator"),
        ({"second": SCHEMA}, "nobody who uploads"),
        ({"a": other, "second": SCHEMA}, "same way"),
        ({"a": table, "second": table}, "two-aggregators is for"),
    ]
    for schemas, why in wrong:
        with pytest.raises(ConfigError, match=why):
            MomentsPlan.joint(config, schemas)
    with pytest.raises(SchemaError, match="another schema"):
        MomentsPlan.as_told(
            asdict(config), dict.fromkeys(("a", "second"), other.to_dict()), "a", SCHEMA
        )
    build: Callable[..., Any] = moments.PROTOCOL.build
    with pytest.raises(ConfigError, match="uploads of tables alone"):
        build("study", NoRows(SCHEMA, box=object()), None, run="r", budget=BUDGET)
