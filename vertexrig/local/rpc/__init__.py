"""gRPC beside REST: each method of the Google APIs is one REST call of this server, converted by Google's descriptors."""
