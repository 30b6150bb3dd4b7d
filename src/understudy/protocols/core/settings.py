"""Settings that many protocols have, with what they mean in all of them."""

from dataclasses import dataclass

from understudy.data.rules import read_rules
from understudy.ground.settings import COLUMN, SEED, TEXT, TRUTH, WHOLE, Declared, Takes, setting

RULES = Takes("a list", kept=lambda rules: tuple(rule.to_dict() for rule in read_rules(rules)))


def at_least() -> int | None:
    """How many holders have to stay."""
    words = "over rows: the run continues while at least this many holders are there; without it all must stay"
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


@dataclass(frozen=True, kw_only=True)
class JointConfig(Declared):
    """What every family of joint releases takes."""

    private: bool = private()


@dataclass(frozen=True, kw_only=True)
class OverColumns(JointConfig):
    """The same where holders may have other columns of the same people."""

    chunk: int = setting(1 << 15, WHOLE, "people per message")


@dataclass(frozen=True, kw_only=True)
class OverRows(JointConfig):
    """The same where holders of the same columns may have people of their own. The noise hides a person who is with
    `most_holders` of them, too. Over rows the run continues without parties that go away before the first release.
    """

    colluding: int = setting(1, WHOLE, "ε still holds if this many holders share with each other all that they know")
    at_least: int | None = at_least()
    most_holders: int = most_holders()
