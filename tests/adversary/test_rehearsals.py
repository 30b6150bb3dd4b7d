"""A rehearsal never passes for the real thing: each of its artefacts says so first, and
nothing publishes it.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tomli_w
from safetensors import safe_open
from typer.testing import CliRunner

from understudy.api.train import run_file, train
from understudy.cli import app
from understudy.data.samples import toy
from understudy.generators.generator import Generator
from understudy.ground.errors import ArtefactError, PrivacyError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.core.base import Progress
from understudy.protocols.papers.sgde.offer import Requirements, check_offer
from understudy.protocols.papers.sgde.offering import Recipe
from understudy.protocols.papers.sgde.party import train_offers
from understudy.report.page import write_report
from understudy.runs.federation import Federation
from understudy.runs.runfile import RunFile
from understudy.services.exchange.offer_file import seal

FALSE = (
    "The price is paid",
    "cryptographic source",
    "at no further price",
    "may be published; this report",
)
FAST = {"components": 4, "steps": 5, "chunk": 25, "device": "cpu"}


def run_toml(
    folder: Path, *, protocol: str = "gram", noise: str = "secure", **settings: Any
) -> RunFile:
    """Two holders' tables and a run file on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    frame, schema = toy(rows=60, seed=3)
    parties = {}
    for name, columns in {
        "clinic": schema.names[::2],
        "insurer": schema.names[1::2],
    }.items():
        frame[["id", *columns]].to_csv(folder / f"{name}.csv", index=False)
        schema.select(columns).save(folder / f"{name}.toml")
        parties[name] = {
            "table": f"{name}.csv",
            "schema": f"{name}.toml",
            "epsilon": 3.0,
            "delta": 1e-5,
            "noise": noise,
        }
    body = {
        "protocol": protocol,
        "out": "out",
        "settings": settings or FAST,
        "parties": parties,
    }
    (folder / "run.toml").write_text(tomli_w.dumps(body))
    return RunFile.load(folder / "run.toml")


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `understudy run --seed 5` left."""
    return run_file(run_toml(tmp_path_factory.mktemp("seeded")), seed=5)[1]


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `noise = "fast"` left, with real ledgers."""
    return run_file(run_toml(tmp_path_factory.mktemp("fast"), noise="fast"))[1]


@pytest.fixture(params=["rehearsal", "fast"])
def unreal(request: pytest.FixtureRequest) -> tuple[Path, str]:
    said = {
        "rehearsal": "noise was drawn from a seed",
        "fast": "a fast generator that is not secure",
    }
    return request.getfixturevalue(request.param), said[request.param]


def test_every_artefact_says_first_that_nothing_is_private(
    unreal: tuple[Path, str],
) -> None:
    out, why = unreal
    privacy, card = (
        json.loads((out / name).read_text())
        for name in ("privacy.json", "generator/card.json")
    )
    with safe_open(out / "generator/weights.safetensors", "pt") as weights:
        firsts = [
            next(iter(privacy.items())),
            next(iter(card.items())),
            *(
                next(iter(row.items()))
                for row in json.loads((out / "transcript.json").read_text())
            ),
            *(weights.metadata() or {}).items(),
            *pd.read_parquet(out / "synthetic.parquet").attrs.items(),
        ]
    assert len(firsts) > 5
    for key, said in firsts:
        assert key == "rehearsal"
        assert said.startswith(
            "Rehearsal: nothing here is private and nothing may be published;"
        )
        assert why in said
    assert card["privacy"] == privacy


@pytest.mark.long
def test_the_holders_page_says_it_before_all_else_and_praises_nothing(
    unreal: tuple[Path, str],
) -> None:
    out, why = unreal
    page = write_report(out).read_text()
    assert (
        0
        < page.index("Rehearsal: nothing here is private")
        < page.index("Only for the holder")
    )
    assert page.index(why) < page.index("Only for the holder")
    assert "The run is a rehearsal, and nothing here is private." in page
    assert not [words for words in FALSE if words in page]


def test_a_rehearsal_is_not_published_whatever_piece_of_it_is_taken_away(
    unreal: tuple[Path, str], tmp_path: Path
) -> None:
    out, why = unreal
    pieces: list[Callable[[Path], object]] = [
        lambda folder: None,
        lambda folder: (folder / "privacy.json").unlink(),
        lambda folder: (folder / "generator/card.json").unlink(),
        lambda folder: _edit(folder / "privacy.json", rehearsal=None),
    ]
    for number, spoil in enumerate(pieces):
        copy = tmp_path / str(number)
        for file in (path for path in out.rglob("*") if path.is_file()):
            to = copy / file.relative_to(out)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(file.read_bytes())
        spoil(copy)
        with pytest.raises(PrivacyError, match=why):
            write_report(copy, publish=True)
        assert not (copy / "report-public.html").exists()


def _edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_statement_that_does_not_say_is_not_published(tmp_path: Path) -> None:
    out = run_file(run_toml(tmp_path))[1]
    assert json.loads((out / "privacy.json").read_text())["rehearsal"] is None
    assert not any(
        "rehearsal" in row for row in json.loads((out / "transcript.json").read_text())
    )
    text = write_report(out, publish=True).read_text()
    assert "cryptographic source" in text
    assert "The price is paid" in text
    assert "Rehearsal" not in text
    privacy = json.loads((out / "privacy.json").read_text())
    del privacy["rehearsal"]
    (out / "privacy.json").write_text(json.dumps(privacy))
    with pytest.raises(PrivacyError, match="does not say whether"):
        write_report(out, publish=True)


def test_the_commands_say_so_too(rehearsal: Path) -> None:
    drawn = CliRunner().invoke(app, ["sample", str(rehearsal), "-n", "2"])
    assert drawn.exit_code == 0
    assert "nothing here is private" in " ".join(drawn.stderr.split())
    assert len(drawn.stdout.splitlines()) == 3
    published = CliRunner().invoke(app, ["report", str(rehearsal), "--publish"])
    assert isinstance(published.exception, PrivacyError)


def test_a_rehearsal_does_not_go_on_as_the_real_thing_nor_the_reverse(
    tmp_path: Path,
) -> None:
    class GoneError(Exception):
        """The process is gone."""

    def gone(progress: Progress) -> None:
        if progress.done == 2:
            raise GoneError

    few = {
        "rounds": 3,
        "critic_steps": 1,
        "batch": 16,
        "device": "cpu",
        "checkpoint_every": 1,
    }
    for first, second in ((5, None), (None, 5)):
        file = run_toml(tmp_path / str(first), protocol="verti-gan", **few)
        with pytest.raises(GoneError):
            run_file(file, seed=first, watch=gone)
        with pytest.raises(ArtefactError, match="resumed with its --seed"):
            run_file(file, seed=second, resume=True)
    frame, schema = toy(rows=60, seed=3)
    tables = {"clinic": frame}
    schemas = {"clinic": schema}
    budget = Budget(3.0, 1e-5)
    with pytest.raises(GoneError):
        train(
            "central-gan",
            Federation.rehearsal(tables, schemas, budget=budget),
            folder=tmp_path,
            run="r",
            watch=gone,
            **few,
        )
    with pytest.raises(ArtefactError, match="a rehearsal is resumed as a rehearsal"):
        train(
            "central-gan",
            Federation(tables, schemas, budget=budget, ledgers=tmp_path),
            folder=tmp_path,
            run="r",
            resume=True,
            **few,
        )


def test_one_party_that_rehearses_is_named(tmp_path: Path) -> None:
    frame, schema = toy(rows=60, seed=3)
    parts = {"clinic": schema.names[::2], "insurer": schema.names[1::2]}
    tables = {name: frame[["id", *columns]] for name, columns in parts.items()}
    schemas = {name: schema.select(columns) for name, columns in parts.items()}
    real = Federation(tables, schemas, budget=Budget(3.0, 1e-5), ledgers=tmp_path)
    fast = dataclasses.replace(real.holders["clinic"], noise="fast")
    result = train(
        "gram", Federation.from_holders([fast, real.holders["insurer"]]), **FAST
    )
    first = str(result.privacy).splitlines()[0]
    assert first == (
        "Rehearsal: nothing here is private and nothing may be published; "
        "noise came from a fast generator that is not secure (clinic)."
    )


@pytest.mark.parametrize("real", [False, True])
def test_an_exchange_takes_no_offer_of_a_rehearsal(tmp_path: Path, real: bool) -> None:
    frame, schema = toy(rows=60, seed=3)
    pool = Requirements(schema=schema, target="smoker", epsilon=3.0, delta=1e-5)
    budget = Budget(3.0, 1e-5)
    ledger = (
        Ledger(tmp_path / "l", holder="north", budget=budget)
        if real
        else Ledger.rehearsal("north", budget)
    )
    population = (
        Federation.rehearsal({"north": frame}, {"north": schema}, budget=budget)
        .holders["north"]
        .table
    )
    offers = train_offers(
        "north",
        population,
        ledger,
        pool,
        budget=budget,
        run="r",  # type: ignore[arg-type]
        recipe=Recipe(latent=2, steps=2, device="cpu"),
        rng=None if real else SecureRng.from_seed(1),
    )
    for offer in offers:
        assert seal(offer)
        Generator.from_parts(offer).save(tmp_path / "offer")
        found = Generator.load(tmp_path / "offer")
        if real:
            check_offer(pool, found.card, schema, 1)
        else:
            with pytest.raises(PrivacyError, match="noise was drawn from a seed"):
                check_offer(pool, found.card, schema, 1)
