"""The command line as its users meet it, as far as it needs no server."""

import subprocess
import sys

import pytest
from typer.main import get_command

import pop_stream.__main__ as command_line
from pop_stream.devserver.errors import DevServerError
from pop_stream.model.errors import UnavailableError

COMMANDS = sorted(get_command(command_line.app).commands)


@pytest.fixture
def run(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["pop-stream", *arguments])
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        return ended.value.code, capsys.readouterr()

    return run


@pytest.fixture
def failing(monkeypatch):
    """Make `doctor` fail with an error."""

    def failing(error):
        def fail(*_):
            raise error

        monkeypatch.setattr("pop_stream.operations.logging.configure_console_logging", fail)

    return failing


def test_all_parts_of_the_contract_exist():
    expected = {
        "demo", "dev", "doctor", "ingest", "migrate", "progress", "pull", "rollup",
        "scheduler", "serve", "submit", "topics", "watch",
    }  # fmt: skip
    assert expected <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(run, command):
    code, said = run(command, "--help")
    assert code == 0
    assert f"pop-stream {command}" in said.out


def test_version_is_shown(run):
    code, said = run("--version")
    assert (code, said.out.split()[0]) == (0, "pop-stream")


@pytest.mark.parametrize(
    "arguments",
    [
        ("no-such-command",),
        ("demo", "--no-such-option"),
        ("demo", "--seconds", "soon"),
        ("watch",),
        ("watch", "an-agenda", "--link", "a-link"),
        ("submit", "/no/such/file.json"),
        ("dev", "--definitions", "/no/such/file.toml"),
        ("pull",),
    ],
)
def test_wrong_usage_exits_with_2(run, arguments):
    code, said = run(*arguments)
    assert code == 2
    assert said.err


def test_wrong_setting_is_named_by_its_variable(run, monkeypatch):
    monkeypatch.setenv("POP_HTTP_PORT", "many")
    code, said = run("doctor")
    assert code == 2
    assert "POP_HTTP_PORT" in said.err


def test_error_is_one_line_without_a_trace(run, failing):
    failing(ExceptionGroup("parts", [OSError("broken\npipe")]))
    code, said = run("doctor")
    assert code == 1
    assert said.err == "pop-stream: OSError: broken pipe\n"


@pytest.mark.parametrize(
    "error", [UnavailableError("Kafka is away"), DevServerError("no Java")]
)
def test_our_own_errors_speak_for_themselves(run, failing, error):
    failing(error)
    assert run("doctor")[1].err == f"pop-stream: {error}\n"


def test_debug_level_shows_the_trace(run, failing, monkeypatch):
    monkeypatch.setenv("POP_LOG_LEVEL", "debug")
    failing(OSError("broken"))
    assert "Traceback" in run("doctor")[1].err


def test_help_loads_neither_drivers_nor_settings():
    """Help must answer at once, and it does only while commands import what they run."""
    heavy = {"aiohttp", "aiokafka", "asyncpg", "faust", "pydantic", "pop_stream.composition"}
    program = f"import sys, pop_stream.__main__\nprint(*sorted({heavy!r} & set(sys.modules)))"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    assert loaded.stdout.split() == []
