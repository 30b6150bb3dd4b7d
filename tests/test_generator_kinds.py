"""One generator for tables, series and images: what a network's output means follows
from the schema.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from understudy.data.images import ImageSchema
from understudy.data.samples import toy
from understudy.data.schema import Real
from understudy.data.series import SeriesSchema, read_series
from understudy.generators.generator import Generator
from understudy.ground.errors import ArtefactError
from understudy.models import plan
from understudy.models.network import Network
from understudy.models.plan import NETWORKS, network_class
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.services.exchange.offer_file import seal

SERIES = SeriesSchema(
    channels=(Real(name="pulse", low=0, high=200), Real(name="heat", low=30, high=45)),
    length=3,
    series="stay",
    time="hour",
    step=2,
)
IMAGES = ImageSchema(height=2, width=3)


class Ramp(Network):
    """A network of six outputs in [0, 1], the first latent number scaled by a weight
    each.
    """

    latent = 2

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.1, 1, 6))

    def rows(self, z: Tensor) -> Tensor:
        return torch.sigmoid(z[:, :1] * self.weight)

    def describe(self) -> dict[str, Any]:
        return {"kind": "ramp"}

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> "Ramp":
        return cls()


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "Ramp", Ramp, raising=False)
    monkeypatch.setitem(NETWORKS, "ramp", "plan.Ramp")


def test_every_kind_of_network_is_where_the_list_says_and_can_be_rebuilt() -> None:
    for kind in NETWORKS:
        assert callable(network_class(kind).from_description), kind


def test_series_come_as_a_tidy_frame_and_as_an_array_of_the_same_numbers() -> None:
    generator = Generator(Ramp(), SERIES, {})
    frame = generator.sample(5, seed=1)
    array = generator.series(5, seed=1)
    assert list(frame.columns) == ["stay", "hour", "pulse", "heat"]
    assert len(frame) == 15
    assert frame["stay"].tolist() == np.repeat(range(5), 3).tolist()
    assert frame["hour"].tolist() == [0, 2, 4] * 5
    assert array.shape == (5, 3, 2)
    assert np.array_equal(frame[["pulse", "heat"]].to_numpy().reshape(5, 3, 2), array)
    np.testing.assert_allclose(
        SERIES.unscaled(read_series(frame, SERIES).values), array, rtol=1e-5
    )


def test_images_come_as_pixels_and_as_an_array_of_the_same_bytes() -> None:
    generator = Generator(Ramp(), IMAGES, {})
    frame = generator.sample(4, seed=1)
    array = generator.images(4, seed=1)
    assert frame.shape == (4, 6)
    assert frame.columns[-1] == "pixel_1_2"
    assert array.dtype == np.uint8
    assert np.array_equal(frame.to_numpy().reshape(4, 2, 3), array)


def test_none_may_be_asked_for_and_many_come_in_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = Generator(Ramp(), SERIES, {})
    assert generator.sample(0).empty
    assert generator.series(0).shape == (0, 3, 2)
    monkeypatch.setattr("understudy.generators.sampling.CHUNK", 4)
    frame = generator.sample(10, seed=2)
    assert frame["stay"].nunique() == 10
    assert frame.groupby("stay")["pulse"].first().nunique() == 10


def test_what_a_generator_does_not_draw_is_refused() -> None:
    _, schema = toy(10)
    sizes = [column.size for column in schema.columns]
    kinds = {
        "table": Generator(MixtureOfProducts(sizes, 2), schema, {}),
        "series": Generator(Ramp(), SERIES, {}),
        "images": Generator(Ramp(), IMAGES, {}),
    }
    assert len(kinds["table"].sample(3)) == 3
    for name, generator in kinds.items():
        for asked in {"series", "images"} - {name}:
            with pytest.raises(ArtefactError, match=f"draws no {asked}"):
                getattr(generator, asked)(1)


@pytest.mark.parametrize("schema", [SERIES, IMAGES])
def test_a_saved_generator_comes_back_with_the_schema_of_its_kind(
    tmp_path: Path, schema: Any
) -> None:
    generator = Generator(Ramp(), schema, {"protocol": "test"})
    generator.save(tmp_path / "g")
    again = Generator.load(tmp_path / "g")
    assert again.schema == schema
    assert again.sample(3, seed=1).equals(generator.sample(3, seed=1))


def test_a_file_from_an_exchange_s_page_is_refused_with_the_command_that_takes_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pool-north-0123456789ab.safetensors"
    file.write_bytes(seal(Generator(Ramp(), IMAGES, {})))
    with pytest.raises(
        ArtefactError,
        match=r"is one file.*understudy exchange pull --at URL --out FOLDER",
    ):
        Generator.load(file)
