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

import math
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from dp_accounting import dp_event
from torch import Tensor

from understudy.check import not_negative, positive, whole
from understudy.data.codec import Codec
from understudy.data.schema import Schema, join
from understudy.data.table import Table
from understudy.errors import BudgetExceeded, MessageError, PartyError, PrivacyWarning
from understudy.generator import Generator
from understudy.models.device import pick_device
from understudy.models.gan import BranchedGenerator, Critic
from understudy.privacy.accounting import DpEvent, Spend, calibrate, event_from_json, event_to_json
from understudy.privacy.budget import Budget
from understudy.privacy.critic import require_sound
from understudy.privacy.ledger import Ledger
from understudy.privacy.rng import FastRng, Rng
from understudy.privacy.statement import PartyPrivacy, PrivacyStatement
from understudy.protocols.alignment import AlignedParty, align_people
from understudy.protocols.base import Ask, Message, Paid, Parties, Progress, Public, Reply, Watcher, settled
from understudy.protocols.checkpoint import Checkpoint
from understudy.protocols.verti_gan import Outcome


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What both kinds share. The thesis chose by grid search and names no values; sizes left at None are VertiGAN's."""

    protocol: ClassVar[str]

    rounds: int = 1500
    critic_steps: int = 10
    batch: int = 1000
    rows: int = 1000
    warm_up: int = 0
    learning_rate: float = 0.001
    penalty: float = 10.0
    latent: int | None = None
    common: tuple[int, ...] | None = None
    critic_hidden: tuple[int, ...] | None = None
    private: bool = True
    checkpoint_every: int = 100
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rounds", "critic_steps", "batch", "rows", "checkpoint_every"):
            whole(**{name: getattr(self, name)})
        whole(warm_up=self.warm_up or 1)
        positive(learning_rate=self.learning_rate)
        not_negative(penalty=self.penalty, seed=self.seed)
        for name in ("common", "critic_hidden"):
            if (sizes := getattr(self, name)) is not None:
                object.__setattr__(self, name, tuple(sizes))
                whole(**{name: min(sizes, default=0)})

    def uses(self, rounds: int) -> int:
        """How often the price has been paid after so many rounds."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Begin(Ask):
    """The run's settings. The generator stays with the server."""

    config: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Begun(Reply):
    """What this party will pay: the event of one use, from public settings and its own budget."""

    people: Public
    budget: Public
    event: Public
    noise: Public


@dataclass(frozen=True, kw_only=True)
class Round(Ask):
    """This party's columns of the synthetic rows, as probabilities (rows, width)."""

    round: int
    rows: Tensor


@dataclass(frozen=True, kw_only=True)
class Gradient(Reply):
    """∇ of L_G = −D(x̃) at each synthetic row, or its direction: (rows, width)."""

    gradient: Paid


class VdGanParty(AlignedParty):
    """One holder of columns: it begins, pays for a round, and judges synthetic rows in its own way.

    Guarantee: a round is charged before anything of it is computed.
    Edges: rows of another shape, or not finite → an error, and a spent budget → BudgetExceeded; nothing is
    charged or sent.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        *AlignedParty.messages, Begin, Begun, Round, Gradient,
    )  # fmt: skip
    config_type: ClassVar[type[Settings]]
    config: Any

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
        self.config, self.noise_multiplier, self.answered = None, 0.0, 0

    @abstractmethod
    def event(self, noise_multiplier: float) -> DpEvent:
        """What one use costs with that much noise."""

    @abstractmethod
    def judge(self, synthetic: Tensor) -> Tensor:
        """Train on these rows (rows, width), and say which way to move each."""

    def check(self) -> None:
        """Refuse settings that fit neither these people nor these columns."""
        if (people := len(self.aligned)) < 2:
            raise PartyError(
                f"{self.name}: {people} shared people are too few to train on. Nothing was charged."
            )

    def respond(self, ask: Ask) -> Reply:
        match ask:
            case Begin():
                return self._begin(ask)
            case Round() if self.config is not None:
                return self._round(ask)
        raise self.unexpected(ask)

    def _begin(self, ask: Begin) -> Begun:
        self.open(ask.config)
        self.check()
        people, config, budget = len(self.aligned), self.config, self.budget
        if budget.delta >= 1 / people:
            warnings.warn(
                f"{self.name}: δ = {budget.delta:g} is not below 1/{people:,}: it would allow publishing "
                "one person's row outright. Choose a smaller δ.",
                PrivacyWarning,
                stacklevel=2,
            )
        uses = config.uses(config.rounds)
        if config.private:
            self.noise_multiplier = calibrate(
                lambda noise: {self.event(noise): uses}, epsilon=budget.epsilon, delta=budget.delta
            )
        self.ledger.afford(self._price, uses)
        return Begun(
            people=Public(people, "the size of the intersection, which alignment discloses outside ε"),
            budget=Public(asdict(budget) if config.private else None, "the holder's own choice"),
            event=Public(event_to_json(self._price), "computed from the budget and public settings"),
            noise=Public(self.rng.name, "the kind of generator, not its state"),
        )

    def _round(self, ask: Round) -> Gradient:
        if ask.rows.shape != (agreed := (self.config.rows, self.codec.width)):
            raise MessageError(
                f"{self.name}: synthetic rows of the form {tuple(ask.rows.shape)} came where {agreed} was "
                "agreed. Nothing was charged or sent."
            )
        require_sound(ask.rows)
        receipt = self.ledger.charge(
            self._price,
            count=self.config.uses(self.answered + 1) - self.config.uses(self.answered),
            run=self.run,
            what=f"round {ask.round}: opinion on {len(ask.rows)} synthetic rows",
        )
        gradient = self.judge(ask.rows.to(self.device))
        self.answered += 1
        return Gradient(gradient=Paid(gradient.cpu(), receipt))

    def open(self, config: Mapping[str, Any]) -> None:
        """Take on the settings: the same from a fresh `Begin` and from a saved state."""
        self.config, self.answered = self.config_type(**config), 0
        self.device = pick_device(self.config.device)

    @property
    def _price(self) -> DpEvent:
        return self.event(self.noise_multiplier) if self.config.private else dp_event.NonPrivateDpEvent()

    def initial_critic(self) -> Critic:
        """A critic that has seen no row; its seed is public."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)
            return Critic(self.codec.width, self.config.critic_hidden).to(self.device)

    def encoded(self) -> Tensor:
        """The shared people's rows, one-hot."""
        return self.codec.encode(self.aligned).to(self.device)

    def state_dict(self) -> dict[str, Any]:
        if self.config is None:
            return super().state_dict()
        begun = {
            "config": asdict(self.config),
            "noise_multiplier": self.noise_multiplier,
            "answered": self.answered,
        }
        return super().state_dict() | {"begun": begun}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if (begun := state.get("begun")) is not None:
            self.open(begun["config"])
            self.noise_multiplier, self.answered = begun["noise_multiplier"], begun["answered"]


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
    `checkpoint_every` rounds and when it is interrupted, and `resume=True` goes on from there.
    """
    device = pick_device(config.device)
    layouts = {name: Codec(schemas[name]).sizes for name in parties.names}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network = BranchedGenerator.for_parties(layouts, latent=config.latent, common=config.common).to(
            device
        )
    optimizer = torch.optim.RMSprop(network.parameters(), lr=config.learning_rate)
    latents = FastRng(config.seed)
    store = None if checkpoint is None else Checkpoint(checkpoint, parties)
    done, begun, ended = 0, {}, ""
    if store is not None and resume and (saved := store.load()) is not None:
        done, state = saved
        begun = state["begun"]
        network.load_state_dict(state["network"])
        latents.load_state_dict(state["latents"])
        for parameter, square in zip(network.parameters(), state["squares"], strict=True):
            optimizer.state[parameter] = {
                "step": torch.tensor(float(done)),
                "square_avg": square.to(device),
            }
    else:
        align_people(parties)
        begun = {
            name: {key: public.value for key, public in vars(reply).items()}
            for name, reply in parties.ask(Begin(config=asdict(config))).items()
        }
    if len({info["people"] for info in begun.values()}) != 1:
        raise PartyError("The parties do not agree on how many people they share.")
    first, paid = done, {name: spends["anyone"] for name, spends in settled(parties).items()}

    def save() -> None:
        if store is not None and done:
            weights = {name: value.cpu() for name, value in network.state_dict().items()}
            squares = [optimizer.state[parameter]["square_avg"].cpu() for parameter in network.parameters()]
            state = {"network": weights, "squares": squares, "latents": latents.state_dict(), "begun": begun}
            store.save(done, state)

    def spent(rounds: int) -> dict[str, Spend]:
        more = config.uses(rounds) - config.uses(first)
        events = {name: event_from_json(info["event"]) for name, info in begun.items()}
        return {
            name: {**paid[name], event: paid[name].get(event, 0) + more} for name, event in events.items()
        }

    try:
        while done < config.rounds:
            rows = network(latents.normal(config.rows, network.latent).to(device))  # step 1
            replies = parties.ask(  # steps 2 and 3
                {name: Round(round=done + 1, rows=part.detach().cpu()) for name, part in rows.items()}
            )
            optimizer.zero_grad()
            gradients = [_gradient(name, replies[name], part) for name, part in rows.items()]
            torch.autograd.backward(list(rows.values()), gradients)  # step 4, Eq. 4.2
            optimizer.step()
            done += 1
            if watch is not None:
                watch(Progress(done, config.rounds, _statement(begun, spent(done), done).per_party))
            if done % config.checkpoint_every == 0:
                save()
    except BudgetExceeded as refusal:
        ended = f"ended after {done} of {config.rounds} rounds: {refusal}"
    except KeyboardInterrupt:
        save()
        raise
    save()
    privacy = _statement(begun, {name: spends["anyone"] for name, spends in settled(parties).items()}, done)
    people = next(iter(begun.values()))["people"]
    card = {
        "protocol": config.protocol,
        "config": asdict(config),
        "rounds": done,
        "ended": ended or "after all rounds",
        "owners": {column: name for name in parties.names for column in schemas[name].names},
        "people": people,
        "privacy": privacy.to_dict(),
    }
    schema = join({name: schemas[name] for name in parties.names})
    return Outcome(Generator(network.cpu().eval(), schema, card), privacy, people)


def _gradient(name: str, reply: Gradient, rows: Tensor) -> Tensor:
    """A party's answer, as the gradient of a mean over rows."""
    gradient = reply.gradient.value
    if not isinstance(gradient, Tensor) or gradient.shape != rows.shape:
        raise MessageError(f"{name}: its answer does not have the form {tuple(rows.shape)} of the rows.")
    return gradient.to(rows) / len(rows)


def _statement(
    begun: Mapping[str, Mapping[str, Any]], spends: Mapping[str, Spend], rounds: int
) -> PrivacyStatement:
    """Prices in words: an outsider and the server are told alike, since batches are the parties' secret."""
    return PrivacyStatement(
        parties=tuple(
            PartyPrivacy(
                name=name,
                budget=Budget(math.inf, 0.0) if info["budget"] is None else Budget(**info["budget"]),
                outsider=spends[name],
                insider=spends[name],
                noise=info["noise"],
                people=info["people"],
                rounds=max(1, rounds),
            )
            for name, info in begun.items()
        )
    )
