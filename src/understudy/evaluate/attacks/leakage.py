"""One call for all attacks that need tables alone: what a synthetic table gives away about the people behind it.

Membership (Hilprecht's score, the nearest row, and 0, 50 and 100 % outliers), the share of synthetic rows that stand
closer to training rows than to unseen ones, singling out, linkability between the columns of the parties, and inference
of single columns. Membership counts unlike cells (Hamming, as in the papers), the others respect the order of levels
(Gower).
Edges: a table that does not fit the schema → SchemaError; what cannot be run is there with its reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from understudy.data.encoding.codec import Codec
from understudy.data.schema import Schema
from understudy.data.table import Table
from understudy.evaluate.attacks.anonymity import inference, linkability, singling_out
from understudy.evaluate.attacks.attack import Attack, judge
from understudy.evaluate.attacks.neighbours import neighbourhood, neighbours
from understudy.evaluate.figure import Figure, What
from understudy.evaluate.utility.distance import Space
from understudy.evaluate.utility.marginals import Codes
from understudy.ground.check import nearest, whole
from understudy.ground.errors import ConfigError

Rows = pd.DataFrame | Table

MOST_SECRETS = 10  # columns that are guessed in turn, unless they are named
LOOKED_AT = 2_000  # synthetic rows whose neighbours are looked for


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
    secrets: Sequence[str] | None = None,
    targets: int = 1000,
    seed: int = 0,
) -> Leakage:
    """Attack a table made from `train`, `holdout` as control; link people between `owners`, infer `secrets`."""
    whole(targets=targets)
    names = schema.names
    for name in (*(owners or ()), *(secrets or ())):
        if name not in names:
            raise ConfigError(f'there is no column "{name}" in the schema.{nearest(name, names)}')
    codec, space = Codec(schema), Space.gower(schema)
    tables = _codes(codec, train), _codes(codec, holdout), _codes(codec, synthetic)
    closer, closeness = neighbours(*tables, space=space, most=LOOKED_AT, seed=seed)
    attacks = [neighbourhood(*tables, targets=targets, score=score, seed=seed) for score in ("share", "nearest")]
    attacks += [neighbourhood(*tables, targets=targets, outliers=share, seed=seed) for share in (0, 0.5, 1)]
    attacks += [closer]
    attacks += [
        singling_out(*tables, space=space, columns=columns, predicates=targets, seed=seed) for columns in (1, 3)
    ]
    attacks += _links(tables, space, [(owners or {}).get(name) for name in names], targets, seed)
    if secrets is None:
        drawn = np.random.default_rng([seed, 2]).permutation(len(names))[:MOST_SECRETS]
        secrets = [names[j] for j in sorted(drawn.tolist())]
    attacks += [
        replace(
            inference(*tables, names.index(name), space=space, targets=targets, seed=seed),
            what=What("inference", column=name),
        )
        for name in secrets
    ]
    return Leakage(attacks=judge(attacks), closeness=closeness)


def _codes(codec: Codec, table: Rows) -> Codes:
    return codec.codes(table if isinstance(table, pd.DataFrame) else table.frame)


def _links(
    tables: tuple[Codes, Codes, Codes], space: Space, owners: Sequence[str | None], targets: int, seed: int
) -> list[Attack]:
    """Each party's columns linked to those of all others; two parties are one pair."""
    parties = [party for party in dict.fromkeys(owners) if party is not None]
    if len(parties) < 2:
        return [Attack.absent(What("linkability"), "the columns belong to fewer than two parties.")]
    results = []
    for party in parties if len(parties) > 2 else parties[:1]:
        left = [j for j, owner in enumerate(owners) if owner == party]
        right = [j for j, owner in enumerate(owners) if owner not in (party, None)]
        attack = linkability(*tables, left, right, space=space, targets=targets, seed=seed)
        results.append(replace(attack, what=What("linkability", part=party)) if len(parties) > 2 else attack)
    return results
