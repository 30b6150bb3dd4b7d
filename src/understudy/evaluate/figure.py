"""One measured number, and in fields what it says of what: nobody takes a name
apart.
"""

from dataclasses import dataclass, field, replace
from typing import Literal, Self

from understudy.ground.errors import ConfigError

Better = Literal["lower", "higher"]

SCOPES = ("all", "within", "cross")


@dataclass(frozen=True)
class FigureKey:
    """What a figure, or an attack, measures. `part` says which columns: "within" or
    "cross" parties, those of "people", of "events" and the "next"; of `tstr` it is the
    model, of an attack its way. `of` are kinds of events, a label, or a group of
    parties.
    """

    measure: str
    columns: int | None = None  # in sets of so many
    part: str = ""
    score: str = ""  # of a model
    outliers: int | None = None  # among the people attacked, in %
    column: str = ""
    subjects: tuple[str, ...] = ()

    @classmethod
    def for_scope(
        cls, measure: str, scope: str, columns: int | None = None
    ) -> "FigureKey":
        """Of the columns of one of the `SCOPES`; "all" goes unsaid."""
        return cls(measure, columns, "" if scope == "all" else scope)

    def with_subjects(self, *subjects: str) -> "FigureKey":
        return replace(self, subjects=subjects)

    @property
    def name(self) -> str:
        """As files of results have it: `avd2_cross`, `tstr_mlp_auc`, `total_mean_cost
        (visits)`.
        """
        size = "" if self.columns is None else str(self.columns)
        outlier_words = "" if self.outliers is None else f"{self.outliers}pct_outliers"
        plain = "_".join(
            filter(
                None,
                (
                    self.measure + size,
                    self.part,
                    self.score,
                    outlier_words,
                    self.column,
                ),
            )
        )
        return f"{plain} ({' and '.join(self.subjects)})" if self.subjects else plain


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured number between its references, or the reason why there is none.
    `floor` and `ceiling` are the two ends of the honest scale; `better` says which end
    is good. For a distance the floor is what real rows reach and the ceiling what a
    naive table reaches; for a score the floor is the naive end and the ceiling what
    real rows reach. `both` are the real and the synthetic number that a difference is
    of, `parts` the strongest pairs of a mean, each by itself. `deviation` is the
    standard deviation, over test rows, of how far a score is below the one of real
    rows.
    """

    key: FigureKey = field(kw_only=False)
    value: float | None = None
    floor: float | None = None
    ceiling: float | None = None
    better: Better = "lower"
    reason: str = ""
    note: str = ""
    compared: tuple[float, float] | None = None
    deviation: float | None = None
    parts: "tuple[StrongPair, ...]" = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if (self.value is None) != bool(self.reason):
            raise ConfigError(
                f"figure {self.name}: give either a value or the reason why there is "
                "none."
            )

    @classmethod
    def absent(cls, key: FigureKey, reason: str, *, better: Better = "lower") -> Self:
        return cls(key, reason=reason, better=better)

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def best(self) -> float | None:
        """The good end of the scale: what real rows reach."""
        return self.floor if self.better == "lower" else self.ceiling

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.name}: cannot be computed, because {self.reason}"
        ends = (("floor", self.floor), ("ceiling", self.ceiling))
        scale = ", ".join(f"{word} {end:.4f}" for word, end in ends if end is not None)
        return f"{self.name}: {self.value:.4f}" + (f" ({scale})" if scale else "")


@dataclass(frozen=True, kw_only=True)
class StrongPair:
    """Two columns that depend on each other in the real rows, and the distance of their
    levels, on so many rows.
    """

    first: str
    second: str
    figure: Figure
    rows: int
