"""Would anybody notice? Each test breaks one thing that a guarantee rests on, and a
check must go red: six bugs of VertiGAN, one of each kind (sensitivity, size of the
noise, noise used again, sampling rate, charge, secrets). Those of gram are in
`protocols/test_gram_planted_bugs.py`.

A check is a function that raises AssertionError. Every one passes on the code as it is,
and fails with the bug. False alarms: the audit runs at a confidence of 99 %, the
statistical checks allow six standard errors (2·10⁻⁹ each), the others are exact. All
seeds are fixed, so that a test that passed once passes always.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from dp_accounting import PoissonSampledDpEvent
from protocol_cases import CASES
from torch import Tensor

from refusals import raises
from understudy.data.schema import Boolean, Ordinal, Schema
from understudy.evaluate.audit.auditing import audit_protocol
from understudy.evaluate.audit.canaries import VertiGanAudit
from understudy.ground.errors import BudgetExceeded, Effect
from understudy.models.nets.gan import sparsify
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.gradients import critic
from understudy.privacy.noise.rng import FastRng, Rng, SecureRng, poisson_samples
from understudy.protocols.core.base import Paid
from understudy.protocols.papers.verti_gan import protocol as verti_gan
from understudy.protocols.papers.verti_gan.party import VertiGanParty, VertiGanRound
from understudy.protocols.papers.vertical_gans import critic_round
from understudy.protocols.papers.vertical_gans import party as gan_party
from understudy.protocols.papers.vertical_gans.critic_round import (
    CriticRound,
    PresampledNormals,
)
from understudy.protocols.papers.vertical_gans.party import Gradient, split_like
from understudy.runtime.local import LocalParties

Patch = pytest.MonkeyPatch
CASE = CASES[0]
SCHEMA = Schema(
    columns=(Boolean(name="smoker"), Ordinal(name="grade", categories=(1, 2, 3)))
)


# Checks


def audit(
    *,
    batch: int = 2,
    people: int = 2,
    steps: int = 1,
    trials: int = 20,
    epsilon: float = 2.0,
) -> None:
    """The empirical audit finds no more than the ledger says."""
    config = verti_gan.Config(
        rounds=1,
        critic_steps=steps,
        batch=batch,
        clip_norm=0.1,  # far below what the canary would be without it
        latent=2,
        common=(4,),
        critic_hidden=(1,),
        device="cpu",
    )
    case = VertiGanAudit(
        config=config, schema=SCHEMA, budget=Budget(epsilon, 1e-5), people=people
    ).case()
    result = audit_protocol(case, trials=trials, confidence=0.99)
    assert result.passed, str(result)


def longer_audit() -> None:
    """More trials, for a finer look."""
    audit(trials=30, epsilon=4.0)


def audit_on_samples() -> None:
    """The audit of two steps on one in fifty, who are drawn in secret: nobody may be
    seen in half of the runs.
    """
    audit(batch=1, people=50, steps=2, epsilon=7.0)


def begun_party(seed: int = 11, **settings: Any) -> VertiGanParty:
    """A party of a small run after its first round, and before it is asked again."""
    federation = CASE.federation(seed)
    parties = federation.parties("verti-gan", run="planted")
    config = replace(CASE.config(), rounds=1, **settings)
    verti_gan.train(config, LocalParties(parties), federation.schemas)
    party = parties["holder 0"]
    assert isinstance(party, VertiGanParty)
    return party


@contextmanager
def noised_steps() -> Iterator[list[dict[str, Any]]]:
    """Every private step that is taken meanwhile: what went in, and what came out."""
    calls: list[dict[str, Any]] = []
    honest = critic_round.private_critic_gradient

    def spy(
        layers: Any, real: Tensor, fake: Tensor, mix: Tensor, **settings: Any
    ) -> Any:
        out = honest(layers, real, fake, mix, **settings)
        flat = torch.cat([part.flatten() for pair in out for part in pair])
        calls.append({"real": real, "fake": fake, "mix": mix, "out": flat, **settings})
        return out

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(critic_round, "private_critic_gradient", spy)
        yield calls


def one_person_moves_a_step_by_at_most_the_clip_norm() -> None:
    """The same noise with and without a person: all that differs is the person's
    clipped gradient.
    """
    party = begun_party()
    work = party.critic_round
    rng = FastRng(3)
    rows = work.rows[:5]
    fake = work.network.branch(party.name, rng.normal(5, work.network.latent)).detach()
    mix = rng.uniform(5).float()
    normals = rng.normal(sum(p.numel() for p in work.critic.parameters()))
    before = work.state_dict()["critic"]
    before = {name: value.clone() for name, value in before.items()}

    def noised(people: list[int]) -> Tensor:
        work.critic.load_state_dict(before)
        with noised_steps() as calls, torch.no_grad():
            work.step(
                rows[people],
                fake[people],
                mix[people],
                PresampledNormals(normals.clone()),
            )
        return calls[0]["out"] * work.batch

    for group in ([0, 1, 2, 3, 4], [0, 1], [0]):
        for gone in group:
            rest = [person for person in group if person != gone]
            moved = float((noised(group) - noised(rest)).norm())
            assert moved <= work.clip_norm * (1 + 1e-4), (
                f"person {gone} of {group} moved the sum by {moved}"
            )


def noise_has_its_size_and_is_fresh() -> None:
    """Steps on empty batches are noise alone: of the size that was paid for, and new in
    every step and round.
    """
    party = begun_party(critic_hidden=(16,))
    work = party.critic_round
    nobody = [torch.arange(0)] * 10
    with noised_steps() as calls:
        work(nobody, 1)
        work(nobody, 1)
    event = next(iter(party.ledger.spend()))
    scale = event.event.noise_multiplier * work.clip_norm / work.batch
    # standard normal, (20, parameters)
    noise = torch.stack([call["out"] for call in calls]).double() / scale
    n = noise.numel()
    assert abs(float(noise.square().mean()) - 1) < 6 * (2 / n) ** 0.5
    for lag in (1, 10):
        together = noise[lag:] * noise[:-lag]
        assert abs(float(together.mean())) < 6 / together.numel() ** 0.5


def people_are_drawn_as_often_as_paid_for() -> None:
    """The number of people in the batches fits the rate in the ledger."""
    party = begun_party()
    event = next(iter(party.ledger.spend()))
    assert isinstance(event, PoissonSampledDpEvent)
    rate = event.sampling_probability
    people = party.aligned.rows
    drawn = [
        len(batch) for _ in range(200) for batch in party.batches(party._batch_rng(b""))
    ]
    chances = len(drawn) * people
    assert abs(sum(drawn) - chances * rate) < 6 * (chances * rate * (1 - rate)) ** 0.5


def nothing_is_computed_unpaid() -> None:
    """Whenever rows are touched, the ledgers hold at least as many uses as there have
    been.
    """
    federation = CASE.federation()
    parties = federation.parties("verti-gan", run="planted")
    honest = critic_round.private_critic_gradient
    used = 0

    def spy(*inputs: Any, **settings: Any) -> Any:
        nonlocal used
        used += 1
        paid = sum(
            sum(holder.ledger.spend().values())
            for holder in federation.holders.values()
        )
        assert used <= paid, f"use {used} with {paid} paid for"
        return honest(*inputs, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(critic_round, "private_critic_gradient", spy)
        verti_gan.train(CASE.config(), LocalParties(parties), federation.schemas)
    assert used == 2 * CASE.config().steps


def partners_are_secret() -> None:
    """Under the same public seeds, two secret keys pair the same rows with other
    synthetic rows and weights.
    """

    def partners(seed: int) -> dict[str, Any]:
        party = begun_party()
        party.critic_round.rng = SecureRng.from_seed(seed)
        with noised_steps() as calls:
            party.critic_round([torch.arange(5)], 1)
        return calls[0]

    one = partners(1)
    other = partners(2)
    assert torch.equal(one["real"], other["real"])
    for secret in ("fake", "mix"):
        assert not torch.isclose(one[secret], other[secret]).all(), (
            f"{secret} is public"
        )


CHECKS = [
    longer_audit,
    audit_on_samples,
    one_person_moves_a_step_by_at_most_the_clip_norm,
    noise_has_its_size_and_is_fresh,
    people_are_drawn_as_often_as_paid_for,
    nothing_is_computed_unpaid,
    partners_are_secret,
]


# Bugs


def clipped_ten_times_too_late(patch: Patch) -> None:
    honest = critic.clipped_gradient_sum

    def loose(*rows: Any, clip_norm: float, **more: Any) -> Any:
        return honest(*rows, clip_norm=10 * clip_norm, **more)

    patch.setattr(critic, "clipped_gradient_sum", loose)


def a_quarter_of_the_noise(patch: Patch) -> None:
    honest = critic_round.private_critic_gradient
    patch.setattr(
        critic_round,
        "private_critic_gradient",
        lambda *rows, noise_multiplier, **more: honest(
            *rows, noise_multiplier=noise_multiplier / 4, **more
        ),
    )


def the_same_noise_in_every_round(patch: Patch) -> None:
    honest = CriticRound.draw

    def again(self: CriticRound, rows: int, steps: int) -> Any:
        z, mix, _ = honest(self, rows, steps)
        size = sum(p.numel() for p in self.critic.parameters())
        return z, mix, PresampledNormals(SecureRng.from_seed(5).normal(steps * size))

    patch.setattr(CriticRound, "draw", again)


def everybody_is_drawn(patch: Patch) -> None:
    def all_of_them(rng: Rng, n: int, rate: float, times: int) -> list[Tensor]:
        return poisson_samples(rng, n, 1.0, times)

    patch.setattr(gan_party, "poisson_samples", all_of_them)


def charged_after_use(patch: Patch) -> None:
    def late(self: VertiGanParty, ask: VertiGanRound) -> Gradient:
        batches = self.batches(self._batch_rng(ask.batches))
        with torch.no_grad():
            for parameter, part in split_like(self.network.parameters(), ask.weights):
                parameter.copy_(part)
        gradient = self.critic_round(batches, ask.seed)
        return Gradient(
            gradient=Paid(sparsify(gradient, 1.0), self._pay(ask.round, batches))
        )

    patch.setattr(VertiGanParty, "_round", late)


def latent_points_are_public(patch: Patch) -> None:
    """Handed out by position: removing one person shifts all others' partners."""
    honest = CriticRound.draw

    def draw(self: CriticRound, rows: int, steps: int) -> Any:
        z, mix, noise = honest(self, rows, steps)
        return FastRng(7).normal(*z.shape).float(), mix, noise

    patch.setattr(CriticRound, "draw", draw)


CAUGHT: list[tuple[Callable[[Patch], None], Callable[[], None]]] = [
    (clipped_ten_times_too_late, audit),
    (clipped_ten_times_too_late, one_person_moves_a_step_by_at_most_the_clip_norm),
    (a_quarter_of_the_noise, longer_audit),
    (a_quarter_of_the_noise, noise_has_its_size_and_is_fresh),
    (the_same_noise_in_every_round, noise_has_its_size_and_is_fresh),
    (everybody_is_drawn, audit_on_samples),
    (everybody_is_drawn, people_are_drawn_as_often_as_paid_for),
    (charged_after_use, nothing_is_computed_unpaid),
    (latent_points_are_public, partners_are_secret),
]


@pytest.mark.long
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_code_as_it_is_passes(check: Callable[[], None]) -> None:
    check()


@pytest.mark.long
@pytest.mark.parametrize(("plant", "check"), CAUGHT, ids=lambda each: each.__name__)
def test_a_planted_bug_is_caught(
    plant: Callable[[Patch], None], check: Callable[[], None], monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()


def test_noise_that_is_too_small_for_the_promise_is_refused_by_the_ledger(
    monkeypatch: Patch,
) -> None:
    honest = gan_party.calibrate
    monkeypatch.setattr(
        gan_party, "calibrate", lambda *price, **promise: honest(*price, **promise) / 2
    )
    with raises(BudgetExceeded, effect=Effect.NOTHING_SENT):
        begun_party()
