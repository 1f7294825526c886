"""`manage.py pop_stream_worker`: a puller that runs tasks."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from pop_stream.integrations.django.worker import task_handlers
from pop_stream.puller import Puller


class WorkerCommand(BaseCommand):
    """Serves until SIGTERM or SIGINT; a second signal ends it at once."""

    help = "Run enqueued tasks: a puller of the insights that they are routed to."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """What to pull, and how much of it at a time."""
        parser.add_argument(
            "--insight", action="append", required=True, help="may be given again"
        )
        parser.add_argument(
            "--concurrency",
            type=int,
            default=None,
            help="tasks at a time; POP_PULLER_CONCURRENCY if not given",
        )

    def handle(self, **options: Any) -> None:  # noqa: ANN401  # as Django calls it
        """Pull until a signal.

        Raises:
            CommandError: If a value is of no use.
        """
        try:
            puller = Puller(
                insights=options["insight"],
                handlers=task_handlers(),
                concurrency=options["concurrency"],
            )
        except ValueError as error:
            raise CommandError(str(error)) from None
        puller.run()


Command = WorkerCommand
"""The name under which Django looks for it."""
