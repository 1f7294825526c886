"""The events on the topics, their JSON, and frames: lists of events in one record.

Every event is a JSON object whose `type` names it. A record's value is one event or a list
of events (a frame); both decode the same way. Unknown fields are ignored, so that a reader
accepts what the next version writes, and a header has the version (`codec`). Instants
are RFC 3339 in UTC.
"""
