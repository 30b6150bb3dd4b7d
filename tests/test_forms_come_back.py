"""What is drawn is written as the table was: read_csv, synthesize, to_csv, read_csv,
and nobody's code breaks.
"""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from sklearn import datasets

import understudy as us

pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.filterwarnings("ignore::understudy.ground.errors.PrivacyWarning"),
]
PEOPLE = 400  # fewer have no step
RNG = np.random.default_rng(7)
DAYS = pd.Series(pd.date_range("2001-02-03", periods=PEOPLE, freq="61001s"))
SHARE = np.round(RNG.random(PEOPLE), 2)
GAPS = np.arange(PEOPLE) % 4 == 0


def text(*words: str) -> np.ndarray:  # type: ignore[type-arg]
    return RNG.choice(np.array(words, dtype=object), PEOPLE)


def public(name: str, columns: int) -> Callable[[], pd.DataFrame]:
    def load() -> pd.DataFrame:
        if hasattr(datasets, f"load_{name}"):
            frame = getattr(datasets, f"load_{name}")(as_frame=True).frame
        else:
            frame = getattr(sm.datasets, name).load_pandas().data
        return frame.iloc[np.arange(PEOPLE) % min(150, len(frame)), -columns:]

    return load


TABLES: dict[str, Callable[[], pd.DataFrame]] = {
    "iris": public("iris", 2),
    "wine": public("wine", 2),
    "breast cancer": public("breast_cancer", 2),
    "diabetes": public("diabetes", 2),
    "randhie": public("randhie", 2),
    "fair": public("fair", 2),
    "star98": public("star98", 2),
    "engel": public("engel", 2),
    "cancer": public("cancer", 2),
    "heart": public("heart", 2),
    "yes, no": lambda: pd.DataFrame(
        {"a": text("yes", "no"), "b": text("Yes", "No"), "c": text("Y", "N")}
    ),
    "0, 1": lambda: pd.DataFrame(
        {"a": RNG.integers(0, 2, PEOPLE), "b": RNG.random(PEOPLE) < 0.5}
    ),
    "codes": lambda: pd.DataFrame(
        {"a": RNG.integers(0, 8, PEOPLE), "b": RNG.integers(1, 4, PEOPLE) * 10}
    ),
    "decimals": lambda: pd.DataFrame(
        {"a": SHARE, "b": np.round(90 * SHARE, 1), "c": SHARE * 1000 // 1}
    ),
    "gaps": lambda: pd.DataFrame(
        {"a": np.where(GAPS, np.nan, 100 * SHARE), "b": np.where(GAPS, None, "x")}
    ),
    "days": lambda: pd.DataFrame(
        {"a": DAYS.dt.strftime("%Y-%m-%d"), "b": DAYS.dt.strftime("%d.%m.%Y")}
    ),
    "times": lambda: pd.DataFrame(
        {"a": DAYS.dt.strftime("%H:%M"), "b": DAYS.dt.strftime("%Y-%m-%d %H:%M:%S")}
    ),
    "commas": lambda: pd.DataFrame(
        {"a": [f"{100 * v:.1f} %".replace(".", ",") for v in SHARE]}
    ),
    "long words": lambda: pd.DataFrame(
        {"b": text("a, b", 'a "c"', "ä"), "a": text("007", "01", "x")}
    ),
    "true, false": lambda: pd.DataFrame(
        {"a": text("true", "false"), "b": text("T", "F")}
    ),
}
# whose kinds are said to be public
SEEN = ("days", "times", "commas", "yes, no", "0, 1", "true, false")


def decimals(values: "pd.Series[float]") -> int:
    return max(
        (len(f"{v:.9f}".rstrip("0").partition(".")[2]) for v in values.dropna()),
        default=0,
    )


@pytest.mark.long
@pytest.mark.parametrize("name", TABLES)
def test_what_is_drawn_is_read_back_as_the_table_was(name: str, tmp_path: Path) -> None:
    came = pd.read_csv(io.StringIO(TABLES[name]().to_csv(index=False)))
    made = us.synthesize(
        came,
        epsilon=1_000,
        ledgers=tmp_path,
        names_and_kinds_are_public=name in SEEN,
        components=2,
        steps=2,
    ).sample(PEOPLE, seed=1)
    back = pd.read_csv(io.StringIO(made.to_csv(index=False)))
    assert list(back) == list(came)
    assert back.dtypes.to_dict() == came.dtypes.to_dict()
    for column in came:
        real = came[column]
        drawn = back[column]
        assert not drawn.isna().any() or real.isna().any()
        if real.dtype.kind == "f":
            assert decimals(drawn) <= decimals(real) or decimals(real) > 6
        elif real.dtype.kind == "i":
            assert real.min() - 1 <= drawn.min() <= drawn.max() <= 2 * real.max() + 1
        elif name not in ("days", "times", "commas"):
            assert set(drawn.dropna()) <= set(real)
        else:
            forms = real.astype(str).str.replace(r"\d", "0", regex=True)
            drawn_forms = drawn.astype(str).str.replace(r"\d", "0", regex=True)
            assert set(drawn_forms) <= set(forms) | {"-00,0 %"}
