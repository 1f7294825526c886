"""Traces as they are found: CSV by other names, SWF, packed; and all that is wrong in one."""

import gzip
import random
import tracemalloc

import pytest

from pop_stream.lab.simulate import trace_file
from pop_stream.lab.simulate.trace_columns import parse_columns
from pop_stream.lab.simulate.trace_file import read_trace
from pop_stream.operations.errors import UsageError

SWF_HEADER = """\
; Version: 2.2
; Computer: of no make, drawn by lot \xe9
; MaxProcs: 64
"""


def job(number, submit, run, **fields):
    """A line of SWF."""
    reported = {"group": 1, "queue": 3, "processors": 1, "status": 1, "user": 1, **fields}
    reported |= {"job": number, "submit_time": submit, "run_time": run}
    return " ".join(str(reported.get(name, -1)) for name in trace_file.SWF_FIELDS) + "\n"


@pytest.fixture
def read(tmp_path):
    """Read such a file, as `simulate --trace` does."""

    def read(content, columns=None, **options):
        path = tmp_path / "trace"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_trace(path, parse_columns(columns), **options)

    return read


def arrivals(file, insight="work"):
    return [(one.at, one.customer_id, one.runtime_s) for one in file.traces[insight]]


def faults(read, *arguments, **options):
    with pytest.raises(UsageError) as refused:
        read(*arguments, **options)
    return str(refused.value).splitlines()


# ---- SWF ----


def test_a_job_of_swf_is_an_agenda_of_its_user(read):
    text = SWF_HEADER + job(1, 100, 60, user=7) + "\n" + job(2, 90, 30.5, user=8, executable=4)
    file = read(text.encode("latin-1"))
    assert arrivals(file) == [(0, "8", 30.5), (10, "7", 60)]
    assert [one.operation_type for one in file.traces["work"]] == ["4", "work"]
    assert (file.skipped, file.wide, file.ignored) == (0, 0, ())


@pytest.mark.parametrize(
    ("processors", "expected"),
    [
        ("seconds", [(0, "1", 240)]),
        ("agendas", [(0, "1", 60)] * 4),
        ("ignored", [(0, "1", 60)]),
    ],
)
@pytest.mark.parametrize(
    "counts", [{"processors": 4}, {"processors": -1, "requested_processors": 4}]
)
def test_a_job_of_several_processors_counts_as_was_asked(read, processors, expected, counts):
    file = read(job(1, 0, 60, **counts), processors=processors)
    assert arrivals(file) == expected
    assert file.wide == 1


def test_a_declared_cost_of_several_processors_counts_as_often(read):
    text = "submit_s,customer,runtime_s,cost,processors\n0,a,60,50,4\n0,b,60,,\n"
    [one, other] = read(text).traces["work"]
    assert (one.runtime_s, one.cost_s) == (240, 200)
    assert (other.runtime_s, other.cost_s) == (60, None)


def test_jobs_that_never_ran_are_left_out_and_counted(read):
    never = [
        job(1, 0, -1),
        job(2, 0, 0, status=5),
        job(3, 0, 0, processors=0, requested_processors=0),
        job(4, 0, "-1.00"),
        job(5, 0, -1359980917),
    ]
    ran = [
        job(6, 0, 0),
        job(7, 0, 9, status=5),
        job(8, 0, 9, processors=-1, requested_processors=-1),
    ]
    file = read("".join([*never, *ran]))
    assert file.skipped == 5
    assert arrivals(file) == [(0, "1", 0), (0, "1", 9), (0, "1", 9)]


def test_fields_of_swf_are_mapped_by_their_names(read):
    file = read(job(1, 0, 60), "customer=group, insight=queue, cost=run_time")
    [one] = file.traces["3"]
    assert (one.customer_id, one.cost_s) == ("1", 60)


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        (job(2, 0, 60, user=-1), "column customer (user): '' is no customer"),
        (job(2, -1, 60), "column submit_s (submit_time): '' is no number"),
        (job(2, 0, 2e7), "column runtime_s (run_time): '20000000.0' is out of range"),
        (job(2, 0, 60, processors=2.5), "column processors: '2.5' is no count"),
        (job(2, 0, 1e6, processors=64), "column processors: 64 times 1e+06 s are over 1e+07"),
        ("2 0 -1 60\n", "4 fields where the header has 14 or more; add what is missing"),
    ],
)
def test_a_job_that_cannot_be_used_is_refused_by_line_and_field(read, line, reported):
    [fault] = faults(read, SWF_HEADER + job(1, 0, 60) + line)
    assert reported in fault
    assert "trace, line 5" in fault


def test_a_trace_of_lots_is_read_as_it_was_written(read):
    lots = random.Random(20)
    jobs = [(at, lots.randint(0, 9), lots.randint(1, 3_600)) for at in range(1_000)]
    text = SWF_HEADER + "".join(
        job(number, at, run, user=user) for number, (at, user, run) in enumerate(jobs)
    )
    assert arrivals(read(text)) == [(at, str(user), run) for at, user, run in jobs]


# ---- CSV ----

SACCT = "JobID,User,Submit,ElapsedRaw,Comment\n1,ann,2026-01-31T08:30:00,60,x\n"


def test_columns_have_the_names_that_they_are_given(read):
    file = read(
        SACCT + "2,bob,2026-01-31T09:30:30+01:00,90,\n",
        "customer=user, submitted=submit, seconds=ELAPSEDRAW",
    )
    assert arrivals(file) == [(0, "ann", 60), (30, "bob", 90)]
    assert file.ignored == ["jobid", "comment"]


def test_submitted_and_seconds_are_names_of_columns_too(read):
    assert arrivals(read("customer,submitted,seconds\na,5,2\n")) == [(0, "a", 2)]


@pytest.mark.parametrize(
    ("columns", "reported"),
    [
        ("user=customer", "'user=customer' names none of submit_s, customer"),
        ("customer", "'customer' names none of"),
        ("customer=", "'customer=' names none of"),
        ("customer=a,customer=b", "'customer=b' names customer a second time"),
        ("seconds=a,runtime_s=b", "names runtime_s a second time"),
        ("customer=nobody", "no column 'nobody', found jobid, user, submit"),
        ("customer=user,priority=urgency", "no column 'urgency', found jobid, user, submit"),
    ],
)
def test_a_map_that_fits_nothing_is_refused_with_a_remedy(read, columns, reported):
    assert reported in " ".join(faults(read, SACCT, columns))


@pytest.mark.parametrize("when", ["2026-13-01T00:00", "8:30"])
def test_what_is_no_instant_is_refused(read, when):
    [fault] = faults(read, f"submit_s,customer,runtime_s\n{when},a,1\n")
    assert f"column submit_s: '{when}' is no instant; write seconds, or a date" in fault


# ---- packed, damaged, huge ----


def test_what_is_packed_is_reported_by_its_content(read):
    assert arrivals(read(gzip.compress(job(1, 0, 60).encode()))) == [(0, "1", 60)]
    assert arrivals(read(gzip.compress(b"customer,submitted,seconds\na,5,2\n"))) == [
        (0, "a", 2)
    ]


def test_what_is_packed_in_parts_is_read_to_its_end(read):
    packed = b"".join(gzip.compress(job(n, n, 60).encode()) for n in (1, 2, 3))
    assert len(arrivals(read(packed))) == 3


@pytest.mark.parametrize("damage", [slice(0, -9), slice(0, 40), slice(0, 2)])
def test_a_damaged_package_is_refused(read, damage):
    text = "".join(job(n, n, n * 7 % 1_000) for n in range(500))
    [fault] = faults(read, gzip.compress(text.encode())[damage])
    assert "the file is damaged, fetch or pack it again" in fault


def test_all_faults_are_reported_the_first_of_them_in_full(read):
    rows = ["0,a,1,5", "soon,,-1,", "0,b,x,10", *["0,c,-1,1"] * 40, '0,"d,1,1']
    reported = faults(read, "\n".join(["submit_s,customer,runtime_s,priority", *rows]))
    assert reported[0].endswith("trace: 46 faults")
    assert reported[1:6] == [
        "line 3, column submit_s: 'soon' is no number; write seconds, as 12.5, counted from "
        "whenever you like",
        "line 3, column customer: '' is no customer; name whose agenda it is",
        "line 3, column runtime_s: '-1' is out of range; write the seconds it kept a worker, "
        "0 to 1e+07",
        "line 4, column runtime_s: 'x' is no number; write the seconds it kept a worker, as "
        "0.25",
        "line 4, column priority: '10' is no priority; write 1, most urgent, to 9, or nothing "
        "for 5",
    ]
    assert reported[-1] == "and 26 more"
    assert len(reported) == 22


def test_lines_that_are_no_text_do_not_hide_what_follows(read):
    reported = faults(read, b"submit_s,customer,runtime_s\n0,\xff,1\n0,a,1\n0,b,-1\n")
    assert "line 2: has the byte 0xff that is no UTF-8" in reported[1]
    assert "line 4, column runtime_s" in reported[2]


def test_a_long_value_is_reported_in_part(read):
    [fault] = faults(read, f"submit_s,customer,runtime_s\n{'x' * 5_000},a,1\n")
    assert len(fault) < 400


def test_a_file_of_one_endless_line_takes_no_memory(read, monkeypatch):
    monkeypatch.setattr(trace_file, "MAX_LINE", 10_000)
    packed = gzip.compress(b"0" * 50_000_000 + b"\n0,a,1\n", compresslevel=1)
    tracemalloc.start()
    try:
        reported = faults(
            read, b"".join([gzip.compress(b"submit_s,customer,runtime_s\n"), packed])
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "line 2: is longer than 10,000 characters" in reported[0]
    assert peak < 2_000_000


def test_more_agendas_than_fit_are_refused_at_once(read, monkeypatch):
    monkeypatch.setattr(trace_file, "MAX_AGENDAS", 1_000)
    text = job(1, 0, 60, processors=900) + job(2, 0, 60, processors=101) + job(3, 0, -5)
    [fault] = faults(read, text, processors="agendas")
    assert "line 2: is beyond 1,000 agendas; cut it, or use --processors" in fault


def test_an_agenda_takes_37_bytes(read):
    text = "".join(job(n, n, n % 1_000, user=n % 50) for n in range(20_000))
    tracemalloc.start()
    try:
        file = read(text)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(file.traces["work"]) == 20_000
    assert kept < 20_000 * 37 * 1.25
