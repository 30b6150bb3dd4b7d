"""A party of VertiGAN: its settings, the asks it knows, and what it does with its rows.
The paper: `protocol`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from dp_accounting import dp_event
from torch import Tensor

from understudy.ground.errors import Effect, MessageError, PartyError
from understudy.ground.settings import SHARE, between, choice, setting
from understudy.models.nets.gan import BranchedGenerator, sparsify
from understudy.privacy.accounts.accounting import DpEvent
from understudy.privacy.accounts.ledger import Receipt
from understudy.privacy.gradients.limits import WEIGHT, sound_weights, within_limits
from understudy.privacy.noise import Rng, SecureRng
from understudy.protocols.core import Message, Opening, Paid
from understudy.protocols.papers.vertical_gans import party as gan_party
from understudy.protocols.papers.vertical_gans.party import (
    CriticParty,
    GanSettings,
    Gradient,
    split_like,
)

SECRET_BYTES = 32  # of what a round's common batches follow from: a key of `SecureRng`


@dataclass(frozen=True, kw_only=True)
class Config(GanSettings):
    """`sampling`: own or common batches. `upload`: the share of gradients sent (§7.2).
    `coupling…`: `coupling.py`.
    """

    protocol: ClassVar[str] = "verti-gan"

    clip_norm: float = setting(
        1.0, within_limits("clip_norm"), "the longest gradient of one person"
    )
    sampling: str = setting(
        "private",
        choice("private", "shared"),
        "private: each its own batches; shared: the same, against outsiders",
    )
    upload: float = setting(1.0, SHARE, "share of gradients that is sent")
    coupling: str = setting(
        "none",
        choice("none", "gram"),
        "gram: joint tables are released first, and steer the GAN",
    )
    coupling_share: float = setting(
        0.3, between(0.01, 0.99), 'share of ε for the joint tables of coupling = "gram"'
    )
    coupling_weight: float = setting(
        1.0,
        within_limits("coupling_weight"),
        "the joint tables' gradient over the critics'",
    )

    @property
    def steps(self) -> int:
        return self.rounds * self.critic_steps


class Couple(Opening, kind="verti-gan.couple"):
    """The parties' joint tables are to be released first, for `coupling_share` of your
    ε.
    """


class VertiGanBegin(gan_party.GanBegin, kind="verti-gan.begin"):
    """The run's settings, and the network with the common layers and only this party's
    branch.
    """

    network: dict[str, Any]


class VertiGanRound(gan_party.GanRound, kind="verti-gan.round"):
    """Common layers and this party's branch as one vector, and the seed of the latent
    points.

    `batches` is a secret of the server and the parties (32 bytes), and empty where each
    party draws its own batches.
    """

    seed: int
    weights: Tensor
    batches: bytes = b""


class VertiGanParty(CriticParty):
    """One holder of columns. Its critic and its rows stay with it. Whatever rows and
    weights are, an answer is finite (`privacy/gradients/limits.py`, `CriticRound`).
    Edges: weights of another number, that are not float32, or beyond 10⁹ →
    MessageError, nothing is charged. On a GPU, from a server of this process, those
    beyond 10⁹ are taken for zeros (`limits.sound`).
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        *CriticParty.messages,
        VertiGanBegin,
        VertiGanRound,
    )
    config_type = Config
    begin_type = VertiGanBegin
    config: Config

    # Algorithm 2, LocalInitialization
    def open(self, begin: VertiGanBegin) -> None:
        super().open(begin)
        self.network = BranchedGenerator.from_description(begin.network).to(self.device)
        if self.network.widths != {self.name: self.width}:
            raise PartyError(
                f"{self.name}: the server's network does not fit this schema.",
                effect=Effect.NOTHING_CHARGED,
            )
        self.participations = torch.zeros(self.aligned.rows, dtype=torch.int64)

    # Algorithm 2, LocalUpdate
    def _round(self, ask: VertiGanRound) -> Gradient:
        weights = sound_weights(
            ask.weights, sum(part.numel() for part in self.network.parameters())
        )
        if weights is None:
            raise MessageError(
                f"{self.name}: the weights do not fit the network, or are beyond "
                f"{WEIGHT:g}.",
                effect=Effect.NOTHING_CHARGED,
            )
        if type(ask.seed) is not int or not 0 <= ask.seed < 1 << 63:
            raise MessageError(
                f"{self.name}: the ask has no seed for latent points.",
                effect=Effect.NOTHING_CHARGED,
            )
        batches = self.batches(self._batch_rng(ask.batches))
        receipt = self._pay(ask.round, batches)
        with torch.no_grad():
            parameters, parts = zip(
                *split_like(self.network.parameters(), weights.to(self.device)),
                strict=True,
            )
            # in place: a captured graph reads these
            torch._foreach_copy_(parameters, parts)
        gradient = self.critic_round(batches, ask.seed)
        return Gradient(gradient=Paid(sparsify(gradient, self.config.upload), receipt))

    def events(self, noise_multiplier: float) -> dict[str, DpEvent]:
        """What one critic step costs. Against who knows the batches a participation is
        not amplified.
        """
        amplified = self.amplified(noise_multiplier)
        step = dp_event.GaussianDpEvent(noise_multiplier)
        return {
            "outsider": amplified,
            "anyone": amplified if self.config.sampling == "private" else step,
        }

    def uses(self) -> dict[str, int]:
        """How often each price is paid at most; the ledger counts what happens, and
        ends a run that does it more.
        """
        steps = self.config.steps
        expected = self.config.steps * self.rate
        max_participations = min(steps, math.ceil(expected + 6 * math.sqrt(expected)))
        return {
            "outsider": steps,
            "anyone": steps
            if self.config.sampling == "private"
            else max_participations,
        }

    def _batch_rng(self, shared: bytes) -> Rng:
        """What says who is in each critic step: this party's secret, or the
        shared one.
        """
        n_bytes = SECRET_BYTES if self.config.sampling == "shared" else 0
        if len(shared) != n_bytes:
            raise MessageError(
                f"{self.name}: a secret of {len(shared)} bytes for batches, not of "
                f"{n_bytes}.",
                effect=Effect.NOTHING_CHARGED,
            )
        return SecureRng(shared) if n_bytes else self.rng

    def _pay(self, round: int, batches: list[Tensor]) -> Receipt:
        """Charge the round before any of it is computed."""
        purpose = f"round {round}: {len(batches)} critic steps"
        anyone = len(batches)
        if self.config.sampling == "shared":
            occurrences = torch.bincount(
                torch.cat(batches), minlength=len(self.participations)
            )
            participations = self.participations + occurrences
            # adds up to the busiest person's
            anyone = int(participations.max() - self.participations.max())
            receipt = self.pay(purpose, len(batches), anyone)
            # not before: what is refused pays for no later round
            self.participations = participations
            return receipt
        return self.pay(purpose, len(batches), anyone)

    def _uses_charged(self) -> int:
        return sum(self.ledger.spend(against="outsider", run=self.run).values())

    def work_state(self) -> dict[str, Any]:
        shared = (
            {"uses": self._uses_charged()} if self.config.sampling == "shared" else {}
        )
        return super().work_state() | {"participations": self.participations} | shared

    def load_work(self, state: Mapping[str, Any]) -> None:
        super().load_work(state)
        self.participations = state["participations"]
        if self.config.sampling == "shared" and state["uses"] != self._uses_charged():
            # Rounds were paid for after this state, and who was in them is forgotten.
            # The charges so far bound everybody's participations so far: counted from
            # nothing again, the two add up to enough.
            self.participations = torch.zeros_like(self.participations)
