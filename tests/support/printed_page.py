"""A page of the documentation as its reader follows it: files are written, commands are run."""

import os
import re
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


class PrintedPage:
    """The code blocks of a page.

    Attributes:
        folder: Where files are written and commands run.
    """

    def __init__(self, name, folder):
        self.folder = folder
        self._text = (DOCS / name).read_text()

    def block(self, starts, language):
        """The only block of a language that has the text."""
        pattern = rf"^```{language}\n(.*?)^```"
        found = re.findall(pattern, self._text, re.DOTALL | re.MULTILINE)
        (block,) = [one for one in found if starts in one]
        return block

    def commands(self, has):
        """The commands of the block that has the text, without prompts."""
        lines = self.block(has, "console").splitlines()
        return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]

    def write(self, path, has, language="python"):
        """Write the block with the text to a file, or add it to one that exists."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("a") as file:
            file.write(self.block(has, language))

    def environment(self, settings, url):
        """What the page has the reader export, with the addresses of this test's servers."""
        return os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "POP_KAFKA_BOOTSTRAP": settings.kafka_bootstrap,
            "POP_TOPIC_PREFIX": settings.topic_prefix,
            "POP_API_URL": url,
        }
