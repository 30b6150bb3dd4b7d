"""The engine of joint releases, shown by the smallest family there is: one, two or
three holders of a few numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from odd_servers import Crooked, to
from torch import Tensor

from refusals import raises
from understudy.data.schema import Grid, Integer, Schema
from understudy.data.table import Table
from understudy.ground.errors import (
    BudgetExceeded,
    ConfigError,
    Effect,
    MessageError,
    PartyAway,
    PrivacyError,
    SchemaError,
)
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import SecureRng
from understudy.privacy.secure.ring import Ring
from understudy.protocols.core import Ask, Keep
from understudy.protocols.joint.measurements import Measurements
from understudy.protocols.joint.messages import Agree, Begin, Propose, Release, Swap
from understudy.protocols.joint.party import AlignedJointParty
from understudy.protocols.joint.pricing import BlockSpec, CellPricing, VectorPricing
from understudy.protocols.joint.products import cut_as, mask_seed, relayed
from understudy.protocols.joint.run import statement
from understudy.protocols.joint.server import measure
from understudy.protocols.joint.stage import (
    Choice,
    Multiplied,
    Product,
    Stage,
    Study,
    Terms,
    digest,
    expect,
)
from understudy.runtime.local import LocalParties, addressed

BUDGET = Budget(4.0, 1e-5)


@dataclass(frozen=True, kw_only=True)
class Config:
    choosing: bool = False
    private: bool = True

    def __post_init__(self) -> None:
        if type(self.choosing) is not bool:
            raise ConfigError("choosing is true or false.")


@dataclass(frozen=True)
class Largest(Choice[Any]):
    """Which column has the larger sum, without any noise: a rehearsal's."""

    def choose(self, rows: Any, noise: float, rng: Any) -> list[int]:
        return [int(rows.sum(0).argmax())]


@dataclass(frozen=True)
class Totals(Stage[Any]):
    """The sum of each holder's own numbers, by group."""

    widths: tuple[int, ...]

    @property
    def blocks(self) -> Mapping[str, BlockSpec]:
        return {
            f"{g}": BlockSpec((g, g), (width,), 9.0 * width**0.5)
            for g, width in enumerate(self.widths)
        }

    def count(self, rows: Any) -> dict[str, Tensor]:
        return {f"{rows.group}": torch.from_numpy(rows.sum(0).astype(np.int64))}

    def read(self, sums: Mapping[str, Tensor], noise: Mapping[str, float]) -> Any:
        return {key: (part, noise[key]) for key, part in sums.items()}


@dataclass(frozen=True)
class Squares(Multiplied[Any]):
    """Σ v_g v_hᵀ of numbers times `by`, which the server chose; `column`: of this one
    of the second group alone.
    """

    widths: tuple[int, ...]
    by: int
    again: bool = False

    @property
    def blocks(self) -> Mapping[str, BlockSpec]:
        pairs = Product.of_all(self.widths).pairs
        shapes = {
            (g, h): (self.widths[g], 1 if self.again else self.widths[h])
            for g, h in pairs
        }
        return {
            f"{g}{h}": BlockSpec((g, h), shape, 81.0 * self.by**2 * 3, weight=1 + g)
            for (g, h), shape in shapes.items()
        }

    @property
    def product(self) -> Product | None:
        return None if self.again else Product.of_all(self.widths)

    def count(self, rows: Any) -> dict[str, Tensor]:
        return {}

    def vectors(self, rows: Any, start: int, stop: int) -> Any:
        return (rows[start:stop] * self.by).astype(np.int64)

    def across(self, shares: Any) -> dict[str, Tensor]:
        some = slice(0, 1) if self.again else slice(None)
        return {
            f"{g}{h}": share[:, some] for (g, h), share in shares["squares"].items()
        }

    def read(self, sums: Mapping[str, Tensor], noise: Mapping[str, float]) -> Any:
        return sums


class Rows(np.ndarray[Any, Any]):
    group: int


class Numbers(Study[Any]):
    family: ClassVar = "numbers"
    settings: ClassVar = Config
    settled: ClassVar = ("choosing", "private")
    lasting: ClassVar = ("squares",)

    @cached_property
    def grid(self) -> Grid:
        return Grid.from_schemas(self.schemas)

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(len(self.schemas[group[0]].columns) for group in self.grid.groups)

    @cached_property
    def releases(self) -> Mapping[str, str]:
        named = {
            "largest": "a choice",
            "totals": "totals",
            "squares": "squares",
            "again": "squares once more",
        }
        split = len(self.grid.groups) > 1
        return {
            name: words
            for name, words in named.items()
            if (name != "largest" or self.config.choosing)
            and (split or name in ("largest", "totals"))
        }

    @cached_property
    def pricing(self) -> VectorPricing:
        return VectorPricing(1, 1, (1.0,) * len(self.releases))

    def rows(self, holding: Any) -> Any:
        frame = holding.rows.frame if holding.aligned is None else holding.aligned.frame
        rows = (
            frame[list(holding.rows.schema.names)].to_numpy(dtype=np.float64).view(Rows)
        )
        rows.group = self.grid.group_of(holding.name)
        return rows

    def stage(
        self, name: str, terms: Terms, noise: float, before: Mapping[str, Stage[Any]]
    ) -> Stage[Any]:
        if name in ("largest", "totals"):
            expect(terms)
            return Largest() if name == "largest" else Totals(self.widths)
        if name == "again":
            expect(terms)
            first = before["squares"]
            assert isinstance(first, Squares)
            return replace(first, again=True)
        expect(terms, "by", "about")
        if terms["by"] not in (1, 2, 3):
            raise MessageError("by is 1, 2 or 3.")
        return Squares(self.widths, terms["by"])

    def fit(
        self, measurements: Measurements, privacy: Any, look: Any, **more: Any
    ) -> Any:
        raise AssertionError("nothing is fitted here")

    def terms(self, name: str, measurements: Measurements) -> Terms:
        return {"by": 2, "about": torch.arange(3)} if name == "squares" else {}

    def ring(self, people: int | None, noise: Any) -> Ring:
        return Ring(64)


def values(people: int, columns: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 10, (people, columns))


def table(ids: Any, columns: Mapping[str, Any]) -> Table:
    schema = Schema(
        columns=tuple(Integer(name=name, low=0, high=9) for name in columns),
        person="id",
    )
    return Table(
        frame=pd.DataFrame({"id": ids, **columns}), schema=schema, source="made up"
    )


X = values(40, 5)
ROWS = {
    f"host {n}": table(np.arange(n, 40, 3), {"a": X[n::3, 0], "b": X[n::3, 1]})
    for n in range(3)
}
COLUMNS = {
    "one": table(np.arange(40), {"a": X[:, 0], "b": X[:, 1]}),
    "two": table(np.arange(40), {"c": X[:, 2]}),
    "three": table(np.arange(40), {"d": X[:, 3], "e": X[:, 4]}),
}
GRID = {
    "north": table(np.arange(15), {"a": X[:15, 0], "b": X[:15, 1]}),
    "south": table(np.arange(15, 40), {"a": X[15:, 0], "b": X[15:, 1]}),
    "all": table(np.arange(40), {"c": X[:, 2]}),
}


def parties(
    held: Mapping[str, Table],
    *,
    budget: Budget = BUDGET,
    seed: int | None = 1,
    study: Any = Numbers,
    **more: Any,
) -> dict[str, AlignedJointParty]:
    return {
        name: AlignedJointParty(
            study,
            name,
            rows,
            Ledger.rehearsal(holder=name, budget=budget),
            run="r",
            budget=budget,
            rng=None if seed is None else SecureRng.from_seed(seed + place),
            **more,
        )
        for place, (name, rows) in enumerate(held.items())
    }


def study_of(held: Mapping[str, Table], **settings: Any) -> Numbers:
    return Numbers(
        Config(**settings), {name: rows.schema for name, rows in held.items()}
    )


def charged(party: Any) -> list[str]:
    return [
        entry.description
        for entry in party.ledger.entries()
        if entry.count and "outside ε" not in entry.description
    ]


@pytest.mark.parametrize("chunk", [7, 1 << 15])
@pytest.mark.parametrize("held", [COLUMNS, GRID], ids=["columns", "grid"])
def test_without_noise_all_blocks_are_the_sums_over_people(
    held: Any, chunk: int
) -> None:
    unbounded = Budget(float("inf"), 1e-5)
    study = study_of(held, private=False)
    found = measure(study, LocalParties(parties(held, budget=unbounded)), chunk=chunk)
    parts = [X[:, :2], X[:, 2:3], X[:, 3:]][: len(study.grid.groups)]
    for g, part in enumerate(parts):
        assert found["totals"][str(g)][0].tolist() == part.sum(0).tolist()
        for h in range(g + 1, len(parts)):
            whole = 4 * part.T @ parts[h]
            assert found["squares"][f"{g}{h}"].tolist() == whole.tolist()
            assert found["again"][f"{g}{h}"].tolist() == whole[:, :1].tolist(), (
                "of the product that was made"
            )


@pytest.mark.long
def test_the_noise_is_what_the_price_says_and_each_release_is_charged_once() -> None:
    off = []
    inside = {}
    for seed in range(0, 60, 3):
        inside = parties(COLUMNS, seed=seed)
        study = study_of(COLUMNS)
        found = measure(study, LocalParties(inside))
        parts = [
            torch.from_numpy(X[:, some])
            for some in (slice(2), slice(2, 3), slice(3, 5))
        ]
        exact = {
            f"{g}{h}": 4 * parts[g].T @ parts[h] for g, h in ((0, 1), (0, 2), (1, 2))
        }
        off.append(
            torch.cat([(found["squares"][key] - exact[key]).flatten() for key in exact])
        )
    noise = found.deviations("squares")
    assert noise["12"] == pytest.approx(noise["01"] / 2**0.5, rel=1e-3), (
        "twice the weight"
    )
    each = torch.tensor([noise["01"]] * 2 + [noise["02"]] * 4 + [noise["12"]] * 2)
    assert float((torch.stack(off) / each).std()) == pytest.approx(1, rel=0.2)
    for party in inside.values():
        assert [what.partition(" with ")[0] for what in charged(party)] == [
            "totals",
            "squares",
            "squares once more",
        ]
        assert party.agreement is party.pair is None, (
            "with the last release the keys are gone"
        )
    privacy = statement(found, LocalParties(inside))
    assert all(3.9 < privacy.epsilon(name, "server") <= 4.0 for name in inside)
    assert "3 joint releases; the parties' charges are for the same ones" in str(
        privacy
    )
    for said in privacy.to_dict()["parties"]:
        assert said["rounds"] == 3, "one for each release"
        dearest = max(
            epsilon(study.pricing.spend(n, found.record.noise[n]), 1e-5)
            for n in range(3)
        )
        assert said["epsilon_round"]["server"] == dearest < said["epsilon"]["server"]


def other_terms(ask: Any) -> Ask:
    return (
        replace(ask, terms=ask.terms | {"by": 1}) if isinstance(ask, Propose) else ask
    )


def other_tensor(ask: Any) -> Ask:
    return (
        replace(ask, terms=ask.terms | {"about": torch.zeros(3)})
        if isinstance(ask, Propose)
        else ask
    )


def bad_terms(ask: Any) -> Ask:
    return (
        replace(ask, terms=ask.terms | {"by": 9}) if isinstance(ask, Propose) else ask
    )


def missing_terms(ask: Any) -> Ask:
    return replace(ask, terms={}) if isinstance(ask, Propose) else ask


def other_stage(ask: Any) -> Ask:
    return (
        replace(ask, stage="again")
        if isinstance(ask, Release) and ask.stage == "squares"
        else ask
    )


def twice_the_noise(ask: Any) -> Ask:
    return (
        replace(ask, noise=[2 * each for each in ask.noise])
        if isinstance(ask, Agree)
        else ask
    )


def other_family(ask: Any) -> Ask:
    return replace(ask, family="letters") if isinstance(ask, Begin) else ask


def a_setting_too_many(ask: Any) -> Ask:
    return (
        replace(ask, config=ask.config | {"chosing": True})
        if isinstance(ask, Begin)
        else ask
    )


def a_seed_for_two(ask: Any) -> Ask:
    return (
        replace(ask, seeds=dict.fromkeys(ask.seeds, bytes(32)))
        if isinstance(ask, Agree)
        else ask
    )


@pytest.mark.parametrize(
    ("change", "words", "paid"),
    [
        (other_terms, "three was told other terms than", 1),
        (other_tensor, "three was told other terms than", 1),
        (bad_terms, "three: by is 1, 2 or 3", 1),
        (missing_terms, "terms of by, about were due", 1),
        (other_stage, "joint.release was not expected", 1),
        (twice_the_noise, "told different things", 0),
        (other_family, "a party of numbers, not of 'letters'", 0),
        (a_setting_too_many, "no setting 'chosing'", 0),
        (a_seed_for_two, "seed is missing or new", 0),
    ],
)
def test_a_server_that_tells_one_holder_something_else_gets_nothing_for_it(
    change: Any, words: str, paid: int
) -> None:
    inside = parties(COLUMNS, seed=None)
    with pytest.raises((MessageError, ConfigError), match=words):
        measure(study_of(COLUMNS), Crooked(inside, to([*inside][-1], change)))
    honest = ("one", "two") if change is other_stage else tuple(inside)
    assert [len(charged(inside[name])) for name in honest] == [
        paid + (change is other_stage)
    ] * len(honest)
    assert len(charged(inside["three"])) == paid


def test_no_row_is_masked_for_terms_that_others_were_not_told() -> None:
    inside = parties(COLUMNS, seed=None)
    asked = list[Any]()

    def seen(ask: Any) -> Ask:
        asked.append(ask)
        return other_terms(ask)

    with pytest.raises(MessageError, match="told other terms"):
        measure(study_of(COLUMNS), Crooked(inside, to([*inside][-1], seen)))
    assert isinstance(asked[-1], Swap)
    assert not any(
        "masked rows" in entry.description
        for party in inside.values()
        for entry in party.ledger.entries()
    )


def test_a_stage_differs_from_every_other_in_its_digest() -> None:
    some = [
        (0, "a", 1.0, {}),
        (1, "a", 1.0, {}),
        (0, "b", 1.0, {}),
        (0, "a", 2.0, {}),
        (0, "a", 1.0, {"x": 1}),
        (0, "a", 1.0, {"x": [1]}),
        (0, "a", 1.0, {"x": torch.tensor([1, 2])}),
        (0, "a", 1.0, {"x": torch.tensor([2, 1])}),
        (0, "a", 1.0, {"x": torch.tensor([[1, 2]])}),
        (0, "a", 1.0, {"x": torch.tensor([1, 2]).int()}),
        (0, "a", 1.0, {"x": b"1"}),
        (0, "a", 1.0, {"x": {"y": 1}}),
    ]
    assert len({digest(*one) for one in some}) == len(some)
    assert digest(0, "a", 1.0, {"x": (1, 2), "y": 3}) == digest(
        0, "a", 1.0, {"y": 3, "x": [1, 2]}
    )


def test_a_party_that_is_saved_and_loaded_between_any_two_asks_ends_alike() -> None:
    """Only a journal does that, for a party that was killed: the server's word is
    refused.
    """

    class Restarting(LocalParties):
        def ask(
            self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
        ) -> dict[str, Any]:
            replies = super().ask(message)
            for name, fresh in parties(COLUMNS, seed=5).items():
                if name in replies:
                    fresh.ledger = inside[name].ledger
                    fresh.load_state_dict(inside[name].state_dict())
                    inside[name] = fresh
            self.parties = inside
            return replies

    inside = parties(COLUMNS, seed=5)
    found = measure(study_of(COLUMNS), Restarting(inside), chunk=11)
    plain = measure(study_of(COLUMNS), LocalParties(parties(COLUMNS, seed=5)), chunk=11)
    for name in plain:
        for key, sums in plain.record.sums[name].items():
            assert torch.equal(sums, found.record.sums[name][key])


def test_a_state_is_not_saved_on_the_servers_word_under_keys() -> None:
    inside = parties(ROWS)

    def keep(ask: Any) -> Ask:
        return Keep(round=1) if isinstance(ask, Release) else ask

    with pytest.raises(MessageError, match=r"run\.keep was not expected"):
        measure(study_of(ROWS), Crooked(inside, to([*inside][-1], keep)))


class Leaving(LocalParties):
    """The last party goes away when it is asked for a release of this stage."""

    def __init__(self, inside: Any, stage: str, *, at: type[Ask] = Release) -> None:
        super().__init__(inside)
        self.stage = stage
        self.at = at
        self.left = False

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        asks = addressed(message, self.names)
        last = self.names[-1]
        due = (
            isinstance(asks.get(last), self.at)
            and getattr(asks[last], "stage", "") == self.stage
        )
        self.left |= due
        if self.left and last in asks:
            if min_holders is None:
                raise PartyAway(f"{last} is away.")
            del asks[last]
        return super().ask(asks)


def test_who_goes_away_later_leaves_what_was_released() -> None:
    found = measure(study_of(COLUMNS), Leaving(parties(COLUMNS), "again"))
    assert [*found] == ["totals", "squares"]
    assert (found.record.ended, found.record.lost, found.record.gone) == (
        "three went away",
        True,
        ["three"],
    )
    asked = measure(study_of(COLUMNS), Leaving(parties(COLUMNS), "squares", at=Propose))
    assert (asked.record.lost, asked.record.gone) == (False, ["three"])
    with pytest.raises(PartyAway):
        measure(study_of(COLUMNS), Leaving(parties(COLUMNS), "totals"))


def test_in_a_horizontal_partition_who_goes_away_before_the_first_release_is_left_out() -> (
    None
):
    found = measure(study_of(ROWS), Leaving(parties(ROWS), "", at=Agree), min_holders=2)
    assert [*found.record.begun] == ["host 0", "host 1"]
    assert found["totals"]["0"][1] == pytest.approx(found.deviations("totals")["0"])


def interrupted_again(checkpoint: Path) -> dict[str, Any]:
    """Parties of a run that ended while the last of them was to release for the third
    time.
    """
    inside = parties(COLUMNS)

    def interrupt(ask: Any) -> Ask:
        if isinstance(ask, Release) and ask.stage == "again":
            raise KeyboardInterrupt
        return ask

    with pytest.raises(KeyboardInterrupt):
        measure(
            study_of(COLUMNS),
            Crooked(inside, to([*inside][-1], interrupt)),
            checkpoint=checkpoint,
        )
    return inside


def test_a_run_is_resumed_and_nothing_is_measured_twice(tmp_path: Path) -> None:
    inside = interrupted_again(tmp_path)
    found = measure(
        study_of(COLUMNS), LocalParties(inside), checkpoint=tmp_path, resume=True
    )
    assert [*found] == ["totals", "squares", "again"]
    assert [len(charged(party)) for party in inside.values()] == [3, 3, 3]
    with pytest.raises(ConfigError, match="resume with those of the run"):
        measure(
            study_of(COLUMNS, private=False),
            LocalParties(inside),
            checkpoint=tmp_path,
            resume=True,
        )


def test_a_release_that_some_paid_for_before_another_refused_is_stated_as_such(
    tmp_path: Path,
) -> None:
    inside = interrupted_again(tmp_path)
    # which holds no keys of that run
    inside["three"] = parties(COLUMNS, seed=9)["three"]
    found = measure(
        study_of(COLUMNS), LocalParties(inside), checkpoint=tmp_path, resume=True
    )
    assert "joint.release was not expected" in found.record.ended
    assert [len(charged(party)) for party in inside.values()] == [3, 3, 0]
    assert "a party that had answered by then has paid for it" in " ".join(
        statement(found, LocalParties(inside)).outside
    )


def test_choices_are_each_holders_own() -> None:
    found = measure(study_of(ROWS, choosing=True), LocalParties(parties(ROWS)))
    sums = {
        name: rows.frame[["a", "b"]].sum().to_numpy() for name, rows in ROWS.items()
    }
    assert found["largest"] == {name: [int(own.argmax())] for name, own in sums.items()}


def test_of_a_stage_that_counts_something_else_than_it_says_nothing_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        Totals, "count", lambda self, rows: {"0": torch.zeros(3, dtype=torch.int64)}
    )
    inside = parties(ROWS)
    with raises(
        PrivacyError, effect=Effect.NOTHING_SENT, match="not what the stage says"
    ):
        measure(study_of(ROWS), LocalParties(inside))


def test_more_cells_than_are_paid_for_are_refused() -> None:
    pricing = CellPricing(1, 1, moved=(((1.0, 3), (0.5, 1)),))
    paid = {
        "x": BlockSpec((0, 0), (9,), 3**0.5),
        "y": BlockSpec((0, 0), (4,), 1.0, factor=0.5),
    }
    assert pricing.sigmas(0, paid, 8.0) == {"x": 8.0, "y": 4.0}
    with pytest.raises(PrivacyError, match="more would be released than was agreed on"):
        pricing.sigmas(0, paid | {"z": BlockSpec((0, 0), (4,), 1.0)}, 8.0)


def test_who_has_too_little_left_is_asked_for_nothing() -> None:
    inside = parties(ROWS, budget=BUDGET)
    inside["host 1"].budget = Budget(8.0, 1e-5)
    with pytest.raises(BudgetExceeded):
        measure(study_of(ROWS), LocalParties(inside))
    assert not any(map(charged, inside.values()))


class Mixing(LocalParties):
    """A server that has rows masked for other terms first, has all go back, and hands
    the first what it got then.
    """

    asked: dict[str, Agree]
    earlier: Tensor

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        asks: dict[str, Any] = addressed(message, self.names)
        kind = asks[self.names[0]]
        if isinstance(kind, Agree):
            self.asked = dict(asks)
        if isinstance(kind, Propose):
            states = {name: party.state_dict() for name, party in self.parties.items()}
            told = super().ask(
                {
                    name: replace(ask, terms=ask.terms | {"by": 1})
                    for name, ask in asks.items()
                }
            )
            words = relayed({name: told[name] for name in asks})
            masked = super().ask(
                {name: Swap(chunk=0, inbox=words[name]) for name in asks}
            )
            self.earlier = masked["two"].outbox.value["one"]
            for name, state in states.items():
                self.parties[name].load_state_dict(state)
        if isinstance(kind, Release) and kind.stage == "squares":
            asks["one"] = replace(kind, inbox={"two": self.earlier})
        return super().ask(asks)


def test_rows_that_were_masked_before_all_went_back_are_not_multiplied_with_later_ones():
    """Else R₂ᵀ(Y₁ − Y₂) would be in the sum: rows times masks that the server dealt,
    beside which noise is nothing.
    """
    held = {name: COLUMNS[name] for name in ("one", "two")}
    server = Mixing(parties(held, seed=None))
    found = measure(study_of(held), server, secret=bytes(32))
    ring = Ring(64)
    noise = found.noise("squares")
    terms = found.record.terms["squares"]

    def mask(name: str, peer: str, by: int, width: int) -> Any:
        agree = server.asked[name]
        told = cut_as(agree.bits, agree.chunk, agree.cells) + digest(
            1, "squares", noise, terms | {"by": by}
        )
        return ring.uniform(
            mask_seed(agree.seeds[peer], agree.keys, told), 0, 40, width
        )

    r = mask("one", "two", 2, 2)
    s_before = mask("two", "one", 1, 1)
    s = mask("two", "one", 2, 1)
    rows = X[server.parties["one"].aligned.frame["id"].to_numpy()]
    x = ring.words(rows[:, :2])
    for guess in range(10):  # of one person's number, by a server that knows all others
        y = ring.words(np.concatenate([[[guess]], rows[1:, 2:3]]))
        fits = ring.product(x * ring.words(np.array(4)), y) + ring.product(
            r, s - s_before - y
        )
        off = ring.signed(ring.words(found["squares"]["01"]) - fits)
        assert bool((off.abs() > 2**40).all()), (
            "the guess cannot be told from any other"
        )


def test_keys_that_are_listed_in_another_order_get_no_second_release() -> None:
    inside = parties(COLUMNS, seed=None)
    everybody = LocalParties(inside)
    states = dict[str, Any]()
    agreed = dict[str, Agree]()

    def release(asks: Mapping[str, Agree]) -> None:
        told = everybody.ask(asks)
        words = relayed({name: told[name] for name in asks})
        everybody.ask(
            {
                name: Release(stage="totals", inbox=words[name], corrections={})
                for name in asks
            }
        )

    class Stopping(LocalParties):
        def ask(
            self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
        ) -> dict[str, Any]:
            asks: dict[str, Any] = addressed(message, self.names)
            if isinstance(asks["one"], Agree):
                states.update(
                    {name: party.state_dict() for name, party in inside.items()}
                )
                agreed.update(asks)
                raise KeyboardInterrupt
            return super().ask(asks)

    with pytest.raises(KeyboardInterrupt):
        measure(study_of(COLUMNS), Stopping(inside))
    release(agreed)
    for name, state in states.items():
        inside[name].load_state_dict(state)
    with pytest.raises(PrivacyError, match="once in a run"):
        release(
            {
                name: replace(ask, keys=dict([*ask.keys.items()][::-1]))
                for name, ask in agreed.items()
            }
        )


def agreed(inside: Mapping[str, Any], **to_last: Any) -> dict[str, Release]:
    """All are told the same, but for what the last is told besides: the first release,
    with everybody's greetings.
    """
    parties_ = LocalParties(inside)
    study = study_of(ROWS)
    schemas = {name: rows.schema.to_dict() for name, rows in ROWS.items()}
    begun = parties_.ask(
        Begin(family="numbers", config=study.told_settings(), schemas=schemas)
    )
    keys = {name: reply.key.value for name, reply in begun.items()}
    needed = begun["host 0"].needed.value
    agree = Agree(keys=keys, noise=needed, bits=64, chunk=1, seeds={}, cells=[])
    told = parties_.ask(
        dict.fromkeys(inside, agree) | {"host 2": replace(agree, **to_last)}
    )
    words = relayed(told)
    return {
        name: Release(stage="totals", inbox=words[name], corrections={})
        for name in inside
    }


def test_who_has_not_heard_the_others_can_charge_nothing() -> None:
    inside = parties(ROWS, seed=None)
    agreed(inside)
    for party in inside.values():
        session = party.agreement
        assert session is not None
        with pytest.raises(MessageError, match="have not shown what they were told"):
            party._pay(session)
    assert not any(map(charged, inside.values()))


def test_who_was_told_something_else_is_found_out_before_anything_is_charged() -> None:
    inside = parties(ROWS, seed=None)
    asks = agreed(inside, chunk=2)
    for name, party in inside.items():
        with pytest.raises(MessageError, match="told different things"):
            party.answer(asks[name])
    assert not any(map(charged, inside.values()))


def test_a_party_put_back_to_before_a_release_is_not_paid_for_a_second_one_under_its_keys():
    inside = parties(ROWS, seed=None)
    asks = agreed(inside)
    one = inside["host 0"]
    state = one.state_dict()
    one.answer(asks["host 0"])
    assert one.pair is one.agreement is None
    assert "begun" not in one.state_dict(), "with the last release the keys are gone"
    one.load_state_dict(state)
    with pytest.raises(PrivacyError, match="once in a run"):
        one.answer(asks["host 0"])
    assert len(charged(one)) == 1


def test_what_the_holder_knows_by_itself_and_its_own_schema_are_held_against_a_begin():
    one = parties(ROWS, seed=None, agreed={"private": False})["host 0"]
    schemas = {name: rows.schema.to_dict() for name, rows in ROWS.items()}
    told = Begin(
        family="numbers", config=study_of(ROWS).told_settings(), schemas=schemas
    )
    with pytest.raises(MessageError, match="private=True"):
        one.answer(told)
    with pytest.raises(MessageError, match="the settings lack private"):
        one.answer(replace(told, config={"choosing": False}))
    with pytest.raises(ConfigError, match="no setting 'privat'"):
        one.answer(replace(told, config=told.config | {"privat": False}))
    other = {name: COLUMNS["two"].schema.to_dict() for name in schemas}
    alone = {name: schema for name, schema in schemas.items() if name != "host 0"}
    for differently in (other, alone):
        with raises(
            SchemaError,
            effect=Effect.NOTHING_CHARGED_OR_SENT,
            match="host 0: the run is about another schema",
        ):
            one.answer(
                replace(
                    told, config=told.config | {"private": False}, schemas=differently
                )
            )


def test_of_a_stage_that_no_later_one_looks_at_a_party_keeps_nothing() -> None:
    """Else a run of many rounds writes all of their terms into the journal with every
    answer.
    """
    inside = parties(COLUMNS)
    held = dict[str, list[str]]()

    class Looking(LocalParties):
        def ask(
            self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
        ) -> dict[str, Any]:
            replies = super().ask(message)
            ask = addressed(message, self.names).get("one")
            if (
                isinstance(ask, Propose | Release)
                and inside["one"].agreement is not None
            ):
                state = inside["one"].state_dict()["agreement"]
                held[f"{ask.kind()} {ask.stage}"] = [
                    name for name, _ in state["stages"]
                ]
            return replies

    measure(study_of(COLUMNS), Looking(inside))
    assert held["joint.propose squares"] == ["squares"], "and no more of the totals"
    assert held["joint.release squares"] == ["squares"], (
        "which the last release looks at"
    )
