"""Cases for the audit: the person to be found, and who searches each protocol for them.

Rows are made up from the public schema. Everybody has the first level in every column
and the canary the last, so that no other row resembles theirs.

VertiGAN (`protocols/papers/verti_gan`) is searched by two adversaries: *the server*
knows the generator that it sent, the latent points and the critic's first weights. It
works out what the party would answer if it held the canary alone and added no noise,
and what if it held nobody; a run's score is how far its replies go along the
difference. *Who sees every step*: the accountant prices the noised gradients as if each
were published, to somebody who knows all other rows and draws. Take the others' clipped
gradients away, and what is left is noise, and perhaps the canary: [drawn]·c + N(0,
(σC)²). The score is the logarithm of the likelihood ratio over all steps, the best test
there is (Neyman, Pearson 1933; access to gradients in the words of Nasr et al. 2021).

Guarantee: parties, `train` and ledgers are the real ones, and no real row is read. The
target's critic round is watched; in the world without the canary it leaves them out of
the batches that were drawn and paid for.
Edges: rounds are few and networks tiny, so noise is calibrated anew for the same ε and
sampling rate.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from understudy.data.kinds import TABLE
from understudy.data.schema import Boolean, Schema
from understudy.evaluate.audit.auditing import (
    SERVER,
    UNREAD,
    Case,
    RecordingParties,
    rehearsal_options,
)
from understudy.ground.errors import ConfigError
from understudy.models.kernels.clients import RmsProp
from understudy.models.nets.gan import densify
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.gradients.critic import clipped_gradient_sum
from understudy.privacy.noise import Normals
from understudy.protocols.core import Parties, Progress, Reply
from understudy.protocols.papers.verti_gan import protocol as verti_gan
from understudy.protocols.papers.verti_gan.party import VertiGanParty
from understudy.protocols.papers.vertical_gans.critic_round import CriticRound
from understudy.protocols.papers.vertical_gans.party import Gradient

STEPS = "one who also sees every noised step and knows everybody else"
OTHER = "another party"
# the most of an audited run
ROUNDS = 2
CRITIC_STEPS = 10


@dataclass(frozen=True, kw_only=True)
class CanaryScenario:
    """Who is there. `alone`: at most the canary, in every batch, and no noise."""

    canary: int
    present: bool
    alone: bool = False


class _LastRoundAnswered(Exception):  # noqa: N818 - nothing is wrong
    """The last round is answered."""


class _PlainDescent(RmsProp):
    """As `torch.optim.SGD`, which would load PyTorch's compiler."""

    @torch.no_grad()
    def step(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.add_(parameter.grad, alpha=-self.lr)


class WatchedRound(CriticRound):
    """A party's real critic round, watched by somebody who knows all but the noise and
    one person.
    """

    scenario: CanaryScenario
    rate: float | None
    evidence: float
    occurrences: Tensor

    def watch_canary(self, scenario: CanaryScenario, rate: float | None) -> Self:
        """In this world. `rate`: how likely the canary is drawn; None where it is known
        when.
        """
        self.scenario = scenario
        self.rate = rate
        self.evidence = 0.0
        # how often each person was
        self.occurrences = torch.zeros(len(self.rows), dtype=torch.int64)
        if scenario.alone:
            self.noise_multiplier = 0.0
            # Under much noise RMSprop divides by about the same everywhere: the mean
            # moves as in plain descent.
            self.optimizer = _PlainDescent(self.critic.parameters(), lr=0.01)
        return self

    def __call__(self, batches: Sequence[Tensor], seed: int) -> Tensor:
        canary = self.scenario.canary
        self.occurrences += torch.bincount(
            torch.cat(list(batches)), minlength=len(self.occurrences)
        )
        if self.scenario.alone:
            batches = [torch.tensor([canary])] * len(batches)
        watched_batches = [
            batch if self.scenario.present else batch[batch != canary]
            for batch in batches
        ]
        self._known = iter(
            [
                (bool((b == canary).any()), k != canary)
                for b, k in zip(batches, watched_batches, strict=True)
            ]
        )
        # in place of the secret synthetic row that the canary is paired with
        with torch.no_grad():
            self._stand_in = self.network.branch(self.name, self.latent(seed)).mean(
                0, keepdim=True
            )
        return super().__call__(watched_batches, seed)

    def step(
        self,
        real: Tensor,
        fake: Tensor,
        mix: Tensor,
        noise: Normals,
        mask: Tensor | None = None,
    ) -> None:
        canary, (canary_sampled, not_canary) = self.scenario.canary, next(self._known)
        canary_gradient = self._clipped(
            self.rows[canary : canary + 1], self._stand_in, torch.tensor([0.5])
        )
        others_sum = self._clipped(real[not_canary], fake[not_canary], mix[not_canary])
        super().step(real, fake, mix, noise, mask)
        if self.scenario.alone:
            return
        noised = _flatten(
            [(weight.grad, bias.grad) for weight, bias in self.critic.layers]
        )
        residual = noised * self.batch - others_sum
        ratio = (
            float(residual @ canary_gradient - canary_gradient @ canary_gradient / 2)
            / (self.noise_multiplier * self.clip_norm) ** 2
        )
        if self.rate is None:
            self.evidence += ratio * canary_sampled
        else:  # log(1 − q + q·e^ratio)
            self.evidence += float(
                np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + ratio)
            )

    def _clipped(self, real: Tensor, fake: Tensor, mix: Tensor) -> Tensor:
        if not len(real):
            return torch.zeros(())
        total = clipped_gradient_sum(
            self.critic.layers,
            real,
            fake,
            mix,
            clip_norm=self.clip_norm,
            penalty=self.penalty,
            slope=self.critic.slope,
        )
        return _flatten(total)


class WatchedParty(VertiGanParty):
    """The audited party: all but its critic round is as it is."""

    round_type = WatchedRound

    def __init__(self, scenario: CanaryScenario, *holder: Any, **more: Any) -> None:
        super().__init__(*holder, **more)
        self.scenario = scenario

    @cached_property
    def critic_round(self) -> WatchedRound:
        secret = self.config.sampling == "private" and self.rate < 1
        return cast(WatchedRound, super().critic_round).watch_canary(
            self.scenario, self.rate if secret else None
        )


class IdleRound(CriticRound):
    def __call__(self, batches: Sequence[Tensor], seed: int) -> Tensor:
        return torch.zeros(
            sum(parameter.numel() for parameter in self.network.parameters())
        )


class IdleParty(VertiGanParty):
    """The other party: the adversary's own, who does not mind what it sends."""

    round_type = IdleRound


@dataclass(frozen=True, kw_only=True)
class VertiGanAudit:
    """VertiGAN at one party with this schema and budget, among so many people."""

    config: verti_gan.Config
    schema: Schema
    budget: Budget
    people: int
    name: str = "target"

    def case(self) -> Case:
        """One person there or not, searched by the server and by one who sees every
        step.
        """
        if not self.config.private:
            raise ConfigError(
                "private = false claims no guarantee, so there is nothing to refute."
            )
        # Where batches are known to all, the person with the highest spend is the one
        # drawn most often.
        canary = 0
        if self.config.sampling == "shared":
            canary = int(
                self._after_run(CanaryScenario(canary=0, present=True))[
                    0
                ].critic_round.occurrences.argmax()
            )
        scenarios = (
            CanaryScenario(canary=canary, present=present, alone=True)
            for present in (True, False)
        )
        towards, away = (
            gradients(*self._after_run(scenario)) for scenario in scenarios
        )

        def server(party: Any, replies: list[Reply]) -> float:
            return float(gradients(party, replies) @ (towards - away))

        def steps(party: Any, replies: list[Reply]) -> float:
            return float(party.critic_round.evidence)

        rounds = (
            f"verti-gan, {self.config.rounds} rounds of {self.config.critic_steps} "
            "steps"
        )
        return Case(
            target=self.name,
            train=self._train,
            scores={SERVER: server, STEPS: steps},
            parties=lambda present, trial: self._parties(
                CanaryScenario(canary=canary, present=present), trial
            ),
            notes=(
                f"{rounds}, {self.config.batch} of {self.people} people in a step",
                UNREAD,
            ),
        )

    @cached_property
    def _schemas(self) -> dict[str, Schema]:
        schema = self.schema if self.schema.person is None else self.schema.as_drawn()
        return {self.name: schema, OTHER: Schema(columns=(Boolean(name=OTHER),))}

    def _parties(
        self, scenario: CanaryScenario, trial: int
    ) -> dict[str, VertiGanParty]:
        def holder(number: int, name: str) -> dict[str, Any]:
            return {
                "name": name,
                "table": TABLE.made_up(
                    self._schemas[name], self.people, scenario.canary
                ),
                **rehearsal_options(name, self.budget, 2 * trial + number),
            }

        return {
            self.name: WatchedParty(scenario, **holder(0, self.name)),
            OTHER: IdleParty(**holder(1, OTHER)),
        }

    def _train(self, parties: Parties) -> None:
        """All rounds: what the server makes of them afterwards tells nobody more."""

        def watch(progress: Progress) -> None:
            if progress.done == progress.rounds:
                raise _LastRoundAnswered

        with suppress(_LastRoundAnswered):
            verti_gan.train(self.config, parties, self._schemas, watch=watch)

    def _after_run(self, scenario: CanaryScenario) -> tuple[Any, list[Reply]]:
        """The audited party after a run in this world, and what it said."""
        recording = RecordingParties(self._parties(scenario, 0))
        self._train(recording)
        return recording.parties[self.name], recording.replies[self.name]


def gradients(party: Any, replies: list[Reply]) -> Tensor:
    size = sum(parameter.numel() for parameter in party.network.parameters())
    sent = [reply for reply in replies if isinstance(reply, Gradient)]
    return torch.cat(
        [densify(cast(dict[str, Any], reply.gradient.value), size) for reply in sent]
    )


def _flatten(layers: Sequence[tuple[Tensor | None, Tensor | None]]) -> Tensor:
    return torch.cat(
        [part.flatten() for pair in layers for part in pair if part is not None]
    )


def shrink_config(
    config: verti_gan.Config, people: int
) -> tuple[verti_gan.Config, int]:
    """The same run in miniature, at the same sampling rate or one very close to it, and
    its number of people.
    """
    rate = min(1.0, config.batch / people)
    ratios = [
        Fraction(rate).limit_denominator(max_denominator)
        for max_denominator in (5, 10, 20, 40)
    ]
    close = (ratio for ratio in ratios if abs(ratio - rate) <= rate / 20)
    ratio = next(close, Fraction(1, round(1 / rate)))
    scale = 2 if ratio.denominator == 1 else 1  # nobody trains on one person
    small = replace(  # a critic's one slope is seen whole in the generator's gradient
        config,
        rounds=min(config.rounds, ROUNDS),
        critic_steps=min(config.critic_steps, CRITIC_STEPS),
        batch=scale * ratio.numerator,
        latent=4,
        common=(8,),
        critic_hidden=(1,),
        device="cpu",
    )
    return small, scale * ratio.denominator
