"""What a holder is sent of the model: in place of all weights, the signs that were
added up since it was asked last.

Jiang, dissertation, TUM 2024, §8.4, names the download as what is left to save; dropout
and pruning, which it cites, change what is trained. Here the weights are the same to
the bit: a step of the model is γ times whole numbers at a few dimensions, divided by
the number of reports, and a holder takes it as the server does (`moved`).

Guarantee: none is needed. All of it follows from reports that have been paid for.
Edges: a holder that is asked for the first time, or whose missed steps are longer than
the weights, is sent the weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from understudy.ground.errors import Effect, PartyError
from understudy.protocols.cross_device.host import Call, Round

_COUNTS = (torch.int8, torch.int16, torch.int32)
_STEP_BYTES = 20  # of one step, beside its dimensions and counts


class Moved(Call, kind="people.moved"):
    """What was added to the model since the round `since`, and which of the party's
    people are to report on it.

    Step i adds `rates[i]` times `counts` / `reports[i]` at the `dims` that end before
    `ends[i]`.
    """

    since: int
    ends: Tensor
    dims: Tensor
    counts: Tensor
    reports: Tensor
    rates: Tensor
    rate: float = 1.0


def moved(weights: Tensor, total: Tensor, reports: int, rate: float) -> Tensor:
    """A step of γ along the mean of all claims."""
    mean = total / reports
    return weights + rate * mean.to(weights.dtype)


@dataclass(frozen=True)
class _Step:
    dims: Tensor
    counts: Tensor
    reports: int
    rate: float

    @property
    def size(self) -> int:
        return _STEP_BYTES + len(self.dims) * (4 + self.counts.element_size())


@dataclass
class Steps:
    """The server's side: the steps that some holder may lack, by round."""

    taken: dict[int, _Step] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)

    def take(self, round: int, total: Tensor, reports: int, rate: float) -> None:
        """Note the step after this round, a sum of whole numbers."""
        dims = torch.nonzero(total).flatten()
        counts = total[dims].to(torch.int32)
        self.taken[round] = _Step(dims.to(torch.int32), _small(counts), reports, rate)
        missed = [at for at in self.taken if at < min(self.told.values(), default=0)]
        for at in missed:
            del self.taken[at]

    def ask(self, name: str, ask: Round) -> Round | Moved:
        """The shorter of the weights and of the steps that this party lacks."""
        since = self.told.get(name)
        self.told[name] = ask.round
        if since is None:
            return ask
        steps = [self.taken[at] for at in range(since, ask.round)]
        weights = ask.weights
        if sum(step.size for step in steps) >= weights.nbytes:
            return ask
        lengths = torch.tensor([len(step.dims) for step in steps])
        counts = torch.cat([step.counts.to(torch.int32) for step in steps])
        return Moved(
            round=ask.round,
            people=ask.people,
            since=since,
            ends=lengths.cumsum(0).to(torch.int32),
            dims=torch.cat([step.dims for step in steps]),
            counts=_small(counts),
            reports=torch.tensor([step.reports for step in steps], dtype=torch.int32),
            rates=torch.tensor([step.rate for step in steps], dtype=torch.float64),
            rate=ask.rate,
        )

    def forget(self) -> None:
        """Of holders who went back to a saved state nobody knows what they lack."""
        self.taken.clear()
        self.told.clear()


@dataclass
class Held:
    """A holder's side: the weights that it was asked about last."""

    round: int = 0
    weights: Tensor | None = None

    def keep(self, ask: Round) -> None:
        self.round = ask.round
        self.weights = ask.weights

    def ask(self, name: str, ask: Moved) -> Round:
        """The same ask, with the weights."""
        weights = self.weights
        if weights is None or ask.since != self.round or not _is_sound(ask, weights):
            raise PartyError(
                f"{name}: the steps do not follow on the weights of round "
                f"{self.round} that this party has.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        begin = 0
        for step, end in enumerate(ask.ends.tolist()):
            total = torch.zeros(len(weights), dtype=torch.float64)
            dims = ask.dims[begin:end].long()
            total.index_add_(0, dims, ask.counts[begin:end].to(torch.float64))
            reports = int(ask.reports[step])
            weights = moved(weights, total, reports, float(ask.rates[step]))
            begin = end
        return Round(round=ask.round, people=ask.people, weights=weights, rate=ask.rate)

    def to_save(self) -> dict[str, object]:
        if self.weights is None:
            return {}
        return {"held": {"round": self.round, "weights": self.weights}}

    def restore(self, state: Mapping[str, object]) -> None:
        saved = state.get("held")
        if isinstance(saved, dict):
            self.round = saved["round"]
            self.weights = saved["weights"]


def _small(counts: Tensor) -> Tensor:
    """In as few bytes each as hold all of them."""
    largest = int(counts.abs().max()) if len(counts) else 0
    kind = next(kind for kind in _COUNTS if largest <= torch.iinfo(kind).max)
    return counts.to(kind)


def _is_sound(ask: Moved, weights: Tensor) -> bool:
    """Whether the message is one that a server could have made of reports."""
    whole = (ask.ends, ask.dims, ask.counts, ask.reports)
    if any(tensor.ndim != 1 for tensor in (*whole, ask.rates)):
        return False
    if not all(tensor.dtype in _COUNTS for tensor in whole):
        return False
    if ask.rates.dtype != torch.float64:
        return False
    steps = len(ask.ends)
    if not steps or not len(ask.reports) == len(ask.rates) == steps:
        return False
    lengths = ask.ends.long().diff(prepend=torch.zeros(1, dtype=torch.int64))
    counted = int(ask.ends[-1]) == len(ask.dims) == len(ask.counts)
    inside = (ask.dims >= 0) & (ask.dims < len(weights))
    return bool(
        counted
        and (lengths >= 0).all()
        and inside.all()
        and (ask.reports > 0).all()
        and ask.rates.isfinite().all()
    )
