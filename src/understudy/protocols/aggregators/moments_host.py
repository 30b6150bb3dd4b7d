"""A host of people who upload a class and a vector to two aggregators, and the second aggregator of such a run.

Guarantee: as of `host`: a person has one upload in a run, and pays before a row is touched, the price of one release
of counts, means and second moments under the noise that either aggregator adds in full (`moments_plan`). A row is
pulled in to the norm that the price is for, whatever it holds (`secure.moments.bounded`).
Edges: of several rows a person uploads one, drawn in secret. Who has none uploads no class and zeros, which passes the
check like any other.
"""

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from understudy.data.kinds import ARRAYS, population_of
from understudy.ground.errors import ConfigError
from understudy.ground.pack import Value
from understudy.privacy.secure.moments import bounded
from understudy.protocols.aggregators.host import UploadParty
from understudy.protocols.aggregators.messages import Begin, Upload
from understudy.protocols.aggregators.moments_plan import MomentsPlan
from understudy.protocols.aggregators.second import SecondAggregator
from understudy.protocols.aggregators.terms import Terms
from understudy.protocols.people.host import Hosting


class MomentsHost(UploadParty):
    """A host of people with images or series. Guarantee and edges: see the module."""

    terms: ClassVar[type[Terms]] = MomentsPlan
    plan: MomentsPlan

    def open(self, ask: Begin) -> Hosting:
        if not ARRAYS.holds(self.data):
            raise ConfigError(f"{self.name}: these uploads are of images or series. Nothing was charged.")
        plan = self.told(ask, self.data.schema)
        return Hosting(population_of(self.data), plan.event, 1)

    def reports(self, ask: Upload) -> Value:
        """The uploads of these people: uint8, (people, size)."""
        own = self.vectors(ask.people).numpy()
        return self.plan.format.write(own, self.randomness(ask.people, own), self.key, self.context)

    def vectors(self, people: Tensor) -> Tensor:
        """The class and the vector of one row of each: int64, (people, 1 + features); no class, −1, without rows."""
        rows: Any = self.data
        (place, some), frame = (found.numpy() for found in self.drawn(people)), self.plan.frame
        q = bounded(frame.coefficients(rows.values[place]), float(frame.reach), self.plan.cells.radius)
        classes = np.zeros(len(place), np.int64) if rows.classes is None else rows.classes[place]
        q, classes = np.where(some[:, None], q, 0), np.where(some, classes, -1)
        return torch.from_numpy(np.hstack([classes[:, None], q]).astype(np.int64))


class MomentsAggregator(SecondAggregator):
    """The second aggregator of classes and vectors: all of `second` holds."""

    terms: ClassVar[type[Terms]] = MomentsPlan
