"""Documents with mark-up and placeholders: what is text in them is translated, everything else is kept."""
