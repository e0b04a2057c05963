"""Tables of texts and numbers: reading, looking, schemas and encoders."""

from .encoder import Encoder
from .files import read_sheet, read_sheets
from .look import Look, look
from .schema import ColumnSchema, Schema, read_schema
from .sheet import Dialect, Sheet, from_frame

__all__ = [
    "ColumnSchema", "Dialect", "Encoder", "Look", "Schema", "Sheet", "from_frame", "look", "read_schema", "read_sheet", "read_sheets",
]
