"""How much of each person's gradient counts, as a few GPU kernels: `_scales` of
`critic.py` in Triton.

In tensor operations these dot products are some eighty small kernels of each critic
step, most of its time on a GPU; here they are one for each layer, which reads the
factors once, and one that puts the layers together. Dot products are in float32 and
what is one number a person in float64, as there. A first run waits for their compiler,
so there are few: no size is built into one, only whether rows begin at multiples of 16
bytes. Triton comes with PyTorch's CUDA builds; where there is none, or it cannot
compile here, `critic.py` goes on with tensor operations.

Guarantee: as `_scales`: no person's norm is taken too small, and who has a factor that
is not finite, or longer than `limits.FACTOR`, gets 0.
"""

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from understudy.privacy.gradients.limits import FACTOR, TINY

_CHUNK = 256  # entries of a factor that a program reads at a time, at least
_STEP = 4  # numbers of 16 bytes, which are read at once
_TERMS = 16  # what one lane adds up at most, so that a sum's rounding stays within ULPS
_PEOPLE = 256  # of one program of `_weigh`

try:
    import triton  # type: ignore[import-not-found]
    import triton.language as tl  # type: ignore[import-not-found]
except ImportError:
    triton = None

Scales = Callable[[Sequence[Tensor], Sequence[Tensor], float, float], Tensor]

FLAT = 1e-12  # a slope below this has no direction: its penalty gives no gradient
# what a squared norm may be off by, in units of rounding of its three products' own
# norms
ULPS = 16


@cache
def fused(device: torch.device) -> Scales | None:
    """(lefts, rights, penalty, clip norm) → scales (3, batch), as in `critic.py`; None:
    not here.
    """
    if triton is None or device.type != "cuda":
        return None
    try:
        factors = [torch.ones(3, 2, 2, device=device)]
        scales(factors, factors, 1.0, 1.0)
        torch.cuda.synchronize(device)
    except Exception:  # no compiler, an old card: whatever it is, the slower way works
        return None
    return scales


def scales(
    lefts: Sequence[Tensor],
    rights: Sequence[Tensor],
    penalty: float,
    clip_norm: float,
) -> Tensor:
    """`critic._scales`, for float32 on a GPU."""
    batch = rights[0].shape[1]
    first = rights[0]
    gram = first.new_empty(8, batch, dtype=torch.float64)
    result = first.new_empty(3, batch)
    if not batch:
        return result
    for number, (left, right) in enumerate(zip(lefts, rights, strict=True)):
        wide = left.shape[2]
        deep = right.shape[2]
        chunk = max(
            _CHUNK,
            triton.next_power_of_2(triton.cdiv(max(wide, deep), _TERMS)),
        )
        step = 1 if wide % _STEP or deep % _STEP else _STEP
        sizes = batch, wide // step, deep // step, number
        factors = left.contiguous(), right.contiguous()
        _layer[(batch,)](
            *factors,
            gram,
            *sizes,
            FACTOR**2,
            2 * TINY,
            STEP=step,
            CHUNK=chunk,
        )
    rounding = ULPS * torch.finfo(torch.float32).eps
    _weigh[(triton.cdiv(batch, _PEOPLE),)](
        gram,
        result,
        batch,
        2.0 * penalty,
        float(clip_norm),
        FLAT,
        rounding,
        PEOPLE=_PEOPLE,
    )
    return result


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _dots(factors, person, batch, size, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]
        """The six dot products of one person's fake, real and penalty factors: each
        with itself, then in pairs.
        """
        offsets = tl.arange(0, CHUNK)
        zero = tl.zeros((CHUNK,), dtype=tl.float32)
        s00 = zero
        s11 = zero
        s22 = zero
        s01 = zero
        s02 = zero
        s12 = zero
        row = factors + person * size
        apart = (person * 0 + batch) * size
        for start in range(0, size, CHUNK):
            real = start + offsets < size
            f0 = tl.load(row + start + offsets, mask=real, other=0.0)
            f1 = tl.load(row + apart + start + offsets, mask=real, other=0.0)
            f2 = tl.load(row + 2 * apart + start + offsets, mask=real, other=0.0)
            s00 = s00 + f0 * f0
            s11 = s11 + f1 * f1
            s22 = s22 + f2 * f2
            s01 = s01 + f0 * f1
            s02 = s02 + f0 * f2
            s12 = s12 + f1 * f2
        d00 = tl.sum(s00, axis=0)
        d11 = tl.sum(s11, axis=0)
        d22 = tl.sum(s22, axis=0)
        return (
            d00,
            d11,
            d22,
            tl.sum(s01, axis=0),
            tl.sum(s02, axis=0),
            tl.sum(s12, axis=0),
        )

    @triton.jit(do_not_specialize=["batch", "wide", "deep", "number"])  # type: ignore[untyped-decorator, unused-ignore]
    def _layer(  # type: ignore[no-untyped-def]
        left,
        right,
        gram,
        batch,
        wide,
        deep,
        number,
        max_square,
        lost,
        STEP: tl.constexpr,
        CHUNK: tl.constexpr,
    ):
        """Add one layer's products to `gram` (8, batch); layer 0 begins it, with
        ‖∇D(x̂)‖² in its last row but one. In its last row stands 1 where all factors so
        far are sound. `wide` and `deep` are in units of STEP.
        """
        person = tl.program_id(0).to(tl.int64)
        wide = wide * STEP
        deep = deep * STEP
        later = number > 0
        l00, l11, l22, l01, l02, l12 = _dots(left, person, batch, wide, CHUNK)
        r00, r11, r22, r01, r02, r12 = _dots(right, person, batch, deep, CHUNK)
        # So written, NaN is not sound.
        whole = (
            (l00 <= max_square)
            & (l11 <= max_square)
            & (l22 <= max_square)
            & (r00 <= max_square)
            & (r11 <= max_square)
            & (r22 <= max_square)
        )
        sound = tl.where(whole, 1.0, 0.0).to(tl.float64)
        # What underflow has taken, from the squares and from the mixed ones.
        l00 = l00.to(tl.float64) + lost * wide
        l11 = l11.to(tl.float64) + lost * wide
        l22 = l22.to(tl.float64) + lost * wide
        s00 = r00.to(tl.float64) + lost * deep
        s11 = r11.to(tl.float64) + lost * deep
        s22 = r22.to(tl.float64) + lost * deep
        # A bias is the weight of an input that is 1 for the scores and 0 for the
        # penalty.
        g00 = l00 * (s00 + 1)
        g11 = l11 * (s11 + 1)
        g22 = l22 * s22
        g01 = l01.to(tl.float64) * (r01.to(tl.float64) + 1)
        g02 = l02.to(tl.float64) * r02.to(tl.float64)
        g12 = l12.to(tl.float64) * r12.to(tl.float64)
        to = gram + person
        if later:
            g00 = g00 + tl.load(to)
            g11 = g11 + tl.load(to + batch)
            g22 = g22 + tl.load(to + 2 * batch)
            g01 = g01 + tl.load(to + 3 * batch)
            g02 = g02 + tl.load(to + 4 * batch)
            g12 = g12 + tl.load(to + 5 * batch)
            sound = sound * tl.load(to + 7 * batch)
        else:
            tl.store(to + 6 * batch, r22.to(tl.float64))
        tl.store(to, g00)
        tl.store(to + batch, g11)
        tl.store(to + 2 * batch, g22)
        tl.store(to + 3 * batch, g01)
        tl.store(to + 4 * batch, g02)
        tl.store(to + 5 * batch, g12)
        tl.store(to + 7 * batch, sound)

    @triton.jit(do_not_specialize=["batch"])  # type: ignore[untyped-decorator, unused-ignore]
    def _weigh(  # type: ignore[no-untyped-def]
        gram,
        out,
        batch,
        double_penalty,
        clip_norm,
        flat,
        rounding,
        PEOPLE: tl.constexpr,
    ):
        """From all layers' products to what each of the three counts, person by
        person.
        """
        person = tl.program_id(0) * PEOPLE + tl.arange(0, PEOPLE)
        real = person < batch
        sums = gram + person
        g00 = tl.load(sums, mask=real, other=1.0)
        g11 = tl.load(sums + batch, mask=real, other=1.0)
        g22 = tl.load(sums + 2 * batch, mask=real, other=1.0)
        g01 = tl.load(sums + 3 * batch, mask=real, other=0.0)
        g02 = tl.load(sums + 4 * batch, mask=real, other=0.0)
        g12 = tl.load(sums + 5 * batch, mask=real, other=0.0)
        steep = tl.sqrt(tl.load(sums + 6 * batch, mask=real, other=1.0))
        sound = tl.load(sums + 7 * batch, mask=real, other=0.0) > 0.5
        pull = tl.where(steep > flat, double_penalty * (1 - 1 / steep), 0.0)
        square = g00 + g11 + pull * pull * g22 + 2 * (pull * (g02 - g12) - g01)
        off = tl.sqrt(g00) + tl.sqrt(g11) + tl.abs(pull) * tl.sqrt(g22)
        square += rounding * off * off
        # Above 0 where all is sound, since g00 is. Who is not sound counts for nothing,
        # whatever the norm says.
        weight = tl.minimum(clip_norm / tl.sqrt(tl.maximum(square, 0.0)), 1.0)
        tl.store(out + person, tl.where(sound, weight, 0.0).to(tl.float32), mask=real)
        tl.store(
            out + batch + person,
            tl.where(sound, -weight, 0.0).to(tl.float32),
            mask=real,
        )
        tl.store(
            out + 2 * batch + person,
            tl.where(sound, pull * weight, 0.0).to(tl.float32),
            mask=real,
        )
