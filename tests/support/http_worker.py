"""A worker without Kafka, as a test drives it."""


class HttpWorker:
    """Speaks to one process of the API."""

    def __init__(self, session, url, name="w1"):
        self._session = session
        self._url = url
        self.name = name

    async def post(self, path, **body):
        body = {"puller_id": self.name, **body}
        async with self._session.post(f"{self._url}/v1/{path}", json=body) as response:
            return response.status, await response.json(content_type=None)

    async def pull(self, count=1, wait_s=20, insight="media"):
        status, body = await self.post(f"insights/{insight}/pull", count=count, wait_s=wait_s)
        assert status == 200, body
        return body["agendas"]

    async def report(self, one, what, **body):
        if body.get("outcome") == "succeeded":
            names = [operation["name"] for operation in one["agenda"]["operations"]]
            body.setdefault("operations", [{"name": n, "state": "succeeded"} for n in names])
        path = f"agendas/{one['agenda_id']}/attempts/{one['attempt']}/{what}"
        return await self.post(path, lease_token=one["lease_token"], **body)
