"""The demo: a clinic and an insurer publish one joint synthetic table of the people they share.

Real rows of the RAND Health Insurance Experiment, written to disk as two holders would have them, and then an
ordinary run file: what the demo does is what `understudy run` does.
"""

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pandas as pd
import tomli_w

from understudy.data.codec import Codec
from understudy.data.samples import rand_health
from understudy.data.schema import Schema, join
from understudy.durable import free_folder, own_folder, replace
from understudy.errors import ArtefactError
from understudy.evaluate.utility import Marginals
from understudy.protocols.core import Watcher
from understudy.report.page import write_report
from understudy.run import Result, run_file
from understudy.runfile import RunFile

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
    """Write the holders' files, carry out the run, compare, and say where everything lies."""
    out = free_folder(Path("runs/demo")) if out is None else out
    if out.exists():
        raise ArtefactError(f"{out} is there already. Choose another --out. Nothing was read or charged.")
    tables, schemas = rand_health(bins=protocol != "gram")  # which buys levels where none are declared
    file = write_holders(tables, schemas, out, protocol=protocol, epsilon=epsilon, settings=settings)
    say(
        "Two holders, one joint synthetic table. Rows: RAND Health Insurance Experiment (1974–1982), public.\n"
    )
    for name, table in tables.items():
        columns = schemas[name].names
        say(f"  {name:<8} {len(table):,} people, {len(columns)} columns: {', '.join(columns)}")
    say(
        f"\nAligning people by private set intersection, then {protocol}; no row and no id leaves its holder …\n"
    )
    result, folder = run_file(RunFile.load(file), watch=watch)
    say(f"{result.people:,} people are held by both.\n\n{result.privacy}\n")
    say(comparison(tables, rand_health()[1], result, pd.read_parquet(folder / "synthetic.parquet"), protocol))
    write_report(folder)
    say(_where(folder, file))
    return folder


def write_holders(
    tables: dict[str, pd.DataFrame],
    schemas: dict[str, Schema],
    out: Path,
    *,
    protocol: str,
    epsilon: float,
    settings: dict[str, Any],
) -> Path:
    """Each holder's table, schema and ledger in a folder of its own, and a run file beside them."""
    parties = {}
    for name, table in tables.items():
        home = own_folder(out / "holders" / name)
        replace(home / f"{name}.csv", table.to_csv(index=False).encode())
        schemas[name].save(home / "schema.toml")
        parties[name] = {
            "table": f"holders/{name}/{name}.csv",
            "schema": f"holders/{name}/schema.toml",
            "ledger": f"holders/{name}/{name}.ledger",
            "epsilon": epsilon,
            "delta": 1e-5,
        }
    usual = {"verti-gan": {"rounds": 300, "latent": 64, "common": [256]}}.get(protocol, {})
    body = {"protocol": protocol, "out": "result", "settings": usual | settings, "parties": parties}
    file = out / "demo.toml"
    file.write_text(tomli_w.dumps(body))
    return file


def comparison(
    tables: dict[str, pd.DataFrame],
    schemas: dict[str, Schema],
    result: Result,
    synthetic: pd.DataFrame,
    protocol: str,
) -> str:
    """1-way and 2-way AVD, within and across parties, beside the best and the worst honest figures."""
    joint = join(schemas)
    shared = reduce(lambda one, other: one.merge(other, on=joint.person), tables.values())
    codec = Codec(joint)
    owners = [result.generator.card["owners"][name] for name in joint.names]
    marginals = Marginals(codec.codes(shared), codec.codes(synthetic), sizes=codec.sizes, owners=owners)
    figures = {
        "single columns": marginals.avd(1),
        "pairs within a party": marginals.avd(2, scope="within"),
        "pairs across parties": marginals.avd(2, scope="cross"),
    }
    head = f"  {'real against synthetic':<24}{'synthetic':>10}{'resampled':>11}{'independent':>13}"
    lines = [
        "Average variation distance (0 equal, 1 disjoint); only the demo may compute it, its rows are public:",
        head,
    ]
    for name, figure in figures.items():
        cells = (_cell(figure.value), _cell(figure.floor), _cell(figure.ceiling))
        lines.append(f"  {name:<24}{cells[0]:>10}{cells[1]:>11}{cells[2]:>13}")
    lines.append(
        "  resampled: a bootstrap of the real rows. independent: each real column shuffled by itself."
    )
    if protocol == "verti-gan":
        lines.append(
            "  VertiGAN's critics see one party each: pairs across parties cannot be learned beyond that."
        )
    lines.append("")
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _where(folder: Path, file: Path) -> str:
    home = file.parent
    return (
        f"Written to {home}:\n"
        f"  demo.toml                  the run file: `understudy run` does the same with yours\n"
        f"  holders/<name>/            what each holder keeps: table, schema, ledger\n"
        f"  {folder.name}/generator/          weights, schema, card: `understudy sample {folder} -n 1000`\n"
        f"  {folder.name}/synthetic.parquet   the joint synthetic table\n"
        f"  {folder.name}/privacy.json        the statement above, for machines\n"
        f"  {folder.name}/transcript.json     messages exchanged\n"
        f"  {folder.name}/report.html         all of it on one page: open it in a browser\n\n"
        f"Next: `understudy ledger show {home}/holders/clinic/clinic.ledger`"
    )
