"""All pairs of a table's columns, counted under noise, as a silo's one offer for all classes.

Not in the paper. `marginals` has the pairs of every column with the class; here all other pairs are counted besides,
so that columns depend on each other within a class. A pool adds the counts of all silos, with their noise, and fits one
mixture (`models/tables/offered.py`).

Guarantee: a person is one row, the first, and adds 1 to one cell for each column and each pair of columns: with m
columns the m cells of the class, and of the class with another column, have noise of one scale and the m(m−1)/2 others
of another; all together are so many uses of `release_event`, for add/remove one person. A figure of quality is two
counts more, that a person moves by 1 at most, from the same budget.
Edges: a class without rows is noise alone; images and series have no levels → ConfigError.
"""

from collections import Counter
from fractions import Fraction

from understudy.data.encoding.codec import Codec
from understudy.data.encoding.triangles import packed
from understudy.data.kinds import TABLE
from understudy.ground.errors import ConfigError
from understudy.models.tables.offered import OfferedGram, of_column
from understudy.privacy.accounts.accounting import DpEvent
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import Rng
from understudy.privacy.secure.counts import gram_matrix, mirrored, movable, noise_on, shared_noise, spend_of
from understudy.protocols.sgde.offer import Requirements
from understudy.protocols.sgde.quality import MOVED
from understudy.protocols.sgde.rows import Held

SHARES = (0.8, 0.2)  # of the budget: cells of the class, and all others


def blank(requirements: Requirements, budget: Budget | None, figure: float = 0.0) -> OfferedGram:
    """The offer, with its noise stated and nothing counted; None: without noise. ConfigError where nobody takes it.

    `figure`: the noise of a figure of quality, which is paid from the same budget; 0: there is none.
    """
    schema = requirements.schema
    if not TABLE.describes(schema):
        raise ConfigError(
            'kind="gram" is for tables: kind="moments" is for images and series. Nothing was charged.'
        )
    cells = moved(len(schema.columns))
    releases = tuple((((1.0, count),), share) for count, share in zip(cells, SHARES, strict=True))
    beside = ((figure, MOVED),) if figure else ()
    sigmas = (0.0, 0.0) if budget is None else shared_noise(releases, budget, beside=beside)
    return OfferedGram(Codec(schema).sizes, target=schema.names.index(requirements.target), noise=sigmas)


def moved(columns: int) -> tuple[int, int]:
    """How many cells a person moves: of the class, and others."""
    return columns, columns * (columns - 1) // 2


def price(offer: OfferedGram) -> Counter[DpEvent]:
    """What the counts cost."""
    return spend_of(zip(offer.noise, moved(len(offer.sizes)), strict=True))


def counted(offer: OfferedGram, data: Held, requirements: Requirements, rng: Rng) -> OfferedGram:
    """The offer with the counts of these rows in it. They have been paid for."""
    schema = requirements.schema
    assert TABLE.describes(schema)
    assert TABLE.holds(data)
    codes = Codec(schema).codes(data.first_of_each().frame)
    cells = movable(offer.sizes).triu()
    own = of_column(offer.sizes, offer.target)
    own = own[:, None] | own
    drawn = noise_on(cells & own, Fraction(offer.noise[0]), rng)
    drawn = drawn + noise_on(cells & ~own, Fraction(offer.noise[1]), rng)
    offer.load_state_dict({"gram": packed(gram_matrix(codes, offer.sizes) + mirrored(drawn))})
    return offer
