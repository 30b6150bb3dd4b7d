"""What parties of the vertical GANs share: settings, messages, a holder that begins and
pays, one with a critic.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import torch
from dp_accounting import dp_event
from torch import Tensor

from understudy.data.kinds import IMAGES, SERIES, TABLE, AnySchema, Rows, kind_of
from understudy.ground.errors import Effect, PartyError
from understudy.ground.settings import Declared, setting
from understudy.models.nets.gan import (
    BranchedGenerator,
    Critic,
    ImageCritic,
    Output,
    Values,
    width_of,
)
from understudy.models.network import first_weights, pick_device
from understudy.privacy.accounts.accounting import DpEvent, Spend, calibrate
from understudy.privacy.accounts.budget import ADJACENCIES, Budget
from understudy.privacy.accounts.ledger import Ledger, Receipt
from understudy.privacy.gradients.limits import LAYERS, within_limits
from understudy.privacy.noise import Rng, poisson_samples
from understudy.protocols.core import VIEWS, Ask, Message, Opening, Paid, Public, Reply
from understudy.protocols.core import settings as usual
from understudy.protocols.core.alignment import AlignedParty
from understudy.protocols.papers.vertical_gans.critic_round import CriticRound

T = TypeVar("T", bound=Tensor)
# One-hot vectors of a table, or values in [0, 1] of series and images: by that row and
# the public schema alone.
_OUTPUTS: dict[str, Callable[[Any], Output]] = {
    TABLE.name: TABLE.sizes,
    IMAGES.name: lambda schema: Values(schema.grey_shape, image=True),
    SERIES.name: lambda schema: Values(schema.shape),
}


def output_of(schema: AnySchema) -> Output:
    return _OUTPUTS[schema.kind](schema)


@dataclass(frozen=True, kw_only=True)
class GanSettings(Declared):
    """VertiGAN's values (PoPETs 2023(2), §6.1.3, Table 2). A party builds this anew:
    its ranges hold for any server.
    """

    protocol: ClassVar[str]

    rounds: int = setting(1500, within_limits("rounds"), "rounds of training")
    critic_steps: int = setting(
        10, within_limits("critic_steps"), "noised steps of a critic in a round"
    )
    batch: int = setting(1000, within_limits("batch"), "people in a step, on average")
    learning_rate: float = setting(
        0.001, within_limits("learning_rate"), "learning rate"
    )
    penalty: float = setting(
        10.0, within_limits("penalty"), "weight of the penalty term of the loss"
    )
    latent: int | None = setting(
        None,
        within_limits("latent"),
        "size of the latent space; without it as in the paper",
    )
    common: tuple[int, ...] | None = setting(
        None, LAYERS, "sizes of the common layers; without it as in the paper"
    )
    critic_hidden: tuple[int, ...] | None = setting(
        None, LAYERS, "the critic's layers; without it as in the paper"
    )
    private: bool = usual.private()
    checkpoint_every: int = setting(
        100, within_limits("checkpoint_every"), "rounds between two checkpoints"
    )
    device: str = usual.device()
    seed: int = usual.seed()


class GanBegin(Opening, kind="gan.begin"):
    """The run's settings."""


class GanBegun(Reply, kind="gan.begun"):
    """What this party will pay, worked out from public settings and its own budget."""

    people: Public
    budget: Public
    noise_multiplier: Public
    noise: Public


class GanRound(Ask, kind="gan.round"):
    """One round; what it asks about is the protocol's."""

    round: int


class Gradient(Reply, kind="gan.gradient"):
    """Which way the generator should move, in this party's opinion."""

    gradient: Paid


class GanParty(AlignedParty):
    """One holder of columns: it begins, and pays for every round before anything of it
    is computed. Edges: settings that fit neither these people nor these columns, or
    that the budget cannot pay for → an error from `GanBegin`, before anything is
    charged; a second `GanBegin` → MessageError; a spent budget → BudgetExceeded, and
    nothing is sent.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        *AlignedParty.messages,
        GanBegun,
        Gradient,
    )
    config_type: ClassVar[type[GanSettings]]
    begin_type: ClassVar[type[GanBegin]] = GanBegin
    config: Any

    def __init__(
        self, name: str, table: Rows, ledger: Ledger, *, budget: Budget, **more: Any
    ) -> None:
        super().__init__(name, kind_of(table.schema).roster(table), ledger, **more)
        table.schema.require_public(f"the schema of {name}")
        table.schema.require_unit(f"the schema of {name}")
        self.rows = table
        self.budget = budget
        self.output = output_of(table.schema)
        self.width = width_of(self.output)
        self.begun: GanBegin | None = None
        self.noise_multiplier = 0.0

    @property
    def settled(self) -> bool:
        return self.begun is not None

    @abstractmethod
    def events(self, noise_multiplier: float) -> dict[str, DpEvent]:
        """What one use costs with that much noise, in each view."""

    @abstractmethod
    def uses(self) -> dict[str, int]:
        """How often that is paid in the whole run."""

    def paid_before(self) -> Spend:
        return {}

    @abstractmethod
    def _round(self, ask: Any) -> Gradient:
        """Pay, compute, answer."""

    def check(self) -> None:
        """Refuse settings that fit neither these people nor these columns."""
        people = self.aligned.rows
        if people < 2:
            raise PartyError(
                f"{self.name}: {people} shared people are too few to train on.",
                effect=Effect.NOTHING_CHARGED,
            )

    def open(self, begin: Any) -> None:
        """Take on the settings: the same from a fresh `GanBegin` and from a saved
        state.
        """
        self.config = self.config_type(**begin.config)
        self.device = pick_device(self.config.device)

    def respond(self, ask: Ask) -> Reply:
        match ask:
            case GanBegin() if self.begun is None:
                # a second one would forget the noise that the first fixed
                return self._begin(ask)
            case GanRound() if self.begun is not None:
                return self._round(ask)
        raise self.unexpected(ask)

    def _begin(self, ask: GanBegin) -> GanBegun:
        self.open(ask)
        self.check()
        people = self.aligned.rows
        budget = self.budget
        uses = self.uses()
        budget.warn_of_delta(self.name, people)
        if self.config.private:

            def spend(noise: float) -> Counter[DpEvent]:
                return Counter(
                    {self.events(noise)[budget.against]: uses[budget.against]}
                ) + Counter(self.paid_before())

            self.noise_multiplier = calibrate(
                spend, epsilon=budget.epsilon, delta=budget.delta
            )
        price = self.price
        self.ledger.afford(
            price["outsider"],
            uses["outsider"],
            insider=price["anyone"],
            insider_count=uses["anyone"],
        )
        self.begun = ask
        return GanBegun(
            people=Public(
                self.stated_people,
                "the size of the intersection, which alignment discloses outside ε",
            ),
            budget=Public(
                asdict(budget) if self.config.private else None,
                "the holder's own choice",
            ),
            noise_multiplier=Public(
                self.noise_multiplier, "computed from the budget and public settings"
            ),
            noise=self.stated_noise(),
        )

    @property
    def price(self) -> dict[str, DpEvent]:
        """What one use costs in this run, in each view."""
        if not self.config.private:
            return dict.fromkeys(VIEWS, dp_event.NonPrivateDpEvent())
        return self.events(self.noise_multiplier)

    def pay(
        self, description: str, outsider: int, anyone: int | None = None
    ) -> Receipt:
        """Charge so many uses, in the eyes of an outsider and of anyone."""
        price = self.price
        inside = outsider if anyone is None else anyone
        return self.charge(
            price["outsider"],
            count=outsider,
            insider=price["anyone"],
            insider_count=inside,
            description=description,
        )

    @property
    def stated_people(self) -> int | None:
        return self.aligned.rows

    def composition(self) -> dict[str, Any]:
        common = getattr(self.config, "sampling", "own") == "shared"
        return {
            "same_people": True,
            "common_sample": common,
            "adjacency": ADJACENCIES[self.rows.schema.unit],
        }

    def initial_critic(self) -> Critic | ImageCritic:
        """A critic that has seen no row; its seed is public."""
        with first_weights(self.config.seed):
            if isinstance(self.output, Values) and self.output.image:
                return ImageCritic(self.output.shape).to(self.device)
            return Critic(self.width, self.config.critic_hidden).to(self.device)

    def encoded(self) -> Tensor:
        """The shared people's rows: one-hot, or values in [0, 1]."""
        return kind_of(self.rows.schema).encode(self.rows, self.aligned, self.device)

    def work_state(self) -> dict[str, Any]:
        return {
            "begin": dict(vars(self.begun)),
            "noise_multiplier": self.noise_multiplier,
        }

    def load_work(self, state: Mapping[str, Any]) -> None:
        begin = self.begin_type(**state["begin"])
        self.open(begin)
        self.begun = begin
        self.noise_multiplier = state["noise_multiplier"]

    def state_dict(self) -> dict[str, Any]:
        # it may draw: the randomness comes after it
        work = {} if self.begun is None else self.work_state()
        return super().state_dict() | work

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.begun = None
        if "begin" in state:
            self.load_work(state)


class CriticParty(GanParty):
    """A holder with one private critic, which works against `network`. Guarantee: a
    critic step is a Poisson-sampled Gaussian mechanism with noise `noise_multiplier`.
    What leaves is post-processing of the critic and of what is public. Edges: an empty
    batch is noise alone.
    """

    network: BranchedGenerator
    round_type: ClassVar[type[CriticRound]] = CriticRound

    def open(self, begin: Any) -> None:
        super().open(begin)
        vars(self).pop("critic_round", None)  # which is of the settings before

    @property
    def rate(self) -> float:
        """B/N: the chance of a person to be in a batch."""
        return min(1.0, float(self.config.batch) / self.aligned.rows)

    def amplified(self, noise_multiplier: float) -> DpEvent:
        """What a step costs in the eyes of whoever does not know the batch."""
        return dp_event.PoissonSampledDpEvent(
            self.rate, dp_event.GaussianDpEvent(noise_multiplier)
        )

    def batches(self, rng: Rng) -> list[Tensor]:
        return poisson_samples(
            rng, self.aligned.rows, self.rate, self.config.critic_steps
        )

    @cached_property
    def critic_round(self) -> CriticRound:
        """The tensor work of a round, over this party's rows, with a critic that has
        seen none: made at first need.
        """
        rows = self.encoded()
        critic = self.initial_critic()
        return self.round_type(
            self.config,
            self.network,
            self.name,
            critic,
            rows,
            self.rng,
            self.noise_multiplier,
        )

    def work_state(self) -> dict[str, Any]:
        return super().work_state() | {"critic_round": self.critic_round.state_dict()}

    def load_work(self, state: Mapping[str, Any]) -> None:
        super().load_work(state)
        self.critic_round.load_state_dict(state["critic_round"])


def split_like(parameters: Iterable[T], vector: Tensor) -> Iterator[tuple[T, Tensor]]:
    """Each parameter with its part of a flat vector, in the parameter's shape."""
    parameters = list(parameters)
    parts = torch.split(vector, [parameter.numel() for parameter in parameters])
    return (
        (parameter, part.view_as(parameter))
        for parameter, part in zip(parameters, parts, strict=True)
    )
