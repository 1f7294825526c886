"""Three insights of a pool lend and take back, through whatever may happen to them.

After every record that is handled: what the pool has is not exceeded by who was given more, no
slot is idle that anybody may have, and nobody is given more than its due while another who
wants it has less. An insight from which nobody pulls for long lends the slots of what is on its
topic.
"""

from dataclasses import dataclass, field
from datetime import timedelta

from backlogs import START, placed, settled
from fakes import FixedDefinitions, ManualClock, MemoryPublisher, MemoryReadyTable
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from msgspec import Raw
from token_bucket_model import TokenBucketModel

from pop_stream.kafka.topics import Topics
from pop_stream.model.definitions import Customer, Definitions, Insight, ResourcePool
from pop_stream.model.events.codec import decode_emitted, encode
from pop_stream.model.events.scheduling import (
    Claim,
    InsightAgendasRouted,
    InsightAttemptsReported,
    InsightTick,
    Origin,
)
from pop_stream.policy.flow_control.pool_sharing import LENT_AFTER_S
from pop_stream.scheduler.event_handler import ReadyEventHandler
from pop_stream.scheduler.round_writer import RecordPosition

TOPICS = Topics("t.")
NAMES = ("a", "b", "c")
CUSTOMERS = ("ann", "bob")
names = st.sampled_from(NAMES)
insights = st.fixed_dictionaries(
    {
        "target": st.sampled_from([2, 6, 40, 40]),
        "max_in_flight": st.sampled_from([None, None, 3]),
        "pool_weight": st.sampled_from([0.5, 1.0, 1.0, 4.0, 50.0]),
        "pool_minimum": st.sampled_from([0, 0, 2, 5]),
    }
)
limits = st.fixed_dictionaries(
    {
        "paused": st.sampled_from([False, False, True]),
        "max_in_flight": st.none() | st.integers(1, 4),
        "rate_per_s": st.none() | st.sampled_from([0.2, 2.0]),
        "burst": st.integers(1, 3),
    }
)


@dataclass
class Part:
    """What a customer has in an insight, by the model."""

    waiting: int = 0
    out: list = field(default_factory=list)
    bucket: TokenBucketModel = field(default_factory=TokenBucketModel)


def run(coroutine):
    """Nothing here waits for anything, so no loop is needed."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    msg = "it waits"
    raise AssertionError(msg)


class LendingMachine(RuleBasedStateMachine):
    """Rules write to `pop.ready`, and the scheduler handles what was written at once."""

    @initialize(
        kinds=st.fixed_dictionaries(dict.fromkeys(NAMES, insights)), capacity=st.integers(1, 12)
    )
    def begin(self, kinds, capacity):
        self.kinds = {one: self.insight(one, kind) for one, kind in kinds.items()}
        self.capacity = capacity
        self.customers = {one: Customer(id=one) for one in CUSTOMERS}
        self.version = 0
        self.definitions = FixedDefinitions(Definitions())
        self.redefine()
        self.publisher = MemoryPublisher(partition_count=1)
        self.clock = ManualClock(START)
        self.table = MemoryReadyTable()
        self.offset = 0
        self.made = 0
        self.seen = dict.fromkeys(NAMES, 0)
        self.unclaimed = {one: [] for one in NAMES}
        self.running = {one: [] for one in NAMES}
        self.pulled_at = dict.fromkeys(NAMES, self.now)
        self.whose = {}
        self.parts = {(one, customer): Part() for one in NAMES for customer in CUSTOMERS}
        self.take_over()

    def insight(self, name, kind):
        return Insight(id=name, pool="gpu", low_water=kind["target"], **kind)

    def redefine(self):
        self.version += 1
        self.definitions.current = Definitions(
            insights=dict(self.kinds),
            pools={"gpu": ResourcePool(id="gpu", max_in_flight=self.capacity)},
            customers=dict(self.customers),
            version=self.version,
        )

    def take_over(self):
        async def create_topic(_):
            pass

        self.pulled_at = dict.fromkeys(NAMES, self.now)
        self.rounds = ReadyEventHandler(
            table=self.table,
            publisher=self.publisher,
            definitions=self.definitions,
            clock=self.clock,
            topics=TOPICS,
            create_topic=create_topic,
            partitions=1,
            owns=lambda _: True,
            read_newest=self.publisher.read_newest,
        )
        for (_, customer), part in self.parts.items():
            part.bucket.fill(self.customers[customer], self.now)

    @property
    def now(self):
        return self.clock.now().timestamp()

    # ---- what happens ----

    @rule(name=names, customer=st.sampled_from(CUSTOMERS), count=st.integers(1, 9))
    def place(self, name, customer, count):
        bodies = []
        for number in range(self.made, self.made + count):
            self.whose[str(number)] = customer
            bodies.append(Raw(encode(placed(str(number), customer))))
        origins = [Origin(partition=0, offset=self.made + n) for n in range(count)]
        self.made += count
        self.parts[name, customer].waiting += count
        self.tell(
            InsightAgendasRouted(insight_id=name, agendas=tuple(bodies), origins=tuple(origins))
        )

    @rule(name=names, count=st.integers(1, 3))
    def claim(self, name, count):
        taken, self.unclaimed[name] = self.unclaimed[name][:count], self.unclaimed[name][count:]
        self.running[name] += taken
        claims = tuple(Claim(agenda_id=one, attempt=1) for one in taken)
        if taken:
            self.pulled_at[name] = self.now
        self.tell(InsightAttemptsReported(insight_id=name, claims=claims))

    @rule(name=names, count=st.integers(1, 3))
    def end(self, name, count):
        """Some that run do not any more; their slots are anybody's."""
        ended, self.running[name] = self.running[name][:count], self.running[name][count:]
        for one in ended:
            self.parts[name, self.whose[one]].out.remove(one)
        self.tell(
            InsightAttemptsReported(
                insight_id=name, settlements=tuple(settled(one, noop=1.0) for one in ended)
            )
        )

    @rule(seconds=st.sampled_from([0.2, 1.0, 9.0, 40.0]))
    def wait(self, seconds):
        self.clock.move(timedelta(seconds=seconds))
        self.tick()

    def tick(self):
        self.tell(InsightTick(insight_id=""))

    @rule(customer=st.sampled_from(CUSTOMERS), limits=limits)
    def limit(self, customer, limits):
        self.customers[customer] = Customer(id=customer, **limits)
        for name in NAMES:
            self.parts[name, customer].bucket.change(self.customers[customer], self.now)
        self.redefine()
        self.tick()

    @rule(name=names, kind=insights)
    def change_insight(self, name, kind):
        self.kinds[name] = self.insight(name, kind)
        self.redefine()
        self.tick()

    @rule(capacity=st.integers(1, 12))
    def change_pool(self, capacity):
        self.capacity = capacity
        self.redefine()
        self.tick()

    @rule()
    def crash(self):
        self.take_over()
        self.tick()

    def tell(self, event):
        for name in NAMES:
            if not self.unclaimed[name]:
                self.pulled_at[name] = self.now
        before = {one: self.in_flight(one) for one in NAMES}
        self.offset += 1
        run(self.rounds.handle(RecordPosition(0, self.offset), encode(event)))
        for name in NAMES:
            for record in self.publisher.on(TOPICS.insight(name))[self.seen[name] :]:
                self.emitted(name, decode_emitted(record.value).agenda_id)
        self.check([one for one in NAMES if self.in_flight(one) > before[one]])

    def check(self, given):
        """What must hold after a record by which these insights were given slots."""
        if given:
            assert sum(map(self.held, NAMES)) <= self.capacity
        wanting = [one for one in NAMES if self.could_have_more(one)]
        if wanting:
            assert sum(map(self.held, NAMES)) >= self.capacity, "a slot is idle"
        for one in given:
            for other in wanting:
                if one != other:
                    self.no_more_than_its_due(one, other)

    def emitted(self, name, agenda_id):
        customer = self.whose[agenda_id]
        part, limits = self.parts[name, customer], self.customers[customer]
        self.seen[name] += 1
        self.unclaimed[name].append(agenda_id)
        part.waiting -= 1
        part.out.append(agenda_id)
        assert not limits.paused
        assert limits.max_in_flight is None or len(part.out) <= limits.max_in_flight
        if limits.rate_per_s is not None:
            part.bucket.take(limits, self.now)
            assert part.bucket.most >= -1e-6

    # ---- what holds ----

    def in_flight(self, name):
        return len(self.unclaimed[name]) + len(self.running[name])

    def held(self, name):
        """The slots that it has not lent."""
        return len(self.running[name]) if self.lends(name) else self.in_flight(name)

    def lends(self, name):
        return self.now - self.pulled_at[name] >= LENT_AFTER_S

    def could_have_more(self, name):
        """Whether its topic has room, and a customer that may go has an agenda for it."""
        insight = self.kinds[name]
        if self.lends(name):
            return False
        if len(self.unclaimed[name]) >= insight.target:
            return False
        if insight.max_in_flight is not None and self.in_flight(name) >= insight.max_in_flight:
            return False
        return any(self.may_go(name, customer) for customer in CUSTOMERS)

    def may_go(self, name, customer):
        part, limits = self.parts[name, customer], self.customers[customer]
        if not part.waiting or limits.paused:
            return False
        if limits.max_in_flight is not None and len(part.out) >= limits.max_in_flight:
            return False
        if limits.rate_per_s is None:
            return True
        part.bucket.look(limits, self.now)
        return part.bucket.least >= 1.0

    def no_more_than_its_due(self, one, other):
        """One was given something; the other wants more than it has, and gets nothing."""
        mine, theirs = self.kinds[one], self.kinds[other]
        if self.in_flight(one) <= mine.pool_minimum:
            return  # minimums come first, and in proportion if there is not enough
        assert self.in_flight(other) >= theirs.pool_minimum, "a minimum is guaranteed"
        level = (self.in_flight(one) - 1) / mine.pool_weight
        assert level <= (self.in_flight(other) + 1) / theirs.pool_weight + 1e-9

    def teardown(self):
        """In the end everything has its turn."""
        if not hasattr(self, "rounds"):
            return
        self.customers = {one: Customer(id=one) for one in CUSTOMERS}
        self.redefine()
        self.tick()
        while any(part.waiting for part in self.parts.values()):
            for name in NAMES:
                self.claim(name, 99)
                self.end(name, 99)


TestLending = LendingMachine.TestCase
