"""Small generators to ask, and the joint distribution of each, listed cell by cell."""

import itertools
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from understudy.data.encoding.codec import Codec
from understudy.data.schema import Boolean, Categorical, Integer, Real, Schema
from understudy.generators.generator import Generator
from understudy.models.tables.mixture import MixtureOfProducts

SCHEMA = Schema(
    columns=(
        Integer(name="age", low=0, high=89, bins=3, nullable=True),
        Categorical(name="sex", categories=("F", "M")),
        Boolean(name="smoker", nullable=True),
        Real(name="income", low=0, high=100, bins=4),
    )
)
SIZES = Codec(SCHEMA).sizes


def mixture(components: int = 5, seed: int = 0) -> MixtureOfProducts:
    network = MixtureOfProducts(SIZES, components)
    draws = torch.randn(
        components, sum(SIZES), generator=torch.Generator().manual_seed(seed)
    )
    with torch.no_grad():
        network.logits.copy_(2 * draws)
    return network.requires_grad_(False)


class Behind(nn.Module):
    """A mixture as a network of which nothing is known but its rows."""

    latent = 1

    def __init__(self, inner: MixtureOfProducts) -> None:
        super().__init__()
        self.inner = inner
        self.row_numbers = inner.row_numbers

    def rows(self, z: Tensor) -> Tensor:
        return self.inner.rows(z)

    def describe(self) -> dict[str, Any]:
        return {"kind": "behind"}


def asked(network: MixtureOfProducts | None = None) -> Generator:
    return Generator(network or mixture(), SCHEMA, {})


def behind(network: MixtureOfProducts | None = None) -> Generator:
    return Generator(Behind(network or mixture()), SCHEMA, {})


def joint(network: MixtureOfProducts | None = None) -> np.ndarray:
    """The probability of every combination of levels, by adding up the components."""
    odds = (network or mixture()).odds().double().numpy()
    blocks = np.split(odds, np.cumsum(SIZES)[:-1], axis=1)
    table = np.zeros(SIZES)
    for cell in itertools.product(*map(range, SIZES)):
        table[cell] = np.mean(
            np.prod(
                [block[:, level] for block, level in zip(blocks, cell, strict=True)],
                axis=0,
            )
        )
    return table
