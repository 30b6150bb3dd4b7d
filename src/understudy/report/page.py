"""The report: one self-contained HTML file for one run, or for two tables.

    # for the holder: everything, with figures from real rows
    write_report("runs/joint")
    # for everyone: nothing that a row could have changed unpaid
    write_report("runs/joint", publish=True)
    write_evaluation_page(compare(real, synthetic, schema), "evaluation.html")

The file holds no script, and a content policy forbids every request; it reads in light,
dark, print and on a phone.

Guarantee: a published report is a function of the run's artefacts and the date alone:
no table and no ledger of a holder is opened for it. A report for the holder holds
unpaid figures of real rows, says so, and is written readable by its owner alone. A
rehearsal says so before all else, and is not published.
Edges: a piece that is missing, damaged or cannot be computed leaves its reason in its
place.
"""

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jinja2

from understudy.data.encoding.codec import Codec
from understudy.data.reading.files import Source
from understudy.data.reading.sources import WRITTEN, TableSource
from understudy.data.schema import was_bought
from understudy.evaluate.attacks.attack import MIN_CONTROL
from understudy.evaluate.attacks.rates import LEVEL
from understudy.evaluate.comparison import ColumnShares, Comparison, column_shares
from understudy.evaluate.utility.association import STRONG, pearson
from understudy.evaluate.utility.second_opinion import NAMES as SECOND_OPINION
from understudy.ground import durable
from understudy.ground.errors import ArtefactError, PrivacyError, UnderstudyError
from understudy.privacy.accounts.budget import counted_in
from understudy.report import marks, plots, view, words
from understudy.report.artefacts import Artefacts, load_artefacts
from understudy.report.findings import headline
from understudy.report.measure import (
    Measured,
    Timeline,
    has_sound_privacy,
    measure,
    read_timelines,
)
from understudy.report.people import PeopleComparison, layout_people, people_shares
from understudy.report.people import people_findings as people_findings
from understudy.report.run_findings import attack_finding
from understudy.report.sheets import drawn_arrays, error_bars, label_table, sheets
from understudy.report.verdict import verdict

PRIVATE = "report.html"
PUBLIC = "report-public.html"
_FOR_EVERYONE = "this report is for everyone, and real rows are only for their holders."
LIBRARIES = (
    "understudy",
    "torch",
    "dp-accounting",
    "numpy",
    "pandas",
    "scikit-learn",
    "scipy",
)


def write_report(
    folder: str | Path,
    *,
    out: str | Path | None = None,
    publish: bool = False,
    parties: Sequence[str] | None = None,
    tables: Mapping[str, Any] | None = None,
    holdout: Source | None = None,
    target: str | None = None,
    now: datetime | None = None,
) -> Path:
    """Write the report of a run; returns where. Default: report.html, or
    report-public.html, in the folder.

    Real rows come from the tables that the run file names, of all `parties` or those
    given here; `tables` maps parties to tables elsewhere. `holdout` are people who took
    no part, by default those whom the run held out, and `target` is the column that
    downstream models learn (by default the run's own, if it named one).
    """
    run = load_artefacts(folder)
    if publish:
        _require_real(run)
        real = Measured(reason=_FOR_EVERYONE)
        timelines = {}
    else:
        if holdout is None and run.held_out and Path(run.held_out).exists():
            holdout = _held_out(run)
        real = measure(
            run, parties=parties, tables=tables, holdout=holdout, target=target
        )
        timelines = {} if run.rehearsal else read_timelines(run, parties)
    path = run.folder / (PUBLIC if publish else PRIVATE) if out is None else Path(out)
    return _write(
        path, now, private=not publish, real=real, run=run, timelines_by_party=timelines
    )


def published_page(
    run: Artefacts, *, now: datetime, versions: Sequence[tuple[str, str]]
) -> str:
    """The published report of a run, written at this time by libraries of these
    versions: the same text for the same.
    """
    _require_real(run)
    real = Measured(reason=_FOR_EVERYONE)
    return _page(now, private=False, real=real, run=run, versions=versions)


def _held_out(run: Artefacts) -> TableSource:
    """The people whom the run held out, read as its table is."""
    (section,) = run.parties.values() or [{}]
    written = {key: section[key] for key in WRITTEN if key in section}
    return TableSource.from_dict(written | {"table": run.held_out}, "run.toml")


def _require_real(run: Artefacts) -> None:
    """PrivacyError unless the run's statement says that it was no rehearsal."""
    if run.rehearsal:
        raise PrivacyError(
            f"{run.folder}: this may not be published. {run.rehearsal} No report was "
            "written."
        )
    if (
        has_sound_privacy(run)
        and run.privacy is not None
        and "rehearsal" not in run.privacy
    ):
        raise PrivacyError(
            f"{run.folder}: the privacy statement does not say whether this was a "
            "rehearsal, so it is not published. No report was written."
        )


def write_evaluation_page(
    comparison: Comparison | PeopleComparison,
    out: str | Path,
    *,
    now: datetime | None = None,
) -> Path:
    """Write the report of a comparison, for the holder of the real rows; returns
    where.
    """
    if isinstance(comparison, PeopleComparison):
        real = Measured(people=comparison)
        title = "Synthetic people with events"
    else:
        real = Measured(comparison=comparison)
        title = "A synthetic table"
    return _write(Path(out), now, private=True, real=real, title=title)


def _write(path: Path, now: datetime | None, *, private: bool, **parts: Any) -> Path:
    _save(path, _page(now, private=private, **parts), private)
    return path


def _page(
    now: datetime | None,
    *,
    private: bool,
    real: Measured,
    run: Artefacts | None = None,
    timelines_by_party: Mapping[str, Timeline | str] | None = None,
    title: str = "",
    versions: Sequence[tuple[str, str]] | None = None,
) -> str:
    artefacts = run or Artefacts()
    statement = artefacts.privacy if has_sound_privacy(artefacts) else None
    short_ledgers = {
        name: b.check
        for name, b in (timelines_by_party or {}).items()
        if isinstance(b, Timeline) and not b.agrees
    }
    row_findings = [] if real.people is None else people_findings(real.people)
    quality = (artefacts.card or {}).get("quality")
    findings = verdict(
        real.comparison,
        statement,
        artefacts.protocol,
        short_ledgers,
        artefacts.rehearsal,
        row_findings,
        quality,
    )
    context = {
        "private": private,
        "rehearsal": artefacts.rehearsal,
        "title": title or (f"Run {artefacts.run}" if artefacts.run else "A run"),
        "written": (now or datetime.now(UTC))
        .strftime("%d %B %Y, %H:%M UTC")
        .lstrip("0"),
        "facts": _facts(run, statement, real),
        "findings": findings,
        "headline": headline(findings),
        "kind": words.KINDS.get(artefacts.kind, ""),
        "run": run,
        "privacy": None if statement is None else view.privacy_cells(statement),
        "books": timelines_by_party or {},
        "reason": real.reason,
        **_tables(real, artefacts),
        "people": None if real.people is None else layout_people(real.people),
        "transcript": None
        if artefacts.transcript is None
        else view.transcript_cells(artefacts.transcript, sizes=private),
        "learning": view.accuracy_history(artefacts.card) if artefacts.model else [],
        "audit": view.audit_cells(artefacts.audit),
        "bars": error_bars(artefacts),
        "sheets": sheets(artefacts, real.arrays),
        "label_table": label_table(artefacts, real.arrays),
        "array_figures": [
            line for figure in real.figures for line in view.figure_rows([figure])
        ],
        "settings": artefacts.config,
        "versions": installed_versions() if versions is None else versions,
    }
    return _template().render(context)


def _save(path: Path, text: str, private: bool) -> None:
    try:
        if private:
            durable.replace(path, text.encode())
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            # a new file: the one before may have been the holder's own
            path.unlink(missing_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ArtefactError(
            f"{path}: the report cannot be written ({error.strerror})."
        ) from None


def _tables(real: Measured, run: Artefacts) -> dict[str, Any]:
    """The parts that show columns: of both tables, or of the synthetic one alone."""
    comparison = real.comparison
    if comparison is None:
        shares = {} if real.people is None else {"shares": real.people.shares}
        return {"comparison": None} | _synthetic_alone(run) | shares
    evaluation = comparison.evaluation
    owners = comparison.owners
    matrices = (evaluation.correlations.synthetic, evaluation.correlations.real)
    figures = {
        kind: [f for f in comparison.figures if f.key.measure == kind]
        for kind in ("avd", "cmd")
    }
    strengths = [
        f
        for f in comparison.figures
        if f.key.measure in words.STRENGTHS and f.value is not None
    ]
    has_correlations = bool(evaluation.columns) and any(
        f.value is not None for f in figures["cmd"]
    )
    papers = [
        f
        for f in evaluation.figures
        if f.key.measure in ("avd", "cmd", *SECOND_OPINION)
    ]
    return {
        "comparison": comparison,
        "marginals": view.figure_rows(figures["avd"]),
        "linear": view.figure_rows(figures["cmd"]),
        "strengths": view.figure_rows(strengths),
        "numbers": view.number_rows(comparison.shares),
        "papers": view.figure_rows(papers),
        "maps": view.heat_maps(*matrices, evaluation.columns, owners)
        if has_correlations
        else [],
        "pairs": view.furthest_pairs(comparison.pairs, owners),
        "shares": comparison.shares,
        "shown": min(plots.CELLS, len(evaluation.columns)),
        "downstream": list(view.downstream_rows(evaluation.figures)),
        "predictions": view.prediction_rows(comparison.predictions.figures),
        "quantiles": view.QUANTILES,
        "attacks": list(view.attack_rows(comparison.attacks)),
        "attacked": attack_finding(comparison.attacks),
        "closeness": view.closeness_rows(comparison.closeness),
    }


def _synthetic_alone(run: Artefacts) -> dict[str, Any]:
    shares: tuple[ColumnShares, ...] = ()
    maps: list[Any] = []
    try:
        if run.schema is not None and run.synthetic is not None:
            shares = column_shares(run.schema, run.synthetic, owners=run.owners)
            matrix, _ = pearson(Codec(run.schema).codes(run.synthetic))
            maps = (
                view.heat_maps(matrix, None, run.schema.names, run.owners)
                if shares
                else []
            )
        if run.visits is not None and run.synthetic_tables is not None:
            shares = people_shares(run.visits, run.synthetic_tables)
    except UnderstudyError:
        # rows that do not fit their own schema: the columns' section says so
        shares = ()
        maps = []
    width = 0 if run.schema is None else len(run.schema.names)
    return {
        "shares": shares,
        "maps": maps,
        "pairs": [],
        "shown": min(plots.CELLS, width),
    }


def _facts(
    run: Artefacts | None, statement: Mapping[str, Any] | None, real: Measured
) -> list[tuple[str, str]]:
    facts = []
    if run is not None:
        names = (
            [party["name"] for party in statement["parties"]]
            if statement
            else list(run.parties)
        )
        facts = [("Protocol", run.protocol), ("Parties", words.join_words(names))]
        people = (run.card or {}).get("people")
        counted = counted_in(statement["adjacency"]) if statement else "people"
        facts.append(
            (
                words.capitalize(counted),
                f"{people:,}" if isinstance(people, int) else "",
            )
        )
        synthetic = drawn_arrays(run) or run.synthetic_tables or {}
        facts += [
            (f"Synthetic {name or 'rows'}", f"{len(frame):,}")
            for name, frame in synthetic.items()
        ]
        facts.append(
            ("Columns", "" if run.schema is None else str(len(run.schema.names)))
        )
    elif real.comparison is not None:
        evaluation = real.comparison.evaluation
        facts = [
            (f"{words.capitalize(name)} rows", f"{count:,}")
            for name, count in evaluation.sizes.items()
        ]
        facts.append(("Columns", str(len(evaluation.columns))))
    elif real.people is not None:
        facts = [
            (words.capitalize(name), f"{count:,}")
            for name, count in real.people.sizes.items()
        ]
    return [(name, value) for name, value in facts if value]


@cache
def installed_versions() -> list[tuple[str, str]]:
    versions = [("Python", platform.python_version())]
    for name in LIBRARIES:
        try:
            versions.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return versions


@cache
def _template() -> jinja2.Template:
    pages = words.template_environment(
        Path(__file__).parent,
        words=words,
        level=LEVEL,
        least=MIN_CONTROL,
        strong=STRONG,
        plots=plots,
        was_bought=was_bought,
        marks=marks,
        omitted=words.OMITTED,
    )
    return pages.get_template("page.html")
