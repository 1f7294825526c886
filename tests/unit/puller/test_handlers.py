import functools

import pytest

from pop_stream.puller import Handlers, load_handlers


class Callable:
    async def __call__(self, operation):
        return 1


async def coroutine(operation, extra=None):
    return 1


def plain(operation):
    return 1


@pytest.mark.parametrize(
    ("function", "is_async"),
    [
        (coroutine, True),
        (functools.partial(coroutine, extra=1), True),
        (Callable(), True),
        (plain, False),
        (lambda operation: operation, False),
    ],
)
def test_registered_function_is_found_by_type(function, is_async):
    handlers = Handlers()
    assert handlers.handler("x")(function) is function
    found = handlers.find("x")
    assert found is not None
    assert (found.function, found.is_async) == (function, is_async)
    assert handlers.find("y") is None


def test_second_handler_of_a_type_is_refused_by_name():
    handlers = Handlers()
    handlers.handler("x")(plain)
    handlers.handler("x")(plain)
    with pytest.raises(ValueError, match=r"'x' has a handler already, .*\.plain; remove"):
        handlers.handler("x")(coroutine)


def test_generator_is_refused():
    async def generator(operation):
        yield 1

    with pytest.raises(TypeError, match="is a generator"):
        Handlers().handler("x")(generator)


async def test_included_registry_brings_its_types_and_what_it_closes():
    closed = []

    async def close():
        closed.append("inner")

    inner, outer = Handlers(), Handlers()
    inner.handler("x")(plain)
    inner.on_stop(close)
    inner.beside(close)
    outer.handler("y")(plain)
    outer.include(inner)
    assert outer.works == (close,)
    await outer.close()
    assert outer.types == ("x", "y")
    assert closed == ["inner"]


def test_registry_is_loaded_from_a_module_in_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "my_work.py").write_text(
        "from pop_stream.puller import Handlers\n"
        "class Holder:\n    handlers = Handlers()\n"
        "@Holder.handlers.handler('x')\ndef x(operation): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/elsewhere", *__import__("sys").path])
    assert load_handlers("my_work:Holder.handlers").types == ("x",)


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("no_colon", "write module:attribute"),
        (":x", "write module:attribute"),
        ("no_such_module_here:x", "no module 'no_such_module_here'"),
        ("json.no_such_part:x", "no module 'json.no_such_part'"),
        ("json:no_such_name", "json has no attribute 'no_such_name'"),
        ("json:dumps", "is a function; make it a pop_stream.puller.Handlers"),
    ],
)
def test_wrong_reference_names_what_is_wrong(reference, says):
    with pytest.raises(ValueError, match=says):
        load_handlers(reference)


def test_module_that_misses_another_says_so_itself(tmp_path, monkeypatch):
    (tmp_path / "broken_work.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        load_handlers("broken_work:handlers")
