"""A folder or a file from somebody else costs what its size is, and what is wrong with
it is said in words.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from typer.testing import CliRunner

from forker import Forker
from understudy.cli import app
from understudy.data.encoding.features import ArrayFeatures
from understudy.data.images import ImageSchema
from understudy.data.kinds import load_any, load_schema
from understudy.data.samples import toy
from understudy.data.series import SeriesSchema
from understudy.generators.classifier import Classifier
from understudy.generators.generator import Generator
from understudy.ground.durable import parse_json, parse_toml
from understudy.ground.errors import ArtefactError, SchemaError, UnderstudyError
from understudy.models.cohort.classifier import Mlp
from understudy.models.nets.autoencoder import SeriesDecoder
from understudy.models.nets.beta_vae import ClassDecoder, ClassImageDecoder
from understudy.models.nets.gan import BranchedGenerator, Values
from understudy.models.nets.wae import ImageDecoder, TableDecoder
from understudy.models.plan import Pool
from understudy.models.tables.inversion import BayesNet, GaussianCopula
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.runs.runfile import RunFile

MB = 1 << 20
_, TABLE = toy(rows=9, seed=1)
SIZES = [column.size for column in TABLE.columns]
IMAGE = ImageSchema(height=8, width=8)
SERIES = SeriesSchema.from_dict(
    {"channels": {"pulse": {"low": 0, "high": 200}}, "length": 5, "series": "stay"}
)
# a network, its schema, and what to ask for
NETWORKS: dict[str, tuple[Callable[[], Any], Any, dict[str, Any]]] = {
    "mixture": (lambda: MixtureOfProducts(SIZES, 3), TABLE, {"components": 1 << 20}),
    "mixture told": (
        lambda: MixtureOfProducts(SIZES, 3, 0),
        TABLE,
        {"target": len(SIZES)},
    ),
    "branched": (
        lambda: BranchedGenerator(4, [6], {"a": ([5], SIZES)}),
        TABLE,
        {"latent": 1 << 25, "common": [7]},
    ),
    "branched layers": (
        lambda: BranchedGenerator(4, [6], {"a": ([5], SIZES)}),
        TABLE,
        {"common": [1] * 300_000},
    ),
    "branched image": (
        lambda: BranchedGenerator(4, [6], {"a": ([3, 2], Values((8, 8), True))}),
        IMAGE,
        {"latent": 1 << 25},
    ),
    "class-decoder": (
        lambda: ClassDecoder(4, [6], SIZES, (0, 1)),
        TABLE,
        {"hidden": [1] * 300_000},
    ),
    "class-image-decoder": (
        lambda: ClassImageDecoder(4, [3], (8, 8)),
        IMAGE,
        {"shape": [1 << 16, 1 << 16]},
    ),
    "decoder-table": (
        lambda: TableDecoder(SIZES, 6, 4),
        TABLE,
        {"latent": 1 << 25, "hidden": 7},
    ),
    "decoder-image": (
        lambda: ImageDecoder(8, 8, 3, 4),
        IMAGE,
        {"height": 1 << 12, "width": 1 << 12, "channels": 8},
    ),
    "decoder-series": (lambda: SeriesDecoder(5, 1, 3, 2), SERIES, {"length": 1 << 28}),
    "bayes-net": (
        lambda: BayesNet(SIZES, [[] for _ in SIZES]),
        TABLE,
        {
            "sizes": [2] * 25,
            "parents": [[]] * 25,
            "columns": [[1 << 25, list(range(25))]],
        },
    ),
    "bayes-net parents": (
        lambda: BayesNet(SIZES, [[] for _ in SIZES]),
        TABLE,
        {"parents": [[1] * 200_000] + [[]] * (len(SIZES) - 1)},
    ),
    "copula": (lambda: GaussianCopula(SIZES), TABLE, {"sizes": [2] * 8000}),
    "pool": (
        lambda: Pool([MixtureOfProducts(SIZES, 3)], [1.0]),
        TABLE,
        {
            "members": [{"kind": "mixture", "components": 1 << 20, "sizes": SIZES}],
            "shares": [1.0],
        },
    ),
    "pool of many": (
        lambda: Pool([MixtureOfProducts(SIZES, 3)], [1.0]),
        TABLE,
        {
            "members": [{"kind": "mixture", "components": 1, "sizes": SIZES}] * 16_000,
            "shares": [1.0] * 16_000,
        },
    ),
}


def honest(name: str, folder: Path) -> Path:
    build, schema, _ = NETWORKS[name]
    return Generator(build(), schema, {"protocol": "x"}).save(folder)


def ask_for(folder: Path, more: dict[str, Any]) -> Path:
    """The same folder with a card that asks for more."""
    card = json.loads((folder / "card.json").read_text())
    card["network"] |= more
    (folder / "card.json").write_text(json.dumps(card))
    return folder


@pytest.mark.parametrize("name", NETWORKS)
def test_an_honest_folder_of_every_kind_is_read(name: str, tmp_path: Path) -> None:
    assert len(Generator.load(honest(name, tmp_path)).sample(3, seed=1)) > 0


@pytest.mark.parametrize("name", NETWORKS)
def test_a_card_that_asks_for_more_than_its_file_holds_is_refused(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(ArtefactError, match="damaged generator"):
        Generator.load(ask_for(honest(name, tmp_path), NETWORKS[name][2]))


PEAK = """
import resource, sys
from understudy.ground.errors import ArtefactError
from understudy.generators.generator import Generator
Generator.load(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for folder in sys.argv[2:]:
    try:
        Generator.load(folder)
    except ArtefactError:
        continue
    sys.exit(f"{folder} was read")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_refusing_such_folders_takes_no_more_memory_than_a_few_times_their_files(
    forker: Forker, tmp_path: Path
) -> None:
    """All of them one after the other, in a process of its own: 256 M weights, or
    300,000 layers, were built before.
    """
    folders = [
        ask_for(honest(name, tmp_path / name), NETWORKS[name][2]) for name in NETWORKS
    ]
    largest = max(
        sum(file.stat().st_size for file in folder.iterdir()) for folder in folders
    )
    assert largest < 3 * MB
    good = honest("mixture", tmp_path / "good")
    program = tmp_path / "peak.py"
    program.write_text(PEAK)
    done = forker.run(
        good, *folders, folder=tmp_path, to=tmp_path / "peak", program=program
    )
    assert done.end() == 0, done.err
    assert int(done.out) < 25 * largest + 16 * MB


def test_a_classifier_whose_card_asks_for_more_is_refused(tmp_path: Path) -> None:
    network = Mlp(features=4, hidden=3, classes=2)
    made = Classifier(
        network, torch.zeros(network.size), ArrayFeatures((4,), (0, 1)), {}
    )
    made.save(tmp_path)
    assert Classifier.load(tmp_path).predict(
        np.zeros((2, 4), dtype=np.float32)
    ).tolist() == [0, 0]
    for more in ({"hidden": 1 << 26}, {"classes": 1 << 26}, {"hidden": -1}):
        with pytest.raises(ArtefactError, match="damaged classifier"):
            Classifier.load(ask_for(tmp_path, more))


# Texts


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 50_000 + " = 1",
        "[" + "a." * 50_000 + "a]",
        "[[" + "a." * 50_000 + "a]]",
        "x = {" + '"a" . ' * 50_000 + "a = 1}",
        # a quote more than it takes to end
        'x = {y = """a"""", ' + "k." * 50_000 + "k = 1}",
        "x = {y = '''a''''', " + "k." * 50_000 + "k = 1}",
        'x = "\\"#"\n' + "k." * 50_000 + "k = 1",
        "x = '\"'\n" + "k." * 50_000 + "k = 1 # '",
    ],
)
def test_a_key_of_many_dots_is_refused_by_the_scan_and_not_parsed(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tomllib.loads", lambda text: pytest.fail("it was parsed"))
    with pytest.raises(ValueError, match="more than 16 dots"):
        parse_toml(text)


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 5000, "a = " + "{b=" * 5000, "a = [" + "[1,\n" * 40]
)
def test_brackets_within_brackets_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="deeper than 32"):
        parse_toml(text)
    with pytest.raises(ValueError, match="deeper than 32"):
        parse_json(text[4:].replace("{b=", '{"b":'))


@pytest.mark.parametrize(
    "text",
    ['"' + '\\"' * 300_000, '"""' + '""\\' * 200_000, "'" * 300_001, "a" * 400_000],
)
def test_text_that_never_ends_is_seen_in_one_pass(text: str) -> None:
    for parse in (parse_toml, parse_json):
        with pytest.raises(ValueError, match=r"nterminated|nvalid|xpect|Extra"):
            parse(text)


def test_dots_and_brackets_in_texts_and_comments_count_for_nothing() -> None:
    many = ". [ { " * 50
    text = (
        f'a = "{many}" # {many}\nb = \'{many}\'\nc = """{many}"x""\\"{many}"""\nd = '
        "[[1.5, 2.5], [3.5]]\n[x.y.z]\n"
    )
    assert parse_toml(text)["d"] == [[1.5, 2.5], [3.5]]
    assert parse_json(json.dumps({"a": many + '"\\'})) == {"a": many + '"\\'}


@given(
    st.recursive(
        st.integers() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.text(max_size=9), inner, max_size=4)
        ),
        max_leaves=20,
    )
)
@settings(max_examples=40, deadline=None)
def test_what_json_writes_is_read(value: object) -> None:
    assert parse_json(json.dumps(value)) == value


def test_a_schema_that_costs_more_than_its_size_is_refused(tmp_path: Path) -> None:
    columns = "\n".join(
        f'[columns.c{n}]\nkind = "integer"\nlow = 0\nhigh = 9999999\nbins = 65536'
        for n in range(100)
    )
    series = (
        'kind = "series"\nlength = 9999999999\nseries = "s"\n[channels.a]\nlow = '
        "0\nhigh = 1\n"
    )
    for text, said in (
        (columns, "bins together"),
        (series, "values"),
        ("a = 1\n" * 2_000_000, "bytes"),
        ("[columns.a]\nkind = [1]", "column|rows"),
        ("columns = 3", "columns"),
    ):
        (tmp_path / "s.toml").write_text(text)
        with pytest.raises(SchemaError, match=f"s.toml.*{said}"):
            load_schema(tmp_path / "s.toml")


def test_a_large_image_among_mixed_parts_is_no_square_of_its_pixels(
    tmp_path: Path,
) -> None:
    (tmp_path / "s.toml").write_text(
        'kind = "mixed"\n[parts.x]\nkind = "image"\nheight = 256\nwidth = 256\n'
    )
    assert len(load_any(tmp_path / "s.toml").names) == 1 << 16


# Commands


DAMAGE: dict[str, tuple[str, bytes]] = {
    "a card nested deep": ("card.json", b'{"network":' + b"[" * 100_000),
    "a card that is no table": ("card.json", b"[]"),
    "a card of another kind": ("card.json", b'{"network": {"kind": ["mixture"]}}'),
    "a card without a network": ("card.json", b'{"network": 3}'),
    "a card that is no text": ("card.json", b"\xff\xfe"),
    "a dotted schema": ("schema.toml", b"a" + b".a" * 50_000 + b"=1"),
    "a schema nested deep": ("schema.toml", b"a=" + b"[" * 100_000),
    "a schema of numbers": ("schema.toml", b"columns = [1]"),
    "no schema": ("schema.toml", b""),
    "no weights": ("weights.safetensors", b""),
    "weights that claim": ("weights.safetensors", (1 << 50).to_bytes(8, "little")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_every_command_that_reads_a_strangers_generator_ends_in_words(
    damage: str, tmp_path: Path
) -> None:
    name, data = DAMAGE[damage]
    folder = honest("mixture", tmp_path / "generator")
    (folder / name).write_bytes(data)
    to = str(tmp_path / "out.npz")
    for command in (
        ["sample", str(folder)],
        ["exchange", "draw", str(folder), "--out", to],
        ["report", str(tmp_path)],
    ):
        said = CliRunner().invoke(app, command)
        assert isinstance(said.exception, UnderstudyError | SystemExit | type(None)), (
            command,
            said.exception,
        )
    with pytest.raises(ArtefactError):
        Generator.load(folder)


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 50_000 + "=1",
        "a=" + "[" * 100_000,
        "parties = 3",
        "\0",
        "a = 1979-05-27",
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ["run"],
        ["audit"],
        ["schema", "show"],
        ["schema", "check", "t.csv"],
        ["serve", "federation"],
    ],
)
def test_every_command_that_reads_a_text_ends_in_words(
    command: list[str], text: str, tmp_path: Path
) -> None:
    (tmp_path / "x.toml").write_text(text)
    said = CliRunner().invoke(app, [*command, str(tmp_path / "x.toml")])
    assert isinstance(said.exception, UnderstudyError), said.exception
    if command != ["serve", "federation"]:
        with pytest.raises(UnderstudyError):
            RunFile.load(tmp_path / "x.toml")


def test_a_ledger_that_is_none_is_told_in_words(tmp_path: Path) -> None:
    for data in (b"", b"SQLite format 3\0" + bytes(5000), b"x" * 5000):
        (tmp_path / "a.ledger").write_bytes(data)
        said = CliRunner().invoke(app, ["ledger", "show", str(tmp_path / "a.ledger")])
        assert isinstance(said.exception, UnderstudyError), said.exception


def test_damaged_tables_are_told_in_words(tmp_path: Path) -> None:
    TABLE.save(tmp_path / "s.toml")
    tables = {
        "a.csv": b"x," * 500_000,
        "b.csv": b'"' + b"x" * 1_000_000,
        "c.csv.gz": b"\x1f\x8b" + bytes(50),
        "d.parquet": b"PAR1" + bytes(40) + b"PAR1",
        "e.csv": b"\xff\xfe",
    }
    for name, data in tables.items():
        (tmp_path / name).write_bytes(data)
        said = CliRunner().invoke(
            app, ["schema", "check", str(tmp_path / name), str(tmp_path / "s.toml")]
        )
        assert isinstance(said.exception, UnderstudyError | SystemExit), (
            name,
            said.exception,
        )


def test_a_pool_of_many_offers_is_still_read(tmp_path: Path) -> None:
    many = Pool([MixtureOfProducts(SIZES, 1) for _ in range(60)], [1.0] * 60)
    Generator(many, TABLE, {}).save(tmp_path)
    assert len(Generator.load(tmp_path).network.members) == 60
    state = dict(many.state_dict()) | {"more": torch.zeros(1)}
    save_file(state, tmp_path / "weights.safetensors")
    with pytest.raises(ArtefactError, match='"more" is float32'):
        Generator.load(tmp_path)
