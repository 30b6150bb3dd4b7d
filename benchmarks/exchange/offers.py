"""The worst offers that we know: files that are cheap to make, and that ask for much.

`accepted` are as large and as awkward as an offer may be; `refused` would exhaust who
rebuilds them. Each is the bytes of a file, and `POOL` is the pool that it is pushed to.
Weights are zeros: of a decoder of one class they are good ones.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from understudy.data.encoding.codec import Codec
from understudy.data.images import ImageSchema
from understudy.data.samples import toy
from understudy.models.plan import MOST_LAYERS, MOST_UNITS, plan_of
from understudy.protocols.papers.sgde.offer import Requirements, offer_card

SCHEMA = toy(rows=4, seed=0)[1]
POOL = Requirements(schema=SCHEMA, target="smoker", largest=1 << 24)
IMAGES = Requirements(
    schema=ImageSchema(height=512, width=512), target="half", classes=(0, 1)
)
SIZES = list(Codec(SCHEMA).sizes)
CLASS = [SCHEMA.names.index(POOL.target), 0]
Tensors = Iterable[tuple[str, tuple[int, ...]]]


def header_of(tensors: Tensors, text: str) -> bytes:
    """The beginning of a safetensors file with these tensors, of float32. A name may
    stand twice.
    """
    parts = [f'"__metadata__":{json.dumps({"understudy": text})}']
    place = 0
    for name, shape in tensors:
        end = place + 4 * math.prod(shape)
        entry = {"dtype": "F32", "shape": list(shape), "data_offsets": [place, end]}
        parts.append(f"{json.dumps(name)}:{json.dumps(entry)}")
        place = end
    head = ("{" + ",".join(parts) + "}").encode()
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head


def tensors_of(description: Mapping[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, shape) for name, (_, shape) in plan_of(description).shapes.items()]


def offer(
    description: Mapping[str, Any],
    tensors: Tensors | None = None,
    *,
    pool: Requirements = POOL,
    silo: str = "north",
    schema: Any = None,
    weights: bytes | None = None,
    note: str = "",
    **card: Any,
) -> bytes:
    """A file of zeros with this description on its card; `note` makes its digest
    another one.
    """
    found = tensors_of(description) if tensors is None else list(tensors)
    told = offer_card(
        pool,
        silo=silo,
        label=pool.labels[0],
        epsilon=1.0,
        delta=1e-6,
        accountant="PLD",
        network=description,
    )
    told |= card | ({"note": note} if note else {})
    parts = {
        "card": told,
        "schema": pool.schema.to_dict() if schema is None else schema,
    }
    head = header_of(found, json.dumps(parts, separators=(",", ":")))
    return head + (
        bytes(4 * sum(math.prod(shape) for _, shape in found))
        if weights is None
        else weights
    )


def mixture(size: int) -> bytes:
    """A mixture of so many bytes of weights that draws the first class."""
    logits = np.zeros((size // (4 * sum(SIZES)), sum(SIZES)), dtype="<f4")
    logits[:, Codec(SCHEMA).blocks[CLASS[0]]] = -20.0
    logits[:, Codec(SCHEMA).blocks[CLASS[0]].start] = 20.0
    return offer(
        {"kind": "mixture", "components": len(logits), "sizes": SIZES},
        weights=logits.tobytes(),
    )


def decoder(
    latent: int = 1, hidden: Iterable[int] = (), **changes: Any
) -> dict[str, Any]:
    """A decoder of the first class."""
    told = {
        "kind": "class-decoder",
        "latent": latent,
        "hidden": list(hidden),
        "sizes": SIZES,
        "label": CLASS,
    }
    return told | changes


def linears(*layers: int) -> Tensors:
    """The tensors of a decoder with these layers."""
    pairs = list(pairwise(layers))
    weights = [
        (f"linears.{place}.weight", (b, a)) for place, (a, b) in enumerate(pairs)
    ]
    return weights + [
        (f"linears.{place}.bias", (b,)) for place, (_, b) in enumerate(pairs)
    ]


def nested(depth: int, leaf: str) -> Any:
    """A list in a list in a list."""
    value: Any = [leaf]
    for _ in range(depth):
        value = [value]
    return value


WIDTH = sum(SIZES) - SIZES[CLASS[0]]
IMAGE = {
    "kind": "class-image-decoder",
    "latent": 1,
    "channels": [1] * (MOST_LAYERS - 1),
    "shape": [512, 512],
}
COLUMN = {"kind": "real", "low": 0.0, "high": 1.0, "bins": 65536}
ONE = {"party": "a", "hidden": [], "blocks": [2]}

# Each is made when it is asked for: together they are a few hundred megabytes. `units`
# are a layer's, at most.
accepted: dict[str, Callable[[int], bytes]] = {
    "small": lambda units: offer(decoder(4, (64, 128))),
    "one wide layer": lambda units: offer(decoder(1, (1, units, 1))),
    "a wide latent": lambda units: offer(decoder(units, (1,))),
    "all layers wide": lambda units: offer(
        decoder(1, (units // 32,) * (MOST_LAYERS - 1))
    ),
    "a mixture": lambda units: mixture(1000 * units),
    "as large as the pool takes": lambda units: offer(
        decoder(units // 8, (units // 8 - WIDTH,))
    ),
}
accepted_images: dict[str, Callable[[int], bytes]] = {
    "large images, small file": lambda units: offer(IMAGE, pool=IMAGES)
}
refused: dict[str, Callable[[], bytes]] = {
    "latent of four millions": lambda: offer(
        decoder(4_000_000, (1,)), linears(4_000_000, 1, WIDTH)
    ),
    "300,000 layers": lambda: offer(decoder(1, [1] * 300_000), ()),
    "4,000 layers that are there": lambda: offer(
        decoder(1, [1] * 4_000), linears(*[1] * 4_001, WIDTH)
    ),
    "a layer wider than its file": lambda: offer(
        decoder(1, (MOST_UNITS, MOST_UNITS)), ()
    ),
    "450,000 columns": lambda: offer(decoder(sizes=[1] * 450_000), ()),
    "a column of 2⁶² levels": lambda: offer(decoder(sizes=[1 << 62, *SIZES[1:]]), ()),
    "a mixture larger than its file": lambda: offer(
        {"kind": "mixture", "components": 1 << 20, "sizes": SIZES}, ()
    ),
    "10,000 branches": lambda: offer(
        {
            "kind": "branched",
            "latent": 1,
            "common": [],
            "branches": [ONE | {"party": str(n)} for n in range(10_000)],
        },
        (),
    ),
    "a name of a megabyte": lambda: offer(decoder(), silo="n" * 1_000_000),
    "a card nested deep": lambda: offer(decoder(), more=nested(400, "x" * 500_000)),
    "many nested keys": lambda: offer(
        decoder(), more=[nested(400, "") for _ in range(600)]
    ),
    "a description nested deep": lambda: offer(
        decoder(hidden=nested(400, "x" * 500_000)), ()
    ),
    "levels without end": lambda: offer(
        decoder(),
        schema={"columns": [COLUMN | {"name": f"c{n}"} for n in range(9_000)]},
    ),
    "20,000 columns of one name": lambda: offer(
        decoder(), schema={"columns": [{"kind": "boolean", "name": "a"}] * 20_000}
    ),
    "a header of empty lists": lambda: offer(decoder(), more=[[]] * 250_000),
    "a tensor that stands twice": lambda: offer(decoder(), tensors_of(decoder()) * 2),
    "8,000 tensors of nothing": lambda: offer(
        decoder(),
        [*tensors_of(decoder()), *((f"t{n}", (0, 1 << 40)) for n in range(8_000))],
    ),
}
