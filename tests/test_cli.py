"""What a person sees: commands, artefacts, and errors in words."""

import io
import json
import re
import shutil
import signal
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomli_w
from rich.console import Console

from understudy.cli import terminal
from understudy.cli.terminal import progress_bar
from understudy.data.samples import toy
from understudy.evaluate.audit import auditing
from understudy.generators.generator import Generator
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.core import Progress
from understudy.protocols.core.alignment import AlignedParty, MaskedIds, MaskOther
from understudy.protocols.papers.verti_gan import protocol as verti_gan

CLINIC = ["colour", "smoker", "age"]
INSURER = ["grade", "treated", "income"]

Run = Callable[..., tuple[int, str, str]]


RAN: list[Path] = []


@pytest.fixture
def ran(understudy: Run, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a finished run: one for all, and a copy of it for each test."""
    if not RAN:
        assert understudy("run", home / "run.toml")[0] == 0
        RAN.append(
            Path(
                shutil.copytree(
                    home, tmp_path_factory.mktemp("ran"), dirs_exist_ok=True
                )
            )
        )
    return Path(shutil.copytree(RAN[0], home, dirs_exist_ok=True))


def write_run(home: Path, body: dict[str, object]) -> None:
    (home / "run.toml").write_text(tomli_w.dumps(body))


def read_run(home: Path) -> dict[str, object]:
    return tomllib.loads((home / "run.toml").read_text())


def change(home: Path, **changes: object) -> None:
    """Change keys of the run file; a dotted key with __ goes down."""
    body = read_run(home)
    for key, value in changes.items():
        *path, last = key.split("__")
        place = body
        for step in path:
            place = place[step]  # type: ignore[assignment]
        place[last] = value
    write_run(home, body)


def edit(file: Path, row: int, column: str, value: object) -> None:
    frame = pd.read_csv(file, dtype=object)
    frame.loc[row - 1, column] = value
    frame.to_csv(file, index=False)


def nothing_was_charged(home: Path) -> bool:
    for file in home.rglob("*.ledger"):
        with Ledger(file) as ledger:
            if any(entry.count for entry in ledger.entries()):
                return False
    return True


def test_help_names_the_first_steps(understudy: Run) -> None:
    code, out, _ = understudy("--help")
    assert code == 0
    for word in ("demo", "run", "sample", "schema", "ledger", "Start with"):
        assert word in out


def test_a_run_leaves_all_artefacts_and_a_true_ledger(
    understudy: Run, home: Path
) -> None:
    code, out, err = understudy("run", home / "run.toml")
    assert (code, err) == (0, "")
    assert "A person over all parties" in out
    assert "which people the parties share" in out
    joint = home / "joint"
    synthetic = pd.read_parquet(joint / "synthetic.parquet")
    assert list(synthetic.columns) == CLINIC + INSURER
    assert len(synthetic) == 50
    privacy = json.loads((joint / "privacy.json").read_text())
    with Ledger(home / "ledgers" / "clinic.ledger") as ledger:
        assert ledger.spent() == pytest.approx(
            privacy["parties"][0]["epsilon"]["server"]
        )
    card = json.loads((joint / "generator" / "card.json").read_text())
    assert card["owners"]["income"] == "insurer"
    assert card["privacy"] == privacy
    assert (joint / "run.toml").exists()
    assert (
        sum(
            line["paid"] for line in json.loads((joint / "transcript.json").read_text())
        )
        == 6
    )


def test_samples_come_back_in_the_schema_s_dtypes_and_repeat_under_a_seed(
    understudy: Run, ran: Path
) -> None:
    code, out, _ = understudy("sample", ran / "joint", "-n", 7, "--seed", 1)
    assert code == 0
    assert out == understudy("sample", ran / "joint", "-n", 7, "--seed", 1)[1]
    assert len(out.splitlines()) == 8
    understudy("sample", ran / "joint", "-n", 7, "--out", ran / "s.parquet")
    again = pd.read_parquet(ran / "s.parquet")
    expected = Generator.load(ran / "joint").sample(1).dtypes
    # texts of a Parquet file are "str" to pandas 3
    read = again.dtypes.astype(str).replace("str", "object")
    assert read.equals(expected.astype(str))
    code, out, err = understudy(
        "sample", ran / "joint", "-n", 7, "--where", "income >= 50 and age < 40"
    )
    assert code == 0
    drawn = pd.read_csv(io.StringIO(out))
    assert len(drawn) == 7
    assert (drawn["income"] >= 50).all()
    assert (drawn["age"] < 40).all()
    assert "probability" in err
    code, out, err = understudy("sample", ran / "joint", "--where", "incom >= 50")
    assert (code, out) == (1, "")
    assert 'Did you mean "income"?' in err


def test_the_ledger_is_shown_as_a_table(
    understudy: Run, ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal.out, "_width", 120)
    code, out, _ = understudy("ledger", "show", ran / "ledgers" / "clinic.ledger")
    assert code == 0
    for word in (
        "when",
        "run",
        "description",
        "round 1",
        "ε alone",
        "ε in all",
        "clinic",
        "Left",
    ):
        assert word in out


@pytest.mark.parametrize("width", [50, 80])
def test_the_ledger_keeps_its_prices_and_its_lines_in_a_narrow_terminal(
    understudy: Run, ran: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(terminal.out, "_width", width)
    code, out, _ = understudy("ledger", "show", ran / "ledgers" / "clinic.ledger")
    assert code == 0
    assert re.search(
        r"\n  round 1(.|\n)*\n  ε [\d.]+ alone, [\d.]+ in all; \d+ uses, everyone\n",
        out,
    )
    assert max(map(len, out.splitlines())) <= width


def test_a_second_run_into_the_same_folder_is_refused(
    understudy: Run, ran: Path
) -> None:
    with Ledger(ran / "ledgers" / "clinic.ledger") as ledger:
        before = ledger.spent()
    code, _, err = understudy("run", ran / "run.toml")
    assert code == 1
    assert "already has a run" in err
    assert "--resume" in err
    with Ledger(ran / "ledgers" / "clinic.ledger") as ledger:
        assert ledger.spent() == before


def test_a_second_run_beyond_the_ledger_s_budget_is_refused(
    understudy: Run, ran: Path
) -> None:
    change(ran, out="again")
    code, _, err = understudy("run", ran / "run.toml")
    assert code == 1
    assert "BudgetExceeded" in err
    assert "Nothing was sent" in err
    assert not (ran / "again" / "generator").exists()


def test_ctrl_c_leaves_a_checkpoint_from_which_the_run_goes_on(
    understudy: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = 0
    plain = verti_gan.VertiGanParty._round

    def interrupted(self: object, ask: object) -> object:
        nonlocal answers
        answers += 1
        if answers == 3:  # in the middle of round 2
            signal.raise_signal(signal.SIGINT)
        return plain(self, ask)  # type: ignore[arg-type]

    monkeypatch.setattr(verti_gan.VertiGanParty, "_round", interrupted)
    code, _, err = understudy("run", home / "run.toml")
    assert code == 130
    assert "--resume" in err
    assert answers == 4, "the round was finished before it stopped"
    with Ledger(home / "ledgers" / "clinic.ledger") as ledger:
        assert sum(entry.count for entry in ledger.entries()) == 4
    code, _, err = understudy("run", home / "run.toml", "--resume")
    assert (code, err) == (0, "")
    with Ledger(home / "ledgers" / "clinic.ledger") as ledger:
        assert sum(entry.count for entry in ledger.entries()) == 6
    assert (home / "joint" / "synthetic.parquet").exists()


def test_ctrl_c_while_people_are_aligned_stops_before_anything_is_trained(
    understudy: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = AlignedParty._mask_other
    asked = []

    def interrupted(self: AlignedParty, ask: MaskOther) -> MaskedIds:
        asked.append(self.name)
        signal.raise_signal(signal.SIGINT)
        return plain(self, ask)

    with monkeypatch.context() as patched:
        patched.setattr(AlignedParty, "_mask_other", interrupted)
        code, _, err = understudy("run", home / "run.toml")
    assert (code, len(asked)) == (130, 1)
    assert "--resume" in err
    code, _, err = understudy("run", home / "run.toml", "--resume")
    assert (code, err) == (0, "")
    assert (home / "joint" / "synthetic.parquet").exists()


def test_a_terminal_shows_how_far_alignment_is_and_then_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(sys.modules[progress_bar.__module__], "err", screen)

    def shown() -> str:
        text: str = screen.file.getvalue()  # type: ignore[attr-defined]
        return text

    with progress_bar() as watch:
        assert watch is not None
        assert shown() == "", "a question of the holder's own would stand beside a bar"
        watch(Progress(1024, 4096, dict, "aligning"))
        watch(Progress(4096, 4096, dict, "aligning"))
        assert "aligning" in shown()
        assert "4096/4096" in shown()
        assert "training" not in shown()
        before = len(shown())
        watch(Progress(2, 3, lambda: {"clinic": 0.5}))
    after = shown()[before:]
    assert "training" in after
    assert "2/3" in after
    assert "aligning" not in after


def test_schema_check_lists_every_violation(understudy: Run, home: Path) -> None:
    edit(home / "clinic.csv", 3, "age", 300)
    edit(home / "clinic.csv", 5, "colour", "mauve")
    code, out, err = understudy(
        "schema", "check", home / "clinic.csv", home / "clinic.toml"
    )
    assert code == 1
    assert "age" in out
    assert "300" in out
    assert "row 3" in out
    assert "mauve" in out
    assert "row 5" in out
    assert "2 violations" in err


def test_a_draft_schema_is_refused_until_it_is_marked_public(
    understudy: Run, home: Path
) -> None:
    understudy(
        "schema",
        "infer",
        home / "clinic.csv",
        "--out",
        home / "clinic.toml",
        "--person",
        "id",
    )
    assert "read from rows" in (home / "clinic.toml").read_text().splitlines()[0]
    code, _, err = understudy("run", home / "run.toml")
    assert code == 1
    assert "DraftSchemaError" in err
    assert not (home / "ledgers").exists() or nothing_was_charged(home)
    text = (
        (home / "clinic.toml")
        .read_text()
        .replace('origin = "rows"', 'origin = "public"')
    )
    (home / "clinic.toml").write_text(text)
    assert understudy("run", home / "run.toml")[0] == 0


def test_a_bought_schema_is_public_charged_and_fits_the_cleaned_table(
    understudy: Run, home: Path
) -> None:
    frame, _ = toy(rows=3000, seed=4)
    frame[["id", *CLINIC]].to_csv(home / "clinic.csv", index=False)
    understudy(
        "schema",
        "infer",
        home / "clinic.csv",
        "--out",
        home / "draft.toml",
        "--person",
        "id",
    )
    ask = [
        "schema",
        "buy",
        home / "clinic.csv",
        home / "draft.toml",
        "--ledger",
        home / "clinic.ledger",
        "--out",
        home / "bought.toml",
        "--cleaned",
        home / "clean.csv",
        "--epsilon",
        1.0,
    ]
    code, _, err = understudy(*ask)
    assert code == 1
    assert "--names-and-kinds-are-public" in err
    assert not (home / "clinic.ledger").exists()
    code, _, err = understudy(*ask, "--names-and-kinds-are-public")
    assert (code, err) == (0, "")
    with Ledger(home / "clinic.ledger") as ledger:
        assert 0.9 < ledger.spent() <= 1.0
    assert 'origin = "rows"' not in (home / "bought.toml").read_text()
    assert (
        understudy("schema", "check", home / "clean.csv", home / "bought.toml")[0] == 0
    )


def buy(home: Path, *more: object) -> list[object]:
    """The command that buys the clinic's schema into the ledger that the run uses."""
    return [
        "schema",
        "buy",
        home / "clinic.csv",
        home / "clinic.toml",
        "--ledger",
        home / "ledgers" / "clinic.ledger",
        "--out",
        home / "bought.toml",
        "--cleaned",
        home / "clean.csv",
        "--epsilon",
        0.5,
        "--delta",
        1e-4,
        "--names-and-kinds-are-public",
        "--people",
        36,
        *more,
    ]


def test_after_a_purchase_a_run_is_refused_until_the_lifetime_budget_is_raised_for_a_reason(
    understudy: Run, home: Path
) -> None:
    book = home / "ledgers" / "clinic.ledger"
    code, out, err = understudy(*buy(home))
    assert (code, err) == (0, "")
    assert f"understudy ledger budget {book}" in out
    code, _, err = understudy("run", home / "run.toml")
    assert code == 1
    assert "this run may cost ε=3 at δ=0.0001" in err
    assert "allows ε=0.5 at δ=0.0001" in err
    assert f"understudy ledger budget {book} --epsilon 3 --reason" in err
    assert not (home / "joint").exists()
    code, out, err = understudy(
        "ledger", "budget", book, "--epsilon", 4, "--reason", "a second\nline"
    )
    assert (code, "one line" in err) == (1, True)
    assert understudy("ledger", "budget", book, "--epsilon", 4, "--reason", " ")[0] == 1
    code, out, err = understudy(
        "ledger", "budget", book, "--epsilon", 4, "--reason", "the board, 3 March"
    )
    assert (code, err) == (0, "")
    assert (
        "was ε=0.5 at δ=0.0001 against anyone, and is ε=4 at δ=0.0001 against anyone"
        in out
    )
    with Ledger(book) as ledger:
        assert (
            ledger.entries()[-1].description
            == "budget: ε=4 at δ=0.0001 against anyone: the board, 3 March"
        )
        before = ledger.spent()
    code, _, err = understudy("run", home / "run.toml")
    assert (code, err) == (0, "")
    with Ledger(book) as ledger:
        assert before < ledger.spent() <= 4


def test_a_purchase_can_set_the_lifetime_budget_of_a_new_ledger_and_never_of_an_old_one(
    understudy: Run, home: Path
) -> None:
    assert "is below --epsilon" in understudy(*buy(home, "--lifetime-epsilon", 0.1))[2]
    assert not (home / "ledgers").exists()
    assert understudy(*buy(home, "--lifetime-epsilon", 4))[0] == 0
    assert understudy("run", home / "run.toml")[0] == 0
    with Ledger(home / "ledgers" / "clinic.ledger") as ledger:
        spent = ledger.spent()
    code, _, err = understudy(*buy(home, "--lifetime-epsilon", 9))
    assert code == 1
    assert "allows ε=4" in err
    assert "--epsilon 9 --reason" in err
    with Ledger(home / "ledgers" / "clinic.ledger") as ledger:
        assert (ledger.spent(), ledger.budget.epsilon) == (spent, 4)


def test_a_run_file_states_the_lifetime_budget_apart_and_a_ledger_that_disagrees_is_named(
    understudy: Run, home: Path
) -> None:
    change(
        home, parties__clinic__ledger_epsilon=7.0, parties__clinic__ledger_delta=1e-5
    )
    assert understudy("run", home / "run.toml")[0] == 0
    book = home / "ledgers" / "clinic.ledger"
    with Ledger(book) as ledger:
        assert (ledger.budget.epsilon, ledger.budget.delta) == (7.0, 1e-5)
    for key, value, says in (
        ("epsilon", 9.0, "--epsilon 9 --delta 1e-05 --reason"),
        ("delta", 1e-6, "--epsilon 7 --delta 1e-06 --reason"),
    ):
        kept = (home / "run.toml").read_text()
        change(home, out="again", **{f"parties__clinic__ledger_{key}": value})
        code, _, err = understudy("run", home / "run.toml")
        assert code == 1
        for word in (
            f"ledger_{key} is {value:g}",
            "allows ε=7 at δ=1e-05",
            f"ledger budget {book} {says}",
        ):
            assert word in err
        assert not (home / "again").exists()
        (home / "run.toml").write_text(kept)
    change(home, out="again", parties__clinic__ledger_epsilon=2.0)
    assert (
        "this run may cost ε=3 at δ=0.0001" in understudy("run", home / "run.toml")[2]
    )


def test_a_refusal_by_the_lifetime_budget_names_the_command_that_raises_it(
    understudy: Run, ran: Path
) -> None:
    change(ran, out="again")
    assert "`understudy ledger budget`" in understudy("run", ran / "run.toml")[2]


def test_an_audit_states_the_claim_and_what_it_observed(
    understudy: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "MIN_TRIALS", 10)
    change(home, settings__rounds=1, settings__critic_steps=1)
    # the fewest trials
    code, out, err = understudy("audit", home / "run.toml", "--seconds", 0.1)
    assert (code, err) == (0, "")
    assert "claimed ε ≤ 2.99" in out
    assert "observed ≥" in out
    assert "not proof of safety" in out
    assert not (home / "ledgers").exists()


def test_an_audit_of_a_choice_asks_for_one_candidate(
    understudy: Run, home: Path
) -> None:
    change(home, protocol="gram", settings={}, tune={"components": [8, 16]})
    code, _, err = understudy("audit", home / "run.toml")
    assert code == 2
    assert "candidate by candidate" in err


BAD = {
    "a wrong header": (
        lambda h: rename(h / "clinic.csv", "age", "aeg"),
        ["clinic.csv", '"age"', "aeg"],
    ),
    "a value too high": (
        lambda h: edit(h / "clinic.csv", 4, "age", 300),
        ["clinic.csv", "age", "300", "row 4"],
    ),
    "text in a number": (
        lambda h: edit(h / "insurer.csv", 2, "income", "lots"),
        ["insurer.csv", "lots", "row 2"],
    ),
    "a missing number": (
        lambda h: edit(h / "insurer.csv", 6, "income", np.nan),
        ["insurer.csv", "income", "row 6"],
    ),
    "no rows": (lambda h: cut(h / "clinic.csv", 0), ["clinic.csv", "no rows"]),
    "one row": (lambda h: cut(h / "clinic.csv", 1), ["clinic.csv", "one row"]),
    "repeated ids": (lambda h: repeat(h / "clinic.csv"), ["clinic.csv", "id"]),
    "no table": (lambda h: (h / "clinic.csv").unlink(), ["clinic.csv"]),
    "the same column twice": (
        lambda h: share_a_column(h),
        ['"age"', "clinic", "insurer"],
    ),
    "an ε of zero": (
        lambda h: change(h, parties__clinic__epsilon=0.0),
        ["parties.clinic", "epsilon", "above 0"],
    ),
    "a δ of one": (
        lambda h: change(h, parties__clinic__delta=1.0),
        ["parties.clinic", "delta"],
    ),
    "an unknown key": (
        lambda h: change(h, outt="x"),
        ['"outt"', 'Did you mean "out"?'],
    ),
    "an unknown setting": (
        lambda h: change(h, settings__round=3),
        ['"round"', 'Did you mean "rounds"?'],
    ),
    "an unknown party key": (
        lambda h: change(h, parties__clinic__epsilom=1.0),
        ['Did you mean "epsilon"?'],
    ),
    "an unknown protocol": (
        lambda h: change(h, protocol="vertigan"),
        ["vertigan", "verti-gan"],
    ),
    "an unknown noise": (
        lambda h: change(h, parties__clinic__noise="slow"),
        ["noise", "secure, fast"],
    ),
    "rounds below one": (
        lambda h: change(h, settings__rounds=0),
        ["rounds", "at least 1"],
    ),
}


def rename(file: Path, old: str, new: str) -> None:
    pd.read_csv(file, dtype=object).rename(columns={old: new}).to_csv(file, index=False)


def cut(file: Path, rows: int) -> None:
    pd.read_csv(file, dtype=object).head(rows).to_csv(file, index=False)


def repeat(file: Path) -> None:
    frame = pd.read_csv(file, dtype=object)
    pd.concat([frame, frame.head(1)]).to_csv(file, index=False)


def share_a_column(home: Path) -> None:
    frame, schema = toy(rows=80, seed=1)
    schema.select([*INSURER, "age"]).save(home / "insurer.toml")
    frame[["id", *INSURER, "age"]].to_csv(home / "insurer.csv", index=False)


@pytest.mark.parametrize("what", BAD)
def test_bad_input_gets_a_clear_error_and_nothing_is_charged(
    understudy: Run, home: Path, what: str
) -> None:
    spoil, words = BAD[what]
    spoil(home)
    code, _, err = understudy("run", home / "run.toml")
    assert code == 1
    assert "Traceback" not in err
    for word in words:
        assert word in err, err
    assert nothing_was_charged(home)
    assert not (home / "joint" / "synthetic.parquet").exists()


def test_a_delta_of_one_over_n_or_more_is_warned_about(
    understudy: Run, home: Path
) -> None:
    change(home, parties__clinic__delta=0.05)
    code, _, err = understudy("run", home / "run.toml")
    assert code == 0
    assert "clinic: δ = 0.05 is not below 1/" in err


def test_a_faster_generator_of_noise_is_named_in_the_card(
    understudy: Run, home: Path
) -> None:
    change(home, parties__clinic__noise="fast")
    assert understudy("run", home / "run.toml")[0] == 0
    parties = json.loads((home / "joint" / "generator" / "card.json").read_text())[
        "privacy"
    ]["parties"]
    assert "not secure" in parties[0]["noise"]
    assert "AES" in parties[1]["noise"]


def test_a_folder_without_a_generator_is_named(understudy: Run, tmp_path: Path) -> None:
    code, _, err = understudy("sample", tmp_path)
    assert code == 1
    assert "card.json is missing" in err


def test_a_damaged_generator_is_refused(understudy: Run, ran: Path) -> None:
    weights = ran / "joint" / "generator" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-40])
    code, _, err = understudy("sample", ran / "joint")
    assert code == 1
    assert "damaged" in err


@pytest.mark.long
@pytest.mark.parametrize(
    ("copies", "said"),
    [(False, "Attacks found nothing beyond"), (True, "attacks beat their control")],
)
def test_evaluate_says_what_the_attacks_found_also_where_people_have_several_rows(
    understudy: Run, tmp_path: Path, copies: bool, said: str
) -> None:
    frame, schema = toy(rows=450, seed=4)
    real = frame[:150]
    unseen = frame[150:300]
    made = frame[:150] if copies else frame[300:]
    schema.save(tmp_path / "schema.toml")
    # 40 people have two rows
    pd.concat([real, real[:40]]).to_csv(tmp_path / "real.csv", index=False)
    unseen.to_csv(tmp_path / "unseen.csv", index=False)
    made.drop(columns="id").to_csv(tmp_path / "made.csv", index=False)
    files = [
        f"--{name}={tmp_path / file}"
        for name, file in (("real", "real.csv"), ("synthetic", "made.csv"))
    ]
    files += [
        f"--schema={tmp_path / 'schema.toml'}",
        f"--holdout={tmp_path / 'unseen.csv'}",
    ]
    code, out, err = understudy("evaluate", *files)
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    assert said in words
    assert "at 2.5 % for all together" in words
