"""Decides what a schedule submits: at its instants, after an outage, and while others run.

`plan` says which occurrences are due by now and what becomes of those that are late (`misfire`)
or that meet one which has not ended (`overlap`). `apply_end` and `apply_command` follow what
happens in between. All are pure: a state goes in and comes out, with the occurrences to submit.

The state is written after its submissions are acknowledged. A crash in between submits them
again, under the same ids and positions, and the scheduler drops those that it has placed. So an
occurrence is missed only as `misfire` and `catch_up_s` say, and none runs twice.
"""
