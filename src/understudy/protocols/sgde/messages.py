"""What a silo and the server of SGDE say to each other.

Lomurno et al., "SGDE" (AIPR 2022), §III-A: `Subscribe` states the requirements, `Push` asks for one generator per
class, `Pull` hands out the pool.
Paper → code: G_k → `Pushed.offers`, g_k^y → one of them, the pool → `Pull.offers`.
"""

from typing import Any

from understudy.protocols.core import Ask, Opening, Paid, Public, Reply


class Subscribe(Opening, kind="sgde.subscribe"):
    """The settings for a silo's training, and what the pool requires. `poison` makes this silo lie, in a rehearsal."""

    requirements: dict[str, Any]
    poison: str = "none"


NO_FIGURE = Public(None, "no figure of quality was asked for")


class Subscribed(Reply, kind="sgde.subscribed"):
    """What the silo's holder allows, its source of noise, and the (ε, δ) that its offers will have."""

    budget: Public
    noise: Public
    price: Public


class Push(Ask, kind="sgde.push"):
    """Train one generator per class, and send them."""


class Pushed(Reply, kind="sgde.pushed"):
    """An offer for each class: its card and its weights. A figure of quality has a receipt of its own."""

    offers: Paid
    quality: Paid | Public = NO_FIGURE


class Pull(Ask, kind="sgde.pull"):
    """The pool: cards and weights of every offer that was taken in."""

    offers: list[dict[str, Any]]


class Pulled(Reply, kind="sgde.pulled"):
    """How many of them passed this silo's own check."""

    sound: Public
