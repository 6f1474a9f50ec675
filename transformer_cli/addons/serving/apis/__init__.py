"""The HTTP APIs, one module each: how requests are read, and how results and errors are written."""
