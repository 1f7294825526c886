"""What connects pop_stream with the frameworks and platforms that a team has already.

Each module or folder here needs a package that pop_stream itself does not, and is installed as
an extra of the same name: `pip install 'pop-stream[django]'`.

    django          the backend of Django's tasks, and `manage.py pop_stream_worker`
    fastapi         the client as a dependency, an agenda's progress as a stream
    celery          the base of an app's tasks, and the handler that runs them

Nothing of the product imports this room, and its members do not know each other: import
contracts hold both. They use what any program may use, `client`, `puller`, `settings` and the
model, so each is also an example of how far these go. What they share is in `client_thread`,
for programs without an event loop, and `tasks`.

They are tested by `make integrations`, in an environment of its own that has all extras;
`make test` neither needs nor collects these tests.
"""
