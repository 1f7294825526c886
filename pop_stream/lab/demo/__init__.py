"""Shows on a real stack that one customer's flood does not delay the others.

Five customers have the source files of this Python installation examined. One submits most of
the work at once, then four come with a little each. The report says how long each waited, and
how evenly worker-seconds were shared while all were backlogged, by the same metrics as the
benchmarks and the simulator.

`run` is its course: start, warm up, flood, let the others in, wait, report. `workload` makes
the agendas, `handlers` is their work, `statistics` adds up the lifecycle events, `report`
shows a run while it goes on and what it came to.

Data are kept below one folder for the next time. A run that was interrupted leaves a backlog
that would stand in the way of the next one, so that begins a new generation of data; a run that
still goes on in another process is refused. Nothing is judged by the numbers that a process
reports of itself: what succeeded is asked of the API, what started twice is read from Kafka.
"""
