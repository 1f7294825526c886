"""The data folder: one owner, remembered ports."""

import json
import os

import pytest

from pop_stream.devserver.errors import DevServerError, FolderLockedError
from pop_stream.devserver.folder import PORTS, DataFolder, private_files


def test_a_second_owner_is_refused_and_shown_the_first(tmp_path):
    with DataFolder(tmp_path), pytest.raises(FolderLockedError) as raised:
        DataFolder(tmp_path).__enter__()

    assert raised.value.holder == os.getpid()
    assert f"process {os.getpid()}" in str(raised.value)
    assert "choose another folder" in str(raised.value)


def test_a_left_folder_can_be_owned_again(tmp_path):
    with DataFolder(tmp_path):
        pass
    with DataFolder(tmp_path) as again:
        assert again.kafka.is_dir()
        assert again.postgres.is_dir()


def test_the_lock_of_a_dead_owner_does_not_count(tmp_path):
    (tmp_path / "lock").write_text("4194304\n")

    with DataFolder(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_a_path_that_cannot_be_a_folder_says_so(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(DevServerError, match=r"Cannot use the data folder .*file"):
        DataFolder(tmp_path / "file").__enter__()


def test_a_port_is_remembered_over_owners(tmp_path):
    with DataFolder(tmp_path, is_free=lambda _: True) as first:
        port = first.port("kafka")
    with DataFolder(tmp_path, is_free=lambda _: True) as second:
        assert second.port("kafka") == port

    assert port in PORTS


def test_a_taken_port_is_replaced_and_the_new_one_remembered(tmp_path):
    with DataFolder(tmp_path, is_free=lambda _: True) as first:
        taken = first.port("kafka")
    with DataFolder(tmp_path, is_free=lambda port: port != taken) as second:
        replacement = second.port("kafka")
    with DataFolder(tmp_path, is_free=lambda _: True) as third:
        assert third.port("kafka") == replacement

    assert replacement != taken


def test_two_servers_never_share_a_port(tmp_path):
    with DataFolder(tmp_path, is_free=lambda _: True) as folder:
        names = [f"server-{n}" for n in range(50)]
        ports = {folder.port(name) for name in names}

        assert len(ports) == len(names)


def test_unreadable_memory_of_ports_is_forgotten(tmp_path):
    (tmp_path / "ports.json").write_text("{ not json")

    with DataFolder(tmp_path, is_free=lambda _: True) as folder:
        port = folder.port("kafka")

    assert json.loads((tmp_path / "ports.json").read_text()) == {"kafka": port}


def test_no_free_port_is_an_error_not_a_loop(tmp_path):
    with (
        DataFolder(tmp_path, is_free=lambda _: False) as folder,
        pytest.raises(DevServerError, match="No free loopback port"),
    ):
        folder.port("kafka")


def test_others_cannot_look_into_it_nor_into_one_that_was_open_before(tmp_path):
    folder = tmp_path / "data"
    with DataFolder(folder):
        pass
    made = (folder, folder / "kafka", folder / "postgres", folder / "lock")
    assert [oct(one.stat().st_mode & 0o077) for one in made] == ["0o0"] * 4
    (folder / "kafka").chmod(0o755)
    with DataFolder(folder) as again:
        assert not (folder / "kafka").stat().st_mode & 0o066
        again.port("kafka")
        again.signing_secret()


def test_files_are_private_while_it_is_asked_for_and_as_before_then(tmp_path):
    before = os.umask(0o022)
    try:
        with private_files():
            (tmp_path / "inside").touch()
        (tmp_path / "after").touch()
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("inside", "after")]
    assert modes == [0o600, 0o644]


def test_its_secret_lasts_as_long_as_its_data_and_is_its_owners(tmp_path):
    with DataFolder(tmp_path / "one") as one, DataFolder(tmp_path / "two") as two:
        secret = one.signing_secret()
        assert len(secret) >= 32
        assert secret != two.signing_secret()
    with DataFolder(tmp_path / "one") as again:
        assert again.signing_secret() == secret
    assert (tmp_path / "one" / "signing-secret").stat().st_mode & 0o777 == 0o600
