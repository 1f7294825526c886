"""The step of `make test` that looks for a browser."""

import browser
import pytest


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.setattr(browser.shutil, "which", lambda _: None)


@pytest.fixture
def apt(monkeypatch):
    """What is asked of apt, which has a browser once it was asked."""
    asked = []
    monkeypatch.setattr(browser, "_apt", lambda arguments: asked.append(arguments) or True)
    found = {"apt-get": "/usr/bin/apt-get"}
    monkeypatch.setattr(
        browser.shutil, "which", lambda name: found.get(name) or (len(asked) == 2 and name)
    )
    return asked


def test_a_missing_browser_leaves_its_tests_out_and_says_so(
    monkeypatch, capsys, nothing_installed
):
    monkeypatch.setenv("CI", "")
    assert browser.main() == 0
    said = capsys.readouterr()
    assert said.out == f"--ignore={browser.LEFT_OUT}\n"
    assert "LEFT OUT" in said.err


def test_a_missing_browser_fails_in_ci(monkeypatch, capsys, nothing_installed):
    monkeypatch.setenv("CI", "true")
    assert browser.main() == 1
    assert "apt install chromium" in capsys.readouterr().err


def test_root_installs_it_and_leaves_nothing_out(monkeypatch, capsys, apt):
    monkeypatch.setattr(browser.os, "geteuid", lambda: 0)
    assert browser.main() == 0
    assert [one[0] for one in apt] == ["update", "install"]
    assert capsys.readouterr().out == ""


def test_nobody_else_does(monkeypatch, apt):
    monkeypatch.setattr(browser.os, "geteuid", lambda: 1000)
    browser.install()
    assert apt == []
