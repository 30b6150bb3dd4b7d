"""Everything that a holder learns by putting a synthetic table beside the real one:
`us.evaluate`, and the page.

Attacks on tables alone (`attack_tables`): membership (Hilprecht's score, the nearest
row, outliers), the share of synthetic rows closer to training rows than to unseen ones,
singling out, linkability between parties' columns, and inference of columns. Membership
counts unlike cells (Hamming, as in the papers), others respect levels' order (Gower).

Edges: no column in common, no rows, no outsiders → a reason in place of each figure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import Column
from understudy.data.encoding.codec import Codec
from understudy.data.reading.files import Source
from understudy.data.schema import Schema
from understudy.data.table import Table, read_table
from understudy.evaluate.attacks.anonymity import inference, linkability, singling_out
from understudy.evaluate.attacks.attack import Attack, judge
from understudy.evaluate.attacks.neighbours import neighbourhood, neighbours
from understudy.evaluate.figure import SCOPES, Figure, FigureKey, StrongPair
from understudy.evaluate.holdings import (
    Outsiders,
    People,
    SchemaLoss,
    read_rows,
    with_bounds,
)
from understudy.evaluate.utility.association import Pair
from understudy.evaluate.utility.distance import Attacked, Space
from understudy.evaluate.utility.downstream import MODELS
from understudy.evaluate.utility.fidelity import Evaluation, Yardstick, evaluate_tables
from understudy.evaluate.utility.predictions import (
    Predictions,
    predict_columns,
    predict_target,
)
from understudy.evaluate.utility.second_opinion import second_opinion
from understudy.evaluate.utility.values import (
    Numbers,
    NumberSummary,
    column_means,
    table_values,
)
from understudy.ground.check import nearest, whole
from understudy.ground.errors import ConfigError
from understudy.ground.html import pre

Rows = pd.DataFrame | Table

MAX_NEIGHBOUR_ROWS = 2_000  # synthetic rows whose neighbours are looked for


@dataclass(frozen=True, kw_only=True, eq=False)
class Leakage:
    attacks: tuple[Attack, ...]
    closeness: tuple[Figure, ...]


def attack_tables(
    train: Rows,
    holdout: Rows,
    synthetic: Rows,
    schema: Schema,
    *,
    owners: Mapping[str, str] | None = None,
    secrets: Sequence[str] = (),
    targets: int = 1000,
    seed: int = 0,
) -> Leakage:
    """Attack a table made from `train`, `holdout` as control; link people between
    `owners`, infer `secrets`.
    """
    whole(targets=targets)
    names = schema.names
    for name in (*(owners or ()), *secrets):
        if name not in names:
            raise ConfigError(
                f'there is no column "{name}" in the schema.{nearest(name, names)}'
            )
    frames = (
        rows if isinstance(rows, pd.DataFrame) else rows.frame
        for rows in (train, holdout, synthetic)
    )
    codes = [Codec(schema).codes(frame) for frame in frames]
    plain = Attacked.from_codes(*codes)
    tables = Attacked.from_codes(*codes, space=Space.gower(schema))
    closer, closeness = neighbours(tables, max_rows=MAX_NEIGHBOUR_ROWS, seed=seed)
    attacks = [
        neighbourhood(plain, targets=targets, score=score, seed=seed)
        for score in ("share", "nearest")
    ]
    attacks += [
        neighbourhood(plain, targets=targets, outliers=share, seed=seed)
        for share in (0, 0.5, 1)
    ]
    attacks += [closer]
    attacks += [
        singling_out(tables, columns=k, predicates=targets, seed=seed) for k in (1, 3)
    ]
    attacks += _linkability_attacks(
        tables, [(owners or {}).get(name) for name in names], targets, seed
    )
    attacks += [
        replace(
            inference(tables, names.index(name), targets=targets, seed=seed),
            key=FigureKey("inference", column=name),
        )
        for name in secrets
    ]
    return Leakage(attacks=judge(attacks), closeness=closeness)


def _linkability_attacks(
    tables: Attacked, owners: Sequence[str | None], targets: int, seed: int
) -> list[Attack]:
    """Each party's columns linked to those of all others; two parties are one pair."""
    parties = [party for party in dict.fromkeys(owners) if party is not None]
    if len(parties) < 2:
        return [
            Attack.absent(
                FigureKey("linkability"),
                "the columns belong to fewer than two parties.",
            )
        ]
    results = []
    for party in parties if len(parties) > 2 else parties[:1]:
        party_columns = [j for j, owner in enumerate(owners) if owner == party]
        other_columns = [
            j for j, owner in enumerate(owners) if owner not in (party, None)
        ]
        attack = linkability(
            tables, party_columns, other_columns, targets=targets, seed=seed
        )
        results.append(
            replace(attack, key=FigureKey("linkability", part=party))
            if len(parties) > 2
            else attack
        )
    return results


NO_OUTSIDERS = (
    "it needs real rows that no training saw, and there are none. To have some, keep "
    "each person back before the run, by a secret coin with a chance of 5 %, and name "
    "the file of these people: --holdout FILE. `understudy synthesize` does so by "
    "itself for a CSV or Parquet file; run files, workbooks and Dask or Spark tables "
    "do not."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnShares:
    """How often each level of a column occurs, missing last; `real` is None where no
    real row was looked at.
    """

    column: Column
    owner: str | None
    synthetic: NDArray[np.float64]
    real: NDArray[np.float64] | None = None
    figure: Figure | None = None
    numbers: Numbers | None = None
    # of all rows: `numbers` are measured on some, beside others of the real ones
    ks: float | None = None
    spread: NumberSummary | None = None  # of all rows, too

    @property
    def distance(self) -> float:
        """How far all rows are off: KS of numbers, half the summed difference of shares
        of anything else.
        """
        if self.numbers is not None or self.real is None:
            return self.ks or 0.0
        return float(np.abs(self.real - self.synthetic).sum() / 2)

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.column.labels, *(("missing",) if self.column.nullable else ()))


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """What was measured between a real and a synthetic table.

    `closeness` holds the distances of synthetic to training rows, by the label of the
    group they were measured on, `pairs` how strongly two columns hang together by their
    values, `strongest` how far the strongest real pairs are off (of all columns, within
    one party, across parties), and `predictions` what models learn of columns. `notes`
    say what the reader must know, and `losses` what the schema, through which the
    generator saw the rows, could not say of them.
    """

    evaluation: Evaluation
    figures: tuple[Figure, ...]
    shares: tuple[ColumnShares, ...]
    attacks: tuple[Attack, ...]
    pairs: tuple[Pair, ...] = ()
    strongest: Mapping[str, tuple[StrongPair, ...]] = field(default_factory=dict)
    predictions: Predictions = field(default_factory=Predictions)
    closeness: Mapping[str, tuple[Figure, ...]] = field(default_factory=dict)
    owners: Mapping[str, str] | None = None
    target: str | None = None
    notes: tuple[str, ...] = ()
    losses: tuple[SchemaLoss, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "attacks", judge(self.attacks))

    def __str__(self) -> str:
        loss_lines = [f"the schema could not say: {loss}" for loss in self.losses]
        return "\n".join([*loss_lines, str(self.evaluation)])

    def _repr_html_(self) -> str:
        return pre(self)


def evaluate(
    real: Source,
    synthetic: Source,
    schema: Schema | str | Path,
    *,
    holdout: Source | None = None,
    target: str | None = None,
    another: bool = False,
) -> Comparison:
    """Compare a synthetic table, from any generator, with the real one: for the holder
    of the real rows.

    Real rows are compared as they came, also where they lie outside the schema: what it
    could not say of them is counted (`losses`), and stands first. A number without
    bounds lies between the ends of all rows.

    `holdout` are real rows that the generator has not seen, `target` is a column to
    predict, `another` adds what `sdmetrics` says. `str` of the result has all figures
    with what they mean.
    """
    declared = Schema.load(schema) if isinstance(schema, str | Path) else schema
    declared = declared.expanded(keep=target)
    declared = with_bounds(
        declared, [real, synthetic, *([] if holdout is None else [holdout])]
    )
    synthetic_rows = read_table(synthetic, replace(declared, person=None)).frame
    rows, people, widened = read_rows(real, declared)
    held_out = None
    strangers = None
    widened_schema = widened.schema
    if holdout is not None:
        held_out, strangers, widened_holdout = read_rows(holdout, widened_schema)
        widened_schema = widened_holdout.schema
    return compare(
        rows,
        synthetic_rows,
        replace(widened_schema, person=None),
        holdout=held_out,
        target=target,
        another=another,
        people=(people, strangers),
        losses=widened.losses,
    )


def compare(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    schema: Schema,
    *,
    holdout: pd.DataFrame | None = None,
    outsiders: Sequence[Outsiders] = (),
    owners: Mapping[str, str] | None = None,
    target: str | None = None,
    models: Sequence[str] = MODELS,
    another: bool = False,
    people: tuple[People, People] = (None, None),
    notes: Sequence[str] = (),
    losses: Sequence[SchemaLoss] = (),
) -> Comparison:
    """Measure all of it. `holdout` are real rows that no generator saw; `outsiders`
    such rows by party. `people` says whose each row of `real` and of `holdout` is,
    where that is known: attacks then look at one row of each person, by lot, and at
    nobody of the training people among the others.
    """
    evaluation = evaluate_tables(
        real,
        synthetic,
        schema,
        holdout=holdout,
        target=target,
        owners=owners,
        models=models,
    )
    common_schema = schema.select(evaluation.columns) if evaluation.columns else None
    if another and common_schema is not None:
        evaluation = replace(
            evaluation,
            figures=(
                *evaluation.figures,
                *second_opinion(real, synthetic, common_schema),
            ),
        )
    figures = tuple(f for f in evaluation.figures if f.key.measure != "tstr")
    shares: tuple[ColumnShares, ...] = ()
    strongest: dict[str, tuple[StrongPair, ...]] = {}
    predictions = Predictions()
    if common_schema is not None:
        frames = [real, synthetic, *([] if holdout is None else [holdout])]
        codes = [Codec(common_schema).codes(frame) for frame in frames]
        values = [
            table_values(common_schema, *pair)
            for pair in zip(frames, codes, strict=True)
        ]
        scale = Yardstick.from_codes(
            common_schema, *codes, values=values, owners=owners
        )
        numbers = scale.numbers()
        strengths = scale.associations()
        figures = (*scale.figures(), *column_means(numbers), *strengths.figures)
        strongest = {
            scope: scale.strongest(scope)
            for scope in (SCOPES if owners is not None else SCOPES[:1])
        }
        tables = dict(
            zip(
                ("real", "synthetic", "held-out"),
                zip(codes, values, strict=True),
                strict=False,
            )
        )
        predictions = predict_columns(
            common_schema, tables, strongest["all"], exclude=target
        )
        if target in common_schema.names and models:
            judged = predict_target(common_schema, tables, target)
            evaluation = replace(evaluation, figures=(*evaluation.figures, *judged))
        column_list = column_shares(
            common_schema,
            synthetic,
            real,
            owners=owners,
            figures=scale.columns(),
            numbers=numbers,
            spreads=evaluation.spreads,
        )
        exact = {
            name: compared_groups.figures[0].value
            for name, compared_groups in evaluation.numbers.items()
        }
        shares = tuple(
            replace(compared_groups, ks=exact.get(compared_groups.column.name))
            for compared_groups in column_list
        )
    if holdout is not None and common_schema is not None:
        inside, outside = sample_one_row_each(real, holdout, people)
        outsiders = (
            Outsiders(inside=inside, outside=outside, schema=common_schema),
            *outsiders,
        )
    compared_groups = (
        (group, [name for name in group.schema.names if name in evaluation.columns])
        for group in outsiders
    )
    groups = [
        replace(group, schema=group.schema.select(names))
        for group, names in compared_groups
        if names
    ]
    leakages = attack_groups(groups, synthetic, owners=owners, target=target)
    attacks = tuple(
        attack for leakage in leakages.values() for attack in leakage.attacks
    )
    return Comparison(
        evaluation=evaluation,
        figures=figures,
        shares=shares,
        pairs=evaluation.pairs,
        strongest=strongest,
        predictions=predictions,
        attacks=attacks or (Attack.absent(FigureKey("mia"), NO_OUTSIDERS),),
        closeness={label: leakage.closeness for label, leakage in leakages.items()},
        owners=owners,
        target=target,
        notes=tuple(notes),
        losses=tuple(losses),
    )


def sample_one_row_each(
    inside: pd.DataFrame,
    outside: pd.DataFrame,
    people: tuple[People, People],
    seed: int = 0,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row of each person, by lot: rows of one person are no independent trials. Who
    trained is no outsider.
    """
    rng = np.random.default_rng([seed, 4])

    def one_each(rows: pd.DataFrame, ids: People) -> pd.DataFrame:
        if ids is None:
            return rows
        order = rng.permutation(len(rows))
        return rows.iloc[np.sort(order[~pd.Index(ids[order]).duplicated()])]

    trained, outsiders = people
    if trained is not None and outsiders is not None:
        strangers = ~pd.Index(outsiders).isin(trained)
        outside = outside[strangers]
        outsiders = outsiders[strangers]
    return one_each(inside, trained), one_each(outside, outsiders)


def attack_groups(
    groups: Sequence[Outsiders],
    synthetic: pd.DataFrame,
    *,
    owners: Mapping[str, str] | None = None,
    target: str | None = None,
    seed: int = 0,
) -> dict[str, Leakage]:
    """Every attack that needs tables alone, by its group's label, judged together
    (`judge`); the target is inferred.
    """
    leakages = {}
    for group in groups:
        names = group.schema.names
        group_owners = (
            {name: owners[name] for name in names} if owners is not None else None
        )
        secrets = (
            [target]
            if target is not None and target in names and len(names) > 1
            else []
        )
        leakage = attack_tables(
            group.inside,
            group.outside,
            synthetic,
            group.schema,
            owners=group_owners,
            secrets=secrets,
            seed=seed,
        )
        several = len(set((group_owners or {}).values())) > 1
        ran = [a for a in leakage.attacks if several or a.key.measure != "linkability"]
        label = (group.label,) if group.label else ()
        attacks = tuple(replace(a, key=a.key.with_subjects(*label)) for a in ran)
        leakages[group.label] = replace(leakage, attacks=attacks)
    return leakages


def column_shares(
    schema: Schema,
    synthetic: pd.DataFrame,
    real: pd.DataFrame | None = None,
    *,
    owners: Mapping[str, str] | None = None,
    figures: Mapping[str, Figure] | None = None,
    numbers: Mapping[str, Numbers] | None = None,
    spreads: Mapping[str, NumberSummary] | None = None,
) -> tuple[ColumnShares, ...]:
    """The shares of every column's levels, with the figures of the column where there
    are any.
    """
    codec = Codec(schema)
    tables = [codec.codes(rows) for rows in (synthetic, real) if rows is not None]
    if not all(map(len, tables)):
        return ()
    shares = []
    for j, column in enumerate(schema.columns):
        synthetic_shares, *real_parts = (
            np.bincount(codes[:, j], minlength=column.size) / len(codes)
            for codes in tables
        )
        figure = (figures or {}).get(column.name)
        column_numbers = (numbers or {}).get(column.name)
        owner = (owners or {}).get(column.name)
        real_shares = real_parts[0] if real_parts else None
        spread = (spreads or {}).get(column.name)
        shares.append(
            ColumnShares(
                column=column,
                owner=owner,
                synthetic=synthetic_shares,
                real=real_shares,
                figure=figure,
                numbers=column_numbers,
                spread=spread,
            )
        )
    return tuple(shares)
