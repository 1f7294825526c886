"""Several ingresses and a scheduler whose reports arrive late, in any interleaving."""

from collections import Counter
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from pop_stream.model.definitions import Customer
from pop_stream.model.errors import QuotaError
from pop_stream.model.events.quota import BacklogUsage
from pop_stream.policy.ingress.quotas import QuotaLedger

AT = datetime(2026, 1, 1, tzinfo=UTC)
LIMIT = 5
RATE_PER_S, BURST = 2.0, 3
CUSTOMER = Customer(id="c", max_ready=LIMIT, max_submit_per_s=RATE_PER_S, submit_burst=BURST)
UNHURRIED = CUSTOMER.model_copy(update={"max_submit_per_s": None})
INGRESSES = ("api-0", "api-1", "ingest")

MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), st.sampled_from(INGRESSES)),
        st.tuples(st.just("take_in"), st.integers(1, 4)),
        st.tuples(st.just("place"), st.integers(1, 4)),
        st.tuples(st.just("emit"), st.integers(1, 4)),
        st.tuples(st.just("tell"), st.sampled_from((*INGRESSES, "scheduler"))),
        st.tuples(st.just("receive"), st.sampled_from(INGRESSES)),
        st.tuples(st.just("wait"), st.floats(0, 2)),
    ),
    max_size=120,
)


class World:
    """One partition of submissions, one insight; statements on a log that each reads late."""

    def __init__(self, customer):
        self.ledgers = {name: QuotaLedger(name, {"c": customer}.get) for name in INGRESSES}
        self.now_s = 0.0
        self.log = []
        self.read = Counter()
        self.submissions = []
        self.taken_in = self.placed = self.ready = 0
        self.admitted = Counter()
        self.got = dict.fromkeys(INGRESSES, 0)
        self.received = {name: Counter() for name in INGRESSES}
        self.reported_placed = 0

    @property
    def truth(self):
        """Ready agendas and all on their way."""
        return self.ready + len(self.submissions) - self.placed

    def unheard(self, name):
        """What the other ingresses admitted since their last report to this one."""
        return sum(
            self.admitted[other] - self.received[name][other]
            for other in INGRESSES
            if other != name
        )

    def admit(self, name):
        ledger, offset = self.ledgers[name], len(self.submissions)
        if name == "ingest" and self.taken_in < offset:
            return  # it reads in order
        before, total = self.truth, sum(self.admitted.values())
        try:
            ledger.admit("c", "media", now_s=self.now_s)
        except QuotaError as error:
            self.refused(name, error)
            return
        self.admitted[name] += 1
        unheard = self.unheard(name)
        assert before <= LIMIT - 1 + unheard
        if ledger._customer_of("c").max_submit_per_s is not None:
            assert total <= BURST + RATE_PER_S * self.now_s - 1 + unheard + 1e-6
        self.submissions.append(name)
        if name == "ingest":
            ledger.record_position("c", "media", (offset, 0), lane=("media", 0))
            self.taken_in = offset + 1
            ledger.mark_processed({0: self.taken_in})
        else:
            ledger.record_position("c", "media", (offset, 0), lane=0)

    def refused(self, name, error):
        """Never while all reports have arrived and there is room."""
        if error.quota == "max_ready":
            assert error.present >= LIMIT

    def take_in(self, most):
        ledger = self.ledgers["ingest"]
        for _ in range(min(most, len(self.submissions) - self.taken_in)):
            ledger.count_admitted("c", "media")
            ledger.record_position("c", "media", (self.taken_in, 0), lane=("media", 0))
            self.taken_in += 1
        ledger.mark_processed({0: self.taken_in})

    def place(self, most):
        count = min(most, self.taken_in - self.placed)
        self.placed += count
        self.ready += count

    def emit(self, most):
        self.ready -= min(most, self.ready)

    def tell(self, name):
        if name == "scheduler":
            placed = {"0": (self.placed - 1, 0)} if self.placed else {}
            counted = BacklogUsage(
                insight_id="media", at=AT, customers={"c": self.ready}, placed=placed
            )
            self.log.append((None, 0, counted))
            return
        for event in self.ledgers[name].drain_reports(self.now_s):
            self.log.append((name, self.admitted[name], event))

    def receive(self, name):
        while self.read[name] < len(self.log):
            teller, admitted, event = self.log[self.read[name]]
            self.read[name] += 1
            self.ledgers[name].apply(event, now_s=self.now_s)
            if teller is not None:
                self.received[name][teller] = admitted

    def wait(self, seconds):
        self.now_s += seconds

    def settle(self):
        """Every report arrives everywhere."""
        self.take_in(len(self.submissions))
        self.place(len(self.submissions))
        for _ in range(3):
            for name in (*INGRESSES, "scheduler"):
                self.tell(name)
            for name in INGRESSES:
                self.receive(name)


def walk(customer, moves):
    world = World(customer)
    for name, argument in moves:
        getattr(world, name)(argument)
    return world


@given(moves=MOVES)
def test_an_entry_point_admits_too_much_only_by_what_the_others_have_not_reported(moves):
    walk(UNHURRIED, moves)


@given(moves=MOVES)
def test_the_rate_holds_over_all_entry_points_but_for_what_was_not_reported(moves):
    walk(CUSTOMER, moves)


@given(moves=MOVES)
def test_once_all_is_reported_everyone_knows_what_there_is(moves):
    world = walk(UNHURRIED, moves)
    world.settle()
    assert {ledger.ready_count("c") for ledger in world.ledgers.values()} == {world.truth}
