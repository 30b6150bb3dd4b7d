"""The private gradient of a WGAN-GP critic, clipped per person in closed form.

Gulrajani et al., "Improved training of Wasserstein GANs" (2017), Eq. 3, with the
per-person clipping and the noise of Jiang et al., "VertiGAN" (PoPETs 2023(2)),
Algorithm 2, lines 7–12. Norms by small dot products are Goodfellow's, "Efficient
per-example gradient computations" (2015); here they reach the gradient penalty.
Paper → code: x → real, x̃ → fake, μ → mix (x̂ = μx + (1 − μ)x̃), λ → penalty, C →
clip_norm, σ → noise_multiplier, B → expected_batch.
Differs from the paper: its signs are reversed; here L = D(x̃) − D(x) + λ(‖∇D(x̂)‖ −
1)². The divisor is the expected batch size, a public constant.

Why it is cheap. With piecewise linear activations D is linear around almost every
point: a layer receives from the score at a point the outer product δ aᵀ (δ: the score's
gradient before the activation, a: the layer's input). The slope at x̂ has the norm
v·∇D(x̂), v = ∇D(x̂)/‖∇D(x̂)‖, a product of the same matrices, so from the penalty a
layer receives δ̂ tᵀ, where t is v carried forward through the layers below; activation
patterns change on a null set only, and biases do not enter. A person's gradient is
three outer products,

    G = δ̃ ãᵀ − δ aᵀ + 2λ(‖∇D(x̂)‖ − 1) δ̂ tᵀ,    ‖G‖² = Σᵢⱼ cᵢcⱼ (δᵢ·δⱼ)(aᵢ·aⱼ),

in each layer, and the sum of the clipped ones is one matrix product over the 3 × batch
stacked factors. No person's gradient is ever formed, memory grows with batch × width,
and there are seven large matrix products where autograd's double backward has eight.

For critics that this does not reach, as convolutions, `formed_critic_gradient` forms
every person's gradient, through the penalty, by `torch.func`, which is exact there. Its
memory grows with batch × parameters, so people are taken some at a time.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from understudy.ground.check import positive
from understudy.ground.errors import Effect, PrivacyError
from understudy.ground.padding import padded, pays
from understudy.privacy.gradients.critic_kernel import FLAT, ULPS, fused
from understudy.privacy.gradients.dp_sgd import add_noise, require_clipping
from understudy.privacy.gradients.limits import FACTOR, TINY, full, honest, sound
from understudy.privacy.noise import Normals

Layers = Sequence[tuple[Tensor, Tensor]]

_LARGEST = 1e6  # what a row that is sent may hold
ROOM = 1 << 26  # numbers that the formed gradients may take at a time


def private_critic_gradient(
    layers: Layers,
    real: Tensor,
    fake: Tensor,
    mix: Tensor,
    *,
    clip_norm: float,
    noise_multiplier: float,
    expected_batch: float,
    penalty: float,
    rng: Normals,
    slope: float = 0.2,
    mask: Tensor | None = None,
) -> list[tuple[Tensor, Tensor]]:
    """One critic step: (clipped sum + N(0, (noise_multiplier · clip_norm)²)) /
    expected_batch, per layer.

    Guarantee: one person moves the sum by at most `clip_norm` in L2 (add/remove), so
    that a step costs GaussianDpEvent(noise_multiplier), Poisson-sampled at the rate at
    which people are drawn into `real`.
    Edges: as of `clipped_gradient_sum`; no rows → noise alone; settings outside the
    ranges of `limits` → ConfigError. `fake` and `mix` belong to their row: draw them
    secretly, or fix them per person. Public ones handed out by place in the batch would
    shift when a person leaves, and then many move the sum. The guarantee speaks of real
    numbers, noise and sum are float32. `noise_multiplier=0` is clipped, not private.
    """
    require_settings(
        clip_norm,
        noise_multiplier,
        expected_batch,
        penalty,
    )
    total = clipped_gradient_sum(
        layers,
        real,
        fake,
        mix,
        clip_norm=clip_norm,
        penalty=penalty,
        slope=slope,
        mask=mask,
    )
    noised_mean(
        [part for pair in total for part in pair],
        clip_norm,
        noise_multiplier,
        expected_batch,
        rng,
    )
    return total


def require_settings(
    clip_norm: float,
    noise_multiplier: float,
    expected_batch: float,
    penalty: float,
) -> None:
    """Refuse settings under which nothing is protected, or arithmetic cannot be."""
    require_clipping(clip_norm, noise_multiplier)
    honest(penalty=penalty)
    positive(expected_batch=expected_batch)


def noised_mean(
    sums: list[Tensor],
    clip_norm: float,
    noise_multiplier: float,
    expected_batch: float,
    rng: Normals,
) -> None:
    """(sums + N(0, (noise_multiplier · clip_norm)²)) / expected_batch, in place."""
    if noise_multiplier:
        add_noise(sums, noise_multiplier * clip_norm, rng)
    torch._foreach_div_(sums, expected_batch)


@torch.no_grad()
def clipped_gradient_sum(
    layers: Layers,
    real: Tensor,
    fake: Tensor,
    mix: Tensor,
    *,
    clip_norm: float,
    penalty: float,
    slope: float = 0.2,
    mask: Tensor | None = None,
) -> list[tuple[Tensor, Tensor]]:
    """The sum over people of their gradients, each scaled down to `clip_norm`, per
    layer (weight, bias).

    `layers` holds (out, in) weights and (out,) biases, the last out being 1, with leaky
    ReLUs of this `slope` between them. `real` and `fake` are (batch, width), `mix` and
    `mask` (batch,).

    Guarantee: one person moves the result by at most `clip_norm` in L2 over all layers
    together (add/remove). The result is finite, whatever weights, rows and settings
    are.
    Edges: rows with mask 0 count for nothing, so that batches of any size fit one
    shape. No rows → zeros. A person with a factor that is not finite, or longer than
    `limits.FACTOR`, counts for nothing, by itself. `clip_norm=inf` is the plain sum.
    Nothing is asked of a GPU's host, so that the function can be captured in a CUDA
    graph.
    """
    require_settings(clip_norm, 0.0, 1.0, penalty)
    lefts, rights = _factors(*_padded(layers, real, fake), mix, slope)
    weigh = fused(real.device) if real.dtype == torch.float32 else None
    total = []
    # the norms, too: no product that PyTorch may take for them is a coarse one
    with full(real.device):
        scales = (weigh or _scales)(
            lefts,
            rights,
            penalty,
            clip_norm,
        )
        # who counts for nothing has a 0 here
        clean = real.device.type == "cpu" and bool(scales[0].all())
        scales = scales if mask is None else scales * mask
        for (weight, _), left, right in zip(layers, lefts, rights, strict=True):
            high, wide = weight.shape
            left = left[..., :high] * scales[..., None]
            right = right[..., :wide]
            if not clean:  # 0 · inf is not 0
                left = _finite(left)
                right = _finite(right)
            total.append(
                (left.flatten(0, 1).T @ right.flatten(0, 1), left[:2].sum((0, 1)))
            )
    return total


def _finite(factors: Tensor) -> Tensor:
    """Zeros in place of what is not a finite number; in a factor that counts, all
    are.
    """
    return factors.nan_to_num(0.0, 0.0, 0.0)


def _padded(
    layers: Layers,
    real: Tensor,
    fake: Tensor,
) -> tuple[Layers, Tensor, Tensor]:
    """Where that pays, all of it with columns and units of zeros: they score nothing,
    and their factors are zeros.
    """
    if not pays(layers[0][0]):
        return layers, real, fake
    *inner, (weight, bias) = layers
    wider = [(padded(w), padded(b[None], rows=False)[0]) for w, b in inner]
    last = padded(weight, rows=False), bias
    return [*wider, last], padded(real, rows=False), padded(fake, rows=False)


def require_sound(rows: Tensor) -> Tensor:
    """Rows that somebody sent, none of them beyond 10⁶ (`limits.sound`); else
    PrivacyError. A party's own are never looked at so: whether it refuses would tell
    one person's value.
    """
    fine = sound(rows, _LARGEST)
    if fine is None:
        raise PrivacyError(
            f"a row holds a value that is not finite or beyond {_LARGEST:g}.",
            effect=Effect.NOTHING_COMPUTED,
        )
    return fine


def _factors(
    layers: Layers,
    real: Tensor,
    fake: Tensor,
    mix: Tensor,
    slope: float,
) -> tuple[list[Tensor], list[Tensor]]:
    """For each layer the factors δ (3, batch, out) and a (3, batch, in) of fake, real
    and penalty.
    """
    (first, offset), *deeper = layers
    inputs = [torch.stack([fake, real])]
    hidden = []
    z = functional.linear(inputs[0], first, offset)
    # x̂ lies between them, and so does its z
    z = torch.cat([z, torch.lerp(z[0], z[1], mix[:, None])[None]])
    for weight, bias in deeper:
        hidden.append(z)
        inputs.append(functional.leaky_relu(z, slope))
        z = functional.linear(inputs[-1], weight, bias)

    lefts = [torch.ones_like(z)]  # the score by itself: 1
    for (weight, _), z in zip(reversed(deeper), reversed(hidden), strict=True):
        lefts.insert(0, through_activation(lefts[0] @ weight, z, slope))

    tangent = lefts[0][2] @ first  # ∇D(x̂), (batch, width)
    rights = [torch.cat([inputs[0], tangent[None]])]
    for (weight, _), z, a in zip(layers[:-1], hidden, inputs[1:], strict=True):
        tangent = through_activation(tangent @ weight.T, z[2], slope)
        rights.append(torch.cat([a[:2], tangent[None]]))
    return lefts, rights


def through_activation(
    gradient: Tensor,
    z: Tensor,
    slope: float,
) -> Tensor:
    """Times the activation's derivative at z, in one pass."""
    result: Tensor = torch.ops.aten.leaky_relu_backward(
        gradient,
        z,
        slope,
        False,
    )
    return result


def _scales(
    lefts: Sequence[Tensor],
    rights: Sequence[Tensor],
    penalty: float,
    clip_norm: float,
) -> Tensor:
    """What a person's fake, real and penalty products count in the clipped sum: (3,
    batch); 0 for who is not sound.

    A person's norm is never taken too small: the three products may cancel each other,
    and then the rounding of the dot products would show. A bound on that rounding (at
    most about 8 ulp in each sum) is added, and what underflow may have taken: it clips
    a little harder, never less. All that is one number a person is in float64.
    """
    grams = [
        (_gram(left), _gram(right)) for left, right in zip(lefts, rights, strict=True)
    ]
    longest = torch.stack([part[:3] for pair in grams for part in pair]).amax((0, 1))
    sound = longest <= FACTOR**2  # so written, NaN is not
    # ‖∇D(x̂)‖: the third factor is ∇D(x̂) itself, v without its division
    steepness = grams[0][1][2].sqrt()
    pull = torch.where(steepness > FLAT, 2 * penalty * (1 - 1 / steepness), 0)
    signs = torch.stack([torch.ones_like(pull), -torch.ones_like(pull), pull])
    sizes = [
        (left.shape[2], right.shape[2])
        for left, right in zip(lefts, rights, strict=True)
    ]
    # of whole gradients, over all layers
    gram = torch.stack(list(map(_products, grams, sizes))).sum(0)
    fake, real, _ = signs  # each mixed pair stands twice in the square
    pairs = torch.stack(
        [fake**2, real**2, pull**2, 2 * fake * real, 2 * fake * pull, 2 * real * pull]
    )
    rounding = (signs.abs() * gram[:3].sqrt()).sum(0).square()
    square = (
        (pairs * gram).sum(0) + ULPS * torch.finfo(lefts[0].dtype).eps * rounding
    ).clamp_min_(0)
    scales = signs * (clip_norm / square.sqrt()).clamp_max_(1)
    return torch.where(sound, scales, 0).to(lefts[0].dtype)


def _products(grams: tuple[Tensor, Tensor], sizes: tuple[int, int]) -> Tensor:
    """Dot products of the three outer products in one layer, with its bias: (6,
    batch).
    """
    left, right = (gram.clone() for gram in grams)
    for gram, size in ((left, sizes[0]), (right, sizes[1])):
        # what underflow has taken, from it and from the mixed ones
        gram[:3] += 2 * size * TINY
    right[:2] += 1  # a bias is the weight of an input that is 1 for the scores
    right[3] += 1  # and 0 for the penalty
    return left * right


def _gram(factors: Tensor) -> Tensor:
    """Dot products of fake, real and penalty, each with itself, then in pairs: (3,
    batch, m) → float64 (6, batch).
    """
    squares = torch.linalg.vector_norm(factors, dim=2).double().square()
    mixed = [
        torch.linalg.vecdot(factors[i], factors[j]).double()
        for i, j in ((0, 1), (0, 2), (1, 2))
    ]
    return torch.stack([*squares, *mixed])


def formed_critic_gradient(
    critic: nn.Module,
    real: Tensor,
    fake: Tensor,
    mix: Tensor,
    *,
    clip_norm: float,
    noise_multiplier: float,
    expected_batch: float,
    penalty: float,
    rng: Normals,
    mask: Tensor | None = None,
) -> list[Tensor]:
    """One critic step: (clipped sum + N(0, (noise_multiplier · clip_norm)²)) /
    expected_batch, for each parameter.

    Guarantee: as `private_critic_gradient`; the result is finite, whatever weights,
    rows and settings are.
    Edges: as there; a person whose gradient is longer than FACTOR² counts for nothing,
    by itself. A critic that mixes rows (batch normalisation) has no gradient of one
    person, and must not come here.
    """
    require_settings(
        clip_norm,
        noise_multiplier,
        expected_batch,
        penalty,
    )
    parameters = {name: value.detach() for name, value in critic.named_parameters()}
    sums = [torch.zeros_like(value) for value in parameters.values()]
    weight = torch.ones_like(mix) if mask is None else mask

    def score(values: dict[str, Tensor], row: Tensor) -> Tensor:
        scores: Tensor = functional_call(critic, values, (row[None],))
        return scores[0]

    def loss(
        values: dict[str, Tensor],
        x: Tensor,
        other: Tensor,
        share: Tensor,
    ) -> Tensor:
        slope = grad(score, argnums=1)(values, torch.lerp(other, x, share))
        square = slope.square().sum()
        steep = torch.where(square > FLAT**2, square, 1).sqrt()
        return score(values, other) - score(values, x) + penalty * (steep - 1) ** 2

    step = max(1, ROOM // sum(value.numel() for value in parameters.values()))
    gradients = vmap(grad(loss), in_dims=(None, 0, 0, 0))
    for part in (slice(start, start + step) for start in range(0, len(real), step)):
        formed = list(
            gradients(
                parameters,
                real[part],
                fake[part],
                mix[part],
            ).values()
        )
        norms = [
            torch.linalg.vector_norm(gradient.flatten(1), dim=1, dtype=torch.float64)
            for gradient in formed
        ]
        norm = torch.linalg.vector_norm(torch.stack(norms), dim=0)
        # so written, NaN does not; beyond it a share would underflow
        counts = norm <= FACTOR**2
        share = (
            torch.where(counts, (clip_norm / norm).clamp_max(1), 0).to(mix.dtype)
            * weight[part]
        )
        with full(real.device):
            for total, gradient in zip(sums, formed, strict=True):
                total += torch.tensordot(share, gradient.nan_to_num(0, 0, 0), 1)
    noised_mean(
        sums,
        clip_norm,
        noise_multiplier,
        expected_batch,
        rng,
    )
    return sums
