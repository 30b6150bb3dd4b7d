"""The console in a real browser: it fits a phone, follows the night, and can be used by
keys alone.
"""

from pathlib import Path

import pytest
from browser import Browser
from console_cases import console, contract, holder, hub

from understudy.network.decisions import DecisionQueue
from understudy.privacy.accounts.ledger import Ledger

ONE = contract("gram-1", target="smoker")

# Elements beyond the right edge (tables scroll in their boxes), and what a screen
# reader would miss.
MEASURE = """(() => {
  const all = (what) => [...document.querySelectorAll(what)], wide = document.documentElement.clientWidth;
  const named = e => e.labels?.length || e.getAttribute("aria-label") || e.textContent.trim() || e.type === "hidden";
  return {
    wide: document.documentElement.scrollWidth - wide,
    off: all("body *").filter(e => !e.closest(".box, pre, .skip") && e.getBoundingClientRect().right > wide + 1)
      .map(e => e.tagName + "." + e.className),
    nameless: all("input, button, select, a, [role=img], [role=region], nav").filter(e => !named(e))
      .map(e => e.outerHTML),
    headless: all("table").filter(t => !t.querySelector("thead th[scope=col]")).length,
    landmarks: ["header", "nav", "main", "footer", "h1"].map(what => all(what).length),
    language: document.documentElement.lang,
    paper: getComputedStyle(document.body).backgroundColor,
  };
})()"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return holder(tmp_path / "holder", ONE, contract("gram-2", epsilon=7.0))


def test_every_page_fits_a_phone_and_has_a_name_for_everything(
    browser: Browser, home: Path, tmp_path: Path
) -> None:
    papers = set()
    with console(home) as (mine, _), console(hub(tmp_path / "hub")) as (theirs, _):
        for link, paths in (
            (mine, ("", "runs", "ledger", f"contracts/{ONE.digest}", "nowhere")),
            (theirs, ("",)),
        ):
            browser.go(link)
            for path in paths:
                browser.go(link.partition("?")[0] + path)
                for width, dark in ((390, True), (1280, False)):
                    browser.look(width=width, dark=dark)
                    found = browser.js(MEASURE)
                    where = f"{path or '/'} at {width}"
                    assert found["wide"] <= 0, where
                    assert found["off"] == [], where
                    assert found["nameless"] == [], where
                    assert found["headless"] == 0, where
                    assert found["landmarks"] == [1, 1, 1, 1, 1], where
                    assert found["language"] == "en"
                    papers.add((dark, found["paper"]))
    assert len(papers) == 2, "one colour by day, another by night"
    said = [line for line in browser.complaints() if "404" not in line]
    assert said == []


def test_a_contract_is_accepted_and_a_budget_raised_without_a_mouse(
    browser: Browser, home: Path
) -> None:
    def tab_to(words: str) -> None:
        for _ in range(40):
            browser.press("Tab")
            if words in browser.js(
                "(e => e.labels?.[0]?.innerText || e.innerText)(document.activeElement)"
            ):
                return
        raise AssertionError(f"{words!r} cannot be reached: {browser.text()}")

    with console(home) as (link, _):
        browser.go(link)
        assert browser.js("document.cookie") == "", "no script can read it"
        browser.press("Tab")
        assert "To the content" in browser.js("document.activeElement.innerText")
        first = browser.js(
            "document.querySelector('article h3').innerText.split(' ')[0]"
        )
        tab_to("Accept this contract")
        assert (
            browser.js("getComputedStyle(document.activeElement).outlineStyle")
            == "solid"
        ), "the focus is seen"
        browser.press("Enter", loads=True)
        assert "The contract is accepted." in browser.text()
        assert {one.run for one in DecisionQueue(home=home).waiting()} == {
            "gram-1",
            "gram-2",
        } - {first}
        tab_to("Ledger and budget")
        browser.press("Enter", loads=True)
        tab_to("New ε, in all")
        browser.type("9.5")
        tab_to("Reason")
        browser.type("one more study")
        browser.press("Enter", loads=True)
        assert "one more study" in browser.text()
    with Ledger(home / "clinic.ledger") as book:
        assert book.budget.epsilon == 9.5


def test_another_page_in_the_same_browser_can_neither_send_a_form_nor_read(
    browser: Browser, home: Path, tmp_path: Path
) -> None:
    with console(home) as (link, keys):
        browser.go(link)  # so that the cookie is there
        action = f"{link.partition('?')[0]}contracts/{ONE.digest}"
        page = tmp_path / "evil.html"
        page.write_text(
            f'<form method="post" action="{action}"><input name="form" '
            f'value="{keys.form}">'
            '<button name="decision" value="accept">Win</button></form>'
        )
        browser.go(page.as_uri())
        browser.click("button")
        assert "another page" in browser.text()
        browser.go(page.as_uri())
        browser.call(
            "Runtime.evaluate",
            awaitPromise=True,
            expression=(
                f"fetch('{link.partition('?')[0]}', {{credentials: 'include'}}).then(a "
                "=> a.text()).then(t => window.got = t, e => window.got = 'stopped')"
            ),
        )
        assert browser.js("window.got") == "stopped"
    assert {one.run for one in DecisionQueue(home=home).waiting()} == {
        "gram-1",
        "gram-2",
    }
