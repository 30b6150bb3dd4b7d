"""The first Ctrl-C stops a joint run between two asks, and a resumed run ends as one
that nobody stopped.
"""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.api.train import train
from understudy.data.schema import Categorical, Schema
from understudy.protocols.core import Progress
from understudy.runs.federation import Federation
from understudy.runs.result import Result

LEVELS = ("x", "y", "z")
SETTINGS: dict[str, Any] = {"chunk": 64, "steps": 30}


def federation(*names: str, same_people: bool) -> Federation:
    rng = np.random.default_rng(0)
    frames = dict[str, pd.DataFrame]()
    schemas = dict[str, Schema]()
    for number, name in enumerate(names):
        columns = [f"{name}_{one}" for one in "abc"] if same_people else list("abc")
        people = np.arange(150) + (0 if same_people else 150 * number)
        frames[name] = pd.DataFrame(
            {"id": people, **{column: rng.choice(LEVELS, 150) for column in columns}}
        )
        schemas[name] = Schema(
            columns=tuple(
                Categorical(name=column, categories=LEVELS) for column in columns
            ),
            person="id",
        )
    return Federation.rehearsal(
        frames, schemas, budget=us.Budget(8.0, 1e-4), seed=5, same_people=same_people
    )


class Stopping:
    """Sends this process a real SIGINT with the n-th step of training."""

    def __init__(self, step: int = 0) -> None:
        self.step = step
        self.steps: list[tuple[str, int, int]] = []

    def __call__(self, progress: Progress) -> None:
        if progress.stage == "aligning":
            return
        self.steps.append((progress.stage, progress.done, progress.rounds))
        if len(self.steps) == self.step:
            os.kill(os.getpid(), signal.SIGINT)


def rows_of(result: Result) -> pd.DataFrame:
    frame = result.sample(40, seed=1)
    assert isinstance(frame, pd.DataFrame)
    return frame


def spent(parties: Federation) -> list[int]:
    return [len(one.ledger.entries()) for one in parties.holders.values()]


CASES = {
    "dealt": (("left", "right"), True, {"products": "dealt"}),
    "encrypted": (("left", "right"), True, {"products": "encrypted"}),
    "horizontal": (("north", "south"), False, {}),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_run_that_is_stopped_after_any_step_ends_as_one_that_nobody_stopped(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names, same_people, more = CASES[case]
    settings = SETTINGS | more
    whole = federation(*names, same_people=same_people)
    seen = Stopping()
    undisturbed = train(
        "gram", whole, folder=tmp_path / "whole", watch=seen, run="r", **settings
    )
    releases = [step for step in seen.steps if step[0] == "training"]
    assert releases[0][1] == 0
    assert (
        releases[-1][1]
        == releases[-1][2]
        == len(undisturbed.generator.card["noise"]) + 1
    )
    chunks = [step for step in seen.steps if step[0] == "multiplying"]
    # 150 people, 64 in a message: each product of two holders moves the bar three
    # times, and once more for answers under encryption
    turns = {"dealt": 3, "encrypted": 4, "horizontal": 0}[case]
    assert [step[1:] for step in chunks[:turns]] == [
        (turn + 1, turns) for turn in range(turns)
    ]
    assert bool(chunks) == same_people
    for step in range(1, len(chunks) + len(undisturbed.generator.card["noise"]) + 2):
        folder = tmp_path / str(step)
        parties = federation(*names, same_people=same_people)
        stopping = Stopping(step)
        with pytest.raises(KeyboardInterrupt):
            train("gram", parties, folder=folder, watch=stopping, run="r", **settings)
        assert len(stopping.steps) == step, "it stopped at once"
        assert "can be resumed" in capsys.readouterr().err
        before = spent(parties)
        resumed = train(
            "gram", parties, folder=folder, resume=True, run="r", **settings
        )
        assert before <= spent(parties) == spent(whole), f"step {step}: paid twice"
        assert resumed.generator.card["ended"] == undisturbed.generator.card["ended"]
        pd.testing.assert_frame_equal(rows_of(resumed), rows_of(undisturbed))
        assert not [*folder.rglob("stopped.safetensors")], "the state stayed"


def test_a_second_ctrl_c_stops_at_once_and_the_next_run_begins_after_a_release(
    tmp_path: Path,
) -> None:
    parties = federation("left", "right", same_people=True)

    def twice(progress: Progress) -> None:
        if progress.stage == "multiplying" and progress.done == 2:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError("it went on")

    with pytest.raises(KeyboardInterrupt):
        train("gram", parties, folder=tmp_path, watch=twice, run="r", **SETTINGS)


def test_a_state_that_is_missing_at_one_party_is_no_stop(tmp_path: Path) -> None:
    parties = federation("left", "right", same_people=True)
    with pytest.raises(KeyboardInterrupt):
        train("gram", parties, folder=tmp_path, watch=Stopping(2), run="r", **SETTINGS)
    next((tmp_path / "parties").rglob("stopped.safetensors")).unlink()
    resumed = train("gram", parties, folder=tmp_path, resume=True, run="r", **SETTINGS)
    assert resumed.generator.card["ended"].startswith("after")
    assert not [*tmp_path.rglob("stopped.safetensors")]
