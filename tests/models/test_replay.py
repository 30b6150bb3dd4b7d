"""A recorded computation gives what the computation itself gives."""

from typing import Any

import pytest
import torch
from torch import Tensor

from understudy.models.kernels.clients import Replayed
from understudy.models.kernels.lstm import Lstm
from understudy.models.nets.autoencoder import LocalTraining, Rwae, fit
from understudy.models.nets.wae import ImageWae, TableWae
from understudy.privacy.noise.rng import FastRng

NETWORKS = [
    Rwae(5, 2, hidden=4, latent=3),
    TableWae((2, 3, 4), hidden=6, latent=3),
    ImageWae(channels=2),
]
DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
    ),
]


@pytest.mark.parametrize("device", DEVICES)
def test_every_call_has_the_value_of_its_own_inputs(device: str) -> None:
    def work(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b).relu().sum(0)

    replayed = Replayed(work)
    for size in (3, 3, 3, 5, 5, 3):
        a = torch.randn(4, size, device=device)
        b = torch.randn(size, 2, device=device)
        assert torch.equal(replayed(a, b), work(a, b))


@pytest.mark.long
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.kind)
def test_training_that_is_kept_over_rounds_equals_training_made_anew(
    network: Rwae | TableWae | ImageWae, optimizer: str, device: str
) -> None:
    how: dict[str, Any] = {
        "epochs": 3,
        "lr": 0.01,
        "optimizer": optimizer,
        "device": device,
    }
    kept = LocalTraining(network, **how)
    mask = torch.ones(4, 2, dtype=torch.bool)
    for turn in range(4):
        x = torch.rand(4, 2, *network.row_shape)
        params = network.init(FastRng(turn))
        x[..., 3:] = 0  # a row of three columns touches three slots
        anew = LocalTraining(network, **how)(params, x, mask, FastRng(turn))
        torch.testing.assert_close(kept(params, x, mask, FastRng(turn)), anew)
        assert anew.abs().max() > 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_central_fit_on_a_gpu_ends_where_that_on_a_cpu_does() -> None:
    network = NETWORKS[0]
    rows = torch.rand(20, 5, 2)
    ends = [
        fit(
            network,
            network.init(FastRng(0)),
            rows,
            FastRng(1),
            steps=20,
            batch=8,
            device=device,
        )
        for device in ("cpu", "cuda")
    ]
    torch.testing.assert_close(*ends, atol=1e-4, rtol=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("rows", [1, 10, 40])
def test_the_lstm_of_a_gpu_equals_that_of_a_cpu(rows: int) -> None:
    inputs = torch.randn(8, 24, rows, 128)
    weights = torch.randn(8, 32, 128) / 6
    slopes = torch.randn(8, 24, rows, 32)
    ends = []
    for device in ("cpu", "cuda"):
        room = Lstm.room(8, 24, rows, 32, torch.empty(0, device=device))
        room.gates.copy_(inputs)
        states = room.forward(weights.to(device)).clone()
        ends.append(
            (
                states.cpu(),
                room.backward(slopes.to(device).clone(), weights.to(device)).cpu(),
            )
        )
    torch.testing.assert_close(*ends, atol=1e-4, rtol=1e-3)
