"""No round of a GAN makes the host wait for its GPU, on a pretended one
(`benchmarks/guard/waits.py`).
"""

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import torch
from protocol_cases import CASES
from torch import Tensor

from understudy.data.schema import Boolean, Schema
from understudy.ground.errors import PartyError
from understudy.models.nets.gan import BranchedGenerator
from understudy.models.nets.tapped import Taps
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.gradients.dp_sgd import clipped_sums
from understudy.privacy.local.reporter import cohort
from understudy.protocols.core import Progress
from understudy.protocols.core.alignment import SharedPositions
from understudy.protocols.papers.verti_gan import protocol as verti_gan
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties

GANS = {
    "VertiGAN, three parties, deep critic, sparse upload",
    "VertiGAN, a table, images and series",
    "VDGAN, DPSGD, two parties",
    "VDGAN, PATE, two parties",
}


@pytest.fixture
def waits(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("guard", "waits")


@pytest.mark.long
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name in GANS], ids=lambda case: case.name
)
def test_no_round_of_a_gan_waits_for_its_device(
    case: Any, waits: ModuleType, light_masks: None
) -> None:
    config = replace(case.config(), device="lazy", rounds=2)
    federation = case.federation()
    marks = list[int]()
    parties = LocalParties(federation.parties(case.protocol, run="r", config=config))
    with waits.Waits() as seen:

        def watch(progress: Progress) -> None:
            marks.append(len(seen.seen))

        case.record.train(config, parties, federation.schemas, watch=watch)
    assert marks[0] > 0, "what is made once is sent there, and seen"
    assert seen.seen[marks[0] : marks[1]] == []


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: float(x.sum()),
        lambda x: bool(x.any()),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x.unique(),
        lambda x: torch.tensor([1.0], device=x.device),
        lambda x: x + torch.ones(4).to(x.device),
        lambda x: x[torch.tensor([0, 1])],
        lambda x: x.copy_(torch.ones(4)),
        lambda x: torch._foreach_copy_([x], [torch.ones(4)]),
    ],
)
def test_whatever_makes_a_host_wait_is_seen(
    wait: Callable[[Tensor], object], waits: ModuleType
) -> None:
    with waits.Waits() as seen:
        there = torch.ones(4, device=waits.DEVICE)
        (there * 2 - there.mean()).topk(2)
        torch.ones(4).to(there.device, non_blocking=True).sort()
        assert seen.seen == []
        wait(there)
        assert len(seen.seen) == 1


SCHEMA = Schema(columns=(Boolean(name="smoker"), Boolean(name="driver")))
TABLE = pd.DataFrame({"smoker": [False, True] * 6, "driver": [True] * 4 + [False] * 8})


def answer(waits: ModuleType, change: Callable[[Tensor], Tensor]) -> Tensor:
    """What a party on that device, of a server on that device, answers to weights that
    were changed.
    """
    with waits.Waits():
        federation = Federation.rehearsal(
            {"a": TABLE}, {"a": SCHEMA}, budget=Budget(4.0, 1e-5), seed=1
        )
        (party,) = federation.parties("verti-gan", run="r").values()
        party.answer(SharedPositions(positions=None))
        network = BranchedGenerator.for_parties({"a": (2, 2)}, latent=2, common=(3,))
        config = verti_gan.Config(rounds=1, critic_steps=2, batch=4, device="lazy")
        party.answer(
            verti_gan.VertiGanBegin(
                config=asdict(config), network=network.describe(only="a")
            )
        )
        weights = torch.linspace(
            -1, 1, sum(part.numel() for part in network.parameters())
        )
        ask = verti_gan.VertiGanRound(
            round=1, seed=1, weights=change(weights).to(waits.DEVICE)
        )
        gradient: Tensor = party.answer(ask).gradient.value["values"].cpu()  # type: ignore[attr-defined]
    return gradient


def test_of_weights_beyond_reason_on_a_device_nothing_is_computed_but_of_zeros(
    waits: ModuleType,
) -> None:
    of_zeros = answer(waits, torch.zeros_like)
    assert not torch.equal(answer(waits, torch.clone), of_zeros)
    for bad in (math.nan, math.inf, -math.inf, 1.1e9):

        def spoiled(weights: Tensor, bad: float = bad) -> Tensor:
            return weights.index_fill(0, torch.tensor([3]), bad)

        assert torch.equal(answer(waits, spoiled), of_zeros), bad


def test_a_generator_beyond_reason_is_found_when_the_run_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = CASES[0]
    federation = case.federation()
    config = replace(case.config(), rounds=1)
    parties = LocalParties(federation.parties(case.protocol, run="r", config=config))
    learned = verti_gan.split_like

    def overflowing(parameters: Any, vector: Tensor) -> Any:
        return learned(parameters, torch.full_like(vector, math.nan))

    monkeypatch.setattr(verti_gan, "split_like", overflowing)
    with pytest.raises(PartyError, match="not finite, or beyond 1e"):
        verti_gan.train(config, parties, federation.schemas)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_people_who_are_not_finite_count_for_nothing_on_a_device_too(
    bad: float, waits: ModuleType
) -> None:
    rows = torch.tensor([[1.0, 2.0], [bad, 1.0], [3.0, -1.0]])
    weight = torch.tensor([[[0.5, -0.5]]])
    bias = torch.zeros(1, 1)

    def both(device: torch.device | str) -> list[Tensor]:
        taps = Taps()
        read = [part.to(device).requires_grad_() for part in (weight, bias)]
        losses = taps.dense(rows[None].to(device), *read).square().sum(2)
        return [cohort(rows.to(device)), *clipped_sums(losses, taps, clip_norm=1.0)]

    here = both("cpu")
    with waits.Waits():
        there = [part.cpu() for part in both(waits.DEVICE)]
    assert here[0][1].tolist() == [0.0, 0.0]
    for one, other in zip(here, there, strict=True):
        assert torch.equal(one, other)
