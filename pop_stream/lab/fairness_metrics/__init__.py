"""Measures of fairness over a log of service: who waited, who was served, and how evenly.

A `ServiceLog` lists what happened to one insight's agendas, in order, whether the simulator, a
benchmark or the demo wrote it. `audit` goes through it once and gives all measures:

- Jain's index of what competing customers were given over what they were due (`jain`), counted
  only over times in which they competed;
- the widest gap between two customers that were backlogged together, beside the bound that
  theory gives for it (`gap`);
- how soon a new weight shows in what customers are given (`reweight`);
- waiting and turnaround times.

`presence` says who is backlogged at a moment, `service_log` is the log, and `recorded` makes
one of the events of a real run. Nothing here decides anything: the policy does not import it.
"""
