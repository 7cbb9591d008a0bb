"""The settings of a local Vertex as a project file gives them: of a server, and of a rehearsal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median

from localvertex.jobs.settings import Settings, default_slots
from localvertex.runner.children import can_show_buckets
from localvertex.runner.options import RunOptions, TrainerSources
from localvertex.runner.pythons import interpreters
from vertexrig.catalog import load
from vertexrig.errors import UsageError, VertexrigError
from vertexrig.package import image
from vertexrig.project.config import PACKAGES_FOLDER, Loaded
from vertexrig.project.local import LocalSettings


def settings_of_project(
    loaded: Loaded | None,
    root: Path,
    *,
    cold: bool = False,
    discrete: str | None = None,
    strict_gs: bool = False,
    engine: str | None = None,
    gs_paths: str | None = None,
    slots: int | None = None,
    credentials: bool = False,
    transparent: bool = False,
    seed: int = 0,
    pace: str = "none",
    speed: float | None = None,
) -> Settings:
    """Return settings; what is given here comes before what the project file says.

    Args:
        loaded: The project, if there is one.
        root: The state folder.
        cold: Start every replica as a new process; see `RunOptions.warm`.
        discrete: How discrete values reach a trainer.
        strict_gs: A trainer that writes files to a local folder named `gs:` fails.
        engine: What runs images; see `RunOptions`.
        gs_paths: `mapped` or `kept`. If neither the caller nor the project file gives it: `mapped` if trainers see the user's
            credentials, or if this system cannot show /gcs and the run is not `transparent`; otherwise `kept`.
        slots: Replicas at one time.
        credentials: Trainers see the user's credentials.
        transparent: For an unchanged program, which may also name buckets by `gs://` in the code of its trainers.
        seed: What the search of a study starts from.
        pace: See `waits`.
        speed: See `waits`.

    Raises:
        UsageError: `kept` together with `credentials`, or `speed` without a pace.
        ConfigError: `local.interpreters` names a Python that was not made yet.
    """
    local = loaded.project.local if loaded else LocalSettings()
    wanted = gs_paths or local.gs_paths
    if wanted == "kept" and credentials:
        raise UsageError("--pass-credentials is for trainers that go to Google; with gs_paths: kept they never do")
    # An unchanged program may write gs:// into the code of its trainers, where no argument can be mapped.
    keep = wanted == "kept" or (wanted is None and not credentials and (transparent or can_show_buckets()))
    provision, tear_down = waits(pace, speed)
    options = RunOptions(
        engine=engine or local.engine,
        pull=local.pull,
        limits=local.limits,
        warm=local.warm and not cold,
        keep_gs=keep,
        credentials=credentials,
        strict_gs=strict_gs,
        provision=provision,
        tear_down=tear_down,
    )
    if loaded:
        options = replace(
            options,
            project=loaded.project.project,
            region=loaded.project.region,
            interpreters=interpreters(loaded, load),
            images={
                pattern: replace(own, path=str(loaded.path(own.path, "local", "images").resolve()))
                for pattern, own in local.images.items()
            },
            built=_built(loaded),
        )
    return Settings(
        root,
        slots=slots or local.slots or default_slots(),
        options=options,
        seed=seed,
        discrete=discrete or local.discrete,
        allow_hosts=local.allow_hosts,
        public_buckets=local.public_buckets,
    )


def waits(pace: str, speed: float | None = None) -> tuple[float, float]:
    """Return the seconds it takes to get machines (`RunOptions.provision`), and to give them back (`RunOptions.tear_down`).

    Args:
        pace: `none` waits for nothing, `recorded` takes the medians of public recordings (rows `durations.*` of the catalog's limits).
        speed: Divides the times; None is 1.

    Raises:
        UsageError: A speed without a pace.
    """
    if pace == "none":
        if speed is not None:
            raise UsageError("--speed divides the times of a pace; give --pace recorded with it")
        return 0.0, 0.0
    factor = 1.0 if speed is None else speed
    limits = load().limits
    return median(limits.numbers("durations.start_gpu_s")) / factor, median(limits.numbers("durations.end_s")) / factor


def _built(loaded: Loaded) -> dict[str, TrainerSources]:
    """Pattern of each image that `vertexrig image` makes -> the trainer's sources."""
    trainer = loaded.project.trainer
    folder = loaded.path(trainer.path, "trainer", "path").resolve()
    # Without a project file, `trainer.path` is a default that does not exist.
    if not loaded.file.name or not folder.exists():
        return {}
    found = {}
    for kind, pattern in image.patterns(loaded).items():
        try:
            made = image.describe_image(loaded, kind)
        except VertexrigError:
            continue  # there is no image of that kind
        found[pattern] = TrainerSources(
            str(folder),
            trainer.module,
            str(loaded.output(PACKAGES_FOLDER).resolve()),
            made.framework,
            made.version,
            made.python,
        )
    return found
