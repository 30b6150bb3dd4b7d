"""`understudy plan` and `us.plan`: what a run will cost, without a row."""

import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import understudy as us
from test_cli import Run, change, nothing_was_charged
from understudy.data.images import ImageSchema
from understudy.data.infer import infer_schema, write_draft
from understudy.data.samples import toy
from understudy.data.schema import Boolean, Integer, Real, Schema
from understudy.ground.errors import ConfigError
from understudy.runs.registry import PROTOCOLS
from visit_cases import clinic

FRAME, SCHEMA = toy(rows=40, seed=1)


def without_tables(home: Path) -> None:
    for file in home.glob("*.csv"):
        file.unlink()


def test_a_plan_reads_no_row_and_makes_no_ledger(understudy: Run, home: Path) -> None:
    change(home, protocol="gram", settings={})
    without_tables(home)
    code, out, err = understudy("plan", home / "run.toml", "--people", 20)
    assert (code, err) == (0, "")
    for said in (
        "Plan of gram",
        "No row was read",
        "clinic",
        "noise of ±",
        "with 20 people",
        "Takes about",
        "at ε = 3: single columns",
    ):
        assert said in out
    assert not list(home.rglob("*.ledger"))
    assert not (home / "joint").exists()


def test_the_number_of_people_may_stand_in_the_run_file(
    understudy: Run, home: Path
) -> None:
    change(home, protocol="gram", settings={}, people=12_345)
    assert "with 12,345 people" in understudy("plan", home / "run.toml")[1]
    change(home, people=0)
    code, _, err = understudy("plan", home / "run.toml")
    assert code == 1
    assert '"people" must be a whole number' in err


def test_a_run_file_for_holders_elsewhere_has_a_plan_too(
    understudy: Run, home: Path
) -> None:
    body = tomllib.loads((home / "run.toml").read_text()) | {
        "protocol": "gram",
        "settings": {},
    }
    for party in body["parties"].values():
        del party["table"]
    (home / "run.toml").write_text(tomli_w.dumps(body))
    assert (
        "2 holders with other columns of the same people"
        in understudy("plan", home / "run.toml")[1]
    )


def test_the_first_screen_of_a_run_is_its_plan(understudy: Run, home: Path) -> None:
    without_tables(home)
    code, out, err = understudy("run", home / "run.toml")
    assert code == 1
    assert "clinic.csv" in err
    assert out.startswith("Plan of verti-gan: 2 holders")
    assert "3 rounds of 2 noised steps each" in out
    assert understudy("run", home / "run.toml", "--quiet")[1] == ""
    assert nothing_was_charged(home)


def test_a_draft_may_be_planned_with_and_the_plan_says_that_a_run_refuses_it(
    tmp_path: Path,
) -> None:
    draft = infer_schema(FRAME, "id")
    said = us.plan("gram", {"one": draft}, budget=1.0)
    assert "draft" in said.warnings[-1]
    write_draft(draft, tmp_path / "draft.toml")
    assert (
        us.plan("gram", {"one": tmp_path / "draft.toml"}, budget=1.0).warnings
        == said.warnings
    )


def test_prices_of_gans_compose_over_holders_of_the_same_people() -> None:
    schemas = {"a": SCHEMA.select(["colour"]), "b": SCHEMA.select(["age"])}
    said = str(us.plan("verti-gan", schemas, budget={"a": 1.0, "b": 2.0}))
    assert "at most ε = 3 at δ = 2e-06" in said
    assert "once, for all holders" in str(us.plan("dplt", schemas, budget=1.0))


def test_reports_beyond_the_budget_and_beyond_the_people_are_told() -> None:
    settings = {
        "target": "smoker",
        "epsilon_total": 8.0,
        "max_reports": 4,
        "rounds": 100,
        "clients_per_round": 250,
    }
    said = us.plan(
        "sign-ds",
        {"phones": SCHEMA},
        budget=us.Budget(2.0, 0.0),
        people=1_000,
        **settings,
    )
    assert "a person reports at most 4 times, for ε = 2 each" in said.facts
    assert (
        "all 4 reports of a person would cost ε = 8, and 2 is allowed"
        in said.warnings[0]
    )
    assert "ends after about 16 rounds" in said.warnings[1]


def test_a_method_that_buys_no_levels_says_which_numbers_it_will_cut_evenly() -> None:
    def warned(protocol: str, pay: Integer, **settings: Any) -> bool:
        schema = Schema(
            columns=(pay, Integer(name="rooms", low=1, high=9), Boolean(name="class"))
        )
        made = us.plan(
            protocol, {"north": schema, "south": schema}, budget=1.0, **settings
        )
        return any(said.startswith("pay: without `bins`") for said in made.warnings)

    pay = Integer(name="pay", low=0, high=1_000_000)
    assert warned("sgde", pay, kind="gram", target="class")
    assert not warned(
        "sgde", replace(pay, bins=(0, 500, 1_000_000)), kind="gram", target="class"
    )
    assert not warned("gram", pay), "which buys them"


def test_numbers_of_events_whose_levels_are_bought_are_named_too() -> None:
    schema = clinic()
    cost = Real(name="cost", low=0.0, high=1e6)
    for bins, named in ((None, True), ((0.0, 50.0, 1e6), False)):
        events = replace(
            schema.events, columns=(*schema.events.columns, replace(cost, bins=bins))
        )
        made = us.plan("visits", {"one": replace(schema, events=events)}, budget=1.0)
        assert ("first fine cells of numbers without bins: cost" in made.facts) is named


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_can_be_planned(name: str) -> None:
    reporting = name in ("sign-ds", "fed-wae", "wake-sleep", "fed-stdg")
    settings = {"epsilon_total": 1.0} if reporting else {}
    image = ImageSchema(height=4, width=4)
    taken: dict[str, dict[str, Any]] = {
        "moments": {"one": image},
        "class-means": {"one": image},
        "shared-moments": {"one": image},
        "visits": {"one": clinic()},
        "tied": {"one": SCHEMA, "two": image},
    }
    schemas = taken.get(name, {"one": SCHEMA})
    count = "1 holder" if len(schemas) == 1 else "2 holders"
    assert f"Plan of {name}: {count}" in str(
        us.plan(name, schemas, budget=1.0, people=100_000, **settings)
    )


def test_a_plan_of_tied_says_what_is_sent_and_refuses_what_a_run_refuses() -> None:
    schemas = {"one": SCHEMA, "two": ImageSchema(height=28, width=28)}
    made = us.plan(
        "tied", schemas, budget=us.Budget(1.0, 1e-5), people=30_000, target="smoker"
    )
    assert any(fact.startswith("two sends 72 MB") for fact in made.facts)
    assert made.price["one"] == pytest.approx(1.0, abs=0.01)
    with pytest.raises(ConfigError, match="two parties or more"):
        us.plan("tied", {"two": schemas["two"]}, budget=1.0)
    with pytest.raises(ConfigError, match='no table has a column "nothing"'):
        us.plan("tied", schemas, budget=1.0, target="nothing")


def test_a_budget_that_is_a_number_is_an_epsilon_at_a_delta_that_is_said() -> None:
    federation = us.Federation.rehearsal(
        {"one": FRAME}, {"one": SCHEMA}, budget=1.0, same_people=False
    )
    assert federation.holders["one"].budget == us.Budget(1.0, 1e-6)
    assert "ε = 0.999 at δ = 1e-06" in str(us.plan("gram", {"one": SCHEMA}, budget=1))
    with pytest.raises(ConfigError, match="epsilon must be above 0"):
        us.plan("gram", {"one": SCHEMA}, budget=0.0)
    with pytest.raises(ConfigError, match="epsilon must be above 0"):
        us.plan("gram", {"one": SCHEMA}, budget="1")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="b has no budget"):
        us.plan("gram", {"a": SCHEMA, "b": SCHEMA}, budget={"a": 1.0})


def test_whether_holders_have_the_same_people_follows_from_their_columns() -> None:
    a = SCHEMA.select(["colour"])
    b = SCHEMA.select(["age"])
    rehearsal = us.Federation.rehearsal
    assert (
        rehearsal({"a": FRAME, "b": FRAME}, {"a": a, "b": b}, budget=1.0).same_people
        is True
    )
    assert (
        rehearsal({"a": FRAME, "b": FRAME}, {"a": a, "b": a}, budget=1.0).same_people
        is False
    )
    for protocol, settings in (
        ("gram", {"steps": 1}),
        ("central-gan", {"rounds": 1, "critic_steps": 1}),
    ):
        one = rehearsal({"a": FRAME}, {"a": a}, budget=1.0, seed=1)
        assert one.same_people is None, (
            "of one holder both are true, and a protocol decides"
        )
        assert len(us.train(protocol, one, **settings).sample(3)) == 3


@pytest.mark.usefixtures("short_fits")
def test_a_rehearsal_without_noise_needs_no_budget_and_a_real_ledger_refuses_it(
    tmp_path: Path,
) -> None:
    rehearsal = us.Federation.rehearsal(
        {"one": FRAME}, {"one": SCHEMA}, budget=4.0, seed=1
    )
    made = us.train("gram", rehearsal, private=False, device="cpu")
    assert made.privacy.epsilon() == math.inf
    assert "nothing here is private" in str(made.privacy)
    real = us.Federation({"one": FRAME}, {"one": SCHEMA}, budget=4.0, ledgers=tmp_path)
    with pytest.raises(ConfigError, match="rehearsals on public rows"):
        us.train("gram", real, private=False, device="cpu")
    with us.Ledger(tmp_path / "one.ledger") as ledger:
        assert ledger.spent() == 0
