"""One tick of the trigger: what was deferred is tried again, runs with candidates go on, chains take their next step, ends are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from vertexrig import times
from vertexrig.errors import VertexrigError
from vertexrig.submit.ladder import Ladder
from vertexrig.submit.rungs import ways
from vertexrig.submit.submission import Submitted
from vertexrig.trigger import answers, history, notify, request
from vertexrig.trigger.answers import Reply
from vertexrig.trigger.deferred import DeferredRun, Retrier
from vertexrig.trigger.deliveries import Delivery
from vertexrig.trigger.ladders import Climber, OpenLadder
from vertexrig.trigger.policy import Due

if TYPE_CHECKING:
    from vertexrig.project.config import Loaded
    from vertexrig.submit.budget import Terms
    from vertexrig.submit.claims import Key
    from vertexrig.submit.submission import Submitter
    from vertexrig.trigger.history import Deliveries
    from vertexrig.trigger.request import Asked
    from vertexrig.trigger.ticks import Ticker
    from vertexrig.workspace import Prepared


TICK_S = 60.0
"""Seconds after which a tick leaves the rest to the next one."""
T = TypeVar("T")
Tick = Callable[[Callable[[Exception], None], Callable[[], bool]], list[T]]
"""Looks at all runs of one kind, unless they cannot be listed. Takes a function that is called with an error that ends the look at one,
the others being looked at all the same, and one that tells whether the rest is left to the next tick."""
_KINDS = ("a deferred run", "a run with candidates", "a chain")


class Ticked(Protocol):
    """What a tick needs of the trigger."""

    loaded: Loaded
    submitter: Submitter
    log: Callable[[Mapping[str, Any]], None]

    @property
    def ticker(self) -> Ticker: ...
    @property
    def deliveries(self) -> Deliveries: ...
    def keep(self, delivery: Delivery, reply: Reply) -> dict[str, Any]: ...
    def asked(self, body: Any, delivery: Delivery, row: dict[str, Any]) -> Asked: ...
    def prepared(self, asked: Asked) -> list[Prepared]: ...
    def terms(self, asked: Asked, caller: str) -> Terms: ...
    def due(self, schedule: str, time: str) -> Due | None: ...
    def make_job(
        self, submitter: Submitter, prepared: list[Prepared], key: Key, asked: Asked, terms: Terms, delivery: Delivery
    ) -> Submitted: ...


def tick(trigger: Ticked, row: dict[str, Any]) -> Reply:
    """Take each run as far as it goes now; what moved has a log entry, and counts are added to `row`, the tick's own."""

    def failed(what: str) -> Callable[[Exception], None]:
        return lambda error: trigger.log({"severity": "ERROR", "message": f"{what} failed", **answers.failure(error)})

    decided = list[Delivery]()

    def keep(delivery: Delivery) -> None:
        decided.append(delivery)
        trigger.log({**delivery.entry, **trigger.keep(delivery, Reply(200, {}))})

    submitter, clock, errors = trigger.ticker.submitter, trigger.ticker.clock, list[Exception]()
    begun = clock()

    def guarded(part: int, tick: Tick[T]) -> list[T]:
        # each has its part of the time and what the ones before it left, so that many runs of one kind hold up no other
        try:
            return tick(failed(_KINDS[part]), lambda: clock() > begun + TICK_S * (part + 1) / len(_KINDS))
        except Exception as error:  # the others are looked at all the same
            errors.append(error)
            return []

    guarded(0, Retrier(submitter, lambda one, due: _again(trigger, one, due), keep).tick)
    climbed = guarded(1, Climber(submitter, lambda one: climbing(trigger, one), keep).tick)
    for climb in (one for one in climbed if one.severity):
        trigger.log({"severity": climb.severity, "message": climb.message, **climb.data})
    looked = guarded(2, trigger.ticker.tick)
    for one in (one for one in looked if one.severity):
        message = f"chain {one.schedule} {one.step} {one.state}: {one.detail}"
        trigger.log({"severity": one.severity, "message": message, **one.data})
    states = [one.state for one in looked]
    row |= {state: states.count(state) for state in sorted(set(states))}
    try:
        rows = trigger.deliveries.rows(times.now() - history.RECENT)
        for ended in trigger.deliveries.settle(
            rows, trigger.loaded, trigger.submitter.vertex, trigger.submitter.workspace.catalog
        ):
            trigger.log(history.end_entry(ended))
        if wanted := trigger.loaded.project.trigger.notify:
            for sent in notify.Notifier(trigger.submitter.storage, wanted).send_new(rows, looked):
                trigger.log(sent)
    except VertexrigError as error:  # the next tick comes
        row["ends"] = f"not read: {error}"[:300]
    except Exception as error:
        failed("an end")(error)
    if errors:
        raise errors[0]
    names = ("schedule", "schedule_time", "run", "decision", "reason", "job")
    more: dict[str, list[dict[str, Any]]] = (
        {"deferred": [{name: getattr(one, name) for name in names} for one in decided]} if decided else {}
    )
    more |= {"candidates": [one.data for one in climbed]} if climbed else {}
    row |= {name: len(rows) for name, rows in more.items()}
    return Reply(200, {"chains": [one.answer for one in looked], **more})


def _again(trigger: Ticked, one: DeferredRun, due: Due) -> Submitted:
    """Start a deferred run. What the bucket says of it is allowed as far as the project file allows it to its callers."""
    asked, caller = request.read(dict(one.body), trigger.loaded), trigger.loaded.project.invoker
    terms = due.terms(trigger.terms(asked, caller))
    delivery = Delivery(schedule=one.schedule, schedule_time=one.time, caller=caller)
    return trigger.make_job(trigger.ticker.submitter, trigger.prepared(asked), one.claim_key, asked, terms, delivery)


def climbing(trigger: Ticked, one: OpenLadder) -> Ladder:
    """Return the ladder of a run with candidates. What the bucket says of it is allowed as far as its caller may ask for it."""
    asked = trigger.asked(dict(one.body), Delivery(caller=one.caller), {})
    terms, due = trigger.terms(asked, one.caller), trigger.due(one.schedule, one.time)
    found = ways(trigger.prepared(asked), trigger.ticker.submitter)
    if due is not None:
        # a policy decides whether a run begins: one that has begun is not left out any more
        terms = replace(due.terms(terms), ends=terms.ends)
    # without a window: this goes on with one request, and never begins the next one of the same key
    key = replace(one.claim_key, window_s=None)
    return Ladder(found, asked.request.digest, key, first=one.id, run_id=one.run_id, terms=terms)
