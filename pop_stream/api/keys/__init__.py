"""API keys and the audit log over HTTP.

A key is made here, shown once, and stored as a hash; rotating makes another one with the same
powers and lets the old one live for `grace_s`; revoking ends it at once. A customer who
operates sees and changes its own keys, an admin all. No key gets a role that its maker lacks.

A revocation acts in every process within `auth.keys.FRESH_FOR`. Every change of keys and
definitions leaves a row in the audit log, in the transaction of the change.
"""
