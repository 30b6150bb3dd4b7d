"""The page: a published one tells nothing of real rows, and a bad folder gives reasons,
never a traceback.
"""

import json
import pickle
import re
import shutil
import stat
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
from report_cases import PARTS, RUN, make_run

from understudy.data.samples import toy
from understudy.data.schema import Categorical, Schema
from understudy.evaluate.comparison import Comparison, compare
from understudy.ground.errors import ArtefactError, ConfigError
from understudy.privacy.accounts.budget import shown
from understudy.report import measure
from understudy.report.page import write_evaluation_page, write_report

pytestmark = pytest.mark.usefixtures("short_training")
NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
STYLE = Path(__file__).parents[2] / "src" / "understudy" / "report" / "style.html"


class Page(HTMLParser):
    """Tags of a page as they nest; an end that closes nothing, or nothing that is
    closed, is an error.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def private(folder: Path, **settings: object) -> str:
    return write_report(folder, now=NOW, **settings).read_text()  # type: ignore[arg-type]


def public(folder: Path) -> str:
    return write_report(folder, now=NOW, publish=True).read_text()


@pytest.fixture(scope="module", autouse=True)
def compared_once() -> Iterator[None]:
    """Tables that several pages compare in the same way are compared once."""
    known: dict[bytes, Comparison] = {}

    def once(*tables: Any, **settings: Any) -> Comparison:
        key = pickle.dumps((tables, settings, compare.__kwdefaults__))
        if key not in known:
            known[key] = compare(*tables, **settings)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "compare", once)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder that no test changes."""
    return make_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return private(folder)


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """The same artefacts for a test that changes them; the holders' files stay where
    they are.
    """
    return Path(shutil.copytree(folder, tmp_path / "run"))


# --- what may leave


def test_a_published_page_does_not_depend_on_the_real_rows(tmp_path: Path) -> None:
    pages = []
    for seed in (1, 2):
        folder = make_run(tmp_path, real_seed=seed)
        pages.append((public(folder), private(folder)))
    (one, shown), (other, shown_too) = pages
    assert one == other
    assert shown != shown_too, (
        "the holder's pages must differ, or this test proves nothing"
    )


def test_a_published_page_opens_no_table_and_no_ledger(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    before = public(folder)
    for file in (tmp_path / "holders").rglob("*.*"):
        file.unlink()
    assert public(folder) == before


def test_a_published_page_names_what_it_omits_and_holds_none_of_it(
    folder: Path, page: str
) -> None:
    text = public(folder)
    for omitted in (
        "Attacks and their controls",
        "ledgers",
        "Sizes of messages",
        "shares of real rows",
    ):
        assert omitted in text
    holders = str(folder.parent)
    for private_word in (
        holders,
        "54.3 kB",
        "1.2 MB",
        "resampled",
        'class="real"',
        'id="attacks"',
        "Ledger of",
    ):
        assert private_word in page, f"{private_word} should stand on the holder's page"
        assert private_word not in text


def test_a_published_page_does_not_tell_what_is_left_in_a_holder_s_ledger(
    copied: Path,
) -> None:
    card = json.loads((copied / "generator" / "card.json").read_text())
    card["ended"] = (
        "ended after 3 of 4 rounds: clinic: this step costs ε=0.31 but 0.12 of 2.0 is "
        "left"
    )
    (copied / "generator" / "card.json").write_text(json.dumps(card))
    assert "ended after 3 of 4 rounds" in public(copied)
    assert "is left" not in public(copied)


def test_the_holder_s_page_says_that_it_is_private_and_is_readable_by_its_owner_alone(
    folder: Path, page: str
) -> None:
    assert "Only for the holder" in page
    assert stat.S_IMODE((folder / "report.html").stat().st_mode) == 0o600


def test_an_older_page_with_open_permissions_is_replaced(copied: Path) -> None:
    (copied / "synthetic.parquet").unlink()
    (copied / "report.html").unlink(missing_ok=True)
    (copied / "report.html").write_text("old")
    (copied / "report.html").chmod(0o666)
    private(copied)
    assert stat.S_IMODE((copied / "report.html").stat().st_mode) == 0o600


# --- one file, no requests


@pytest.fixture(scope="module", params=["private", "public"])
def either(request: pytest.FixtureRequest, folder: Path, page: str) -> str:
    return page if request.param == "private" else public(folder)


def test_a_page_is_well_formed_and_loads_nothing(either: str) -> None:
    page = Page(either)
    policy = next(
        m["content"]
        for m in page.all("meta")
        if m.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith(
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    )
    assert not {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "form",
        "input",
        "base",
    } & {tag for tag, _ in page.found}
    assert not re.search(r"https?:|url\(|@import|\bsrc=|\bon\w+=", either)
    assert all(str(a["href"]).startswith("#") for a in page.all("a"))


def test_every_link_leads_somewhere_and_every_picture_has_a_text(either: str) -> None:
    page = Page(either)
    ids = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert {str(a["href"])[1:] for a in page.all("a")} <= set(ids)
    for picture in page.all("svg"):
        nested = "preserveaspectratio" in picture
        assert (
            nested or picture.get("aria-hidden") == "true" or picture.get("aria-label")
        )
    levels = [int(tag[1]) for tag, _ in page.found if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_sections_are_there(page: str) -> None:
    sections = [s.get("id") for s in Page(page).all("section")]
    assert sections == [
        "verdict",
        "privacy",
        "utility",
        "correlations",
        "columns",
        "downstream",
        "attacks",
        "transcript",
        "reproduce",
    ]


def test_text_stands_out_from_its_ground_in_light_and_in_dark() -> None:
    """WCAG 2.2 AA: a contrast of at least 4.5."""

    def luminance(colour: str) -> float:
        colour = "".join(2 * c for c in colour) if len(colour) == 3 else colour
        parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)])
        linear = np.where(
            parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4
        )
        return float(linear @ [0.2126, 0.7152, 0.0722])

    blocks = [
        dict(re.findall(r"--(\w+): #([0-9a-f]+);", block))
        for block in STYLE.read_text().split(":root")[1:]
    ]
    assert len(blocks) == 2
    for theme in blocks:
        for ground in ("paper", "card", "warn"):
            for text in (
                "ink",
                "soft",
                "good",
                "partly",
                "poor",
                "unknown",
                "link",
                "synthetic",
            ):
                bright, dim = sorted(
                    (luminance(theme[ground]), luminance(theme[text])), reverse=True
                )
                assert (bright + 0.05) / (dim + 0.05) >= 4.5, f"{text} on {ground}"


def test_names_from_tables_cannot_become_markup_or_turn_a_line_around(
    tmp_path: Path,
) -> None:
    _, schema = toy(rows=2)
    evil = '<script>alert("x")</script>\u202e'
    columns = tuple(
        Categorical(name=evil, categories=("red", "green", "blue"), nullable=True)
        if i == 0
        else column
        for i, column in enumerate(schema.columns)
    )
    parts = {"<b>clinic": (evil, *PARTS["clinic"][1:]), "insurer": PARTS["insurer"]}
    folder = make_run(
        tmp_path, schema=Schema(columns=columns, person="id"), parts=parts
    )
    for text in (private(folder), public(folder)):
        assert "<script" not in text
        assert "<b>clinic" not in text
        assert "&lt;script&gt;" in text
        assert "\u202e" not in text  # it turns a line around
        Page(text)


# --- what is said


def test_the_page_shows_the_prices_of_the_statement(folder: Path, page: str) -> None:
    privacy = json.loads((folder / "privacy.json").read_text())
    for party in privacy["parties"]:
        assert f"<b>{shown(party['epsilon']['server'])}</b>" in page
    assert f"<b>ε = {shown(privacy['person']['epsilon']['server'])}</b>" in page
    for text in privacy["outside"]:
        assert text in page
    assert "The ledger and the statement agree on this run" in page


def test_the_page_says_whether_the_parties_charges_compose(copied: Path) -> None:
    compose = "they hold the same people, so their prices compose"
    together = "they paid together for one release"
    (copied / "synthetic.parquet").unlink()
    privacy = json.loads((copied / "privacy.json").read_text())
    for one_release in (False, True):
        privacy["person"]["one_release"] = one_release
        (copied / "privacy.json").write_text(json.dumps(privacy))
        text = private(copied)
        assert (compose in text, together in text) == (not one_release, one_release)


def test_a_ledger_that_holds_less_than_the_statement_says_is_called_short(
    copied: Path,
) -> None:
    privacy = json.loads((copied / "privacy.json").read_text())
    privacy["parties"][0]["epsilon"]["server"] *= 1.5
    (copied / "privacy.json").write_text(json.dumps(privacy))
    (copied / "synthetic.parquet").unlink()
    text = private(copied)
    assert (
        "the ledger records less than stated. Find out why before you publish." in text
    )
    assert "The ledger of clinic records less than stated." in text
    assert text.count("agree on this run") == 1


def test_a_party_can_look_at_its_own_table_alone(folder: Path, tmp_path: Path) -> None:
    text = private(folder, out=tmp_path / "r.html", parties=["insurer"])
    assert "Ledger of insurer" in text
    assert "Ledger of clinic" not in text
    assert "All 108 rows of insurer are compared" in text
    assert ">income " in text
    assert ">age " not in text
    assert "no 2 of the 2 columns belong to more than one party" in text


def test_an_unknown_party_or_target_is_an_error_in_words(folder: Path) -> None:
    with pytest.raises(ConfigError, match="pharmacy"):
        write_report(folder, parties=["pharmacy"])
    with pytest.raises(ConfigError, match="there is no column"):
        write_report(folder, target="incone")


def test_a_runs_own_target_is_predicted_unless_another_is_named_or_its_column_is_elsewhere(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(compare.__kwdefaults__, "models", ("linear",))
    file = copied / "generator" / "card.json"
    card = json.loads(file.read_text())
    file.write_text(
        json.dumps(card | {"config": card["config"] | {"target": "smoker"}})
    )
    assert "Models that predict “smoker”" in private(copied)
    assert "Models that predict “age”" in private(copied, target="age")
    assert "Models that predict" not in private(copied, parties=["insurer"])


# --- what is missing

PIECES = (
    "generator/card.json",
    "generator/schema.toml",
    "synthetic.parquet",
    "privacy.json",
    "transcript.json",
    "run.toml",
    "run.json",
)


@pytest.mark.parametrize("name", PIECES)
@pytest.mark.parametrize(
    "content", [None, "", "[3]", "\x00\x01"], ids=["gone", "empty", "other", "bytes"]
)
def test_a_missing_or_damaged_piece_leaves_a_page_that_says_so(
    copied: Path, name: str, content: str | None
) -> None:
    (copied / name).unlink()
    if content is not None:
        (copied / name).write_text(content)
    for write in (private, public) if content is None else (public,):
        text = write(copied)
        Page(text)
        assert name in text


@pytest.mark.parametrize(
    "body", ["{}", '{"parties": 3}', '{"person": null, "parties": []}']
)
def test_a_privacy_statement_without_sense_is_none(copied: Path, body: str) -> None:
    (copied / "privacy.json").write_text(body)
    (copied / "generator" / "card.json").write_text("{}")
    text = public(copied)
    assert "There is no usable privacy statement" in text
    assert "Do not publish" in text


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ArtefactError, match="holds no run"):
            write_report(folder)


def test_a_page_that_cannot_be_written_is_an_error_in_words(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtefactError, match="cannot be written"):
        write_report(folder, publish=True, out=tmp_path / "file" / "report.html")


def test_a_run_that_trained_a_model_has_a_page_without_rows(copied: Path) -> None:
    (copied / "generator").rename(copied / "model")
    (copied / "synthetic.parquet").unlink()
    text = private(copied)
    assert "the run trained a model and made no synthetic rows" in text
    assert "Missing from the folder" not in text
    assert "understudy sample" not in text
    assert "Settings of verti-gan" in text


def test_tables_that_cannot_be_read_leave_the_reason(tmp_path: Path) -> None:
    folder = make_run(tmp_path, rows=30)
    (tmp_path / "holders" / "clinic" / "table.csv").unlink()
    text = private(folder)
    assert "The table of clinic is left out" in text
    assert "pairs of columns" in text.lower()
    (tmp_path / "holders" / "insurer" / "table.csv").write_text("id,grade\n1,99\n")
    (tmp_path / "holders" / "insurer" / "book.ledger").write_text("no ledger")
    text = private(folder)
    assert "No real rows were compared" in text
    assert "It cannot be shown" in text
    assert 'class="synthetic"' in text


def test_tables_elsewhere_can_be_named(tmp_path: Path) -> None:
    folder = make_run(tmp_path, rows=60)
    expected = private(folder)
    body = tomllib.loads((folder / "run.toml").read_text())
    moved = {}
    for name, section in body["parties"].items():
        moved[name] = pd.read_csv(section["table"])
        section["table"] = "/nowhere/table.csv"
    (folder / "run.toml").write_text(tomli_w.dumps(body))
    assert private(folder, tables=moved) == expected


def test_one_party_alone_has_a_page(tmp_path: Path) -> None:
    columns = tuple(name for part in PARTS.values() for name in part)
    folder = make_run(tmp_path, rows=40, parts={"clinic": columns})
    text = private(folder)
    assert "another party" not in text
    assert "no 2 of the 6 columns belong to more than one party" in text


def test_a_model_section_shows_every_score_between_its_ends(tmp_path: Path) -> None:
    real, schema = toy(rows=300, seed=1)
    made, _ = toy(rows=300, seed=2)
    text = write_evaluation_page(
        compare(real, made, schema, target="smoker", models=("linear",)),
        tmp_path / "e.html",
        now=NOW,
    ).read_text()
    assert "Linear model" in text
    for score in ("AUC", "Accuracy", "Balanced accuracy", "Macro-F1"):
        assert f"<h3>{score}" in text
    assert "Two tables were compared" in text
    assert RUN not in text
    Page(text)


EDGES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "constant columns": lambda frame: frame.assign(**frame.iloc[0].to_dict()),
    "one row": lambda frame: frame[:1],
    "no rows": lambda frame: frame[:0],
    "no column in common": lambda frame: frame[["id"]],
    "values outside the schema": lambda frame: frame.assign(grade=77),
}


@pytest.mark.parametrize("which", ["real", "synthetic"])
@pytest.mark.parametrize("edge", EDGES)
def test_tables_at_the_edge_give_a_page_with_reasons(
    tmp_path: Path, edge: str, which: str
) -> None:
    real, schema = toy(rows=40, seed=1, person=None)
    real["smoker"], real["id"] = True, 1
    schema = schema.select(["grade", "smoker"])
    tables = {
        "real": real,
        "synthetic": real.copy(),
        "unseen": real[20:].reset_index(drop=True),
    }
    tables[which] = EDGES[edge](tables[which])
    if which == "real" and edge != "no rows":
        tables["unseen"] = EDGES[edge](tables["unseen"])
    comparison = compare(
        tables["real"], tables["synthetic"], schema, holdout=tables["unseen"]
    )
    text = write_evaluation_page(comparison, tmp_path / "e.html", now=NOW).read_text()
    Page(text)
    assert (
        "nan"
        not in re.sub(r"<style>.*</style>", "", text, flags=re.DOTALL).lower().split()
    )


AUDIT = {
    "claimed": 2.0,
    "delta": 1e-5,
    "confidence": 0.95,
    "trials": 400,
    "passed": True,
    "views": [{"adversary": "the server", "observed": 0.91239, "any_noise": 0.4}],
    "notes": ["party clinic"],
}


@pytest.fixture
def own(folder: Path, tmp_path: Path) -> Path:
    """A copy of the run's folder, to be changed."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def sections(page: str) -> list[str | None]:
    return [section.get("id") for section in Page(page).all("section")]


def test_an_audit_of_the_run_is_shown_to_everyone_and_rounded_down(own: Path) -> None:
    (own / "audit.json").write_text(json.dumps(AUDIT))
    for text in (private(own), public(own)):
        assert "audit" in sections(text)
        assert "0.912" in text
        assert "0.913" not in text


@pytest.mark.parametrize(
    "body", ["{}", "[]", "no", json.dumps({**AUDIT, "views": [1]})]
)
def test_a_damaged_audit_is_left_out(own: Path, body: str) -> None:
    (own / "audit.json").write_text(body)
    # which would be compared, and is not what this is about
    (own / "synthetic.parquet").unlink()
    assert "audit" not in sections(private(own))


def test_the_page_of_a_classifier_shows_how_it_learned_and_no_columns(
    own: Path,
) -> None:
    (own / "generator").rename(own / "model")
    card = json.loads((own / "model" / "card.json").read_text())
    history = [{"round": 10, "accuracy": 0.5}, {"round": 20, "accuracy": 0.8125}]
    (own / "model" / "card.json").write_text(json.dumps(card | {"history": history}))
    text = private(own)
    assert sections(text) == ["verdict", "privacy", "model", "transcript", "reproduce"]
    assert "after round 20" in text


def test_the_published_page_says_what_noise_moves_which_pairs_are_below_it_and_what_the_fit_misses(
    own: Path,
) -> None:
    card = json.loads((own / "generator" / "card.json").read_text())
    said = [
        "By the release, noise moves the shares of “grade” by about 12 %.",
        "Of 15 released pairs 4 show none.",
    ]
    quality = {
        "columns": {"grade": 0.12, "age": 0.01},
        "pairs": 15,
        "below_noise": 4,
        "fit_misses": 1,
        "said": said,
    }
    (own / "generator" / "card.json").write_text(
        json.dumps(card | {"quality": quality})
    )
    text = public(own)
    for sentence in said:
        assert sentence in text
    assert '◐ partly</span><div><p><a href="#columns">The release' in text
    assert "stand out of the noise in 11 of 15" in text
    for damaged in ({"columns": 3}, [], {"columns": {"grade": "x"}}):
        (own / "generator" / "card.json").write_text(
            json.dumps(card | {"quality": damaged})
        )
        assert "The release</a>" not in public(own)


@pytest.mark.parametrize("missed", [0, 1])
def test_the_head_of_a_page_says_once_what_the_fit_misses(
    own: Path, missed: int
) -> None:
    card = json.loads((own / "generator" / "card.json").read_text())
    said = f"The fit misses {missed} of 15 released pairs of columns."
    card |= {
        "expected": "200 people" + ("; the fit misses 1." if missed else "."),
        "fit": {"tables": 15, "missed": missed, "said": said},
        "quality": {"fit_misses": missed},
    }
    (own / "generator" / "card.json").write_text(json.dumps(card))
    head = private(own).split('<section id="')[0]
    assert head.count("fit misses") == 1
