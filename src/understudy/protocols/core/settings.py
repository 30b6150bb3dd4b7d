"""Settings that many protocols have, with what they mean in all of them."""

from dataclasses import dataclass

from understudy.data.rules import read_rules
from understudy.ground.settings import (
    COLUMN,
    SEED,
    TEXT,
    TRUTH,
    WHOLE,
    Declared,
    Takes,
    choice,
    setting,
)

# whom a run over a vertical partition is about: the people whom any holder has, or whom
# all have
UNION = "union"
INTERSECTION = "intersection"

RULES = Takes(
    "a list", convert=lambda rules: tuple(rule.to_dict() for rule in read_rules(rules))
)


def seed() -> int:
    words = (
        "seed of what is public (initial weights, batches of synthetic rows), never "
        "of noise"
    )
    return setting(0, SEED, words)


def device() -> str:
    return setting(
        "auto",
        Takes("auto, cpu, cuda", check_named=TEXT.check_named),
        "where the server computes",
    )


def private() -> bool:
    return setting(True, TRUTH, "false: no noise, for rehearsals on public rows alone")


def target() -> str | None:
    return setting(None, COLUMN, "the column to predict from the others")


def products(default: str) -> str:
    return setting(
        default,
        choice("dealt", "encrypted"),
        "how counts of columns at two holders are made: of encrypted rows, where a "
        "server with a holder cannot read the others' rows if holders follow the "
        "protocol, or, in less time, of rows under masks that the server deals",
    )


@dataclass(frozen=True, kw_only=True)
class PeopleApart(Declared):
    """Where holders of the same columns have people of their own; a person may be with
    `max_holders_per_person` of them.
    """

    min_holders: int | None = setting(
        None,
        WHOLE,
        "in a horizontal partition: the run continues while at least this many "
        "holders are there; "
        "without it all must stay",
    )
    max_holders_per_person: int = setting(
        1,
        WHOLE,
        "how many holders of the same columns may hold the same person, as the "
        "holders state it",
    )
    seed: int = seed()


@dataclass(frozen=True, kw_only=True)
class JointConfig(Declared):
    """What every family of joint releases takes."""

    private: bool = private()


@dataclass(frozen=True, kw_only=True)
class OverColumns(JointConfig):
    """The same where holders may have other columns of the same people."""

    chunk: int = setting(1 << 15, WHOLE, "people per message")


@dataclass(frozen=True, kw_only=True)
class OverRows(JointConfig, PeopleApart):
    """Where holders of the same columns may have people of their own."""

    max_colluding: int = setting(
        1,
        WHOLE,
        "ε still holds if this many holders share with each other all that they know",
    )
