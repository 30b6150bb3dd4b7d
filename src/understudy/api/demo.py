"""The demo: a clinic and an insurer publish one joint synthetic table of the people
they share; or, with visits, two insurers publish two synthetic tables, of people and of
their years.

Real rows of the RAND Health Insurance Experiment, written to disk as two holders would
have them, and then an ordinary run file: what the demo does is what `understudy run`
does.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pandas as pd
import tomli_w

from understudy.api.train import run_file
from understudy.data.encoding.codec import Codec
from understudy.data.samples import rand_health, rand_years
from understudy.data.schema import Schema, join
from understudy.data.visits import VisitLayout, VisitSchema, read_visits
from understudy.evaluate.utility.marginals import Marginals
from understudy.ground.durable import free_folder, own_folder, replace
from understudy.ground.errors import ArtefactError, Effect
from understudy.models.visits.fit import VisitTables
from understudy.protocols.core import Watcher
from understudy.report.page import write_report
from understudy.runs.result import Result
from understudy.runs.runfile import RunFile

Say = Callable[[str], None]


def run_demo(
    out: Path | None,
    *,
    protocol: str = "gram",
    epsilon: float = 2.0,
    say: Say,
    watch: Watcher | None = None,
    **settings: Any,
) -> Path:
    """Write the holders' files, carry out the run, compare, say where all lies;
    `visits`: with all their years.
    """
    out = free_folder(Path("runs/demo")) if out is None else out
    if out.exists():
        raise ArtefactError(
            f"{out} is there already. Choose another --out.",
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    visits = protocol == "visits"
    # gram buys levels where none are declared
    samples: tuple[Any, Any] = (
        rand_years() if visits else rand_health(bins=protocol != "gram")
    )
    tables, schemas = samples
    file = write_holders(
        tables, schemas, out, protocol=protocol, epsilon=epsilon, settings=settings
    )
    rows = "Rows: RAND Health Insurance Experiment (1974–1982), public."
    if visits:
        say(f"Two insurers with people of their own, several years each. {rows}\n")
        for name, table in tables.items():
            say(
                f"  {name}  {len(table['people']):,} people, {len(table['events']):,} "
                "years"
            )
        say(
            f"\n{next(iter(schemas.values()))}\n\nOne release of tables, in which a "
            "person with all years weighs 1, "
            "then the fit; no row leaves its holder …\n"
        )
    else:
        say(f"Two holders, one joint synthetic table. {rows}\n")
        for name, table in tables.items():
            columns = schemas[name].names
            say(
                f"  {name:<8} {len(table):,} people, {len(columns)} columns: "
                f"{', '.join(columns)}"
            )
        say(
            f"\nAligning people by private set intersection, then {protocol}; no row "
            "and no id leaves its holder …\n"
        )
    result, folder = run_file(RunFile.load(file), watch=watch)
    people = f"{result.people:,} people"
    counted = (
        f"About {people}, as the release counts them."
        if visits
        else f"{people} are held by both."
    )
    say(f"{counted}\n\n{result.privacy}\n")
    say(
        _visits_comparison(tables, schemas, folder)
        if visits
        else _comparison(tables, result, folder, protocol)
    )
    write_report(folder)
    say(_files_written(folder, file, visits))
    return folder


def write_holders(
    tables: Mapping[str, pd.DataFrame | dict[str, pd.DataFrame]],
    schemas: Mapping[str, Schema | VisitSchema],
    out: Path,
    *,
    protocol: str,
    epsilon: float,
    settings: dict[str, Any],
) -> Path:
    """Each holder's table, schema and ledger in a folder of its own, and a run file
    beside them.
    """
    parties = {}
    for name, table in tables.items():
        home = own_folder(out / "holders" / name)
        files = {name: table} if isinstance(table, pd.DataFrame) else table
        for part, rows in files.items():
            replace(home / f"{part}.csv", rows.to_csv(index=False).encode())
        schemas[name].save(home / "schema.toml")
        home_path = f"holders/{name}"
        parties[name] = {
            "table": f"{home_path}/{name}.csv"
            if isinstance(table, pd.DataFrame)
            else home_path,
            "schema": f"{home_path}/schema.toml",
            "ledger": f"{home_path}/{name}.ledger",
            "epsilon": epsilon,
            "delta": 1e-5,
        }
    usual = {"verti-gan": {"rounds": 300, "latent": 64, "common": [256]}}.get(
        protocol, {}
    )
    body = {
        "protocol": protocol,
        "out": "result",
        "settings": usual | settings,
        "parties": parties,
    }
    file = out / "demo.toml"
    file.write_text(tomli_w.dumps(body))
    return file


def _comparison(
    tables: Mapping[str, pd.DataFrame], result: Result, folder: Path, protocol: str
) -> str:
    """1-way and 2-way AVD, within and across parties, beside the best and the worst
    honest figures.
    """
    joint = join(rand_health()[1])
    synthetic = pd.read_parquet(folder / "synthetic.parquet")
    shared = reduce(
        lambda left, right: left.merge(right, on=joint.person), tables.values()
    )
    codec = Codec(joint)
    owners = [result.generator.card["owners"][name] for name in joint.names]
    marginals = Marginals(
        codec.codes(shared), codec.codes(synthetic), sizes=codec.sizes, owners=owners
    )
    figures = {
        "single columns": marginals.avd(1),
        "pairs within a party": marginals.avd(2, scope="within"),
        "pairs across parties": marginals.avd(2, scope="cross"),
    }
    lines = [
        "Average variation distance (0 equal, 1 disjoint); only the demo may "
        "compute it, its rows are public:",
        f"  {'real against synthetic':<24}"
        f"{'synthetic':>10}{'resampled':>11}{'independent':>13}",
    ]
    for name, figure in figures.items():
        cells = [
            "–" if value is None else f"{value:.3f}"
            for value in (figure.value, figure.floor, figure.ceiling)
        ]
        lines.append(f"  {name:<24}{cells[0]:>10}{cells[1]:>11}{cells[2]:>13}")
    lines.append(
        "  resampled: a bootstrap of the real rows. independent: each real column "
        "shuffled by itself."
    )
    if protocol == "verti-gan":
        lines.append(
            "  VertiGAN's critics see one party each: pairs across parties cannot be "
            "learned beyond that."
        )
    return "\n".join([*lines, ""])


def _visits_comparison(
    tables: Mapping[str, dict[str, pd.DataFrame]],
    schemas: Mapping[str, VisitSchema],
    folder: Path,
) -> str:
    """Average variation distances of the tables of people, of events and of both, and
    what a person has in all.
    """
    schema = next(iter(schemas.values()))
    real = {
        part: pd.concat([holder_tables[part] for holder_tables in tables.values()])
        for part in ("people", "events")
    }
    synthetic = {
        part: pd.read_parquet(folder / "synthetic" / f"{part}.parquet") for part in real
    }
    layout = VisitLayout.from_schema(schema)
    synthetic_tables, real_tables = (
        VisitTables.exact(read_visits(frames, schema).codes(), layout).tables
        for frames in (synthetic, real)
    )
    distances: dict[str, list[float]] = {}
    for block, table in real_tables.items():
        real_shares = table / table.sum()
        synthetic_shares = synthetic_tables[block] / synthetic_tables[block].sum()
        distances.setdefault(block[0], []).append(
            float((real_shares - synthetic_shares).abs().sum()) / 2
        )
    words = {
        "person": "people's columns",
        "event": "columns of a year",
        "across": "people's and a year's columns",
        "next": "a year and the next",
        "later": "a year and two years later",
        "far": "a year and four years later",
    }
    lines = [
        "Average variation distance of tables of one and two columns (0 equal, 1 "
        "disjoint); rows are public here:"
    ]
    lines += [
        f"  {words[kind]:<30}{sum(distances_of_kind) / len(distances_of_kind):>8.3f}"
        for kind, distances_of_kind in distances.items()
    ]
    lines += ["", f"  {'in all years of a person':<34}{'real':>8}{'synthetic':>8}"]
    for column in ("outpatient", "visits"):
        totals = [
            frames["events"].groupby(schema.person)[column].sum()
            for frames in (real, synthetic)
        ]
        for statistic, figures in (
            ("mean", [total.mean() for total in totals]),
            ("90 % have less than", [total.quantile(0.9) for total in totals]),
        ):
            lines.append(
                f"  {column + ', ' + statistic:<34}{figures[0]:>8.1f}{figures[1]:>8.1f}"
            )
    return "\n".join([*lines, ""])


def _files_written(folder: Path, file: Path, visits: bool) -> str:
    home = file.parent
    joint_table = ("synthetic.parquet", "the joint synthetic table")
    name, described = (
        ("synthetic/", "two synthetic tables: people, and their years")
        if visits
        else joint_table
    )
    return (
        f"Written to {home}:\n"
        "  demo.toml                  the run file: `understudy run` does the same "
        "with yours\n"
        f"  holders/<name>/            what each holder keeps: table, schema, ledger\n"
        f"  {folder.name}/generator/          weights, schema, card: `understudy "
        f"sample {folder} -n 1000`\n"
        f"  {f'{folder.name}/{name}':<27}{described}\n"
        f"  {folder.name}/privacy.json        the statement above, for machines\n"
        f"  {folder.name}/transcript.json     messages exchanged\n"
        f"  {folder.name}/report.html         all of it on one page: open it in a "
        "browser\n\n"
        "Next: `understudy ledger show "
        f"{next(iter(sorted(home.glob('holders/*/*.ledger'))))}`"
    )
