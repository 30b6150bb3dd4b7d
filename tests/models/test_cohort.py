import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_networks import Draws, module

from refusals import raises
from understudy.ground.errors import ConfigError, Effect, SchemaError
from understudy.models.cohort.classifier import (
    Classifier,
    LeNet,
    LogisticRegression,
    Mlp,
)
from understudy.models.cohort.training import ClassifierTraining, descend

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
SIZES = (4, 1, 0, 3, 4)  # real rows of five clients
each_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS)
each_model = pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(12, 3),
        LogisticRegression(3, 3),
        Mlp(11, 7, 4),
        Mlp(2, 7, 4),
        LeNet(5),
    ],
    ids=[
        "lr",
        "lr with more rows than features",
        "mlp",
        "mlp with more rows than features",
        "lenet",
    ],
)


def local_updates(model, params, x, y, mask=None, **settings):
    return ClassifierTraining(model, **settings)(params, x, y, mask)


def cohort(
    model: Classifier, clients: int = 5, rows: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    """A global model, and rows and labels for each client."""
    draw = torch.Generator().manual_seed(7)
    features = getattr(model, "features", 784)
    x = torch.randn(clients, rows, features, dtype=torch.float64, generator=draw)
    # as images have blank borders, where all windows of a pooling tie
    x[..., : features // 3] = 0
    y = torch.randint(model.classes, (clients, rows), generator=draw)
    return model.init(Draws(), dtype=torch.float64), x, y


def unequal() -> Tensor:
    return torch.arange(4) < torch.tensor(SIZES)[:, None]


def one_after_another(model, params, clients, *, epochs, lr, optimizer) -> Tensor:
    """Algorithm 1, lines 13–17, as one would write it: a module, an optimiser and a
    loop for each client.
    """
    updates = []
    for x, y in clients:
        local = module(model)
        nn.utils.vector_to_parameters(params.clone(), local.parameters())
        step = OPTIMIZERS[optimizer](local.parameters(), lr=lr)
        for _ in range(epochs if len(x) else 0):
            step.zero_grad()
            functional.cross_entropy(local(x), y).backward()
            step.step()
        updates.append(
            nn.utils.parameters_to_vector(local.parameters()).detach() - params
        )
    return torch.stack(updates)


@each_optimizer
@each_model
def test_a_cohort_learns_what_its_clients_learn_one_after_another(model, optimizer):
    params, x, y = cohort(model)
    how = {"epochs": 5, "lr": 0.05, "optimizer": optimizer}
    alone = one_after_another(model, params, zip(x, y, strict=True), **how)
    assert alone.norm(dim=1).min() > 0.01
    torch.testing.assert_close(
        local_updates(model, params, x, y, **how), alone, rtol=0, atol=1e-10
    )


@each_optimizer
@each_model
def test_clients_of_unequal_size_learn_from_the_mean_over_their_real_rows(
    model, optimizer
):
    params, x, y = cohort(model)
    how = {"epochs": 4, "lr": 0.05, "optimizer": optimizer}
    real = [(x[i, :n], y[i, :n]) for i, n in enumerate(SIZES)]
    alone = one_after_another(model, params, real, **how)
    torch.testing.assert_close(
        local_updates(model, params, x, y, unequal(), **how), alone, rtol=0, atol=1e-10
    )


@each_optimizer
@each_model
def test_a_masked_row_reaches_nothing_whatever_it_holds(model, optimizer):
    params, x, y = cohort(model)
    mask = unequal()
    how = {"epochs": 3, "lr": 0.05, "optimizer": optimizer}
    before = local_updates(model, params, x, y, mask, **how)
    x[~mask], y[~mask] = torch.nan, -1
    assert torch.equal(local_updates(model, params, x, y, mask, **how), before)
    assert torch.equal(before[SIZES.index(0)], torch.zeros_like(params))


@each_optimizer
@each_model
def test_a_client_is_untouched_by_the_rows_of_the_others(model, optimizer):
    params, x, y = cohort(model)
    how = {"epochs": 3, "lr": 0.05, "optimizer": optimizer}
    before = local_updates(model, params, x, y, **how)
    x[1], y[3] = torch.nan, (y[3] + 1) % model.classes
    after = local_updates(model, params, x, y, **how)
    assert torch.equal(after[[0, 2, 4]], before[[0, 2, 4]])
    assert after[1].isnan().any()
    assert not torch.equal(after[3], before[3])


@pytest.mark.long
@each_optimizer
@each_model
def test_the_chunk_size_does_not_change_the_result(model, optimizer):
    params, x, y = cohort(model)
    how = {"epochs": 3, "lr": 0.05, "optimizer": optimizer}
    whole = local_updates(model, params, x, y, unequal(), **how)
    for chunk in (1, 2, 4, 99):
        parts = local_updates(model, params, x, y, unequal(), chunk=chunk, **how)
        torch.testing.assert_close(parts, whole, rtol=0, atol=1e-13)


@each_optimizer
@each_model
def test_no_clients_or_no_rows_give_no_updates_or_zero_updates(model, optimizer):
    params, x, y = cohort(model)
    how = {"epochs": 2, "lr": 0.1, "optimizer": optimizer}
    assert local_updates(model, params, x[:0], y[:0], **how).shape == (0, model.size)
    assert torch.equal(
        local_updates(model, params, x[:, :0], y[:, :0], **how),
        torch.zeros(5, model.size).double(),
    )


@each_optimizer
@each_model
def test_training_leaves_the_global_model_alone_and_returns_plain_finite_numbers(
    model, optimizer
):
    params, x, y = cohort(model)
    params = params.float().requires_grad_()
    x = 100 * x.float()
    before = params.detach().clone()
    with torch.no_grad():
        updates = local_updates(
            model, params, x, y.to(torch.uint8), epochs=5, lr=0.1, optimizer=optimizer
        )
    assert torch.equal(params, before)
    assert updates.dtype == torch.float32
    assert not updates.requires_grad
    assert updates.isfinite().all()


@each_optimizer
def test_any_loss_that_keeps_clients_apart_trains_as_a_cohort(optimizer):
    """A tied linear autoencoder, with a weight for each client: nothing of a
    classifier.
    """
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(5, 4, 6, generator=draw, dtype=torch.float64)
    strength = torch.rand(5, generator=draw, dtype=torch.float64)
    params = torch.randn(6 * 2, generator=draw, dtype=torch.float64)

    def loss(local: Tensor, batch: tuple[Tensor, ...]) -> Tensor:
        rows, strength = batch
        code = local.view(-1, 6, 2)
        return strength * (rows @ code @ code.mT - rows).square().mean((1, 2))

    how = {"epochs": 6, "lr": 0.02, "optimizer": optimizer}
    alone = []
    for rows, weight in zip(x, strength, strict=True):
        code = params.view(6, 2).clone().requires_grad_()
        step = OPTIMIZERS[optimizer]([code], lr=0.02)
        for _ in range(6):
            step.zero_grad()
            (weight * (rows @ code @ code.T - rows).square().mean()).backward()
            step.step()
        alone.append(code.detach().flatten() - params)
    updates = torch.empty(len(x), len(params), dtype=params.dtype)
    descend(lambda local: loss(local, (x, strength)), params, updates, **how)
    torch.testing.assert_close(updates, torch.stack(alone), rtol=0, atol=1e-10)


def test_a_label_outside_the_classes_is_refused_before_training_unless_it_is_masked():
    model = LogisticRegression(12, 3)
    params, x, y = cohort(model)
    y[2, 3] = 3
    with raises(
        SchemaError,
        effect=Effect.NOTHING_COMPUTED,
        match="label 3 is outside the classes 0–2",
    ):
        local_updates(model, params, x, y, epochs=1, lr=0.1)
    # client 2 has no real rows
    local_updates(model, params, x, y, unequal(), epochs=1, lr=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number"),
        ({"lr": 0.0}, "lr must be above 0"),
        ({"optimizer": "adams"}, 'Did you mean "adam"'),
        ({"chunk": 0}, "chunk must be a whole number"),
        ({"params": torch.zeros(38)}, "has 39 parameters, not 38"),
        ({"params": torch.zeros(1, 39)}, "one flat vector of floats"),
        ({"params": torch.zeros(39, dtype=torch.int64)}, "one flat vector of floats"),
        ({"x": torch.zeros(5, 4)}, "x, y and mask must be"),
        ({"x": torch.zeros(5, 4, 11)}, "12 features, not 11"),
        ({"y": torch.zeros(5, 3)}, "x, y and mask must be"),
        ({"mask": torch.ones(4, 4)}, "x, y and mask must be"),
    ],
)
def test_settings_and_shapes_that_do_not_fit_are_refused(change, message):
    model = LogisticRegression(12, 3)
    params, x, y = cohort(model)
    with pytest.raises(ConfigError, match=message):
        local_updates(
            **{"model": model, "params": params, "x": x, "y": y, "epochs": 1, "lr": 0.1}
            | change
        )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@each_optimizer
@each_model
def test_a_gpu_gives_the_updates_of_the_cpu(model, optimizer):
    params, x, y = cohort(model)
    how = {"epochs": 5, "lr": 0.05, "optimizer": optimizer}
    cpu = local_updates(model, params, x, y, unequal(), **how)
    there = local_updates(
        model, params.cuda(), x.cuda(), y.cuda(), unequal().cuda(), **how
    )
    sent = local_updates(model, params, x, y, unequal(), device="cuda", chunk=2, **how)
    torch.testing.assert_close(there.cpu(), cpu, rtol=0, atol=1e-9)
    torch.testing.assert_close(sent.cpu(), cpu, rtol=0, atol=1e-9)
