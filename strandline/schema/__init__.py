"""The schema of records: the schema registry of a stream, lenses between its versions, validation, profiles."""
