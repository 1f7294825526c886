"""Which data a run of the demo begins with."""

import pytest

from pop_stream.devserver.errors import FolderLockedError
from pop_stream.devserver.folder import DataFolder
from pop_stream.lab.demo.run import DemoFolder


def start(parent):
    folder = DemoFolder(parent)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.begin()
    return folder


def test_finished_run_leaves_its_data_to_the_next(tmp_path):
    first = start(tmp_path)
    first.finish()
    assert DemoFolder(tmp_path).path == first.path


def test_run_that_broke_off_does_not(tmp_path):
    first = start(tmp_path)
    second = DemoFolder(tmp_path)
    assert second.path != first.path
    assert first.path.exists()


def test_data_of_a_run_that_broke_off_go_with_the_next_success(tmp_path):
    first = start(tmp_path)
    second = start(tmp_path)
    second.finish()
    assert not first.path.exists()
    assert second.path.exists()


def test_run_that_goes_on_is_not_overtaken(tmp_path):
    first = start(tmp_path)
    with DataFolder(first.path), pytest.raises(FolderLockedError):
        DemoFolder(tmp_path)


def test_other_files_are_left_alone(tmp_path):
    (tmp_path / "data-of-mine").mkdir()
    start(tmp_path)
    start(tmp_path).finish()
    assert (tmp_path / "data-of-mine").exists()
