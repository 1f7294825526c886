"""The command `pop-stream`, also as `python -m pop_stream`: the product's commands and the lab's."""

from pop_stream.cli.main import app, run
from pop_stream.lab.commands import add_commands

add_commands(app)


def main() -> None:
    """Run the command line; exits with 0, 1 for a failure, 2 for wrong usage."""
    run()


if __name__ == "__main__":
    main()
