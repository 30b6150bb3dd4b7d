"""The lifetime budget of a ledger, changed by its holder: on the command line or in the console, by the same rules."""

from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger


def change_lifetime(
    book: Ledger, *, epsilon: float, reason: str, delta: float | None = None
) -> tuple[Budget, Budget]:
    """Raise or lower the limit, for a reason; what it was, and what it is. δ stays as it was unless it is given.

    Guarantee: the change is an entry of the ledger, with the reason; what was spent stays spent.
    Edges: no reason, or a limit that is none → ConfigError, and nothing changed.
    """
    if not reason.strip():
        raise ConfigError("a budget is changed for a reason, and there is none. Nothing changed.")
    before = book.budget
    after = Budget(epsilon, before.delta if delta is None else delta, before.against)
    book.set_budget(after, reason=reason)
    return before, after
