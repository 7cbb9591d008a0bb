"""Jobs, pipelines and tuning jobs: from a valid request to a resource in the store, a place in the queue, and an end.

`manager` runs jobs, also for pipelines (`localvertex.services.pipelines`), `studies` tuning jobs: `study_engine` suggests trials and
stops them (`sampling`, which alone imports Optuna, and `stopping`), `study_run` keeps them running side by side, `metrics` reads what
they report.
"""
