"""Settings that many protocols have, with what they mean in all of them."""

from understudy.data.rules import read_rules
from understudy.ground.settings import COLUMN, SEED, TEXT, TRUTH, WHOLE, Takes, setting

RULES = Takes("a list", kept=lambda rules: tuple(rule.to_dict() for rule in read_rules(rules)))


def at_least() -> int | None:
    """How many holders have to stay."""
    words = (
        "over rows: the run continues while at least this many holders are there; without it all must stay"
    )
    return setting(None, WHOLE, words)


def most_holders() -> int:
    """With how many holders a person may be."""
    words = "how many holders of the same columns may hold the same person, as the holders state it"
    return setting(1, WHOLE, words)


def seed() -> int:
    """What public draws follow from."""
    words = "seed of what is public (initial weights, batches of synthetic rows), never of noise"
    return setting(0, SEED, words)


def device() -> str:
    """Where the server computes."""
    return setting("auto", Takes("auto, cpu, cuda", named=TEXT.named), "where the server computes")


def private() -> bool:
    """Whether there is noise."""
    return setting(True, TRUTH, "false: no noise, for rehearsals on public rows alone")


def target() -> str | None:
    """The column that is to be predicted."""
    return setting(None, COLUMN, "the column to predict from the others")


def colluding() -> int:
    """How many holders may pool what they know."""
    return setting(1, WHOLE, "ε still holds if this many holders share with each other all that they know")


def chunk() -> int:
    """How long messages are, where columns are split."""
    return setting(1 << 15, WHOLE, "people per message")
