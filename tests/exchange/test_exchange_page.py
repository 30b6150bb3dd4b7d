"""The exchange's pages: what they show and to whom, and how they stand in a real
browser.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from browser import Browser
from exchange_cases import LABELS, Served, generator, served

from understudy.privacy.accounts.budget import best_guess
from understudy.services.exchange.serve import OPERATOR

WIDTHS = (390, 1280)

# The pages have no script, so another page measures them in frames: what sticks out,
# but for scrolled tables.
MEASURE = """<!doctype html><meta charset="utf-8"><body>%s<script>
addEventListener("load", () => { for (const frame of document.querySelectorAll("iframe")) {
  const page = frame.contentDocument, width = frame.clientWidth;
  const inside = e => (e.closest(".box") && e !== e.closest(".box")) || (e.closest("pre") && e !== e.closest("pre"));
  const off = [...page.body.querySelectorAll("*")].filter(
    e => !inside(e) && e.getBoundingClientRect().right > width + 1);
  const said = document.createElement("p");
  said.textContent = `width ${width}: page ${page.documentElement.scrollWidth}, title ${page.title}, ` +
    `off ${off.map(e => e.tagName).join(" ")}.`;
  document.body.append(said);
}});
</script>"""


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("page")) as exchange:
        for number, silo in enumerate(("north", "south", "east")):
            with exchange.member(silo) as member:
                for label in LABELS[: number + 1]:
                    card = {
                        "epsilon": 0.5 + number / 4,
                        "note": "<script>alert(1)</script>",
                    }
                    member.push("ward", generator(silo, label, seed=number, **card))
        yield exchange


@pytest.fixture(scope="module")
def reader(exchange: Served) -> Iterator[httpx.Client]:
    with exchange.member("reader"):
        auth = ("reader", exchange.token("reader"))
    with httpx.Client(
        base_url=exchange.address,
        auth=auth,
        headers={"Accept": "text/html"},
        verify=False,
        timeout=60,
    ) as reader:
        yield reader


def test_the_page_of_a_pool_says_who_offers_what_at_which_price(
    exchange: Served, reader: httpx.Client
) -> None:
    page = reader.get("/pools/ward").text
    for offer in exchange.exchange.offers(OPERATOR, "ward"):
        assert f"/pools/ward/{offer.digest}" in page
        assert f"/v1/pools/ward/offers/{offer.digest}/file" in page
    assert page.count("north</th>") == 1
    assert "ε 0.5</td>" in page
    assert "10⁻⁶" in page
    assert "what the silo states" in page
    assert page.count("<h3>") == len(LABELS)  # a look at each class
    having = re.search(r"silos in all</th>(.*?)</tr>", page)
    assert having
    assert re.findall(r">(\w+)</td>", having[1]) == ["3", "2"]


def test_the_price_of_every_offer_is_said_in_words_and_no_record_of_rows_is_linked(
    exchange: Served, reader: httpx.Client
) -> None:
    pool = reader.get("/pools/ward").text
    offers = exchange.exchange.offers(OPERATOR, "ward")
    for offer in offers:
        sentence = best_guess(offer.epsilon, offer.delta).in_words()
        page = reader.get(f"/pools/ward/{offer.digest}").text
        assert sentence in pool
        assert sentence in page
        assert page.count('<meter min="50" max="100"') == 1
    assert pool.count('<meter min="50" max="100"') == len(offers) + 1, (
        "and what the pool takes at most"
    )
    assert "croissant" not in pool.lower(), "generators are here, and no rows"


def test_offers_can_be_chosen_without_a_script(reader: httpx.Client) -> None:
    def shown(**query: str) -> int:
        return reader.get("/pools/ward", params=query).text.count(">download</a>")

    everything = shown()
    assert 0 < shown(epsilon="0.5") < everything
    assert shown(silo="south") + shown(silo="north") + shown(silo="east") == everything
    assert shown(epsilon="0,5") == shown(epsilon="0.5")
    assert shown(epsilon="no number") == everything
    assert shown(label='"<script>"') == 0


def test_a_download_from_the_page_is_the_file(
    exchange: Served, reader: httpx.Client
) -> None:
    place = re.search(
        r'href="(/v1/pools/ward/offers/(\w+)/file)" download',
        reader.get("/pools/ward").text,
    )
    assert place
    answer = reader.get(place[1])
    assert answer.content == exchange.exchange.store.path(place[2]).read_bytes()
    assert answer.headers["content-disposition"].startswith("attachment")


def test_texts_of_silos_are_shown_as_text(
    exchange: Served, reader: httpx.Client
) -> None:
    digest = exchange.exchange.offers(OPERATOR, "ward")[0].digest
    page = reader.get(f"/pools/ward/{digest}").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script" not in page


def test_pages_refuse_in_words_and_forbid_whatever_is_not_theirs(
    exchange: Served, reader: httpx.Client
) -> None:
    for place, status in (
        ("/pools/other", 404),
        (f"/pools/ward/{'0' * 64}", 404),
        ("/pools/ward/nothing", 422),
        ("/nothing/at/all", 404),
    ):
        refusal = reader.get(place)
        assert refusal.status_code == status
        assert "<h1>" in refusal.text
    answer = httpx.get(exchange.address, headers={"Accept": "text/html"})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic")
    assert "<h1>Who are you?</h1>" in answer.text
    policy = reader.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy


def test_the_pages_fit_a_phone_and_a_screen(
    exchange: Served, reader: httpx.Client, browser: Browser, tmp_path: Path
) -> None:
    digest = exchange.exchange.offers(OPERATOR, "ward")[0].digest
    places = ("/", "/pools/ward", f"/pools/ward/{digest}", "/pools/other")
    frames = ""
    for number, place in enumerate(places):
        (tmp_path / f"{number}.html").write_text(reader.get(place).text)
        for width in WIDTHS:
            frames += (
                f'<iframe src="{number}.html" '
                f'style="border:0;width:{width}px;height:800px"></iframe>'
            )
    (tmp_path / "measure.html").write_text(MEASURE % frames)
    browser.go((tmp_path / "measure.html").as_uri())
    found = re.findall(
        r"<p>width (\d+): page (\d+), title (.*?), off (.*?)\.</p>", browser.dom()
    )
    assert len(found) == len(places) * len(WIDTHS)
    for width, page, title, off in found:
        assert "understudy exchange" in title
        assert int(page) <= int(width), (title, off)
        assert not off.strip(), (title, width, off)


def test_a_browser_gets_in_with_name_and_token_and_logs_nothing(
    exchange: Served, browser: Browser
) -> None:
    with exchange.member("visitor"):
        token = exchange.token("visitor")
    browser.go(f"{exchange.address.replace('//', f'//visitor:{token}@')}/pools/ward")
    assert "Who offers which class of smoker" in browser.text()
    assert not browser.complaints()
