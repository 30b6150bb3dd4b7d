"""The tables of README.md, from ours.csv: `make tables NAME=strangers`."""

import sys
from functools import cache
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))

from further_tables import FURTHER, MAY_CHOOSE
from truth import LIMITS, kind_of_line

from common.figures import bare
from common.markdown import once, table

HERE = Path(__file__).parent
ALL = "(all)"
LINE = "line"
OTHER = "new words: (other)"
CHOSEN = (  # as `tables.py`
    "titanic",
    "wine",
    "energy",
    "credit",
    "adult",
    "clinic",
    "codes",
    "calls",
    "forms",
    "odd",
    *MAY_CHOOSE,
)
METHODS = ("before", "after", "now", "latest")
GROUPS = {True: "chosen by", False: "apart"}
FAMILIES = {False: "", True: "further ones, "}
SIZES = {
    "20,000 or more": (20_000, 10**9, 0.03),
    "5,000 to 20,000": (5_000, 20_000, 0.08),
    "fewer": (0, 5_000, 1.0),
}
OFF = 0.1  # a column that is further off may not be called good
# people and parts of the range beyond the ends, and deviations, at most
OUTSIDE = 0.001
BEYOND = 0.02
SIGMAS = 4.0
NOT_YET = "Not measured yet."
# people from which on no column is lost, and tails are as wanted
KEPT = 2_000
TAILS = 3_500
_FURTHEST = 6  # columns of each kind that README.md names


@cache
def rows() -> pd.DataFrame:
    found = pd.read_csv(HERE / "ours.csv")
    off = found[["ks", "tv"]].max(axis=1)
    form = found["form"].fillna("")
    return found.assign(
        group=found["dataset"].isin(FURTHER).map(FAMILIES)
        + found["dataset"].isin(CHOSEN).map(GROUPS),
        further=found["dataset"].isin(FURTHER),
        wrong=(found["mark"] == "good") & (off > OFF),
        good=found["mark"] == "good",
        other=form.str.contains("(other)", regex=False),
        changed=form.str.replace(OTHER, "", regex=False).str.strip("; ") != "",
        lost=(found["left_out"] == 1) & (found["kind"] != "unsaid"),
    )


def cells(**key: object) -> pd.DataFrame:
    found = rows()[(rows()["column"] != ALL) & (rows()["kind"] != LINE)]
    for name, value in key.items():
        found = found[found[name] == value]
    return found


def methods() -> list[str]:
    return sorted(rows()["method"].unique(), key=METHODS.index)


def groups() -> list[str]:
    return [family + group for family in FAMILIES.values() for group in GROUPS.values()]


def share(flags: "pd.Series[bool]") -> str:
    return f"{int(flags.sum())} of {len(flags)}" if len(flags) else "–"


def aims() -> str:
    """ε of 1, by people: KS of numbers and days as wanted, columns left out, and marks
    that are wrong.
    """
    lines = []
    for group in groups():
        for size, (least, most, aim) in SIZES.items():
            for method in methods():
                held = cells(group=group, method=method, epsilon=1.0)
                held = held[(held["people"] >= least) & (held["people"] < most)]
                ks = held["ks"].dropna()
                if held.empty:
                    continue
                wanted = share(ks <= aim) if aim < 1 else "–"
                tv = held["tv"][held["kind"] == "text"].dropna()
                lines.append(
                    (
                        f"{group}, {size}",
                        method,
                        bare(ks.mean()),
                        bare(ks.max()),
                        wanted,
                        bare(tv.mean()),
                        str(int(held["lost"].sum())),
                        share(held["wrong"][held["good"]]),
                    )
                )
    return _with_heads(
        (
            "tables, people",
            "code",
            "KS, mean",
            "worst",
            "as wanted",
            "TV, mean",
            "left out",
            "“good”, and off by > .1",
        ),
        lines,
    )


def prices() -> str:
    """The first twenty tables by ε."""
    lines = []
    for epsilon in (0.5, 1.0, 4.0):
        for method in methods():
            held = cells(method=method, epsilon=epsilon, further=False)
            if held.empty:
                continue
            first = rows()[(rows()["column"] == ALL) & ~rows()["further"]]
            whole = first[(first["method"] == method) & (first["epsilon"] == epsilon)]
            many = held[held["people"] >= KEPT]
            texts = held["tv"][held["kind"] == "text"]
            auc = f"{bare(whole['tstr_auc'].mean())}, {bare(whole['trtr_auc'].mean())}"
            lines.append(
                (
                    f"{epsilon:g}",
                    method,
                    str(len(whole)),
                    bare(held["ks"].mean()),
                    bare(texts.mean()),
                    str(int(held["lost"].sum())),
                    str(int(many["lost"].sum())),
                    share(held["changed"]),
                    share(held["wrong"][held["good"]]),
                    auc,
                )
            )
    head = (
        "ε",
        "code",
        "tables",
        "KS, mean",
        "TV, mean",
        "left out",
        f"of them with {KEPT:,} people or more",
    )
    return _with_heads(
        (*head, "forms changed", "“good”, and off by > .1", "AUC, and of real rows"),
        lines,
    )


def each() -> str:
    """Every table, ε of 1: by today's code, and what the first code gave in
    brackets.
    """
    lines = []
    for name in sorted(rows()["dataset"].unique(), key=lambda name: _people(name)):
        said: list[str] = []
        for method in methods():
            held = cells(dataset=name, method=method, epsilon=1.0)
            if held.empty:
                said.append("–")
                continue
            whole = rows()[
                (rows()["dataset"] == name)
                & (rows()["method"] == method)
                & (rows()["epsilon"] == 1.0)
            ]
            last = whole[whole["column"] == ALL].iloc[0]
            texts = held["tv"][held["kind"] == "text"]
            figures = [
                bare(held["ks"].mean()),
                bare(held["ks"].max()),
                bare(texts.mean()),
            ]
            figures.append(bare(last["tstr_auc"], 2))
            *shown, auc = (
                "–" if figure in ("nan", "") else figure for figure in figures
            )
            said.append(f"{' '.join(shown)} · {int(held['lost'].sum())} · {auc}")
        real = rows()[(rows()["dataset"] == name) & (rows()["column"] == ALL)][
            "trtr_auc"
        ].iloc[0]
        columns = len(cells(dataset=name)["column"].unique())
        group = FAMILIES[name in FURTHER] + GROUPS[name in CHOSEN]
        lines.append(
            (name, group, f"{_people(name):,}", str(columns), *said, bare(real, 2))
        )
    return table(
        ("table", "", "people", "columns", *methods(), "AUC, real"), lines, "llrrllr"
    )


def tails() -> str:
    """Numbers with 3,500 people or more, without ids: how many of p95, p99 and the mean
    are as wanted.
    """
    lines = []
    for group in groups():
        for epsilon in (0.5, 1.0, 4.0):
            for method in methods():
                held = cells(group=group, method=method, kind="number", epsilon=epsilon)
                held = held[(held["people"] >= TAILS) & (held["left_out"] == 0)]
                if held.empty:
                    continue
                within = (
                    share((held[n].dropna() - 1).abs() <= w)
                    for n, w in (("p95", 0.1), ("p99", 0.25), ("mean", 0.1))
                )
                lines.append((f"{group}, ε = {epsilon:g}", method, *within))
    return _with_heads(
        ("tables", "code", "p95 within 10 %", "p99 within 25 %", "mean within 10 %"),
        lines,
    )


def forms() -> str:
    """What of a column's form did not come back, ε of 1, besides "(other)"."""
    lines = []
    for method in methods():
        held = cells(method=method, epsilon=1.0)
        odd = held[held["changed"]]
        named = [f"{r.dataset}: {r.column} ({r.form})" for r in odd.itertuples()]
        two = held[held["other"]]
        lines.append(
            (method, share(held["changed"]), "; ".join(named) or "none", str(len(two)))
        )
    return table(("code", "columns", "which", "with “(other)”"), lines, "lrlr")


def wrong() -> str:
    """What is furthest off the aims at ε of 1: columns of numbers by the last code."""
    held = cells(method=methods()[-1], epsilon=1.0)
    lines = []
    for least, most, aim in SIZES.values():
        some = held[
            (held["people"] >= least) & (held["people"] < most) & (held["ks"] > aim)
        ]
        for r in some.sort_values("ks", ascending=False).itertuples():
            lines.append(
                (r.dataset, r.column, f"{r.people:,}", bare(r.ks), str(r.mark))
            )
    return (
        table(("table", "column", "people", "KS", "the page"), lines, "llrrl")
        if lines
        else "None."
    )


def ends() -> str:
    """Numbers, ε of 1: who is drawn outside of the real range, deviations, and atoms
    beyond what noise allows.
    """
    lines = []
    for group in groups():
        for method in methods():
            held = cells(group=group, method=method, epsilon=1.0)
            numbers = held[held["outside"].notna()]
            atoms = held["atom_sigmas"].dropna()
            if numbers.empty:
                continue
            people = (numbers["outside"] * numbers["people"]).sum() / numbers[
                "people"
            ].sum()
            lines.append(
                (
                    group,
                    method,
                    f"{100 * people:.2f} %",
                    share(numbers["outside"] > OUTSIDE),
                    share(numbers["beyond"] > BEYOND),
                    share((numbers["deviation"].dropna() - 1).abs() <= 0.1),
                    share(atoms > SIGMAS),
                    f"{atoms.max():.1f} σ",
                )
            )
    if not lines:
        return NOT_YET
    first = (
        "tables",
        "code",
        "people outside",
        "columns with > .1 %",
        "by > 2 % of the range",
    )
    return _with_heads(
        (*first, "deviation within 10 %", f"atoms off by > {SIGMAS:g} σ", "worst"),
        lines,
    )


def page_lines() -> str:
    """Lines of pages that say "good", beside what is true of the rows; ε of 1."""
    found = rows()[(rows()["kind"] == LINE) & (rows()["epsilon"] == 1.0)]
    found = found.assign(about=found["column"].map(kind_of_line))
    lines = []
    for about, limit in LIMITS.items():
        for method in methods():
            own = found[(found["about"] == about) & (found["method"] == method)]
            if own.empty:
                continue
            good = own[own["mark"] == "good"]
            false = good["wrong_line"] == 1
            which = "; ".join(
                f"{r.dataset}: {r.worst}" for r in good[false].itertuples()
            )
            title = f"{about}, off by > {bare(limit, 2)}"
            lines.append((title, method, str(len(own)), share(false), which or "none"))
    head = ("lines about", "code", "lines", "“good”, and wrong", "which")
    return _with_heads(head, lines) if lines else NOT_YET


def furthest() -> str:
    """Of both kinds of `all_furthest` those that are furthest off."""
    outside, atoms = _beyond_aims()
    return _columns_and_what([*outside[:_FURTHEST], *atoms[:_FURTHEST]])


def all_furthest() -> str:
    """Columns whose people lie furthest outside, and atoms that are furthest off, by
    the last code at ε of 1.
    """
    outside, atoms = _beyond_aims()
    return _columns_and_what([*outside, *atoms])


def _beyond_aims() -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    held = cells(method=methods()[-1], epsilon=1.0)
    outside = held[(held["outside"] > OUTSIDE) | (held["beyond"] > BEYOND)]
    atoms = held[held["atom_sigmas"] > SIGMAS]
    return [
        (
            r.dataset,
            r.column,
            f"{r.people:,}",
            f"{100 * r.outside:.2f} % outside, by {bare(r.beyond, 2)} of the range",
        )
        for r in outside.sort_values("outside", ascending=False).itertuples()
    ], [
        (
            r.dataset,
            r.column,
            f"{r.people:,}",
            f"{r.atom}: share off by {bare(r.atom_error)}, {r.atom_sigmas:.1f} σ",
        )
        for r in atoms.sort_values("atom_sigmas", ascending=False).itertuples()
    ]


def _columns_and_what(lines: list[tuple[str, ...]]) -> str:
    if not cells(method=methods()[-1], epsilon=1.0)["outside"].notna().any():
        return NOT_YET
    return (
        table(("table", "column", "people", "what"), lines, "llrl")
        if lines
        else "None."
    )


def _people(name: str) -> int:
    return int(rows()[rows()["dataset"] == name]["people"].iloc[0])


def _with_heads(head: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    heads = once(line[0] for line in lines)
    return table(
        head,
        [(first, *line[1:]) for first, line in zip(heads, lines, strict=True)],
        "llr",
    )


TABLES = {
    "aims": aims,
    "prices": prices,
    "each": each,
    "tails": tails,
    "forms": forms,
    "wrong": wrong,
}
TABLES |= {
    "ends": ends,
    "lines": page_lines,
    "furthest": furthest,
    "all_furthest": all_furthest,
}
