"""Readers, one source tool a module; a reader is registered by lying here (see `precc.importing.reading.Reader`)."""
