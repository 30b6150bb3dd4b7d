"""People who meet a condition, with their events, from a mixture of chains.

A kind of people is a product of columns, but for the time of a first event and the number of events, which go
together: it is two products, of those who have events and of those who have none. So a condition on people's columns,
the number of events among them, has a closed form (`products`), however rare it is; each person's events are then
drawn from the chain of the person's own kind.

Edges: a condition on events → ConfigError; one of too many parts, or that nobody meets → ConfigError.
"""

import numpy as np
import pandas as pd
import torch
from torch.nn import functional

from understudy.answers.products import Products
from understudy.answers.question import Question
from understudy.data.codec import Codec, Uniform
from understudy.data.visits import VisitCodes, VisitSchema
from understudy.data.visits.frames import visit_frames
from understudy.errors import ConfigError
from understudy.models.visits import MixtureOfChains

_MOST_BOXES = 256
_TINY = 1e-300  # a divisor in place of 0: kinds of people who never have events


def people_where(
    network: MixtureOfChains, schema: VisitSchema, where: str, n: int, rng: Uniform
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`n` people who meet the condition, and their events; `attrs["probability"]` is what the model gives it."""
    levels = Codec(schema.person_schema)
    question = Question.read(where, levels)
    boxes = question.boxes(_MOST_BOXES)
    if boxes is None:
        raise ConfigError(f"{where!r} falls into more than {_MOST_BOXES} parts. Nothing was drawn.")
    probability, left = kinds_of(network).cut(question.pieces).given(boxes)
    if left is None:
        raise ConfigError(f"nobody meets {where!r}: the model gives it the probability 0. Nothing was drawn.")
    drawn = left.draw(n, rng.uniform).numpy()
    codes, kind = np.ascontiguousarray(drawn[:, :-1]), torch.from_numpy(drawn[:, -1]).long()
    for j, own in question.pieces.items():
        codes[:, j] = own.level[drawn[:, j]]
    people = levels.decode(codes, rng)
    for j, own in question.pieces.items():
        people[own.column.name] = own.values(drawn[:, j], rng.uniform(n).numpy())
    number = people.iloc[:, -1].to_numpy(np.int64)
    events = network.events_of(kind, torch.from_numpy(number), rng.uniform)
    starts = np.concatenate([[0], np.cumsum(number)]).astype(np.int64)
    frames = visit_frames(VisitCodes(codes, events.numpy(), starts), schema, rng, people=people)
    for frame in frames:
        frame.attrs |= {"answer": "exact", "probability": probability}
    return frames


def kinds_of(network: MixtureOfChains) -> Products:
    """Kinds of people as weighted products of their columns, and of one more column that says which kind it is."""
    own, number = (part.detach().cpu().double() for part in network.person_odds())
    blocks = torch.split(own, list(network.people[:-1]), 1)
    which = torch.eye(network.kinds, dtype=torch.float64)
    if not network.ordered:
        return Products(
            torch.full((network.kinds,), 1 / network.kinds, dtype=torch.float64), (*blocks, number, which)
        )
    none, some = number[:, :1], functional.pad(number[:, 1:], (1, 0))
    missing = functional.one_hot(torch.tensor(network.people[-2] - 1), network.people[-2]).double()
    nothing = functional.one_hot(torch.tensor(0), network.people[-1]).double()
    weight = torch.cat((1 - none[:, 0], none[:, 0])) / network.kinds
    odds = [torch.cat((block, block)) for block in blocks[:-1]]
    odds.append(torch.cat((blocks[-1], missing.expand(network.kinds, -1))))
    odds.append(
        torch.cat((some / some.sum(1, keepdim=True).clamp(min=_TINY), nothing.expand(network.kinds, -1)))
    )
    return Products(weight, (*odds, torch.cat((which, which))))
