"""VDGAN with PATE: each party has thousands of teacher critics, which vote on the synthetic rows under noise.

Zhang, "GAN-Based Differentially Private Publication of Vertically Partitioned Data" (thesis, TUM 2022),
§4.4.2, Algorithm 4 in place of step 3 of Algorithm 3; the server and the messages are in `vd_gan.py`, the vote
in `privacy/gradients/pate.py`, the teachers in `teachers.py`.
Paper → code: E → teachers, K → top, c → clip, β → threshold, m → rows (synthetic) and batch (real ones of one
teacher), s → critic_steps.
Differs from the paper: see the vote; people are dealt to teachers by secret draws, each independently; all
teachers start from one critic.

What it costs: every row of every round is a vote that is paid for, since nothing is sampled and so nothing is
amplified. Few rounds of few rows leave the least noise; what a teacher does before it votes costs nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from understudy.ground.errors import PartyError
from understudy.ground.pack import LIMIT
from understudy.ground.settings import between, setting
from understudy.models.nets.gan import Critic
from understudy.privacy.accounts.accounting import DpEvent
from understudy.privacy.gradients.limits import within_limits
from understudy.privacy.gradients.pate import GradientVote
from understudy.protocols.gans.party import Begin
from understudy.protocols.gans.teachers import Teachers
from understudy.protocols.gans.vd_gan import Settings, VdGanParty, train
from understudy.protocols.protocol import Protocol

__all__ = ["PROTOCOL", "Config", "PateParty", "train"]


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """2000 teachers as the thesis has for its smaller data sets (§5.5.2), a majority for the threshold.

    `warm_up`: so many rounds' steps more before the first vote (§4.3.2, against the first synthetic rows).
    """

    protocol: ClassVar[str] = "vd-gan-pate"

    rounds: int = 300
    critic_steps: int = 5
    batch: int = setting(10, within_limits("batch"), "people of a teacher in a step")
    rows: int = 64
    teachers: int = setting(2000, within_limits("teachers"), "teachers, on disjoint people")
    top: int = setting(10, within_limits("top"), "coordinates that a teacher votes on")
    clip: float = setting(0.01, within_limits("clip"), "bound of a teacher's vote")
    threshold: float = setting(0.5, between(0, 1), "share of teachers who must agree")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.vote(0.0)

    def uses(self, rounds: int) -> int:
        return rounds * self.rows

    def vote(self, noise_multiplier: float) -> GradientVote:
        return GradientVote(
            teachers=self.teachers, top=self.top, clip=self.clip, threshold=self.threshold,
            noise_multiplier=noise_multiplier,
        )  # fmt: skip


class PateParty(VdGanParty):
    """Teachers on disjoint people. Of them nothing leaves but their votes.

    Guarantee: each person is dealt to one teacher by a secret draw that depends on nothing, and stays there for
    the run, restarts included. So one person more or less changes one teacher alone; hold the draws of all
    others fixed, as they are distributed alike in both worlds, and every row's vote is the Gaussian mechanism
    that was charged (`GradientVote`), whatever was held fixed.
    Edges: more teachers than people, or a `top` above the width → PartyError, nothing is charged. A teacher whom
    nobody was dealt votes as it began.
    """

    config_type = Config
    config: Config

    def check(self) -> None:
        super().check()
        people, width, config = len(self.aligned), self.width, self.config
        if config.teachers > people:
            raise PartyError(
                f"{self.name}: {config.teachers:,} teachers are more than the {people:,} shared people. "
                "Nothing was charged."
            )
        if config.top > width:
            raise PartyError(
                f"{self.name}: top = {config.top} is more than the {width} one-hot columns. Nothing was charged."
            )
        size = 8 * config.teachers * sum(p.numel() for p in self.initial_critic().parameters())
        if self.folder is not None and size > LIMIT:
            raise PartyError(
                f"{self.name}: {config.teachers:,} teachers are {size:,} bytes of state, and {LIMIT:,} can be "
                "saved: take fewer or smaller ones. Nothing was charged."
            )

    def event(self, noise_multiplier: float) -> DpEvent:
        return self.config.vote(noise_multiplier).event

    # Algorithm 3, step 2, and Algorithm 4
    def judge(self, synthetic: Tensor) -> Tensor:
        config, vote = self.config, self.config.vote(self.noise_multiplier)
        steps = config.critic_steps * (1 if self.answered else 1 + config.warm_up)
        self.teachers.train(synthetic, steps, self.rng)
        votes = synthetic.new_zeros(synthetic.shape)
        for gradients in self.teachers.gradients(synthetic):
            votes += vote.tally(gradients, self.rng)
        return vote.decide(votes, self.rng)

    def open(self, begin: Begin) -> None:
        super().open(begin)
        self._assigned: Tensor | None = None
        self._teachers: Teachers | None = None

    @property
    def assigned(self) -> Tensor:
        """Each person's teacher: dealt once."""
        if self._assigned is None:
            self._assigned = self.rng.integers(self.config.teachers, len(self.aligned))
        return self._assigned

    @property
    def teachers(self) -> Teachers:
        if self._teachers is None:
            config, critic = self.config, self.initial_critic()
            assert isinstance(critic, Critic)  # of a table
            self._teachers = Teachers(
                critic, self.encoded(), self.assigned, config.teachers, batch=config.batch, penalty=config.penalty,
                learning_rate=config.learning_rate,
            )  # fmt: skip
        return self._teachers

    def work_state(self) -> dict[str, Any]:
        held = {"assigned": self.assigned, "teachers": self.teachers.state_dict()}
        return super().work_state() | held

    def load_work(self, state: Mapping[str, Any]) -> None:
        super().load_work(state)
        self._assigned = state["assigned"]
        self.teachers.load_state_dict(state["teachers"])


PROTOCOL = Protocol(name="vd-gan-pate", paper=__doc__, config=Config, party=PateParty, train=train, same_people=True)
