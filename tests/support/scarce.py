"""What the service says when it has no machines, as `vertexrig.submit.scarcity` has it recorded."""

from __future__ import annotations

QUOTA = "The following quota metrics exceed quota limits: aiplatform.googleapis.com/custom_model_training_cpus"
STOCKOUT = (
    "Resources are insufficient in region: us-central1. Please try a different region or use a different accelerator."
)
