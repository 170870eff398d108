"""The API described by itself: ``/openapi.json``, and ``/docs``, a page that shows it without asking anyone else."""
