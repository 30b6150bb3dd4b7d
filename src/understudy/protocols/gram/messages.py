"""What the server and the holders say to each other while they measure a joint Gram matrix.

`Begin`, `Agree`, where levels are bought `Fine`, `ProposeLevels` and `TakeLevels`, where columns are split
`products.Swap` chunk by chunk, `Share`, and where pairs are released twice `Refine`, after `Propose` if some of them
were chosen, and after `Widen` and `Swap` again if three-way tables lie across holders. The first of them after `Agree`
brings the others' greetings in its `inbox`.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from understudy.protocols.core import Ask, Assembly, Paid, Public, Reply
from understudy.protocols.core.keyed import Greeted, Keys, Stated
from understudy.protocols.core.products import Delivery


def _no_pairs() -> Tensor:
    return torch.empty(0, 2, dtype=torch.int64)


@dataclass(frozen=True, kw_only=True)
class Begin(Assembly, kind="gram.begin"):
    """Every party's schema, by which all see how the table is split, and what is to be released.

    `private=False` asks for no noise. `fine`: the share of the budget for fine tables of all columns, by which levels
    are chosen; 0 for levels as declared. `across`: only the pairs of columns that are with different groups of holders.
    `target`: all pairs with this column are released once more, and so are `refined` others, named later, and up to
    `chosen_triples` three-way tables with it; `scouting` is the first release's share of the budget then. None lets
    each party find that share by its budget and by how many people there are: those that all share where columns are
    split, and else `public_people`, if told. `triples`: three-way tables within one group, released with the last
    release. `colluding`: how many holders of a block may pool what they know; with the schemas it says how noise is
    spread (`layout`). `most_holders`: over rows, with how many of them a person may be.
    """

    private: bool
    fine: float = 0.0
    across: bool = False
    target: str | None = None
    refined: int = 0
    scouting: float | None = 1.0
    public_people: int | None = None
    chosen_triples: int = 0
    triples: list[list[str]]
    colluding: int
    most_holders: int = 1


@dataclass(frozen=True, kw_only=True)
class Begun(Stated, kind="gram.begun"):
    """The noise that this party's budget needs in each release, and its public key of the run.

    `people`: None over rows.
    """

    people: Public
    sigmas: Public


@dataclass(frozen=True, kw_only=True)
class Agree(Keys, kind="gram.agree"):
    """Who takes part, with which keys and noise, how messages are cut, and the seeds of this party's masks.

    `sigmas`: the noise of each release.
    `cells`: where columns are split, this party's people in their order, as [number, the other holders of them].
    """

    sigmas: list[float]
    bits: int
    chunk: int
    seeds: dict[str, bytes]
    cells: list[list[Any]]


@dataclass(frozen=True, kw_only=True)
class Agreed(Greeted, kind="gram.agreed"):
    """The fingerprint of all keys as this party was told them, and a sealed greeting for every other party."""


@dataclass(frozen=True, kw_only=True)
class Fine(Delivery, kind="gram.fine"):
    """Release the fine tables of all columns. `inbox`: the others' greetings."""


@dataclass(frozen=True, kw_only=True)
class ProposeLevels(Ask, kind="gram.propose-levels"):
    """The level of every fine cell of every column of the joint table, by column number: tell the others which."""

    groups: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class TakeLevels(Delivery, kind="gram.take-levels"):
    """Count pairs on the levels that were proposed. `inbox`: what the others said to them."""


@dataclass(frozen=True, kw_only=True)
class Taken(Reply, kind="gram.taken"):
    """How many levels all columns have together, or how long rows are that are multiplied, as this party was told."""

    width: Public


@dataclass(frozen=True, kw_only=True)
class Share(Delivery, kind="gram.share"):
    """Release. The others' last messages, and the dealer's corrections; over rows their greetings, and none."""

    corrections: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Propose(Ask, kind="gram.propose"):
    """These pairs of columns, (pairs, 2), are to be released once more: tell the other holders which.

    `triples` (n, 2): pairs of columns that are to be released with the target, as three-way tables.
    """

    pairs: Tensor
    triples: Tensor = field(default_factory=_no_pairs)


@dataclass(frozen=True, kw_only=True)
class Proposed(Reply, kind="gram.proposed"):
    """For each other holder the pairs, or the levels, as this one was told them, sealed."""

    outbox: Public


@dataclass(frozen=True, kw_only=True)
class Widen(Delivery, kind="gram.widen"):
    """Some of the `triples` proposed lie across holders: multiply pairs of levels for them, by `Swap` as before.

    `inbox`: what the others said to `Propose`.
    """

    pairs: Tensor
    triples: Tensor


@dataclass(frozen=True, kw_only=True)
class Refine(Delivery, kind="gram.refine"):
    """Release these pairs of columns, (pairs, 2), once more, and `triples` as proposed.

    `inbox`: what the others said to `Propose`, if asked, or after `Widen` their last messages, with the dealer's
    `corrections`.
    """

    pairs: Tensor
    triples: Tensor = field(default_factory=_no_pairs)
    corrections: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Shared(Reply, kind="gram.shared"):
    """This party's noisy part of every block and of every three-way table of its columns, or of its fine tables.

    Blocks by their number, blinded where others have a part of one, too.
    """

    blocks: Paid
    triples: Paid
