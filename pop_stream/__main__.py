"""The command `pop-stream`, also as `python -m pop_stream`: the product and the lab."""

from pop_stream.cli.main import app, main
from pop_stream.lab.commands import add_commands

__all__ = ["app", "main"]

add_commands(app)

if __name__ == "__main__":
    main()
