"""Events at several holders of the same people: what is counted, by how much a person
moves it, what is drawn.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from understudy.api.plan import plan
from understudy.api.train import run_file, train
from understudy.cli import app
from understudy.data.schema import Schema
from understudy.data.visits import (
    SeveralLayout,
    SeveralVisits,
    VisitLayout,
    read_visits,
)
from understudy.data.visits.counts import AHEAD, person_vectors
from understudy.data.visits.reading import number_bounds
from understudy.generators.generator import Generator
from understudy.ground.errors import ArtefactError, ConfigError, SchemaError
from understudy.models.visits.fit import VisitTables, fit_visits
from understudy.protocols.visits import protocol as visits
from understudy.runs.federation import Federation
from understudy.runs.runfile import RunFile
from understudy.runtime.local import LocalParties
from visit_cases import (
    AMPLE,
    SMALL,
    USUAL,
    measured,
    random_codes,
    run_file_of,
    study_of,
    two_kinds,
)

ROOT = 12


def shared() -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """The people whom all have, with all their columns, and both kinds of events of
    them.
    """
    tables, _ = two_kinds()
    insured = tables["insurer"]["people"].rename(columns={"member": "patient"})
    people = tables["registry"].merge(tables["clinic"]["people"]).merge(insured)
    claims = tables["insurer"]["events"].rename(columns={"member": "patient"})
    both = {"events": tables["clinic"]["events"], "claims": claims}
    return people, {
        name: rows[rows["patient"].isin(people["patient"])]
        for name, rows in both.items()
    }


def by_hand(schema: SeveralVisits) -> dict[tuple[str, int, int], np.ndarray]:
    """All tables, person by person, from averages of each person's events."""
    people, events = shared()
    layout = SeveralLayout.from_schema(schema)
    alone = [
        replace(part, people=schema.people, person="patient") for part in schema.parts
    ]
    codes = [
        read_visits({"people": people, "events": events[part.title]}, part).codes()
        for part in alone
    ]
    declared = 0 if schema.people is None else len(schema.people.columns)
    columns = np.concatenate([codes[0].people, codes[1].people[:, declared:]], axis=1)
    found = {block: np.zeros(layout.shape(block)) for block in layout.blocks}

    def average(own: Any, i: int, column: int, size: int) -> np.ndarray:
        levels = own.events[own.starts[i] : own.starts[i + 1], column]
        return np.bincount(levels, minlength=size) / max(len(levels), 1)

    for i in range(len(people)):
        for block in layout.blocks:
            kind, *named = block[0].split()
            rows, wide = layout.sides(block[0])
            which = [codes[layout.titles.index(title)] for title in named]
            if kind in ("person", "across"):
                first = np.eye(rows[block[1]])[columns[i, block[1]]]
            else:
                first = average(which[0], i, block[1], rows[block[1]])
            if kind == "person":
                second = np.eye(wide[block[2]])[columns[i, block[2]]]
            elif kind in ("across", "between"):
                second = average(which[-1], i, block[2], wide[block[2]])
            else:
                continue
            found[block] += (
                first if len(layout.shape(block)) == 1 else np.outer(first, second)
            )
    own = [
        VisitTables.exact(part, replace(VisitLayout.from_schema(s), even=True))
        for part, s in zip(codes, alone, strict=True)
    ]
    for title, tables in zip(layout.titles, own, strict=True):
        for (kind, q, r), table in tables.tables.items():
            if kind in ("event", *AHEAD):
                found[f"{kind} {title}", q, r] = table.numpy()
    return found


def released(fed: Federation, config: visits.Config) -> VisitTables:
    found: VisitTables = measured(
        LocalParties(fed.parties("visits", run="r", config=config)), fed.schemas, config
    )["tables"]
    return found


def test_without_noise_the_release_is_the_tables_of_the_shared_people_and_both_kinds_of_events():
    fed = Federation.rehearsal(*two_kinds(), budget=AMPLE, seed=3)
    found = released(fed, visits.Config(**SMALL, private=False))
    schema = study_of(fed.schemas).schema
    assert isinstance(schema, SeveralVisits)
    expected = by_hand(schema)
    assert set(expected) == set(found.tables)
    assert any(kind.startswith("between") for kind, _, _ in expected)
    for block, table in expected.items():
        (
            torch.testing.assert_close(
                found.tables[block], torch.from_numpy(table), rtol=0, atol=0.02
            ),
            block,
        )
    people, _ = shared()
    assert found.people == len(people)


def test_noise_is_that_of_one_holder_or_of_two_and_the_price_covers_all_tables():
    fed = Federation.rehearsal(*two_kinds(), budget=USUAL, seed=3)
    found = released(fed, visits.Config(**SMALL))
    schema = study_of(fed.schemas).schema
    assert isinstance(schema, SeveralVisits)
    exact = by_hand(schema)
    apart = torch.cat(
        [
            ((found.tables[b] - torch.from_numpy(exact[b])) / found.noise[b]).flatten()
            for b in exact
        ]
    )
    assert float(apart.std()) == pytest.approx(1, rel=0.1)
    (event,) = [
        event
        for event in fed.holders["insurer"].ledger.spend()
        if hasattr(event, "noise_multiplier")
    ]
    least = min(found.noise.values())
    assert least >= event.noise_multiplier * math.sqrt(len(found.layout.blocks)) * 0.999
    assert max(found.noise.values()) == pytest.approx(least * math.sqrt(2))
    for holder in fed.holders.values():
        assert 2.9 < holder.ledger.spent() <= 3.0


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(0, 300),
    m=st.integers(0, 300),
    same=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_product_of_two_averages_has_a_mass_of_one_at_most(
    n: int, m: int, same: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    layouts = (
        VisitLayout((2, 4), (3, 2), True, even=True),
        VisitLayout((3, 4), (4,), False, even=True),
    )
    vectors = []
    for layout, count in zip(layouts, (n, m), strict=True):
        codes = random_codes(rng, layout, np.array([count]))
        if same:
            codes.events[:] = 0
        vectors.append(person_vectors(codes, layout, ROOT)[0])
    product = np.outer(*vectors)
    assert (product >= 0).all()
    rows, columns = ((*layout.people, *layout.events) for layout in layouts)
    for a, high in zip(np.cumsum((0, *rows)), rows, strict=False):
        for b, wide in zip(np.cumsum((0, *columns)), columns, strict=False):
            cells = product[a : a + high, b : b + wide]
            assert cells.sum() in (0, ROOT**2)
            assert np.square(cells).sum() <= ROOT**4


@pytest.mark.long
def test_what_one_holders_events_have_to_do_with_anothers_is_found_by_the_fit() -> None:
    tables, schemas = two_kinds(150)
    schema = study_of(schemas).schema
    assert isinstance(schema, SeveralVisits)
    fed = Federation.rehearsal(tables, schemas, budget=AMPLE, seed=1)
    found = released(fed, visits.Config(**SMALL | {"chunk": 4096}, private=False))
    found = replace(found, noise=dict.fromkeys(found.noise, 0.2))
    bounds = [number_bounds(part) for part in schema.parts]
    network = fit_visits(found, bounds, kinds=12, chains=12, states=2, steps=60, seed=0)
    drawn = Generator(network.eval(), schema, {}).tables(1_000, seed=1)
    assert list(drawn["people"]) == ["patient", "sex", "smoker", "plan"]
    for title in ("events", "claims"):
        assert drawn[title]["patient"].isin(drawn["people"]["patient"]).all()
    by_smoker = drawn["claims"].merge(drawn["people"]).groupby("smoker")["fee"].mean()
    # 2 in the law, and 0 where nothing is found
    assert by_smoker[True] - by_smoker[False] > 0.7
    severity, fee = (
        drawn[t].groupby("patient")[c].mean()
        for t, c in (("events", "severity"), ("claims", "fee"))
    )
    assert severity.corr(fee) > 0.2
    assert (drawn["claims"].groupby("patient").size() <= 2).all()
    assert (drawn["claims"].groupby("patient")["month"].diff().dropna() >= 0).all()


def test_rules_of_every_holder_and_of_the_run_are_known_to_the_fit_and_kept_by_what_is_drawn():
    tables, schemas = two_kinds()
    schemas["insurer"] = replace(
        schemas["insurer"], rules=({"when": "plan == 1", "then": "fee != 3"},)
    )
    schemas["clinic"] = replace(
        schemas["clinic"], rules=({"when": "severity == 0", "then": "ward == 'a'"},)
    )
    across = [
        {"when": "sex == 'm'", "then": "fee <= 1"},
        {"when": "number_of_claims == 0", "then": "smoker == false"},
    ]
    fed = Federation.rehearsal(tables, schemas, budget=AMPLE, seed=1)
    made = train(
        "visits", fed, **SMALL | {"chunk": 4096}, private=False, rules=across
    ).generator
    assert len(made.schema.rules) == 4
    drawn = made.tables(1_000, seed=1)
    assert drawn["people"].attrs["kept"] == 1.0
    claims, visits_drawn = (
        drawn[t].merge(drawn["people"]) for t in ("claims", "events")
    )
    assert len(claims) > 250
    assert not ((claims["sex"] == "m") & (claims["fee"] > 1)).any()
    assert not ((claims["plan"] == 1) & (claims["fee"] == 3)).any()
    assert (visits_drawn.loc[visits_drawn["severity"] == 0, "ward"] == "a").all()
    without = drawn["people"].loc[~drawn["people"]["patient"].isin(claims["patient"])]
    assert len(without) > 50
    assert not without["smoker"].any()


def test_a_run_file_gives_three_files_and_the_generator_is_the_same_again(
    tmp_path: Path,
) -> None:
    tables, schemas = two_kinds()
    chosen = {key: value for key, value in SMALL.items() if key != "chunk"}
    file = run_file_of(tmp_path, tables, schemas, chosen)
    result, out = run_file(RunFile.load(file))
    drawn = {path.stem: pd.read_parquet(path) for path in (out / "synthetic").iterdir()}
    assert set(drawn) == {"people", "events", "claims"}
    assert len(drawn["people"]) == result.people
    assert drawn["claims"]["patient"].isin(drawn["people"]["patient"]).all()
    again = Generator.load(out)
    first, second = (one.tables(20, seed=4) for one in (result.generator, again))
    for name, frame in first.items():
        pd.testing.assert_frame_equal(frame, second[name])
    asked = [
        "sample",
        str(out),
        "-n",
        "9",
        "--out",
        str(tmp_path / "drawn"),
        "--seed",
        "1",
    ]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert len(pd.read_csv(tmp_path / "drawn" / "people.csv")) == 9
    done = CliRunner().invoke(
        app, [*asked, "--where", "severity == 1 and fee >= 2 and plan == 2"]
    )
    assert done.exit_code == 0, done.output
    assert "(exact)" in done.output
    claims = pd.read_csv(tmp_path / "drawn" / "claims.csv")
    assert claims.loc[claims["fee"] >= 2, "patient"].nunique() == 9
    assert "fee" in result.report(tmp_path / "page.html").read_text()
    with pytest.raises(ArtefactError, match="`tables`"):
        again.sample(5)


def test_what_cannot_be_put_together_is_refused_before_anything_is_charged() -> None:
    tables, schemas = two_kinds()
    alike = schemas | {"insurer": replace(schemas["insurer"], title="events")}
    with pytest.raises(SchemaError, match='title = "claims"'):
        study_of(alike)
    fed = Federation.rehearsal(tables, schemas, budget=USUAL, seed=1)
    for rule, error, said in (
        (
            {"when": "severity == 3", "then": "fee > 0"},
            SchemaError,
            "events and claims, which are different rows",
        ),
        ({"unique": ["fee"]}, SchemaError, "one row a person"),
        ({"always": "colour == 'red'"}, SchemaError, "colour"),
        ({"always": "fee > 3"}, ConfigError, "leave nothing"),
    ):
        with pytest.raises(error, match=said):
            train("visits", fed, **SMALL, rules=[rule])
    said = plan("visits", schemas, budget=USUAL, people=60, **SMALL)
    assert "at most 2 claims of a person count" in str(said)
    assert not any(
        entry.count
        for holder in fed.holders.values()
        for entry in holder.ledger.entries()
    )


def test_a_schema_of_several_kinds_of_events_survives_the_way_to_a_file_and_back(
    tmp_path: Path,
) -> None:
    _, schemas = two_kinds()
    schema = study_of(schemas).schema
    assert isinstance(schema, SeveralVisits)
    schema.save(tmp_path / "s.toml")
    assert SeveralVisits.load(tmp_path / "s.toml") == schema
    ruled = replace(schema, rules=({"when": "plan == 0", "then": "fee > 0"},))
    ruled.save(tmp_path / "s.toml")
    assert SeveralVisits.load(tmp_path / "s.toml") == ruled != schema
    assert isinstance(schema.people, Schema)
