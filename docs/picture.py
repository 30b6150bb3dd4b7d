"""Make docs/report.png, the README's picture of a report: the demo's page, down to the
end of its verdict.

    make picture

It runs the demo and opens its page in Chromium, 1280 pixels wide and light. The demo's
rows are public: this page of a holder's, which figures from real rows stand on, may be
shown. `--page` takes a page that is there already.
"""

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from understudy.api.demo import run_demo

OUT = Path(__file__).parent / "report.png"
WIDTH = 1280
HEIGHT = 1054
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    None,
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-sync",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    f"--window-size={WIDTH},{HEIGHT}",
)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    options.add_argument(
        "--page", type=Path, help="a report.html; default: the demo is run for one"
    )
    options.add_argument("--out", type=Path, default=OUT)
    chosen = options.parse_args()
    if CHROMIUM is None:
        raise SystemExit(
            "There is no Chromium here: install it to make the picture. Nothing was "
            "written."
        )
    with tempfile.TemporaryDirectory() as scratch:
        page = (
            chosen.page
            or run_demo(Path(scratch) / "demo", say=lambda _: None) / "report.html"
        )
        profile = f"--user-data-dir={scratch}/profile"
        goal = f"--screenshot={chosen.out.resolve()}"
        subprocess.run(
            [CHROMIUM, *FLAGS, profile, goal, page.resolve().as_uri()],
            check=True,
            capture_output=True,
        )


if __name__ == "__main__":
    main()
