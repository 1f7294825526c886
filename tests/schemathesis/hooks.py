"""What schemathesis cannot know of this API."""

import re

import schemathesis

RULES = re.compile(
    r"there is no \w+/"  # a definition that another names
    r"|no such template serves"
    r"|fits no insight|no insight"
    r"|the path says"
    r"|cannot change from"
    r"|is above target"
    r"|is none of this list in this order|is no cursor of this API"
    r"|taken by operations"
    r"|no operation of this agenda"
    r"|refers neither to"
    r"|wait for each other"
    r"|must be later than not_before"
    r"|names nothing"
    r"|payload_schema cannot be used"
    r"|set priority, rank, or both"
    r"|names no agendas"
    r"|must be a W3C tracestate"  # the document cannot say that no key comes twice
    r"|holds a NUL character"  # it may stand in any text, however deep
)
"""Rules between fields, or between objects."""


@schemathesis.check
def refused_for_rules_that_no_schema_can_say(ctx, response, case):
    """A request that the document allows is refused only for what the document cannot say."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if response.status_code != 422:
        return
    problem = response.json()
    told = [*problem.get("issues", ())]
    for result in problem.get("results", ()):
        told += result.get("issues", ())
    assert told, f"422 without issues: {problem['detail']}"
    for issue in told:
        assert RULES.search(issue["message"]), f"the document could say this: {issue}"


@schemathesis.hook
def map_body(context, body):
    """A caller that pulls need not wait: nothing ever comes."""
    is_pull = context.operation is not None and context.operation.path.endswith("/pull")
    if is_pull and isinstance(body, dict) and isinstance(body.get("wait_s"), int | float):
        return {**body, "wait_s": min(body["wait_s"], 0) if body["wait_s"] < 0 else 0}
    return body
