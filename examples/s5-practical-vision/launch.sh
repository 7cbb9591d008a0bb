#!/bin/sh
# The book's vertex_submit_job.sh: render job or sweep $1, and submit it with gcloud if the checks find no error.
#   ./launch.sh flowers-hp --set max_trial_count=10
set -eu
cd "$(dirname "$0")"
command=$(vertexrig render "$@") # custom-jobs or hp-tuning-jobs, as the YAML needs
echo "$command" >&2
eval "$command"
