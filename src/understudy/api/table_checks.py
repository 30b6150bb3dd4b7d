"""What `synthesize` refuses or warns of before it pays, and what it warns of
afterwards.

Guarantee: a refusal that follows from the number of rows or from ids is said to their
holder alone, in words that say so. All others follow from names, kinds, settings and
the ledger.
"""

import shlex
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path

import pandas as pd

from understudy.data.column import OTHER
from understudy.data.id_names import id_names, likely_person
from understudy.data.infer import are_spellings
from understudy.data.reading.files import Source, batches_of, is_long, open_source
from understudy.data.schema import Boolean, Categorical, Column, Schema
from understudy.ground.check import nearest
from understudy.ground.errors import (
    BudgetExceeded,
    ConfigError,
    Effect,
    LedgerError,
    SchemaError,
    UtilityWarning,
)
from understudy.privacy.accounts.budget import USUAL_DELTA, Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.buy_schema import first_of
from understudy.privacy.kinds import Kinds, require_kinds
from understudy.protocols.core.forecast import MORE, Expectation
from understudy.protocols.gram import protocol as gram
from understudy.runs.federation import open_lifetime_ledger

_CALLER = 4  # frames from a warning to the line that calls `synthesize`

# Of names and of the source


def require_known_columns(
    source: Source, without: Sequence[str], declared: Collection[str | None]
) -> None:
    """Refuse by the header alone to go on without a column that is not there, or that
    is declared.
    """
    if not without:
        return
    header = [str(column) for column in open_source(source, {}).header]
    for column in without:
        if column not in header:
            raise ConfigError(
                f'there is no column "{column}" to go on '
                f"without.{nearest(column, header)}",
                effect=Effect.NOTHING_READ_OR_CHARGED,
            )
        if column in declared:
            raise ConfigError(
                f'"{column}" is declared, and left out: say one of them.',
                effect=Effect.NOTHING_READ_OR_CHARGED,
            )


def require_unit(
    header: Sequence[object], person: str | None, rows_are_people: bool
) -> None:
    """Refuse by the header alone: two answers to who a person is, or none where a
    column is named like an id.
    """
    if person is not None and rows_are_people:
        raise ConfigError(
            f'person="{person}" says whose each row is, and rows_are_people that '
            "every row is another person: say "
            "one of them.",
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    ids = id_names(header)
    if ids and person is None and not rows_are_people:
        named = " and ".join(f'"{column}"' for column in ids)
        named += " is named like an id" if len(ids) == 1 else " are ids"
        likely = likely_person(ids)
        raise ConfigError(
            f"is a row a person? {named}, and one person may have several rows. If a "
            "column says whose each row is: "
            f'person="{likely}" (--person {shlex.quote(likely)}). If every row is '
            "another person: "
            "rows_are_people=True (--rows-are-people).",
            effect=Effect.NOTHING_CHARGED,
        )


def require_purchase(
    source: Source, declared: Kinds, person: str | None, config: gram.Config
) -> None:
    """Refuse before anything is bought what can be: settings by columns of these names,
    people with several rows.
    """
    if not config.private:
        raise ConfigError(
            "private = false is for rehearsals on public rows.",
            effect=Effect.NOTHING_CHARGED,
        )
    require_kinds(source, declared)
    any_budget = Budget(1.0, USUAL_DELTA)
    gram.forecast(config, {"one": unbought_schema(declared)}, {"one": any_budget})
    if person is not None:
        _require_one_row_each(source, person, len(declared))


def _require_one_row_each(source: Source, person: str, columns: int) -> None:
    if open_source(source, {}).header.count(person) != 1:
        raise SchemaError(
            f'there is no id column "{person}".', effect=Effect.NOTHING_CHARGED
        )
    long = is_long(source, columns)
    first = first_of(batches_of(source, {person: False}, long=long), person)
    if not first.all():
        raise SchemaError(
            f'"{person}": a person has one row here, and {int((~first).sum()):,} rows '
            "have no id of their own. People "
            "with several rows are people with events, and a run of `visits` protects "
            "each with all of them "
            "(docs/visits.md). This follows from the rows: keep it to yourself.",
            effect=Effect.NOTHING_CHARGED,
        )


# Of the number of people


def unbought_schema(declared: Kinds) -> Schema:
    """Columns of these names and kinds, to forecast a release by: what is released of
    texts hardly depends on how many there are.
    """
    columns = (
        kind if isinstance(kind, Column) else Boolean(name=name)
        for name, kind in declared.items()
    )
    return Schema(columns=tuple(columns))


def require_people(
    config: gram.Config, schema: Schema, budget: Budget, people: int
) -> None:
    """ConfigError where so few people are in the rows that nothing can come of it,
    unless their number is public.

    Guarantee: none. It follows from the number of rows, and is said to their holder
    alone, before anything is paid.
    """
    if config.public_people is not None or not config.private:
        return
    expected = _expectation(config, schema, budget, people)
    if expected is None or not expected.hopeless:
        return
    raise ConfigError(
        f"nothing can come of so few people. {expected} {MORE} To go on nevertheless, "
        "say about how many there are, where that is publicly known: public_people=N "
        "(--people N). This follows from the rows: keep it to yourself.",
        effect=Effect.NOTHING_CHARGED,
    )


def warns_of_few_people(config: gram.Config, schema: Schema, budget: Budget) -> bool:
    """Whether so few people were warned of before anything is paid for, which can be
    where their number is public.
    """
    if config.public_people is None:
        return False
    expected = _expectation(config, schema, budget, config.public_people)
    if expected is None or not expected.poor:
        return False
    message = f"{expected} {MORE} Nothing was charged so far."
    warnings.warn(message, UtilityWarning, stacklevel=_CALLER)
    return True


def _expectation(
    config: gram.Config, schema: Schema, budget: Budget, people: int
) -> Expectation | None:
    return gram.forecast(config, {"one": schema}, {"one": budget}, people).expected


# Of the ledger


def require_unspent(path: Path, name: str) -> None:
    """Refuse a frame without a name where another one, or an earlier run of it, has
    paid already.
    """
    if not path.exists():
        return
    with Ledger(path, holder=name) as ledger:
        if not ledger.spent():
            return
        raise LedgerError(
            f"{path} holds what a frame without a name has paid. Say whose rows these "
            f'are: name="{name}" if they are '
            "of the same people, whose prices add up there, or another name for "
            f"other people. {ledger.summary()}",
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )


def open_solvent_ledger(
    path: Path, name: str, budget: Budget, lifetime_epsilon: float | None
) -> Ledger:
    """The holder's ledger. BudgetExceeded where what is begun could not be paid any
    more.
    """
    ledger = open_lifetime_ledger(
        path, name, budget, lifetime_epsilon, "lifetime_epsilon", "epsilon"
    )
    affordable = ledger.remaining() >= budget.epsilon * (1 - 1e-9)
    if ledger.budget.delta < budget.delta or not affordable:
        raise BudgetExceeded(
            f"{ledger.holder}: this costs {budget} in all. {ledger.summary()} Are "
            "these other people than those of that "
            'ledger? Then name="…" (--name) gives them one of their own. If they are '
            "the same and the holder agrees, "
            f'`understudy ledger budget {ledger.path} --epsilon E --reason "…"` allows '
            "more.",
            effect=Effect.NOTHING_CHARGED,
        )
    return ledger


# Of what was bought


def require_target(target: str | None, bought: Schema) -> None:
    """SchemaError where nothing of the target could be bought: its texts are paid by
    then.
    """
    if target is not None and target not in bought.names:
        raise SchemaError(
            f'target "{target}": no text of it is common enough to stand out of the '
            "noise. The texts of the table are charged, and nothing else was measured; "
            "declare the categories of the target, or name another."
        )


def warn_of_purchase(declared: Kinds, bought: Schema) -> None:
    """UtilityWarnings that name columns of which nothing could be bought, and lists of
    texts that are yes and no in several spellings. They read the schema alone.
    """
    missing = [name for name in declared if name not in bought.names]
    messages = [_too_rare("left out", missing)] if missing else []
    for column in bought.columns:
        if isinstance(column, Categorical) and are_spellings(
            {text for text in column.labels if text != OTHER}
        ):
            messages.append(
                f'"{column.name}" has yes and no in several spellings '
                f"({', '.join(column.labels)}): "
                f'kinds={{"{column.name}": "boolean"}} reads them as one.'
            )
    for message in messages:
        warnings.warn(message, UtilityWarning, stacklevel=_CALLER)


def warn_of_others(sampled: pd.DataFrame) -> None:
    """A UtilityWarning that names columns of whose texts hardly any could be bought, by
    rows that were sampled.
    """
    texts = sampled.astype(object)
    rare = [str(column) for column in texts if (texts[column] == OTHER).mean() > 0.5]
    if rare:
        message = _too_rare(f'mostly "{OTHER}"', rare)
        warnings.warn(message, UtilityWarning, stacklevel=_CALLER)


def _too_rare(fate: str, columns: Sequence[str]) -> str:
    return (
        f"{fate}, as too few people share a value of them: {', '.join(columns)}. More "
        "people or a larger ε would keep them, or a schema that declares them."
    )
