"""VDGAN: the server keeps the generator and sends synthetic rows; parties send back which way to move them.

Zhang, "GAN-Based Differentially Private Publication of Vertically Partitioned Data" (thesis, TUM 2022),
Algorithm 3, §4.3: the server, the messages, and what all parties have in common. How a party judges synthetic
rows in private is in `vd_gan_dpsgd.py` (§4.4.1) and `vd_gan_pate.py` (§4.4.2).
Paper → code: t → round, s → critic_steps, m → rows (synthetic ones a round) and batch (real ones a critic step),
γ → learning_rate, GP's λ → penalty, X̃_k → `Round.rows`, g_X̃k → `Gradient.gradient`.
Differs from the paper: a person's price is composed over the parties, which hold the same people (Eq. 4.17 takes
the maximum); the generator has a branch for each party (`BranchedGenerator`); its loss is the mean over rows.

What it can learn: each party's own joint distribution. Nothing in the loss ties one party's columns to
another's, so cross-party dependence is not learned; evaluations show the two apart.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.ground.errors import MessageError
from understudy.ground.settings import NOT_NEGATIVE, setting
from understudy.models.device import pick_device, sent
from understudy.models.kernels.optimisers import along
from understudy.privacy.accounts.accounting import DpEvent
from understudy.privacy.gradients import honest, require_sound
from understudy.privacy.gradients.limits import within_limits
from understudy.protocols.core import Message, Paid, Parties, Watcher
from understudy.protocols.core.base import VIEWS
from understudy.protocols.core.loop import Outcome
from understudy.protocols.gans import party as gan_party
from understudy.protocols.gans.party import Begin, GanParty, Gradient
from understudy.protocols.gans.server import Server


@dataclass(frozen=True, kw_only=True)
class Settings(gan_party.Settings):
    """What both kinds share. The thesis chose by grid search and names no values; those left out are VertiGAN's."""

    rows: int = setting(1000, within_limits("rows"), "synthetic rows that are judged in a round")
    warm_up: int = setting(0, NOT_NEGATIVE, "rounds of training before the first shared round")

    def __post_init__(self) -> None:
        super().__post_init__()
        honest(warm_up=self.warm_up or 1)

    def uses(self, rounds: int) -> int:
        """How often the price has been paid after so many rounds."""
        raise NotImplementedError


class Round(gan_party.Round, kind="vd-gan.round"):
    """This party's columns of the synthetic rows, as probabilities (rows, width)."""

    rows: Tensor


class VdGanParty(GanParty):
    """One holder of columns, who judges synthetic rows in its own way and answers (rows, width) gradients.

    Guarantee: a round is charged before anything of it is computed.
    Edges: rows of another shape or type, not finite or beyond 10⁶ → an error, and a spent budget → BudgetExceeded;
    nothing is charged or sent.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (*GanParty.messages, Begin, Round)

    @abstractmethod
    def event(self, noise_multiplier: float) -> DpEvent:
        """What one use costs with that much noise: the same to all, since batches are the party's secret."""

    @abstractmethod
    def judge(self, synthetic: Tensor) -> Tensor:
        """Train on these rows (rows, width); ∇ of L_G = −D(x̃) at each, or its direction."""

    def events(self, noise_multiplier: float) -> dict[str, DpEvent]:
        return dict.fromkeys(VIEWS, self.event(noise_multiplier))

    def uses(self) -> dict[str, int]:
        return dict.fromkeys(VIEWS, self.config.uses(self.config.rounds))

    def open(self, begin: Begin) -> None:
        super().open(begin)
        self.answered = 0

    def _round(self, ask: Round) -> Gradient:
        agreed = (self.config.rows, self.width)
        if ask.rows.shape != agreed or ask.rows.dtype != torch.float32:
            raise MessageError(
                f"{self.name}: synthetic rows of the form {tuple(ask.rows.shape)}, {ask.rows.dtype}, came where "
                f"{agreed}, float32, was agreed. Nothing was charged or sent."
            )
        rows = require_sound(ask.rows)
        receipt = self.pay(
            f"round {ask.round}: opinion on {len(ask.rows)} synthetic rows",
            self.config.uses(self.answered + 1) - self.config.uses(self.answered),
        )
        gradient = self.judge(rows.to(self.device))
        self.answered += 1
        return Gradient(gradient=Paid(gradient, receipt))

    def work_state(self) -> dict[str, Any]:
        return super().work_state() | {"answered": self.answered}

    def load_work(self, state: Mapping[str, Any]) -> None:
        super().load_work(state)
        self.answered = state["answered"]


# Algorithm 3
def train(
    config: Settings,
    parties: Parties,
    schemas: Mapping[str, Schema],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
) -> Outcome:
    """Train one generator over the parties' columns, whichever way they judge its rows.

    Ends early, with what it has, when a party's budget is spent. With a `checkpoint` folder it saves every
    `checkpoint_every` rounds and when it is interrupted, and `resume=True` continues from there.
    """
    server = Server(config, parties, schemas, checkpoint=checkpoint, device=pick_device(config.device))
    network, settings = server.network, asdict(config)
    server.begin(lambda name: Begin(config=settings), resume=resume)

    def learn(round: int) -> None:
        z = torch.randn(config.rows, network.latent, generator=server.draws)
        rows = network(sent(z, server.device))  # step 1
        replies = parties.ask(  # steps 2 and 3
            {name: Round(round=round, rows=part.detach()) for name, part in rows.items()}
        )
        gradients = [_gradient(name, replies[name], part) for name, part in rows.items()]
        torch.autograd.backward(along(rows.values(), gradients))  # step 4, Eq. 4.2

    return server.run(learn, watch)


def _gradient(name: str, reply: Gradient, rows: Tensor) -> Tensor:
    """A party's answer, as the gradient of a mean over rows."""
    gradient = reply.gradient.value
    if not isinstance(gradient, Tensor) or gradient.shape != rows.shape:
        raise MessageError(f"{name}: its answer does not have the form {tuple(rows.shape)} of the rows.")
    return gradient.to(rows) / len(rows)
