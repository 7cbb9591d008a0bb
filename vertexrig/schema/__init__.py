"""Typed values out of plain data, with errors that name path, line and choices."""
