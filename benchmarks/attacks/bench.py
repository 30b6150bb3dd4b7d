"""How often a page cries wolf, and which planted leaks it finds: the attacks of a
report, judged together.

    demo          the demo's own table (5,220 people, 337 of each holder took no part),
                  made once by `gram`; who took part is then drawn anew by lot on every
                  page, so that nothing about it can be in the table
    few outsiders its people cut anew: 2,400 train, 337 take no part, and the synthetic rows are those of others
    health        the same with 1,700, 1,700 and 1,700 people
    digits        scikit-learn's digits, 64 columns of 17 levels: 599, 599 and 599
    made up       2,000, 2,000 and 2,000 drawn rows of 8 columns, some of them rare
                  levels

`copied` is the share of the synthetic rows that are replaced by copies of training
people; 0: nothing can leak. An alarm is a page on which at least one attack is said to
succeed. A page runs the attacks of `understudy report`, by the same function, and
judges them by the same one. `QUICK=1` draws 2 pages of each and writes nothing.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

from common.options import options, quick
from common.rows import read, write
from understudy.api.demo import write_holders
from understudy.api.train import run_file
from understudy.data.samples import rand_health
from understudy.data.schema import Categorical, Ordinal, Schema
from understudy.evaluate.attacks.attack import Attack, judge
from understudy.evaluate.attacks.rates import LEVEL
from understudy.evaluate.comparison import attack_groups
from understudy.evaluate.holdings import Holdings, Outsiders, open_holdings
from understudy.runs.runfile import RunFile

QUICK = quick()
PAGES = {"demo": 200}  # where nothing can leak; `NULLS` of every other case
NULLS = 50
PLANTED = 10
COPIED = (0.0, 0.01, 0.05, 0.2)
FIELDS = ("case", "copied", "pages", "alarms")

Page = tuple[tuple[Outsiders, ...], pd.DataFrame, dict[str, str] | None, str | None]
"""Groups of people to attack, the synthetic table, whose column is whose, and a column to infer."""


@cache
def holders() -> Holdings:
    tables, schemas = rand_health()
    found = open_holdings(tables, schemas, same_people=True)
    assert isinstance(found, Holdings)
    return found


@cache
def demo_table() -> pd.DataFrame:
    """What the demo publishes, from a run of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = write_holders(
            *rand_health(), Path(folder), protocol="gram", epsilon=2.0, settings={}
        )
        _, result = run_file(RunFile.load(file))
        return pd.read_parquet(result / "synthetic.parquet")


def demo(rng: np.random.Generator) -> Page:
    found = holders()
    return (
        tuple(drawn_anew(group, rng) for group in found.outsiders),
        demo_table(),
        dict(found.owners or {}),
        None,
    )


def drawn_anew(group: Outsiders, rng: np.random.Generator) -> Outsiders:
    """The same people; who of them took part falls by lot."""
    names = list(group.schema.names)
    everyone = pd.concat([group.inside[names], group.outside[names]]).iloc[
        rng.permutation(len(group.inside) + len(group.outside))
    ]
    return replace(
        group,
        inside=everyone[: len(group.inside)],
        outside=everyone[len(group.inside) :],
    )


def health(rng: np.random.Generator, train: int = 1_700, outside: int = 1_700) -> Page:
    found = holders()
    group, others = cut(found.real, found.schema, train, outside, rng)
    return (group,), others, dict(found.owners or {}), "health"


def digits(rng: np.random.Generator) -> Page:
    pixels = load_digits().data.astype(int)
    columns = tuple(
        Ordinal(name=f"p{j}", categories=tuple(range(17)))
        for j in range(pixels.shape[1])
    )
    schema = Schema(columns=columns)
    group, others = cut(
        pd.DataFrame(pixels, columns=schema.names), schema, 599, 599, rng
    )
    return (group,), others, None, "p28"


def made_up(rng: np.random.Generator, rows: int = 2_000) -> Page:
    schema = Schema(
        columns=tuple(
            Categorical(name=f"c{j}", categories=tuple(range(8))) for j in range(8)
        )
    )
    kind = rng.integers(0, 4, (3 * rows, 1))
    codes = ((rng.random((3 * rows, 8)) ** 2 * 8).astype(int) + kind) % 8
    group, others = cut(
        pd.DataFrame(codes, columns=schema.names), schema, rows, rows, rng
    )
    return (
        (group,),
        others,
        {name: "one" if name < "c4" else "other" for name in schema.names},
        "c0",
    )


def cut(
    rows: pd.DataFrame,
    schema: Schema,
    train: int,
    outside: int,
    rng: np.random.Generator,
) -> tuple[Outsiders, pd.DataFrame]:
    """By lot: people who train, people who take no part, and others, as many as train,
    for the synthetic rows.
    """
    order = rows.iloc[rng.permutation(len(rows))].reset_index(drop=True)
    group = Outsiders(
        inside=order[:train], outside=order[train : train + outside], schema=schema
    )
    return group, order[train + outside :][:train].reset_index(drop=True)


CASES: dict[str, Callable[[np.random.Generator], Page]] = {
    "demo": demo,
    "few outsiders": partial(health, train=2_400, outside=337),
    "health": health,
    "digits": digits,
    "made up": made_up,
}


def planted(page: Page, share: float, rng: np.random.Generator) -> pd.DataFrame:
    """The synthetic table with this share of its rows replaced by copies of training
    people, each once.
    """
    (group, *_), synthetic, *_ = page
    names = list(group.schema.names)
    copies = round(share * len(synthetic))
    people = group.inside[names].iloc[rng.permutation(len(group.inside))[:copies]]
    return pd.concat([synthetic[names][copies:], people], ignore_index=True)


def attacked(case: str, copied: float, seed: int) -> tuple[Attack, ...]:
    """All attacks of one page, judged together."""
    rng = np.random.default_rng([seed, 11])
    page = CASES[case](rng)
    groups, synthetic, owners, target = page
    if copied:
        synthetic = planted(page, copied, rng)
    found = attack_groups(groups, synthetic, owners=owners, target=target, seed=seed)
    return judge([attack for leakage in found.values() for attack in leakage.attacks])


def one_page(job: tuple[str, float, int]) -> tuple[bool, bool]:
    """Whether the page raises an alarm, and whether it would if every measure were
    judged alone.
    """
    attacks = attacked(*job)
    alone = any(m.p <= LEVEL for attack in attacks for m in attack.measures)
    return any(attack.leaks for attack in attacks), alone


def cells(only: str | None = None) -> Iterator[tuple[str, float, int]]:
    """Case, share copied, and pages, those where nothing can leak first; nobody's rows
    can be copied anew in `demo`.
    """
    for copied in COPIED:
        for case in CASES:
            if only in (None, case) and not (copied and case == "demo"):
                pages = PLANTED if copied else PAGES.get(case, NULLS)
                yield case, copied, 2 if QUICK else pages


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=Path(__file__).parent / "ours.csv")
    parser.add_argument(
        "--only", choices=CASES, help="one case; rows of the others stay as they are"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    return parser


def main() -> None:
    args = parser().parse_args()
    found = {(row["case"], float(row["copied"])): row for row in read(args.out)}
    with ProcessPoolExecutor(args.jobs) as pool:
        for case, copied, pages in cells(args.only):
            done = list(
                pool.map(one_page, [(case, copied, seed) for seed in range(pages)])
            )
            alarms, alone = (sum(column) for column in zip(*done, strict=True))
            print(
                f"{case}, {copied:.0%} copied: {alarms} of {pages} pages; judged "
                f"one by one {alone}",
                flush=True,
            )
            found[case, copied] = dict(
                zip(FIELDS, (case, copied, pages, alarms), strict=True)
            )
            if args.out:
                order = [cell[:2] for cell in cells()]
                write(
                    args.out,
                    [found[key] for key in sorted(found, key=order.index)],
                    FIELDS,
                )


if __name__ == "__main__":
    main()
