"""Job specs as Vertex AI takes them, read strictly, in the shape of Google's own messages.

In: YAML or JSON text, or plain data. Out: a `Document`, its worker pools, cluster, quota, and findings on what cannot be read.
"""

from vertexrig.spec.document import KINDS, Document, Kind, Pool
from vertexrig.spec.reading import from_data, parse
from vertexrig.spec.strict import READING_RULES, ReadingRule

__all__ = ["KINDS", "READING_RULES", "Document", "Kind", "Pool", "ReadingRule", "from_data", "parse"]
