"""Splitting: one payload is divided among many child agendas, along its own lists.

A template with the field `split` names the attributes that can be cut, the outermost first,
such as section, store and product. A payload that is run by it says what is cut:
`isolate_stores` gives each store a child of its own, `max_products_per_batch` so many products
to a child, and `period` with `isolate_days` a child to each day. A directive counts for the
object that it stands in and for all below, the nearest one wins, and one deep inside forces
what is around it to be cut too. What is no attribute and no directive goes into every child
below it.

`periods` resolves words such as `last_7_days` against the nominal day that the payload names,
never against the present. `cut` finds all faults and the number of children in one pass, and
makes children one at a time. `parent` makes the agenda of a run that divides itself: one
operation of type `split` that holds template and payload, and so needs nothing else to give the
same children again. The puller's handler submits them.

All of it is pure. The n-th child of an agenda has the id `<agenda>.<n>`, so that what is
submitted twice is accepted once.
"""
