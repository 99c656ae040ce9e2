"""Tables made by others: text in its many dialects, Excel, and the binary formats of pandas, R and AnnData."""

from .parsed import AmbiguousTableError as AmbiguousTableError
from .table import Choices as Choices
from .table import Table as Table
from .table import read as read
from .table import read_table as read_table
