"""Sets of features known beforehand: as a prior, as a table of what became of them, and as a test afterwards."""

from .annotation import annotate as annotate
from .annotation import read_gene_sets as read_gene_sets
from .confirmation import confirm as confirm
from .enrichment import Enrichment as Enrichment
from .enrichment import enrich as enrich
