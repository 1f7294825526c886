"""Webhooks: reports to customers' servers how their agendas ended.

The fold that ends an agenda enqueues its webhook in the same transaction, so none is lost and
none is made twice. A sender claims those that are due, hidden from other senders for a
minute, posts each with a signature, and takes it out of the outbox at a 2xx: that it was
delivered is kept as long as its agenda. Any other answer is tried again
with growing pauses; after the last try, or at a 410, it is marked exhausted and a dead letter
goes to `pop.dead-webhooks`. A sender that is killed leaves its claims to the others after
that minute, so a receiver may get a webhook twice and knows it by its id.

A server that hangs holds up its own customer only: of one customer a few are in flight at a
time, and of one agenda only the oldest, so that a receiver sees the ends of reruns in order.

Customers name the addresses, so `pop_stream.ssrf_guard` keeps requests away from our own
network.

Start with `WebhookSender.start_due`.
"""
