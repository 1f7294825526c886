"""Everything that is served, as rows of one table.

A row (`http.route.Route`) has method, path, handler, the name of the operation, its answers
and errors, the types of its body, its parameters, and what it asks of its caller; access has
no default, so no row can forget it. `table.py` joins the tables of the resources and registers
them with the router; the OpenAPI document is made from the same rows, and tests call every one
of them with every role.
"""
