"""When the cache of Kafka's classes is made, used, and done without."""

import fcntl

import pytest

from pop_stream.devserver.class_data_cache import with_class_data_cache
from pop_stream.devserver.errors import ServerStartError
from pop_stream.devserver.jvm import Jvm


class Java:
    """Stands for a broker that writes its classes when it ends."""

    def __init__(self, written=b"classes", error=None):
        self.runs = 0
        self.written = written
        self.error = error

    async def run(self, jvm, folder, file):
        self.runs += 1
        if self.error:
            raise self.error
        if self.written:
            file.write_bytes(self.written)


@pytest.fixture
def jvm(tmp_path):
    jar = tmp_path / "kafka.jar"
    jar.write_bytes(b"jar")
    return Jvm([jar])


def kept(cache):
    return sorted((cache / "classes").glob("*.aot"))


async def test_classes_are_kept_once_and_read_by_all_later_programs(jvm, tmp_path):
    java = Java()
    first = await with_class_data_cache(jvm, tmp_path, run=java.run)
    second = await with_class_data_cache(jvm, tmp_path, run=java.run)
    assert first == second
    assert java.runs == 1
    (cache,) = kept(tmp_path)
    assert cache.read_bytes() == b"classes"
    assert f"-XX:AOTCache={cache}" in first.command("kafka.Kafka")


async def test_another_jar_has_a_cache_of_its_own(jvm, tmp_path):
    java = Java()
    await with_class_data_cache(jvm, tmp_path, run=java.run)
    jvm.jars[0].write_bytes(b"newer jar")
    await with_class_data_cache(jvm, tmp_path, run=java.run)
    assert java.runs == len(kept(tmp_path)) == 2


async def test_java_that_writes_none_is_not_asked_at_every_start(jvm, tmp_path):
    java = Java(written=b"")
    assert await with_class_data_cache(jvm, tmp_path, run=java.run) == jvm
    assert await with_class_data_cache(jvm, tmp_path, run=java.run) == jvm
    assert java.runs == 1


async def test_failure_is_no_failure_of_the_start_and_is_tried_again(jvm, tmp_path):
    broken = Java(error=ServerStartError("kafka-1", "it ended", ""))
    assert await with_class_data_cache(jvm, tmp_path, run=broken.run) == jvm
    assert await with_class_data_cache(jvm, tmp_path, run=Java().run) != jvm
    assert [*(tmp_path / "classes").glob("making-*")] == []


async def test_nobody_waits_for_another_process_that_makes_it(jvm, tmp_path):
    await with_class_data_cache(jvm, tmp_path, run=Java().run)
    (cache,) = kept(tmp_path)
    cache.unlink()
    java = Java()
    with cache.with_suffix(".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert await with_class_data_cache(jvm, tmp_path, run=java.run) == jvm
    assert java.runs == 0
