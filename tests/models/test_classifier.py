import json

import pytest
import torch
from torch import Tensor, nn
from torch_networks import Draws, module

from understudy.ground.errors import ConfigError
from understudy.models.cohort.classifier import NETWORKS, LeNet, LogisticRegression, Mlp
from understudy.models.kernels.clients import linear, times_transposed
from understudy.models.network import built

MODELS = [LogisticRegression(7, 3), Mlp(9, 5, 4), LeNet(10)]
each_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.kind)


def rows(model, *lead: int, seed: int = 1) -> Tensor:
    features = getattr(model, "features", 784)
    return torch.randn(
        *lead,
        features,
        dtype=torch.float64,
        generator=torch.Generator().manual_seed(seed),
    )


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        (LogisticRegression(68, 3), 207),
        (LogisticRegression(123, 2), 248),
        (LogisticRegression(256, 10), 2_570),
        (LogisticRegression(561, 6), 3_372),
        (Mlp(784, 96, 10), 76_330),
        (Mlp(784, 96, 47), 79_919),
        (LeNet(10), 44_426),
        (LeNet(47), 47_571),
    ],
)
def test_the_parameter_counts_are_those_of_table_3_2(model, parameters):
    assert model.size == parameters
    assert model.init(Draws()).shape == (parameters,)


@each_model
def test_one_model_scores_rows_as_the_torch_module_with_the_same_vector(model):
    params = model.init(Draws(), dtype=torch.float64)
    x = rows(model, 6)
    reference = module(model)
    nn.utils.vector_to_parameters(params, reference.parameters())
    torch.testing.assert_close(
        model.forward(params, x), reference(x), rtol=0, atol=1e-12
    )


@each_model
def test_a_cohort_scores_rows_as_its_models_do_one_by_one(model):
    params = torch.stack(
        [model.init(Draws(seed), dtype=torch.float64) for seed in range(3)]
    )
    x = rows(model, 3, 4)
    alone = torch.stack(
        [model.forward(*client) for client in zip(params, x, strict=True)]
    )
    torch.testing.assert_close(model.forward(params, x), alone, rtol=0, atol=1e-12)


@each_model
def test_views_share_the_memory_of_the_vector_and_flat_inverts_them(model):
    for params in (
        model.init(Draws()),
        torch.stack([model.init(Draws(seed)) for seed in range(2)]),
    ):
        named = model.views(params)
        assert {
            name: tuple(view.shape[params.ndim - 1 :]) for name, view in named.items()
        } == model.shapes
        assert torch.equal(model.flat(named), params)
        next(iter(named.values())).zero_()
        assert params.flatten()[0] == 0


@each_model
def test_init_fills_each_layer_uniformly_up_to_one_over_root_fan_in(model):
    params = model.views(model.init(Draws()))
    for layer in {name.split(".")[0] for name in model.shapes}:
        weight = params[f"{layer}.weight"]
        bias = params[f"{layer}.bias"]
        bound = weight[0].numel() ** -0.5
        assert weight.abs().max() <= bound
        assert bias.abs().max() <= bound
        assert weight.abs().max() > 0.8 * bound
        assert weight.std() == pytest.approx(bound / 3**0.5, rel=0.25)


def test_init_is_the_generators_and_nothing_elses():
    model = Mlp(9, 5, 4)
    assert torch.equal(model.init(Draws(3)), model.init(Draws(3)))
    assert not torch.equal(model.init(Draws(3)), model.init(Draws(4)))


@each_model
def test_a_description_survives_json_and_builds_the_same_network(model):
    assert built(NETWORKS, json.loads(json.dumps(model.describe()))) == model


@pytest.mark.parametrize(
    ("description", "message"),
    [
        (
            {"kind": "mpl", "features": 4, "hidden": 2, "classes": 2},
            'Did you mean "mlp"',
        ),
        (
            {"kind": ["mlp"], "features": 4, "hidden": 2, "classes": 2},
            "kind must be one of",
        ),
        ({"features": 4, "classes": 2}, "kind must be one of"),
        ({"kind": "mlp", "features": 4, "classes": 2}, "described by"),
        ({"kind": "lenet", "classes": 2, "hook": "os.system"}, "described by"),
        ({"kind": "lenet", "classes": "2"}, "classes must be a whole number"),
        ({"kind": "lenet", "classes": 0}, "classes must be a whole number"),
        (
            {"kind": "logistic_regression", "features": 2.5, "classes": 2},
            "features must be a whole number",
        ),
    ],
)
def test_a_description_outside_the_list_is_refused(description, message):
    with pytest.raises(ConfigError, match=message):
        built(NETWORKS, description)


def test_vectors_rows_and_names_that_do_not_fit_are_refused():
    model = Mlp(9, 5, 4)
    params = Mlp(9, 5, 4).init(Draws())
    with pytest.raises(ConfigError, match="has 74 parameters, not 73"):
        model.forward(params[:-1], rows(model, 2).float())
    with pytest.raises(ConfigError, match="9 features, not 8"):
        model.forward(params, torch.zeros(2, 8))
    with pytest.raises(ConfigError, match="28 × 28"):
        LeNet(10).forward(LeNet(10).init(Draws())[None], torch.zeros(1, 2, 27, 28))
    named = model.views(params)
    with pytest.raises(ConfigError, match=r"layer1\.bias"):
        model.flat({name: named[name] for name in named if name != "layer1.bias"})
    with pytest.raises(ConfigError, match=r"layer1\.bias has shape"):
        model.flat(named | {"layer1.bias": torch.zeros(4)})


@pytest.mark.parametrize(
    "shape", [(2, 3, 20), (20, 3, 2)], ids=["fewer rows", "fewer units"]
)
def test_the_client_axis_product_and_its_gradients_are_those_of_plain_products(shape):
    many, inner, units = shape
    x = torch.randn(4, many, inner, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, units, inner, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(4, units, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(times_transposed(x, weight), x @ weight.mT)
    assert torch.autograd.gradcheck(linear, (x, weight, bias))
