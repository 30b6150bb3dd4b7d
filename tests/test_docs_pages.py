"""What stands between fences on the pages of the documentation is carried out, or read
by what reads such files.
"""

import re
import sqlite3
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import understudy as us
from pages import blocks, steps
from test_cli import Run
from test_docs_sessions import typed
from understudy.data.kinds import load_schema, schema_from
from understudy.data.samples import toy
from understudy.data.series import Series, SeriesSchema, read_series
from understudy.generators.generator import Generator
from understudy.protocols.gram.protocol import Config as Gram
from understudy.protocols.tied.protocol import Config as Tied
from understudy.protocols.visits.protocol import Config as Visits
from understudy.runs.registry import protocol_named
from understudy.runs.runfile import RunFile
from understudy.runtime.contract import Policy

pytestmark = pytest.mark.usefixtures("short_fits", "short_training")
FEW = {
    Gram: {"components": 16, "steps": 10},
    Tied: {"components": 16, "steps": 10},
    Visits: {"kinds": 2, "states": 2, "steps": 2},
}
ELSEWHERE = {
    "understudy audit": "tests/test_cli.py",  # takes a minute at least
    "understudy demo --visits": "tests/test_visits_run.py",  # with a smaller fit
    # with what stands for … there
    "understudy schema buy": "tests/adversary/test_schema_buy.py",
}


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder; how good rows are is not what this is about."""
    monkeypatch.chdir(tmp_path)
    for config, settings in FEW.items():
        for name, few in settings.items():
            monkeypatch.setitem(config.__init__.__kwdefaults__, name, few)  # type: ignore[index]
    monkeypatch.setitem(Generator.classifier.__kwdefaults__, "rows", 500)


def text_of(page: str, kind: str, section: str | None = None) -> list[str]:
    return [block.text for block in blocks(page, section) if block.kind == kind]


def test_every_command_of_the_list_runs(
    understudy: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = toy(rows=150, seed=1)[0].rename(columns={"treated": "churned"}).dropna()
    columns = {
        "people.csv": ["id", "age", "smoker", "income"],
        "new.csv": ["id", "age", "smoker", "churned"],
        "insurer.csv": ["id", "income", "churned"],
        **{file: ["id", "age", "smoker"] for file in ("clinic.csv", "a.csv", "b.csv")},
    }
    for file, names in columns.items():
        frame[names].to_csv(file, index=False)
    frame[columns["insurer.csv"]].to_parquet("insurer.parquet")
    for name in ("insurer", "people", "a"):
        understudy(
            "schema", "infer", f"{name}.csv", "--person", "id", "--out", f"{name}.toml"
        )
        understudy(
            "schema", "declare", f"{name}.toml", "--because", "a test's own table"
        )
    for line in "".join(text_of("commands.md", "text")).splitlines():
        if not any(line.startswith(one) for one in ELSEWHERE):
            asked_nothing = line.replace(
                "init clinic.csv", "init --yes --person id --folder init clinic.csv"
            )
            (step,) = steps(f"$ {asked_nothing}")
            typed(step, understudy, monkeypatch)
    assert all(
        Path(file).exists()
        for file in ("runs/joint/report.html", "rows.csv", "book.csv", "init/run.toml")
    )


PIXELS = {"images": np.zeros((40, 28, 28), np.uint8), "digit": np.arange(40) % 10}


def for_moments() -> None:
    Path("digits.toml").write_text(text_of("moments.md", "text")[0])
    for silo in ("north", "south"):
        np.savez(f"{silo}.npz", **PIXELS)  # type: ignore[arg-type]
    Path("forms.toml").write_text(text_of("moments.md", "text")[1])
    digits = PIXELS["digit"]
    more = {
        "parity": np.array(["even", "odd"])[digits % 2],
        "size": np.array(["small", "large"])[digits // 5],
    }
    np.savez("forms.npz", **PIXELS | more)  # type: ignore[arg-type]


def for_tied() -> None:
    schema = (
        'person = "id"\n[columns.diagnosis]\nkind = "boolean"\n[columns.smoker]\nkind '
        '= "boolean"\n'
    )
    Path("registry.toml").write_text(schema)
    Path("images.toml").write_text(
        'kind = "image"\nheight = 28\nwidth = 28\nperson = "id"\n'
    )
    np.savez("images.npz", images=PIXELS["images"], id=np.arange(40))
    rows = [f"{n},{n % 2 == 0},{n % 3 == 0}\n" for n in range(40)]
    Path("registry.csv").write_text("id,diagnosis,smoker\n" + "".join(rows))


def for_visits() -> None:
    """Two hospitals with 30 people each, and an insurer of all of them."""
    Path("clinic.toml").write_text(text_of("visits.md", "toml")[0])
    Path("members.toml").write_text(
        'person = "member"\n[columns.smoker]\nkind = "boolean"\n'
    )
    Path("members.csv").write_text(
        "member,smoker\n" + "".join(f"{n},{n % 3 == 0}\n" for n in range(60))
    )
    for first, silo in ((0, "north"), (30, "south")):
        people = [f"{first + n},{'fm'[n % 2]}\n" for n in range(30)]
        events = [f"{first + n % 30},2020-0{1 + n % 9}-11,{n}\n" for n in range(60)]
        Path(silo).mkdir()
        Path(silo, "people.csv").write_text("patient,sex\n" + "".join(people))
        Path(silo, "events.csv").write_text("patient,admitted,cost\n" + "".join(events))


@pytest.mark.parametrize(
    ("page", "programs", "prepare", "made"),
    [
        (
            "moments.md",
            slice(0, 3),
            for_moments,
            lambda names: len(names["digits"]) == len(names["labels"]) == 50,
        ),
        (
            "moments.md",
            slice(3, None),
            for_tied,
            lambda names: len(names["drawn"]["registry"]) == 10,
        ),
        (
            "visits.md",
            slice(None),
            for_visits,
            lambda names: [*names["people"]] == ["patient", "sex", "smoker"],
        ),
    ],
)
def test_the_program_of_a_page_runs(
    page: str,
    programs: slice,
    prepare: Callable[[], None],
    made: Callable[[dict[str, Any]], bool],
) -> None:
    prepare()
    names: dict[str, Any] = {"us": us}
    for text in text_of(page, "python")[programs]:
        exec(compile(text.replace("_000)", ")"), page, "exec"), names)  # noqa: S102
    assert made(names)


# Files that pages show


def test_the_schemas_of_the_pages_are_schemas() -> None:
    columns, pattern, group, rules, *_ = text_of("schema.md", "toml")
    by_pattern, by_kind = (
        us.Schema.from_dict(tomllib.loads(text)) for text in (pattern, group)
    )
    assert by_pattern == by_kind
    Path("schema.toml").write_text(columns)
    assert len(load_schema("schema.toml").columns) == 4  # type: ignore[union-attr]
    kinds = {name: {"kind": "boolean"} for name in ("pregnant", "bed")}
    kinds |= {
        name: {"kind": "date", "low": "2024-01-01", "high": "2024-12-31"}
        for name in ("discharge", "admission")
    }
    kinds |= {
        name: {"kind": "categorical", "categories": ["M", "F"]}
        for name in ("sex", "ward")
    }
    columns = [{"name": name, **kind} for name, kind in kinds.items()]
    assert len(schema_from({"columns": columns, **tomllib.loads(rules)}).rules) == 3  # type: ignore[union-attr]
    visits, rules = text_of("visits.md", "toml")
    ward = (
        '\n[events.columns.ward]\nkind = "categorical"\ncategories = ["icu", '
        '"maternity"]\n\n'
    )
    Path("clinic.toml").write_text(visits + ward + rules)
    assert len(load_schema("clinic.toml").rules) == 2  # type: ignore[union-attr]


def test_a_source_is_read_as_its_page_says(
    understudy: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = "Where rows are read from"
    party, source = text_of("schema.md", "toml", section)
    RunFile.from_dict(
        {"protocol": "gram", "out": "o", **tomllib.loads(party)}, folder=Path()
    )
    with sqlite3.connect("ward.db") as ward:
        ward.execute("create table patients (id, age, sex, consent)")
        ward.executemany(
            "insert into patients values (?, ?, 'f', 1)",
            [(n, 20 + n) for n in range(30)],
        )
    here = source.replace(
        "postgresql://reader@db.clinic.example/visits", "sqlite:///ward.db"
    )
    Path("clinic.source.toml").write_text(here.replace("password", "# password"))
    command = text_of("schema.md", "sh", section)[0]
    (step,) = steps(f"$ {command}")
    typed(step, understudy, monkeypatch)
    assert load_schema("clinic.toml").names == ("age", "sex")  # type: ignore[union-attr]


def test_settings_and_limits_of_the_pages_are_ones() -> None:
    body = tomllib.loads(text_of("people.md", "toml")[-1])
    protocol_named(body["protocol"]).configured(body["settings"])
    limits, *_ = map(tomllib.loads, text_of("deploy.md", "toml"))
    policy = Policy(
        protocols=("verti-gan",), epsilon_run=1, epsilon_total=1, delta=1e-6, **limits
    )
    assert policy.settings["rounds"] == (1, 2000)


def test_parties_of_flower_get_their_identity_as_the_page_says(
    understudy: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own programs (flower-supernode, flwr) are in an environment of their own:
    `tests/runtime/test_flower.py`.
    """
    _, first, node, *_ = text_of("deploy.md", "console")
    for step in steps(first):
        typed(step, understudy, monkeypatch)
    assert Path("federation/invitations/clinic.toml").exists()
    assert node.startswith("clinic$ FLWR_TELEMETRY_ENABLED=0 flower-supernode ")
    _, participant, bundle, *_ = map(tomllib.loads, text_of("deploy.md", "toml"))
    assert participant.keys() == {"home", "table", "schema", "policy"}
    source = Path(us.__file__).with_name("network").joinpath("flower.py").read_text()
    for place in bundle["tool"]["flwr"]["app"]["components"].values():
        assert re.search(rf"^{place.partition(':')[2]}\b", source, re.MULTILINE), place
    assert all(f'"{key}"' in source for key in bundle["tool"]["flwr"]["app"]["config"])


def test_a_schema_of_series_reads_a_table_of_steps_and_an_array_that_is_cut_already():
    Path("stays.toml").write_text(text_of("moments.md", "toml")[0])
    schema = SeriesSchema.load("stays.toml")
    array = np.random.default_rng(0).uniform(40, 180, (6, 24, 1)).round()
    ids = np.array([3, 3, 5, 6, 7, 7])
    steps = {"stay": np.repeat(np.arange(6), 24), "hour": np.tile(np.arange(24), 6)}
    pd.DataFrame(
        steps | {"patient": np.repeat(ids, 24), "heart_rate": array.ravel()}
    ).to_csv("stays.csv")
    read = read_series("stays.csv", schema)
    taken = Series.from_array(array, schema, people=ids)
    np.testing.assert_array_equal(read.values, taken.values)
    np.testing.assert_array_equal(read.starts, taken.starts)
