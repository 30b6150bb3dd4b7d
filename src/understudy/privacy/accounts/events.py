"""The words in which a mechanism says what it did: dp_accounting's events and two more.
Prices: `accounting`.
"""

import json
import math
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import attrs
import dp_accounting as dp
from dp_accounting import (
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NonPrivateDpEvent,
    PoissonSampledDpEvent,
    ZCDpEvent,
)
from dp_accounting.dp_event import DiscreteLaplaceDpEvent

from understudy.ground.check import in_range, not_negative, whole
from understudy.ground.errors import Effect, PrivacyError

Spend = Mapping[DpEvent, int]

_UP = 1 + 2**-50  # more than a few roundings take away
_LARGE = 700.0  # e^ε is still a float
# of a count, or of a sensitivity: up to here a float holds every whole number
_MOST = 2**53


@attrs.frozen
class PureDp(DpEvent):  # type: ignore[misc]
    """One use of a mechanism that is ε-DP, or of an ε-LDP report. Guarantee: no output
    is more than e^ε times likelier with a person's rows than without them. For an ε-LDP
    report "without" means with any other rows in their place: that the person reported
    at all is public. Edges: ε=0 costs nothing.
    """

    epsilon: float = attrs.field(converter=float)

    def __attrs_post_init__(self) -> None:
        not_negative(epsilon=self.epsilon)


@attrs.frozen
class DiscreteGaussian(DpEvent):  # type: ignore[misc]
    """One whole number plus discrete Gaussian noise of parameter `sigma` (Canonne,
    Kamath, Steinke 2020). Guarantee: a person moves the number by at most
    `sensitivity`. Edges: a vector is charged as `ZCDpEvent(Δ²/2σ²)` with Δ its L2
    sensitivity (their Thm 14).
    """

    sigma: float = attrs.field(converter=float)
    sensitivity: int = 1

    def __attrs_post_init__(self) -> None:
        not_negative(sigma=self.sigma)
        _counted(sensitivity=self.sensitivity)


@attrs.frozen
class Reveals(DpEvent):  # type: ignore[misc]
    """A person is revealed with probability `delta`, and nothing is learned otherwise.
    Guarantee: the failure of a mechanism that is otherwise priced by its own event, as
    when a list of values of an unknown domain shows one that a single person has.
    Edges: it takes its `delta` from the δ at which a spend is priced; a δ below it →
    infinity.
    """

    delta: float = attrs.field(converter=float)

    def __attrs_post_init__(self) -> None:
        not_negative(delta=self.delta)


SINGLE = (
    GaussianDpEvent,
    LaplaceDpEvent,
    DiscreteLaplaceDpEvent,
    DiscreteGaussian,
    ZCDpEvent,
    PureDp,
    Reveals,
)
_NESTED = (
    PoissonSampledDpEvent,
    NonPrivateDpEvent,
    dp.NoOpDpEvent,
    dp.ComposedDpEvent,
    dp.SelfComposedDpEvent,
)
_VOCABULARY: dict[str, Any] = {cls.__name__: cls for cls in (*SINGLE, *_NESTED)}


def flatten(event: DpEvent, count: int = 1) -> Counter[DpEvent]:
    """Open compositions: how often each single event happens in `count` uses of
    `event`. Edges: a Poisson sample of several Gaussians is one of their merged noise,
    a sample of pure mechanisms is pure; an event outside the vocabulary → PrivacyError;
    more than 2⁵³ uses → ConfigError.
    """
    _counted(count=count)
    match event:
        case dp.NoOpDpEvent():
            return Counter()
        case NonPrivateDpEvent():
            return Counter({event: count})
        case dp.SelfComposedDpEvent():
            return flatten(event.event, count * operator.index(event.count))
        case dp.ComposedDpEvent():
            return sum((flatten(part, count) for part in event.events), Counter())
        case PoissonSampledDpEvent():
            in_range(0, 1, sampling_probability=event.sampling_probability)
            if event.sampling_probability in (0, 1):
                return (
                    flatten(event.event, count)
                    if event.sampling_probability
                    else Counter()
                )
            return Counter(
                {_sampled(event.sampling_probability, flatten(event.event)): count}
            )
        case _ if type(event) in SINGLE:
            _sound(event)
            return Counter({event: count})
    raise PrivacyError(
        f"{event!r} has no price; an ε-DP mechanism is charged as PureDp(ε).",
        effect=Effect.NOTHING_SENT,
    )


@lru_cache(maxsize=1024)
def _sound(event: DpEvent) -> None:
    """Its numbers are some that an event can have; an error is raised each time, and
    what was sound stays it.
    """
    not_negative(
        **{
            field.name: float(getattr(event, field.name))
            for field in attrs.fields(type(event))
        }
    )
    if isinstance(event, DiscreteLaplaceDpEvent):
        _counted(sensitivity=event.sensitivity)


def pure(event: DpEvent) -> float:
    """The ε of one use of a single event at δ=0; infinity where there is none."""
    match event:
        case PureDp():
            return float(event.epsilon)
        case LaplaceDpEvent() if event.noise_multiplier:
            return float(1 / event.noise_multiplier)
        case DiscreteLaplaceDpEvent() if event.noise_parameter:
            return float(event.noise_parameter * event.sensitivity)
        case PoissonSampledDpEvent():
            return amplified(event.sampling_probability, pure(event.event))
        case ZCDpEvent(rho=0, xi=0):
            return 0.0
    return math.inf


def amplified(rate: float, epsilon: float) -> float:
    """ε of an ε-DP mechanism on a Poisson sample, add/remove: log(1 + q(e^ε − 1)),
    rounded up, small ones not to 0.
    """
    if epsilon < _LARGE:
        amplified = math.log1p(rate * math.expm1(epsilon))
    elif math.isfinite(epsilon):
        amplified = epsilon + math.log(rate + (1 - rate) * math.exp(-epsilon))
    else:
        return math.inf
    return math.nextafter(amplified * _UP, math.inf)


def pure_sum(spend: Spend) -> float:
    return math.fsum(count * pure(event) for event, count in spend.items())


def merged_noise(gaussians: Spend) -> float:
    """n Gaussian uses are one: 1/σ² = Σ nᵢ/σᵢ², in parts of the least σᵢ, whose square
    need not be a float.
    """
    lowest = min(event.noise_multiplier for event in gaussians)
    if not lowest:
        return 0.0
    uses = math.fsum(
        n * (lowest / event.noise_multiplier) ** 2 for event, n in gaussians.items()
    )
    return float(lowest / (math.sqrt(uses) if uses > 1 else 1.0))


def _sampled(rate: float, batch: Spend) -> DpEvent:
    if batch and all(isinstance(event, GaussianDpEvent) for event in batch):
        return PoissonSampledDpEvent(rate, GaussianDpEvent(merged_noise(batch)))
    if [type(event) for event in batch] == [LaplaceDpEvent] and sum(
        batch.values()
    ) == 1:
        return PoissonSampledDpEvent(rate, *batch)
    total = pure_sum(batch)
    if math.isfinite(total):
        return PureDp(amplified(rate, total))
    raise PrivacyError(
        f"a Poisson sample of {dict(batch)!r} has no price.",
        effect=Effect.NOTHING_SENT,
    )


def is_sampled_gaussian(event: DpEvent) -> bool:
    return isinstance(event, PoissonSampledDpEvent) and isinstance(
        event.event,
        GaussianDpEvent,
    )


def spent_together(spends: Sequence[Spend], *, steps: int) -> Counter[DpEvent]:
    """What parties spent together, where at least `steps` Poisson samples were common
    to all of them.

    Where the parties of a step draw one batch for all of them, a person is in all of
    their sums or in none. A step is then one Poisson sample with every party's Gaussian
    on it, and Gaussians on one sample are one Gaussian (their weighted sum tells all
    that they tell together). Only that one is amplified by the sampling: priced as
    samples of their own, the parties' steps would seem to cost less than they do.
    Guarantee: an upper bound, whichever of the parties' steps had a sample in common. A
    step of some parties tells no more than the same step of all of them would, so every
    step is priced as one of all; each use beyond the common ones may have been a step
    of its own. Of uses with different noise or rates, the least noise and the largest
    rate bound them all: a sample of a smaller rate is one of a larger rate of which
    some is thrown away.
    Edges: a party without a sampled Gaussian takes no part in the merging; all other
    uses compose as usual.
    """
    not_negative(steps=steps)
    sampled = [
        {event: n for event, n in spend.items() if is_sampled_gaussian(event) and n}
        for spend in spends
    ]
    parts = [part for part in sampled if part]
    if len(parts) < 2:
        return sum((Counter(dict(spend)) for spend in spends), Counter())
    total = sum(
        (
            Counter({e: n for e, n in spend.items() if not is_sampled_gaussian(e)})
            for spend in spends
        ),
        Counter(),
    )
    uses = [sum(part.values()) for part in parts]
    common = min(steps, *uses)
    rate = max(event.sampling_probability for event in chain(*parts))
    lowest_noise = [
        min(event.event.noise_multiplier for event in part) for part in parts
    ]
    noise = merged_noise(Counter(map(GaussianDpEvent, lowest_noise)))
    total[PoissonSampledDpEvent(rate, GaussianDpEvent(noise))] = common + sum(
        n - common for n in uses
    )
    return total


def describe(event: DpEvent) -> str:
    match event:
        case PureDp():
            return f"a pure mechanism, ε={event.epsilon:g}"
        case GaussianDpEvent():
            return f"Gaussian noise {event.noise_multiplier:.4g} × the sensitivity"
        case LaplaceDpEvent():
            return f"Laplace noise {event.noise_multiplier:.4g} × the sensitivity"
        case DiscreteGaussian():
            return f"discrete Gaussian noise {event.sigma:.4g} on a whole number"
        case DiscreteLaplaceDpEvent():
            return f"discrete Laplace noise, decay {event.noise_parameter:.4g}"
        case ZCDpEvent():
            return f"a {event.rho:.4g}-zCDP mechanism"
        case PoissonSampledDpEvent():
            return (
                f"{describe(event.event)}, on a Poisson sample of rate "
                f"{event.sampling_probability:.4g}"
            )
        case Reveals():
            return f"a revelation with probability {event.delta:.4g}"
        case NonPrivateDpEvent():
            return "no noise at all"
    return event_to_json(event)


def event_to_json(event: DpEvent) -> str:
    """One line of text for an event: equal events give equal text, on every machine."""
    return json.dumps(_plain(event), allow_nan=False, separators=(",", ":"))


def event_from_json(text: str) -> DpEvent:
    """The event that `event_to_json` wrote. Edges: any other text → PrivacyError."""
    try:
        event = _event(json.loads(text))
        flatten(event)
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
        PrivacyError,
    ) as error:
        raise PrivacyError(
            f"not an event: {text[:200]!r} ({error}).",
            effect=Effect.NOTHING_SENT,
        ) from error
    return event


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    name = type(value).__name__
    if _VOCABULARY.get(name) is not type(value):
        raise PrivacyError(f"{value!r} has no price.", effect=Effect.NOTHING_SENT)
    # float and index, so that 1, 1.0 and a numpy scalar write alike
    write: dict[Any, Callable[[Any], Any]] = {float: float, int: operator.index}
    values = {
        field.name: write.get(field.type, _plain)(getattr(value, field.name))
        for field in attrs.fields(type(value))
    }
    return {"type": name, **values}


def _counted(**values: int) -> None:
    """Every value is a whole number of at least 1 that a float holds."""
    whole(**values)
    in_range(1, _MOST, **values)


def _event(value: Any) -> Any:
    if isinstance(value, list):
        return [_event(item) for item in value]
    if not isinstance(value, dict):
        if type(value) not in (int, float):
            raise TypeError(f"{value!r} is no number")
        return value
    return _VOCABULARY[value["type"]](
        **{name: _event(item) for name, item in value.items() if name != "type"}
    )
