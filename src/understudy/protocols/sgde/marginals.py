"""One-way tables of each class, counted under noise, as a silo's generators: SGDE where rows are few.

Not in the paper. A silo of some hundred rows cannot teach a network of thousands of weights at ε = 1.5; the shares of
levels within a class are few numbers, each of them a sum over all rows of the class. Columns are independent within a
class, and a classifier that learns from such rows learns what a naive Bayes classifier would.
A generator is the decoder of `models.beta_vae` without hidden layers: its bias is the logarithm of the noisy shares,
so that a pool takes it in as any other.

Guarantee: a person is one row, of one class, and adds 1 to one cell for each of m columns; all classes together are m
uses of `release_event(σ)`, for add/remove one person. Nothing else is read from rows: no count divides anything.
Edges: a class without rows is noise alone; images have no levels → ConfigError.
"""

from fractions import Fraction

import torch
from torch import Tensor

from understudy.data.encoding.codec import Codec
from understudy.data.kinds import TABLE
from understudy.ground.errors import ConfigError
from understudy.models.nets.beta_vae import ClassDecoder
from understudy.privacy.accounts.accounting import Spend
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import Rng
from understudy.privacy.secure.counts import needed_noise, noise, spend_of
from understudy.protocols.sgde.offer import Requirements

_LEAST = 0.2  # of σ: what a level has that nobody was counted at, so that no share is 0


def price(requirements: Requirements, budget: Budget | None) -> Spend:
    """What the tables cost within this budget; None: they are counted without noise."""
    columns = len(_others(requirements).sizes)
    return spend_of([(needed_noise(columns, budget) if budget is not None else 0.0, columns)])


def decoders(
    requirements: Requirements, rows: Tensor, codes: Tensor, sigma: float, rng: Rng
) -> list[ClassDecoder]:
    """A decoder for each class, from one-hot `rows` (n, width) of the classes `codes` (n,). It has been paid for."""
    sizes, labels = list(_others(requirements).sizes), requirements.labels
    place = requirements.schema.names.index(requirements.target)
    sizes.insert(place, len(labels))
    made = []
    for number, shares in enumerate(levels(rows, codes, len(labels), sigma, rng)):
        decoder = ClassDecoder(1, (), sizes, (place, number))
        weight, bias = decoder.parameters()
        weight.zero_()
        bias.copy_(shares.log())  # the softmax over a column's levels makes shares of them
        made.append(decoder)
    return made


def levels(rows: Tensor, codes: Tensor, classes: int, sigma: float, rng: Rng) -> Tensor:
    """How many of each class have each level, under noise and above 0: (classes, width)."""
    counts = torch.zeros(classes, rows.shape[1], dtype=torch.int64).index_add_(0, codes, rows.cpu().long())
    noisy = counts + noise(Fraction(sigma), rng, *counts.shape)
    return noisy.clamp_(min=0).double() + _LEAST * max(sigma, 1.0)


def _others(requirements: Requirements) -> Codec:
    """The codec of all columns but the class."""
    if not TABLE.describes(requirements.schema):
        raise ConfigError('kind="marginals" is for tables: images have no levels. Nothing was charged.')
    return Codec(requirements.schema.drop([requirements.target]))
