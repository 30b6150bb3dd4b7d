"""Write docs/papers.md: every table, figure, algorithm and theorem of the papers, with
our number beside theirs; or draw one of them again.

    make papers                          # writes the page from docs/papers/ and the benchmarks' CSV files
    make paper NAME=002-table-5          # prints one item from its CSV file, and draws it if the paper does

`papers/rows.csv` has a row for each item. `papers/figures.csv` has the figures of an
item: what the paper prints, and where ours stands, by file, rows (DataFrame.query) and
a template (`benchmarks/common/declared.py`). `papers/claims.toml` has what a paper says
about order (`benchmarks/common/claims.py`), and `papers/pictures.toml` what is drawn.
No number of ours is typed. A verdict must follow from the figures: `verdict_errors`.
"""

import argparse
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
BENCHMARKS = ROOT / "benchmarks"
PAGE = HERE / "papers.md"
SOURCES = HERE / "papers"
sys.path.append(str(BENCHMARKS))

from common.claims import holds  # noqa: E402  found by the line above
from common.declared import Table, selected, tables  # noqa: E402
from common.lines import Lines  # noqa: E402
from common.markdown import table  # noqa: E402
from common.readme import filled  # noqa: E402
from common.rows import read  # noqa: E402

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not reproduced"
IN_PART = "in part"
NOT_RUN = "not run"
NOT_POSSIBLE = "not possible here"
NO_RESULT = "no result"
VERDICTS = {
    REPRODUCED: "our figures meet what is said of them in the row, or a test compares with the printed formula",
    NOT_REPRODUCED: "measured, and at least one of the row's figures or claims is missed",
    IN_PART: "measured on a part of the paper's rounds, data or methods, which the row names",
    NOT_RUN: "the row has the command, and what it takes on which machine",
    NOT_POSSIBLE: "the data, or a part of the claim, is not to be had; the row says which",
    NO_RESULT: "a drawing, a list of literature, or a description of data",
}
TEXTS = {
    "000": "Jiang, dissertation, TUM 2024: SignDS-FL, DP-Fed-WAE, FedSTDG",
    "P1": "Jiang, Zhou, Grossklags, “SignDS-FL”, ACM TIST 2022 (appended to the dissertation)",
    "P2": "Jiang, Zhou, Grossklags, “Federated Generative Autoencoder”, PoPETs 2022(1) (appended)",
    "P3": "“Distributed Synthetic Time-Series Data Generation” (appended)",
    "001": "Zhang, master's thesis, TUM 2022: VDGAN",
    "002": "Jiang, Zhang, Zhou, Grossklags, “VertiGAN”, PoPETs 2023(2)",
    "003": "Li, Wei, Ma, Shu, “DP-GenFL”, supplementary file",
    "004": "Lomurno et al., “SGDE”, AIPR 2022",
}


@dataclass(frozen=True)
class Figure:
    """One number of a paper, and where ours stands."""

    of: str
    paper: str
    csv: str
    where: str
    ours: str
    holds: str

    @cached_property
    def rows(self) -> Any:
        return selected(BENCHMARKS, {"csv": self.csv, "where": self.where})

    def text(self) -> str:
        return Table({"text": self.ours}, self.rows).text()

    def number(self) -> float:
        return float(self.text().split(" ")[0].replace(",", "").rstrip("%"))

    def seeds(self) -> int | None:
        return self.rows.seed.nunique() if "seed" in self.rows else None

    def met(self) -> bool:
        """`within .02` of the paper's, `above .5` or `below .5`."""
        word, bound = self.holds.split()
        if word == "within":
            return abs(self.number() - float(self.paper)) <= float(bound) + 1e-9
        if word not in ("above", "below"):
            raise ValueError(f"{self.of}: {self.holds}")
        number = self.number()
        return number > float(bound) if word == "above" else number < float(bound)


@dataclass(frozen=True)
class Claim:
    """What a paper says about order, and for how many lines of ours it holds."""

    declared: Mapping[str, Any]

    @cached_property
    def lines(self) -> Any:
        return holds(selected(BENCHMARKS, self.declared), self.declared)

    def text(self) -> str:
        return f"{self.declared['said']}: {self.lines.sum()} of {len(self.lines)}"


@dataclass(frozen=True)
class Item:
    """A table, figure, algorithm or theorem."""

    item: str
    text: str
    name: str
    shows: str
    said: str
    command: str
    test: str
    verdict: str
    why: str
    alike: str
    figures: list[Figure] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)

    def seeds(self) -> str:
        found = [figure.seeds() for figure in self.figures]
        counts = sorted({count for count in found if count})
        counts += [
            int(selected(BENCHMARKS, claim.declared).seed.nunique())
            for claim in self.claims
            if "seed" in selected(BENCHMARKS, claim.declared)
        ]
        ends = sorted({min(counts), max(counts)}) if counts else []
        return " to ".join(str(count) for count in ends)

    def beside(self) -> str:
        """Figures and claims, the paper's before ours."""
        parts = [
            f"{figure.of}: {figure.paper or '–'} → {figure.text()}"
            for figure in self.figures
        ]
        parts += [claim.text() for claim in self.claims]
        return "; ".join(filter(None, [self.said, *parts]))

    def judged(self) -> str:
        where = f"`{self.command}`" if self.command else ""
        tested = f"`{self.test.partition('::')[0]}`" if self.test else ""
        reason = f", because {self.why}" if self.verdict == NOT_POSSIBLE else ""
        more = self.why if self.why and not reason else ""
        verdict = f"**{self.verdict}**{reason}" + (f": {more}" if more else "")
        return ". ".join(filter(None, [verdict, where, tested]))


def items() -> dict[str, Item]:
    """Every item by its key."""
    claims = tomllib.loads((SOURCES / "claims.toml").read_text())
    figures: dict[str, list[Figure]] = {}
    for row in read(SOURCES / "figures.csv"):
        figures.setdefault(row.pop("item"), []).append(Figure(**row))
    made = {
        row["item"]: Item(
            **row,
            figures=figures.pop(row["item"], []),
            claims=[Claim(one) for one in claims.pop(row["item"], {}).values()],
        )
        for row in read(SOURCES / "rows.csv")
    }
    if figures or claims:
        raise SystemExit(f"no row of rows.csv is {[*figures, *claims]}")
    return made


def verdict_errors(every: Mapping[str, Item]) -> Iterator[str]:
    """Verdicts that do not follow from what stands in their rows."""
    for item in every.values():
        tested = [figure for figure in item.figures if figure.holds]
        judged = bool(tested or item.claims)
        met = all(figure.met() for figure in tested) and all(
            claim.lines.all() for claim in item.claims
        )
        if item.alike:
            if item.alike not in every or every[item.alike].alike:
                yield f"{item.item}: there is no {item.alike}"
            continue
        if item.verdict not in VERDICTS:
            yield f"{item.item}: no verdict is {item.verdict!r}"
        if item.verdict == REPRODUCED and not (judged or item.test):
            yield f"{item.item}: nothing shows that it is reproduced"
        if item.verdict == REPRODUCED and not met:
            yield f"{item.item}: not every figure and claim is met: {item.beside()}"
        seen = item.why.startswith("by eye")  # a picture has no figure
        if item.verdict == NOT_REPRODUCED and not seen and (met or not judged):
            yield f"{item.item}: which of its figures is missed? {item.beside()}"
        if item.verdict == IN_PART and not (item.why and (item.figures or item.claims)):
            yield f"{item.item}: which part, with which figures?"
        if item.verdict == NOT_RUN and not (item.command and item.why):
            yield f"{item.item}: which command runs it, and what does it take?"
        if item.verdict == NOT_POSSIBLE and not item.why:
            yield f"{item.item}: why is it not possible?"


def page() -> str:
    every = items()
    counted = {
        verdict: sum(item.verdict == verdict for item in every.values())
        for verdict in VERDICTS
    }
    parts = [
        "<!-- Written by docs/papers.py from docs/papers/ and the benchmarks' CSV files: make papers -->",
        (SOURCES / "above.md").read_text().strip(),
        table(
            ["verdict", "items", "what it means"],
            [(name, str(counted[name]), VERDICTS[name]) for name in VERDICTS],
            "lrl",
        ),
    ]
    for key, title in TEXTS.items():
        parts += list(section(title, [i for i in every.values() if i.text == key]))
    below = (SOURCES / "below.md").read_text().strip()
    parts.append(filled(below, tables(SOURCES / "tables.toml", BENCHMARKS), "below.md"))
    return "\n\n".join(parts) + "\n"


def section(title: str, own: list[Item]) -> Iterator[str]:
    yield f"## {title}"
    told = [item for item in own if item.verdict != NO_RESULT and not item.alike]
    if told:
        yield table(
            [
                "item",
                "what it shows",
                "paper → ours",
                "seeds",
                "verdict, command, test",
            ],
            [
                (
                    f"{item.name}<br>`{item.item}`",
                    item.shows,
                    item.beside(),
                    item.seeds(),
                    item.judged(),
                )
                for item in told
            ],
        )
    again = [item for item in own if item.alike]
    if again:
        listed = "; ".join(f"{item.name} is `{item.alike}`" for item in again)
        yield wrapped(f"Printed again: {listed}.")
    differ = [f"{item.name}: {item.why}." for item in again if item.why]
    if differ:
        yield "\n".join(wrapped(f"- {one}", "  ") for one in differ)
    rest = [item for item in own if item.verdict == NO_RESULT]
    if rest:
        named = [
            f"{item.name} ({item.shows}{f'; {item.why}' if item.why else ''})"
            for item in rest
        ]
        yield wrapped(f"Without a result of its own: {', '.join(named)}.")


def wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text,
        118,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def show(name: str, out: Path) -> None:
    """One item, from its CSV file."""
    every = items()
    if name not in every:
        sys.exit(f"No item is {name!r}. There are: {', '.join(every)}.")
    item = every[name]
    print(f"{TEXTS[item.text]}, {item.name}: {item.shows}")
    if item.alike:
        print(f"Printed again: {item.alike}. {item.why}")
        item = every[item.alike]
    if item.figures:
        cells = [
            (figure.of, figure.paper, figure.text(), str(figure.seeds() or ""))
            for figure in item.figures
        ]
        print(table(["", "the paper", "ours", "seeds"], cells))
    print("\n".join(claim.text() for claim in item.claims))
    print(item.judged())
    drawn = pictures()
    if item.item in drawn:
        print(draw(drawn[item.item], item, out))


def pictures() -> dict[str, Any]:
    """What is drawn, by item."""
    return tomllib.loads((SOURCES / "pictures.toml").read_text())


def draw(declared: Mapping[str, Any], item: Item, out: Path) -> Path:
    """What the paper draws, from our rows."""
    given = {name: declared[name] for name in ("panels", "over", "x", "y")}
    lines = Lines(
        selected(BENCHMARKS, declared),
        **given,
        title=f"{item.name} of {TEXTS[item.text].split(',')[0]}, ours",
        xlabel=declared.get("xlabel", given["x"]),
        ylabel=declared.get("ylabel", given["y"]),
        log=declared.get("log", False),
    )
    path = out / f"{item.item}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(lines.svg())
    return path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", help="an item, such as 002-table-5")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "papers")
    args = parser.parse_args()
    if args.name is not None:
        show(args.name, args.out)
        return
    wrong = list(verdict_errors(items()))
    if wrong:
        sys.exit("\n".join(wrong))
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
