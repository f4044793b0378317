"""What Miles cannot run, one check a module."""
