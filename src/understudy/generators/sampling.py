"""What a generator of any kind of rows does in a way of its own: `samplers` has a class
for each.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.answers.answers import Answers
from understudy.answers.raking import Weights
from understudy.data.encoding.features import Features
from understudy.generators.parts import GeneratorParts
from understudy.ground.check import not_negative, one_of
from understudy.ground.errors import ArtefactError, ConfigError
from understudy.models.plan import pieces
from understudy.privacy.noise import FastRng

CHUNK = 16_384  # rows drawn at a time at most, so that memory does not grow with n
# Of a classifier: its network, its weights, what it reads, how it was made.
LearnedClassifier = tuple[Any, Tensor, Features, str]


@dataclass(frozen=True)
class SampleRequest:
    where: str | None = None
    weights: Weights | None = None
    like: pd.DataFrame | None = None
    draw: str = "sample"

    @property
    def conditioned(self) -> bool:
        conditions = (self.where, self.weights, self.like)
        return any(condition is not None for condition in conditions)

    def check(self) -> None:
        """ConfigError where rows are not drawn in such a way."""
        if self.conditioned and self.draw != "sample":
            raise ConfigError(
                f"rows that are asked for are drawn, so draw={self.draw!r} has no "
                "meaning here."
            )
        one_of(("sample", "argmax"), draw=self.draw)


class Sampler(ABC):
    """Samples rows of one generator."""

    def __init__(self, generator: GeneratorParts) -> None:
        self.generator = generator
        self.network = generator.network
        self.schema: Any = generator.schema

    @abstractmethod
    def sample(self, n: int, rng: FastRng, request: SampleRequest) -> pd.DataFrame:
        """Synthetic rows as one table."""

    def tables(
        self, n: int, rng: FastRng, request: SampleRequest
    ) -> dict[str, pd.DataFrame]:
        """The same as the tables that a holder would bring, by name; one without a name
        where there is one.
        """
        return {"": self.sample(n, rng, request)}

    def parts(
        self, n: int, rng: FastRng, draw: str
    ) -> dict[str, pd.DataFrame | NDArray[Any]]:
        """Party by party, where these have rows of several kinds."""
        raise ArtefactError("This generator's parties all hold tables: see `sample`.")

    def answers(self) -> Answers:
        """The generator, to be asked. ArtefactError where it draws no table."""
        kind = type(self.schema).__name__
        raise ArtefactError(
            f"Only a generator of tables answers questions, and {kind} describes none."
        )

    @property
    def label(self) -> str | None:
        return None

    def classifier(self, target: str, rows: int, seed: int) -> LearnedClassifier:
        """What predicts the target, made of this generator alone."""
        raise ArtefactError(
            "A classifier is made of a generator that draws a table, or images or "
            "series with a class."
        )


def network_rows(
    generator: GeneratorParts,
    n: int,
    rng: FastRng,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Latent points, some at a time, and what the network makes of them."""
    not_negative(n=n)
    network = generator.network
    device = next(network.parameters()).device
    for count in pieces(network, n, most=CHUNK):
        latents = rng.normal(count, network.latent, device=device)
        with torch.no_grad():
            yield latents, network.rows(latents).cpu()
