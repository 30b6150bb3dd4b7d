"""What a person's update owes to others in the cohort: not a bit, however many rows
these have.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from understudy.data.encoding.population import Population, rungs
from understudy.data.images import Images, ImageSchema
from understudy.data.samples import sines, toy
from understudy.data.series import Series
from understudy.data.table import read_table
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import FastRng
from understudy.protocols.core.common_rule import common_rule
from understudy.protocols.cross_device.host import BeginTraining
from understudy.protocols.papers.fed_stdg import protocol as fed_stdg
from understudy.protocols.papers.fed_wae import protocol as fed_wae
from understudy.protocols.papers.sign_ds import protocol as sign_ds
from understudy.runs.registry import PROTOCOLS

# of four people: the first keeps its rows
SIZES = ((4, 3, 9, 1), (4, 30, 2, 1), (4, 4, 4, 4), (4, 1, 1, 70))


class Repeated(FastRng):
    """The same draws for the same shape: what is left to differ is what others' rows
    do.
    """

    def normal(self, *shape: int, device: Any = "cpu") -> Tensor:
        return FastRng(1).normal(*shape)

    def uniform(self, *shape: int, device: Any = "cpu") -> Tensor:
        return FastRng(1).uniform(*shape)


def owners(sizes: tuple[int, ...]) -> list[int]:
    return [person for person, size in enumerate(sizes) for _ in range(size)]


def classifier(model: str, **settings: Any) -> Callable[[tuple[int, ...]], Any]:
    def party(sizes: tuple[int, ...]) -> Any:
        rows = sum(sizes)
        rng = np.random.default_rng(0)
        x = rng.random((rows, 28, 28) if model == "lenet" else (rows, 40))
        y = np.arange(rows) % 3
        people = Population.from_arrays(
            x.astype(np.float32), y, classes=3, rows_per_person=list(sizes)
        )
        config = sign_ds.Config(
            model=model,
            reporter="none",
            epochs=2,
            learning_rate=0.1,
            device="cpu",
            **settings,
        )
        return begun("sign-ds", people, config, config.network_for(people.features))

    return party


def autoencoder(kind: str, **settings: Any) -> Callable[[tuple[int, ...]], Any]:
    def party(sizes: tuple[int, ...]) -> Any:
        who = np.array(owners(sizes))
        rng = np.random.default_rng(0)
        module: Any = fed_stdg if kind == "series" else fed_wae
        data: Any
        if kind == "table":
            frame, schema = toy(rows=100, seed=3)
            data = read_table(
                frame.iloc[: len(who)].assign(id=who),
                schema,
                name="h",
                one_row_each=False,
            )
        elif kind == "image":
            data = Images.from_array(
                rng.random((len(who), 12, 12)), ImageSchema(height=12, width=12), who
            )
        else:
            values, schema = sines(100, length=4, channels=2, seed=3)
            data = Series.from_array(values[: len(who)], schema, who)
        config = module.Config(reporter="none", epochs=2, device="cpu", **settings)
        network = config.network_for(common_rule({"h": data.schema}))
        return begun(
            "fed-stdg" if kind == "series" else "fed-wae", data, config, network
        )

    return party


FREE = Budget(float("inf"), 0.0)


def begun(protocol: str, data: Any, config: Any, network: Any) -> Any:
    ledger = Ledger.rehearsal("h", FREE)
    party = PROTOCOLS[protocol].build("h", data, ledger, run="r", budget=FREE)
    party.answer(BeginTraining(config=vars(config), network=network.describe()))
    party.rng = Repeated(1)
    return party


CASES = {
    "logistic": classifier("logistic"),
    "mlp": classifier("mlp", hidden=24),
    "mlp, adam": classifier("mlp", hidden=24, optimizer="adam"),
    "lenet": classifier("lenet"),
    "table": autoencoder("table"),
    "table, sgd": autoencoder("table", optimizer="sgd"),
    "image": autoencoder("image"),
    "series": autoencoder("series"),
    "at most three rows": autoencoder("table", max_rows_per_person=3),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_person_s_update_is_the_same_to_the_last_bit_whatever_rows_others_have(
    case: str,
) -> None:
    parties = [CASES[case](sizes) for sizes in SIZES]
    weights = parties[0].network.init(FastRng(2))
    updates = [party.updates(torch.arange(4), weights)[0] for party in parties]
    assert updates[0].any()
    for other in updates[1:]:
        assert torch.equal(other, updates[0])


def test_a_common_padding_would_show_in_the_last_bits() -> None:
    """Why people are kept apart: the same rows of one person, padded for another."""
    party = CASES["lenet"]((4, 9))
    weights = party.network.init(FastRng(2))
    one = torch.tensor([0])
    short, *longer = (
        party.local(weights, *party.population.gather(one, length=n))
        for n in (4, 9, 17, 70)
    )
    for long in longer:
        torch.testing.assert_close(short, long, rtol=1e-3, atol=1e-6)
    if all(torch.equal(short, long) for long in longer):
        pytest.skip("this processor adds up alike, padded or not")


def test_every_person_is_in_one_batch_with_all_their_rows() -> None:
    sizes = [0, 1, 2, 3, 5, 6, 10, 11, 60]
    x = np.arange(sum(sizes), dtype=np.float32).reshape(-1, 1)
    people = Population.from_arrays(
        x, np.zeros(len(x), int), classes=2, rows_per_person=sizes
    )
    asked = torch.tensor([8, 1, 0, 4, 3, 7, 2, 6, 5])
    seen = torch.zeros(len(asked), dtype=torch.int64)
    for here, (rows, _, mask) in people.apart(asked):
        assert rows.shape[:2] == mask.shape
        assert mask.shape[0] == len(asked)
        assert not mask[~here].any()
        for place in here.nonzero()[:, 0].tolist():
            start = people.starts[asked[place]]
            stop = people.starts[asked[place] + 1]
            assert (
                rows[place][mask[place]].flatten().tolist() == x[start:stop, 0].tolist()
            )
        seen += here
    assert seen.tolist() == [1] * len(asked)


def test_lengths_come_from_a_ladder_that_no_row_has_a_say_in() -> None:
    sizes = torch.tensor([0, 1, 2, 3, 5, 6, 10, 11, 99, 100, 101])
    assert rungs(sizes).tolist() == [2, 2, 2, 10, 10, 10, 10, 20, 100, 100, 200]
    assert rungs(sizes, limit=8).tolist() == [2, 2, 2, 8, 8, 8, 8, 8, 8, 8, 8]
    assert rungs(sizes, limit=1).tolist() == [1] * len(sizes)
    assert rungs(sizes[:0]).tolist() == []
