"""The pages: each makes, of what the API answers to its viewer, a template's values.

A page raises what the client raises; the application shows it as a page of its own.
"""
