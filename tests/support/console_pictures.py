"""Pictures of the console's pages for the documentation: `make pictures`.

Each page is taken light and dark, wide and narrow, with the system that the browser tests
have. The wide and light ones go to `docs/pictures`; all go to the folder that is named.
"""

import asyncio
import shutil
import sys
from pathlib import Path

from console_stack import OPERATOR, ConsoleStack, console_stack
from playwright.async_api import Page

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
PAGES = {
    "overview": "/ui/",
    "insight": "/ui/insights/render",
    "forecast": "/ui/insights/render/forecast?customer=beta&weight=6",
    "customer-queue": "/ui/insights/render/customers/acme",
    "agendas": "/ui/agendas?customer_id=acme",
    "agenda-running": "/ui/agendas/diamond",
    "agenda-waiting": "/ui/agendas/acme-39",
    "agenda-failed": "/ui/agendas/failed",
    "agenda-wide": "/ui/agendas/wide",
    "definitions": "/ui/definitions",
    "rules": "/ui/definitions/rules",
    "templates": "/ui/definitions/templates",
    "customer": "/ui/definitions/customers/acme",
    "customer-edit": "/ui/definitions/customers/acme/edit",
    "schedule": "/ui/definitions/schedules/yearly",
    "routing": "/ui/routing?template_id=trailer",
    "submit": "/ui/submit",
    "submit-form": "/ui/submit?template_id=trailer",
    "dead-letters": "/ui/dead-letters",
    "pullers": "/ui/pullers",
    "keys": "/ui/keys",
    "audit": "/ui/audit",
    "doctor": "/ui/doctor",
    "not-found": "/ui/agendas/none",
}
IN_DOCS = ("overview", "insight", "forecast", "customer-queue", "agenda-running")
SIZES = {"wide": {"width": 1360, "height": 900}, "narrow": {"width": 390, "height": 844}}
LOOKED_S = 15
"""So long somebody looks at an insight before its picture is taken: its chart begins then."""


async def take(page: Page, path: str, file: Path) -> None:
    await page.goto(path)
    await page.evaluate("document.activeElement?.blur()")
    await page.screenshot(path=file, full_page=True)


async def take_all(system: ConsoleStack, folder: Path) -> None:
    for theme in ("light", "dark"):
        for size, viewport in SIZES.items():
            async with system.viewer(
                OPERATOR, color_scheme=theme, viewport=viewport, reduced_motion="reduce"
            ) as page:
                for name, path in PAGES.items():
                    await take(page, path, folder / f"{name}-{theme}-{size}.png")


async def take_with_a_system(folder: Path) -> None:
    async with console_stack() as system:
        async with system.viewer(OPERATOR) as page:
            await page.goto("/ui/insights/render")
            await asyncio.sleep(LOOKED_S)
        await take_all(system, folder)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(take_with_a_system(folder))
    for name in IN_DOCS:
        shutil.copy(folder / f"{name}-light-wide.png", PICTURES / f"console-{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ".console-pictures"))
