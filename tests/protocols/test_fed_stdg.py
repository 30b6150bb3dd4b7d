"""FedSTDG: every report is paid for by the person who gives it, and MagRR lowers γ as
Algorithm 7 says.
"""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import phones
import pytest
import torch
from phones import FREE, check_participations, of

from understudy.api.train import run_file, train
from understudy.data.samples import sines, toy
from understudy.data.schema import Real
from understudy.data.series import Series, SeriesSchema, read_series
from understudy.generators.generator import Generator
from understudy.ground.errors import ConfigError, PartyError, PrivacyError
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import FastRng
from understudy.protocols.cross_device.host import Round
from understudy.protocols.cross_device.rounds import Rounds
from understudy.protocols.papers.fed_stdg import protocol as fed_stdg
from understudy.protocols.papers.fed_stdg.protocol import Config
from understudy.runs.federation import Federation
from understudy.runs.runfile import RunFile
from understudy.runtime.local import LocalParties

SMALL = {
    "epsilon": 2.0,
    "rounds": 6,
    "clients_per_round": 5,
    "max_reports": 3,
    "epochs": 1,
    "hidden": 4,
    "latent": 2,
    "device": "cpu",
}
UNEVEN = [1, 2, 3, 4, 5, 6, 0] * 2 + [4]


def waves(
    series: int = 60, length: int = 3
) -> tuple[np.ndarray[Any, Any], SeriesSchema]:
    return sines(series, length=length, channels=2, seed=3)


def uneven() -> Series:
    """Fifteen people with up to six series each; what they hold differs from person to
    person.
    """
    values, schema = waves(sum(UNEVEN))
    people = np.repeat(np.arange(15), UNEVEN)
    # nobody's are like another's
    values = np.clip(values * (0.3 + people[:, None, None] / 20), 0, 1)
    table = Series.from_array(values, schema, people)
    starts = np.concatenate([[0], np.cumsum(UNEVEN)])  # with those who have none
    return replace(table, ids=np.arange(15), starts=starts)


def begun(data: Any, *, budget: Budget = FREE, **settings: Any) -> Any:
    """A party that has begun, and the model that it begins with."""
    party = phones.begun(
        "fed-stdg", fed_stdg, of(data, budget=budget), SMALL | settings
    )
    return party, party.network.init(FastRng(party.config.seed))


@pytest.mark.parametrize("reporter", ["sub-mds", "ps", "naive", "em-mds"])
@pytest.mark.parametrize("adaptive", [True, False])
def test_the_ledger_holds_each_participation_at_the_price_of_indices_and_flag(
    reporter: str, adaptive: bool
) -> None:
    federation = of(uneven(), budget=Budget(6.0, 0.0))
    settings = SMALL | {
        "rounds": 4,
        "max_reports": 2,
        "reporter": reporter,
        "adaptive": adaptive,
    }
    result = train("fed-stdg", federation, **settings)
    check_participations(federation, result, reports=4 * 5, max_reports=2)
    assert result.generator.series(4).shape == (4, 3, 2)


def test_a_person_at_the_cap_is_never_asked_and_refuses_if_it_were() -> None:
    party, weights = begun(uneven(), max_reports=2)
    everybody = torch.arange(15)
    for number in (1, 2):
        party.answer(Round(round=number, people=everybody, weights=weights, rate=25.0))
    with pytest.raises(PartyError, match="which is the most in this run"):
        party.answer(Round(round=3, people=everybody[:1], weights=weights, rate=25.0))
    assert all(party.ledger.spend(person)[PureDp(2.0)] == 2 for person in range(15))
    with pytest.raises(ConfigError, match="Missing"):
        train("fed-stdg", of(uneven()), **SMALL | {"max_reports": 1})
    # 30 reports of 15 people: all, twice
    result = train("fed-stdg", of(uneven()), **SMALL | {"max_reports": 2})
    assert result.generator.card["reports"] == {"all": 30, "of the busiest person": 2}


def test_epsilon_is_split_between_indices_and_flag() -> None:
    config = Config(**SMALL | {"epsilon": 8.0})
    assert config.magnitude is not None
    assert config.magnitude.epsilon == pytest.approx(0.8)
    assert config.local(1000).epsilon == pytest.approx(7.2)  # type: ignore[attr-defined]
    assert config.event(1000) == PureDp(8.0)
    fixed = Config(**SMALL | {"epsilon": 8.0, "adaptive": False})
    assert fixed.magnitude is None
    assert fixed.local(1000).event == fixed.event(1000) == PureDp(8.0)
    assert (config.step, fixed.step) == (25.0, 5.0)
    total = Config(**SMALL | {"epsilon": None, "epsilon_total": 6.0})
    assert total.event(1000) == PureDp(2.0)


@pytest.mark.parametrize("reporter", ["sub-mds", "em-mds", "naive"])
def test_where_no_number_of_indices_reaches_the_share_one_is_sent(
    reporter: str,
) -> None:
    low, high = (
        Config(
            **SMALL | {"reporter": reporter, "epsilon": epsilon, "adaptive": False}
        ).local(5000)
        for epsilon in (0.5, 9.0)
    )
    assert low.chosen == 1 < high.chosen  # type: ignore[attr-defined]
    assert low.share < 0.8 <= high.share  # type: ignore[attr-defined]


def test_the_card_says_what_a_report_holds() -> None:
    card = train("fed-stdg", of(uneven()), **SMALL | {"epsilon": 0.5}).generator.card
    assert card["report"]["indices"] == 1
    assert 0.5 < card["report"]["of them expected in the top set"] < 0.8
    assert card["report"]["epsilon"] == {
        "of indices": pytest.approx(0.45),
        "of flag": pytest.approx(0.05),
    }


# Algorithm 7, ServerAggr, by hand: T_pat = 3, r = 0.5, γ_1 = 8; the share of flags, and
# (γ, t_pat) after the round
SCRIPT = [
    (0.6, 8, 1),
    (0.5, 8, 2),
    (0.4, 8, 0),
    (1.0, 8, 1),
    (1.0, 8, 2),
    (0.5, 4, 0),
    (0.0, 4, 0),
    (0.9, 4, 1),
    (0.9, 4, 2),
    (0.9, 2, 0),
]


def test_the_rate_follows_algorithm_7_on_a_scripted_sequence() -> None:
    federation = of(uneven())
    config = Config(
        **SMALL | {"patience": 3, "global_rate": 8.0, "rounds": 10, "max_reports": 10}
    )
    parties = LocalParties(federation.parties("fed-stdg", run="r"))
    run = fed_stdg.FedStdg(config, parties, federation.schemas)
    seen = []
    for number, (share, _, _) in enumerate(SCRIPT, 1):
        flags = torch.zeros(10, dtype=torch.bool)
        flags[: round(10 * share)] = True
        run.decay(number, flags)
        seen.append((share, run.rate, run.notes["waited"]))
    assert seen == SCRIPT
    assert run.notes["rates"] == [[1, 8.0], [6, 4.0], [10, 2.0]]


@pytest.mark.parametrize(("patience", "warned"), [(2, [14]), (14, [98]), (15, [])])
def test_a_step_that_falls_below_a_hundredth_within_100_rounds_is_said_once(
    patience: int, warned: list[int]
) -> None:
    config = Config(
        **SMALL
        | {"patience": patience, "global_rate": 25.0, "rounds": 120, "max_reports": 120}
    )
    federation = of(uneven())
    parties = LocalParties(federation.parties("fed-stdg", run="r"))
    run = fed_stdg.FedStdg(config, parties, federation.schemas)
    small = torch.ones(10, dtype=torch.bool)
    told = []
    for number in range(1, 121):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run.decay(number, small)
        told += [number for warning in caught if "patience" in str(warning.message)]
    assert told == warned


def test_the_step_of_a_round_is_taken_with_the_rate_that_its_flags_gave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Algorithm 8, lines 11 and 12; and the next round's people are told that rate."""
    rates: list[tuple[float, float]] = []
    move = Rounds.move

    def watched(run: Rounds, totals: Any) -> None:
        before = run.weights
        move(run, totals)
        sizes = (run.weights - before).abs() * run.config.clients_per_round
        rates.append((run.rate, float(sizes[sizes > 0].min())))

    monkeypatch.setattr(Rounds, "move", watched)
    federation = of(uneven())
    # At a huge γ every update is small, and at ε_mag = 30 each flag says so.
    settings = SMALL | {
        "epsilon": 40.0,
        "magnitude_share": 0.75,
        "patience": 2,
        "global_rate": 1024.0,
        "chosen": 1,
    }
    result = train("fed-stdg", federation, **settings | {"reporter": "em-mds"})
    assert [rate for rate, _ in rates] == [1024, 512, 512, 256, 256, 128]
    for rate, least in rates:
        assert least == pytest.approx(rate)  # one report moves one weight by γ/N
    assert result.generator.card["rates"] == [
        [1, 1024.0],
        [2, 512.0],
        [4, 256.0],
        [6, 128.0],
    ]


def test_a_resumed_run_is_the_run_that_was_not_interrupted(tmp_path: Path) -> None:
    settings = SMALL | {
        "patience": 2,
        "global_rate": 1024.0,
        "magnitude_share": 0.75,
        "epsilon": 40.0,
    }
    plain = train("fed-stdg", of(uneven()), **settings)

    def stop(progress: Any) -> None:
        if progress.done == 3:
            raise KeyboardInterrupt

    federation = of(uneven())
    with pytest.raises(KeyboardInterrupt):
        train("fed-stdg", federation, folder=tmp_path, watch=stop, run="r", **settings)
    resumed = train(
        "fed-stdg", federation, folder=tmp_path, resume=True, run="r", **settings
    )
    assert resumed.generator.card["rates"] == plain.generator.card["rates"]
    for name, value in plain.generator.network.state_dict().items():  # type: ignore[attr-defined]
        assert torch.equal(value, resumed.generator.network.state_dict()[name]), name  # type: ignore[attr-defined]


def test_people_without_series_report_like_any_other() -> None:
    party, weights = begun(uneven(), chosen=3, reporter="em-mds")
    nobody = torch.tensor([6, 13])
    assert not party.updates(nobody, weights).any()
    reply = party.answer(
        Round(round=1, people=nobody, weights=weights, rate=25.0)
    ).reports.value
    assert reply["indices"].shape == (2, 3)
    assert reply["flags"].shape == (2,)


def test_a_person_with_more_series_than_the_chunk_takes_part() -> None:
    values, schema = waves(50)
    table = Series.from_array(values, schema, [0] * 46 + [1, 2, 3, 4])
    result = train(
        "fed-stdg", of(table), **SMALL | {"max_rows_per_person": 8, "rounds": 3}
    )
    assert result.people == 5


def test_a_reply_without_a_flag_for_each_is_not_used() -> None:
    fine = torch.zeros(3, dtype=torch.bool)
    assert torch.equal(fed_stdg._flags({"flags": fine}, 3), fine)
    for wrong in (
        None,
        {},
        {"flags": fine[:2]},
        {"flags": fine.int()},
        {"flags": [True] * 3},
    ):
        with pytest.raises(PartyError, match="a flag for each of 3 people"):
            fed_stdg._flags(wrong, 3)


def test_without_privacy_the_decoder_learns_what_the_people_hold() -> None:
    _, schema = waves(1, length=6)
    ramps = np.linspace(0.1, 0.9, 6)[None, :, None] * np.random.default_rng(0).uniform(
        0.6, 1, (100, 1, 2)
    )
    table = Series.from_array(ramps, schema, np.arange(100) // 10)
    settings = SMALL | {
        "reporter": "none",
        "epsilon": None,
        "rounds": 6,
        "clients_per_round": 10,
        "max_reports": 6,
        "epochs": 6,
    }
    settings |= {"learning_rate": 0.05, "hidden": 8}
    drawn = train("fed-stdg", of(table), **settings).generator.series(500, seed=0)
    assert np.abs(drawn.mean(0) - ramps.mean(0)).max() < 0.2  # untrained: 0.4
    assert (np.diff(drawn, axis=1) > 0).mean() > 0.9


def test_liars_are_for_rehearsals_and_signs_hear_no_shouting(tmp_path: Path) -> None:
    few = SMALL | {"rounds": 2}
    settings = few | {"poison": {"kind": "flip", "share": 0.2}}
    honest, lied = (
        train("fed-stdg", of(uneven()), **s).generator for s in (few, settings)
    )
    assert not honest.sample(3, seed=1).equals(lied.sample(3, seed=1))
    loud = train(
        "fed-stdg",
        of(uneven()),
        **few | {"adaptive": False, "poison": {"kind": "flip", "scale": 1e3}},
    )
    soft = train(
        "fed-stdg",
        of(uneven()),
        **few | {"adaptive": False, "poison": {"kind": "flip", "scale": 1.0}},
    )
    assert loud.generator.sample(3, seed=1).equals(soft.generator.sample(3, seed=1))
    real = Federation(
        {"phones": uneven()},
        budget=Budget(6.0, 0.0),
        ledgers=tmp_path,
        same_people=False,
    )
    with pytest.raises(PrivacyError, match="poisoned clients are for rehearsals"):
        train("fed-stdg", real, **settings)


def test_public_series_come_before_the_first_ask() -> None:
    values, schema = waves(40)
    public = Series.from_array(values, schema)
    first, later = (
        train(
            "fed-stdg",
            of(uneven()),
            public=public,
            **SMALL | {"rounds": 1, "pretrain": steps},
        ).generator
        for steps in (0, 5)
    )
    assert not first.sample(3, seed=1).equals(later.sample(3, seed=1))
    with pytest.raises(ConfigError, match="pretrain needs public series"):
        train("fed-stdg", of(uneven()), **SMALL | {"pretrain": 5})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"adaptive": True, "reporter": "none", "epsilon": None},
            "adaptive is for reporters that send signs",
        ),
        ({"magnitude_share": 1.0}, "both parts of a report"),
        ({"decay": 0.0}, "decay"),
        ({"patience": 0}, "patience"),
        ({"hidden": 0}, "hidden"),
        ({"top": 0.2}, "top must be below rate"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_before_anything_is_charged(
    wrong: dict[str, Any], said: str
) -> None:
    federation = of(uneven())
    with pytest.raises(ConfigError, match=said):
        train("fed-stdg", federation, **SMALL | wrong)
    assert not federation.holders["phones"].ledger.spend()


def test_tables_are_for_another_protocol_and_other_channels_for_another_run() -> None:
    frame, schema = toy(20)
    tables = Federation.rehearsal(
        {"a": frame}, {"a": schema}, budget=FREE, same_people=False
    )
    with pytest.raises(ConfigError, match="fed-wae"):
        train("fed-stdg", tables, **SMALL)
    values, one = waves(20)
    other = replace(
        one,
        channels=(
            Real(name="wave_0", low=0, high=2),
            Real(name="wave_1", low=0, high=2),
        ),
    )
    both = Federation.rehearsal(
        {"a": Series.from_array(values, one), "b": Series.from_array(values, other)},
        budget=FREE,
        same_people=False,
    )
    with pytest.raises(ConfigError, match="do not describe their rows in the same way"):
        train("fed-stdg", both, **SMALL)


def test_the_statement_says_where_a_window_stands_for_a_person() -> None:
    values, schema = waves(20)
    cut = replace(schema, stride=3, windows_are_people=True)
    settings = SMALL | {"rounds": 2}
    plain = train("fed-stdg", of(Series.from_array(values, schema)), **settings)
    windows = train("fed-stdg", of(Series.from_array(values, cut)), **settings)
    assert "all reports of one series" in plain.privacy.adjacency
    people = train(
        "fed-stdg",
        of(Series.from_array(values, replace(schema, rows_are_people=True))),
        **settings,
    )
    assert "all reports of one person" in people.privacy.adjacency
    assert "one window of 3 steps" in windows.privacy.adjacency
    assert windows.generator.card["privacy"]["adjacency"] == windows.privacy.adjacency


def test_a_run_file_of_series_gives_a_table_of_series(tmp_path: Path) -> None:
    values, schema = waves(30)
    schema = replace(schema, person="who")
    schema.save(tmp_path / "waves.toml")
    frame = schema.frame(values).assign(who=np.repeat(np.arange(30) // 3, 3))
    for number in range(2):
        frame[frame["who"] % 2 == number].to_csv(
            tmp_path / f"ward{number}.csv", index=False
        )
    party = (
        '[parties.ward{0}]\ntable = "ward{0}.csv"\nschema = "waves.toml"\nepsilon = '
        "8.0\ndelta = 1e-9\n"
    )
    (tmp_path / "run.toml").write_text(
        'protocol = "fed-stdg"\nout = "out"\nrows = 7\n\n[settings]\nepsilon_total = '
        "8.0\nmax_reports = 2\nrounds = 4\n"
        'clients_per_round = 5\nepochs = 1\nhidden = 4\nlatent = 2\ndevice = "cpu"\n\n'
        + party.format(0)
        + "\n"
        + party.format(1)
    )
    result, out = run_file(RunFile.load(tmp_path / "run.toml"))
    drawn = pd.read_parquet(out / "synthetic.parquet")
    assert list(drawn.columns) == ["series", "time", "wave_0", "wave_1"]
    assert len(drawn) == 7 * 3
    assert read_series(drawn, replace(schema, person=None)).rows == 7
    assert result.privacy.epsilon() <= 8.0
    assert Generator.load(out).series(3, seed=1).shape == (3, 3, 2)
