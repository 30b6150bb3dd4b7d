"""Adam: torch.optim's, without its compiler."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from forker import Forker
from understudy.models.kernels.clients import Adam, along

CONTRACT = Path(__file__).parents[1] / "contract"


def _parameters(kind: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(shape, generator=generator, dtype=kind)
        for shape in ((13, 7), (5,), ())
    ]


@pytest.mark.parametrize("kind", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.99), (0.5, 0.9)])
def test_it_steps_as_torch_optim_does_bit_for_bit(
    betas: tuple[float, float], kind: torch.dtype
) -> None:
    ours = _parameters(kind)
    theirs = [one.requires_grad_() for one in _parameters(kind)]
    adam = Adam(ours, 0.01, betas)
    reference = torch.optim.Adam(theirs, 0.01, betas, fused=True)
    generator = torch.Generator().manual_seed(1)
    for step in range(50):
        adam.lr = reference.param_groups[0]["lr"] = 0.01 * (1 - step / 50) ** 0.5
        size = 10.0 ** (step % 9 - 5)
        slopes = [
            torch.randn(one.shape, generator=generator, dtype=kind) * size
            for one in ours
        ]
        for other, slope in zip(theirs, slopes, strict=True):
            other.grad = slope.clone()
        adam.step(slopes)
        reference.step()
        assert all(map(torch.equal, ours, theirs))


def test_its_first_step_is_as_long_as_the_rate_whatever_the_gradient() -> None:
    """Algorithm 1 at t = 1: the bias corrections leave g / (|g| + 10⁻⁸)."""
    weights = torch.zeros(4, dtype=torch.float64)
    slope = torch.tensor([1e-3, -1.0, 1e6, 0.0], dtype=torch.float64)
    Adam([weights], 0.25).step([slope])
    torch.testing.assert_close(weights, -0.25 * slope / (slope.abs() + 1e-8))


def test_a_gradient_that_lies_in_memory_in_another_order_counts_as_the_same() -> None:
    slope = torch.arange(12.0).view(3, 4) - 5
    one = torch.ones(3, 4)
    other = torch.ones(3, 4)
    Adam([one], 0.1).step([slope])
    Adam([other], 0.1).step([slope.T.contiguous().T])
    assert torch.equal(one, other)


def test_slopes_at_outputs_go_back_as_those_that_are_given_to_torch() -> None:
    weights = torch.randn(3, 4, requires_grad=True)
    made = [weights.exp(), (weights.T @ weights)[:2], weights.sum()]
    slopes = [torch.randn(one.shape) for one in made]
    (given,) = torch.autograd.grad(made, weights, slopes, retain_graph=True)
    (ours,) = torch.autograd.grad(along(made, slopes), weights)
    torch.testing.assert_close(ours, given)
    first = torch.autograd.grad(
        along(made[:1], slopes[:1]), made[0], retain_graph=True
    )[0]
    assert torch.equal(first, slopes[0])
    with pytest.raises(ValueError, match="argument"):
        along(made, slopes[:2])


def test_parameters_that_are_not_dense_in_memory_are_refused() -> None:
    with pytest.raises(ValueError, match="not contiguous"):
        Adam([torch.ones(3, 4).T], 0.1)


def test_protocols_train_without_torchs_compiler(
    forker: Forker, tmp_path: Path
) -> None:
    """To load it takes seconds. Those that train by RMSprop, by Adam, by plain descent
    and that fit a mixture.
    """
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\n"
        f"sys.path.append({str(CONTRACT)!r})\n"
        "from protocol_cases import CASES\n"
        "from undisturbed import undisturbed\n"
        "cases = {case.protocol: case for case in reversed(CASES)}\n"
        "for name in sys.argv[1:]:\n"
        "    undisturbed(cases[name])\n"
        "sys.exit('torch._dynamo' in sys.modules or 'sympy' in sys.modules)"
    )
    some = (
        "verti-gan",
        "vd-gan-dpsgd",
        "fed-wae",
        "fed-stdg",
        "sign-ds",
        "visits",
        "gram",
    )
    done = forker.run(*some, folder=tmp_path, to=tmp_path / "train", program=script)
    assert done.end() == 0, done.err
