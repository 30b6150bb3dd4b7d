"""The READMEs of the benchmarks say what their CSV files say."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def readme() -> Iterator[ModuleType]:
    path = sys.path[:]
    sys.path.append(str(BENCHMARKS))
    yield importlib.import_module("common.readme")
    sys.path[:] = path


def test_every_table_and_every_marked_figure_is_that_of_its_csv_file(
    readme: ModuleType,
) -> None:
    for name, folder in readme.folders().items():
        committed = {page: page.read_text() for page in folder.pages}
        assert folder.in_checkout() == committed, f"make tables NAME={name}"
        assert not folder.unused(), name


def test_the_site_has_every_table_of_the_notes(readme: ModuleType) -> None:
    notes = [folder for folder in readme.folders().values() if folder.notes]
    assert notes
    for folder in notes:
        page = folder.on_site()[folder.notes]
        assert readme.ON_THE_SITE not in page
        shown = re.findall(
            r"<!-- table: [^<>]+ -->\n(.*?)\n<!-- end -->", page, re.DOTALL
        )
        assert all("\n|--" in table for table in shown), folder.notes


def test_a_readme_says_what_it_has_to_say_in_800_words(readme: ModuleType) -> None:
    marks = re.compile(r"<!-- table: .*?<!-- end -->|<!-- .*? -->", re.DOTALL)
    for name, folder in readme.folders().items():
        words = len(marks.sub("", folder.readme.read_text()).split())
        assert words <= 800, f"{name}: {words} words; NOTES.md has room for more"


@pytest.mark.parametrize(
    ("bench", "page"), [("joint", BENCHMARKS.parent), ("rivals", BENCHMARKS / "rivals")]
)
def test_the_plot_of_a_readme_is_that_of_its_csv_file(
    load_bench: Callable[..., ModuleType], bench: str, page: Path
) -> None:
    plot = load_bench(bench, "plot")
    assert plot.OUT.read_text() == plot.drawn(), "make plot"
    assert (
        f"]({plot.OUT.relative_to(page).as_posix()})"
        in (page / "README.md").read_text()
    )


def test_what_the_readme_says_of_the_plot_is_what_it_shows(
    load_bench: Callable[..., ModuleType],
) -> None:
    plot = load_bench("joint", "plot")
    for dataset, figure in product(plot.TABLES, plot.MEASURES):
        sign = -1 if figure == "avd2" else 1
        ours, aim, mst, papers = (
            [sign * value for value in line]
            for line in plot.values(dataset, figure).values()
        )
        assert all(
            a > b for rival in (mst, papers) for a, b in zip(ours, rival, strict=True)
        ), dataset
        if dataset == "census":
            assert all(a > b for a, b in zip(ours[1:], aim[1:], strict=True)), figure


def test_the_plot_draws_the_best_of_the_papers_methods_and_nothing_outside_of_its_frame(
    load_bench: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    plot = load_bench("joint", "plot")
    rows = plot.columns_of_two(1.0)
    rows = rows[(rows.dataset == "adult") & (rows.seed == 0)].set_index("method")
    least, most = (
        plot.values("adult", name)["papers"][1]
        for name in ("avd2", "tstr_boosting_auc")
    )
    assert (least, most) == (rows.avd2["DPLT"], rows.tstr_boosting_auc["VertiGAN"])
    monkeypatch.setitem(plot.MEASURES, "avd2", ("", 0.003, 0.1, (0.003, 0.1)))
    with pytest.raises(
        ValueError,
        match=r"adult, avd2: 0\.\d+ lies outside of the plot, 0\.003 to 0\.1\.",
    ):
        plot.drawn()


def test_no_table_of_a_readme_stands_outside_the_marks_but_those_without_a_csv_file(
    readme: ModuleType,
) -> None:
    typed = {  # pictures
        "fed_wae": ["| | without privacy | ε = 8 | ε = 4 |"]
    }
    for name, folder in readme.folders().items():
        if name == ".":
            continue
        empty = {key: lambda: "" for key in readme.texts(folder.scripts)}
        lines = [
            line
            for path in folder.pages
            for line in readme.filled(path.read_text(), empty).splitlines()
        ]
        heads = [line for line, below in pairwise(lines) if below.startswith("|---")]
        assert heads == typed.get(name, []), name


def test_a_typed_figure_is_replaced_and_the_rest_of_the_text_is_kept(
    readme: ModuleType,
) -> None:
    text = (
        "a\n<!-- table: t -->\n| 7 |\n<!-- end -->\nof <!-- figure: f -->8<!-- end "
        "--> b\n"
    )
    made = readme.filled(text, {"t": lambda: "| 1 |\n| 2 |", "f": lambda: "3"})
    assert made == (
        "a\n<!-- table: t -->\n| 1 |\n| 2 |\n<!-- end -->\nof <!-- figure: f "
        "-->3<!-- end --> b\n"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<!-- table: other -->\n<!-- end -->", "no table has the name 'other'"),
        ("<!-- table: t -->\n| 1 |\n", "1 marks are opened, and 0 are closed"),
        (
            "<!-- table: t -->\n<!-- table: t -->\n<!-- end -->",
            "2 marks are opened, and 1 are closed",
        ),
    ],
)
def test_a_mark_that_cannot_be_filled_is_named(
    readme: ModuleType, text: str, said: str
) -> None:
    with pytest.raises(SystemExit, match=said):
        readme.filled(text, {"t": lambda: "| 1 |"})


CLAIM = """
["a first"]
csv = "ours.csv"
lines = ["dataset"]
over = "method"
value = "auc"
count = 2
holds = {highest = "a"}
["a above b"]
like = "a first"
holds = "a > `b (2)` + 0.05"
["lead"]
csv = "ours.csv"
lines = ["dataset"]
over = "method"
value = "auc"
shows = "a - `b (2)`"
times = 100
as = ".0f"
"""


def test_a_claim_of_order_is_recomputed_and_its_sentence_is_kept(
    readme: ModuleType, tmp_path: Path
) -> None:
    declared = importlib.import_module("common.declared")
    (tmp_path / "tables.toml").write_text(CLAIM)
    rows = "x,a,0.9\nx,b (2),0.8\ny,a,0.7\ny,a,0.9\ny,b (2),0.6\n"
    (tmp_path / "ours.csv").write_text(f"dataset,method,auc\n{rows}")
    claims = declared.tables(tmp_path / "tables.toml")
    page = "so <!-- claim: a first -->a is first on both<!-- end -->, by half a point."
    assert readme.filled(page, claims) == page
    assert claims["a above b"]() == ""
    assert claims["lead"]() == "10 and 20"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("x,a,0.9\nx,b,0.8\ny,a,0.7\ny,b,0.75\n", "'a first' does not hold for y"),
        ("x,a,0.9\nx,b,0.8\ny,a,0.7\ny,b,0.7\n", "'a first' does not hold for y"),
        ("x,a,0.9\nx,b,0.8\n", "the claim is about 1 of"),
        ("x,a,0.9\nx,b,0.8\ny,a,0.7\n", "not every one of"),
    ],
)
def test_a_claim_of_order_that_does_not_hold_is_refused(
    readme: ModuleType, tmp_path: Path, rows: str, said: str
) -> None:
    declared = importlib.import_module("common.declared")
    (tmp_path / "tables.toml").write_text(CLAIM)
    (tmp_path / "ours.csv").write_text(f"dataset,method,auc\n{rows}")
    claims = declared.tables(tmp_path / "tables.toml")
    with pytest.raises((SystemExit, LookupError), match=said):
        readme.filled("<!-- claim: a first -->it is<!-- end -->", claims)


def test_a_sentence_whose_row_is_gone_fails_and_says_nothing_else(
    readme: ModuleType, tmp_path: Path
) -> None:
    figures = importlib.import_module("common.figures")
    file = tmp_path / "ours.csv"
    file.write_text("method,seed,epsilon,auc\na,0,1,0.5\na,1,1,0.75\na,0,,0.875\n")
    assert figures.found(file, method="a", epsilon=1).auc == 0.625
    assert figures.found(file, method="a", epsilon=None).auc == 0.875
    with pytest.raises(LookupError, match=r"has no row with \{'method': 'b'\}"):
        figures.found(file, method="b")


def test_a_row_that_does_not_fit_its_head_is_refused(readme: ModuleType) -> None:
    markdown = importlib.import_module("common.markdown")
    assert (
        markdown.table(("a", "b"), [("1", "")], "lr")
        == "| a | b |\n|---|---:|\n| 1 | |"
    )
    with pytest.raises(ValueError, match="1 cells under 2 heads"):
        markdown.table(("a", "b"), [("1",)])
