"""FedSTDG: people with a few series each train one recurrent autoencoder; its decoder
draws synthetic series.

Jiang, dissertation, TUM 2024, chapter 5: Algorithms 6 (SubMDS), 7 (MagRR) and 8, Eq.
5.4–5.10.
Paper → code: T → rounds, N → clients_per_round, E → epochs, η → learning_rate, γ →
global_rate, r → decay, T_pat → patience, t_pat → `notes["waited"]`, M_t →
`Round.weights`, ε = ε_idx + ε_mag → `epsilon_report`, ε_mag/ε → magnitude_share, k/d →
top, ρ → rate, ς* → share, SubMDS → reporter "sub-mds"; SignDS-S, -E and -M are "ps",
"naive" and "em-mds". Differs from the paper: every participation of a person is
charged, and their number is capped. The paper's ε is that of one update, and at its
settings a person gives more than a hundred (Stock); both figures are stated. Where no
number of indices reaches ς*, one index is sent: the likeliest choice to hit of all. At
k/d = 0.05 that is so for SubMDS at ε = 0.5 and for SignDS-E and -M up to ε = 4, so that
the paper's Table 5.3, whose rows differ there, cannot have been made with ς* = 0.8.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from understudy.data.encoding.features import Values
from understudy.data.kinds import SERIES, Rows
from understudy.ground.errors import ConfigError, Effect, PartyError
from understudy.ground.pack import Value
from understudy.ground.settings import NOT_NEGATIVE, TRUTH, WHOLE, between, setting
from understudy.models.nets.autoencoder import Rwae
from understudy.privacy.accounts.accounting import DpEvent, PureDp
from understudy.privacy.local.reporter import Reporter
from understudy.privacy.local.selection import MagRr, Ps, RateDecay
from understudy.protocols.cross_device.host import Round
from understudy.protocols.cross_device.reporting import (
    MOST_PENALTY,
    SELECTION,
    Settings,
    to_message,
)
from understudy.protocols.cross_device.rounds import CHUNK, Answer
from understudy.protocols.papers.fed_wae.protocol import FedWae, FedWaeParty

# send as many indices as keep the wanted share
TOP_SEARCHING = ("em-mds", "naive", "sub-mds")
# γ is said to fall early when it is below this share of its start within so many
# rounds. With the paper's patience of 50 it takes 350 rounds.
EARLY_SHARE = 0.01
EARLY_ROUNDS = 100


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The paper's settings (§5.6.1). `adaptive`: MagRR lowers γ, by default with signs;
    it begins at 25, else at 5.
    """

    reporter: str = "sub-mds"
    rounds: int = 1000
    clients_per_round: int = 50
    optimizer: str = "adam"
    top: float | None = 0.05
    adaptive: bool | None = setting(
        None, TRUTH, "whether γ is lowered by a noisy flag; without it, for signs"
    )
    magnitude_share: float = setting(
        0.1, between(0, 1), "share of a report's ε for that flag"
    )
    decay: float = setting(
        0.5, between(1e-06, 1), "what γ is multiplied by when it is lowered"
    )
    patience: int = setting(50, WHOLE, "rounds before γ is lowered again")
    hidden: int = setting(32, WHOLE, "width of the hidden layers")
    latent: int = setting(
        16, WHOLE, "size of the latent space; without it as in the paper"
    )
    penalty: float = setting(
        1.0, between(0, MOST_PENALTY), "weight of the penalty term of the loss"
    )
    pretrain: int = setting(
        0, NOT_NEGATIVE, "steps on public rows before anybody is asked"
    )
    max_rows_per_person: int = setting(
        256, WHOLE, "rows of a person that are used in a round"
    )

    def __post_init__(self) -> None:
        if self.adaptive and self.reporter not in SELECTION:
            raise ConfigError(
                f'adaptive is for reporters that send signs, not "{self.reporter}".',
                effect=Effect.NOTHING_CHARGED,
            )
        super().__post_init__()
        if self.adapts and not 0 < self.magnitude_share < 1:
            raise ConfigError(
                "magnitude_share must lie between 0 and 1, so that both parts of a "
                f"report get some of its epsilon, not {self.magnitude_share!r}."
            )
        _ = self.magnitude  # a part of epsilon that is too small is found here

    @property
    def adapts(self) -> bool:
        return self.reporter in SELECTION if self.adaptive is None else self.adaptive

    @property
    def sign_step(self) -> float:
        return 25.0 if self.adapts else 5.0

    @property
    def magnitude(self) -> MagRr | None:
        epsilon = self.magnitude_share * self.epsilon_report
        return MagRr(epsilon=epsilon, decay=self.decay) if self.adapts else None

    @property
    def epsilon_indices(self) -> float:
        return (1 - self.magnitude_share if self.adapts else 1) * self.epsilon_report

    def local(self, dims: int) -> Reporter:
        """The mechanism for a client's indices, under ε_idx. `event` prices a whole
        report.
        """
        if self.reporter == "none":
            return super().local(dims)
        part = replace(
            self, epsilon=self.epsilon_indices, epsilon_total=None, adaptive=False
        )
        inputs = round(self.rate * dims) if self.reporter == "sub-mds" else dims
        top = max(1, round(self.top_share * dims))
        if self.reporter in TOP_SEARCHING and self.chosen is None and top < inputs:
            # no choice hits more often
            single = Ps(dims=inputs, top=top, epsilon=part.epsilon_report)
            part = replace(part, share=min(self.share, single.share * (1 - 1e-9)))
        return part.mechanism(dims, clip=self.epochs * self.learning_rate)

    def event(self, dims: int) -> DpEvent:
        """What one report costs: indices and flag together (sequential composition)."""
        return PureDp(self.epsilon_report) if self.adapts else self.local(dims).event

    def network_for(self, rule: Any) -> Rwae:
        if not isinstance(rule, Values) or not SERIES.describes(rule.schema):
            raise ConfigError(
                "fed-stdg is for series; for tables and images there is fed-wae.",
                effect=Effect.NOTHING_CHARGED,
            )
        return Rwae(*rule.schema.shape, self.hidden, self.latent)


def window_adjacency(schema: Any) -> str:
    """What is protected in a run over these series, where a window stands for a
    person.
    """
    return (
        f"replace the content of all reports on one window of {schema.length} steps; "
        "a person behind several "
        "windows is not covered by these figures, but by their sum"
    )


class FedStdgParty(FedWaeParty):
    """A host of people who train a recurrent autoencoder; a report's flag (MagRR) and
    indices together cost ε.
    """

    settings = Config

    def composition(self) -> dict[str, Any]:
        series: Any = self.population.features
        stated = super().composition()
        if series.schema.windows_are_people:
            stated["adjacency"] = window_adjacency(series.schema)
        return stated

    # Algorithm 8, LocalUpdate, for a whole cohort
    def reports(self, ask: Round) -> Value:
        magnitude = self.config.magnitude
        if magnitude is None:
            return super().reports(ask)
        reports = []
        flags = []
        for part in torch.split(ask.people, max(1, CHUNK // len(ask.weights))):
            updates = self.told_updates(part, ask.weights)
            reports.append(self.reporter.report(updates, self.rng))  # line 20
            flags.append(magnitude.flags(updates, ask.rate, self.rng).cpu())  # line 21
        return to_message(reports) | {"flags": torch.cat(flags)}


# Algorithm 8, "Server executes"
class FedStdg(FedWae):
    protocol = "fed-stdg"

    def first_notes(self) -> dict[str, Any]:
        return {"waited": 0, "rates": [[1, self.config.step]]}

    def first_model(self, config: Any, network: Any, public: Rows | None) -> Tensor:
        if config.pretrain and public is None:  # §5.6.2, "Pre-training"
            raise ConfigError(
                "pretrain needs public series to train on.",
                effect=Effect.NOTHING_CHARGED,
            )
        return super().first_model(config, network, public)

    def learn(self, round: int, answers: list[Answer]) -> None:
        if self.config.adapts:
            self.decay(
                round,
                torch.cat([_flags(reports, people) for reports, people in answers]),
            )
        super().learn(round, answers)  # lines 7–9, 12

    def decay(self, round: int, flags: Tensor) -> None:
        """Lines 10 and 11: γ for this round's step and from now on
        (MagRR.ServerAggr).
        """
        config = self.config
        state = RateDecay(
            rate=self.rate,
            decay=config.decay,
            patience=config.patience,
            waited=self.notes["waited"],
        )
        before = self.rate
        if state.step(flags) != before:
            self.rate = state.rate
            self.notes["rates"].append([round, state.rate])
            self.warn_of_early_fall(round, before)
        self.notes["waited"] = state.waited

    def warn_of_early_fall(self, round: int, before: float) -> None:
        """Once, when γ passes `EARLY_SHARE` of its start within `EARLY_ROUNDS`. It
        follows from public settings and from flags that were paid for.
        """
        start = self.config.step
        if round <= EARLY_ROUNDS and self.rate < EARLY_SHARE * start <= before:
            warnings.warn(
                f"The server's step γ fell from {start:g} to {self.rate:g} within "
                f"{round} rounds, so later rounds hardly move the model. Choose a "
                f"larger `patience` than {self.config.patience}, or a `decay` nearer "
                "to 1.",
                stacklevel=2,
            )

    @property
    def adjacency(self) -> str:
        """What one person is in this run's figures, which the schema decides."""
        schema: Any = self.rule.schema
        return (
            window_adjacency(schema) if schema.windows_are_people else super().adjacency
        )

    def card_extra(self) -> dict[str, Any]:
        config = self.config
        share = getattr(self.reporter, "share", None)
        if share is None:
            return super().card_extra()
        sent = {
            "indices": getattr(self.reporter, "chosen", 1),
            "of them expected in the top set": share,
        }
        if config.adapts:
            flag = config.epsilon_report - config.epsilon_indices
            sent["epsilon"] = {"of indices": config.epsilon_indices, "of flag": flag}
        return super().card_extra() | {"report": sent}


def _flags(reports: Any, people: int) -> Tensor:
    flags = reports.get("flags") if isinstance(reports, dict) else None
    if (
        not isinstance(flags, Tensor)
        or flags.dtype != torch.bool
        or flags.shape != (people,)
    ):
        raise PartyError(
            f"a reply does not hold a flag for each of {people:,} people. It was not "
            "used."
        )
    return flags


PROTOCOL = FedStdg.record(
    FedStdgParty,
    Config,
    paper=__doc__,
    kinds=("table", "image", "series"),
    public_rows=True,
    audit="reports",
)
