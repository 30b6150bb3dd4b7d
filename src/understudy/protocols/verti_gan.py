"""VertiGAN: holders of different columns of the same people train one generator.

Jiang, Zhang, Zhou, Grossklags, "Distributed GAN-based privacy-preserving publication of vertically-partitioned
data" (PoPETs 2023(2)), Algorithms 1 and 2, §5, §7.2.
Paper → code: T_global → rounds, T_d → critic_steps, B → batch, C → clip_norm, λ → penalty, G⁰ and Gⁱ → the
common layers and a branch of `BranchedGenerator`, Dⁱ → `Critic`, τ → `Round.seed`.
Differs from the paper: the signs of WGAN-GP and a linear critic (Eq. 8–13 are printed reversed); the sampling
rate is B/N; every party draws its own secret Poisson batches, so that subsampling amplifies against the server
and the other parties too (`sampling="shared"` reproduces the common batches and states both prices).

What it can learn: each party's own joint distribution. Nothing in the loss ties one party's columns to
another's, so cross-party dependence is not learned; evaluations show the two apart.
"""

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from dp_accounting import dp_event
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from understudy.check import in_range, not_negative, one_of, positive, whole
from understudy.data.codec import Codec
from understudy.data.schema import Schema, join
from understudy.data.table import Table
from understudy.errors import BudgetExceeded, PartyError, PrivacyWarning
from understudy.generator import Generator
from understudy.models.device import pick_device
from understudy.models.gan import BranchedGenerator, Critic
from understudy.privacy.accounting import DpEvent, Spend, calibrate
from understudy.privacy.budget import Budget
from understudy.privacy.ledger import Ledger, Receipt
from understudy.privacy.rng import FastRng, Rng, poisson_samples
from understudy.privacy.statement import PartyPrivacy, PrivacyStatement
from understudy.protocols.alignment import AlignedParty, align_people
from understudy.protocols.base import Ask, Message, Paid, Parties, Progress, Public, Reply, Watcher, settled
from understudy.protocols.checkpoint import Checkpoint
from understudy.protocols.critic_round import CriticRound

T = TypeVar("T", bound=Tensor)


@dataclass(frozen=True, kw_only=True)
class Config:
    """The paper's settings (§6.1.3). Sizes left at None follow its Table 2."""

    rounds: int = 1500
    critic_steps: int = 10
    batch: int = 1000
    learning_rate: float = 0.001
    clip_norm: float = 1.0
    penalty: float = 10.0
    sampling: str = "private"
    upload: float = 1.0
    latent: int | None = None
    common: tuple[int, ...] | None = None
    critic_hidden: tuple[int, ...] | None = None
    private: bool = True
    checkpoint_every: int = 100
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        whole(
            rounds=self.rounds,
            critic_steps=self.critic_steps,
            batch=self.batch,
            checkpoint_every=self.checkpoint_every,
        )
        positive(learning_rate=self.learning_rate, clip_norm=self.clip_norm)
        not_negative(penalty=self.penalty, seed=self.seed)
        in_range(0, 1, upload=self.upload)
        positive(upload=self.upload)
        one_of(("private", "shared"), sampling=self.sampling)
        for name in ("common", "critic_hidden"):
            sizes = getattr(self, name)
            if sizes is not None:
                object.__setattr__(self, name, tuple(sizes))
                whole(**{name: min(sizes, default=0)})

    @property
    def steps(self) -> int:
        """Critic steps in the whole run."""
        return self.rounds * self.critic_steps


@dataclass(frozen=True, kw_only=True)
class Begin(Ask):
    """The run's settings, and the network with the common layers and this party's branch alone."""

    config: dict[str, Any]
    network: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Begun(Reply):
    """What this party will pay, worked out from public settings and its own budget."""

    people: Public
    budget: Public
    noise_multiplier: Public
    noise: Public


@dataclass(frozen=True, kw_only=True)
class Round(Ask):
    """Common layers and this party's branch as one vector, and the seed of the latent points."""

    round: int
    seed: int
    weights: Tensor


@dataclass(frozen=True, kw_only=True)
class Gradient(Reply):
    """The generator's gradient under this party's critic: a vector, or its largest entries."""

    gradient: Paid


class VertiGanParty(AlignedParty):
    """One holder of columns. Its critic and its rows stay with it.

    Guarantee: the critic is a sum of clipped, noised gradients (`privacy/critic.py`), each charged to the ledger
    before it is computed; the generator's gradient is post-processing of the critic and of public latent points.
    Edges: an empty batch is noise alone; a spent budget answers nothing.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (*AlignedParty.messages, Begin, Begun, Round, Gradient)

    def __init__(
        self,
        name: str,
        table: Table,
        ledger: Ledger,
        *,
        run: str,
        budget: Budget,
        rng: Rng | None = None,
        folder: Path | None = None,
    ) -> None:
        super().__init__(name, table, ledger, run=run, rng=rng, folder=folder)
        table.schema.require_public()
        self.budget = budget
        self.codec = Codec(table.schema)
        self.begun: Begin | None = None
        self.noise_multiplier = 0.0

    def respond(self, ask: Ask) -> Reply:
        match ask:
            case Begin():
                return self._begin(ask)
            case Round():
                return self._round(ask)
        raise self.unexpected(ask)

    # Algorithm 2, LocalInitialization
    def _begin(self, ask: Begin) -> Begun:
        self._open(ask)
        people, config, budget = len(self.aligned), self.config, self.budget
        if people < 2:
            raise PartyError(
                f"{self.name}: {people} shared people are too few to train on. Nothing was charged."
            )
        if budget.delta >= 1 / people:
            warnings.warn(
                f"{self.name}: δ = {budget.delta:g} is not below 1/{people:,}: it would allow publishing "
                "one person's row outright. Choose a smaller δ.",
                PrivacyWarning,
                stacklevel=2,
            )
        uses = promised_uses(config, self.rate)
        if config.private:
            self.noise_multiplier = calibrate(
                lambda sigma: {step_events(config, self.rate, sigma)[budget.against]: uses[budget.against]},
                epsilon=budget.epsilon,
                delta=budget.delta,
            )
        event = step_events(config, self.rate, self.noise_multiplier)
        self.ledger.afford(
            event["outsider"], uses["outsider"], insider=event["anyone"], insider_count=uses["anyone"]
        )
        return Begun(
            people=Public(people, "the size of the intersection, which alignment discloses outside ε"),
            budget=Public(asdict(budget) if config.private else None, "the holder's own choice"),
            noise_multiplier=Public(self.noise_multiplier, "computed from the budget and public settings"),
            noise=Public(self.rng.name, "the kind of generator, not its state"),
        )

    # Algorithm 2, LocalUpdate
    def _round(self, ask: Round) -> Gradient:
        if self.begun is None:
            raise self.unexpected(ask)
        batches = self._batches(ask.seed)
        receipt = self._pay(ask.round, batches)
        with torch.no_grad():
            for parameter, part in split_like(self.network.parameters(), ask.weights.to(self.device)):
                parameter.copy_(part)  # in place: a captured graph reads these
        gradient = self.critic_round(batches, ask.seed)
        return Gradient(gradient=Paid(sparsify(gradient.cpu(), self.config.upload), receipt))

    def _open(self, ask: Begin) -> None:
        """Build what the settings say: the same from a fresh `Begin` and from a saved state."""
        self.begun, self.config = ask, Config(**ask.config)
        self.device = pick_device(self.config.device)
        self.network = BranchedGenerator.from_description(ask.network).to(self.device)
        if self.network.widths != {self.name: self.codec.width}:
            raise PartyError(
                f"{self.name}: the server's network does not fit this schema. Nothing was charged."
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)  # of no row, and public
            self.critic = Critic(self.codec.width, self.config.critic_hidden).to(self.device)
        self.participations = torch.zeros(len(self.aligned), dtype=torch.int64)
        self.__dict__.pop("critic_round", None)

    @cached_property
    def critic_round(self) -> CriticRound:
        """The tensor work of a round, over this party's rows."""
        config = self.config
        return CriticRound(
            self.network,
            self.name,
            self.critic,
            self.codec.encode(self.aligned).to(self.device),
            rng=self.rng,
            batch=config.batch,
            clip_norm=config.clip_norm if config.private else math.inf,
            noise_multiplier=self.noise_multiplier,
            penalty=config.penalty,
            learning_rate=config.learning_rate,
        )

    @property
    def rate(self) -> float:
        """B/N: the chance of a person to be in a batch."""
        return min(1.0, self.config.batch / len(self.aligned))

    def _batches(self, seed: int) -> list[Tensor]:
        """Who is in each critic step: this party's secret, or what the shared seed says."""
        rng = FastRng(seed) if self.config.sampling == "shared" else self.rng
        return poisson_samples(rng, len(self.aligned), self.rate, self.config.critic_steps)

    def _pay(self, round: int, batches: list[Tensor]) -> Receipt:
        """Charge the round before any of it is computed."""
        uses = dict.fromkeys(("outsider", "anyone"), len(batches))
        if self.config.sampling == "shared":
            most = int(self.participations.max())
            self.participations += torch.bincount(torch.cat(batches), minlength=len(self.participations))
            uses["anyone"] = (
                int(self.participations.max()) - most
            )  # adds up to the busiest person's participations
        event = step_events(self.config, self.rate, self.noise_multiplier)
        return self.ledger.charge(
            event["outsider"],
            count=uses["outsider"],
            insider=event["anyone"],
            insider_count=uses["anyone"],
            run=self.run,
            what=f"round {round}: {len(batches)} critic steps",
        )

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self.begun is not None:
            state |= {
                "begin": {"config": self.begun.config, "network": self.begun.network},
                "noise_multiplier": self.noise_multiplier,
                "participations": self.participations,
                "critic_round": self.critic_round.state_dict(),
            }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if "begin" in state:
            self._open(Begin(**state["begin"]))
            self.noise_multiplier = state["noise_multiplier"]
            self.participations = state["participations"]
            self.critic_round.load_state_dict(state["critic_round"])


def step_events(config: Config, rate: float, sigma: float) -> dict[str, DpEvent]:
    """What one critic step costs, against an outsider and against anyone.

    Who knows the batches knows when a person takes part: against them a participation is not amplified.
    """
    if not config.private:
        return dict.fromkeys(("outsider", "anyone"), dp_event.NonPrivateDpEvent())
    step = dp_event.GaussianDpEvent(sigma)
    amplified = dp_event.PoissonSampledDpEvent(rate, step)
    return {"outsider": amplified, "anyone": amplified if config.sampling == "private" else step}


def promised_uses(config: Config, rate: float) -> dict[str, int]:
    """How often each price is paid in the whole run.

    With shared batches nobody takes part more often than the bound, nearly always; the ledger counts what
    happens, and ends the run if it happens more often.
    """
    if config.sampling == "private":
        return {"outsider": config.steps, "anyone": config.steps}
    expected = config.steps * rate
    return {
        "outsider": config.steps,
        "anyone": min(config.steps, math.ceil(expected + 6 * math.sqrt(expected))),
    }


def sparsify(gradient: Tensor, share: float) -> dict[str, Any]:
    """§7.2: the largest entries alone, with their places; all of them when the share is 1."""
    if share == 1:
        return {"values": gradient}
    places = gradient.abs().topk(max(1, round(share * gradient.numel()))).indices
    return {"values": gradient[places], "places": places.to(torch.int32)}


def densify(sparse: Mapping[str, Any], size: int) -> Tensor:
    """The inverse of `sparsify`, with zeros where nothing was sent."""
    if "places" not in sparse:
        return sparse["values"].reshape(size)  # type: ignore[no-any-return]
    return torch.zeros(size).index_put_((sparse["places"].long(),), sparse["values"])


@dataclass(frozen=True)
class Outcome:
    """What training gives."""

    generator: Generator
    privacy: PrivacyStatement
    people: int


def build_party(name: str, table: Table, ledger: Ledger, **more: Any) -> VertiGanParty:
    """A party of this protocol."""
    return VertiGanParty(name, table, ledger, **more)


# Algorithm 1
def train(
    config: Config,
    parties: Parties,
    schemas: Mapping[str, Schema],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
) -> Outcome:
    """Train one generator over the parties' columns.

    Ends early, with what it has, when a party's budget is spent. With a `checkpoint` folder it saves every
    `checkpoint_every` rounds and when it is interrupted, and `resume=True` goes on from there.
    """
    layouts = {name: Codec(schemas[name]).sizes for name in parties.names}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network = BranchedGenerator.for_parties(layouts, latent=config.latent, common=config.common)
    optimizer = torch.optim.RMSprop(network.parameters(), lr=config.learning_rate)
    store = None if checkpoint is None else Checkpoint(checkpoint, parties)
    done, begun, ended = 0, {}, ""
    if store is not None and resume and (saved := store.load()) is not None:
        done, state = saved
        network.load_state_dict(state["network"])
        for parameter, square in zip(network.parameters(), state["squares"], strict=True):
            optimizer.state[parameter] = {"step": torch.tensor(float(done)), "square_avg": square}
        begun = state["begun"]
    else:
        align_people(parties)
        replies = parties.ask(
            {
                name: Begin(config=asdict(config), network=network.describe(only=name))
                for name in parties.names
            }
        )
        begun = {
            name: {key: public.value for key, public in vars(reply).items()}
            for name, reply in replies.items()
        }
    if len({info["people"] for info in begun.values()}) != 1:
        raise PartyError("The parties do not agree on how many people they share.")

    def save() -> None:
        if store is not None and done:
            squares = [optimizer.state[p]["square_avg"] for p in network.parameters()]
            store.save(done, {"network": dict(network.state_dict()), "squares": squares, "begun": begun})

    def spent() -> Mapping[str, float]:
        return _statement(begun, settled(parties), done).per_party()

    seeds = torch.Generator().manual_seed(config.seed)
    for _ in range(done):
        _seed(seeds)
    try:
        while done < config.rounds:
            seed = _seed(seeds)
            asks = {
                name: Round(
                    round=done + 1,
                    seed=seed,
                    weights=parameters_to_vector(network.party_parameters(name).values()).detach(),
                )
                for name in parties.names
            }
            replies = parties.ask(asks)
            optimizer.zero_grad()
            for name, reply in replies.items():
                gradient = densify(reply.gradient.value, asks[name].weights.numel())
                # Eq. 14: a branch gets its own party's gradient, the common layers the sum of all
                for parameter, part in split_like(network.party_parameters(name).values(), gradient):
                    parameter.grad = part if parameter.grad is None else parameter.grad + part
            optimizer.step()
            done += 1
            if watch is not None:
                watch(Progress(done, config.rounds, spent))
            if done % config.checkpoint_every == 0:
                save()
    except BudgetExceeded as refusal:
        ended = f"ended after {done} of {config.rounds} rounds: {refusal}"
    except KeyboardInterrupt:
        save()
        raise
    save()
    privacy = _statement(begun, settled(parties), done)
    people = next(iter(begun.values()))["people"]
    card = {
        "protocol": "verti-gan",
        "config": asdict(config),
        "rounds": done,
        "ended": ended or "after all rounds",
        "owners": {column: name for name in parties.names for column in schemas[name].names},
        "people": people,
        "privacy": privacy.to_dict(),
    }
    return Outcome(
        Generator(network.cpu().eval(), join({n: schemas[n] for n in parties.names}), card), privacy, people
    )


def _statement(
    begun: Mapping[str, Mapping[str, Any]], spends: Mapping[str, Mapping[str, Spend]], rounds: int
) -> PrivacyStatement:
    """What was paid, by the ledgers' own word."""
    return PrivacyStatement(
        parties=tuple(
            PartyPrivacy(
                name=name,
                budget=Budget(math.inf, 0.0) if info["budget"] is None else Budget(**info["budget"]),
                outsider=spends[name]["outsider"],
                insider=spends[name]["anyone"],
                noise=info["noise"],
                people=info["people"],
                rounds=max(1, rounds),
            )
            for name, info in begun.items()
        )
    )


def split_like(parameters: Iterable[T], vector: Tensor) -> Iterator[tuple[T, Tensor]]:
    """Each parameter with its part of a flat vector, in the parameter's shape."""
    parameters = list(parameters)
    parts = torch.split(vector, [parameter.numel() for parameter in parameters])
    return ((parameter, part.view_as(parameter)) for parameter, part in zip(parameters, parts, strict=True))


def _seed(seeds: torch.Generator) -> int:
    return int(torch.randint(2**62, (), generator=seeds))
