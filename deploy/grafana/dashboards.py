"""Makes the dashboards beside this file; with `--check` it says whether they are current.

A panel is a line of the tables below: a title, a unit, and its queries with their legends.
Every documented metric is on one, and a test puts each query to a real Prometheus.
`make dashboards` runs it.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from grafana_foundation_sdk.builders import common, dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    LegendDisplayMode,
    LegendPlacement,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import DataSourceRef, GridPos

HERE: Final = Path(__file__).parent

_SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 24


class Panel(NamedTuple):
    """One chart: each query with the legend of its lines."""

    title: str
    unit: str
    queries: Sequence[tuple[str, str]]
    description: str = ""


class Row(NamedTuple):
    """A heading, and the panels under it."""

    title: str
    panels: Sequence[Panel]


class Board(NamedTuple):
    """One dashboard; variables are names of labels, with the query of their values."""

    uid: str
    title: str
    rows: Sequence[Row]
    variables: Sequence[tuple[str, str]] = ()


def rate(metric: str, by: str = "", where: str = "") -> str:
    """The rate of a counter, by some labels; 0 for one that never counted."""
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({metric}{{{where}}}[$__rate_interval])) or vector(0)"


def quantile(q: float, metric: str, by: str = "", where: str = "") -> str:
    """A quantile of a histogram, by some labels."""
    labels = f"le, {by}" if by else "le"
    return (
        f"histogram_quantile({q}, sum by ({labels}) "
        f"(rate({metric}_bucket{{{where}}}[$__rate_interval])))"
    )


def quantiles(metric: str, by: str = "", where: str = "") -> list[tuple[str, str]]:
    """Its median and its 99th percentile."""
    legend = f"{{{{{by}}}}} " if by else ""
    return [(quantile(q, metric, by, where), f"{legend}p{q * 100:g}") for q in (0.5, 0.99)]


def gauge(metric: str, by: str, where: str = "", how: str = "sum") -> tuple[str, str]:
    """A gauge of all processes, by a label."""
    return f"{how} by ({by}) ({metric}{{{where}}})", f"{{{{{by}}}}}"


FLEET: Final = Board(
    "pop-stream-fleet",
    "pop_stream: the fleet",
    [
        Row(
            "Do customers get what they ask for?",
            [
                Panel(
                    "Submissions accepted", "ops", [(rate("submissions_accepted_total"), "")]
                ),
                Panel(
                    "Submissions refused, by the API and by ingest",
                    "ops",
                    [
                        (rate("submissions_refused_total", "code"), "{{code}}"),
                        (rate("pop_agendas_refused_total"), "ingest"),
                    ],
                ),
                Panel(
                    "Ends by state",
                    "ops",
                    [(rate("pop_submission_to_end_seconds_count", "state"), "{{state}}")],
                ),
                Panel(
                    "Wait up to the start",
                    "s",
                    quantiles("pop_submission_to_start_seconds", "insight"),
                ),
                Panel(
                    "From submission to end", "s", quantiles("pop_submission_to_end_seconds")
                ),
                Panel(
                    "Attempts lost and failed",
                    "ops",
                    [
                        (
                            rate(
                                "pop_attempts_folded_total", "outcome", 'outcome!="succeeded"'
                            ),
                            "{{outcome}}",
                        ),
                        (rate("pop_leases_expired_total"), "leases expired"),
                    ],
                ),
            ],
        ),
        Row(
            "The API",
            [
                Panel(
                    "Requests by status",
                    "reqps",
                    [(rate("http_requests_total", "status"), "{{status}}")],
                ),
                Panel(
                    "Server errors by route",
                    "reqps",
                    [(rate("http_requests_total", "route", 'status=~"5.."'), "{{route}}")],
                ),
                Panel("Time to answer", "s", quantiles("http_request_seconds")),
            ],
        ),
        Row(
            "Is there work, and who does it?",
            [
                Panel("Ready", "none", [gauge("pop_insight_ready", "insight")]),
                Panel(
                    "Eligible: waits for nothing but pullers",
                    "none",
                    [gauge("pop_insight_eligible", "insight")],
                ),
                Panel(
                    "Age of the oldest ready agenda",
                    "s",
                    [gauge("pop_insight_oldest_wait_seconds", "insight", how="max")],
                ),
                Panel(
                    "Pullers wanted",
                    "none",
                    [gauge("pop_insight_replicas_wanted", "insight", how="max")],
                ),
                Panel(
                    "Runners, and agendas that run",
                    "none",
                    [
                        ("sum(pop_puller_runners)", "runners"),
                        ("sum(pop_puller_running)", "claimed"),
                    ],
                ),
                Panel(
                    "Emitted",
                    "ops",
                    [(rate("pop_agendas_emitted_total", "insight"), "{{insight}}")],
                ),
            ],
        ),
    ],
)

_IN: Final = 'insight=~"$insight"'

INSIGHT: Final = Board(
    "pop-stream-insight",
    "pop_stream: one insight",
    [
        Row(
            "The backlog",
            [
                Panel(
                    "Agendas by what they wait for",
                    "none",
                    [
                        (f"sum(pop_insight_{name}{{{_IN}}})", name)
                        for name in ("ready", "eligible", "waiting", "held", "in_flight")
                    ],
                ),
                Panel(
                    "Worker-seconds that are eligible",
                    "s",
                    [(f"sum(pop_insight_eligible_seconds{{{_IN}}})", "eligible")],
                ),
                Panel(
                    "Pullers wanted",
                    "none",
                    [(f"max(pop_insight_replicas_wanted{{{_IN}}})", "wanted")],
                ),
                Panel(
                    "Age of the oldest, and recent mean wait",
                    "s",
                    [
                        (f"max(pop_insight_oldest_wait_seconds{{{_IN}}})", "oldest"),
                        (f"max(pop_insight_wait_seconds{{{_IN}}})", "mean wait"),
                    ],
                ),
                Panel(
                    "The topic: unclaimed, and aimed at",
                    "none",
                    [
                        (f"sum(pop_insight_lag{{{_IN}}})", "unclaimed"),
                        (f"sum(pop_insight_target{{{_IN}}})", "target"),
                    ],
                ),
                Panel(
                    "Health",
                    "percentunit",
                    [gauge("pop_insight_health", "insight", _IN, "min")],
                ),
                Panel(
                    "Emitted and claimed",
                    "ops",
                    [
                        (rate("pop_agendas_emitted_total", where=_IN), "emitted"),
                        (f"sum(pop_insight_rate{{{_IN}}})", "claimed"),
                    ],
                ),
                Panel(
                    "Memory of its agendas",
                    "bytes",
                    [(f"sum(pop_insight_bytes{{{_IN}}})", "bodies")],
                ),
            ],
        ),
        Row(
            "Waits and ends",
            [
                Panel(
                    "Submission to emission",
                    "s",
                    quantiles("pop_submission_to_emission_seconds", where=_IN),
                ),
                Panel(
                    "Submission to start",
                    "s",
                    quantiles("pop_submission_to_start_seconds", where=_IN),
                ),
                Panel(
                    "Submission to end",
                    "s",
                    quantiles("pop_submission_to_end_seconds", where=_IN),
                ),
                Panel(
                    "Ends by state",
                    "ops",
                    [(rate("pop_submission_to_end_seconds_count", "state", _IN), "{{state}}")],
                ),
                Panel(
                    "Attempts by outcome",
                    "ops",
                    [(rate("pop_attempts_folded_total", "outcome", _IN), "{{outcome}}")],
                ),
                Panel(
                    "Failed for good, leases expired, commands ignored",
                    "ops",
                    [
                        (rate("pop_agendas_failed_total", "code", _IN), "{{code}}"),
                        (rate("pop_leases_expired_total", where=_IN), "leases expired"),
                        (rate("pop_commands_ignored_total", where=_IN), "commands ignored"),
                        (rate("pop_costs_overdeclared_total", where=_IN), "costs overdeclared"),
                    ],
                ),
            ],
        ),
        Row(
            "Fairness",
            [
                Panel(
                    "Gap, and what it cannot exceed",
                    "s",
                    [
                        (f"max(pop_insight_gap_seconds{{{_IN}}})", "gap"),
                        (f"max(pop_insight_bound_seconds{{{_IN}}})", "bound"),
                    ],
                    "Worker-seconds per weight.",
                ),
                Panel(
                    "Share by customer; 1 is fair",
                    "none",
                    [gauge("pop_customer_share", "customer", _IN, "avg")],
                ),
                Panel(
                    "Ready by customer", "none", [gauge("pop_customer_ready", "customer", _IN)]
                ),
                Panel(
                    "In flight by customer",
                    "none",
                    [gauge("pop_customer_in_flight", "customer", _IN)],
                ),
                Panel(
                    "Recent mean wait by customer",
                    "s",
                    [gauge("pop_customer_wait_seconds", "customer", _IN, "max")],
                ),
            ],
        ),
    ],
    [("insight", "label_values(pop_insight_ready, insight)")],
)

_OF: Final = 'customer=~"$customer"'

CUSTOMER: Final = Board(
    "pop-stream-customer",
    "pop_stream: one customer",
    [
        Row(
            "What it has, by insight",
            [
                Panel("Ready", "none", [gauge("pop_customer_ready", "insight", _OF)]),
                Panel("In flight", "none", [gauge("pop_customer_in_flight", "insight", _OF)]),
                Panel(
                    "Share; 1 is fair",
                    "none",
                    [gauge("pop_customer_share", "insight", _OF, "avg")],
                ),
                Panel(
                    "Recent mean wait",
                    "s",
                    [gauge("pop_customer_wait_seconds", "insight", _OF, "max")],
                ),
                Panel(
                    "Its part of what is in flight",
                    "percentunit",
                    [
                        (
                            f"sum by (insight) (pop_customer_in_flight{{{_OF}}})"
                            " / (sum by (insight) (pop_customer_in_flight) > 0) or vector(0)",
                            "{{insight}}",
                        )
                    ],
                ),
            ],
        ),
    ],
    [("customer", "label_values(pop_customer_ready, customer)")],
)

PARTS: Final = Board(
    "pop-stream-parts",
    "pop_stream: parts and Kafka",
    [
        Row(
            "Do parts keep up?",
            [
                Panel(
                    "Records not handled, by group",
                    "none",
                    [
                        gauge("pop_consumer_lag", "group"),
                        ("sum(pop_scheduler_lag)", "scheduler"),
                    ],
                ),
                Panel(
                    "Age of the oldest of these",
                    "s",
                    [
                        gauge("pop_consumer_age_seconds", "group", how="max"),
                        ("max(pop_scheduler_behind_seconds)", "scheduler"),
                    ],
                ),
                Panel(
                    "Age of outboxes",
                    "s",
                    [gauge("pop_outbox_age_seconds", "outbox", how="max")],
                ),
                Panel(
                    "Delay of event loops",
                    "s",
                    [
                        (
                            quantile(0.99, "pop_event_loop_delay_seconds", "job, instance"),
                            "{{instance}}",
                        )
                    ],
                ),
                Panel("A round, written", "s", quantiles("pop_round_seconds")),
                Panel(
                    "A batch, written to Postgres", "s", quantiles("pop_postgres_write_seconds")
                ),
                Panel(
                    "Lifecycle events folded",
                    "ops",
                    [(rate("pop_events_folded_total", "result"), "{{result}}")],
                ),
                Panel("Event streams open", "none", [("sum(event_streams)", "streams")]),
            ],
        ),
        Row(
            "What should not be",
            [
                Panel(
                    "Dead letters",
                    "ops",
                    [(rate("pop_dead_letters_total", "part"), "{{part}}")],
                ),
                Panel(
                    "Records skipped and left out",
                    "ops",
                    [
                        (rate("pop_unreadable_records_total", "topic"), "unreadable {{topic}}"),
                        (rate("pop_unwritable_records_total", "topic"), "unwritable {{topic}}"),
                    ],
                ),
                Panel(
                    "Spans exported and dropped",
                    "ops",
                    [(rate("pop_spans_total", "result"), "{{result}}")],
                    "While a collector hangs or is away they are dropped, and nothing else is.",
                ),
                Panel(
                    "Reconciliations, and agendas requeued",
                    "ops",
                    [
                        (rate("pop_reconciliations_total", "result"), "{{result}}"),
                        (rate("pop_agendas_requeued_total"), "requeued"),
                    ],
                ),
            ],
        ),
        Row(
            "Pullers",
            [
                Panel(
                    "Runners and claimed agendas",
                    "none",
                    [
                        gauge("pop_puller_runners", "instance"),
                        ("sum(pop_puller_running)", "claimed, all"),
                    ],
                ),
                Panel(
                    "Attempts ended",
                    "ops",
                    [(rate("pop_attempts_ended_total", "outcome"), "{{outcome}}")],
                ),
                Panel("An operation, by type", "s", quantiles("pop_operation_seconds", "type")),
                Panel(
                    "Operations by outcome",
                    "ops",
                    [(rate("pop_operation_seconds_count", "outcome"), "{{outcome}}")],
                ),
            ],
        ),
        Row(
            "Processes",
            [
                Panel(
                    "Processor",
                    "none",
                    [(rate("process_cpu_seconds_total", "job, instance"), "{{instance}}")],
                ),
                Panel(
                    "Memory",
                    "bytes",
                    [
                        gauge("process_resident_memory_bytes", "instance"),
                        ("max(process_virtual_memory_bytes)", "largest address space"),
                    ],
                ),
                Panel(
                    "Open files, as part of what may be open",
                    "percentunit",
                    [("process_open_fds / process_max_fds", "{{instance}}")],
                ),
                Panel("Up for", "s", [("time() - process_start_time_seconds", "{{instance}}")]),
            ],
        ),
    ],
)

BOARDS: Final = (FLEET, INSIGHT, CUSTOMER, PARTS)


def render(board: Board) -> str:
    """The dashboard as JSON, as Grafana imports it."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .tags(["pop_stream"])
        .editable()
        .refresh("30s")
        .time("now-1h", "now")
        .with_variable(dashboard.DatasourceVariable("datasource").type("prometheus"))
    )
    for name, values in board.variables:
        made = made.with_variable(
            dashboard.QueryVariable(name)
            .datasource(_SOURCE)
            .query(values)
            .include_all(include_all=True)
            .multi(multi=True)
        )
    for made_row, panels in _placed(board):
        made = made.with_row(made_row)
        for panel in panels:
            made = made.with_panel(panel)
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


def _placed(board: Board) -> Iterator[tuple[dashboard.Row, list[timeseries.Panel]]]:
    """Rows from top to bottom, with their panels three to a line."""
    y = 0
    for row in board.rows:
        heading = dashboard.Row(row.title).grid_pos(GridPos(h=1, w=_COLUMNS, x=0, y=y))
        y += 1
        panels = []
        for number, panel in enumerate(row.panels):
            line, column = divmod(number, _COLUMNS // _WIDTH)
            place = GridPos(h=_HEIGHT, w=_WIDTH, x=column * _WIDTH, y=y + line * _HEIGHT)
            panels.append(_panel(panel).grid_pos(place))
        yield heading, panels
        y += _HEIGHT * -(-len(row.panels) // (_COLUMNS // _WIDTH))


def _panel(panel: Panel) -> timeseries.Panel:
    made = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.description)
        .unit(panel.unit)
        .min(0)
        .datasource(_SOURCE)
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
        .legend(
            common.VizLegendOptions()
            .show_legend(show_legend=True)
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
        )
    )
    for number, (query, legend) in enumerate(panel.queries):
        made = made.with_target(
            prometheus.Dataquery()
            .expr(query)
            .legend_format(legend or "all")
            .exemplar("_bucket" in query)
            .ref_id(chr(ord("A") + number))
        )
    return made


def main(arguments: Sequence[str]) -> int:
    """Write the dashboards, or with `--check` name those that are not current."""
    stale = []
    for board in BOARDS:
        path, text = HERE / f"{board.uid.removeprefix('pop-stream-')}.json", render(board)
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if "--check" not in arguments:
                path.write_text(text)
    if stale and "--check" in arguments:
        sys.stderr.write(f"not current, run `make dashboards`: {', '.join(stale)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
