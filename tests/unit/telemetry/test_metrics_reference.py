"""The reference of metrics has what parts show, under the part that shows it, and no more."""

import pytest
from metric_names import documented, shown


def test_each_part_has_a_table():
    assert documented().keys() == shown().keys()


@pytest.mark.parametrize("part", shown())
def test_what_a_part_shows_is_documented_and_the_other_way_round(part):
    table = {name: kind for name, (kind, _) in documented()[part].items()}
    assert table == shown()[part]
