"""A protocol over rows goes on without a party that stays away, and says so; nobody
else notices.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent.parent / "contract"))
from protocol_cases import CASES, Case, weights

from understudy.ground.errors import ConfigError, PartyAway, PartyError
from understudy.protocols.core.base import Ask, Party
from understudy.protocols.core.loop import Present
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties, addressed

FEW = {"clients_per_round": 4, "max_reports": 3, "rounds": 2, "checkpoint_every": 1}


def case_of(protocol: str, **changes: Any) -> Case:
    case = next(
        case for case in CASES if case.protocol == protocol and "two" in case.name
    )
    known = case.record.config.__dataclass_fields__
    few = {
        key: value for key, value in FEW.items() if key in known and protocol != "lopub"
    }
    return replace(
        case, settings=dict(case.settings) | few | {"min_holders": 1} | changes
    )


class Leaving(LocalParties):
    """One party answers so many asks, and is gone."""

    def __init__(self, parties: Mapping[str, Party], who: str, after: int) -> None:
        super().__init__(parties)
        self.who = who
        self.left = after

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        asks = addressed(message, self.names)
        if self.who in asks:
            self.left -= 1
        if self.left >= 0 or self.who not in asks:
            return super().ask(asks)
        del asks[self.who]
        if min_holders is None or len(asks) < min_holders:
            raise PartyAway(f"{self.who} is not connected. The ask was given up.")
        return super().ask(asks)


def trained(
    case: Case, after: int, federation: Federation | None = None, **more: Any
) -> tuple[Any, Federation]:
    federation = federation or case.federation()
    names = list(federation.holders)
    places = (
        {}
        if "checkpoint" not in more
        else {"folder": Path(more["checkpoint"]) / "parties"}
    )
    built = federation.parties(
        case.protocol, run="here", config=case.config(), **places
    )
    parties = Leaving(built, names[-1], after)
    return case.record.train(
        case.config(), parties, federation.schemas, **more
    ), federation


def card_of(outcome: Any) -> Mapping[str, Any]:
    return outcome.trained.card


@pytest.mark.long
@pytest.mark.parametrize(
    "protocol",
    ["sign-ds", "fed-wae", "fed-stdg", "gen-fl", "lopub", "one-report", "sgde"],
)
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_the_others_end_the_run_and_the_card_says_who_went_when(
    protocol: str, after: int
) -> None:
    outcome, federation = trained(case_of(protocol), after)
    stayed, went = federation.holders
    assert card_of(outcome)["gone"].keys() == {went}
    assert card_of(outcome)["gone"][went]["rounds"] <= after
    stated = {party.name: party for party in outcome.privacy.parties}
    assert stated[stayed].insider == federation.holders[stayed].ledger.spend(
        against="anyone"
    )
    paid = federation.holders[went].ledger.spend(against="anyone")
    if went in stated:  # what is stated of it is not below what its ledger holds
        assert all(
            stated[went].insider.get(event, 0) >= count for event, count in paid.items()
        )
    else:
        assert not paid or any(went in text for text in outcome.privacy.outside)


@pytest.mark.long
@pytest.mark.parametrize(
    "protocol",
    ["sign-ds", "fed-wae", "fed-stdg", "gen-fl", "lopub", "one-report", "sgde"],
)
def test_who_stays_gets_the_same_run_whether_or_not_it_could_go_on_alone(
    protocol: str,
) -> None:
    """`min_holders` changes nothing while all are there."""
    alone, free = (
        trained(case_of(protocol, min_holders=n), 10_000)[0] for n in (1, None)
    )
    one = weights(alone)
    other = weights(free)
    assert all((one[key] == other[key]).all() for key in one)
    assert card_of(alone)["gone"] == {}


def test_a_run_that_needs_all_stops_with_what_was_saved(tmp_path: Path) -> None:
    case = case_of("sign-ds", min_holders=None)
    with pytest.raises(PartyAway):
        trained(case, 4, checkpoint=tmp_path)  # begin, round, keep, round
    assert [file.name for file in tmp_path.glob("server-*")] == ["server-1.safetensors"]


def test_who_is_gone_stays_gone_after_a_restart(tmp_path: Path) -> None:
    case = case_of("sign-ds", rounds=3)

    def stop(progress: Any) -> None:
        if progress.done == 2:
            raise KeyboardInterrupt

    federation = case.federation()
    with pytest.raises(KeyboardInterrupt):
        trained(case, 2, federation, checkpoint=tmp_path, watch=stop)
    resumed, _ = trained(case, 10_000, federation, checkpoint=tmp_path, resume=True)
    stayed, went = federation.holders
    assert card_of(resumed)["gone"].keys() == {went}
    assert sum(federation.holders[stayed].ledger.spend().values()) > 0


def test_fewer_than_min_holders_is_too_few() -> None:
    with pytest.raises(PartyAway):
        trained(case_of("sign-ds", min_holders=2), 2)
    federation = case_of("sign-ds").federation()
    parties = LocalParties(
        federation.parties("sign-ds", run="here", config=case_of("sign-ds").config())
    )
    with pytest.raises(ConfigError, match="min_holders=3"):
        Present(parties, 3)


def test_a_refusal_is_no_absence() -> None:
    """A party is left out because it is away, never for what it says."""

    class Refusing(LocalParties):
        def ask(
            self, message: Any, *, min_holders: int | None = None
        ) -> dict[str, Any]:
            raise PartyError("host 1 refuses")

    federation = case_of("sign-ds").federation()
    present = Present(
        Refusing(
            federation.parties("sign-ds", run="x", config=case_of("sign-ds").config())
        ),
        1,
    )
    with pytest.raises(PartyError, match="refuses"):
        present.ask({})
    assert present.gone == {}
