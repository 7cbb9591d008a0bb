"""The front of a local Vertex: how programs that nobody changed reach it, by the real names of Google's APIs.

A proxy on loopback (`proxy`) ends TLS with certificates of the state folder's own authority (`authority`), routes what
it receives by host (`app`), and knows who the programs are (`identity`). `variables` is what points programs at it;
`assembly` puts the parts together.
"""
