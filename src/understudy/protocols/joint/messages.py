"""What the server and the holders of a joint release say to each other, whatever the
family.

    begin, agree        the settings and everybody's schema; everybody's keys, and the
                        noise of each release
    propose             what the server has chosen for the next stage, where it chooses
                        anything
    swap                where columns are split: masked rows for the other holders,
                        chunk by chunk
    release             the stage's sums, paid for

The last three come again for every stage. Whatever holders tell each other (that they
were told the same keys, or the same terms) comes to them in the `inbox` of the next
ask.
"""

from typing import Any

from torch import Tensor

from understudy.protocols.core import Ask, Assembly, Message, Paid, Public, Reply


class Begin(Assembly, kind="joint.begin"):
    """Every party's schema, by which all see how rows are split, and the settings of a
    run of this family.
    """

    family: str


class Begun(Reply, kind="joint.begun"):
    """The noise that this party's budget needs in each release, and its public key of
    the run.

    `people`: how many are shared, where columns are split; None in a horizontal
    partition.
    """

    budget: Public
    noise: Public
    key: Public
    people: Public
    needed: Public


class Agree(Ask, kind="joint.agree"):
    """Who takes part, with which keys, the noise of each release, and how products with
    others are made.

    `bits`: of the numbers that are sent. `chunk`: people per message, at most. `seeds`:
    of this party's masks, by the other holder. `cells`: this party's people in their
    order, as [number, the other holders of them]; none in a horizontal partition.
    """

    keys: dict[str, bytes]
    noise: list[float]
    bits: int
    chunk: int
    seeds: dict[str, bytes]
    cells: list[list[Any]]


class Agreed(Reply, kind="joint.agreed"):
    """The fingerprint of all keys as this party was told them, and a sealed
    confirmation of it for every other party: the handshake.
    """

    fingerprint: Public
    outbox: Public


class Delivery(Ask):
    """An ask that brings what the other holders sent to this one."""

    inbox: dict[str, Tensor]


class Propose(Delivery, kind="joint.propose"):
    """The next stage is to be of these terms, which the server chose by what was
    released: tell the others which.

    `terms` are plain values and tensors; the stage of this name says what they are, and
    checks them.
    """

    stage: str
    terms: dict[str, Any]


class Proposed(Reply, kind="joint.proposed"):
    """For each other holder a digest of the terms as this one was told them, sealed."""

    outbox: Public


class Swap(Delivery, kind="joint.swap"):
    """The others' messages about the chunk before; mask and seal the next one for each
    who holds these people.
    """

    chunk: int


class Swapped(Reply, kind="joint.swapped"):
    """A sealed message for each other party that holds these people: paid where it is
    an answer under encryption.
    """

    outbox: Paid | Public


class Release(Delivery, kind="joint.release"):
    """Release the sums of this stage. With it come the others' last messages, and the
    dealer's corrections.
    """

    stage: str
    corrections: dict[str, Tensor]


class Released(Reply, kind="joint.released"):
    """This party's part of every block that it has one in, with its noise, under
    one-time masks where others have one, too.

    Of a stage of choices, what it chose.
    """

    parts: Paid


MESSAGES: tuple[type[Message], ...] = (
    Begin,
    Begun,
    Agree,
    Agreed,
    Propose,
    Proposed,
    Release,
    Released,
)
