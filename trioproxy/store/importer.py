"""Records become rows: exactly once, because how far the spool was read is written in the same transaction.

A call whose end is not there yet is kept in `begun`, so that a restart finds it; one that begins and ends within a batch never
gets there. What is still begun when a life starts was interrupted: it is recorded with its estimate.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from attrs import define, field, frozen

from trioproxy.journal import Usage
from trioproxy.policy.pricing import Tariff
from trioproxy.store import schema
from trioproxy.store.database import Database, DatabaseTrouble, Row, transaction
from trioproxy.store.records import (
    Began,
    Ended,
    KeyChange,
    Probe,
    Record,
    Rollout,
    Switch,
    TopUp,
    Transition,
    cleaned,
    decode,
)
from trioproxy.store.spool import Spool

# Records in one transaction. Their rows are made in about a millisecond, which is what the loop may have to wait for.
BATCH = 200
INTERRUPTED = "interrupted"

_TABLES: dict[type, str] = {
    Transition: "transitions",
    Switch: "switches",
    Probe: "probes",
    Rollout: "rollouts",
    TopUp: "balances",
    KeyChange: "keys",
}
_INSERT_CALL = schema.insertion("calls", schema.CALLS)
_INSERT_ATTEMPT = schema.insertion("attempts", schema.ATTEMPTS)
_INSERT_EVENT = {name: schema.insertion(name, columns) for name, columns in schema.EVENTS.items()}
_INSERT_BEGUN = schema.insertion("begun", schema.BEGUN)


@frozen
class Place:
    """A channel's provider and where it lives there, as rows tell it."""

    provider: str = ""
    deployment: str = ""
    region: str = ""
    workspace: str = ""
    project: str = ""
    tariff: Tariff | None = None


_NOWHERE = Place()


@define(eq=False)
class Importer:
    """One spool's way into the database. Used by one thread at a time."""

    spool: Spool
    places: Mapping[str, Place]
    number: int = field(init=False, default=0)  # of the spool, in the database
    imported: int = field(init=False, default=0)
    unreadable: int = field(init=False, default=0)  # records that are none of ours; passed over, and told
    _begun: dict[int, tuple[int, bytes]] = field(init=False, factory=dict)
    passed_over: str = field(init=False, default="")
    # What the last batch did, until it is committed.
    _fresh: dict[int, tuple[int, bytes]] = field(init=False, factory=dict)
    _gone: list[int] = field(init=False, factory=list)

    def start(self, database: Database) -> int:
        """Take up where the database is; the position up to which it has this spool. In a transaction of its own."""
        identity = self.spool.identity
        database.execute(database.words["alone"])
        known = database.execute("SELECT spool, position FROM spools WHERE identity = ?", (identity,))
        if not known:
            (last,) = database.execute("SELECT coalesce(max(spool), 0) FROM spools")[0]
            known = [(last + 1, self.spool.tail)]
            database.execute("INSERT INTO spools VALUES (?, ?, ?)", (last + 1, identity, self.spool.tail))
        self.number, position = known[0]
        rows = database.execute("SELECT serial, position, record FROM begun WHERE spool = ?", (self.number,))
        self._begun = {serial: (place, bytes(record)) for serial, place, record in rows}
        return int(position)

    def take(self, database: Database, until: int | None) -> bool:
        """Take over one batch, up to `until` or to the end of what is there; whether there was anything.

        Where the database does not take a record, the next one goes alone and cleaned; what it takes in no form is passed
        over, and `passed_over` says why.
        """
        self.passed_over = ""
        try:
            return self._step(database, until, BATCH)
        except DatabaseTrouble as trouble:
            if not trouble.data:
                raise
        try:
            return self._step(database, until, 1)
        except DatabaseTrouble as trouble:
            if not trouble.data:
                raise
            self.passed_over = trouble.why
        return self._step(database, until, 1)

    def _step(self, database: Database, until: int | None, most: int) -> bool:
        with transaction(database):
            (position,) = database.execute("SELECT position FROM spools WHERE spool = ?", (self.number,))[0]
            records, behind = self.spool.read(position, most, until)
            if not records:
                return False
            if self.passed_over:
                self.unreadable += 1
                self._fresh, self._gone = {}, []
            else:
                self._write(database, records, clean=most == 1)
            database.execute("UPDATE spools SET position = ? WHERE spool = ?", (behind, self.number))
        # It is safe now: its room in the spool is free.
        for serial in self._gone:
            self._begun.pop(serial, None)
        self._begun |= self._fresh
        self.imported += len(records)
        self.spool.release(behind)
        return True

    def _write(self, database: Database, records: list[tuple[int, bytes]], *, clean: bool) -> None:
        self._fresh, self._gone = {}, []
        calls: list[Row] = []
        attempts: list[Row] = []
        events: dict[str, list[Row]] = {}
        for position, payload in records:
            try:
                record = cleaned(decode(payload)) if clean else decode(payload)
            except msgspec.DecodeError:
                self.unreadable += 1
                continue
            if isinstance(record, Ended):
                calls.append(self._call(position, record))
                attempts.extend(self._attempts(position, record))
                if record.serial and self._fresh.pop(record.serial, None) is None:
                    self._gone.append(record.serial)
            elif isinstance(record, Began):
                self._fresh[record.serial] = (position, payload)
            else:
                row = self.number, position, *_values(record)
                events.setdefault(_TABLES[type(record)], []).append(row)
        if calls:
            database.insert(_INSERT_CALL, calls)
        if attempts:
            database.insert(_INSERT_ATTEMPT, attempts)
        for table, rows in events.items():
            database.insert(_INSERT_EVENT[table], rows)
        self._remember(database)

    def _remember(self, database: Database) -> None:
        if self._fresh:
            rows = ((self.number, serial, *begun) for serial, begun in self._fresh.items())
            database.insert(_INSERT_BEGUN, rows)
        gone = [(self.number, serial) for serial in self._gone if serial in self._begun]
        if gone:
            database.insert("DELETE FROM begun WHERE spool = ? AND serial = ?", gone)

    def interrupt(self, database: Database, position: int) -> int:
        """Record what an earlier life left open as interrupted, from `position` on; the position behind it.

        In the caller's transaction. The positions are new ones, so that whoever reads on from a position meets them.
        """
        calls = []
        for number, (_, payload) in enumerate(self._begun.values()):
            began = decode(payload)
            assert isinstance(began, Began)
            calls.append(self._interrupted(position + number, began))
        if calls:
            database.insert(_INSERT_CALL, calls)
        database.execute("DELETE FROM begun WHERE spool = ?", (self.number,))
        behind = position + len(calls)
        database.execute("UPDATE spools SET position = ? WHERE spool = ?", (behind, self.number))
        self._begun = {}
        return behind

    def _interrupted(self, position: int, began: Began) -> Row:
        tariff = self.places.get(began.channel, _NOWHERE).tariff
        usage = Usage(input=began.estimated_input, output=began.estimated_output, estimated=True)
        ended = Ended(
            began.serial,
            began.at,
            began.request_id,
            INTERRUPTED,
            200,
            "",
            began.model,
            False,
            began.key_id,
            began.tenant,
            began.traffic_class,
            began.user,
            usage.input,
            0,
            usage.output,
            True,
            None if tariff is None else tariff.cost(usage),
            0.0,
            0.0,
            0.0,
            "",
            "",
            "",
            None,
            began.estimated_input,
            began.estimated_output,
            "",
            "",
            "the gateway ended in the middle of it",
            (),
        )
        return self._call(position, ended, began.channel, began.provider_model)

    def _call(self, position: int, ended: Ended, channel: str = "", provider_model: str = "") -> Row:
        attempts = ended.attempts
        if attempts and attempts[-1].first_content is not None:  # it was committed: this one answered
            channel, provider_model = attempts[-1].channel, attempts[-1].model
        place = self.places.get(channel, _NOWHERE)
        return (
            self.number,
            position,
            ended.request_id,
            ended.at - ended.duration,
            ended.at,
            ended.duration,
            ended.overhead,
            ended.queued,
            ended.reason,
            ended.status,
            ended.endpoint,
            int(ended.stream),
            ended.model,
            ended.fallback,
            place.provider,
            channel,
            provider_model,
            place.deployment,
            place.region,
            place.workspace,
            place.project,
            ended.tenant,
            ended.key_id,
            ended.user,
            ended.traffic_class,
            ended.session,
            ended.arm,
            ended.estimated_input,
            ended.estimated_output,
            ended.input,
            ended.cached,
            ended.output,
            int(ended.estimated),
            ended.cost,
            ended.preferred_cost,
            ended.limiter,
            ended.scope,
            ended.note,
            len(attempts),
        )

    def _attempts(self, position: int, ended: Ended) -> Iterable[Row]:
        for number, attempt in enumerate(ended.attempts, 1):
            provider = self.places.get(attempt.channel, _NOWHERE).provider
            yield (
                self.number,
                position,
                number,
                attempt.channel,
                provider,
                attempt.model,
                attempt.started,
                attempt.duration,
                attempt.fault,
                attempt.blame,
                attempt.status,
                attempt.retry_after,
                attempt.message,
                int(attempt.reused),
                attempt.first_content,
            )


def _values(record: Record) -> Iterable[Any]:
    """The fields in the order of the columns; no boolean, which PostgreSQL does not take for a number."""
    for name in record.__struct_fields__:
        value = getattr(record, name)
        yield int(value) if isinstance(value, bool) else value
