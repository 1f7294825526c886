"""Helpers of `test_submission_processor.py` and of other tests."""

from pop_stream.ingest.submission_processor import SubmissionProcessor
from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Definitions, Insight, Mappers

TOPICS = Topics("t.")


DEFINITIONS = Definitions(
    insights={
        "media": Insight(id="media", mappers=Mappers(operation_types=("cut",))),
        "video": Insight(id="video", mappers=Mappers(operation_types=("film",))),
    }
)

SORTER = SubmissionProcessor(TOPICS, DEFINITIONS, max_agenda_bytes=512 * 1024)
