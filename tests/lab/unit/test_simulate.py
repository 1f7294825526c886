"""`pop-stream simulate`: every scenario keeps the bound, and any trace is run or refused."""

import csv
import json
import re
import sys
from xml.etree import ElementTree as ET

import pytest

from pop_stream import __main__ as command_line
from pop_stream.lab.simulate.scenarios import SCENARIOS, scenario

HEADER = "submit_s,customer,insight,runtime_s,cost\n"
KEYS = {
    "name", "algorithm", "runners", "seed", "jain", "jain_floor", "jain_customers",
    "worst_gap_over_bound", "reweight_within",
    "quiet_p99_over_alone", "makespan_over_fifo", "throughput_over_fifo", "agendas",
    "unfinished", "makespan_s", "agendas_per_s", "quiet", "worst_gap", "waits", "insights",
    "sizes",
}  # fmt: skip


@pytest.fixture
def simulate(monkeypatch, capsys):
    """Run it; returns its exit code, its report if any, and what it printed for a person."""

    def simulate(*arguments):
        monkeypatch.setattr(sys, "argv", ["pop-stream", "simulate", "--json", *arguments])
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out and json.loads(said.out), said.err

    return simulate


@pytest.fixture
def trace(tmp_path, simulate):
    def trace(text, *arguments):
        path = tmp_path / "trace.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return simulate("--trace", str(path), *arguments)

    return trace


# ---- named scenarios ----


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_ends_all_its_work_within_the_bound(simulate, name):
    code, report, _ = simulate("--scenario", name, "--scale", "0.1")
    assert code == 0
    assert set(report) == KEYS
    assert report["unfinished"] == 0
    assert report["agendas"] == sum(one["count"] for one in report["waits"].values()) > 0
    assert 0 < report["worst_gap_over_bound"] <= 1
    # No worse than to have the longest agenda left for the end.
    longest_s = max(one.runtime_s for one in scenario(name, seed=1, rate=1600.0).arrivals)
    fifo_s = report["makespan_s"] / report["makespan_over_fifo"]
    assert report["makespan_s"] <= 1.02 * fifo_s + longest_s


@pytest.mark.parametrize(
    ("name", "target", "customers"), [("skew", "auto", 5), ("skew", "8", 5), ("burst", "8", 4)]
)
def test_who_competes_is_given_its_part_to_a_thousandth(simulate, name, target, customers):
    """With an automatic target nobody steady waits in `burst` for as long as counts."""
    _, report, _ = simulate("--scenario", name, "--target", target)
    assert report["jain_customers"] == customers
    assert report["jain"] >= 0.999
    assert report["worst_gap_over_bound"] <= 1


def test_by_age_nobody_is_given_its_part(simulate):
    _, report, _ = simulate("--scenario", "burst", "--target", "8", "--algorithm", "fifo")
    assert report["jain"] < 0.9
    assert report["worst_gap_over_bound"] > 1


def test_the_same_seed_is_the_same_report_and_another_is_another(simulate):
    seeds = ("1", "1", "2")
    found = [simulate("--scenario", "burst", "--scale", "0.1", "--seed", one) for one in seeds]
    reports = [report | {"seed": None} for _, report, _ in found]
    assert reports[0] == reports[1] != reports[2]


def test_the_flood_delays_the_four_far_less_than_by_age(simulate):
    _, report, _ = simulate("--scenario", "skew", "--scale", "0.3")
    for one in ("anna", "bruno", "carla", "dora"):
        assert report["waits"][one]["p99_s"] * 5 < report["waits"][one]["fifo_p99_s"]


def test_weights_and_algorithm_are_those_that_were_asked_for(simulate):
    arguments = ("--scenario", "reweight", "--scale", "0.1", "--target", "2")
    _, by_age, _ = simulate(*arguments, "--algorithm", "fifo")
    assert by_age["algorithm"] == "fifo"
    assert by_age["makespan_over_fifo"] == 1.0
    _, weighted, _ = simulate(*arguments, "--weights", "a=9")
    assert weighted["waits"]["a"]["mean_s"] < weighted["waits"]["c"]["mean_s"] / 1.5


def test_a_picture_is_an_svg_with_everybody_named(simulate, tmp_path):
    path = tmp_path / "sybil.svg"
    code, _, _ = simulate("--scenario", "sybil", "--scale", "0.05", "--svg", str(path))
    assert code == 0
    texts = " ".join(ET.fromstring(path.read_text()).itertext())  # noqa: S314  # just written
    assert all(one in texts for one in ("split", "plain", "other"))


def test_long_names_that_differ_at_their_ends_are_shown_to_differ(trace, tmp_path):
    path = tmp_path / "names.svg"
    names = [f"a-group-of-an-institute-that-has-{'x' * 30}-{n}" for n in range(5)]
    lines = [f"{n},{names[n % 5]},,9," for n in range(50)]
    code, _, said = trace(HEADER + "\n".join(lines), "--svg", str(path))
    assert code == 0
    assert all(re.search(rf"^a-group\S*…\S*-{n} ", said, re.MULTILINE) for n in range(5))
    picture = path.read_text()
    assert all(re.search(rf">a-group\S*…\S*-{n}<", picture) for n in range(5))


@pytest.mark.parametrize(
    ("runtime_s", "across", "up"),
    [
        (0.01, "seconds", "Worker-seconds"),
        (2, "minutes", "Worker-seconds"),
        (200, "hours", "Worker-minutes"),
        (1e5, "days", "Worker-days"),
        (9e6, "years", "Worker-years"),
    ],
)
def test_the_axes_of_a_picture_fit_it_at_any_scale(trace, tmp_path, runtime_s, across, up):
    """With long names, weights that change late, and runs from a moment to months."""
    name, path = "n" * 60, tmp_path / "chart.svg"
    lines = [f"{n % 7 * runtime_s},{name}{n % 9},x,{runtime_s},,3" for n in range(800)]
    lines.append(f"{90 * runtime_s},{name}1,x,{runtime_s},,12345.6")
    header = "submit_s,customer,insight,runtime_s,cost,weight\n"
    trace(header + "\n".join(lines), "--svg", str(path), "--delay-ms", "0")
    picture = ET.fromstring(path.read_text())  # noqa: S314  # just written
    width = float(picture.get("viewBox").split()[2])
    texts = [one for one in picture.iter() if one.tag.endswith("text")]
    assert f"{across} since the first agenda" in [one.text for one in texts]
    assert any(one.text.startswith(f"{up} per weight") for one in texts)
    for one in texts:
        each = 10.5 if "title" in one.get("class") else 7.2
        wide, at = each * len(one.text), float(one.get("x"))
        left = at - wide * {"start": 0, "middle": 0.5, "end": 1}[one.get("text-anchor")]
        assert left >= 0, one.text
        assert left + wide <= width, one.text


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["--scenario", "unheard"], "use one of skew, trickle"),
        (["--scenario", "skew", "--trace", "x.csv"], "give one of them"),
        (["--trace", "no-such-file.csv"], "No such file"),
        (["--trace", "."], "Is a directory"),
        (["--weights", "a"], "'a' is no weight; write customer=weight"),
        (["--weights", "=2"], "name the customer"),
        (["--weights", "a=0"], "from 0.001 to 1000000"),
        (["--weights", "a=nan"], "from 0.001 to 1000000"),
        (["--weights", "anna=1,anna=2"], "'anna=2' names 'anna' a second time"),
        (["--weights", "ann=1"], "no agenda is of 'ann'; customers are anna, bruno"),
        (["--delay-ms", "inf"], "should be less than or equal"),
        (["--svg", "nowhere/x.svg"], "--svg nowhere/x.svg: not in a folder"),
        (["--events", "."], "name a file in one"),
        (["--target", "0"], "write auto, or a number from 1"),
        (["--target", "many"], "write auto, or a number from 1"),
        (["--runners", "0"], "greater than or equal to 1"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_a_remedy(simulate, arguments, remedy):
    code, report, said = simulate(*arguments)
    assert code != 0
    assert not report
    assert remedy in " ".join(said.split())
    assert "Traceback" not in said


# ---- traces ----


def rows(*lines):
    return HEADER + "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("", "line 1: no column 'submit_s', found nothing"),
        (HEADER, "no agendas"),
        ("submit_s,customer,cost\n0,a,1\n", "no column 'runtime_s', found submit_s, customer"),
        (HEADER.replace(",", ";") + "0;a;x;1;\n", "no column 'submit_s', found submit_s;"),
        ("submit_s,customer,runtime_s,cost,cost\n0,a,1,1,1\n", "two columns are named 'cost'"),
        (rows("0,a,x,1,", "0,a,x"), "line 3: 3 fields where the header has 5"),
        (rows("0,a,x,1,5,2"), "line 2: 6 fields where the header has 5; quote values"),
        (rows("0,a\x1b[31m,x,1,"), "is no name; remove its control characters"),
        (rows("0,a,x\0,1,"), "is no name; remove its control characters"),
        (rows("0,a,x,1_0,"), "column runtime_s: '1_0' is no number"),
        (rows("soon,a,x,1,"), "line 2, column submit_s: 'soon' is no number"),
        (rows("nan,a,x,1,"), "column submit_s: 'nan' is no number"),
        (rows("0,,x,1,"), "column customer: '' is no customer"),
        (rows("0,a,x,-1,"), "column runtime_s: '-1' is out of range; write the seconds"),
        (rows("0,a,x,1e300,"), "column runtime_s: '1e300' is out of range"),
        (rows("0,a,x,inf,"), "column runtime_s: 'inf' is no number"),
        (rows("0,a,x,1,-2"), "column cost: '-2' is negative; write worker-seconds"),
        (rows("0,a,x,1,much"), "column cost: 'much' is no number"),
        (rows("0,a,x,1,", "1e15,a,x,1,"), "line 3, column submit_s: '1e15' is more than"),
        (rows("-1e300,a,x,1,"), "counted from whenever you like, not milliseconds"),
        (rows("9e10,a,x,1,", "-9e10,a,x,1,"), "trace.csv: at 1.8e+11 s it is not over; are"),
        ("submit_s,customer,runtime_s,priority\n0,a,1,10\n", "column priority: '10' is no"),
        ("submit_s,customer,runtime_s,weight\n0,a,1,1e9\n", "column weight: '1e9' is out of"),
        (b"submit_s,customer,runtime_s\n0,\xff\xfe,1\n", "a CSV file in UTF-8"),
        (rows('0,"a,x,1,'), "line 2: unexpected end of data; is a quote open"),
    ],
)
def test_a_trace_that_cannot_be_used_is_refused_where_it_is_wrong(trace, text, remedy):
    code, report, said = trace(text)
    assert code != 0
    assert not report
    assert remedy in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "text",
    [
        rows("5,a,x,1,", "1,b,x,2,3", "-7,c,x,0,0.5"),
        rows("0,a,x,0,", "0,b,x,0,", "0,c,x,0,0"),
        rows("0,a,x,0.01,1e300", "0,b,x,0.01,1e-300", "0,c,x,1,"),
        rows("1700000000.5,a,x,1,", "1700000001,b,x,1,", "1700000001,c,y,1,"),
        rows("0,[/],[bold],1,", "0,[red]b,[bold],1,", '0,"c, d",[bold],1,'),
        "\ufeff" + rows("0,a,x,1,", "", ",,,,", "0,b,x,1,", "0,c,x,1,").upper(),
        'submit_s, "customer", runtime_s,\r\n 0 , "a", 1E-1,\r\n \r\n1, "c", 1\r\n1,d,1,,\r\n',
        "size,Customer,runtime_s,submit_s\n1,a,1,0\n2,b,1,0\n3,c,1,0\n",
        "submit_s,customer,runtime_s,weight\n0,a,1,1e-3\n0,b,1,1e6\n0,c,1,\n",
    ],
    ids=[
        "unsorted",
        "zero",
        "huge",
        "epoch",
        "names",
        "upper",
        "spaces",
        "unknown column",
        "weights",
    ],
)
def test_an_odd_trace_is_run_as_it_says(trace, text):
    code, report, said = trace(text)
    assert code == 0, said
    assert (report["agendas"], report["unfinished"]) == (3, 0)
    assert report["worst_gap_over_bound"] is None or report["worst_gap_over_bound"] <= 1
    assert all(one["mean_s"] >= 0 for one in report["waits"].values())


def test_a_customers_weight_counts_in_every_insight(trace, tmp_path):
    """It is the customer's, whichever of its rows tells it."""
    lines = ["0,a,x,1,1,5"]
    lines += [f"0,{one},{insight},1,1," for one in "ab" for insight in "xy" for _ in range(9)]
    text = "submit_s,customer,insight,runtime_s,cost,weight\n" + "\n".join(lines) + "\n"
    path = tmp_path / "events.csv"
    code, _, said = trace(text, "--events", str(path))
    assert code == 0, said
    with path.open(encoding="utf-8") as file:
        weights = {
            (one["insight"], one["customer"]): one["weight"]
            for one in csv.DictReader(file)
            if one["event"] == "settled"
        }
    assert weights == {
        ("x", "a"): "5.0",
        ("x", "b"): "1.0",
        ("y", "a"): "5.0",
        ("y", "b"): "1.0",
    }


@pytest.mark.parametrize(
    ("few", "quiet"),
    [(80, []), (20, ["few"]), (19, [])],
    ids=["as much as the other", "clearly less", "too few to tell"],
)
def test_quiet_is_who_has_clearly_less_than_its_part(trace, few, quiet):
    lines = [
        f"{n / 10},{name},x,0.1," for name, of in (("a", 80), ("few", few)) for n in range(of)
    ]
    _, report, _ = trace(rows(*lines))
    assert report["quiet"] == quiet
    assert (report["quiet_p99_over_alone"] is None) is not bool(quiet)


LONG_RUNS = [
    *(f"{n},big,x,{36_000 + n},," for n in range(400)),
    *(f"{n * 9_000},{n % 4}-customer-with-a-name-of-{'x' * 40},x,9," for n in range(40)),
]


def test_small_and_big_customers_are_shown_beside_first_come_first_served(trace):
    """Forty of 9 s come one by one, while 400 of ten hours wait from the beginning."""
    _, report, said = trace(rows(*LONG_RUNS), "--runners", "4")
    small, big = report["sizes"]["small"], report["sizes"]["big"]
    assert (small["customers"], small["agendas"], big["agendas"]) == (4, 40, 400)
    assert big["part"] == pytest.approx(1, abs=1e-3)
    assert small["wait_mean_s"] < 36_000 < small["fifo_wait_mean_s"] / 10
    # A run of 9 s is the whole of what its customer waits for; the median run is of hours.
    assert small["slowdown_mean"] == pytest.approx((small["wait_mean_s"] + 9) / 10, rel=0.05)
    assert big["slowdown_p50"] == pytest.approx(big["wait_p50_s"] / 36_200 + 1, rel=0.05)
    assert "a run being 10.0 s at least" in said


def test_who_waits_for_nothing_is_not_slowed_down(trace):
    _, report, _ = trace(rows("0,a,x,5,", "0,b,x,50,", "0,c,x,5,"), "--delay-ms", "0")
    assert {one["slowdown_mean"] for one in report["sizes"].values()} == {1.0}


def test_where_all_are_of_a_size_no_sizes_are_shown(trace):
    _, report, said = trace(rows("0,a,x,5,", "0,b,x,5,"))
    assert set(report["sizes"]) == {"middle"}
    assert "slowdown" not in said


@pytest.mark.parametrize("columns", ["80", "100", "120"])
def test_no_cell_of_a_table_wraps(trace, monkeypatch, columns):
    """Each customer, size and insight is one line, with all of its figures in full."""
    monkeypatch.setenv("COLUMNS", columns)
    _, _, said = trace(rows(*LONG_RUNS, "0,big,y,9,"), "--runners", "4")
    assert max(map(len, said.splitlines())) <= int(columns)
    lines = said.partition("Jain index")[0].splitlines()
    for name in ("big ", "0-custom", "3-custom", "small (4) ", "big (1) ", "x ", "y "):
        found = [one for one in lines if one.startswith(name)]
        assert found
        assert all(len(re.split(" {2,}", one)) > 5 for one in found), "with its figures"
    head = next(one for one in lines if one.startswith("customer "))
    assert head.endswith("p99 fifo")
    assert "11/d" in said


def test_of_long_runs_on_idle_runners_a_wait_is_not_millions(trace):
    """Alone the quiet one waits 10 ms; its runs are of an hour, and another is before it."""
    lines = [f"{n * 9_000},quiet,x,3600," for n in range(30)]
    lines += [f"{n},other,x,3600," for n in range(300)]
    _, report, said = trace(rows(*lines), "--runners", "1")
    assert report["quiet"] == ["quiet"]
    wait_s = report["waits"]["quiet"]["p99_s"]
    assert wait_s > 1_000
    assert report["quiet_p99_over_alone"] == pytest.approx(wait_s / 3_600, rel=0.01)
    assert "quiet 1 h" in " ".join(said.split())


def test_columns_that_mean_nothing_are_named(trace):
    _, _, said = trace("submit_s,customer,runtime_s,colour\n0,a,1,red\n")
    assert "ignored columns: colour" in said


def test_a_column_without_a_name_is_not_mentioned(trace):
    _, _, said = trace("submit_s,customer,runtime_s,\n0,a,1,\n")
    assert "ignored" not in said


def test_figures_can_be_reckoned_from_the_events(trace, tmp_path):
    lines = [f"{n / 10},{'aab'[n % 3]},x,{n % 4 / 10},{n % 4 / 10 or ''}" for n in range(60)]
    path = tmp_path / "events.csv"
    _, report, said = trace(rows(*lines), "--runners", "1", "--events", str(path))
    assert "events written to" in " ".join(said.split())
    with path.open(newline="", encoding="utf-8") as file:
        events = [one for one in csv.DictReader(file) if one["customer"] == "a"]

    def values(event, column):
        return [float(one[column]) for one in events if one["event"] == event]

    waits = values("started", "waited_s")
    assert len(values("arrived", "at_s")) == len(waits) == report["waits"]["a"]["count"] == 40
    assert sum(waits) / 40 == pytest.approx(report["waits"]["a"]["mean_s"], abs=1e-5)
    assert sum(values("settled", "spent_s")) == pytest.approx(report["waits"]["a"]["served_s"])
    assert values("emitted", "spent_s") == values("settled", "spent_s")
    assert values("settled", "weight") == [1.0] * 40
    assert values("emitted", "charged_s")[0] == 1.0, "unknown"
    assert values("emitted", "charged_s")[-1] <= 4 * 0.3, "a few times what is usual"


def test_events_tell_of_weights(simulate, tmp_path):
    path = tmp_path / "events.csv"
    simulate("--scenario", "reweight", "--scale", "0.1", "--events", str(path))
    weighed = [
        one for one in path.read_text(encoding="utf-8").splitlines() if ",weighed," in one
    ]
    assert [one.rsplit(",", 1)[1] for one in weighed] == ["4.0"]


def test_a_rate_below_one_is_not_shown_as_none(trace):
    _, _, said = trace(rows("0,a,x,1,", "99,b,x,1,"))
    assert "2 agendas in 1 min 40 s, 1.2/min" in " ".join(said.split())


def test_too_little_competition_is_no_index(trace):
    _, report, said = trace(rows("0,a,x,1,", "0,b,x,1,"))
    assert (report["jain"], report["jain_floor"], report["jain_customers"]) == (None, None, 0)
    assert report["worst_gap_over_bound"] == 0.0, "they met once"
    assert "No Jain index" in said


def test_where_nobody_met_another_nothing_is_called_even(trace):
    _, report, said = trace(rows("0,a,x,1,", "90,b,x,1,", "0,a,y,1,"))
    assert (report["jain"], report["worst_gap"], report["worst_gap_over_bound"]) == (None,) * 3
    assert "No Jain index" in said
    assert "Worst gap" not in said


def test_a_new_weight_shows_within_one_depth_of_emissions(simulate):
    _, report, said = simulate("--scenario", "reweight")
    assert 0 < report["reweight_within"] < 1
    assert "A new weight showed after" in said


@pytest.mark.parametrize("algorithm", ["round_robin", "fifo"])
def test_a_new_weight_that_is_ignored_is_shown_as_ignored(simulate, algorithm):
    _, report, _ = simulate("--scenario", "reweight", "--algorithm", algorithm)
    assert report["reweight_within"] is None or report["reweight_within"] >= 1


def test_insights_run_side_by_side(trace):
    lines = [f"{0},{name},{one},0.1," for one in ("x", "y") for name in "ab" * 50]
    code, report, _ = trace(rows(*lines), "--runners", "5")
    assert code == 0
    assert set(report["insights"]) == {"x", "y"}
    assert report["makespan_s"] == pytest.approx(2.0, rel=0.1)
    assert report["waits"]["a"]["count"] == 100


def test_a_skewed_trace_is_fair_by_what_ran_whatever_was_declared(trace):
    """Half of it is of one customer that declares a thousandth, and gains nothing by it."""
    lines = [f"{n % 3 / 10},big,x,0.05,0.00005" for n in range(2_000)]
    lines += [f"{n % 3 / 10},c{n % 9},x,0.05," for n in range(2_000)]
    code, report, _ = trace(rows(*lines), "--runners", "20")
    assert code == 0
    assert (report["agendas"], report["unfinished"]) == (4_000, 0)
    assert report["jain"] > 0.999
    assert report["worst_gap_over_bound"] <= 1
    assert report["makespan_over_fifo"] <= 1.01


POOLED = HEADER + "0,a,media,10,1\n0,a,media,20,1\n0,a,media,50,1\n" + "5,b,mail,10,1\n" * 3
POOL_OF_TWO = ("--pool", "2", "--runners", "2", "--target", "2", "--delay-ms", "0")


@pytest.mark.parametrize(
    ("options", "media", "mail"),
    [((), [0, 0, 20], [10, 20, 30]), (("--pool-minimums", "mail=2"), [0, 0, 30], [10, 20, 20])],
)
def test_insights_of_a_pool_lend_and_take_back(trace, tmp_path, options, media, mail):
    """`mail` comes at 5, to a pool that is lent out until 10 and 20."""
    path = tmp_path / "events.csv"
    code, report, _ = trace(POOLED, *POOL_OF_TWO, *options, "--events", str(path))
    assert code == 0
    assert report["unfinished"] == 0
    rows = [*csv.DictReader(path.read_text().splitlines())]
    started = {
        name: [
            float(one["at_s"])
            for one in rows
            if (one["insight"], one["event"]) == (name, "started")
        ]
        for name in ("media", "mail")
    }
    assert started == {"media": media, "mail": mail}


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (("--pool", "2", "--pool-weights", "post=2"), "no agenda is of 'post'"),
        (("--pool", "2", "--pool-weights", "mail=0"), "--pool-weights: 'mail=0' is no weight"),
        (("--pool", "2", "--pool-minimums", "mail=1.5"), "'mail=1.5' is no minimum"),
        (("--pool", "2", "--pool-minimums", "mail=1,mail=2"), "'mail=2' is no minimum"),
        (("--pool-minimums", "mail=1"), "give --trace and --pool"),
    ],
)
def test_what_is_no_pool_is_refused(trace, options, remedy):
    code, report, said = trace(POOLED, *options)
    assert code != 0
    assert not report
    assert remedy in " ".join(said.replace("│", " ").split())


def test_a_scenario_has_no_pool(simulate):
    code, _, said = simulate("--scenario", "skew", "--pool", "2")
    assert code != 0
    assert "give --trace and --pool" in " ".join(said.replace("│", " ").split())
