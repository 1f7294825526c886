"""Tries out, measures and checks the product; nothing of the product imports it.

The lab is outside of the product on purpose: what measures a thing must not be part of it, and
must not change when the thing does. The command line is where both meet: `pop_stream.__main__`
adds the commands of this folder to those of the product.

What there is, from the outside in:

- `demo`: a flood of one customer that does not hurt the others, to be watched.
- `bench`: throughput, latency, fairness, backlog, rest and soak of the real stack, each with
  the conditions that it was measured under.
- `chaos`: faults under load, and a judgement by what was promised.
- `simulate` and `simulator`: the real policy in virtual time, on named scenarios or traces.
- `adversary`: plays by which a customer might get more than its share of the real policy,
  searched and judged by service that it counts for itself.
- `replay`: recorded rounds chosen again, with the same or other weights.
- `fairness_metrics`: what all of them mean by fair; pure.
- `walk` and `golden`: the path of one submission through the code, and all that one fixed run
  leaves behind, to compare before and after a change.

All that runs the real stack starts it through `pop_stream.devserver`, in a data folder of its
own unless one is named, and ends it, whatever happens. A command that measures uses
`reporting`, so that all end alike: text for a person, or one JSON object as the last line.
`event_follower` reads lifecycle events as they are written. Start reading with `commands`.
"""
