"""A model sent as changes is the same to the bit, and shorter."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from understudy.data.encoding.population import Population
from understudy.ground.errors import Effect, PartyError
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.cross_device import rounds
from understudy.protocols.cross_device.downlink import Moved
from understudy.protocols.cross_device.host import BeginTraining, Call, Round
from understudy.protocols.papers.sign_ds import protocol as sign_ds
from understudy.protocols.papers.sign_ds.protocol import Config
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties, size

SETTINGS = {
    "epsilon": 2.0,
    "reporter": "ps",
    "rounds": 12,
    "clients_per_round": 5,
    "max_reports": 6,
    "epochs": 1,
    "device": "cpu",
}


def federation() -> Federation:
    """Two holders of whom one has few people and is rarely asked; 802 weights."""
    rng = np.random.default_rng(0)
    held = {}
    for name, people in (("many", 18), ("few", 2)):
        y = rng.integers(0, 2, 2 * people)
        x = (rng.random((len(y), 400)) * 0.5 + 0.5 * y[:, None]).astype(np.float32)
        held[name] = Population.from_arrays(x, y, classes=2, rows_per_person=2)
    return Federation.rehearsal(held, budget=Budget(math.inf, 0.0), seed=1)


class Heard(LocalParties):
    """Local parties that remember what they were asked."""

    def __init__(self, of: Federation, **more: Any) -> None:
        super().__init__(of.parties("sign-ds", run="r", **more))
        self.asks: list[tuple[str, Any]] = []

    def ask(self, message: Any, *, min_holders: int | None = None) -> dict[str, Any]:
        if isinstance(message, dict):
            asks = message.items()
            self.asks += [one for one in asks if isinstance(one[1], Call)]
        return super().ask(message)


def trained(**changes: Any) -> tuple[torch.Tensor, Heard]:
    of = federation()
    parties = Heard(of)
    config = Config(**SETTINGS | changes)
    return sign_ds.train(config, parties, of.schemas).trained.weights, parties


@pytest.mark.parametrize(
    "reporter",
    [{}, {"reporter": "em-mds", "chosen": 3}, {"reporter": "naive", "chosen": 2}],
)
def test_changes_give_the_same_model_to_the_bit_in_fewer_bytes(
    reporter: dict[str, Any],
) -> None:
    plain, all_weights = trained(**reporter)
    saved, changes = trained(downlink="changes", **reporter)
    assert torch.equal(plain, saved)
    moves = [ask for _, ask in changes.asks if isinstance(ask, Moved)]
    assert len(moves) > 10
    assert max(len(ask.ends) for ask in moves) > 1  # who was not asked in each round
    for (name, plain_ask), (other, ask) in zip(
        all_weights.asks, changes.asks, strict=True
    ):
        assert name == other
        assert size(ask) <= size(plain_ask)
        assert torch.equal(ask.people, plain_ask.people)


def test_reports_that_are_no_signs_at_few_dimensions_are_sent_as_weights() -> None:
    plain, _ = trained(reporter="duchi")
    saved, parties = trained(reporter="duchi", downlink="changes")
    assert torch.equal(plain, saved)
    assert not any(isinstance(ask, Moved) for _, ask in parties.asks)


def test_a_run_that_was_cut_off_goes_on_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = federation()
    config = Config(**SETTINGS | {"downlink": "changes", "checkpoint_every": 2})

    def go(*, resume: bool) -> Heard:
        parties = Heard(of, folder=tmp_path / "parties")
        sign_ds.train(
            config,
            parties,
            of.schemas,
            checkpoint=tmp_path / "server",
            resume=resume,
        )
        return parties

    plain = rounds.from_message
    left = 9  # replies before the power goes

    def dies(*arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            raise RuntimeError("power cut")
        return plain(*arguments)

    monkeypatch.setattr(rounds, "from_message", dies)
    with pytest.raises(RuntimeError):
        go(resume=False)
    left = -1
    parties = go(resume=True)
    first = {}
    for name, ask in parties.asks:
        first.setdefault(name, ask)
    assert all(isinstance(ask, Round) for ask in first.values())
    assert any(isinstance(ask, Moved) for _, ask in parties.asks)


@pytest.fixture
def party() -> Any:
    """A party that was asked in round 1, on weights of zero."""
    of = federation()
    built = of.parties("sign-ds", run="r")["many"]
    config = Config(**SETTINGS | {"downlink": "changes"})
    network = config.network_for(of.holders["many"].table.features)
    built.answer(BeginTraining(config=vars(config), network=network.describe()))
    weights = torch.zeros(network.size)
    built.answer(Round(round=1, people=torch.tensor([0]), weights=weights))
    return built


MOVE = Moved(
    round=2,
    people=torch.tensor([1]),
    since=1,
    ends=torch.tensor([2, 2, 3], dtype=torch.int32),
    dims=torch.tensor([0, 801, 0], dtype=torch.int32),
    counts=torch.tensor([3, -2, 1], dtype=torch.int8),
    reports=torch.tensor([4, 5, 2], dtype=torch.int32),
    rates=torch.tensor([2.0, 2.0, 1.0], dtype=torch.float64),
)


def test_steps_are_taken_one_after_the_other(party: Any) -> None:
    party.answer(MOVE)
    assert party.held.round == 2
    assert party.held.weights[0] == 2.0 * 3 / 4 + 1.0 * 1 / 2
    assert party.held.weights[801] == 2.0 * -2 / 4
    assert not party.held.weights[1:801].any()
    again = federation().parties("sign-ds", run="r")["many"]
    again.load_state_dict(party.state_dict())
    assert torch.equal(again.held.weights, party.held.weights)
    assert again.held.round == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"since": 0},
        {"ends": torch.tensor([2, 1, 3], dtype=torch.int32)},
        {"ends": torch.tensor([2, 2, 4], dtype=torch.int32)},
        {"ends": torch.tensor([-1, 2, 3], dtype=torch.int32)},
        {"ends": torch.zeros(0, dtype=torch.int32)},
        {"dims": torch.tensor([0, 802, 0], dtype=torch.int32)},
        {"dims": torch.tensor([0, -1, 0], dtype=torch.int32)},
        {"counts": torch.tensor([3.0, -2.0, 1.0])},
        {"counts": torch.tensor([3, -2], dtype=torch.int8)},
        {"reports": torch.tensor([4, 0, 2], dtype=torch.int32)},
        {"rates": torch.tensor([2.0, math.inf, 1.0], dtype=torch.float64)},
        {"rates": torch.tensor([1e300, 2.0, 1.0], dtype=torch.float64)},
        {"people": torch.tensor([99])},
    ],
)
def test_steps_that_do_not_follow_are_refused_and_nobody_is_charged(
    party: Any, wrong: dict[str, Any]
) -> None:
    entries = len(party.ledger.entries())
    with pytest.raises(PartyError) as error:
        party.answer(replace(MOVE, **wrong))
    assert error.value.effect in (
        Effect.NOTHING_CHARGED,
        Effect.NOTHING_CHARGED_OR_SENT,
    )
    assert len(party.ledger.entries()) == entries
    party.answer(MOVE)  # and the party still knows where it was


def test_a_party_that_was_sent_no_weights_takes_no_steps() -> None:
    built = federation().parties("sign-ds", run="r")["many"]
    config = Config(**SETTINGS | {"downlink": "changes"})
    network = config.network_for(federation().holders["many"].table.features)
    built.answer(BeginTraining(config=vars(config), network=network.describe()))
    with pytest.raises(PartyError):
        built.answer(MOVE)
