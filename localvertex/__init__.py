"""The local Vertex: a development server on loopback that speaks the REST APIs a training job needs."""
