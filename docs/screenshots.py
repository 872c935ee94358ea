"""Take the screenshots in docs/screenshots of a built site.

paceline site build --results results/published --output /tmp/site
python docs/screenshots.py /tmp/site
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

PAGES = {
    "home": "index.html",
    "board": "boards/collectives-all-reduce-*.html",
    "case": "cases/training-checkpoints-*.html",
    "claims": "claims.html",
}
"""Name of a screenshot → its page, the first one where several match."""
SIZES = {1440: 1000, 390: 844}
"""Widths and heights in pixels: a desktop and a telephone."""
TARGET = Path(__file__).parent / "screenshots"


def main() -> None:
    """Take every page at every size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("site", type=Path, help="folder of a built site")
    site = parser.parse_args().site.resolve()
    chromium = os.environ.get("PACELINE_CHROMIUM") or shutil.which("chromium")
    TARGET.mkdir(exist_ok=True)
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, pattern in PAGES.items():
            found = sorted(site.glob(pattern))
            if not found:
                parser.error(
                    f"{site} has no page {pattern}; build it with: paceline site build --output {site}"
                )
            for width, height in SIZES.items():
                page = browser.new_page(viewport={"width": width, "height": height})
                page.goto(found[0].as_uri())
                page.screenshot(path=TARGET / f"{name}-{width}.png")
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
