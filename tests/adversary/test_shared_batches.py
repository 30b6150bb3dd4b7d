"""Batches that all parties share: an outsider cannot rebuild them, and pays for one
sample what one sample costs.
"""

import base64
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from refusals import raises
from understudy.api.train import train
from understudy.data.samples import toy
from understudy.ground.errors import Effect, MessageError
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.events import spent_together
from understudy.privacy.accounts.statement import PartyPrivacy, PrivacyStatement
from understudy.privacy.noise.rng import FastRng, poisson_samples
from understudy.protocols.core.base import Progress
from understudy.protocols.papers.verti_gan import protocol as verti_gan
from understudy.protocols.papers.verti_gan.protocol import VertiGanParty, VertiGanRound
from understudy.protocols.papers.vertical_gans import party as gan_party
from understudy.report.page import write_report
from understudy.runs.federation import Federation

SETTINGS = {
    "sampling": "shared",
    "rounds": 4,
    "critic_steps": 5,
    "batch": 12,
    "device": "cpu",
    "seed": 7,
    "checkpoint_every": 2,
}
BUDGET = Budget(epsilon=4.0, delta=1e-5, against="outsider")
PEOPLE = 60


def holders() -> tuple[dict[str, Any], dict[str, Any]]:
    frame, schema = toy(rows=PEOPLE, seed=3)
    names = {"clinic": schema.names[::2], "insurer": schema.names[1::2]}
    tables = {name: frame[["id", *columns]] for name, columns in names.items()}
    return tables, {name: schema.select(columns) for name, columns in names.items()}


class Spy:
    """What batches and which secrets the parties of a run worked with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[list[Tensor]] = []
        self.secrets: list[bytes] = []
        draw = gan_party.poisson_samples
        respond = VertiGanParty.respond

        def watched(*drawn: Any) -> list[Tensor]:
            self.batches.append(draw(*drawn))
            return self.batches[-1]

        def asked(party: VertiGanParty, ask: Any) -> Any:
            self.secrets += (
                [getattr(ask, "batches", b"")] if isinstance(ask, VertiGanRound) else []
            )
            return respond(party, ask)

        monkeypatch.setattr(gan_party, "poisson_samples", watched)
        monkeypatch.setattr(VertiGanParty, "respond", asked)

    def rounds(self) -> list[list[list[int]]]:
        """The batches of each round at the first party."""
        return [[batch.tolist() for batch in batches] for batches in self.batches[::2]]


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy(monkeypatch)


def real(folder: Path) -> Federation:
    return Federation(*holders(), budget=BUDGET, ledgers=folder / "ledgers")


def rebuilt(card: dict[str, Any]) -> list[list[list[int]]]:
    """An outsider's guess: every draw that the card's settings decide, made again."""
    config = card["config"]
    draws = torch.Generator().manual_seed(card["config"]["seed"])
    rate = config["batch"] / card["people"]
    batches = []
    for _ in range(config["rounds"]):
        rng = FastRng(int(torch.randint(2**62, (), generator=draws)))
        drawn = poisson_samples(rng, card["people"], rate, config["critic_steps"])
        batches.append([batch.tolist() for batch in drawn])
    return batches


def test_an_outsider_cannot_rebuild_the_batches_from_what_is_published(
    tmp_path: Path, spy: Spy
) -> None:
    result = train("verti-gan", real(tmp_path), folder=tmp_path / "run", **SETTINGS)
    result.save(tmp_path / "run")
    write_report(tmp_path / "run", publish=True)
    card = json.loads((tmp_path / "run/generator/card.json").read_text())
    pairs = zip(spy.batches[::2], spy.batches[1::2], strict=True)
    # they are shared
    assert all(
        torch.equal(torch.cat(mine), torch.cat(theirs)) for mine, theirs in pairs
    )
    assert not any(
        guess == true for guess, true in zip(rebuilt(card), spy.rounds(), strict=True)
    )
    secrets = set(spy.secrets)
    assert len(secrets) == 4
    assert {len(secret) for secret in secrets} == {32}
    # checkpoints, states and ledgers too
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        body = file.read_bytes()
        for secret in secrets:
            numbers = str(list(secret))[1:-1]
            forms = (
                secret,
                secret.hex().encode(),
                base64.b64encode(secret),
                numbers.encode(),
            )
            assert not any(form in body for form in forms), file


def test_the_same_settings_give_other_batches_in_every_run_and_the_same_in_a_rehearsal(
    spy: Spy, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        train("verti-gan", real(tmp_path / name), **SETTINGS | {"rounds": 2})
    for _ in range(2):
        rehearsal = Federation.rehearsal(*holders(), budget=BUDGET, seed=1)
        train("verti-gan", rehearsal, **SETTINGS | {"rounds": 2})
    one, two, rehearsed, again = (spy.rounds()[n : n + 2] for n in range(0, 8, 2))
    assert not any(batch in two for batch in one)
    assert rehearsed == again


def test_a_rehearsals_seed_at_one_party_does_not_make_the_batches_of_others_public(
    spy: Spy, tmp_path: Path
) -> None:
    for folder in (tmp_path / "one", tmp_path / "two"):
        seeded = Federation.rehearsal(*holders(), budget=BUDGET, seed=1)
        mixed = Federation.from_holders(
            [seeded.holders["clinic"], real(folder).holders["insurer"]]
        )
        train("verti-gan", mixed, **SETTINGS | {"rounds": 1})
    assert spy.rounds()[0] != spy.rounds()[1]


class GoneError(Exception):
    """The process is gone."""


def kill_after(round: int) -> Callable[[Progress], None]:
    def watch(progress: Progress) -> None:
        if progress.done == round:
            raise GoneError

    return watch


def test_rounds_that_are_asked_again_have_new_batches_and_nobody_takes_part_unpaid(
    tmp_path: Path, spy: Spy
) -> None:
    """Were the batch of a lost round drawn again, one sample would be used twice and
    priced as two.
    """
    home = {"folder": tmp_path / "run", "run": "r", **SETTINGS, "rounds": 6}
    budget = Budget(epsilon=120.0, delta=1e-5)

    def federation() -> Federation:
        return Federation(*holders(), budget=budget, ledgers=tmp_path / "ledgers")

    for round in (3, 5):  # rounds 3 and 5 are lost, and asked again
        with pytest.raises(GoneError):
            train(
                "verti-gan",
                federation(),
                watch=kill_after(round),
                resume=round > 3,
                **home,
            )
    train("verti-gan", federation(), resume=True, **home)
    rounds = spy.rounds()
    assert len(rounds) == 8
    assert all(one != other for one, other in itertools.combinations(rounds, 2))
    taken = np.bincount(
        list(itertools.chain(*itertools.chain(*rounds))), minlength=PEOPLE
    )
    spend = federation().holders["clinic"].ledger.spend(against="anyone", run="r")
    assert sum(spend.values()) >= taken.max()


def test_a_party_takes_no_batches_from_a_secret_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = real(tmp_path)
    monkeypatch.setattr(verti_gan.GanServer, "secret", lambda server, size: bytes(8))
    with raises(
        MessageError,
        effect=Effect.NOTHING_CHARGED,
        match="8 bytes for batches, not of 32",
    ):
        train("verti-gan", federation, run="r", **SETTINGS)
    assert not federation.holders["clinic"].ledger.spend(run="r")


# What a common sample costs


def exact(p: NDArray[np.float64], q: NDArray[np.float64], delta: float) -> float:
    """The least ε ≥ 0 at which ∫(p − e^ε q)₊ and ∫(q − e^ε p)₊ are at most δ, for
    masses on a grid.
    """
    low = 0.0
    high = 60.0
    for _ in range(40):
        middle = (low + high) / 2
        factor = np.exp(middle)
        over = max(
            np.maximum(p - factor * q, 0).sum(), np.maximum(q - factor * p, 0).sum()
        )
        low, high = (middle, high) if over > delta else (low, middle)
    return high


def normal(x: NDArray[np.float64], mean: float, sigma: float) -> NDArray[np.float64]:
    mass = np.exp(-(((x - mean) / sigma) ** 2) / 2)
    return mass / mass.sum()


def axis(sigma: float, points: int = 401) -> NDArray[np.float64]:
    return np.linspace(0.5 - 9 * sigma - 0.5, 0.5 + 9 * sigma + 0.5, points)


def step(rate: float, sigma: float) -> dp.DpEvent:
    return dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(sigma))


def both(
    one: dict[dp.DpEvent, int], other: dict[dp.DpEvent, int], steps: int | None
) -> PrivacyStatement:
    parties = tuple(
        PartyPrivacy(
            name=name,
            budget=Budget(4.0, 1e-5),
            outsider=s,
            insider=s,
            noise="AES",
            people=PEOPLE,
        )
        for name, s in (("one", one), ("other", other))
    )
    return PrivacyStatement(parties=parties, common_steps=steps)


@pytest.mark.parametrize(("rate", "sigmas"), [(0.2, (0.8, 0.8)), (0.05, (0.7, 1.1))])
def test_one_common_step_costs_what_integrating_both_parties_outputs_says(
    rate: float, sigmas: tuple[float, float]
) -> None:
    """The oracle is the mixture of two-dimensional Gaussians itself, on a grid."""
    axes = [axis(sigma) for sigma in sigmas]
    without = np.outer(*(normal(x, 0, s) for x, s in zip(axes, sigmas, strict=True)))
    there = np.outer(*(normal(x, 1, s) for x, s in zip(axes, sigmas, strict=True)))
    true = exact((1 - rate) * without + rate * there, without, 1e-5)
    one, other = ({step(rate, sigma): 1} for sigma in sigmas)
    assert (
        true <= both(one, other, 1).epsilon(against="outsider") * 1.0001 <= true * 1.01
    )
    # as if each had drawn by itself
    assert both(one, other, None).epsilon(against="outsider") < 0.95 * true


def test_two_common_steps_cost_what_integrating_both_says() -> None:
    rate = 0.2
    sigmas = (1.0, 1.4)
    # of the weighted mean of a step's two outputs, which tells all
    sigma = sum(s**-2 for s in sigmas) ** -0.5
    x = axis(sigma)
    without = normal(x, 0, sigma)
    there = normal(x, 1, sigma)
    mixed = (1 - rate) * without + rate * there
    true = exact(np.outer(mixed, mixed), np.outer(without, without), 1e-5)
    one, other = ({step(rate, s): 2} for s in sigmas)
    assert (
        true <= both(one, other, 2).epsilon(against="outsider") * 1.0001 <= true * 1.01
    )
    assert both(one, other, None).epsilon(against="outsider") < true


def test_whichever_steps_were_common_the_stated_price_is_no_less() -> None:
    """A round that one party paid and the other refused, or that was lost and asked
    again, leaves counts unequal.
    """
    one = step(0.1, 0.8)
    other = step(0.1, 1.2)
    merged = step(0.1, (0.8**-2 + 1.2**-2) ** -0.5)
    for mine, theirs, known in ((6, 4, 3), (5, 5, 4), (3, 0, 0)):
        stated = epsilon(
            spent_together([{one: mine}, {other: theirs}], steps=known), 1e-5
        )
        for common in range(known, min(mine, theirs) + 1):
            true = {merged: common, one: mine - common, other: theirs - common}
            assert epsilon(true, 1e-5) <= stated * 1.0001, (mine, theirs, common)
    assert spent_together([{one: 6}, {other: 6}], steps=6) == {merged: 6}


def test_different_noise_and_rates_are_bounded_by_the_least_noise_and_the_largest_rate():
    mine = {step(0.1, 0.8): 2, step(0.1, 0.9): 1, dp.GaussianDpEvent(5.0): 1}
    theirs = {step(0.2, 1.2): 3}
    merged = step(0.2, (0.8**-2 + 1.2**-2) ** -0.5)
    assert spent_together([mine, theirs], steps=3) == {
        merged: 3,
        dp.GaussianDpEvent(5.0): 1,
    }


def test_who_knows_the_batches_is_priced_as_before() -> None:
    plain = {dp.GaussianDpEvent(2.0): 4}
    spends = both(plain, plain, 10)
    assert spends.epsilon(against="server") == epsilon(
        {dp.GaussianDpEvent(2.0): 8}, 1e-5
    )
