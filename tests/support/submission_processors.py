"""Helpers of `test_submission_processor.py` and of other tests."""

from pop_stream.ingest.submission_processor import SubmissionProcessor
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Insight, Mappers
from pop_stream.policy.ingress.routing import InsightRouter

TOPICS = Topics("t.")


SORTER = SubmissionProcessor(
    TOPICS,
    InsightRouter(
        [
            Insight(id="media", mappers=Mappers(operation_types=("cut",))),
            Insight(id="video", mappers=Mappers(operation_types=("film",))),
        ]
    ),
    max_agenda_bytes=512 * 1024,
)
