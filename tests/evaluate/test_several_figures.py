"""Synthetic people with two kinds of events beside real ones: figures by hand, attacks,
folders and the page.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from understudy.cli import app
from understudy.data.schema import Categorical, Integer, Schema
from understudy.data.visits import SeveralVisits, VisitSchema
from understudy.evaluate.other_rows import attack_people
from understudy.evaluate.utility.visits import (
    evaluate_visits,
    event_codes,
    event_layouts,
)
from understudy.ground.errors import SchemaError


def schema(people: bool = True) -> SeveralVisits:
    sex = Schema(columns=(Categorical(name="sex", categories=("f", "m")),))
    severity, fee = (
        Schema(columns=(Integer(name=name, low=0, high=1),))
        for name in ("severity", "fee")
    )
    month = Schema(columns=(Integer(name="month", low=0, high=9), *fee.columns))
    return SeveralVisits(
        parts=(
            VisitSchema(
                person="id",
                title="visits",
                most_events=3,
                people=sex if people else None,
                events=severity,
            ),
            VisitSchema(
                person="id", title="claims", most_events=2, time="month", events=month
            ),
        )
    )


def tables(*people: tuple[str, list[int], list[int]]) -> dict[str, pd.DataFrame]:
    """People by their sex, the severity of their visits, and the fees of their claims,
    a month apart.
    """
    visits = [(i, severity) for i, (_, own, _) in enumerate(people) for severity in own]
    claims = [
        (i, month, fee)
        for i, (_, _, own) in enumerate(people)
        for month, fee in enumerate(own)
    ]
    return {
        "people": pd.DataFrame(
            {"id": range(len(people)), "sex": [sex for sex, _, _ in people]}
        ),
        "visits": pd.DataFrame(visits, columns=["id", "severity"]),
        "claims": pd.DataFrame(claims, columns=["id", "month", "fee"]),
    }


def many(people: int, seed: int, **more: Any) -> dict[str, pd.DataFrame]:
    """People whose visits and claims go together."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(people):
        bad = rng.random() < 0.5
        visits, claims = (
            (rng.random(rng.integers(0, most + 1)) < (0.9 if bad else 0.1))
            .astype(int)
            .tolist()
            for most in (3, 2)
        )
        found.append(("fm"[rng.integers(2)], visits, claims))
    return {
        name: frame.assign(id=frame["id"] + more.get("shift", 0))
        for name, frame in tables(*found).items()
    }


REAL = tables(("f", [0, 1], [1]), ("m", [1], [0, 0]), ("f", [0], []))


def test_tables_of_two_kinds_of_events_by_hand() -> None:
    other = tables(("f", [1, 1], [1]), ("m", [1], [0, 0]), ("f", [0], []))
    found = {figure.name: figure for figure in evaluate_visits(REAL, other, schema())}
    # over two people: (0, 1) and (1, 1) of a quarter each and (1, 0) of a half; against
    # (1, 1) and (1, 0) of a half
    severity_fee = 0.25
    # the first claim has no gap: the first person has no other, and the second one half
    severity_gap = 0.25
    assert found["avd2_between (visits and claims)"].value == pytest.approx(
        (severity_fee + severity_gap) / 2
    )
    assert found["avd2_people"].value == 0
    assert found["avd2_across (claims)"].value == 0
    # sex, first month, numbers of claims and of visits with severity: of 1/3 of the
    # people a half moves
    assert found["avd2_across (visits)"].value == pytest.approx(1 / 6)
    assert found["total_mean_severity (visits)"].value == pytest.approx(0.5)
    assert found["total_mean_fee (claims)"].value == 0
    assert found["integrity (claims)"].value == 1


def test_people_s_columns_are_those_of_all_with_a_kind_s_own_number_last() -> None:
    visits, claims = event_codes(REAL, schema())
    # sex, first month, claims, visits
    assert visits.people.tolist() == [[0, 0, 1, 2], [1, 0, 2, 1], [0, 10, 0, 1]]
    assert claims.people.tolist() == [[0, 2, 0, 1], [1, 1, 0, 2], [0, 1, 10, 0]]
    assert [layout.people for layout in event_layouts(schema())] == [
        (2, 11, 3, 4),
        (2, 4, 11, 3),
    ]
    assert claims.starts.tolist() == [0, 1, 3, 3]


def test_a_set_of_tables_beside_itself_has_no_error_and_stands_below_its_references():
    real = many(300, 0)
    found = {figure.name: figure for figure in evaluate_visits(real, real, schema())}
    between = found["avd2_between (visits and claims)"]
    assert between.value == 0 < between.floor < between.ceiling / 2
    assert not any(
        figure.value
        for name, figure in found.items()
        if name.startswith(("avd", "total", "mean"))
    )
    assert found["tstr_again_auc (claims)"].value is not None


def test_people_without_columns_are_those_who_have_an_event_of_any_kind() -> None:
    real = {name: frame for name, frame in REAL.items() if name != "people"}
    visits, claims = event_codes(real, schema(people=False))
    assert len(visits.people) == len(claims.people) == 3
    found = {
        figure.name: figure.value
        for figure in evaluate_visits(real, real, schema(people=False))
    }
    assert found["avd2_between (visits and claims)"] == 0


def test_an_event_that_is_nobody_s_is_counted_where_it_was_drawn_and_refused_where_it_is_real():
    stray = REAL | {"claims": REAL["claims"].assign(id=[0, 1, 77])}
    found = {
        figure.name: figure.value for figure in evaluate_visits(REAL, stray, schema())
    }
    assert found["integrity (claims)"] == pytest.approx(2 / 3)
    assert found["integrity (visits)"] == 1
    with pytest.raises(SchemaError, match=r"claims: 33\.33% of them"):
        evaluate_visits(stray, REAL, schema())


def test_an_attack_finds_people_who_were_copied_with_all_their_events_of_both_kinds():
    wide = [many(200, seed, shift=1000 * seed) for seed in (1, 2, 3)]
    for frames in wide:  # months tell people apart
        rng = np.random.default_rng(frames["people"]["id"].iloc[0])
        frames["claims"] = frames["claims"].assign(
            month=rng.integers(0, 10, len(frames["claims"]))
        )
    copied, honest = (
        attack_people(wide[0], wide[1], other, schema()) for other in (wide[0], wide[2])
    )
    assert any(attack.leaks for attack in copied)
    assert not any(attack.leaks for attack in honest)


def test_the_command_compares_two_folders_and_writes_a_page(tmp_path: Path) -> None:
    schema().save(tmp_path / "schema.toml")
    for name, seed in (("real", 0), ("synthetic", 1), ("others", 2)):
        (tmp_path / name).mkdir()
        for part, frame in many(150, seed, shift=1000 * (name == "others")).items():
            frame.to_csv(tmp_path / name / f"{part}.csv", index=False)
    places = {
        "real": "real",
        "synthetic": "synthetic",
        "holdout": "others",
        "schema": "schema.toml",
    }
    asked = [
        word
        for option, place in places.items()
        for word in (f"--{option}", str(tmp_path / place))
    ]
    done = CliRunner().invoke(
        app, ["evaluate", *asked, "--out", str(tmp_path / "page.html")]
    )
    assert done.exit_code == 0, done.output
    for name in (
        "avd2_between (visits and claims)",
        "avd2_next (claims)",
        "integrity (visits)",
        "mia",
    ):
        assert f"{name}: " in done.output, name
    text = (tmp_path / "page.html").read_text()
    holds = (
        "Synthetic people with events",
        "<h3>Visits</h3>",
        "Real claims",
        "2 attacks were tried",
        "Only for the",
    )
    for said in holds:
        assert said in text, said
    assert "Correlations" not in text
    (tmp_path / "synthetic" / "claims.csv").unlink()
    done = CliRunner().invoke(app, ["evaluate", *asked])
    assert "there is no table of claims: bring all" in str(done.exception)
