"""The site's views: they enqueue what they are asked to."""

import json

from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.http import JsonResponse
from django.urls import path

from django_site import work


def post_letter(request):
    """Store a row and enqueue a task in one transaction, which may fail."""
    sent = json.loads(request.body)
    with transaction.atomic():
        ContentType.objects.create(app_label=sent["id"], model="letter")
        result = work.repeat.enqueue(sent["id"], to=sent["to"])
        is_sent = result.enqueued_at is not None
        if sent.get("fails"):
            raise ZeroDivisionError
    return JsonResponse(
        {"id": result.id, "sent_inside": is_sent, "sent": result.enqueued_at is not None}
    )


async def apost_letter(request):
    """Enqueue an asynchronous task."""
    result = await work.repeat_later.aenqueue(json.loads(request.body)["to"])
    return JsonResponse({"id": result.id})


urlpatterns = [path("letters", post_letter), path("async-letters", apost_letter)]
