"""What the server and the holders say to each other while they measure moments: `Begin`, `Agree`, where a bound on
norms is bought `Norms`, and the three releases `Means`, `Pooling` and `Cells`.
"""

from dataclasses import dataclass

from torch import Tensor

from understudy.protocols.core import Ask, Assembly, Delivery, Greeted, Keys, Paid, Public, Reply, Stated


@dataclass(frozen=True, kw_only=True)
class Begin(Assembly, kind="moments.begin"):
    """Every party's schema, which all are alike, and the settings, which say what is to be released."""


@dataclass(frozen=True, kw_only=True)
class Begun(Stated, kind="moments.begun"):
    """The noise multiplier that this party's budget needs in each release, and its public key of the run."""

    multipliers: Public


@dataclass(frozen=True, kw_only=True)
class Agree(Keys, kind="moments.agree"):
    """Who takes part, with which keys, and the noise multiplier of each release."""

    multipliers: list[float]


@dataclass(frozen=True, kw_only=True)
class Agreed(Greeted, kind="moments.agreed"):
    """The fingerprint of all keys as this party was told them, and a sealed greeting for every other party."""


@dataclass(frozen=True, kw_only=True)
class Norms(Delivery, kind="moments.norms"):
    """Release how many people's rows have a norm in each cell of a public grid.

    `inbox`: the others' greetings.
    """


@dataclass(frozen=True, kw_only=True)
class Means(Delivery, kind="moments.means"):
    """Release counts and means of the classes, and the energy and the histograms of all rows.

    Longer rows are pulled in to `norm`, which is a part of the largest norm possible: the one that was bought. None:
    the schema's. `inbox`: the others' greetings, where nothing came before.
    """

    norm: float | None = None


@dataclass(frozen=True, kw_only=True)
class Pooling(Ask, kind="moments.pooling"):
    """Release second moments of all rows about these means, (classes, features), in the first `features` of them.

    Means and `radius` are in steps of the frame; rows that are farther from their mean are pulled in to it.
    """

    means: Tensor
    radius: int
    features: int


@dataclass(frozen=True, kw_only=True)
class Cells(Ask, kind="moments.cells"):
    """Release second moments of each class, or cell of a class, in the subspace of `basis`, (features, directions).

    `bits`: so many of the directions cut a class into cells by their signs; of each cell a count and a mean are
    released, too.
    """

    means: Tensor
    basis: Tensor
    radius: int
    bits: int


@dataclass(frozen=True, kw_only=True)
class Summed(Reply, kind="moments.summed"):
    """This party's sums with its share of noise, under pads where others take part, too."""

    sums: Paid
