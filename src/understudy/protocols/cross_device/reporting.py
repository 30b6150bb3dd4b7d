"""How the clients of a run report: which local mechanism, at which price, how often.

Selection (`privacy/local/selection.py`) sends a sign and a few indices, estimation
(`privacy/local/piecewise.py`) noisy values, and "none" the updates as they are, which
only a rehearsal with an infinite budget allows.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from dp_accounting import NonPrivateDpEvent
from torch import Tensor

from understudy.ground.check import in_range, known_keys, one_of, positive
from understudy.ground.errors import ConfigError, Effect, PartyError
from understudy.ground.settings import (
    POSITIVE,
    WHOLE,
    Declared,
    Takes,
    between,
    choice,
    setting,
    whole_to,
)
from understudy.models.cohort.training import OPTIMIZERS
from understudy.privacy.accounts.accounting import DpEvent
from understudy.privacy.local.piecewise import Duchi, FedSel, Hybrid, Piecewise, PmSub
from understudy.privacy.local.reporter import (
    Report,
    Reporter,
    check_clip,
    check_epsilon,
)
from understudy.privacy.local.selection import (
    EmMds,
    Naive,
    Proportional,
    Ps,
    SubMds,
    largest_naive_size,
    largest_size,
)
from understudy.privacy.noise import FastRng, Rng
from understudy.protocols.core import settings as usual

SELECTION = {
    "ps": Ps,
    "em-mds": EmMds,
    "naive": Naive,
    "sub-mds": SubMds,
    "proportional": Proportional,
}
MOST_REPORTS = 10**9
RATES = (1e-12, 1e12)  # learning rates of any sense, and more
MOST_PENALTY = 1e12
LIES = ("random", "flip")
ESTIMATION = {
    "duchi": Duchi,
    "piecewise": Piecewise,
    "grid": Hybrid,
    "pm-sub": PmSub,
    "fedsel": FedSel,
}


@dataclass(frozen=True, kw_only=True)
class Poison:
    """People who lie: which share of them, and how. Differs from the paper: it does not
    say how long a random update is; here it has the length of the real one. A lie is
    told before the mechanism, so a liar's report is as private as any other. For
    rehearsals alone: a party whose ledger is real refuses it.
    """

    kind: str = "random"
    share: float = 0.2
    scale: float = 1.0

    def __post_init__(self) -> None:
        one_of(LIES, kind=self.kind)
        in_range(0, 1, share=self.share)
        positive(scale=self.scale)

    def liars(self, people: int, seed: int) -> Tensor:
        """True for each of the people who lies: the same ones for the same seed,
        (people,).
        """
        liars = np.zeros(people, dtype=bool)
        liars[
            np.random.default_rng((seed, people)).permutation(people)[
                : round(self.share * people)
            ]
        ] = True
        return torch.from_numpy(liars)

    def spoil(self, updates: Tensor, liars: Tensor, rng: Rng) -> None:
        """Put lies into the updates (clients, d) where `liars` (clients,) is true."""
        true = updates[liars]
        if self.kind == "flip":
            updates[liars] = -self.scale * true
            return
        noise = rng.normal(*true.shape, device=updates.device)
        length = true.norm(dim=1, keepdim=True) / noise.norm(dim=1, keepdim=True)
        updates[liars] = self.scale * length * noise


def _check(poison: Any) -> None:
    if isinstance(poison, Mapping):
        known_keys(poison, (field.name for field in fields(Poison)), "poison")
    elif not isinstance(poison, Poison):
        raise ConfigError(
            f"poison says who lies by kind, share and scale; it is not {poison!r}."
        )


POISON = Takes(
    "none, or a table of keys",
    _check,
    lambda told: told if isinstance(told, Poison) else Poison(**told),
)


@dataclass(frozen=True, kw_only=True)
class Reporting(Declared):
    """`epsilon` is the price of one report, `epsilon_total` that of all `max_reports`
    reports of a person together. `top` is k/d, `chosen` h, `share` ς*, `rate` ρ of
    SubMDS.
    """

    reporter: str = setting(
        "em-mds", choice(*SELECTION, *ESTIMATION, "none"), "the local mechanism"
    )
    epsilon: float | None = setting(
        None, POSITIVE, "price of one report; or give epsilon_total"
    )
    epsilon_total: float | None = setting(
        None, POSITIVE, "price of all reports of a person together"
    )
    max_reports: int = setting(
        1, whole_to(MOST_REPORTS), "the most reports of one person"
    )
    top: float | None = setting(
        None, POSITIVE, "share of coordinates that count as the largest"
    )
    chosen: int | None = setting(
        None, WHOLE, "coordinates in a report; without it as many as `share` allows"
    )
    share: float = setting(
        0.8, between(0, 1), "expected share of a report's coordinates among the largest"
    )
    rate: float = setting(
        0.1, between(0, 1), "SubMDS: share of coordinates that are looked at"
    )
    split: float = setting(0.5, between(0, 1), "FedSel: part of ε for the choice")
    clip: float | None = setting(None, POSITIVE, "bound of a value")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip is not None:
            check_clip(self.clip)
        in_range(0, 1, top=self.top_share)
        prices = sum(price is not None for price in (self.epsilon, self.epsilon_total))
        if prices != (self.reporter != "none"):
            wants = (
                "neither epsilon nor"
                if self.reporter == "none"
                else "either epsilon (of one report) or"
            )
            raise ConfigError(
                f'reporter "{self.reporter}" takes {wants} epsilon_total.',
                effect=Effect.NOTHING_CHARGED,
            )
        if self.reporter != "none":
            check_epsilon(self.epsilon_report)

    @property
    def epsilon_report(self) -> float:
        """ε_r, the price of one report."""
        return (
            (self.epsilon_total or 0.0) / self.max_reports
            if self.epsilon is None
            else self.epsilon
        )

    @property
    def top_share(self) -> float:
        """k/d; for "proportional" k/2d, by default the smaller the more ε lets a small
        set be told from the rest.
        """
        if self.top is not None:
            return self.top
        if self.reporter == "proportional":
            return min(0.1, math.exp(-self.epsilon_report / 2))
        return 0.05 if self.reporter == "sub-mds" else 0.1

    def mechanism(self, dims: int, clip: float = 1.0) -> Reporter:
        """The mechanism for updates of this size; `clip` where none is set. k ≥ d, h >
        k, no h → ConfigError.
        """
        epsilon = self.epsilon_report
        options = 2 * dims if self.reporter == "proportional" else dims
        top = max(1, round(self.top_share * options))
        arguments: dict[str, Any] = {
            "dims": dims,
            "top": top,
            "epsilon": epsilon,
            "split": self.split,
            "rate": self.rate,
        }
        arguments |= {
            "wanted": self.share,
            "clip": clip if self.clip is None else self.clip,
        }
        kind: Any = {**SELECTION, **ESTIMATION, "none": NoMechanism}[self.reporter]
        wants = [one.name for one in fields(kind) if one.init]
        if "chosen" in wants:
            search = largest_naive_size if kind is Naive else largest_size
            arguments["chosen"] = self.chosen or search(
                dims=dims, top=top, epsilon=epsilon, share=self.share
            )
        mechanism: Reporter = kind(
            **{name: arguments[name] for name in wants if name in arguments}
        )
        return mechanism


@dataclass(frozen=True, kw_only=True)
class Settings(Reporting, usual.PeopleApart, ABC):
    """What a protocol's config adds to `Reporting`: how long, with how many, how people
    train. `global_rate`: γ.
    """

    rounds: int = setting(500, WHOLE, "rounds of training")
    clients_per_round: int = setting(250, WHOLE, "people who report in a round")
    epochs: int = setting(10, WHOLE, "local epochs of a person")
    learning_rate: float = setting(0.001, between(*RATES), "learning rate")
    optimizer: str = setting("sgd", choice(*OPTIMIZERS), "local optimiser")
    global_rate: float | None = setting(
        None, between(*RATES), "step of the common model; without it as in the paper"
    )
    poison: Poison | None = setting(None, POISON, "a simulation: people who lie")
    checkpoint_every: int = setting(100, WHOLE, "rounds between two checkpoints")
    device: str = usual.device()

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(*RATES, global_rate=self.step)

    @property
    def step(self) -> float:
        """γ: for means of updates as it is (SignDS-FL, Eq. 3.1); for FedSel, of one
        coordinate each, for the sum.
        """
        default = {
            **dict.fromkeys(SELECTION, self.sign_step),
            "fedsel": float(self.clients_per_round),
        }.get(self.reporter, 1.0)
        return default if self.global_rate is None else self.global_rate

    @property
    def sign_step(self) -> float:
        return 1.0

    @abstractmethod
    def network_for(self, rule: Any) -> Any:
        """The network that is trained, for rows of this kind."""

    def dims(self, network: Any) -> int:
        return int(network.size)

    def local(self, dims: int) -> Reporter:
        """The mechanism of a client. Without a `clip`, a value is bounded by epochs ·
        learning_rate.
        """
        return self.mechanism(dims, clip=self.epochs * self.learning_rate)

    def event(self, dims: int) -> DpEvent:
        return self.local(dims).event


@dataclass(frozen=True, kw_only=True)
class NoMechanism:
    """No mechanism: the updates as they are. Guarantee: none; its event has no finite
    price.
    """

    dims: int

    @property
    def event(self) -> DpEvent:
        return NonPrivateDpEvent()

    def report(self, updates: Tensor, rng: Rng) -> Report:
        return Report(dims=self.dims, values=updates)


def to_message(reports: list[Report]) -> dict[str, Any]:
    """The reports of one cohort after another, as plain values."""
    indices = [report.indices.cpu() for report in reports if report.indices is not None]
    values = torch.cat([report.values.cpu() for report in reports])
    return {"values": values, "indices": torch.cat(indices) if indices else None}


def form_of(reporter: Reporter) -> Report:
    """What every report looks like, which is public: that of an empty cohort."""
    return reporter.report(torch.zeros(0, reporter.dims), FastRng(0))


def from_message(message: Any, form: Report, clients: int) -> Report:
    """A party's reports as the server reads them. Anything but one of that form for
    each client → PartyError.
    """
    parts = message if isinstance(message, dict) else {}
    values = parts.get("values")
    indices = parts.get("indices")
    fits = _alike(values, form.values, clients) and _alike(
        indices, form.indices, clients
    )
    if fits and isinstance(indices, Tensor):
        fits = bool(((indices >= 0) & (indices < form.dims)).all())
    if not fits:
        raise PartyError(
            f"a reply does not hold a report for each of {clients:,} people. It was "
            "not used."
        )
    return replace(form, values=parts["values"], indices=indices)


def _alike(received: Any, form: Tensor | None, clients: int) -> bool:
    if form is None or not isinstance(received, Tensor):
        return form is None and received is None
    return received.dtype == form.dtype and received.shape == (clients, *form.shape[1:])
