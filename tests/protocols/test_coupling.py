"""Coupled VertiGAN learns across parties what its critics cannot see, and pays for it
within the same budget.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from understudy.api.train import train
from understudy.data.schema import Boolean, Schema
from understudy.ground.errors import ConfigError, MessageError
from understudy.models.nets.gan import BranchedGenerator
from understudy.privacy.accounts.accounting import DiscreteGaussian, epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.core.base import Keep
from understudy.protocols.gram.fit import MeasuredGram
from understudy.protocols.joint import messages as joint
from understudy.protocols.joint.stage import DEALT
from understudy.protocols.papers.verti_gan import protocol as verti_gan
from understudy.protocols.papers.verti_gan.protocol import Couple
from understudy.protocols.papers.vertical_gans.coupling import Coupling
from understudy.protocols.papers.vertical_gans.server import GanServer
from understudy.runs import registry
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties

SMALL: dict[str, Any] = {
    "critic_steps": 2,
    "batch": 64,
    "latent": 8,
    "common": (16,),
    "device": "cpu",
}


def strangers(people: int = 400) -> tuple[dict[str, pd.DataFrame], dict[str, Schema]]:
    """Two parties, each with two copies of a bit that has nothing to do with the
    other's.
    """
    rng = np.random.default_rng(0)
    bits = {name: rng.random(people) < 0.5 for name in ("a", "b")}
    tables = {
        name: pd.DataFrame({f"{name}{n}": bit for n in range(2)})
        for name, bit in bits.items()
    }
    return tables, {
        name: Schema(columns=tuple(Boolean(name=f"{name}{n}") for n in range(2)))
        for name in tables
    }


def disagreement(rounds: int, budget: Budget, **settings: Any) -> float:
    """How often a synthetic row has different bits at the two parties."""
    federation = Federation.rehearsal(*strangers(), budget=budget, seed=1)
    result = train("verti-gan", federation, rounds=rounds, **SMALL, **settings)
    rows = result.generator.sample(2_000, seed=0)
    return float((rows["a0"] != rows["b0"]).mean())


def test_coupling_decides_what_the_critics_leave_open() -> None:
    """The critics see each bit alone, and so a generator may give both parties the same
    bit; half of them differ.
    """
    free = Budget(math.inf, 0.0)
    alone, coupled = (
        disagreement(10, free, private=False, learning_rate=0.06, coupling=coupling)
        for coupling in ("none", "gram")
    )
    assert abs(coupled - 0.5) < 0.15 < abs(alone - 0.5)


def test_release_and_critics_together_stay_within_each_budget() -> None:
    budget = Budget(2.0, 1e-4)
    federation = Federation.rehearsal(*strangers(), budget=budget, seed=1)
    result = train(
        "verti-gan", federation, rounds=3, coupling="gram", coupling_share=0.4, **SMALL
    )
    for holder in federation.holders.values():
        spend = holder.ledger.spend()
        release = {
            event: n
            for event, n in spend.items()
            if isinstance(event, DiscreteGaussian)
        }
        assert list(release.values()) == [4], (
            "one cell for each pair of columns across the parties"
        )
        assert 0.98 * 0.8 <= epsilon(release, budget.delta) <= 0.8
        assert 0.98 * budget.epsilon <= holder.ledger.spent() <= budget.epsilon
    assert set(DEALT) <= set(result.privacy.unguarded)


def test_joint_tables_are_refused_where_no_coupling_was_agreed() -> None:
    federation = Federation.rehearsal(*strangers(), budget=Budget(2.0, 1e-4))
    schemas = federation.schemas
    begin = joint.Begin(
        family="verti-gan",
        config={},
        schemas={n: s.to_dict() for n, s in schemas.items()},
    )
    with pytest.raises(MessageError, match="not expected"):
        federation.parties("verti-gan", run="r")["a"].answer(begin)


@pytest.mark.parametrize("protocol", ["verti-gan", "central-gan"])
def test_a_server_cannot_talk_a_holder_into_a_coupling(protocol: str) -> None:
    """Who deals masks to a party that it made up could take them off and read the
    rows.
    """
    tables, schemas = strangers()
    federation = Federation.rehearsal(
        {"a": tables["a"]}, {"a": schemas["a"]}, budget=Budget(2.0, 1e-4)
    )
    settled_on = registry.protocol_named(protocol).configured({})
    for config in (None, settled_on):
        party = federation.parties(protocol, run="r", config=config)["a"]
        with pytest.raises(MessageError, match="not expected"):
            party.answer(Couple(config=asdict(verti_gan.Config(coupling="gram"))))


def test_no_state_is_saved_while_joint_tables_are_measured(tmp_path: Any) -> None:
    federation = Federation.rehearsal(*strangers(), budget=Budget(2.0, 1e-4), seed=1)
    config = verti_gan.Config(rounds=2, coupling="gram", **SMALL)
    parties = federation.parties("verti-gan", run="r", folder=tmp_path, config=config)
    local = LocalParties(parties)

    class Saving:
        names = local.names

        def ask(self, message: Any) -> dict[str, Any]:
            if isinstance(message, dict) and isinstance(
                next(iter(message.values())), joint.Release
            ):
                local.ask(Keep(round=1))
            return local.ask(message)

    with pytest.raises(MessageError, match=r"run\.keep was not expected"):
        verti_gan.train(config, Saving(), federation.schemas)
    assert not any(one.ledger.spent() for one in parties.values())


def test_no_joint_tables_are_released_once_the_critics_noise_is_fixed() -> None:
    """Their noise takes up what the release has left: nothing, if the critics begin
    before it is charged.
    """
    federation = Federation.rehearsal(*strangers(), budget=Budget(2.0, 1e-4), seed=1)
    config = verti_gan.Config(rounds=2, coupling="gram", **SMALL)
    parties = federation.parties("verti-gan", run="r", config=config)
    local = LocalParties(parties)
    network = GanServer(config, local, federation.schemas, checkpoint=None).network

    class Hasty:
        names = local.names

        def ask(
            self, message: Any, *, min_holders: int | None = None
        ) -> dict[str, Any]:
            if isinstance(message, dict) and isinstance(
                next(iter(message.values())), joint.Agree
            ):
                begin = {n: network.describe(only=n) for n in local.names}
                local.ask(
                    {
                        n: verti_gan.VertiGanBegin(
                            config=asdict(config), network=begin[n]
                        )
                        for n in begin
                    }
                )
            return local.ask(message)

    with pytest.raises(MessageError, match=r"joint\.agree was not expected"):
        verti_gan.train(config, Hasty(), federation.schemas)
    assert not any(one.ledger.spent() for one in parties.values())


def test_joint_tables_that_were_paid_for_outlive_a_run_that_dies_before_its_first_checkpoint(
    tmp_path: Any,
) -> None:
    federation = Federation.rehearsal(*strangers(), budget=Budget(2.0, 1e-4))
    settings = {"rounds": 4, "coupling": "gram", "checkpoint_every": 100, **SMALL}

    def die(progress: Any) -> None:
        raise RuntimeError("the power is gone")

    with pytest.raises(RuntimeError, match="power"):
        train("verti-gan", federation, folder=tmp_path, run="r", watch=die, **settings)
    result = train(
        "verti-gan", federation, folder=tmp_path, run="r", resume=True, **settings
    )
    assert result.generator.card["rounds"] == 3, "the round that was lost stays paid"
    for holder in federation.holders.values():
        released = {
            e: n
            for e, n in holder.ledger.spend().items()
            if isinstance(e, DiscreteGaussian)
        }
        assert list(released.values()) == [4], "one release"
        assert holder.ledger.spent() <= 2.0


@pytest.mark.parametrize(
    "settings",
    [
        {"coupling": "glue"},
        {"coupling_share": 1.0},
        {"coupling_share": 0},
        {"coupling_weight": 0},
    ],
)
def test_settings_that_cannot_be_used_for_coupling_are_refused(
    settings: dict[str, Any],
) -> None:
    with pytest.raises(ConfigError):
        verti_gan.Config(**settings)


@pytest.mark.parametrize("device", ["cpu", "lazy"])
def test_the_second_gradient_fades_where_the_tables_agree_within_the_noise_and_nothing_waits_for_it(
    device: str, load_bench: Callable[..., ModuleType]
) -> None:
    network = BranchedGenerator(4, (8,), {"a": ((), (2,)), "b": ((), (2,))})
    schemas = {name: Schema(columns=(Boolean(name=name),)) for name in ("a", "b")}
    with torch.no_grad():
        odds = network.rows(torch.randn(4_000, 4)).double()
    counts = 1_000 * odds.T @ odds / 4_000
    released = torch.zeros(4, 4, dtype=torch.bool)
    released[:2, 2:] = True
    released |= released.T.clone()
    moved = []
    for noise in (200.0, 0.1):
        deviation = torch.where(released, noise, 0.0).double()
        shift = torch.tensor([[1, -1], [-1, 1]]) * 100.0
        gram = counts.clone()
        gram[:2, 2:] += shift
        gram[2:, :2] += shift.T
        measured = MeasuredGram(gram, deviation, released, [], [[noise, 1]], 1_000)
        with load_bench("guard", "waits").Waits() as waits:
            coupling = Coupling(
                measured, schemas, weight=1.0, device=torch.device(device)
            )
            there = deepcopy(network).to(device)
            for parameter in there.parameters():
                parameter.grad = torch.zeros_like(parameter)
            first = next(there.parameters())
            first.grad = torch.ones_like(first)
            before = len(waits.seen)
            coupling.add_gradient(there, 0, 256)
            assert waits.seen[before:] == []
            moved.append(
                sum(
                    float(p.grad.norm())
                    for p in there.parameters()
                    if p.grad is not None
                )
            )
    still, pushed = moved
    assert still == pytest.approx(first.numel() ** 0.5)
    assert pushed > 1.2 * still
