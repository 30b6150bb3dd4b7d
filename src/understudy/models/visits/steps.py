"""Steps along a person's events: what each place in their order weighs, and draws by kind."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from understudy.ground.check import whole
from understudy.ground.errors import ConfigError
from understudy.models.device import shapes_only
from understudy.models.tables.mixture import latin

Numbers = Sequence[Sequence[int]]  # the least and the largest number of events that each level stands for
MOST_EVENTS = 10_000  # a person, in a chain that is walked step by step


def checked_numbers(numbers: Numbers, levels: int) -> tuple[tuple[int, int], ...]:
    """As they are, if they rise from 0 without gaps. ConfigError if they do not."""
    after, found = 0, []
    for pair in numbers:
        low, high = pair if isinstance(pair, list | tuple) and len(pair) == 2 else (None, None)
        if type(low) is not int or type(high) is not int or low != after or high < low:
            raise ConfigError(
                f"the numbers of events rise level by level from 0 without gaps, not {numbers!r}."
            )
        after = high + 1
        found.append((low, high))
    if len(found) != levels or len(found) < 2 or found[0] != (0, 0):
        raise ConfigError(
            f"{levels} levels of the number of events, the first of them 0, are not {numbers!r}."
        )
    whole(most_events=found[-1][1])
    if found[-1][1] > MOST_EVENTS:
        raise ConfigError(f"{found[-1][1]:,} events of a person are more than {MOST_EVENTS:,}.")
    return tuple(found)


def step_weights(numbers: Numbers, less: int) -> Tensor:
    """What each place weighs, where the first n − `less` of n weigh 1 together: (levels, longest)."""
    weights = torch.zeros(len(numbers), numbers[-1][1])
    if not shapes_only():
        for level, (low, high) in enumerate(numbers):
            for weighed in range(max(low - less, 1), high - less + 1):
                weights[level, :weighed] += 1 / weighed / (high - low + 1)
    return weights


def along(weights: Tensor, place: Tensor) -> Tensor:
    """Sums over places (chains, longest, states), of weights (levels, longest): (chains, levels, states)."""
    chains, longest, states = place.shape
    return (weights @ place.transpose(0, 1).reshape(longest, -1)).view(-1, chains, states).transpose(0, 1)


def by_kind(kind: Tensor, odds: Sequence[Tensor], uniform: Callable[[int], Tensor]) -> Tensor:
    """Levels of rows of these kinds, in any order, by a Latin hypercube for each: int32 (n, columns)."""
    order = torch.argsort(kind + uniform(len(kind)))
    drawn = torch.empty(len(kind), len(odds), dtype=torch.int32)
    drawn[order] = latin(kind[order], odds, uniform)
    return drawn
