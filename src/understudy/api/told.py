"""What `synthesize` tells somebody who may expect too much: columns that are left out, people who are too few.

Guarantee: made of what is public or paid for; a number of people from rows is not among it.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace

from understudy.data.schema import Boolean, Column, Real, Schema
from understudy.ground.errors import UtilityWarning
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.asked_kinds import Kinds
from understudy.protocols.core.forecast import MORE
from understudy.protocols.gram import protocol as gram


def unbought(declared: Kinds) -> Schema:
    """Columns of these names and kinds in any bounds: what is released of them hardly depends on these."""
    return Schema(
        columns=tuple(
            replace(kind, name=name)
            if isinstance(kind, Column)
            else Boolean(name=name)
            if kind in ("boolean", "categorical")
            else Real(name=name, low=0.0, high=1.0)
            for name, kind in declared.items()
        )
    )


def say_expected(config: gram.Config, schema: Schema, budget: Budget) -> bool:
    """Whether so few people were warned of before anything is paid for, which can be where their number is public."""
    if config.public_people is None:
        return False
    expected = gram.forecast(config, {"one": schema}, {"one": budget}, config.public_people).expected
    if expected is None or not expected.poor:
        return False
    warnings.warn(f"{expected} {MORE} Nothing was charged so far.", UtilityWarning, stacklevel=3)
    return True


def say_left_out(columns: Sequence[str]) -> None:
    """A UtilityWarning that names columns of which nothing could be bought, where there are any."""
    if columns:
        warnings.warn(
            f"left out, as too few people share a value of them: {', '.join(columns)}. More people or a larger ε would "
            "keep them, or a schema that declares them.",
            UtilityWarning,
            stacklevel=3,
        )
