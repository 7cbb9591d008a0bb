"""How programs reach the server of a local Vertex: by the real names of Google's APIs, unchanged, and over gRPC.

A proxy on loopback (`proxy`) ends TLS with certificates of the state folder's own authority (`authority`), routes what
it receives by host (`app`), and knows who the programs are (`identity`). `variables` is what points programs at it;
`assembly` puts the parts together. `rpc` answers gRPC: each method is one REST call, converted by Google's descriptors.

On the server's own address is the console (`console`), a page that shows what runs and who called what (`calls`). It reads the
REST APIs as every client does; beside them are read-only answers for what no API has.
"""
