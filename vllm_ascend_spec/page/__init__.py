"""A page of the server that shows whether speculation pays: ``/spec``, and its data."""
