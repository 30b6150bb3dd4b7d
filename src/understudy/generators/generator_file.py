"""A generator's folder: `weights.safetensors`, `schema.toml` and `card.json`; where a
table's levels were bought `levels.safetensors`, and where noisy tables were released,
which the card lists then, `release.safetensors`.

Guarantee: a network is rebuilt from a description in the card, by name, from a short
list; nothing is unpickled or executed, and whoever wrote the folder, memory grows with
its files and not with what they claim.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from understudy.answers.release import FILE as RELEASE
from understudy.answers.release import TableRelease
from understudy.data.encoding.codec import Codec, Levels, level_shapes
from understudy.data.kinds import TABLE, MixedSchema, PublicSchema, load_any, sizes_of
from understudy.data.visits import SeveralVisits
from understudy.generators.parts import GeneratorParts
from understudy.ground.durable import read_json
from understudy.ground.errors import ArtefactError
from understudy.ground.pack import difference, read_header
from understudy.models.plan import check_claim, network_class, on_paper, shapes_of
from understudy.privacy.accounts.budget import first_said

Described = PublicSchema | MixedSchema | SeveralVisits
Parts = tuple[Any, Described, dict[str, Any], Levels | None, TableRelease | None]

LEVELS = "levels.safetensors"
_MOST_HEADER = 1 << 24  # a pool of many offers has many tensors
_DAMAGED = (
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    RuntimeError,
    OverflowError,
    SafetensorError,
)


def write_generator(folder: Path, parts: GeneratorParts) -> Path:
    network = parts.network
    card = parts.card
    levels = parts.levels
    release = parts.release
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        name: value.detach().cpu().contiguous()
        for name, value in network.state_dict().items()
    }
    save_file(state, folder / "weights.safetensors", metadata=first_said(card) or None)
    for name in (LEVELS, RELEASE):  # what an earlier one left
        (folder / name).unlink(missing_ok=True)
    parts.schema.save(folder / "schema.toml")
    written_card = {**first_said(card), **card, "network": parts.network.describe()}
    written_card.pop("release", None)
    if levels is not None:
        save_file(levels.tensors(), folder / LEVELS)
    if release is not None:
        release.save(folder / RELEASE, first_said(card))
        written_card["release"] = release.card
    (folder / "card.json").write_text(
        json.dumps(written_card, indent=2, ensure_ascii=False) + "\n"
    )
    return folder


def read_generator(folder: Path) -> Parts:
    """Network, schema, card, levels and release, as they were written. A file is
    missing or damaged → ArtefactError.
    """
    if folder.is_file():
        raise ArtefactError(
            f"{folder} is one file, and a generator is a folder. A file from an "
            "exchange's page is checked by its pool when it is taken: `understudy "
            "exchange pull --at URL --out FOLDER` makes the folder."
        )
    if (
        not (folder / "card.json").exists()
        and (folder / "generator" / "card.json").exists()
    ):
        folder = folder / "generator"
    try:
        card = read_json(folder / "card.json")
        schema = load_any(folder / "schema.toml")
        levels = _levels(schema, folder / LEVELS)
        sizes = sizes_of(schema) if levels is None else levels.sizes
        _same_classes(card["network"], schema)
        network = _network(card["network"], sizes, folder / "weights.safetensors")
        release = _release(schema, levels, card, folder / RELEASE)
    except FileNotFoundError as error:
        name = Path(error.filename).name if error.filename else "a file"
        raise ArtefactError(
            f"{folder} does not hold a generator: {name} is missing."
        ) from None
    except OSError as error:
        raise ArtefactError(
            f"{folder} does not hold a generator ({error.strerror})."
        ) from None
    except _DAMAGED as error:
        raise ArtefactError(f"{folder} holds a damaged generator: {error}") from None
    return network.eval(), schema, card, levels, release


def _same_classes(described: Mapping[str, Any], schema: Described) -> None:
    """ValueError where a network of Gaussians by class has others than the schema's
    labels have combinations.
    """
    sizes = getattr(schema, "label_sizes", ())
    if (
        sizes
        and described["kind"] == "gaussians"
        and described["classes"] != math.prod(sizes)
    ):
        raise ValueError(
            f"the network knows {described['classes']} classes, and the schema "
            f"declares {math.prod(sizes):,}."
        )


def _levels(schema: Described, file: Path) -> Levels | None:
    """A table's own levels, if there are any: read only when the file's header has as
    many cells as the schema.
    """
    if not file.exists():
        return None
    if not TABLE.describes(schema):
        raise ValueError(f"{file.name} is for tables alone.")
    stored = read_header(file, max_length=_MOST_HEADER).shapes
    claimed = level_shapes(schema, stored)
    if claimed != stored:
        raise ValueError(
            f"the levels are not those of the schema: {difference(claimed, stored)}."
        )
    return Levels.from_tensors(schema, load_file(file))


def _release(
    schema: Described,
    levels: Levels | None,
    card: Mapping[str, Any],
    file: Path,
) -> TableRelease | None:
    """What was released, where the card lists it."""
    if "release" not in card:
        if file.exists():
            raise ValueError(f"{file.name} is not listed in the card.")
        return None
    if not TABLE.describes(schema):
        raise ValueError(f"{file.name} is for tables alone.")
    return TableRelease.load(file, levels or Codec(schema))


def _network(description: dict[str, Any], sizes: tuple[int, ...], weights: Path) -> Any:
    """The network, built only when the header of its weights says that they are all
    there.
    """
    stored = read_header(weights, max_length=_MOST_HEADER).shapes
    check_claim(description, sizes, len(stored))
    claimed = shapes_of(on_paper(description))
    if claimed != stored:
        raise ValueError(
            "the weights are not those of the network on the card: "
            f"{difference(claimed, stored)}."
        )
    network = network_class(description["kind"]).from_description(description)
    network.load_state_dict(load_file(weights))
    return network
