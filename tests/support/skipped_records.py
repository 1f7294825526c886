"""What readers of this process skipped, by the metric that says so."""

from collections.abc import Mapping

from pop_stream.kafka.unreadable_records import UNREADABLE_RECORDS


def skipped_records() -> Mapping[str, int]:
    """How many unreadable records were skipped so far, by topic."""
    return {
        sample.labels["topic"]: int(sample.value)
        for family in UNREADABLE_RECORDS.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }
