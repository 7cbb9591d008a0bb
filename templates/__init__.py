"""The templates of vertexrig: one per topology, one per kind of sweep, and the parts they share."""
