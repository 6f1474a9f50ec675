"""Text that a decoder alone continues."""

NEEDS = ("interop",)
