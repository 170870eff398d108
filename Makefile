VENV ?= .venv
