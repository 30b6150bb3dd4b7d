"""The same person at two holders of rows: what the statement says is at least what they
lose, or it says what it takes for granted.

The true ε comes from exact sums over the laws of discrete Gaussian noise, and of
randomized response, by no accountant.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from aligned import match
from understudy.api.train import run_file, train
from understudy.data.schema import Boolean, Schema
from understudy.ground.errors import ConfigError, MessageError, PartyError
from understudy.privacy.accounts.accounting import DiscreteGaussian, PureDp, epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.statement import PartyPrivacy, PrivacyStatement
from understudy.privacy.secure.counts import spend_of
from understudy.protocols.core import alignment
from understudy.protocols.gram import protocol as gram
from understudy.protocols.gram.fit import MeasuredGram
from understudy.protocols.gram.protocol import Gram
from understudy.protocols.joint.server import measure
from understudy.runs.federation import Federation
from understudy.runs.runfile import RunFile
from understudy.runtime.contract import Contract, Policy
from understudy.runtime.local import LocalParties

BUDGET = Budget(epsilon=1.0, delta=1e-3)
SCHEMA = Schema(columns=(Boolean(name="a"), Boolean(name="b")), person="id")
GRAM: dict[str, Any] = {"components": 2, "steps": 5, "device": "cpu"}
Law = NDArray[np.float64]


def rows(ids: Sequence[int]) -> pd.DataFrame:
    return pd.DataFrame(
        {"id": [*ids], "a": [n % 2 == 0 for n in ids], "b": [n % 3 == 0 for n in ids]}
    )


def federation(
    parties: int = 2, *, everywhere: int = 7, budget: Budget = BUDGET, **more: Any
) -> Federation:
    """Holders of ten people each; person 0 with row (true, true) is with as many of
    them as `everywhere` says.
    """
    tables = {
        f"host {n}": rows(
            [0] * (n < everywhere) + [*range(100 * n + 101, 100 * n + 110)]
        )
        for n in range(parties)
    }
    schemas = dict.fromkeys(tables, SCHEMA)
    return Federation.rehearsal(
        tables, schemas, budget=budget, seed=3, same_people=False, **more
    )


# An oracle


def gaussian(sigma: float, shift: int, reach: int) -> Law:
    """The law of `shift` plus discrete Gaussian noise, on −reach … reach."""
    z = np.arange(-reach, reach + 1) - shift
    return (
        np.exp(-(z**2) / (2 * sigma**2))
        / np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2)).sum()
    )


def loss(sigma: float, shift: int, reach: int) -> tuple[Law, Law]:
    """The privacy loss of one number that a person moves by `shift`: its values, and
    how likely each is.
    """
    p = gaussian(sigma, shift, reach)
    q = gaussian(sigma, 0, reach)
    return (2 * np.arange(-reach, reach + 1) * shift - shift**2) / (2 * sigma**2), p * (
        q > 0
    )


def true_delta(sigma: float, shifts: list[int], eps: float) -> float:
    """δ(ε) of independent numbers, each moved by so much: E[(1 − e^(ε − loss))⁺],
    summed exactly (adding is the worse direction by symmetry of the noise).
    """
    reach = math.ceil(9 * sigma) + max(shifts)
    values = np.zeros(1)
    chances = np.ones(1)
    for shift in shifts:
        more, odds = loss(sigma, shift, reach)
        # Losses are whole multiples of 1/2σ²: merged exactly.
        whole = np.rint((values[:, None] + more).ravel() * 2 * sigma**2).astype(
            np.int64
        )
        chances = np.bincount(
            whole - whole.min(), weights=(chances[:, None] * odds).ravel()
        )
        values = (np.arange(len(chances)) + whole.min()) / (2 * sigma**2)
    return float(
        np.sum(chances * np.maximum(0, 1 - np.exp(np.minimum(0, eps - values))))
    )


def ways(people: int) -> Iterator[list[int]]:
    """How the rows of one person at so many holders can move a table: all one cell, or
    several.
    """
    if people == 2:
        yield from ([2], [1, 1])
    else:
        yield from ([3], [2, 1], [1, 1, 1])


# Gram


def released(
    fed: Federation, **settings: Any
) -> tuple[PrivacyStatement, dict[str, Any]]:
    result = train("gram", fed, **GRAM | settings)
    return result.privacy, dict(result.generator.card)


def test_a_person_at_two_holders_moves_the_released_counts_by_two() -> None:
    """Without noise: so noise for one is too little, whatever any ledger says."""
    free = Budget(math.inf, 0.0)
    seen: list[MeasuredGram] = []
    for everywhere in (0, 2):
        fed = federation(everywhere=everywhere, budget=free)
        config = gram.Config(private=False, fine=0.0)
        parties = LocalParties(fed.parties("gram", run="r", config=config))
        seen.append(
            MeasuredGram.from_releases(measure(Gram(config, fed.schemas), parties))
        )
    assert (seen[1].gram - seen[0].gram).max() == 2


@pytest.mark.parametrize("max_holders_per_person", [2, 3])
def test_gram_over_a_horizontal_partition_states_at_least_what_a_person_at_several_holders_loses(
    max_holders_per_person: int,
) -> None:
    privacy, card = released(
        federation(3), max_holders_per_person=max_holders_per_person
    )
    stated = privacy.epsilon(against="server")
    assert stated <= BUDGET.epsilon
    # one release, which every ledger holds
    assert stated == max(privacy.per_party().values())
    ((sigma, cells),) = card["releases"]
    assert cells == 3  # a, b, and the two together
    for moved in ways(max_holders_per_person):
        assert true_delta(sigma, moved * 3, stated) <= BUDGET.delta
    # Not more than it has to: at a noise of nine tenths the same price would be false.
    assert true_delta(0.9 * sigma, [max_holders_per_person] * 3, stated) > BUDGET.delta


def test_gram_priced_for_people_at_one_holder_says_so_and_would_be_false_for_two():
    privacy, card = released(federation(2))
    ((sigma, _),) = card["releases"]
    stated = privacy.epsilon(against="server")
    assert (
        true_delta(sigma, [1] * 3, stated)
        <= BUDGET.delta
        < true_delta(sigma, [2] * 3, stated)
    )
    assert "assumed: only one party holds each person" in str(privacy)
    assert any("nobody has checked it" in text for text in privacy.to_dict()["assumed"])
    assert privacy.to_dict()["person"]["max_holders_per_person"] == 1


@pytest.mark.parametrize("sigma", [0.4, 0.8, 2.0, 6.0])
@pytest.mark.parametrize("holders", [2, 3])
def test_one_cell_moved_by_all_is_the_worst_that_rows_of_one_person_can_do(
    sigma: float, holders: int
) -> None:
    for delta in (1e-2, 1e-4):
        stated = epsilon({DiscreteGaussian(sigma, holders): 1}, delta)
        for moved in ways(holders):
            assert true_delta(sigma, moved, stated) <= delta * (1 + 1e-9)


def test_a_party_of_gram_believes_no_server_about_how_many_holders_a_person_has():
    fed = federation(2)
    parties = fed.parties("gram", run="r", config=gram.Config(max_holders_per_person=2))
    with pytest.raises(
        MessageError,
        match="max_holders_per_person=1",
    ):
        gram.train(gram.Config(**GRAM), LocalParties(parties), fed.schemas)
    assert all(holder.ledger.spent() == 0 for holder in fed.holders.values())


def test_max_holders_per_person_is_for_rows_and_for_no_more_than_there_are() -> None:
    with pytest.raises(ConfigError, match="so many holders or more"):
        released(federation(2), max_holders_per_person=3)
    tables = {"one": rows(range(9))[["id", "a"]], "two": rows(range(9))[["id", "b"]]}
    schemas = {"one": SCHEMA.select(["a"]), "two": SCHEMA.select(["b"])}
    with pytest.raises(ConfigError, match="where columns are split"):
        released(
            Federation.rehearsal(tables, schemas, budget=BUDGET),
            max_holders_per_person=2,
        )


# A grid, where alignment sees such a person, and a server that departs from it does not
# say so


def two_by_two(everywhere: int, budget: Budget = BUDGET) -> Federation:
    """Two holders of the column a and two of b, of nine people each; person 0 is with
    as many of each as is said.
    """
    tables = dict[str, pd.DataFrame]()
    schemas = dict[str, Schema]()
    for column in "ab":
        for n in range(2):
            ids = [0] * (n < everywhere) + [*range(100 * n + 101, 100 * n + 110)]
            tables[f"{column}{n}"] = rows(ids)[["id", column]]
            schemas[f"{column}{n}"] = SCHEMA.select([column])
    return Federation.rehearsal(tables, schemas, budget=budget, seed=3)


def matched_twice(
    sets: Mapping[str, Any], groups: Sequence[Sequence[str]]
) -> tuple[Any, Any]:
    """A server that matches the first holders of the groups with each other, and the
    second ones, too.
    """
    positions = dict[str, Any]()
    cells = dict[tuple[str, ...], int]()
    for names in zip(*groups, strict=True):
        found = match({name: sets[name] for name in names})
        positions |= found
        cells[names] = len(found[names[0]])
    return positions, cells


def test_over_a_grid_a_departing_server_counts_a_person_as_often_as_every_column_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every two holders share the same people, so that they notice nothing. Noise for
    one is too little then.
    """
    monkeypatch.setattr(alignment.psi, "match_grid", matched_twice)
    free = Budget(math.inf, 0.0)
    seen = list[MeasuredGram]()
    for everywhere in (0, 2):
        fed = two_by_two(everywhere, free)
        config = gram.Config(private=False, fine=0.0)
        parties = LocalParties(fed.parties("gram", run="r", config=config))
        seen.append(
            MeasuredGram.from_releases(measure(Gram(config, fed.schemas), parties))
        )
    assert (seen[1].gram - seen[0].gram).max() == 2
    with pytest.raises(ConfigError, match="so many holders or more"):
        released(two_by_two(2), max_holders_per_person=3)
    privacy, card = released(two_by_two(2), max_holders_per_person=2)
    stated = privacy.epsilon(against="server")
    assert stated <= BUDGET.epsilon
    (sigma, within), (louder, across) = sorted(card["releases"])
    assert (across, within) == (1, 2)
    for moved in ways(2):
        assert true_delta(louder, moved, stated) <= BUDGET.delta
        assert true_delta(sigma, moved * 2, stated) <= BUDGET.delta
    assert epsilon(spend_of(card["releases"], 2), BUDGET.delta) == pytest.approx(stated)


# Parties that release by themselves


def response(eps: float) -> tuple[Law, Law]:
    """Randomized response: the worst that is ε-DP."""
    p = math.exp(eps) / (1 + math.exp(eps))
    return np.array([p, 1 - p]), np.array([1 - p, p])


def test_prices_of_parties_compose_over_as_many_as_hold_a_person() -> None:
    """Exactly, for pure mechanisms: the loss of a person at two parties is the product
    of both laws.
    """

    def party(name: str, spend: Mapping[Any, int]) -> PartyPrivacy:
        return PartyPrivacy(
            name=name,
            budget=Budget(9.0, 0.0),
            outsider=spend,
            insider=spend,
            noise="secure",
            people=9,
        )

    parties = tuple(
        party(name, {PureDp(eps): 1})
        for name, eps in (("a", 0.5), ("b", 0.5), ("c", 0.25))
    )
    for most in (1, 2, 3):
        stated = PrivacyStatement(
            parties=parties, same_people=False, max_holders_per_person=most
        )
        for chosen in ([0.5, 0.5][:most], [0.5, 0.25][:most], [0.5, 0.5, 0.25][:most]):
            p = np.ones(1)
            q = np.ones(1)
            for eps in chosen:
                with_person, without = response(eps)
                p = np.outer(p, with_person).ravel()
                q = np.outer(q, without).ravel()
            assert math.log((p / q).max()) <= stated.epsilon(against="server") + 1e-12
    both = PrivacyStatement(
        parties=parties[:2], same_people=False, max_holders_per_person=2
    )
    assert both.epsilon(against="server") == pytest.approx(1.0)
    assert both.epsilon(against="another_party") == pytest.approx(0.5)
    assert "up to 2 of the parties hold a person" in str(both)


def test_events_of_some_parties_together_are_never_fewer_than_those_of_any_of_them():
    spends = [{PureDp(0.1): 5}, {PureDp(0.1): 2, PureDp(0.3): 1}, {PureDp(0.3): 4}]
    parties = tuple(
        PartyPrivacy(
            name=str(n),
            budget=Budget(9.0, 0.0),
            outsider=spend,
            insider=spend,
            noise="",
            people=9,
        )
        for n, spend in enumerate(spends)
    )
    stated = PrivacyStatement(
        parties=parties, same_people=False, max_holders_per_person=2
    ).epsilon(against="server")
    for one in parties:
        for other in parties:
            if one is not other:
                assert (
                    PrivacyStatement(parties=(one, other)).epsilon(against="server")
                    <= stated
                )


SMALL: dict[str, dict[str, Any]] = {
    "sign-ds": {
        "target": "b",
        "rounds": 2,
        "clients_per_round": 20,
        "max_reports": 2,
        "epsilon_total": 6.0,
        "device": "cpu",
    },
    "lopub": {"epsilon_total": 6.0},
    "one-report": {"epsilon_total": 6.0, "components": 4, "steps": 2, "device": "cpu"},
    "sgde": {"target": "b", "epsilon": 1.0, "steps": 2, "latent": 2, "device": "cpu"},
}


@pytest.mark.parametrize("protocol", SMALL)
def test_protocols_over_a_horizontal_partition_compose_where_people_are_elsewhere(
    protocol: str,
) -> None:
    budget = BUDGET if protocol == "sgde" else Budget(6.0, 0.0)
    apart = train(protocol, federation(2, budget=budget), **SMALL[protocol]).privacy
    both = train(
        protocol,
        federation(2, budget=budget),
        **SMALL[protocol],
        max_holders_per_person=2,
    ).privacy
    assert apart.assumed
    assert both.per_party() == apart.per_party()
    assert both.epsilon(against="server") > 1.3 * apart.epsilon(against="server")
    composed = PrivacyStatement(parties=both.parties)  # as of the same people
    assert both.epsilon(against="server") == composed.epsilon(against="server")


# The holder's own word


def test_a_holder_whose_people_are_elsewhere_is_not_priced_as_if_they_were_not():
    fed = federation(2, people_are_elsewhere=["host 1"])
    with pytest.raises(ConfigError, match="host 1"):
        released(fed)
    assert all(holder.ledger.spent() == 0 for holder in fed.holders.values())
    assert released(fed, max_holders_per_person=2)[0].max_holders_per_person == 2
    with pytest.raises(ConfigError, match="people_are_elsewhere"):
        federation(2, people_are_elsewhere=["host 9"])


def test_a_run_file_says_it_for_a_holder(tmp_path: Path) -> None:
    for name in ("north", "south"):
        rows(range(500)).to_csv(tmp_path / f"{name}.csv", index=False)
    SCHEMA.save(tmp_path / "people.toml")
    section = {"schema": "people.toml", "epsilon": 1.0, "delta": 1e-3}
    body: dict[str, Any] = {
        "protocol": "gram",
        "out": "out",
        "settings": GRAM,
        "parties": {
            name: section | {"table": f"{name}.csv"} for name in ("north", "south")
        },
    }
    body["parties"]["south"]["people_are_elsewhere"] = True
    with pytest.raises(ConfigError, match="south says"):
        run_file(RunFile.from_dict(body, folder=tmp_path))
    body["settings"] = GRAM | {"max_holders_per_person": 2}
    result, folder = run_file(RunFile.from_dict(body, folder=tmp_path))
    assert result.privacy.epsilon(against="server") <= 1.0
    assert (
        RunFile.load(folder / "run.toml").parties["south"].people_are_elsewhere is True
    )
    body["parties"]["south"]["people_are_elsewhere"] = "yes"
    with pytest.raises(ConfigError, match="must be true or false"):
        RunFile.from_dict(body, folder=tmp_path)


def test_a_policy_says_it_over_the_network() -> None:
    policy = Policy(
        protocols=("gram",),
        epsilon_run=2.0,
        epsilon_total=8.0,
        delta=1e-3,
        people=1,
        people_are_elsewhere=True,
    )

    def contract(**settings: Any) -> Contract:
        columns = {name: {"a": "1", "b": "2"} for name in ("north", "south")}
        return Contract(
            federation="f",
            run="r",
            protocol="gram",
            settings=settings,
            message=1 << 20,
            columns=columns,
            schemas=dict.fromkeys(columns, "same"),
            budgets=dict.fromkeys(columns, BUDGET),
        )

    with pytest.raises(PartyError, match="other holders may also hold its people"):
        policy.check(contract(), "north", schema="same", people=9, spent=0.0)
    policy.check(
        contract(max_holders_per_person=2), "north", schema="same", people=9, spent=0.0
    )
