"""How programs reach the server of a local Vertex: by the real names of Google's APIs, unchanged, and over gRPC.

A proxy on loopback (`proxy`) ends TLS with certificates of the state folder's own authority (`authority`), routes what
it receives by host (`app`), and knows who the programs are (`identity`). `variables` is what points programs at it;
`assembly` puts the parts together. `rpc` answers gRPC: each method is one REST call, converted by Google's descriptors.
"""
