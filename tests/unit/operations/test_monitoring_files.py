"""Rules and dashboards: they name what exists, and every alarm has its runbook."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from metric_names import documented

ROOT = Path(__file__).parents[3]
GRAFANA = ROOT / "deploy" / "grafana"
DASHBOARDS = sorted(GRAFANA.glob("*.json"))
RULES = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yaml").read_text())
RULE_TESTS = (ROOT / "deploy" / "prometheus" / "rules_test.yaml").read_text()
ALARMS = [one for group in RULES["groups"] for one in group["rules"] if "alert" in one]
LEVELS = {
    one["record"] for group in RULES["groups"] for one in group["rules"] if "record" in one
}
METRICS = {name: kind for part in documented().values() for name, (kind, _) in part.items()}
FUNCTIONS = {"absent", "avg", "by", "histogram_quantile", "increase", "max", "min", "on", "or",
             "and", "rate", "sum", "time", "vector"}  # fmt: skip


def expressions(dashboard):
    panels = json.loads(dashboard.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def names_of(expression):
    """The metrics that an expression selects, histograms without their suffix."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(by|on) \([^)]*\)", "", expression)
    found = set(re.findall(r"[a-z][a-z0-9_:]*[a-z0-9]", bare)) - FUNCTIONS
    return {re.sub(r"_(bucket|count|sum)$", "", name) for name in found}


def labels_of(expression):
    """By metric, the labels that its selector and its grouping name."""
    return re.findall(r"([a-z][a-z0-9_:]+)\{([^}]*)\}", expression)


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda one: one.stem)
def test_panels_select_metrics_that_are_documented(file):
    for expression in expressions(file):
        assert names_of(expression) <= METRICS.keys(), expression


def test_every_documented_metric_is_on_a_panel():
    shown = {name for file in DASHBOARDS for one in expressions(file) for name in names_of(one)}
    assert shown == METRICS.keys()


def test_rules_select_metrics_that_are_documented_or_recorded():
    for group in RULES["groups"]:
        for rule in group["rules"]:
            known = METRICS.keys() | LEVELS | {"up"}
            assert names_of(rule["expr"]) <= known, rule["expr"]


def test_selectors_name_labels_that_the_metric_has():
    labels = {name: set(of) for part in documented().values() for name, (_, of) in part.items()}
    every = [one for file in DASHBOARDS for one in expressions(file)]
    every += [rule["expr"] for group in RULES["groups"] for rule in group["rules"]]
    for expression in every:
        for name, selector in labels_of(expression):
            base = re.sub(r"_(bucket|count|sum)$", "", name)
            wanted = set(re.findall(r"(\w+)(?:=|!)", selector)) - {"le", "job", "instance"}
            assert wanted <= labels.get(base, set()), expression


def test_dashboards_are_current():
    made = [sys.executable, str(GRAFANA / "dashboards.py"), "--check"]
    done = subprocess.run(made, check=False, capture_output=True, text=True)  # noqa: S603
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("alarm", ALARMS, ids=lambda one: one["alert"])
def test_an_alarm_has_a_runbook_a_severity_and_a_test(alarm):
    path, _, anchor = alarm["annotations"]["runbook_url"].partition("#")
    page = (ROOT / path).read_text()
    headings = {one.lower() for one in re.findall(r"^### (\w+)$", page, re.M)}
    assert anchor == alarm["alert"].lower()
    assert anchor in headings
    assert alarm["labels"]["severity"] in {"page", "ticket"}
    fires = rf"alertname: {alarm['alert']}\n\s+exp_alerts:\n|alertname=\"{alarm['alert']}\""
    assert re.search(fires, RULE_TESTS), "no test has it fire"
    assert f"alertname: {alarm['alert']}, exp_alerts: []" in RULE_TESTS, "none has it silent"


def test_no_runbook_is_of_an_alarm_that_is_gone():
    page = (ROOT / "docs" / "how-to" / "monitor.md").read_text()
    assert set(re.findall(r"^### (\w+)$", page, re.M)) == {one["alert"] for one in ALARMS}
