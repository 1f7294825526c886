"""What schemathesis cannot know of this API."""

import re

import schemathesis

OTHER_KEY = "a" * 16
LONGEST_PULL_S = 60

RULES = re.compile(
    r"there is no \w+/"  # a definition that another names
    r"|no such template serves"
    r"|fits no insight|no insight"
    r"|what follows the @"
    r"|only an operator's key can be admin"
    r"|the path says"
    r"|cannot change from|cannot shrink from"
    r"|is above target"
    r"|with group_type share"
    r"|is none of this list in this order|is no cursor of this API"
    r"|taken by operations"
    r"|no operation of this agenda"
    r"|no lease token of this API|no completion token of this API"
    r"|say which attempt is meant|or a result, not both"
    r"|refers neither to"
    r"|wait for each other"
    r"|must be later than not_before"
    r"|names nothing"
    r"|payload_schema cannot be used"
    r"|a required parameter has no use for a default|the default is no"
    r"|no parameter can be called|is both in params and in static_params"
    r"|set priority, rank, or both"
    r"|names no agendas"
    r"|must be a W3C tracestate"  # the document cannot say that no key comes twice
    r"|must lie from 1970-01-01 up to"  # no schema bounds an instant
    r"|must be before before_at"
    r"|is not below \w+ "  # two bounds of a scale
    r"|is no time zone of the IANA database"
    r"|its runs are not divided"
    r"|neither key nor fields|go together|acts on what waits"  # fields of one object
    r"|says how an agenda or a link has ended|needs wait_for|wait_for holds the agenda already"
    r"|names no letters|say what it waits for|name one of hour, day and month"
    r"|a list does not wait"
    r"|(give|set) exactly one of"
    r"|has \d+ fields; give five|is no recurrence rule"
    r"|is before first|occurrences; give a range"
    r"|say whose waits the signal ends"
    r"|the field \w+ cannot be used|cannot be used: "  # a cron expression, a recurrence rule
    r"|never fires|nothing is due before|must be later than start"
    r"|is counted from the schedule's"
    r"|which each occurrence sets itself"
    r"|must be the (schedule|rule)'s owner|name the customer whose work it is"
    r"|is neither a day"
    r"|by \w+: give|is listed twice|the agenda has nothing there"
    r"|ends in s: name it in the singular|is that of periods"
    r"|holds a NUL character"  # it may stand in any text, however deep
    r"|holds a character that no text can"
)
"""Rules between fields, or between objects."""

OF_PATCHES = "is required; give it"
"""Of what is patched into something that is not there yet, such as another parameter."""


@schemathesis.check
def refused_for_rules_that_no_schema_can_say(ctx, response, case):
    """A request that the document allows is refused only for what the document cannot say."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if response.status_code != 422 or case.path.endswith(("/run", "preview")):
        return  # what a template makes of a call, only the template says
    problem = response.json()
    issues = [*problem.get("issues", ())]
    results = problem.get("results", ())
    assert issues or results, f"422 without issues: {problem['detail']}"
    if _is_run(case.body) or _is_event(case.body):
        return
    for result in results:
        issues += () if _is_run(case.body[result["index"]]) else result.get("issues", ())
    # The document says nothing of a map's wrong key, nor of what is under it; and of a
    # schedule's submission only that it is an object.
    maps = {one["field"].partition(".")[0] for one in issues if one["field"].endswith("[key]")}
    issues = [
        issue
        for issue in issues
        if issue["field"].partition(".")[0] not in {*maps, "submission"}
    ]
    if case.method == "PATCH":
        issues = [issue for issue in issues if issue["message"] != OF_PATCHES]
    for issue in issues:
        assert RULES.search(issue["message"]), f"the document could say this: {issue}"


def _is_event(body):
    """What the data of a CloudEvent has to be is not in the document."""
    first = body[0] if isinstance(body, list) and body else body
    return isinstance(first, dict) and "specversion" in first


def _is_run(body):
    return isinstance(body, dict) and "template_id" in body


@schemathesis.hook
def before_call(context, case, kwargs):
    """The key of the test itself is neither rotated nor revoked, and no pull waits in vain."""
    if case.path.endswith("/pull") and isinstance(case.body, dict):
        wait_s = case.body.get("wait_s", LONGEST_PULL_S)
        if type(wait_s) in {int, float} and 0 <= wait_s <= LONGEST_PULL_S:
            case.body["wait_s"] = 0
    own_id = case.headers.get("Authorization", "").partition("pop_")[2].partition("_")[0]
    if own_id and (case.path_parameters or {}).get("key_id") == own_id:
        case.path_parameters["key_id"] = OTHER_KEY
