"""Dead letters over HTTP: listed, counted by reason, shown, redriven and discarded.

A letter is open until somebody redrives or discards it, once. Redriving tries again what came
to nothing: a refused submission is checked and submitted as it would be now, in the name of who
sent it; an exhausted agenda runs again from where it failed; a webhook is due anew. What
cannot be read can only be discarded. A crash between the deed and the settling of the letter
leaves it open. A second redrive then finds the agenda accepted or running: it does nothing, and
settles the letter.

A customer sees the letters about its own submissions, agendas and webhooks; all others are the
operators'. Start reading at `endpoints`; `redrive` has what each kind needs.
"""
