"""Takes the objects of Comcast's POP over: definitions, and agendas that are still to run.

What there is of POP are JSON documents: exports of its collections, answers of its API, files
that someone posts. `objects.py` reads them and finds out what each object is, for POP's own do
not say so. `conversion.py` makes one of our definitions of a customer, resource pool, insight
or template, and `workflow.py` a submission of an agenda or of a template's run. `applying.py`
sends them through the client.

Reading and converting are pure: same documents, same outcome, no clock, no network. So a trial
needs no server. Nothing of a document is left out in silence: every field of an object gets a
`FieldFate` that says what became of it.

The import may be run again, after a crash too. Ids are kept, or made of what the object says; a
definition is written only if a field that the import sets differs, and fields that it does not
set stay as they are; an agenda is accepted once under its id. Nothing is sent at all if one
object cannot be converted: an agenda whose insight is missing would go to another.
"""
