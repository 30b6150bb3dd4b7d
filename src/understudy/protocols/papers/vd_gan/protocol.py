"""VDGAN with DPSGD: the server sends synthetic rows of its generator, and a private
critic at each party judges them.

Zhang, "GAN-Based Differentially Private Publication of Vertically Partitioned Data"
(thesis, TUM 2022), Algorithms 1 and 3, §4.3 and §4.4.1: the server, the messages, what
all parties have in common, and those that judge by one private critic.
Paper → code: t → round, s → critic_steps, m → rows (synthetic ones a round) and batch
(real ones a critic step, expected), γ → learning_rate, GP's λ → penalty, C → clip_norm,
σ → noise_multiplier, D_k → `Critic`, X̃_k → `VdGanRound.rows`, g_X̃k →
`Gradient.gradient`.
Differs from the paper: a person's price is composed over the parties, which hold the
same people (Eq. 4.17 takes the maximum); the generator has a branch for each party
(`BranchedGenerator`); its loss is the mean over rows; add/remove of one person, so a
clipped gradient costs C, not 2C (Eq. 4.15); noise once a batch, not once a sample (Eq.
4.5); batches are Poisson samples, drawn in secret; a person is paired with a synthetic
row in secret too, not by place.

What it can learn: each party's own joint distribution. Nothing in the loss ties one
party's columns to another's, so cross-party dependence is not learned; evaluations show
the two apart.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.ground.errors import Effect, MessageError
from understudy.ground.settings import NOT_NEGATIVE, setting
from understudy.models.kernels.clients import RmsProp, along
from understudy.models.nets.gan import BranchedGenerator
from understudy.models.network import first_weights, on_device, pick_device
from understudy.privacy.accounts.accounting import DpEvent
from understudy.privacy.gradients.critic import require_sound
from understudy.privacy.gradients.limits import honest, within_limits
from understudy.protocols.core import VIEWS, Message, Paid, Parties, Watcher
from understudy.protocols.core.loop import Outcome
from understudy.protocols.papers.vertical_gans import party as gan_party
from understudy.protocols.papers.vertical_gans.party import (
    CriticParty,
    GanBegin,
    GanParty,
    Gradient,
    split_like,
)
from understudy.protocols.papers.vertical_gans.server import GanServer
from understudy.protocols.protocol import Protocol

# of the answers' entries; benchmarks/vd_gan/votes.csv: with fewer it learns little
FEWEST_NONZERO = 0.005


@dataclass(frozen=True, kw_only=True)
class VdGanSettings(gan_party.GanSettings, ABC):
    """What both kinds share. The thesis chose by grid search and names no values; those
    left out are VertiGAN's.
    """

    rows: int = setting(
        1000, within_limits("rows"), "synthetic rows that are judged in a round"
    )
    warm_up: int = setting(
        0, NOT_NEGATIVE, "rounds of training before the first shared round"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        honest(warm_up=self.warm_up or 1)

    @abstractmethod
    def uses(self, rounds: int) -> int:
        """How often the price has been paid after so many rounds."""


class VdGanRound(gan_party.GanRound, kind="vd-gan.round"):
    """This party's columns of the synthetic rows, as probabilities (rows, width)."""

    rows: Tensor


class VdGanParty(GanParty):
    """One holder of columns, who judges synthetic rows in its own way and answers
    (rows, width) gradients.
    Edges: rows of another shape or type, not finite or beyond 10⁶ → an error, and a
    spent budget → BudgetExceeded; nothing is charged or sent.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        *GanParty.messages,
        GanBegin,
        VdGanRound,
    )

    @abstractmethod
    def judge(self, synthetic: Tensor) -> Tensor:
        """Train on these rows (rows, width); ∇ of L_G = −D(x̃) at each, or its
        direction.
        """

    def uses(self) -> dict[str, int]:
        return dict.fromkeys(VIEWS, self.config.uses(self.config.rounds))

    def open(self, begin: GanBegin) -> None:
        super().open(begin)
        self.answered = 0

    def _round(self, ask: VdGanRound) -> Gradient:
        agreed = (self.config.rows, self.width)
        if ask.rows.shape != agreed or ask.rows.dtype != torch.float32:
            raise MessageError(
                f"{self.name}: synthetic rows of the form {tuple(ask.rows.shape)}, "
                f"{ask.rows.dtype}, came where "
                f"{agreed}, float32, was agreed.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        rows = require_sound(ask.rows)
        uses = self.config.uses(self.answered + 1) - self.config.uses(self.answered)
        receipt = self.pay(
            f"round {ask.round}: opinion on {len(ask.rows)} synthetic rows", uses
        )
        gradient = self.judge(rows.to(self.device))
        self.answered += 1
        return Gradient(gradient=Paid(gradient, receipt))

    def work_state(self) -> dict[str, Any]:
        return super().work_state() | {"answered": self.answered}

    def load_work(self, state: Mapping[str, Any]) -> None:
        super().load_work(state)
        self.answered = state["answered"]


@dataclass(frozen=True, kw_only=True)
class Config(VdGanSettings):
    """`warm_up`: rounds of a GAN at the party alone, before the first synthetic rows
    (§4.3.2).
    """

    protocol: ClassVar[str] = "vd-gan-dpsgd"

    clip_norm: float = setting(
        1.0, within_limits("clip_norm"), "the longest gradient of one person"
    )

    def uses(self, rounds: int) -> int:
        return (rounds + self.warm_up) * self.critic_steps if rounds else 0


class DpSgdParty(VdGanParty, CriticParty):
    """A critic trained by clipped and noised steps. Its opinion of public rows is
    post-processing.
    Guarantee: that of `CriticParty`, whose `CriticRound` pairs each drawn person with a
    synthetic row and a mixing weight in secret. Given those, a person's clipped
    gradient depends on that person's row alone. The draws of all others are distributed
    alike with and without the person, so hold them fixed in both worlds: the sums then
    differ by the person's own gradient, of norm C at most, present at the sampling
    rate. That is the mechanism charged, whatever was held fixed, and therefore on
    average over it too.
    Edges: warm-up steps see rows, so they are charged, with the first round.
    """

    config_type = Config
    config: Config

    def events(self, noise_multiplier: float) -> dict[str, DpEvent]:
        """The same to all, since batches are the party's secret."""
        return dict.fromkeys(VIEWS, self.amplified(noise_multiplier))

    def open(self, begin: GanBegin) -> None:
        super().open(begin)
        with first_weights(self.config.seed):  # of no row, and public
            self.network = BranchedGenerator.for_parties({self.name: self.output}).to(
                self.device
            )

    # Algorithm 3, steps 2 and 3
    def judge(self, synthetic: Tensor) -> Tensor:
        # §4.3.2: warm up against a generator of this party's own, which is then
        # forgotten
        if not self.answered:
            optimizer = RmsProp(self.network.parameters(), lr=self.config.learning_rate)
            for number in range(self.config.warm_up):
                gradient = self.critic_round(self.batches(self.rng), seed=number)
                for parameter, part in split_like(self.network.parameters(), gradient):
                    parameter.grad = part
                optimizer.step()
        return self.critic_round.judge(self.batches(self.rng), synthetic)


# Algorithm 3
def train(
    config: VdGanSettings,
    parties: Parties,
    schemas: Mapping[str, Schema],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
) -> Outcome:
    """Train one generator over the parties' columns, whichever way they judge its rows
    (`GanServer.run`).
    """
    server = GanServer(
        config,
        parties,
        schemas,
        checkpoint=checkpoint,
        device=pick_device(config.device),
    )
    network = server.network
    settings = asdict(config)
    server.begin(lambda name: GanBegin(config=settings), resume=resume)
    nonzero_shares: list[Tensor] = []  # they stay on the device until the end

    def learn(round: int) -> None:
        z = torch.randn(config.rows, network.latent, generator=server.draws)
        rows = network(on_device(z, server.device))  # step 1
        asks = {
            name: VdGanRound(round=round, rows=part.detach())
            for name, part in rows.items()
        }
        replies = parties.ask(asks)  # steps 2 and 3
        gradients = [
            _gradient(name, replies[name], part) for name, part in rows.items()
        ]
        nonzero_shares.extend(
            gradient.count_nonzero() / gradient.numel() for gradient in gradients
        )
        torch.autograd.backward(along(rows.values(), gradients))  # step 4, Eq. 4.2

    outcome = server.run(learn, watch)
    return _with_nonzero_share(outcome, nonzero_shares)


def _with_nonzero_share(outcome: Outcome, shares: list[Tensor]) -> Outcome:
    """The same with `nonzero` in the card: the mean share of the gradients' entries
    that are not 0, in the rounds since the start or the last resume. Post-processing of
    paid answers. It warns where the generator was told next to nothing.
    """
    if not shares:
        return outcome
    nonzero = float(torch.stack(shares).mean())
    if nonzero < FEWEST_NONZERO:
        warnings.warn(
            f"Only {nonzero:.2%} of the entries of the parties' answers were not 0, "
            "so the generator hardly learned. Where parties vote, choose a lower "
            "`threshold`.",
            stacklevel=3,
        )
    card = {**outcome.trained.card, "nonzero": round(nonzero, 6)}
    return replace(outcome, trained=replace(outcome.trained, card=card))


def _gradient(name: str, reply: Gradient, rows: Tensor) -> Tensor:
    """A party's answer, as the gradient of a mean over rows."""
    gradient = reply.gradient.value
    if not isinstance(gradient, Tensor) or gradient.shape != rows.shape:
        raise MessageError(
            f"{name}: its answer does not have the form {tuple(rows.shape)} of the "
            "rows."
        )
    return gradient.to(rows) / len(rows)


PROTOCOL = Protocol(
    name="vd-gan-dpsgd",
    paper=__doc__,
    config=Config,
    party=DpSgdParty,
    train=train,
    same_people=True,
)
