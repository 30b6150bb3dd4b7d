"""A plan says what the network itself would say, without its memory, and refuses what
would exhaust a checker.
"""

import json
import math
import resource
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forker import Forker
from understudy.ground.errors import ConfigError
from understudy.models.plan import (
    MOST_LAYERS,
    MOST_NUMBERS,
    MOST_UNITS,
    Pool,
    network_class,
    pieces,
    plan_of,
)

units = st.integers(1, 6)
layers = st.lists(units, max_size=4)
sizes = st.lists(st.integers(1, 5), min_size=2, max_size=5)
sides = st.tuples(st.integers(1, 30), st.integers(1, 30)).map(list)


@st.composite
def class_decoders(draw: st.DrawFn) -> dict[str, Any]:
    found = draw(sizes)
    place = draw(st.integers(0, len(found) - 1))
    label = [place, draw(st.integers(0, found[place] - 1))]
    return {
        "kind": "class-decoder",
        "latent": draw(units),
        "hidden": draw(layers),
        "sizes": found,
        "label": label,
    }


def branches(
    output: st.SearchStrategy[dict[str, Any]],
) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(output, min_size=1, max_size=3).map(
        lambda parts: [part | {"party": str(place)} for place, part in enumerate(parts)]
    )


tables = branches(st.fixed_dictionaries({"hidden": layers, "blocks": sizes}))
images = st.fixed_dictionaries(
    {
        "party": st.just("a"),
        "hidden": st.lists(units, min_size=2, max_size=2),
        "shape": sides,
        "image": st.just(True),
    }
)
described = st.one_of(
    class_decoders(),
    st.fixed_dictionaries(
        {"kind": st.just("mixture"), "components": units, "sizes": sizes}
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("class-image-decoder"),
            "latent": units,
            "shape": sides,
            "channels": st.lists(units, min_size=1, max_size=5),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("branched"),
            "latent": units,
            "common": layers,
            "branches": tables | images.map(lambda one: [one]),
        }
    ),
)


@given(described)
@settings(max_examples=60)
def test_a_plan_names_the_tensors_of_the_network_and_the_rows_that_it_draws(
    description: dict[str, Any],
) -> None:
    network = network_class(description["kind"]).from_description(description)
    plan = plan_of(description)
    assert plan.shapes == {
        name: (value.dtype, tuple(value.shape))
        for name, value in network.state_dict().items()
    }
    width = sum(plan.drawn) if plan.levels else math.prod(plan.drawn)
    assert network.rows(torch.zeros(3, network.latent)).flatten(1).shape == (3, width)


WIDE = {
    "kind": "class-decoder",
    "latent": 1,
    "hidden": [],
    "sizes": [2, 2],
    "label": [0, 0],
}
IMAGE = {"kind": "class-image-decoder", "latent": 1, "channels": [1], "shape": [28, 28]}
GRAM = {"kind": "gram", "sizes": [2, 3], "target": 0, "noise": [1.0, 2.0]}
MOMENTS = {
    "kind": "moments",
    "shape": [4, 5],
    "sides": 1,
    "features": 10,
    "classes": 2,
    "scales": [64, 64],
    "noise": [1.0, 1.0, 1.0],
}
BRANCHED = {
    "kind": "branched",
    "latent": 1,
    "common": [],
    "branches": [{"party": "a", "hidden": [], "blocks": [2]}],
}


@pytest.mark.parametrize(
    "description",
    [
        WIDE | {"latent": MOST_UNITS + 1},
        WIDE | {"latent": 10**400},
        WIDE | {"latent": True},
        WIDE | {"hidden": [1] * MOST_LAYERS},
        WIDE | {"hidden": [MOST_UNITS + 1]},
        WIDE | {"hidden": [0]},
        WIDE | {"hidden": {"0": 1}},
        WIDE | {"hidden": "11"},
        WIDE | {"label": [0, 2]},
        WIDE | {"label": [[0], 0]},
        WIDE | {"sizes": []},
        WIDE | {"extra": 1},
        {key: value for key, value in WIDE.items() if key != "label"},
        IMAGE | {"channels": [1] * MOST_LAYERS},
        IMAGE | {"channels": []},
        IMAGE | {"shape": [28]},
        IMAGE | {"channels": [MOST_UNITS], "shape": [1024, 1024]},
        {"kind": "mixture", "components": 1 << 40, "sizes": [2]},
        BRANCHED
        | {
            "branches": [BRANCHED["branches"][0] | {"party": str(n)} for n in range(65)]
        },  # type: ignore[index]
        BRANCHED | {"branches": BRANCHED["branches"] * 2},  # type: ignore[operator]
        BRANCHED | {"branches": [{"party": "a" * 10**6, "hidden": [], "blocks": [2]}]},
        BRANCHED
        | {"branches": [{"party": "a", "hidden": [], "blocks": [2], "more": []}]},
        BRANCHED
        | {"branches": [{"party": "a", "hidden": [], "shape": [4], "image": False}]},
        BRANCHED
        | {
            "branches": [
                {"party": "a", "hidden": [1, 1], "shape": [10**400, 4], "image": True}
            ]
        },
        BRANCHED | {"common": [MOST_UNITS] * 14},
        WIDE | {"sizes": [10**400, 2], "label": [1, 0]},
        WIDE | {"sizes": [2, math.nan]},
        WIDE | {"sizes": [2, True]},
        WIDE | {"sizes": [[[[[2]]]], 2]},
        IMAGE | {"shape": [10**400, 1]},
        IMAGE | {"shape": [1 << 62, 1 << 62]},
        GRAM | {"noise": [1.0, math.nan]},
        GRAM | {"noise": [1.0, True]},
        GRAM | {"sizes": [10**400]},
        GRAM | {"sizes": "23"},
        GRAM | {"target": True},
        MOMENTS | {"classes": 1 << 62},
        MOMENTS | {"classes": 10**400},
        MOMENTS | {"noise": [1.0, 1.0, True]},
        MOMENTS | {"noise": [1.0, 1.0, "1"]},
        MOMENTS | {"noise": [1.0, 1.0, math.inf]},
        MOMENTS | {"scales": [64, 0]},
        MOMENTS | {"shape": [4, 5, 6]},
        MOMENTS | {"shape": {"4": 5}},
        MOMENTS | {"features": -1},
        MOMENTS | {"upright": 1},
        {"kind": "mixture", "components": 2, "sizes": [1 << 40]},
        {
            "kind": "mixture",
            "components": 2,
            "sizes": [2, 2],
            "target": 0,
            "together": [],
        },
        {"kind": "pool", "members": [], "shares": []},
        {"kind": ["mixture"]},
        {},
        [],
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_no_offer_has_is_refused(description: Any) -> None:
    begin = time.process_time()
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConfigError) as refused:
        plan_of(description)
    assert len(str(refused.value)) < 5000
    assert time.process_time() - begin < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 200_000, (
        "kilobytes"
    )


def test_the_largest_that_may_be_offered_takes_no_memory_and_not_the_compiler(
    forker: Forker, tmp_path: Path
) -> None:
    """64 branches of 15 layers; and a column of a million levels, which weigh 2^26
    numbers.
    """
    branch = {"hidden": [1] * 14, "blocks": [2] * 100}
    many = BRANCHED | {"branches": [branch | {"party": str(n)} for n in range(64)]}
    wide = WIDE | {"latent": 60, "sizes": [2, 1 << 20]}
    script = tmp_path / "check.py"
    script.write_text(
        "import json, resource, sys, time\n"
        "from understudy.models.plan import OFFERED, network_class, plan_of\n"
        "for kind in OFFERED: network_class(kind)\n"
        "begin, held = time.process_time(), "
        "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for one in json.loads(sys.argv[1]): plan_of(one)\n"
        "assert time.process_time() - begin < 5\n"
        "assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 60_000\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    mixture = {"kind": "mixture", "components": 8, "sizes": [2, 3]}
    said = json.dumps([many, wide, IMAGE, mixture, GRAM, MOMENTS])
    done = forker.run(said, folder=tmp_path, to=tmp_path / "check", program=script)
    assert done.end() == 0, done.err


def test_rows_are_drawn_in_pieces_that_hold_few_numbers() -> None:
    wide = network_class("class-decoder").from_description(
        WIDE | {"latent": MOST_UNITS}
    )
    assert wide.row_numbers >= MOST_UNITS
    each = list(pieces(wide, 1000, most=1000, numbers=1 << 20))
    assert sum(each) == 1000
    assert max(each) * wide.row_numbers <= 1 << 20
    assert Pool([wide], [1.0]).row_numbers > wide.row_numbers
    assert list(pieces(wide, 3, most=9, numbers=1)) == [1, 1, 1]
    assert MOST_NUMBERS > MOST_UNITS
