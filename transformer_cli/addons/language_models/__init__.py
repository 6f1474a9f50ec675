"""Text that a decoder alone continues."""
