"""`gram` is one name: what a run of it does follows from what the holders have."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import understudy as us
from understudy.api.plan import plan_file
from understudy.api.train import run_file, train
from understudy.cli import app
from understudy.data.column import Real
from understudy.data.images import Images, ImageSchema
from understudy.data.schema import Boolean, Schema
from understudy.data.series import SeriesSchema
from understudy.generators.generator import Generator
from understudy.ground.errors import ConfigError
from understudy.runs.federation import Federation
from understudy.runs.registry import resolve_protocol
from understudy.runs.runfile import RunFile

IMAGE = ImageSchema(height=4, width=4, label="side", classes=("left", "right"))
OTHER = ImageSchema(height=4, width=6, person="id")
SERIES = SeriesSchema(channels=(Real(name="a", low=0, high=1),), length=4, series="id")
TABLE = Schema(columns=(Boolean(name="odd"), Boolean(name="old")), person="id")
BUDGET = us.Budget(8.0, 1e-5)


def pixels(count: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    side = rng.integers(0, 2, count)
    found = rng.integers(0, 90, (count, 4, 4))
    found[side == 0, :, :2] += 150
    found[side == 1, :, 2:] += 150
    return found, np.array(IMAGE.classes, dtype=object)[side]


@pytest.mark.parametrize(
    ("schemas", "same_people", "meant"),
    [
        ([TABLE], None, "gram"),
        ([TABLE, TABLE], None, "gram"),
        ([IMAGE], None, "moments"),
        ([IMAGE, IMAGE], None, "moments"),
        ([IMAGE, IMAGE], True, "tied"),
        ([SERIES, SERIES], False, "moments"),
        ([IMAGE, OTHER], None, "tied"),
        ([IMAGE, TABLE], None, "tied"),
        ([TABLE, SERIES, OTHER], True, "tied"),
    ],
)
def test_what_gram_is_follows_from_the_rows(
    schemas: list[Any], same_people: bool | None, meant: str
) -> None:
    held = {f"party {number}": schema for number, schema in enumerate(schemas)}
    assert resolve_protocol("gram", held, same_people) == meant
    assert resolve_protocol("verti-gan", held, same_people) == "verti-gan"


def test_a_federation_of_images_and_one_with_a_table_train_under_the_one_name() -> None:
    found, sides = pixels(80)
    held = {
        name: Images.from_array(found[at::2], IMAGE, labels=sides[at::2])
        for at, name in enumerate("ab")
    }
    result = train(
        "gram", Federation.rehearsal(held, budget=BUDGET, seed=1), features=8
    )
    assert result.generator.card["protocol"] == "moments"
    assert result.generator.labelled(3)[0].shape == (3, 4, 4)
    frame = pd.DataFrame(
        {"id": np.arange(80), "odd": np.arange(80) % 2 == 1, "old": np.arange(80) > 40}
    )
    wide = Images.from_array(np.repeat(found, 2, 2)[:, :, :6], OTHER, np.arange(80))
    fed = Federation.rehearsal(
        {"x": wide, "y": frame}, {"y": TABLE}, budget=BUDGET, seed=1
    )
    drawn = train(
        "gram", fed, features=6, directions=2, components=4, steps=5, target="odd"
    ).generator.parts(4)
    assert (drawn["x"].shape, len(drawn["y"])) == ((4, 4, 6), 4)
    with pytest.raises(ConfigError, match="settings of tied"):
        train("gram", fed, cells=3)


def run_of(folder: Path) -> RunFile:
    found, sides = pixels(60)
    np.savez(folder / "a.npz", images=found, side=sides.astype(str))
    IMAGE.save(folder / "images.toml")
    (folder / "run.toml").write_text(
        'protocol = "gram"\nout = "out"\n[settings]\nfeatures = 8\n'
        '[parties.a]\ntable = "a.npz"\nschema = "images.toml"\nepsilon = 8\ndelta = '
        "1e-5\n"
    )
    return RunFile.load(folder / "run.toml")


def test_a_run_file_says_gram_and_its_plan_says_what_that_is(tmp_path: Path) -> None:
    file = run_of(tmp_path)
    said = str(plan_file(file))
    assert "gram of these rows is moments (docs/moments.md)" in said
    result, out = run_file(file, seed=1)
    assert result.generator.card["protocol"] == "moments"
    assert 'protocol = "moments"' in (out / "run.toml").read_text(), (
        "what was carried out is written down"
    )


def test_one_file_of_images_is_synthesized_in_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_of(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = [
        "synthesize",
        "a.npz",
        "--epsilon",
        "8",
        "--schema",
        "images.toml",
        "--out",
        "made",
        "--rows",
        "20",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, f"{done.output} {done.exception!r}"
    generator = Generator.load(tmp_path / "made" / "generator")
    assert generator.images(2).shape == (2, 4, 4)
    assert len(pd.read_csv(tmp_path / "made" / "synthetic.csv")) == 20
    assert (tmp_path / "made" / "report.html").exists()
    with us.Ledger(tmp_path / "ledgers" / "a.ledger", holder="a") as ledger:
        assert 7.5 < ledger.spent() <= 8
