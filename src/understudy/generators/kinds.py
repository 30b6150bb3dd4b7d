"""What a generator of any kind of rows does in a way of its own (`drawings`, loaded
when it is needed).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
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
Learned = tuple[Any, Tensor, Features, str]


@dataclass(frozen=True)
class SampleRequest:
    where: str | None = None
    weights: Weights | None = None
    like: pd.DataFrame | None = None
    draw: str = "sample"

    @property
    def conditioned(self) -> bool:
        return (
            self.where is not None or self.weights is not None or self.like is not None
        )

    def check(self) -> None:
        """ConfigError where rows are not drawn in such a way."""
        if self.conditioned and self.draw != "sample":
            raise ConfigError(
                f"rows that are asked for are drawn, so draw={self.draw!r} has no "
                "meaning here."
            )
        one_of(("sample", "argmax"), draw=self.draw)


class Sampler(ABC):
    @abstractmethod
    def sample(
        self, made: GeneratorParts, n: int, rng: FastRng, request: SampleRequest
    ) -> pd.DataFrame:
        """Synthetic rows as one table."""

    def tables(
        self, made: GeneratorParts, n: int, rng: FastRng, request: SampleRequest
    ) -> dict[str, pd.DataFrame]:
        """The same as the tables that a holder would bring, by name; one without a name
        where there is one.
        """
        return {"": self.sample(made, n, rng, request)}

    def parts(
        self, made: GeneratorParts, n: int, rng: FastRng, draw: str
    ) -> dict[str, pd.DataFrame | NDArray[Any]]:
        """Party by party, where these have rows of several kinds."""
        raise ArtefactError("This generator's parties all hold tables: see `sample`.")

    def answers(self, made: GeneratorParts) -> Answers:
        """The generator, to be asked. ArtefactError where it draws no table."""
        kind = type(made.schema).__name__
        raise ArtefactError(
            f"Only a generator of tables answers questions, and {kind} describes none."
        )

    def label(self, made: GeneratorParts) -> str | None:
        return None

    def classifier(
        self, made: GeneratorParts, target: str, rows: int, seed: int
    ) -> Learned:
        """What predicts the target, made of this generator alone."""
        raise ArtefactError(
            "A classifier is made of a generator that draws a table, or images or "
            "series with a class."
        )


def drawn(
    made: GeneratorParts, n: int, rng: FastRng
) -> Iterator[tuple[Tensor, Tensor]]:
    """Latent points, some at a time, and what the network makes of them."""
    not_negative(n=n)
    device = next(made.network.parameters()).device
    for count in pieces(made.network, n, most=CHUNK):
        z = rng.normal(count, made.network.latent, device=device)
        with torch.no_grad():
            yield z, made.network.rows(z).cpu()


CLASSES = {  # the kind of a schema → the class in `drawings`
    "table": "TableSampler",
    "image": "ArraySampler",
    "series": "ArraySampler",
    "visits": "VisitSampler",
    "several-visits": "VisitSampler",
    "mixed": "MixedSampler",
}


def sampler_of(schema: Any) -> Sampler:
    drawing: Sampler = getattr(
        import_module("understudy.generators.drawings"), CLASSES[schema.kind]
    )()
    return drawing
