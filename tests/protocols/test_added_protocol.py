"""A protocol in one file (examples/dp_fedavg.py, docs/adding_a_protocol.md) gets what
all have: the contract, holders who are not fooled, a plan, an audit, the network.
"""

import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

sys.path.append(str(Path(__file__).parent.parent / "contract"))
sys.path.append(str(Path(__file__).parent.parent / "adversary"))
sys.path.append(str(Path(__file__).parent.parent / "runtime"))
import network_cases
import test_grpc_runtime as network
import test_protocols
import test_records
import test_repeated_asks
from protocol_cases import Case, artefact, horizontal
from test_told_alike import Louder
from undisturbed import undisturbed

import understudy as us
from pages import blocks
from refusals import raises
from understudy.data.samples import toy
from understudy.data.table import read_table
from understudy.evaluate.audit.audit_file import CASES as AUDITS
from understudy.evaluate.audit.audit_file import Subject
from understudy.evaluate.audit.auditing import AuditResult, audit_protocol
from understudy.ground.errors import ConfigError, Effect, MessageError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise.rng import Rng, SecureRng
from understudy.privacy.secure.counts import noise_on
from understudy.protocols.core import Ask
from understudy.protocols.joint import pricing
from understudy.protocols.joint.messages import Propose
from understudy.protocols.joint.stage import Holding
from understudy.runs.registry import PROTOCOLS
from understudy.runtime.local import LocalParties, addressed

FILE = Path(__file__).parents[2] / "examples" / "dp_fedavg.py"
loaded = importlib.util.spec_from_file_location("dp_fedavg", FILE)
assert loaded is not None
assert loaded.loader is not None
dp_fedavg = importlib.util.module_from_spec(loaded)
loaded.loader.exec_module(dp_fedavg)
RECORD = dp_fedavg.PROTOCOL
FAR = dp_fedavg.FAR


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    """Its line in the registry, for these tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROTOCOLS, RECORD.name, RECORD)
        yield


def two_clinics() -> tuple[dict[str, Any], dict[str, Any]]:
    frame, schema = toy(rows=600, seed=5)
    return {"north": frame[:300], "south": frame[300:]}, {
        "north": schema,
        "south": schema,
    }


CASE = Case(
    "DP-FedAvg, people with three rows, two hosts",
    "dp-fedavg",
    {"rounds": 2, "target": "smoker"},
    lambda: horizontal(2),
    whole_price_at_begin=True,
)
REAL = Case(
    "DP-FedAvg, 600 people",
    "dp-fedavg",
    {"rounds": 6, "target": "smoker", "learning_rate": 4.0, "clip": 4.0},
    two_clinics,
    Budget(epsilon=20.0, delta=1e-5),
    whole_price_at_begin=True,
)

# The contract: every check that the package's own protocols pass

CHECKS = {
    name: check
    for module in (test_protocols, test_repeated_asks)
    for name, check in vars(module).items()
    if name.startswith("test_")
    and "case" in inspect.signature(check).parameters
    and "ends_early" not in name  # of rounds that are not one agreement
}


@pytest.mark.parametrize("check", CHECKS)
def test_it_passes_the_contract(check: str, request: pytest.FixtureRequest) -> None:
    wanted = [
        name for name in inspect.signature(CHECKS[check]).parameters if name != "case"
    ]
    CHECKS[check](case=CASE, **{name: request.getfixturevalue(name) for name in wanted})


def test_the_file_is_short_and_says_all_that_a_record_needs() -> None:
    assert len(FILE.read_text().splitlines()) < 350
    test_records.test_a_record_has_all_that_runs_plans_audits_and_pages_read(RECORD)


def test_the_page_shows_the_file_as_it_is() -> None:
    shown = [
        block.text for block in blocks("adding_a_protocol.md") if block.kind == "python"
    ]
    assert len(shown) > 3
    assert all(text in FILE.read_text() for text in shown)


# A server that departs


class Meddling(LocalParties):
    """A server that proposes other terms for a stage."""

    def __init__(
        self, parties: Mapping[str, Any], lie: Callable[[str, Tensor], Any]
    ) -> None:
        super().__init__(parties)
        self.lie = lie

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        asks = {
            name: replace(ask, terms=self.lie(name, ask.terms["weights"]))
            if isinstance(ask, Propose)
            else ask
            for name, ask in addressed(message, self.names).items()
        }
        return super().ask(asks, min_holders=min_holders)


def weights(change: Callable[[Tensor], Any]) -> Callable[[str, Tensor], Any]:
    return lambda name, told: {"weights": change(told)}


WRONG: dict[str, Callable[[str, Tensor], Any]] = {
    "not whole": weights(Tensor.double),
    "not a number": weights(lambda told: torch.full(told.shape, torch.nan)),
    "of another shape": weights(lambda told: told[:, 1:]),
    "no tensor": weights(Tensor.tolist),
    "too large": weights(lambda told: torch.full_like(told, FAR + 1)),
    "the least of all numbers": weights(lambda told: torch.full_like(told, -(2**63))),
    "none": lambda name, told: {},
    "others beside them": lambda name, told: {"weights": told, "clip": 1e9},
}


def spent_by(
    lie: Callable[[str, Tensor], Any], effect: Effect, match: str | None = None
) -> list[int]:
    """How many releases each holder has paid for when it refuses."""
    federation = CASE.federation(seed=None)
    parties = federation.parties(CASE.protocol, config=CASE.config(), run="r")
    with raises(MessageError, effect=effect, match=match):
        RECORD.train(CASE.config(), Meddling(parties, lie), federation.schemas)
    return [
        sum(holder.ledger.spend().values()) for holder in federation.holders.values()
    ]


@pytest.mark.parametrize("wrong", WRONG)
def test_weights_that_are_none_are_refused_and_only_the_round_before_is_charged(
    wrong: str,
) -> None:
    assert spent_by(WRONG[wrong], Effect.NOTHING_CHARGED) == [1, 1]


def test_holders_who_were_told_other_weights_part_before_anything_is_charged() -> None:
    def other(name: str, told: Tensor) -> dict[str, Tensor]:
        return {"weights": told + (name == "host 1")}

    assert spent_by(other, Effect.NOTHING_CHARGED, "was told other terms") == [1, 1]


def test_holders_who_were_told_other_noise_part_before_anything_is_charged() -> None:
    federation = CASE.federation(seed=None)
    parties = federation.parties(CASE.protocol, config=CASE.config(), run="r")
    with pytest.raises(MessageError, match="told different things"):
        RECORD.train(CASE.config(), Louder(parties), federation.schemas)
    assert all(holder.ledger.spend() == {} for holder in federation.holders.values())


def test_the_first_round_starts_from_zeros_whatever_a_server_says() -> None:
    study = dp_fedavg.FedAvg(CASE.config(), CASE.data()[1])
    with pytest.raises(MessageError, match="no terms were due"):
        study.stage(
            "round 1", {"weights": torch.ones(study.shape, dtype=torch.int64)}, 4.0, {}
        )


def test_other_settings_than_were_agreed_on_are_refused_before_anything_is_charged():
    federation = CASE.federation(seed=None)
    parties = federation.parties(CASE.protocol, config=CASE.config(), run="r")
    with pytest.raises(MessageError, match=r"clip=9\.0 was asked for"):
        RECORD.train(
            replace(CASE.config(), clip=9.0), LocalParties(parties), federation.schemas
        )
    assert all(holder.ledger.spend() == {} for holder in federation.holders.values())


@pytest.mark.parametrize(
    "wrong",
    [
        {"clip": 0.0},
        {"clip": float("nan")},
        {"learning_rate": 1e9},
        {"rounds": 0},
        {"rounds": 10**6},
    ],
    ids=str,
)
def test_settings_beyond_their_ranges_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        RECORD.configured(wrong)


# Two worlds: with a person, and without


@pytest.fixture(scope="module")
def everybody() -> list[Any]:
    """Twenty people with three rows each: the rows of each."""
    tables, schemas = horizontal(1)
    table = read_table(tables["host 0"], schemas["host 0"], one_row_each=False)
    study = dp_fedavg.FedAvg(CASE.config(), schemas)
    inputs, classes, starts = study.rows(Holding("host 0", table, None, SecureRng))
    return [(inputs[a:b], classes[a:b]) for a, b in pairwise(starts)]


def rows_of(people: list[Any]) -> Any:
    inputs, classes = zip(*people, strict=True)
    starts = np.cumsum([0, *map(len, classes)])
    return dp_fedavg.Rows(np.concatenate(inputs), np.concatenate(classes), starts)


@pytest.mark.parametrize("told", ["zeros", "small", "largest", "one side"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"clip": 1e-6, "learning_rate": 1e6}, {"clip": 1e6, "learning_rate": 1e-6}],
    ids=str,
)
def test_leaving_a_person_out_takes_away_their_own_part_and_no_more_than_is_paid_for(
    told: str, settings: dict[str, float], everybody: list[Any]
) -> None:
    study = dp_fedavg.FedAvg(
        RECORD.config(target="smoker", **settings), horizontal(1)[1]
    )
    signs = torch.randint(
        -1, 2, study.shape, generator=torch.Generator().manual_seed(7)
    )
    sizes = {
        "zeros": 0 * signs,
        "small": 9_999 * signs,
        "largest": FAR * signs,
        "one side": FAR + 0 * signs,
    }
    stage = study.stage("round 2", {"weights": sizes[told]}, 4.0, {})
    most = stage.blocks["sums"].sensitivity
    total = stage.count(rows_of(everybody))["sums"]
    moved = []
    for n, person in enumerate(everybody):
        own = stage.count(rows_of([person]))["sums"]
        others = stage.count(rows_of(everybody[:n] + everybody[n + 1 :]))["sums"]
        assert torch.equal(total - others, own)
        moved.append(float(own.double().norm()))
    assert max(moved) <= most
    if told == "largest" and settings.get("clip", 1.0) <= 1:
        assert max(moved) > 0.98 * most, "the bound is met, so less noise would not do"


def test_a_row_that_is_no_number_counts_as_no_update_and_spoils_nobody_elses(
    everybody: list[Any],
) -> None:
    stage = dp_fedavg.FedAvg(CASE.config(), horizontal(1)[1]).stage(
        "round 1", {}, 4.0, {}
    )
    first, (inputs, classes) = everybody[:2]
    alone, spoilt = (
        stage.count(rows_of(people))["sums"]
        for people in ([first], [first, (np.full_like(inputs, math.nan), classes)])
    )
    assert torch.equal(spoilt[:-1], alone[:-1])
    assert spoilt[-1] == 2 * alone[-1]


# The plan, the audit


def test_the_plan_states_the_price_that_a_run_then_costs() -> None:
    _, schemas = CASE.data()
    made = us.plan("dp-fedavg", schemas, budget=CASE.budget, people=20, **CASE.settings)
    for name, holder in undisturbed(CASE).federation.holders.items():
        assert made.price[name] == pytest.approx(holder.ledger.spent(), rel=1e-6)
    assert "2 rounds: in each the sum of all people's updates" in str(made)
    with pytest.raises(ConfigError, match="target is missing"):
        us.plan("dp-fedavg", schemas, budget=1.0)
    with pytest.raises(ConfigError, match="max_holders_per_person"):
        us.plan(
            "dp-fedavg", schemas, budget=1.0, target="smoker", max_holders_per_person=3
        )


def audited(epsilon: float) -> AuditResult:
    schemas = {"a": toy(rows=4)[1].select(["colour", "smoker"])}
    budgets = {"a": Budget(epsilon, 1e-3)}
    config = RECORD.config(target="smoker", rounds=30)
    case = AUDITS[RECORD.audit](
        Subject(RECORD, config, schemas, budgets, "a", 4, Path())
    )
    return audit_protocol(case, trials=14, seconds=3600, seed=3)


@pytest.mark.usefixtures("few_trials")
def test_an_audit_finds_a_part_of_what_is_claimed() -> None:
    result = audited(32.0)
    assert result.passed
    assert result.observed > 2


@pytest.mark.usefixtures("few_trials")
def test_an_audit_finds_a_holder_that_adds_a_fortieth_of_its_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def quiet(cells: Tensor, scale: Fraction, rng: Rng) -> Tensor:
        return noise_on(cells, scale / 40, rng)

    monkeypatch.setattr(pricing, "noise_on", quiet)
    assert not audited(2.5).passed


# The network


def test_over_a_network_it_learns_the_same_as_through_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = (*network_cases.POLICY.protocols, RECORD.name)
    monkeypatch.setattr(
        network_cases, "POLICY", replace(network_cases.POLICY, protocols=known)
    )
    network.test_the_same_seed_gives_the_same_trajectory_through_calls_and_through_grpc(
        REAL, tmp_path
    )


def test_it_learns_what_can_be_learned() -> None:
    model = artefact(undisturbed(REAL).outcome)
    new = toy(rows=1_000, seed=6)[0]
    smokes = new["smoker"].to_numpy()
    assert (model.predict(new) == smokes).mean() > 0.8
    assert max(smokes.mean(), 1 - smokes.mean()) < 0.6


class Leaving(LocalParties):
    """The second holder goes away before the third round."""

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        asks = addressed(message, self.names)
        if any(
            isinstance(ask, Propose) and ask.stage == "round 3" for ask in asks.values()
        ):
            del asks["south"]
        return super().ask(asks, min_holders=min_holders)


def test_a_holder_who_leaves_after_two_rounds_leaves_what_these_made() -> None:
    federation = REAL.federation()
    parties = federation.parties(REAL.protocol, config=REAL.config(), run="r")
    model = artefact(RECORD.train(REAL.config(), Leaving(parties), federation.schemas))
    new = toy(rows=500)[0]
    assert model.card["rounds"] == 2
    assert "south went away" in model.card["ended"]
    assert (model.predict(new) == new["smoker"].to_numpy()).mean() > 0.7
    assert [
        sum(one.ledger.spend().values()) for one in federation.holders.values()
    ] == [2, 2]


def test_public_rows_that_are_held_out_are_told_round_by_round() -> None:
    tables, schemas = two_clinics()
    federation = us.Federation.rehearsal(tables, schemas, budget=REAL.budget, seed=1)
    result = us.train(
        "dp-fedavg", federation, holdout=toy(rows=200, seed=6)[0], **REAL.settings
    )
    history = [one["accuracy"] for one in result.model.card["history"]]
    assert len(history) == 6
    assert history[-1] > 0.75
