import house
from house import (
    documents,
    fixed_deadlines,
    long_functions,
    long_modules,
    private_reaches,
    repeated_classes,
    scanned_dicts,
    small_siblings,
    sources,
    words_out,
)

MAX_REPEATED_CLASSES = 5
MODULE = '''"""A module."""

from pop_stream.beside import name


class Desk:
    """Keeps what was told."""
'''


def test_no_small_module_has_its_only_importer_beside_it():
    assert small_siblings(sources()) == []


def test_no_function_is_long():
    assert long_functions(sources()) == []


def test_no_module_is_long():
    assert long_modules(sources()) == []


def test_private_members_of_others_are_used_in_two_rooms_only():
    assert private_reaches(sources()) == []


def test_the_oldest_entry_is_never_looked_for():
    assert scanned_dicts(sources()) == []


def test_class_names_are_unique_but_for_a_few():
    assert len(repeated_classes(sources())) <= MAX_REPEATED_CLASSES


def test_words_that_are_out_stand_nowhere():
    assert words_out(sources()) == []
    assert words_out(documents()) == []
    assert words_out(house.tests()) == []


def test_every_deadline_of_a_test_follows_the_machine():
    assert fixed_deadlines(house.tests()) == []


def test_a_deadline_by_the_clock_of_the_wall_is_found():
    text = "within(5)\nasyncio.timeout(5)\nasyncio.timeout(0)\nasyncio.wait_for(it, 5)\n"

    assert [one.split(":")[1] for one in fixed_deadlines({"a.py": text})] == ["2", "4"]


def test_a_small_module_beside_its_only_importer_is_found():
    user = "from pop_stream.a.beside import name\n"
    modules = {"a/beside.py": "name = 1\n", "a/user.py": user}

    assert small_siblings(modules) == ["a/beside.py"]
    assert small_siblings(modules | {"b.py": user}) == []


def test_a_long_function_is_measured_without_its_docstring():
    body = "    x = 1\n" * 40
    text = f'def long():\n    """Says.\n\n    More.\n    """\n{body}'

    assert [one.lines for one in long_functions({"a.py": text})] == [41]
    assert long_functions({"a.py": text.replace("    x = 1\n", "", 1)}) == []


def test_a_suppression_counts_outside_the_two_rooms():
    text = "it._x  # noqa: SLF001\n"

    assert private_reaches({"kafka/clients.py": text}) == [("kafka/clients.py", 1)]
    assert private_reaches({"kafka/hardening/fetcher.py": text}) == []


def test_words_are_found_in_identifiers_and_prose():
    found = {one.word for one in words_out({"a.py": MODULE + "desk_told = Hold = 1\n"})}

    assert found == {"desk", "told", "Hold"}


def test_a_first_key_that_is_taken_out_by_name_is_found():
    text = "del a[next(iter(a))]\nb.pop(next(iter(b)), None)\nb.pop(c)\n"

    assert scanned_dicts({"a.py": text}) == [("a.py", 1), ("a.py", 2)]


def test_a_class_that_stands_twice_is_found():
    assert repeated_classes({"a.py": MODULE, "b.py": MODULE}) == ["Desk"]
