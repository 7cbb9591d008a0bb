"""How programs reach the server of a local Vertex: by the real names of Google's APIs, unchanged, and over gRPC.

A proxy on loopback (`proxy`) ends TLS with certificates of the state folder's own authority (`authority`), routes what
it receives by host (`routing`), and has the account that programs log in with (`identity`). `variables` has the environment that
leads programs to it; `assembly` makes the parts. `rpc` answers gRPC: each method is one REST call, converted by Google's descriptors.

On the server's own address is the console (`console`), a page that shows jobs and calls (`calls`). It reads the
REST APIs as every client does, and read-only answers of its own.
"""
