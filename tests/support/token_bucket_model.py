"""How many tokens a customer can have, reckoned beside the policy."""

from dataclasses import dataclass


@dataclass
class TokenBucketModel:
    """The fewest and the most tokens that a customer can have.

    What it gained when its limit was changed, and while it had none, is not followed: it may
    be nothing, or all.
    """

    least: float = 1.0
    most: float = 1.0
    at: float = 0.0

    def fill(self, share, now):
        self.least, self.most, self.at = float(share.burst), float(share.burst), now

    def change(self, share, now):
        self.least, self.most, self.at = min(self.least, share.burst), share.burst, now

    def look(self, share, now):
        gained = (now - self.at) * share.rate_per_s
        self.least = min(share.burst, self.least + gained)
        self.most = min(share.burst, self.most + gained)
        self.at = now

    def take(self, share, now):
        self.look(share, now)
        self.least, self.most = self.least - 1.0, self.most - 1.0
