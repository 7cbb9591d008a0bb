"""Chains as a world to explore: a run, a promoted job and a registered version, by ticks that can be frozen, woken, killed and
cut before and after every call, over the services in memory of `tests/support/protocol.py`.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tests.support.clouds_in_memory import Clock, Delivery, Gate, MemoryStorage, MemoryVertex, straight
from tests.support.protocol import (
    LAGS,
    LIVING,
    REQUEST,
    STOPS,
    Broken,
    Move,
    World,
    begun,
    lagging,
    passing,
    prepared,
    wander,
)
from vertexrig import times
from vertexrig.cloud.models import ModelsClient, plain
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.storage import Item, Storage, StoredObject
from vertexrig.project.triggered import EvaluateStep, Schedule, StepOptions
from vertexrig.spec.states import QUEUED, RUNNING, SUCCEEDED
from vertexrig.studies.register import Trained
from vertexrig.submit.budget import Terms
from vertexrig.submit.chains import ENDED, OPEN, Chain, Chains
from vertexrig.submit.claims import LABEL, LEASE_S, Claim
from vertexrig.trigger import promotion
from vertexrig.trigger.registration import Evaluation, Registrar
from vertexrig.trigger.ticks import Ticker
from vertexrig.workspace import Prepared, Workspace

MODEL = Trained("gs://my-bucket/model", "accuracy", 0.9, "MAXIMIZE", "cpu", "1")
MORE_STOPS = (*STOPS, "before upload", "before upload", "after upload", "before merge", "before delete model")


class MemoryFolder(Storage):
    """A folder of a bucket in memory, to read from."""

    def __init__(self, storage: MemoryStorage, uri: str) -> None:
        super().__init__(uri, url="http://127.0.0.1:9")
        self.whole = storage

    def read(self, name: str, *, generation: int | None = None) -> StoredObject | None:
        found = self.whole.objects.get(self.prefix + name)
        return StoredObject(found[0], found[1]) if found else None

    def exists(self, name: str) -> bool:
        return self.prefix + name in self.whole.objects

    def list(self, prefix: str) -> Iterator[Item]:
        names = [name for name in self.whole.objects if name.startswith(self.prefix + prefix)]
        yield from (Item(name.removeprefix(self.prefix), self.whole.objects[name][1], "") for name in names)


class MemoryModels(ModelsClient):
    """A Model Registry: an upload is an operation that ends at once, or after `slow` seconds.

    Args:
        vertex: Gives the names.
        clock: Its clock.
        gate: Every call goes through it.
    """

    def __init__(self, vertex: MemoryVertex, clock: Clock, gate: Gate = straight) -> None:
        super().__init__(vertex)
        self.clock, self.gate, self.slow, self.vertex = clock, gate, 0.0, vertex
        self.models: dict[str, list[dict[str, Any]]] = {}
        self.crowned = -1e9
        self.operations: dict[str, tuple[float, dict[str, Any]]] = {}
        self.refusal: RestError | None = None
        self.uploading: RestError | None = None
        self._numbers = itertools.count(1)

    def _do(self, name: str, effect: Callable[[], Any]) -> Any:
        def refused() -> Any:
            if self.refusal is not None:
                raise self.refusal
            return effect()

        return self.gate(name, refused)

    def _seen(self, name: str) -> list[dict[str, Any]]:
        return [dict(row) for row in self.models.get(plain(name), ()) if row["from"] <= self.clock()]

    def find(self, display_name: str) -> list[dict[str, Any]]:
        def effect() -> list[dict[str, Any]]:
            rows = [row for name in self.models for row in self._seen(name) if "default" in row["versionAliases"]]
            return [row for row in rows if row["displayName"] == display_name]

        return list(self._do("models", effect))

    def version(self, name: str, version: str = "default") -> dict[str, Any] | None:
        def effect() -> dict[str, Any] | None:
            rows = self._seen(name)
            return next((row for row in rows if version in (row["versionId"], *row["versionAliases"])), None)

        found: dict[str, Any] | None = self._do("models", effect)
        return found

    def versions(self, name: str) -> list[dict[str, Any]]:
        return list(self._do("models", lambda: self._seen(name)))

    def begin_upload(self, model: Mapping[str, Any], parent_model: str = "", model_id: str = "") -> dict[str, Any]:
        def effect() -> dict[str, Any]:
            if self.uploading is not None:
                raise self.uploading
            name = plain(parent_model) or f"{self.parent}/models/{model_id}"
            if not parent_model and name in self.models:
                raise RestError("the model is there", status=409)
            rows = self.models.setdefault(name, [])
            number = str(1 + max((int(row["versionId"]) for row in rows), default=0))
            aliases = [] if rows else ["default"]
            at = self.clock() + self.slow
            rows.append({**model, "name": name, "versionId": number, "versionAliases": aliases, "from": at})
            operation = f"{name}/operations/{next(self._numbers)}"
            self.operations[operation] = (at, {"model": name, "modelVersionId": number})
            return {"name": operation}

        return dict(self._do("upload", effect))

    def operation(self, name: str) -> dict[str, Any] | None:
        def effect() -> dict[str, Any]:
            at, response = self.operations[name]
            return {"name": name, "done": True, "response": response} if at <= self.clock() else {"name": name}

        return dict(self._do("operation", effect))

    def merge_aliases(self, name: str, version: str, aliases: list[str]) -> dict[str, Any]:
        def effect() -> dict[str, Any]:
            rows = self.models[plain(name)]
            for row in rows:
                own = set(row["versionAliases"])
                row["versionAliases"] = sorted(
                    own | set(aliases) if row["versionId"] == version else own - set(aliases)
                )
            return {}

        return dict(self._do("merge", effect))

    def crown(self, folder: str) -> None:
        """Let somebody else add a version that takes the aliases, at once."""
        name = next(iter(self.models), f"{self.parent}/models/first")
        rows = self.models.setdefault(name, [])
        for row in rows:
            row["versionAliases"] = []
        number = str(1 + max((int(row["versionId"]) for row in rows), default=0))
        about = {"displayName": "cpu", "versionDescription": "accuracy 0.5, from cpu 1", "artifactUri": folder}
        aliases = {"versionAliases": ["champion", "default"]}
        rows.append({**about, "name": name, "versionId": number, **aliases, "from": 0.0})
        self.crowned = self.clock()

    @property
    def champion(self) -> str:
        """Folder of the version with the aliases, "" if there is none."""
        rows = [row for found in self.models.values() for row in found if "default" in row["versionAliases"]]
        return str(rows[0].get("artifactUri", "")) if rows else ""

    def delete(self, name: str, version: str = "") -> None:
        def effect() -> None:
            rows = self.models.get(plain(name), [])
            kept = [row for row in rows if version and row["versionId"] != version]
            if any("default" in row["versionAliases"] for row in rows if row not in kept) and version:
                raise RestError("the default version cannot be deleted", status=400)
            if kept:
                self.models[plain(name)] = kept
            else:
                self.models.pop(plain(name), None)

        self._do("delete model", effect)


@functools.cache
def chained() -> Workspace:
    """The world's project, whose schedule `nightly` runs the job and has both steps."""
    workspace, _ = prepared()
    loaded = workspace.loaded
    schedule = Schedule(run="cpu", cron="0 3 * * *", then=("promote", "register"))
    return workspace.overridden(replace(loaded, project=replace(loaded.project, schedules={"nightly": schedule})))


@functools.cache
def evaluated() -> Workspace:
    """The same with a job that measures both models between the two steps."""
    workspace = chained()
    project = workspace.loaded.project
    then = ("promote", StepOptions(evaluate=EvaluateStep("measure")), "register")
    schedule = Schedule(run="cpu", cron="0 3 * * *", then=then)
    jobs = {**project.jobs, "measure": project.jobs["cpu"]}
    changed = replace(project, schedules={"nightly": schedule}, jobs=jobs)
    return workspace.overridden(replace(workspace.loaded, project=changed))


@functools.cache
def measuring(champion: str, challenger: str) -> Prepared:
    """The job that measures two models."""
    workspace = evaluated()
    chain = Chain("0" * 32, "nightly", "cpu", (), "")
    loaded = promotion.with_models(workspace.loaded, chain, EvaluateStep("measure"), champion, challenger)
    return workspace.overridden(loaded).prepare("measure")


class WorldTicker(Ticker):
    """A ticker that renders nothing: the promoted job is the run's own."""

    def prepared(self, *_: Any) -> Any:
        return prepared()[1]

    def evaluating(self, chain: Chain, step: Any, champion: str, challenger: str) -> Prepared:
        return measuring(champion, challenger)

    def _measured(self, step: Any, job: Any) -> Evaluation:
        self.folder = lambda uri: Summary(uri)  # type: ignore[assignment]
        return super()._measured(step, job)


class Summary(Storage):
    """A folder whose summary.json says that the new model is better on today's data."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri, url="http://127.0.0.1:9")

    def read_json(self, name: str) -> dict[str, Any]:
        return {"champion": {"accuracy": 0.6}, "challenger": {"accuracy": 0.7}}


class WorldRegistrar(Registrar):
    """A registrar whose jobs have all trained the same model."""

    def _trained(self, *_: Any) -> tuple[Trained, tuple[str, str]]:
        return MODEL, ("tf", "2.17")

    def _begin(self, taken: Any, body: Mapping[str, Any], parent: str, chain: Chain) -> dict[str, Any]:
        models, late = self.models, self.claims.late(taken)
        if "evaluate" in chain.steps and not late:
            assert isinstance(models, MemoryModels) and isinstance(models.vertex, MemoryVertex)
            jobs = [job.data for job in models.vertex.jobs.values() if job.data["displayName"] == "measure"]
            measured = {_champion(job) for job in jobs if job["state"] == SUCCEEDED}
            # a version that came while this claim is held cannot have been seen, and the chain's own is none to beat
            if models.champion not in {*measured, MODEL.uri} and models.clock() - models.crowned > LEASE_S:
                raise Broken(f"{models.champion!r} was not measured, only {measured}")
        return super()._begin(taken, body, parent, chain)


def _champion(job: Mapping[str, Any]) -> str:
    words = job["jobSpec"]["workerPoolSpecs"][0]["pythonPackageSpec"]["args"]
    return next((word.partition("=")[2] for word in words if word.startswith("--champion=")), "")


class ChainWorld(World):
    """One schedule of deliveries and ticks.

    Args:
        registrar: The class that registers; tests put broken ones here.
        ticker: The same for ticks.
        evaluates: Both models are measured before one is registered.
        parts: See `World`.
    """

    def __init__(
        self,
        registrar: type[Registrar] = WorldRegistrar,
        ticker: type[Ticker] = WorldTicker,
        evaluates: bool = False,
        **parts: Any,
    ) -> None:
        self.steps = ("promote", "evaluate", "register") if evaluates else ("promote", "register")
        super().__init__(**parts)
        self._registrar, self._ticker = registrar, ticker
        self.models = MemoryModels(self.vertex, self.clock, self._gate)
        self.storage.objects["model/saved_model.pb"] = (b"", 1, 0.0)
        self.surprises: list[Exception] = []

    def workspace(self) -> Workspace:
        return evaluated() if "evaluate" in self.steps else chained()

    def submit(self, key: Any, delivery: Delivery | None) -> Any:
        begun = times.rfc3339(self.clock.now())

        def before(claim: Claim) -> None:
            Chains(self.storage).begin(Chain(claim.id, "nightly", "cpu", self.steps, begun))

        terms = Terms(before_create=before)
        made = self._submitter(delivery).submit(prepared()[1], key, "the body", terms=terms)
        self.answers.append((key, made))
        return made

    def tick(self) -> Delivery:
        """Start a tick."""
        return self._begun(self._tick)

    def _tick(self, delivery: Delivery | None) -> list[Any]:
        submitter = self._submitter(delivery)
        submitter.claims.wait_s = 0
        ticker = self._ticker(
            submitter,
            self.models,
            folder=lambda uri: MemoryFolder(self.storage, uri),
            clock=self.clock,
            now=self.clock.now,
        )
        ticker.registrar = self._registrar(
            *(getattr(ticker.registrar, name) for name in Registrar.__dataclass_fields__)
        )
        return ticker.tick(self.surprises.append)

    def end(self, number: int) -> None:
        """Let one of the recorded jobs succeed."""
        live = [job.data for job in self.vertex.jobs.values() if job.data["state"] in (QUEUED, RUNNING)]
        recorded = [job for job in live if self._recorded(job["labels"][LABEL]) == job["name"]]
        if recorded:
            job = recorded[number % len(recorded)]
            job.update(state=SUCCEEDED, endTime=times.rfc3339(self.clock.now()))

    @property
    def uploads(self) -> int:
        """How many versions were ever uploaded."""
        return len(self.models.operations)

    def finish(self, wake: bool) -> None:
        while wake and self.deliveries:
            self.step(0, *[""] * 20)
        self.close()
        self.vertex.lag, self.models.slow, self.clock.at = 0.0, 0.0, self.clock.at + max(LAGS)
        self._through(REQUEST)
        chains = Chains(self.storage)
        for _ in range(24):
            self._tick(None)
            self.end(0)
            self.clock.at += LEASE_S + 2.0
            if not list(chains.open()):
                break
        self._look(self._parts(None)[1])
        self._tick(None)
        claims, _ = self._parts(None)
        self._registrar(
            self.workspace().loaded,
            self.workspace().catalog,
            self.models,
            claims,
            chains,
            lambda uri: MemoryFolder(self.storage, uri),
        ).clean("cpu")  # what the next run's chain does
        self._check()

    def _check(self) -> None:
        if self.surprises:
            raise Broken(f"a tick failed: {self.surprises[0]!r}")
        alive: dict[str, list[str]] = {}
        for job in self.vertex.surviving():
            alive.setdefault(job.labels[LABEL], []).append(job.name)
        if {*map(len, alive.values())} != {1} or ("evaluate" not in self.steps and len(alive) != 2):
            raise Broken(f"one run, one promoted job and one of each measurement should survive: {alive}")
        if [name for name in self.storage.objects if name.startswith(OPEN)]:
            raise Broken("the chain is open")
        (path,) = [name for name in self.storage.objects if name.startswith(ENDED)]
        end = Chains(self.storage).end(path.removeprefix(ENDED).removesuffix(".json"))
        if end is None or end.outcome != "registered":
            raise Broken(f"the chain ended {end}")
        versions = [
            row for rows in self.models.models.values() for row in rows if "(chain " in row["versionDescription"]
        ]
        if [f"{row['name']}@{row['versionId']}" for row in versions] != [end.model]:
            raise Broken(f"{len(versions)} versions, and the chain's is {end.model}")
        if versions[0]["versionAliases"] != ["champion", "default"] and self.models.crowned < 0:
            raise Broken(f"the version has the aliases {versions[0]['versionAliases']}")
        if not set(end.jobs.values()) <= {name for names in alive.values() for name in names}:
            raise Broken(f"the end names {end.jobs}, and {alive} survive")


def explore(seed: int, steps: int = 30, there: bool = False, **parts: Any) -> ChainWorld:
    """One schedule at random.

    Args:
        seed: Which.
        steps: Its moves.
        there: A model is there already, so that the chain adds a version.
        parts: See `ChainWorld`.

    Raises:
        Broken: A promise does not hold.
    """
    chance, world = random.Random(seed), ChainWorld(**parts)
    if there:
        world.models.begin_upload({"displayName": "cpu", "versionDescription": "accuracy 0.5, from cpu 1"}, "", "first")

    def slowing() -> None:
        world.models.slow = chance.choice(LAGS)

    moves = (
        Move(0.30, lambda: begun(world, chance, world.tick, MORE_STOPS), begins=True),
        Move(0.34, lambda: begun(world, chance, lambda: world.deliver(REQUEST)), begins=True),
        Move(0.48, lambda: passing(world, chance)),
        Move(0.52, lambda: world.kill(chance.randrange(LIVING))),
        Move(0.56, lambda: lagging(world, chance)),
        Move(0.59, slowing),
        Move(0.62, lambda: world.start(chance.randrange(LIVING))),
        Move(0.76, lambda: world.end(chance.randrange(LIVING))),
        *([Move(0.79, lambda: world.models.crown(f"gs://theirs/{chance.random()}"))] if parts.get("evaluates") else []),
    )
    begun(world, chance, lambda: world.deliver(REQUEST))
    wander(world, chance, steps, moves, MORE_STOPS)
    return world
