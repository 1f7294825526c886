"""Plays that once won gain nothing from the policy as it is."""

import pytest

from pop_stream.lab.adversary.attacks import ATTACKS
from pop_stream.lab.adversary.judgement import Court


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_what_once_won_gains_nothing(name):
    attack = ATTACKS[name]
    assert attack.faults(attack.judge(Court())) == []
