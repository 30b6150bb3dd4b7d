"""Synthetic people with events beside real ones: figures by hand, and attacks on a
person with all rows.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from understudy.cli import app
from understudy.data.schema import Integer
from understudy.data.visits import VisitCodes, VisitLayout, read_visits
from understudy.evaluate.attacks.neighbours import neighbourhood as neighbourhood_of
from understudy.evaluate.other_rows import attack_people
from understudy.evaluate.utility.distance import Attacked
from understudy.evaluate.utility.visits import (
    evaluate_visits,
    flatten_visits,
    table_figures,
    total_figures,
)
from visit_cases import clinic, frames, random_codes


def neighbourhood(train, holdout, synthetic, *more, space=None, **settings):
    return neighbourhood_of(
        Attacked.from_codes(train, holdout, synthetic, space=space), *more, **settings
    )


pytestmark = pytest.mark.usefixtures("short_training")

LAYOUT = VisitLayout((2, 3), (2, 2), ordered=True)


def tables(people: int = 400, seed: int = 0) -> dict[str, pd.DataFrame]:
    return dict(zip(("people", "events"), frames(people, seed), strict=True))


def of(codes: list[tuple[int, list[tuple[int, int]]]]) -> VisitCodes:
    """People by their first column and their events."""
    own = np.array(
        [[first, len(events)] for first, events in codes], dtype=np.int32
    ).reshape(-1, 2)
    events = np.array(
        [event for _, mine in codes for event in mine], dtype=np.int32
    ).reshape(-1, 2)
    starts = np.concatenate([[0], np.cumsum([len(mine) for _, mine in codes])])
    return VisitCodes(own, events, starts)


def test_distances_of_a_few_people_by_hand() -> None:
    real = of([(0, [(0, 0), (1, 1)]), (1, [(0, 0)])])
    other = of([(0, [(0, 0), (0, 0)]), (1, [(0, 1)])])
    found = {
        f.name: f.value
        for f in table_figures(real, other, LAYOUT, np.random.default_rng(0))
    }
    assert found["avd2_people"] == 0
    assert found["avd2_events"] == pytest.approx(0.5), (
        "(0, 0) of 3/4 and (1, 1) of 1/4 are (0, 0) and (0, 1) of 1/2"
    )
    assert found["avd2_across"] == pytest.approx((0.25 + 0.75) / 2)
    assert found["avd2_next"] == 1, "0 is followed by 1 in one, by 0 in the other"
    assert found["avd1_number"] == 0


def test_events_whose_columns_are_shuffled_stand_at_the_shuffled_end_though_people_have_one_event_or_eight():
    rng = np.random.default_rng(0)
    numbers = np.repeat([1, 8], 300)
    starts = np.append(0, np.cumsum(numbers))
    # which has no time since the one before: the last level
    first = np.isin(np.arange(starts[-1]), starts)
    same, mixed = (rng.permutation(np.arange(starts[-1]) % 2) for _ in range(2))
    own = np.stack([np.zeros(600, dtype=np.int64), numbers], axis=1).astype(np.int32)
    real, other = (
        VisitCodes(
            own,
            np.stack([same, beside, np.where(first, 2, 0)], axis=1).astype(np.int32),
            starts,
        )
        for beside in (same, mixed)
    )
    layout = VisitLayout((2, 9), (2, 2, 3), ordered=True)
    found = {f.name: f for f in table_figures(real, other, layout, rng)}
    assert found["avd2_events"].value == pytest.approx(
        found["avd2_events"].ceiling, rel=0.15
    )


def test_a_table_beside_itself_has_no_error_and_stands_below_its_references() -> None:
    real = tables()
    found = {
        figure.name: figure
        for figure in evaluate_visits(real, real, clinic(most_events=5))
    }
    for name in (
        "avd2_people",
        "avd2_events",
        "avd2_across",
        "avd2_next",
        "avd1_number",
    ):
        assert found[name].value == 0 < found[name].floor
    assert found["avd2_events"].floor < found["avd2_events"].ceiling
    assert {
        found[f"{name}_severity"].value
        for name in ("total_mean", "total_q90", "mean_q90")
    } == {0}
    assert found["integrity"].value == 1
    assert found["tstr_again_auc"].value > 0.4


def test_sums_of_people_by_hand() -> None:
    schema = clinic()
    people = pd.DataFrame(
        {"patient": [1, 2], "sex": ["f", "m"], "smoker": [True, False]}
    )
    events = pd.DataFrame(
        {
            "patient": [1, 1],
            "day": pd.to_datetime(["2020-01-01"] * 2),
            "severity": [1, 3],
            "ward": ["a", "b"],
        }
    )
    twice = pd.concat([events, events])
    real, other = ({"people": people, "events": rows} for rows in (events, twice))
    found = {figure.name: figure.value for figure in total_figures(real, other, schema)}
    assert found == {
        "total_mean_severity": 1.0,
        "total_q90_severity": pytest.approx(1.0),
        "mean_q90_severity": 0.0,
    }, "who has no events counts in sums, with 0, and in no average"


def test_events_that_are_nobody_s_are_counted_as_such() -> None:
    real = tables(60)
    stray = real["events"].assign(
        patient=np.where(
            np.arange(len(real["events"])) % 4 == 0, -1, real["events"]["patient"]
        )
    )
    found = {
        f.name: f.value
        for f in evaluate_visits(real, real | {"events": stray}, clinic(most_events=5))
    }
    assert found["integrity"] == pytest.approx((stray["patient"] != -1).mean())
    assert found["avd1_number"] > 0


def test_nobody_and_events_without_an_order_have_reasons() -> None:
    nobody = of([])
    figures = table_figures(nobody, nobody, LAYOUT, np.random.default_rng(0))
    assert all(figure.value is None for figure in figures)
    layout = VisitLayout((2, 3), (2, 2), ordered=False)
    some = of([(0, [(0, 0)]), (1, [])])
    found = {
        f.name: f for f in table_figures(some, some, layout, np.random.default_rng(0))
    }
    assert found["avd2_next"].value is None
    assert found["avd2_events"].value == 0


def test_a_person_with_all_rows_is_one_row_of_an_attack() -> None:
    rows, sizes = flatten_visits(
        of([(1, [(1, 0), (0, 1), (1, 1)]), (0, [])]), LAYOUT, max_events=2
    )
    assert rows.tolist() == [[1, 3, 1, 0, 0, 1], [0, 0, 2, 2, 2, 2]]
    assert sizes == (2, 3, 3, 3, 3, 3)


def test_an_attack_finds_people_who_were_copied_with_all_their_events() -> None:
    rng = np.random.default_rng(0)
    layout = VisitLayout((4, 5), (5, 6), ordered=True)
    codes = random_codes(rng, layout, rng.integers(0, 5, 600))
    members, others, rest = (codes.take(part) for part in np.split(np.arange(600), 3))
    lines = {
        name: flatten_visits(part, layout, 4)[0]
        for name, part in (("a", members), ("b", others), ("c", rest))
    }
    copied = neighbourhood(
        lines["a"], lines["b"], lines["a"], targets=90, score="nearest"
    )
    honest = neighbourhood(
        lines["a"], lines["b"], lines["c"], targets=90, score="nearest"
    )
    found, none = (
        {m.name: m.attack.value for m in attack.measures}["auc"]
        for attack in (copied, honest)
    )
    assert found > 0.85 > 0.65 > none


def test_the_command_says_all_figures_and_attacks_of_two_folders(
    tmp_path: Path,
) -> None:
    schema = clinic(most_events=5)
    schema.save(tmp_path / "clinic.toml")
    for name, seed in (("real", 0), ("synthetic", 0), ("others", 2)):
        (tmp_path / name).mkdir()
        for part, frame in tables(300, seed).items():
            shift = 1_000 * (name == "others")
            if part == "events":  # one beyond its bounds
                frame.loc[frame.index[0], "severity"] = 99
            frame.assign(patient=frame["patient"] + shift).to_csv(
                tmp_path / name / f"{part}.csv", index=False
            )
    places = {
        "real": "real",
        "synthetic": "synthetic",
        "holdout": "others",
        "schema": "clinic.toml",
    }
    asked = [
        word
        for option, place in places.items()
        for word in (f"--{option}", str(tmp_path / place))
    ]
    done = CliRunner().invoke(app, ["evaluate", *asked])
    assert done.exit_code == 0, done.output
    for name in (
        "avd2_next",
        "total_mean_severity",
        "tstr_again_auc",
        "integrity",
        "mia",
        "mia_nearest",
    ):
        assert f"{name}: " in done.output, name
    wide = Integer(name="severity", low=0, high=99)
    schema = schema.map_tables(
        lambda own: replace(
            own, columns=tuple(wide if c.name == wide.name else c for c in own.columns)
        )
    )
    found = attack_people(
        *(tmp_path / places[name] for name in ("real", "holdout", "synthetic")), schema
    )
    assert all(attack.leaks for attack in found), (
        "the synthetic people are the real ones"
    )


def test_real_figures_need_no_people_table() -> None:
    schema = replace(clinic(most_events=5), people=None)
    real = {"events": tables(80)["events"]}
    assert read_visits(real, schema).rows <= 80
    found = {f.name: f.value for f in evaluate_visits(real, real, schema)}
    assert found["integrity"] == 1
    assert found["total_mean_severity"] == 0
