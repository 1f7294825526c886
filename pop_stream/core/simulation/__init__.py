"""The real policy in virtual time: made-up work, or recorded rounds again."""
