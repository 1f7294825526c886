"""The path of one submission through the code: how much of it there is to read.

A reader who follows one agenda from `POST /v1/agendas` to its row in Postgres passes through
a number of files and functions, and jumps from one file to another some number of times. This
room measures those three figures on real servers, so that they are facts and can be compared
before and after the code is moved about.

Two modules:

- `walk` starts `pop-stream dev`, submits agendas one at a time, reads what the parts recorded,
  separates the work of the submission from background work, counts, and prints. Its
  description has the exact rule of what counts. Start reading there.
- `recorder` runs inside of every part. It is copied as `sitecustomize.py` to a folder on
  PYTHONPATH, so that the interpreter imports it before anything of the product, which knows
  nothing of it. It uses the standard library only.

Both talk through files in one folder: `control` names the window to record (empty between
windows), each part answers in a file of its own which window is open, and writes its records
once that window is closed. A part that dies loses its records, and the walk fails; nothing
outlives a walk, since everything is in a temporary folder and all processes end with it.
"""
