"""Endpoints of workers that pull over HTTP: they pull agendas, and report on their attempts.

`pulls.PullEndpoints` has the handlers. A pull waits for a delivery (`ports.deliveries`), begins
the lease anew for its caller, and answers with the agenda, what earlier attempts left, and a
lease token. A heartbeat, a progress report and an end carry the token back: any process accepts
them, whether or not it handed the attempt out, and publishes them as events of the attempt.

`leases.LeaseVerifier` judges a report in three steps. The token proves which attempt the caller
holds; without a sound one the answer is 422. The insight in it must be one that the caller may
pull from; else 404. The attempt must not be over: by a stop of the scheduler, or by what the
summary knows; else 409 with the reason. While the database is away only stops are known, and a
report on an attempt that is over is accepted; its events are fenced by the attempt's number.

`reports` checks operations of a report against those of the agenda, and makes them into what
events carry.
"""
