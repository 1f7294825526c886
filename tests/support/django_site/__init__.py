"""A site with tasks, as the tests of the Django integration see it; set up once a process."""

import tempfile
from pathlib import Path

import django
from django.conf import settings
from django.core.management import call_command

FOLDER = tempfile.TemporaryDirectory(prefix="pop-stream-django-")
BACKEND = "pop_stream.integrations.django.PopStreamBackend"


def set_up():
    """Set Django up with a database file of this process."""
    if settings.configured:
        return
    file = {"ENGINE": "django.db.backends.sqlite3", "NAME": Path(FOLDER.name) / "db.sqlite3"}
    settings.configure(
        SECRET_KEY="none",  # noqa: S106  # nothing is signed
        USE_TZ=True,
        ALLOWED_HOSTS=["testserver"],
        DATABASES={"default": file},
        ROOT_URLCONF="django_site.urls",
        INSTALLED_APPS=[
            "django.contrib.contenttypes",
            "pop_stream.integrations.django",
            "django_site",
        ],
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        TASKS=tasks("http://127.0.0.1:1"),
    )
    django.setup()
    call_command("migrate", verbosity=0)


def tasks(url, **options):
    """The setting TASKS for an API at an address."""
    given = {"URL": url, "CUSTOMER": "shop", **options}
    return {"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": given}}
